//! `exec --timeout`: the time of one command.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use crate::host::Host;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use support::has_cgroup;
use support::invariants::{eventually, living};

/// A process that ignores the stop signal, in a process group of its own.
const STUBBORN: &str = "python3 -c 'import os, signal, time; os.setpgid(0, 0); \
                        signal.signal(15, signal.SIG_IGN); time.sleep(1000)'";

/// Starts `sh -c TEXT` for a limited time.
fn start(host: &Host, timeout: &str, text: &str) -> Child {
    let words = [
        "sandbox",
        "exec",
        "--timeout",
        timeout,
        "one",
        "--",
        "sh",
        "-c",
        text,
    ];
    host.command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

fn create(host: &Host, flags: &[&str]) {
    let marker = format!("RUNNER_TEST_MARKER={}", host.ground.marker());
    host.create("one", &[&["-e", &marker][..], flags].concat());
}

/// The last command that ended.
fn last_ended(host: &Host) -> Value {
    let states = host.list();
    let latest = states[0]["ended"]["latest"].as_array().expect("a list");
    latest.last().expect("a command").clone()
}

/// E-33.
#[test]
fn a_command_that_ignores_the_stop_signal_is_killed_with_its_session_and_the_sandbox_stays() {
    let host = Host::new();
    create(&host, &["--grace", "200ms"]);
    let text = format!("trap '' TERM; {STUBBORN} & sleep 1002; sleep 1003");
    let done = start(&host, "300ms", &text)
        .wait_with_output()
        .expect("ended");
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(124), "{stderr}");
    assert!(stderr.contains("timed out"), "{stderr}");
    eventually("its session is gone", || {
        living(host.ground.marker()).is_empty()
    });
    let record = last_ended(&host);
    assert_eq!(record["outcome"], "timed_out", "{record}");
    assert_eq!(record["timeout_ms"], 300, "{record}");
    assert_eq!(record["exit"]["signal"], 9, "{record}");
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
}

/// E-33.
#[test]
fn a_command_that_ends_while_it_is_stopped_has_timed_out_and_what_it_leaves_is_killed() {
    let host = Host::new();
    create(&host, &["--grace", "100s"]);
    let text = format!("trap 'echo asked; exit 0' TERM; {STUBBORN} & while :; do sleep 0.05; done");
    let done = start(&host, "500ms", &text)
        .wait_with_output()
        .expect("ended");
    assert_eq!(done.status.code(), Some(124));
    assert_eq!(done.stdout, b"asked\n");
    eventually("its session is gone", || {
        living(host.ground.marker()).is_empty()
    });
    let record = last_ended(&host);
    assert_eq!(
        (&record["outcome"], &record["exit"]["code"]),
        (&"timed_out".into(), &0.into())
    );
}

/// E-33: what is not in the session is not known to belong to the command.
#[test]
fn a_process_that_has_left_the_session_outlives_the_time_of_its_command_and_not_the_sandbox() {
    let host = Host::new();
    create(&host, &["--grace", "0s"]);
    let text = "setsid sleep 1000 & sleep 1001";
    assert_eq!(
        start(&host, "300ms", text).wait().expect("ended").code(),
        Some(124)
    );
    eventually("only that process is left", || {
        living(host.ground.marker()).len() == 1
    });
    // It is no command: the sandbox is not busy.
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    eventually("nothing is left", || {
        living(host.ground.marker()).is_empty()
    });
}

/// E-33: the supervisor keeps the time.
#[test]
fn the_time_of_a_command_ends_although_its_client_was_killed_or_has_left() {
    let host = Host::new();
    create(&host, &["--grace", "0s"]);
    let mut child = start(&host, "1s", "echo up; exec sleep 1000");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let words = [
        "sandbox",
        "exec",
        "-d",
        "--timeout",
        "1s",
        "one",
        "--",
        "sleep",
        "1000",
    ];
    assert_eq!(host.say(&words).code, 0);
    assert_eq!(
        host.list()[0]["commands"].as_array().expect("a list").len(),
        2
    );
    eventually("both have timed out", || {
        let ended = host.list()[0]["ended"]["latest"].clone();
        let ended = ended.as_array().expect("a list");
        ended.len() == 2 && ended.iter().all(|record| record["outcome"] == "timed_out")
    });
}

/// E-33.
#[test]
fn the_time_of_a_command_stands_still_while_the_sandbox_is_paused() {
    if !has_cgroup() {
        return support::skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    create(&host, &["--grace", "0s"]);
    let mut child = start(&host, "1s", "echo up; exec sleep 1000");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    let begin = std::time::Instant::now();
    eventually("more than its time has passed", || {
        assert_eq!(host.list()[0]["commands"][0]["id"], 1, "it runs");
        begin.elapsed() > std::time::Duration::from_secs(2)
    });
    assert_eq!(host.say(&["sandbox", "resume", "one"]).code, 0);
    assert_eq!(child.wait().expect("ended").code(), Some(124));
}

/// E-33.
#[test]
fn a_killed_supervisor_leaves_nothing_of_a_command_that_is_being_stopped() {
    let host = Host::new();
    create(&host, &["--grace", "1000s"]);
    let text = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done";
    let mut child = start(&host, "300ms", text);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    assert_eq!(lines.next().expect("a line").expect("read"), "asked");
    kill_process(host.supervisor(), Signal::KILL).expect("sent");
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    eventually("nothing is left", || {
        living(host.ground.marker()).is_empty()
    });
}

#[test]
fn times_that_are_none_are_refused_and_the_longest_never_ends() {
    let host = Host::new();
    host.create("one", &[]);
    for time in [
        "0",
        "0s",
        "5",
        "-1s",
        "1x",
        "",
        "99999999999999999999s",
        "18446744073709551615ms",
    ] {
        let words = [
            "sandbox",
            "exec",
            &format!("--timeout={time}"),
            "one",
            "--",
            "true",
        ];
        let refused = host.say(&words);
        assert_eq!(refused.code, 125, "{time}: {refused:?}");
        assert!(refused.stderr.contains("(usage)"), "{time}: {refused:?}");
    }
    let longest = [
        "sandbox",
        "exec",
        "--timeout",
        "9223372036854ms",
        "one",
        "--",
        "echo",
        "on",
    ];
    assert_eq!(host.say(&longest).stdout, "on\n");
    assert_eq!(
        host.list()[0]["ended"]["latest"][0]["timeout_ms"],
        9_223_372_036_854_u64
    );
}
