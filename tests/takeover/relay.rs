//! A relay that a body takes over.

use super::network::{Network, Seen};
use attacker::{Answer, Attack};
use rustix::process::Signal;
use support::processes::is_gone;
use support::random;

const SCRIPT: &str = include_str!("../bodies/takeover/relay.py");
const CAPTURES: [&str; 2] = ["tproxy", "anyip"];
/// Where a body writes what the relay parses: DNS, TLS, HTTP, and both protocols of the proxy.
const WAYS: [&str; 6] = ["datagram", "stream", "hello", "head", "socks", "tunnel"];

fn name() -> String {
    format!("v4-93-184-216-11.u{}.zone.example", random())
}

fn script(name: &str, way: &str, attack: &Attack) -> String {
    let attack = attack.on("relay");
    format!("name, way, attack = {name:?}, {way:?}, {attack:?}.encode()\n{SCRIPT}")
}

fn run(network: &Network, capture: &str, way: &str, attack: &Attack) -> Seen {
    let name = name();
    let allowed = [443, 80, 9000].map(|port| format!("{name}:{port}"));
    let flags = ["--egress-capture", capture];
    let allowed = allowed.each_ref().map(String::as_str);
    network.run(network.case(&flags, &allowed, &script(&name, way, attack)))
}

fn answer(text: &str) -> Attack {
    Attack {
        answer: Answer {
            text: (format!("{text}\n"), None),
            ..Answer::default()
        },
        ..Attack::default()
    }
}

/// A-62.
#[test]
fn a_relay_that_is_taken_over_reaches_nothing_but_its_sockets() {
    let Some(network) = Network::new() else {
        return;
    };
    let attack = network.exploration();
    for (capture, way) in CAPTURES
        .into_iter()
        .flat_map(|capture| WAYS.map(|way| (capture, way)))
    {
        let seen = run(&network, capture, way, &attack);
        let [heard, then] = &seen.said[..] else {
            panic!("{capture} {way}: {seen:#?}");
        };
        // The standard streams, its answer, epoll. It may use sockets that it has.
        let (sockets, reached) = heard.split_once(" sockets and ").expect("sockets");
        assert!(sockets.starts_with("heard: attacker "), "{heard}");
        assert_eq!(
            reached, "5 others, sendmsg, recvmsg",
            "{capture} {way}: {heard}"
        );
        assert_eq!(then, "then: True", "{capture} {way}");
        seen.assert_warned("sent what it may not send");
    }
}

/// A-62: what it asks for is compared with the list, and it ends with the first wrong message.
#[test]
fn a_relay_that_is_taken_over_opens_no_connection_beyond_the_list() {
    let Some(network) = Network::new() else {
        return;
    };
    let evil = format!("v4-93-184-216-12.u{}.zone.example", random());
    let malformed = "sent what it may not send";
    for (message, warning) in [
        (
            r#"{"Dial":{"id":1,"host":{"Name":"EVIL"},"port":443}}"#,
            malformed,
        ),
        (
            r#"{"Dial":{"id":1,"host":{"Address":"93.184.216.12"},"port":443}}"#,
            malformed,
        ),
        (
            r#"{"Dial":{"id":1,"host":{"Address":"127.0.0.1"},"port":7777}}"#,
            malformed,
        ),
        (r#"{"Inside":{"id":1,"is_v6":false,"port":22}}"#, malformed),
        (r#""Drained""#, malformed),
        // An account of its own, in which every host was reached.
        (
            r#"{"denials":[],"unlisted":0,"hosts":[],"unreachable":[],"unreachable_beyond":0,"lost_questions":0,"lost_datagrams":0,"published":[]}"#,
            malformed,
        ),
        ("", "ended before the run"),
    ] {
        let message = message.replace("EVIL", &evil);
        let attack = match message.as_str() {
            "" => Attack::default(),
            message => answer(message),
        };
        let seen = run(&network, "anyip", "head", &attack);
        let heard = format!("heard: {message}");
        assert_eq!(
            seen.said,
            [heard.as_str(), "then: True"].map(str::to_owned),
            "{seen:#?}"
        );
        seen.assert_warned(warning);
        let log = network.outside.log();
        assert_eq!(log.packets_to("93.184.216.12"), [""; 0], "{message}");
        assert_eq!(log.questions_for(&evil), 0, "{message}");
        // What it wrote about its connections is not in the report.
        assert_eq!(seen.done.report["egress"]["hosts"], serde_json::json!([]));
    }
}

/// Asks for an allowed connection, and then does nothing, for ever.
fn staying(name: &str) -> Attack {
    let dial = format!(r#"{{"Dial":{{"id":1000,"host":{{"Name":"{name}"}},"port":9000}}}}"#);
    Attack {
        stays: true,
        ..answer(&dial)
    }
}

/// A-62: with the run, which does not wait for it longer than it has to.
#[test]
fn a_relay_that_is_taken_over_does_not_outlive_the_run() {
    let Some(network) = Network::new() else {
        return;
    };
    let name = name();
    let rule = format!("{name}:9000");
    let script = script(&name, "datagram", &staying(&name));
    let script = format!("{script}\nprint('x' * 200, flush=True)\ntime.sleep(0.1)");
    let (running, processes) = network.start(network.case(&["--grace=1s"], &[&rule], &script));
    let seen = Seen::of(running.done());
    seen.done.assert_exited(0);
    assert!(
        seen.said[0].starts_with(r#"heard: {"Dial""#) && seen.said[1] == "then: True",
        "{seen:#?}"
    );
    seen.assert_warned("gave no account");
    assert!(processes.into_iter().all(is_gone));
    // It was granted, and counts nowhere.
    assert_eq!(seen.done.report["egress"]["hosts"], serde_json::json!([]));
}

/// A-62, E-26.
#[test]
fn a_relay_that_is_taken_over_does_not_outlive_the_supervisor() {
    let Some(network) = Network::new() else {
        return;
    };
    let name = name();
    let rule = format!("{name}:9000");
    let script = script(&name, "datagram", &staying(&name));
    let script = format!("{script}\nprint('x' * 200, flush=True)\ntime.sleep(600)");
    for signal in [Signal::TERM, Signal::KILL] {
        network.assert_ends_with(network.case(&[], &[&rule], &script), signal);
    }
}
