//! Messages of a relay or a resolver that is taken over.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use proptest::prelude::*;
use runner_egress::allow::Allowlist;
use runner_egress::dialler::{Dialler, NetworkFailure, Settings};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use spec::egress::EgressRule;
use spec::egress_report::PublishedReport;
use spec::host_name::HostName;

/// The supervisor's side, and the ends of the relay and the resolver.
struct Taken {
    dialler: Dialler,
    relay: OwnedFd,
    resolver: OwnedFd,
}

impl Taken {
    fn new() -> Self {
        let rules = ["a.com:443", "*.b.com", "93.184.216.34:80", "c.com"];
        let rules = rules.map(|rule| EgressRule::parse(rule).expect(rule));
        let settings = Settings {
            allowed: Allowlist::new(rules.into()),
            hosts: b"10.1.2.3 c.com\n".to_vec(),
            ..Settings::default()
        };
        let published = PublishedReport {
            host_port: 8_000,
            body_port: 80,
            connections: 0,
        };
        let (relay_end, relay) = sys::link::pair().expect("a pair");
        let (resolver_end, resolver) = sys::link::pair().expect("a pair");
        let now = Instant::now();
        let dialler = Dialler::new(
            relay_end,
            Some(resolver_end),
            vec![published],
            settings,
            now,
        );
        Self {
            dialler: dialler.expect("a dialler"),
            relay,
            resolver,
        }
    }

    fn say(&mut self, message: &[u8]) {
        rustix::net::send(&self.relay, message, SendFlags::NOSIGNAL).expect("sent");
        self.turn();
    }

    fn resolve(&mut self, message: &str) {
        let sent = rustix::net::send(&self.resolver, message.as_bytes(), SendFlags::NOSIGNAL);
        sent.expect("sent");
        self.turn();
    }

    fn turn(&mut self) {
        self.dialler.turn(Instant::now()).expect("turned");
    }

    /// The next message for the relay or the resolver.
    fn next(from: &OwnedFd) -> Option<String> {
        let mut message = [0; 4_096];
        let received = rustix::net::recv(from, &mut message, RecvFlags::DONTWAIT);
        let (length, _) = received.ok().filter(|(length, _)| *length > 0)?;
        Some(String::from_utf8_lossy(&message[..length]).into_owned())
    }
}

fn dial(id: i32, host: &str, port: u16) -> String {
    let kind = if host.parse::<std::net::IpAddr>().is_ok() {
        "Address"
    } else {
        "Name"
    };
    format!(r#"{{"Dial":{{"id":{id},"host":{{"{kind}":"{host}"}},"port":{port}}}}}"#)
}

/// A-62: a host or port that is not in the list, and every other message that no relay sends, ends the
/// relay, and nothing is dialled or looked up.
#[test]
fn a_forged_request_ends_the_relay() {
    let long = format!("{}.b.com", "x".repeat(300));
    for message in [
        dial(1, "evil.com", 443),
        dial(1, "a.com", 80),
        dial(1, "b.com", 443),
        dial(1, "x.a.com", 443),
        dial(1, "93.184.216.34", 443),
        dial(1, "93.184.216.35", 80),
        dial(1, "::ffff:93.184.216.34", 80),
        dial(1, "127.0.0.1", 80),
        dial(1, "A.com", 443),
        dial(1, "a.com.", 443),
        dial(1, "a.com\\u0000.evil.com", 443),
        dial(1, "*.b.com", 443),
        dial(1, &long, 443),
        dial(1, "a.com", 443).replace("443", "65979"),
        dial(1, "a.com", 443).replace("443", "-443"),
        dial(1, "a.com", 443).replace(r#""port""#, r#""x":1,"port""#),
        dial(1, "a.com", 443).replace("Name", "Address"),
        dial(1, "a.com", 443) + &" ".repeat(3_000),
        dial(1, "a.com", 443) + "{}",
        dial(1, "a.com", 443).replace(r#""id":1"#, r#""id":4294967296"#),
        r#"{"Inside":{"id":1,"is_v6":false,"port":22}}"#.to_owned(),
        r#""Drained""#.to_owned(),
        r#""BodyHasEnded""#.to_owned(),
        "[".repeat(2_000),
        "\0".to_owned(),
    ] {
        let mut taken = Taken::new();
        taken.say(message.as_bytes());
        let failure = taken.dialler.failure();
        assert_eq!(failure, Some(NetworkFailure::Malformed), "{message}");
        assert_eq!(Taken::next(&taken.resolver), None, "{message}");
        assert_eq!(Taken::next(&taken.relay), None, "{message}");
        assert_eq!(taken.dialler.next_connect_request(), None);
        assert_eq!(taken.dialler.deadline(), None);
        assert!(taken.dialler.is_drained(), "the run does not wait");
    }
    let mut taken = Taken::new();
    taken.say(dial(1, "a.com", 443).as_bytes());
    assert_eq!(taken.dialler.failure(), None, "the others are well-formed");
    let query = r#"{"id":1,"name":"a.com"}"#;
    assert_eq!(Taken::next(&taken.resolver).as_deref(), Some(query));
}

/// A-62: ids, and the number of dials and of names below a wildcard.
#[test]
fn a_relay_has_no_more_dials_and_names_than_a_body() {
    let mut taken = Taken::new();
    taken.say(dial(1, "a.com", 443).as_bytes());
    taken.say(dial(1, "a.com", 443).as_bytes());
    assert_eq!(taken.dialler.failure(), Some(NetworkFailure::Malformed));

    let mut taken = Taken::new();
    for id in 0..256 {
        taken.say(dial(id, "a.com", 443).as_bytes());
    }
    assert_eq!(taken.dialler.failure(), None);
    taken.say(dial(256, "a.com", 443).as_bytes());
    assert_eq!(taken.dialler.failure(), Some(NetworkFailure::Malformed));

    let mut taken = Taken::new();
    for id in 0..64 {
        taken.say(dial(id, &format!("leak{id}.b.com"), 443).as_bytes());
    }
    assert_eq!(taken.dialler.failure(), None);
    taken.say(dial(64, "leak64.b.com", 443).as_bytes());
    assert_eq!(taken.dialler.failure(), Some(NetworkFailure::Malformed));
}

/// A-62: a relay that asks and takes no reply.
#[test]
fn replies_that_are_not_taken_are_bounded() {
    let mut taken = Taken::new();
    let mut is_full = false;
    for id in 0..100_000 {
        // Its address is private, so the reply follows at once.
        let request = dial(id, "c.com", 443);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        is_full = rustix::net::send(&taken.relay, request.as_bytes(), flags).is_err();
        taken.turn();
        if is_full {
            break;
        }
    }
    assert!(is_full, "all requests are read although no reply is");
    assert_eq!(taken.dialler.failure(), None);
}

/// A-62: descriptors that the supervisor did not ask for.
#[test]
fn no_descriptor_of_a_relay_is_taken() {
    let mut taken = Taken::new();
    let (mine, passed) = std::io::pipe().expect("a pipe");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [passed.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let message = dial(1, "c.com", 443);
    let parts = [IoSlice::new(message.as_bytes())];
    rustix::net::sendmsg(&taken.relay, &parts, &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
    taken.turn();
    drop(passed);
    // Nobody else has the writing end.
    let end = std::io::Read::read(&mut { mine }, &mut [0]);
    assert_eq!(end.expect("read"), 0);
}

/// A-63: addresses are judged by the supervisor, and what no resolver sends ends the look-ups.
#[test]
fn a_resolver_names_addresses_and_nothing_else() {
    let mut taken = Taken::new();
    taken.say(dial(7, "a.com", 443).as_bytes());
    // An id of no look-up.
    taken.resolve(r#"{"id":2,"addresses":["93.184.216.34"]}"#);
    assert_eq!(Taken::next(&taken.relay), None);
    taken.resolve(r#"{"id":1,"addresses":["127.0.0.1","::ffff:10.1.2.3"]}"#);
    let private = r#"{"Dialled":{"id":7,"result":{"Private":"127.0.0.1"}}}"#;
    assert_eq!(Taken::next(&taken.relay).as_deref(), Some(private));
    // Once more, after the dial.
    taken.resolve(r#"{"id":1,"addresses":["93.184.216.34"]}"#);
    assert_eq!(Taken::next(&taken.relay), None);

    let many = ["\"10.1.2.3\""; 17].join(",");
    for message in [
        format!(r#"{{"id":1,"addresses":[{many}]}}"#),
        r#"{"id":1,"addresses":["a.com"]}"#.to_owned(),
        r#"{"id":1,"addresses":["10.1.2.3:53"]}"#.to_owned(),
        r#"{"id":-1,"addresses":null}"#.to_owned(),
        r#"{"id":1,"addresses":null,"x":1}"#.to_owned(),
        " ".repeat(2_049),
        "\0".to_owned(),
    ] {
        let mut taken = Taken::new();
        taken.say(dial(7, "a.com", 443).as_bytes());
        taken.resolve(&message);
        let unreachable =
            r#"{"Dialled":{"id":7,"result":{"Unreachable":"no-name-server"}}}"#.to_owned();
        assert_eq!(
            Taken::next(&taken.relay),
            Some(unreachable.clone()),
            "{message}"
        );
        // Later look-ups fail too, and static addresses go on.
        taken.say(dial(8, "a.com", 443).as_bytes());
        let next = Taken::next(&taken.relay);
        assert_eq!(next, Some(unreachable.replace('7', "8")), "{message}");
        assert_eq!(taken.dialler.failure(), None);
        let (_, failures) = taken.dialler.finish();
        assert!(failures.contains(&NetworkFailure::Resolver), "{message}");
    }
}

proptest! {
    /// A-62.
    #[test]
    fn no_request_for_a_host_outside_of_the_list_is_served(
        label in "[a-z0-9.-]{0,12}",
        parent in prop::sample::select(vec!["", "a.com", ".a.com", "b.com", "ab.com", ".b.com.evil.com", "93.184.216.34", "c.com"]),
        port: u16,
    ) {
        let host = format!("{label}{parent}");
        let allowed = match host.as_str() {
            "a.com" => port == 443,
            "93.184.216.34" => port == 80,
            "c.com" => true,
            below => {
                let name = HostName::parse(below.as_bytes());
                name.is_ok_and(|name| name.as_str() == below && below.ends_with(".b.com"))
            }
        };
        let mut taken = Taken::new();
        taken.say(dial(1, &host, port).as_bytes());
        let is_served = taken.dialler.failure().is_none();
        prop_assert_eq!(is_served, allowed, "{}:{}", host, port);
    }

    #[test]
    fn any_message_is_read_without_a_panic(
        message in prop::collection::vec(any::<u8>(), 1..3_000),
        cut in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut taken = Taken::new();
        taken.say(&message);
        prop_assert_eq!(taken.dialler.failure(), Some(NetworkFailure::Malformed));
        let mut request = dial(1, "a.com", 443).into_bytes();
        let at = cut.index(request.len());
        request[at] = byte;
        Taken::new().say(&request);
        Taken::new().say(&request[..=at]);
    }
}
