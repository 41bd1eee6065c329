//! More connections, queries and denials than the limits allow.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use spec::denial_reason::DenialReason;

use crate::ground::{Ground, Plan, ask, dial, enter, exchange, question};

#[test]
fn connections_beyond_the_limit_are_denied_and_slots_are_reused() {
    if !enter("floods::connections_beyond_the_limit_are_denied_and_slots_are_reused") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let address = ground.act(|| ask("api.openai.com").1.expect("an address"));
    let to = SocketAddr::from((address, 8080));
    let streams = ground.act(move || {
        let all: Vec<TcpStream> = (0..300)
            .filter_map(|_| TcpStream::connect(to).ok())
            .collect();
        let mut kept = Vec::new();
        for mut stream in all {
            if exchange(&mut stream, b"hello") == b"hello" {
                kept.push(stream);
            }
        }
        kept
    });
    assert_eq!(streams.len(), 256);
    drop(streams);
    // Two thousand more; a connection that is refused because all slots are in use is repeated.
    for wave in 0..20_u32 {
        let echoed = ground.act(move || {
            let mut echoed = 0;
            while echoed < 100 {
                let mut all: Vec<TcpStream> = (echoed..100)
                    .filter_map(|_| TcpStream::connect(to).ok())
                    .collect();
                for (stream, number) in all.iter_mut().zip(0_u32..) {
                    let sent = (wave << 16 | number).to_be_bytes();
                    let back = exchange(stream, &sent);
                    assert!(back.is_empty() || back == sent);
                    echoed += back.len() / 4;
                }
            }
            echoed
        });
        assert_eq!(echoed, 100);
    }
    let outcome = ground.finish();
    let kinds: Vec<_> = outcome.denials.distinct().collect();
    assert_eq!(kinds.len(), 1);
    assert_eq!(kinds[0].0.reason, DenialReason::Limit);
    assert!(44 <= kinds[0].1.count);
    assert_eq!(outcome.report.hosts[0].connections, 2_256);
}

#[test]
fn ten_thousand_denials_of_each_kind_are_all_counted() {
    if !enter("floods::ten_thousand_denials_of_each_kind_are_all_counted") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let connections = ground.body.start(|| {
        for _ in 0..10_000 {
            // The reset may arrive before connect(2) returns.
            drop(TcpStream::connect("8.8.8.8:443"));
        }
    });
    let questions = ground.body.start(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
        socket.connect("8.8.8.8:53").expect("connected");
        let mut buffer = [0; 512];
        for number in 0..10_000 {
            let name = format!("n{}.evil.com", number % 2_000);
            socket.send(&question(&name, 1)).expect("sent");
            socket.recv(&mut buffer).expect("answered");
        }
    });
    ground.wait(&connections);
    ground.wait(&questions);
    let outcome = ground.finish();
    let kinds: Vec<_> = outcome.denials.distinct().collect();
    assert_eq!(kinds.len(), 1_000);
    let kept: u64 = kinds.iter().map(|(_, seen)| seen.count).sum();
    assert_eq!(kept + outcome.denials.unlisted(), 20_000);
    assert_eq!(outcome.report.lost_questions, 0);
    let dialled = kinds.iter().find(|(attempt, _)| attempt.port == Some(443));
    assert_eq!(dialled.expect("among them").1.count, 10_000);
}

#[test]
fn dns_queries_beyond_the_buffer_are_counted_as_lost() {
    if !enter("floods::dns_queries_beyond_the_buffer_are_counted_as_lost") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    // The relay does not run while they are sent.
    ground.body.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
        for _ in 0..20_000 {
            socket
                .send_to(&question("evil.com", 1), "8.8.8.8:53")
                .expect("sent");
        }
    });
    ground.act(|| ());
    let outcome = ground.finish();
    let (_, seen) = outcome.denials.distinct().next().expect("one kind");
    assert!(0 < outcome.report.lost_questions);
    assert_eq!(seen.count + outcome.report.lost_questions, 20_000);
}

#[test]
fn a_relay_without_descriptors_waits_and_goes_on() {
    if !enter("floods::a_relay_without_descriptors_waits_and_goes_on") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let mut held = Vec::new();
    let waiting = ground
        .body
        .start(|| exchange(&mut dial("api.openai.com", 8080), b"hello"));
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(256),
            maximum: Some(256),
        },
    )
    .expect("set");
    // The body needs descriptors too; here it is in the same process.
    std::thread::sleep(Duration::from_millis(200));
    while let Ok(file) = std::fs::File::open("/dev/null") {
        held.push(file);
    }
    ground.body.run(|| ());
    let start = std::time::Instant::now();
    let mut turns = 0_u32;
    while start.elapsed() < Duration::from_millis(500) {
        ground.until(|_| {
            turns += 1;
            turns.is_multiple_of(10)
        });
    }
    // Each turn of the test waits 2 ms if there is no event.
    assert!(turns < 2_000, "{turns} turns: it does not wait");
    drop(held);
    assert_eq!(ground.wait(&waiting), b"hello");
}
