//! How names are resolved outside, and which of their addresses are dialled.

use std::net::UdpSocket;
use std::time::Duration;

use spec::egress_report::UnreachableCause;

use crate::ground::{
    Ground, Plan, answer, ask, connect, dial, enter, exchange, is_reset, question,
};
use crate::outside::Zone;

/// Names that only the name server has.
fn ground() -> Ground {
    Ground::new(Plan {
        hosts: "",
        ..Plan::default()
    })
}

fn works(ground: &mut Ground, name: &'static str) -> bool {
    ground.act(move || exchange(&mut dial(name, 8080), b"hello") == b"hello")
}

#[test]
fn a_name_is_looked_up_once_for_each_connection_and_that_answer_is_dialled() {
    if !enter("lookups::a_name_is_looked_up_once_for_each_connection_and_that_answer_is_dialled") {
        return;
    }
    let mut ground = ground();
    let outside = ground.outside.clone();
    outside.name(
        "api.openai.com",
        Zone::of(&["93.184.216.34", "2606:2800::34"]),
    );
    assert!(works(&mut ground, "api.openai.com"));
    assert!(works(&mut ground, "api.openai.com"));
    // One query for each family each time.
    assert_eq!(outside.asked("api.openai.com"), (4, 0));
    outside.name("a.anthropic.com", Zone::of(&["2606:2800::34"]));
    assert!(works(&mut ground, "a.anthropic.com"));
    outside.name(
        "b.anthropic.com",
        Zone {
            alias: Some("elsewhere.example"),
            ..Zone::of(&["93.184.216.35"])
        },
    );
    assert!(works(&mut ground, "b.anthropic.com"));
    assert_eq!(
        outside.dialled(),
        [
            "93.184.216.34:8080",
            "93.184.216.34:8080",
            "[2606:2800::34]:8080",
            "93.184.216.35:8080"
        ]
    );
    assert_eq!(ground.denials(), [""; 0]);
}

#[test]
fn a_truncated_answer_is_requested_over_tcp() {
    if !enter("lookups::a_truncated_answer_is_requested_over_tcp") {
        return;
    }
    let mut ground = ground();
    let outside = ground.outside.clone();
    outside.name(
        "api.openai.com",
        Zone {
            truncates: true,
            ..Zone::of(&["93.184.216.34"])
        },
    );
    assert!(works(&mut ground, "api.openai.com"));
    let (datagrams, connections) = outside.asked("api.openai.com");
    assert_eq!(connections, 2);
    assert!((1..=2).contains(&datagrams), "{datagrams}");
}

#[test]
fn only_public_addresses_are_dialled_and_without_one_it_is_a_denial() {
    if !enter("lookups::only_public_addresses_are_dialled_and_without_one_it_is_a_denial") {
        return;
    }
    let mut ground = ground();
    let outside = ground.outside.clone();
    outside.name(
        "api.openai.com",
        Zone::of(&["10.1.2.3", "93.184.216.34", "10.1.2.3"]),
    );
    assert!(works(&mut ground, "api.openai.com"));
    for (name, zone) in [
        ("a.anthropic.com", Zone::of(&["10.1.2.3"])),
        ("b.anthropic.com", Zone::of(&["127.0.0.1", "::1"])),
        ("c.anthropic.com", Zone::of(&["169.254.169.254"])),
        (
            "d.anthropic.com",
            Zone::of(&["::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::1"]),
        ),
        // Addresses of the host: its own ends of the links.
        ("e.anthropic.com", Zone::of(&["198.51.100.1", "2a00::1"])),
        (
            "f.anthropic.com",
            Zone {
                alias: Some("internal.corp"),
                ..Zone::of(&["10.1.2.3"])
            },
        ),
    ] {
        outside.name(name, zone);
        assert!(
            ground.act(move || is_reset(&mut dial(name, 8080))),
            "{name}"
        );
    }
    assert_eq!(outside.dialled(), ["93.184.216.34:8080"]);
    let expected: Vec<String> = ["a", "b", "c", "d", "e", "f"]
        .map(|first| format!("tcp {first}.anthropic.com:8080 resolves-to-private x1"))
        .into();
    assert_eq!(ground.denials(), expected);
}

#[test]
fn a_name_that_later_resolves_to_a_private_address_is_not_dialled_there() {
    if !enter("lookups::a_name_that_later_resolves_to_a_private_address_is_not_dialled_there") {
        return;
    }
    let mut ground = ground();
    let outside = ground.outside.clone();
    let rounds = (0..20).map(|round| match round % 2 {
        0 => vec!["93.184.216.34"],
        _ => vec!["10.1.2.3"],
    });
    outside.name(
        "api.openai.com",
        Zone {
            answers: rounds.collect(),
            ..Zone::default()
        },
    );
    let reached: Vec<bool> = (0..20)
        .map(|_| works(&mut ground, "api.openai.com"))
        .collect();
    assert_eq!(reached, [true, false].repeat(10));
    assert_eq!(outside.dialled(), ["93.184.216.34:8080"; 10]);
    assert_eq!(
        ground.denials(),
        ["tcp api.openai.com:8080 resolves-to-private x10"]
    );
}

#[test]
fn added_hosts_take_precedence_over_the_hosts_file_and_that_over_servers() {
    if !enter("lookups::added_hosts_take_precedence_over_the_hosts_file_and_that_over_servers") {
        return;
    }
    let mut ground = Ground::new(Plan {
        allowed: vec![
            "a.com",
            "b.com",
            "c.com",
            "d.com",
            "10.1.2.3",
            "93.184.216.35:8080",
        ],
        added: vec![("a.com", "93.184.216.35"), ("d.com", "10.1.2.3")],
        private: vec!["10.1.2.3/32"],
        hosts: "93.184.216.34 a.com b.com\n169.254.169.254 d.com",
        ..Plan::default()
    });
    let outside = ground.outside.clone();
    outside.name("c.com", Zone::of(&["93.184.216.34"]));
    for name in ["a.com", "b.com", "c.com", "d.com"] {
        assert!(works(&mut ground, name), "{name}");
    }
    // Listed addresses.
    ground.act(|| {
        assert_eq!(exchange(&mut connect("10.1.2.3:8080"), b"x"), b"x");
        assert_eq!(exchange(&mut connect("93.184.216.35:8080"), b"x"), b"x");
        assert!(is_reset(&mut connect("93.184.216.35:8443")));
    });
    assert_eq!(outside.all_asked(), 2);
    assert_eq!(
        outside.dialled(),
        [
            "93.184.216.35:8080",
            "93.184.216.34:8080",
            "93.184.216.34:8080",
            "10.1.2.3:8080",
            "10.1.2.3:8080",
            "93.184.216.35:8080"
        ]
    );
    assert_eq!(
        ground.denials(),
        ["tcp 93.184.216.35:8443 port-not-allowed x1"]
    );
}

#[test]
fn a_host_that_does_not_answer_is_unreachable_and_not_denied() {
    if !enter("lookups::a_host_that_does_not_answer_is_unreachable_and_not_denied") {
        return;
    }
    let mut ground = Ground::new(Plan {
        hosts: "93.184.216.34 db.example",
        servers: vec!["198.51.100.2:54", "198.51.100.2:53"],
        ..Plan::default()
    });
    let outside = ground.outside.clone();
    // Nothing listens there, and the name does not exist.
    assert!(ground.act(|| is_reset(&mut dial("db.example", 9000))));
    assert!(ground.act(|| is_reset(&mut dial("x.anthropic.com", 8080))));
    // The first server refuses, so the second one is queried.
    outside.name(
        "api.openai.com",
        Zone::of(&["203.0.113.9", "93.184.216.34"]),
    );
    assert!(works(&mut ground, "api.openai.com"));
    let outcome = ground.finish();
    assert_eq!(outcome.denials.distinct().count(), 0);
    let unreachable: Vec<(&str, u16, UnreachableCause, u64)> = outcome
        .report
        .unreachable
        .iter()
        .map(|known| (known.host.as_str(), known.port, known.cause, known.count))
        .collect();
    assert_eq!(
        unreachable,
        [
            ("db.example", 9000, UnreachableCause::Refused, 1),
            ("x.anthropic.com", 8080, UnreachableCause::NoAddress, 1),
        ]
    );
}

#[test]
fn a_silent_name_server_is_abandoned_after_its_timeout() {
    if !enter("lookups::a_silent_name_server_is_abandoned_after_its_timeout") {
        return;
    }
    let mut ground = Ground::new(Plan {
        hosts: "",
        // An address that does not answer at all, not even with a refusal.
        servers: vec!["93.184.216.99:53"],
        ..Plan::default()
    });
    let waiting = ground
        .body
        .start(|| is_reset(&mut dial("api.openai.com", 8080)));
    ground.until(|ground| ground.has_deadline());
    ground.act(|| ());
    assert!(waiting.try_recv().is_err(), "there is still time");
    for _ in 0..6 {
        ground.skip(Duration::from_secs(2));
        ground.act(|| ());
    }
    assert!(ground.wait(&waiting));
    let causes: Vec<UnreachableCause> = ground
        .finish()
        .report
        .unreachable
        .iter()
        .map(|known| known.cause)
        .collect();
    assert_eq!(causes, [UnreachableCause::NoNameServer]);
}

#[test]
fn names_under_a_wildcard_are_limited_and_reported_as_one() {
    if !enter("lookups::names_under_a_wildcard_are_limited_and_reported_as_one") {
        return;
    }
    let mut ground = ground();
    for part in 0..5 {
        let codes = ground.act(move || {
            let codes = (0..100).map(|number| ask(&format!("n{part}-{number}.anthropic.com")).0);
            codes.collect::<Vec<u8>>()
        });
        let allowed = codes.iter().filter(|code| **code == 0).count();
        assert_eq!(allowed, if part == 0 { 64 } else { 0 });
        assert!(codes.iter().all(|code| [0, 3].contains(code)));
        ground.skip(Duration::from_secs(1));
    }
    assert_eq!(ground.outside.all_asked(), 0);
    assert_eq!(ground.denials(), ["dns *.anthropic.com limit x436"]);
}

#[test]
fn queries_beyond_the_rate_limit_fail_and_unknown_names_stay_unknown() {
    if !enter("lookups::queries_beyond_the_rate_limit_fail_and_unknown_names_stay_unknown") {
        return;
    }
    let mut ground = ground();
    // The relay does not run while they are sent, so they arrive at the same moment.
    let socket = ground.body.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
        socket.connect("8.8.8.8:53").expect("connected");
        for _ in 0..250 {
            let query = question("api.openai.com", 1);
            socket.send(&query).expect("sent");
        }
        socket
    });
    let codes = ground.act(move || {
        let mut buffer = [0; 512];
        let mut receive = || {
            socket
                .recv(&mut buffer)
                .map(|read| answer(&buffer[..read]).0)
        };
        let codes = (0..250).map(|_| receive().expect("answered"));
        codes.collect::<Vec<u8>>()
    });
    assert!(codes[..200].iter().all(|code| *code == 0));
    let failed = codes.iter().filter(|code| **code == 2).count();
    assert!((1..=50).contains(&failed), "{failed}");
    let unknown = ground.act(|| (0..300).map(|_| ask("evil.com").0).collect::<Vec<u8>>());
    assert!(unknown.iter().all(|code| *code == 3));
    let limited = format!("dns api.openai.com limit x{failed}");
    let expected = [&limited, "dns evil.com name-not-allowed x300"];
    assert_eq!(ground.denials(), expected);
}
