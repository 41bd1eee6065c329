//! A resolver that a name server takes over.

use super::network::{Network, Seen, heard_outside};
use attacker::{Answer, Attack};
use rustix::process::Signal;

const ENDED: &str = "the process that queries name servers ended before the run";

/// A name below which the name server of the network outside answers with the attack.
fn plant(network: &Network, attack: &Attack) -> String {
    let label = network.outside.plant(attack.on("resolver").as_bytes());
    format!("v4-93-184-216-13.{label}.zone.example")
}

fn run(network: &Network, attack: &Attack) -> (String, Seen) {
    let name = plant(network, attack);
    let rule = format!("{name}:9000");
    let script = format!("say('first', dial({name:?}, 9000))\nsay('then', dial({name:?}, 9000))");
    let seen = network.run(network.case(&[], &[&rule], &script));
    // Look-ups have failed, and the connections with them.
    assert_eq!(seen.said, ["first: reset", "then: reset"], "{seen:#?}");
    assert_eq!(network.outside.log().packets_to("93.184.216.13"), [""; 0]);
    (rule, seen)
}

fn answer(text: &str) -> Attack {
    Attack {
        answer: Answer {
            text: (text.to_owned(), None),
            ..Answer::default()
        },
        ..Attack::default()
    }
}

/// A-63: by an answer over UDP, and by a longer one over TCP.
#[test]
fn a_resolver_that_is_taken_over_reaches_name_servers_and_nothing_else() {
    let Some(network) = Network::new() else {
        return;
    };
    let full = network.exploration();
    let short = Attack {
        answer: full.answer.clone(),
        ..Attack::default()
    };
    for attack in [short, full] {
        let (_, seen) = run(&network, &attack);
        seen.assert_warned(ENDED);
        // Its link, its query; the standard streams, its answer, epoll. Landlock of older kernels knows no
        // ports.
        let has_ports = sys::landlock::abi().expect("known") >= 4;
        let connect = match attack.surroundings.address {
            Some(_) if !has_ports => "connect, ",
            _ => "",
        };
        let expected =
            format!("has 2 sockets and 5 others, {connect}socket inet, sendmsg, recvmsg\n");
        assert_eq!(heard_outside(network.outside, &attack), expected);
    }
}

/// A-63: addresses of the host and of its network are not dialled.
#[test]
fn a_resolver_that_is_taken_over_leads_to_no_private_address() {
    let Some(network) = Network::new() else {
        return;
    };
    let forged =
        r#"{"id":1,"addresses":["127.0.0.1","10.1.2.3","93.184.217.1","::ffff:127.0.0.1"]}"#;
    let (rule, seen) = run(&network, &answer(forged));
    seen.assert_warned(ENDED);
    let denials = seen.done.report["denials"].as_array().expect("a list");
    let shown: Vec<String> = denials
        .iter()
        .map(|one| format!("{} {}:{}", one["reason"], one["host"], one["port"]))
        .collect();
    let (host, port) = rule.split_once(':').expect("a rule");
    assert_eq!(shown, [format!(r#""resolves-to-private" "{host}":{port}"#)]);
    for address in ["10.1.2.3", "93.184.217.1"] {
        assert_eq!(network.outside.log().packets_to(address), [""; 0]);
    }
}

/// A-63: what no resolver sends ends the look-ups.
#[test]
fn a_resolver_that_is_taken_over_is_ended_by_a_malformed_message() {
    let Some(network) = Network::new() else {
        return;
    };
    for message in [
        "",
        "noise",
        r#"{"id":1,"addresses":["evil.example"]}"#,
        r#"{"Dial":{"id":1,"host":{"Address":"93.184.216.13"},"port":9000}}"#,
        &format!(r#"{{"id":1,"addresses":null}}{}"#, " ".repeat(2100)),
    ] {
        let (_, seen) = run(&network, &answer(message));
        seen.assert_warned(ENDED);
        let denials = &seen.done.report["denials"];
        assert_eq!(denials, &serde_json::json!([]), "{message}");
    }
}

/// A-63, E-26.
#[test]
fn a_resolver_that_is_taken_over_does_not_outlive_the_supervisor() {
    let Some(network) = Network::new() else {
        return;
    };
    let attack = Attack {
        stays: true,
        ..answer(r#"{"id":1,"addresses":["10.1.2.3"]}"#)
    };
    let name = plant(&network, &attack);
    let rule = format!("{name}:9000");
    let script = format!(
        "say('first', dial({name:?}, 9000))\nprint('x' * 200, flush=True)\ntime.sleep(600)"
    );
    for signal in [Signal::TERM, Signal::KILL] {
        network.assert_ends_with(network.case(&[], &[&rule], &script), signal);
    }
}
