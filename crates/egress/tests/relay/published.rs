//! Connections from outside to published ports.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use runner_egress::dialler::Settings;
use runner_egress::relay::Published;

use crate::ground::{Ground, Plan, connect, enter, exchange, in_one_process, is_reset};

fn ground(port: u16) -> Ground {
    Ground::new(Plan {
        publishes: Some(port),
        ..Plan::default()
    })
}

/// Runs a client in the host's network.
fn call<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> mpsc::Receiver<R> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || drop(sender.send(act())));
    receiver
}

const ONE_CONNECTION: [spec::egress_report::PublishedReport; 1] =
    [spec::egress_report::PublishedReport {
        host_port: 7_000,
        body_port: 5_000,
        connections: 1,
    }];

fn echo(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let mut buffer = [0; 1_000];
        while let Ok(read) = stream.read(&mut buffer) {
            if read == 0 || stream.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_caller_reaches_a_server_of_the_body() {
    if !enter("published::a_caller_reaches_a_server_of_the_body") {
        return;
    }
    let mut ground = ground(5_000);
    ground.body.run(|| {
        let listener = TcpListener::bind("127.0.0.1:5000").expect("bound");
        std::thread::spawn(move || echo(&listener));
    });
    let caller = call(|| {
        let mut stream = connect("127.0.0.1:7000");
        let mut writer = stream.try_clone().expect("cloned");
        let writing = std::thread::spawn(move || {
            writer.write_all(&[7; 1_000_000]).expect("written");
            writer.shutdown(Shutdown::Write).expect("shut down");
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("an orderly end");
        writing.join().expect("written");
        back.len()
    });
    assert_eq!(ground.wait(&caller), 1_000_000);
    let outcome = ground.finish();
    assert_eq!(outcome.report.published, ONE_CONNECTION);
    assert_eq!(outcome.denials.distinct().count(), 0);
    assert!(outcome.report.hosts.is_empty());
}

#[test]
fn a_server_on_the_loopback_of_ipv6_alone_is_reached_too() {
    if !enter("published::a_server_on_the_loopback_of_ipv6_alone_is_reached_too") {
        return;
    }
    let mut ground = ground(5_000);
    ground.body.run(|| {
        let listener = TcpListener::bind("[::1]:5000").expect("bound");
        std::thread::spawn(move || echo(&listener));
    });
    let caller = call(|| exchange(&mut connect("127.0.0.1:7000"), b"hello"));
    assert_eq!(ground.wait(&caller), b"hello");
}

#[test]
fn a_caller_is_reset_where_nobody_listens_inside_and_where_the_body_has_ended() {
    if !enter(
        "published::a_caller_is_reset_where_nobody_listens_inside_and_where_the_body_has_ended",
    ) {
        return;
    }
    let mut ground = ground(5_000);
    let caller = call(|| is_reset(&mut connect("127.0.0.1:7000")));
    assert!(ground.wait(&caller));
    ground.dialler().body_has_ended();
    ground.until(|ground| ground.dialler().is_drained());
    assert!(
        TcpStream::connect("127.0.0.1:7000").is_err(),
        "the port is closed"
    );
}

#[test]
fn a_socket_that_never_comes_ends_in_a_reset_and_a_late_one_is_closed() {
    if !enter("published::a_socket_that_never_comes_ends_in_a_reset_and_a_late_one_is_closed") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0");
    // The loopback device of this network is down until the test network is created.
    drop(listener);
    std::process::Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .expect("ip is there");
    let listener = TcpListener::bind("127.0.0.1:7000").expect("bound");
    listener.set_nonblocking(true).expect("set");
    let published = Published {
        listener: listener.into(),
        host_port: 7_000,
        body_port: 5_000,
    };
    let (_resolver, link) = sys::link::pair().expect("a pair");
    let settings = Settings::default();
    let (mut dialler, mut relay) = in_one_process(None, vec![published], settings, link);
    let start = std::time::Instant::now();
    let caller = call(|| is_reset(&mut connect("127.0.0.1:7000")));
    let request = loop {
        relay.turn(start).expect("turned");
        dialler.turn(start).expect("turned");
        if let Some(request) = dialler.next_connect_request() {
            break request;
        }
    };
    assert_eq!((request.port, request.is_v6), (5_000, false));
    assert_eq!(relay.deadline(), Some(start + Duration::from_secs(10)));
    let late = start + Duration::from_secs(11);
    relay.turn(late).expect("turned");
    assert!(caller.recv().expect("done"));
    let (one, mut other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    dialler.take_socket(request.id, Ok(one.into()));
    relay.turn(late).expect("turned");
    assert_eq!(other.read(&mut [0]).expect("closed"), 0);
    dialler.turn(late).expect("turned");
    assert_eq!(dialler.next_connect_request(), None);
    let outcome = dialler.read_outcome(&relay.finish(late));
    assert_eq!(outcome.expect("genuine").report.published, ONE_CONNECTION);
}
