//! The processes of a run's network: which rights they have, and when they end.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::runs::{Capture, Seen, Setting};
use support::invariants::eventually;
use support::processes::{assert_without_rights, confined_children, is_gone, status};
use support::{Running, is_root};

/// A connection that stays open until the other side ends it, and one after that.
const HOLD: &str = "
address = socket.gethostbyname(name)
held = socket.create_connection((address, 9000), 30)
held.sendall(b'echo\\nheld')
say(held.recv(100).decode(), 'x' * 100)
try:
    say('end', held.recv(100))
except OSError as error:
    say('end', told(error))
say('again', dial(address, 9000, patience=2) in ('reset', 'silence', 'closed'))
";

/// A body with an open connection, and its resolver and relay.
fn holding(setting: &Setting, number: u8) -> (Running<'_>, [i32; 2]) {
    let name = setting.name(number);
    let listed = format!("{name}:9000");
    let script = format!("name = {name:?}\n{HOLD}");
    let case = setting.case(&["--allow-net", &listed], &script);
    let mut running = case.without("I4").without("I5").without("I8").start();
    running.until_printed(100);
    let processes = confined_children(running.pid());
    let processes = processes.try_into().expect("a resolver and a relay");
    (running, processes)
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("sent");
}

/// The warnings about the network.
fn warnings(seen: &Seen) -> Vec<&str> {
    let warnings = seen.done.report["warnings"].as_array().expect("a list");
    let warnings = warnings
        .iter()
        .filter(|warning| warning["code"] == "network_failed");
    let messages = warnings.map(|warning| warning["message"].as_str().expect("text"));
    messages.collect()
}

fn assert_nobody(pid: i32) {
    if is_root() {
        for key in ["Uid", "Gid"] {
            let nobody = "65534 65534 65534 65534";
            assert_eq!(status(pid, key).as_deref(), Some(nobody), "{key}");
        }
    }
}

/// What the descriptors from 3 on refer to, without numbers.
fn descriptors(pid: i32) -> Vec<String> {
    let directory = fs::read_dir(format!("/proc/{pid}/fd")).expect("listed");
    let mut all: Vec<String> = directory
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            !["0", "1", "2"]
                .iter()
                .any(|standard| path.ends_with(standard))
        })
        .map(|path| {
            fs::read_link(path)
                .expect("a link")
                .to_string_lossy()
                .into_owned()
        })
        .map(|target| target.split(":[").next().unwrap_or_default().to_owned())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

on_both_captures! {
    /// while a connection is open.
    fn the_processes_of_the_network_have_no_rights_and_end_with_the_run(setting) {
        let (running, [resolver, relay]) = holding(setting, 243);
        for pid in [resolver, relay] {
            assert_without_rights(pid, running.pid());
            assert_nobody(pid);
            if is_root() {
                assert_eq!(descriptors(pid), ["anon_inode", "pipe", "socket"]);
            }
        }
        running.signal(Signal::TERM);
        let done = running.done();
        assert_eq!(done.outcome(), "cancelled", "{done:#?}");
        assert!(is_gone(resolver) && is_gone(relay));
    }

    /// A-62, E-26: the run goes on without a network.
    fn a_relay_that_is_killed_leaves_a_run_without_a_network(setting) {
        let (running, [resolver, relay]) = holding(setting, 244);
        kill(relay, Signal::KILL);
        let seen = Seen::of(running.done());
        seen.done.assert_exited(0);
        assert!(seen.said[1].starts_with("end: "), "{seen:#?}");
        assert_eq!(seen.said[2], "again: True", "{seen:#?}");
        let told = warnings(&seen);
        assert_eq!(told.len(), 1, "{seen:#?}");
        assert!(told[0].contains("ended before the run"), "{told:?}");
        assert!(is_gone(resolver));
        assert_eq!(setting.outside.log().packets_to(&setting.public(244)).len(), 1);
    }

    /// E-26: the processes end with the supervisor.
    fn the_processes_of_the_network_die_with_a_killed_supervisor(setting) {
        let (running, [resolver, relay]) = holding(setting, 243);
        running.signal(Signal::KILL);
        assert_eq!(running.done().code, 137);
        eventually("the processes have ended", || is_gone(resolver) && is_gone(relay));
    }
}

/// look-ups fail, and what needs none goes on.
#[test]
fn a_resolver_that_is_killed_leaves_the_open_connections() {
    Setting::with(Capture::AnyIp, |setting| {
        let (running, [resolver, relay]) = holding(setting, 243);
        kill(resolver, Signal::KILL);
        eventually("it is reaped or a zombie", || {
            status(resolver, "State").is_none_or(|state| state.starts_with('Z'))
        });
        assert!(!is_gone(relay));
        running.signal(Signal::TERM);
        let done = running.done();
        assert_eq!(done.outcome(), "cancelled", "{done:#?}");
        assert!(is_gone(resolver) && is_gone(relay));
    });
}

/// A-62, E-26: a relay that answers nothing is ended, and the run says so.
#[test]
fn a_relay_that_is_stopped_does_not_hold_the_run() {
    Setting::with(Capture::AnyIp, |setting| {
        let (running, [resolver, relay]) = holding(setting, 243);
        kill(relay, Signal::STOP);
        for body in support::invariants::living(setting.ground.marker()) {
            if status(body, "NSpid").is_some_and(|pids| pids.ends_with(" 2")) {
                kill(body, Signal::KILL);
            }
        }
        let seen = Seen::of(running.done());
        seen.done.assert_outcome("signaled", 137);
        let told = warnings(&seen);
        assert!(
            told.iter().any(|told| told.contains("gave no account")),
            "{seen:#?}"
        );
        assert!(is_gone(resolver) && is_gone(relay));
    });
}
