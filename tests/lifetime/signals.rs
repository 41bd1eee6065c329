//! Signals to the supervisor: they are forwarded to the body, and some start its grace.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::runtime::Runtime;
use support::invariants::living;
use support::processes::status;
use support::{Ground, Running};

/// Reads the next line of the body; the final output lacks it.
#[track_caller]
fn hear(running: &mut Running<'_>, words: &str) {
    let pipe = running.child.stdout.as_mut().expect("a pipe");
    let mut heard = vec![0; words.len()];
    for byte in heard.chunks_mut(1) {
        // Long enough to distinguish a runner that hangs because it does not forward a signal.
        let guard = Timespec {
            tv_sec: 120,
            tv_nsec: 0,
        };
        let mut watched = [PollFd::new(pipe, PollFlags::IN)];
        let ready = rustix::event::poll(&mut watched, Some(&guard)).expect("polled");
        assert_eq!(ready, 1, "never came: {words:?}");
        pipe.read_exact(byte).expect("the body goes on");
    }
    assert_eq!(heard, words.as_bytes());
}

const SIGNALS: [(Signal, &str, i32); 4] = [
    (Signal::TERM, "TERM", 15),
    (Signal::INT, "INT", 2),
    (Signal::HUP, "HUP", 1),
    (Signal::QUIT, "QUIT", 3),
];

/// E-06: signals that would end the runner and do not ask to end are forwarded to the body, as docker does.
#[test]
fn an_informational_signal_is_forwarded_and_the_run_continues() {
    let ground = Ground::new();
    let script = "trap 'echo got USR1' USR1; trap 'echo got USR2' USR2; trap 'echo got ALRM' ALRM
        trap 'echo got PROF' PROF; trap 'echo got 40' 40; trap 'exit 3' TERM
        echo up; while :; do sleep 0.05; done";
    let words = ["run", "--grace=60s", "--", "/bin/bash", "-c", script];
    let mut running = ground.command(&words).start();
    hear(&mut running, "up\n");
    let pid = Pid::from_raw(running.pid()).expect("a pid");
    for (signal, said) in [
        (Signal::USR1, "got USR1\n"),
        (Signal::USR2, "got USR2\n"),
        (Signal::ALARM, "got ALRM\n"),
        (Signal::PROF, "got PROF\n"),
    ] {
        rustix::process::kill_process(pid, signal).expect("sent");
        hear(&mut running, said);
    }
    let sent = std::process::Command::new("kill")
        .args(["-40", &running.pid().to_string()])
        .status();
    assert!(
        sent.is_ok_and(|status| status.success()),
        "a real-time signal"
    );
    hear(&mut running, "got 40\n");
    running.signal(Signal::TERM);
    let done = running.done();
    assert_eq!((done.outcome(), done.code), ("cancelled", 143), "{done:#?}");
}

/// E-06
#[test]
fn a_signal_to_the_runner_reaches_the_body_and_cancels_the_run() {
    for (signal, name, number) in SIGNALS {
        let ground = Ground::new();
        let script =
            format!("trap 'echo got {name}; exit 3' {name}; echo up; while :; do sleep 0.05; done");
        let manifest = serde_json::json!({
            "name": "x", "run": {"shell": format!("echo half >/scratch/out; {script}")},
            "outputsFiles": {"out": {"path": "result.txt"}},
        });
        let bundle = ground.bundle(&[("manifest.json", &manifest.to_string())]);
        let workspace = ground.workspace();
        let words = [
            "exec",
            "--grace=60s",
            "--workspace",
            workspace.to_str().expect("plain"),
            bundle.to_str().expect("plain"),
        ];
        let mut running = ground.command(&words).start();
        // The body sets the trap before it prints its first line.
        hear(&mut running, "up\n");
        running.signal(signal);
        let done = running.done();
        done.assert_outcome("cancelled", 128 + number);
        assert_eq!(done.text(), format!("got {name}\n"));
        assert_eq!(done.report["exit"]["code"], 3);
        assert_eq!(done.report["outputs"][0]["state"], "skipped", "{done:#?}");
        assert!(!workspace.join("result.txt").exists());
        assert!(
            done.stderr.contains("runner: cancelled by SIG"),
            "{}",
            done.stderr
        );
    }
}

/// E-06
#[test]
fn the_second_signal_does_not_wait_for_the_grace() {
    let ground = Ground::new();
    let words = [
        "run",
        "--grace=10m",
        "--",
        "/bin/sh",
        "-c",
        "trap 'echo asked' TERM; trap '' INT; echo up; while :; do sleep 0.05; done",
    ];
    let mut running = ground.command(&words).start();
    hear(&mut running, "up\n");
    running.signal(Signal::TERM);
    // The body has received the first one and continues.
    hear(&mut running, "asked\n");
    running.signal(Signal::INT);
    running.done().assert_outcome("cancelled", 143);
}

/// E-06: Ctrl-C: the terminal signals the process group of the runner.
#[test]
fn a_signal_to_the_process_group_comes_to_the_body_once() {
    let ground = Ground::new();
    let script = "trap 'echo int; n=1' INT; echo up; while [ -z \"$n\" ]; do sleep 0.05; done; sleep 0.3; echo end";
    let words = ["run", "--grace=60s", "--", "/bin/sh", "-c", script];
    let mut case = ground.command(&words);
    case.command.process_group(0);
    let mut running = case.start();
    hear(&mut running, "up\n");
    kill_process_group(Pid::from_raw(running.pid()).expect("a pid"), Signal::INT).expect("sent");
    let done = running.done();
    done.assert_outcome("cancelled", 130);
    assert_eq!(done.text(), "int\nend\n");
}

fn stop(running: &mut Running<'_>) {
    running.signal(Signal::STOP);
    let status = format!("/proc/{}/status", running.pid());
    running.until("its stop", || {
        std::fs::read_to_string(&status).is_ok_and(|text| text.contains("State:\tT"))
    });
}

/// E-06: Slurm with `proctrack/linuxproc` signals all processes of a job, the youngest first.
#[test]
fn a_run_whose_body_was_signalled_before_its_runner_was_cancelled() {
    let ground = Ground::new();
    let mut running = ground.command(&["run", "--", "/bin/sleep", "600"]).start();
    running.until_body_is("sleep");
    stop(&mut running);
    for pid in living(ground.marker()) {
        if status(pid, "Name").as_deref() == Some("sleep") {
            kill_process(Pid::from_raw(pid).expect("a pid"), Signal::TERM).expect("sent");
        }
    }
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    running.until("the end of the sandbox", || {
        let children = std::fs::read_to_string(&children).expect("readable");
        let mut children = children.split_whitespace().map(str::parse);
        children.all(|pid| {
            status(pid.expect("a pid"), "State").is_some_and(|state| state.starts_with('Z'))
        })
    });
    running.signal(Signal::TERM);
    running.signal(Signal::CONT);
    running.done().assert_outcome("cancelled", 143);
}

/// E-06: also while the runner reads the bundle.
#[test]
fn a_signal_ends_a_runner_that_waits_for_its_bundle() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let mut case = runtime.command(&ground, &["exec", "--run=/bin/true", "-"]);
    case.command.stdin(Stdio::piped());
    let mut running = case.start();
    // Only the start of a gzip member.
    let mut pipe = running.child.stdin.take().expect("a pipe");
    pipe.write_all(b"\x1f\x8b\x08\0\0\0\0\0\0\x03")
        .expect("written");
    running.until("a record", || !runtime.records().is_empty());
    let unread = pipe.as_fd().try_clone_to_owned().expect("duplicated");
    running.until("its reading", || {
        rustix::io::ioctl_fionread(&unread).expect("a pipe") == 0
    });
    drop(unread);
    running.signal(Signal::TERM);
    let guard = std::time::Instant::now();
    while running.child.try_wait().expect("waited").is_none() {
        if std::time::Duration::from_secs(30) < guard.elapsed() {
            // Otherwise the runner would read until the pipe is closed.
            drop(pipe);
            let done = running.done();
            panic!("SIGTERM is not heard while the bundle is read: {done:#?}");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let done = running.done();
    done.assert_outcome("cancelled", 143);
    runtime.assert_nothing_left(&[]);
    drop(pipe);
}

/// Other signals do not affect the run.
#[test]
fn other_signals_do_not_end_the_run() {
    let ground = Ground::new();
    let words = ["run", "--", "/bin/sh", "-c", "echo up; sleep 0.7; echo end"];
    let mut running = ground.command(&words).start();
    running.until("the body", || !living(ground.marker()).is_empty());
    for signal in [
        Signal::WINCH,
        Signal::CHILD,
        Signal::PIPE,
        Signal::CONT,
        Signal::URG,
    ] {
        running.signal(signal);
    }
    let done = running.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "up\nend\n");
}

/// The runner itself is stopped and continued: the run continues.
#[test]
fn a_runner_that_was_stopped_goes_on() {
    let ground = Ground::new();
    let mut running = ground
        .command(&["run", "--", "/bin/sh", "-c", "sleep 0.5; echo end"])
        .start();
    running.until("the body", || !living(ground.marker()).is_empty());
    stop(&mut running);
    running.signal(Signal::CONT);
    let done = running.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "end\n");
}
