//! More of everything than there is room for.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::ground::{Ground, Plan, ask, connect, dial, enter, exchange, question};

#[test]
fn connections_beyond_the_cap_are_denied_and_their_places_are_used_again() {
    if !enter("floods::connections_beyond_the_cap_are_denied_and_their_places_are_used_again") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let address = ground.act(|| ask("api.openai.com").1.expect("an address"));
    let to = SocketAddr::from((address, 8080));
    let streams = ground.act(move || {
        let all: Vec<TcpStream> = (0..300)
            .map(|_| TcpStream::connect(to).expect("accepted"))
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
    // Two thousand more, of which never more than a hundred stand.
    for _ in 0..20 {
        ground.act(move || {
            let mut all: Vec<TcpStream> = (0..100).map(|_| connect(&to.to_string())).collect();
            for (stream, number) in all.iter_mut().zip(0_u32..) {
                stream.write_all(&number.to_be_bytes()).expect("written");
            }
            for (stream, number) in all.iter_mut().zip(0_u32..) {
                let mut back = [0; 4];
                stream.read_exact(&mut back).expect("echoed");
                assert_eq!(u32::from_be_bytes(back), number);
            }
        });
        // Closed by the body, and not yet by the relay: a moment for that.
        ground.act(|| std::thread::sleep(Duration::from_millis(5)));
    }
    let outcome = ground.finish();
    assert_eq!(
        crate::ground::shown(&outcome),
        ["tcp api.openai.com:8080 limit x44"]
    );
    assert_eq!(outcome.traffic[0].connections, 2_256);
}

#[test]
fn ten_thousand_denials_of_each_kind_are_all_counted() {
    if !enter("floods::ten_thousand_denials_of_each_kind_are_all_counted") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let connections = ground.body.start(|| {
        for _ in 0..10_000 {
            drop(TcpStream::connect("8.8.8.8:443").expect("accepted"));
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
    let kinds: Vec<_> = outcome.denials.kinds().collect();
    assert_eq!(kinds.len(), 1_000);
    let kept: u64 = kinds.iter().map(|(_, seen)| seen.count).sum();
    assert_eq!(kept + outcome.denials.others(), 20_000);
    assert_eq!(outcome.lost_questions, 0);
    let dialled = kinds.iter().find(|(attempt, _)| attempt.port == Some(443));
    assert_eq!(dialled.expect("among them").1.count, 10_000);
}

#[test]
fn questions_for_which_there_was_no_room_are_counted_as_lost() {
    if !enter("floods::questions_for_which_there_was_no_room_are_counted_as_lost") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    // Nobody turns the relay while they are sent.
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
    let (_, seen) = outcome.denials.kinds().next().expect("one kind");
    assert!(0 < outcome.lost_questions);
    assert_eq!(seen.count + outcome.lost_questions, 20_000);
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
    // The body needs its own, in the same process here.
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
            turns % 10 == 0
        });
    }
    // Each turn of the ground waits 2 ms, where there is nothing to do.
    assert!(turns < 2_000, "{turns} turns: it does not wait");
    drop(held);
    assert_eq!(ground.wait(&waiting), b"hello");
}
