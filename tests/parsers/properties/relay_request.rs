//! Requests of the relay to the supervisor; a relay that is taken over may send any.

use std::os::fd::OwnedFd;
use std::time::Instant;

use egress::allow::Allowlist;
use egress::dialler::{Dialler, Settings};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde_json::Value;
use spec::egress::EgressRule;
use spec::egress_report::PublishedReport;

/// More would not fit into the socket buffer at once.
const MESSAGES_MAX: usize = 8;
const PUBLISHED: u16 = 80;

/// The first byte says whether the body has ended before. Then follow messages, the length of each in two
/// bytes before it. No name has an address that may be dialled: nothing leaves the host.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

/// Whether it sends all of them.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let Some((first, mut rest)) = bytes.split_first() else {
        return true;
    };
    let has_ended = first & 1 != 0;
    let (mut dialler, relay) = start();
    if has_ended {
        dialler.body_has_ended();
        assert_eq!(replies(&relay), [r#""BodyHasEnded""#]);
    }
    for _ in 0..MESSAGES_MAX {
        let Some((length, after)) = rest.split_first_chunk() else {
            break;
        };
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (message, after) = after.split_at(length);
        rest = after;
        match rustix::net::send(&relay, message, SendFlags::NOSIGNAL) {
            Ok(_) => (),
            // It has been ended.
            Err(Errno::PIPE) => {
                assert!(dialler.failure().is_some());
                break;
            }
            Err(errno) => panic!("{errno}"),
        }
        dialler.turn(Instant::now()).expect("turned");
        while let Some(request) = dialler.next_connect_request() {
            assert_eq!(request.port, PUBLISHED);
            assert!(!has_ended);
            dialler.take_socket(request.id, Err(Errno::CONNREFUSED));
        }
        if dialler.failure().is_some() {
            assert!(replies(&relay).is_empty());
            break;
        }
        assert!(may_be_sent(message, has_ended), "{}", shown(message));
        for reply in replies(&relay) {
            assert!(!reply.contains("Connected"), "{reply}");
        }
    }
    // No relay ran.
    let is_genuine = dialler.failure().is_none();
    let (outcome, failures) = dialler.finish();
    assert_eq!(failures.len(), 1);
    assert!(outcome.report.hosts.is_empty() && outcome.denials.unlisted() == 0);
    is_genuine
}

fn start() -> (Dialler, OwnedFd) {
    let rules = ["a.com:443", "*.b.com", "c.com"];
    let rules = rules.map(|rule| EgressRule::parse(rule).expect(rule));
    let settings = Settings {
        allowed: Allowlist::new(rules.into()),
        hosts: b"10.1.2.3 a.com\n127.0.0.1 c.com\n".to_vec(),
        ..Settings::default()
    };
    let published = PublishedReport {
        host_port: 8_000,
        body_port: PUBLISHED,
        connections: 0,
    };
    let (link, relay) = sys::link::pair().expect("a pair");
    let dialler = Dialler::new(link, None, vec![published], settings, Instant::now());
    (dialler.expect("a dialler"), relay)
}

/// The texts that wait for the relay.
fn replies(relay: &OwnedFd) -> Vec<String> {
    let mut found = Vec::new();
    let mut reply = [0; 4_096];
    while let Ok((length @ 1.., _)) = rustix::net::recv(relay, &mut reply, RecvFlags::DONTWAIT) {
        let reply = std::str::from_utf8(&reply[..length]).expect("text");
        found.push(reply.to_owned());
    }
    found
}

/// Whether some relay with these rules sends it.
fn may_be_sent(message: &[u8], has_ended: bool) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(message) else {
        return false;
    };
    if value == "Drained" {
        return has_ended;
    }
    let (dial, inside) = (&value["Dial"], &value["Inside"]);
    // A struct may also be written as a list.
    let field = |of: &Value, name: &str, at: usize| match of {
        Value::Array(list) => list.get(at).cloned().unwrap_or_default(),
        other => other[name].clone(),
    };
    if !inside.is_null() {
        return field(inside, "port", 2) == PUBLISHED;
    }
    let host = field(dial, "host", 1);
    let name = host["Name"].as_str().unwrap_or_default();
    // A rule without a port allows every port.
    let is_listed = name == "c.com"
        || name.ends_with(".b.com")
        || (name == "a.com" && field(dial, "port", 2) == 443);
    is_listed && name == name.to_ascii_lowercase()
}

fn shown(message: &[u8]) -> String {
    String::from_utf8_lossy(message).into_owned()
}
