//! Processes, threads, descriptors, timers: the limits, and that none outlives the run.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use crate::back_end::{assert_state, has_groups, one_at_a_time, usage};
use support::bodies::c_body;
use support::{Done, Ground};

/// Compiles and runs a C text with flags.
fn run(flags: &[&str], name: &str, text: &str) -> Done {
    let program = c_body(name, text);
    Ground::new().run(flags, &[program.to_str().expect("plain")])
}

/// C-01
#[test]
fn a_fork_bomb_meets_the_limit_and_ends_at_the_deadline() {
    let _turn = one_at_a_time();
    let text = "#include <unistd.h>
        int main(void) { for (;;) if (fork() < 0) usleep(2000); }";
    let done = run(
        &["--pids=40", "--timeout=1s", "--grace=200ms"],
        "fork-bomb",
        text,
    );
    done.assert_outcome("timed_out", 124);
    assert_state(&done, "processes");
    assert!(usage(&done, "processes_peak") <= 40, "{done:#?}");
}

/// C-01: the well-known fork bomb.
#[test]
fn the_fork_bomb_of_the_shell_ends_with_the_shell() {
    let _turn = one_at_a_time();
    let bomb = "b() { b | b & }; b; sleep 0.3";
    let done = Ground::new().run(
        &["--pids=40", "--timeout=20s", "--grace=200ms"],
        &["/bin/sh", "-c", bomb],
    );
    // The fork of the shell itself may have failed.
    assert_eq!(done.outcome(), "exited", "{done:#?}");
}

/// C-01
#[test]
fn exactly_as_many_processes_as_the_limit_says_can_be_had() {
    let _turn = one_at_a_time();
    let text =
        include_str!("../bodies/limits/exactly_as_many_processes_as_the_limit_says_can_be_had.c");
    let done = run(&["--pids=24"], "count-processes", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "24 1\n");
    assert_state(&done, "processes");
    let denials = done.report["denials"].as_array().expect("a list");
    let observed = &done.report["observation"]["resources"]["state"];
    if has_groups() {
        assert_eq!(denials.len(), 1, "{done:#?}");
        assert_eq!(denials[0]["kind"], "resource");
        assert_eq!(denials[0]["errno"], "EAGAIN");
        assert_eq!(denials[0]["hint"], "--pids sets it");
        assert!(denials[0]["count"].as_u64() >= Some(1), "{done:#?}");
        assert_eq!(observed, "observed");
        let line = "denied resource another process or thread (processes";
        assert!(done.stderr.contains(line), "{}", done.stderr);
    } else {
        assert!(denials.is_empty(), "{done:#?}");
        assert_eq!(observed, "not_observed");
    }
}

/// C-02
#[test]
fn threads_count_as_processes_do() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/threads_count_as_processes_do.c");
    let done = run(&["--pids=24"], "count-threads", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "24 1\n");
}

/// C-02: vfork, and clone with shared memory that creates no thread.
#[test]
fn no_way_of_cloning_gets_around_the_limit() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/no_way_of_cloning_gets_around_the_limit.c");
    let done = run(&["--pids=24"], "clone-bomb", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "24 1\n");
}

/// C-25: every process forks its successor and exits, so that a list of processes is outdated when
/// it is read.
#[test]
fn a_fork_storm_during_the_kill_is_killed_completely() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/a_fork_storm_during_the_kill_is_killed_completely.c");
    for _ in 0..6 {
        let flags = ["--pids=64", "--timeout=200ms", "--grace=0s"];
        // Invariant 2 checks that none is alive.
        run(&flags, "fork-storm", text).assert_outcome("timed_out", 124);
    }
}

/// C-19
#[test]
fn zombies_and_daemons_end_with_the_first_process() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/zombies_and_daemons_end_with_the_first_process.c");
    let done = run(&["--pids=256", "--timeout=60s"], "daemons", text);
    done.assert_exited(7);
    assert_eq!(done.text(), "done\n");
}

/// C-17
#[test]
fn a_grandchild_that_holds_the_output_does_not_hold_the_run() {
    let ground = Ground::new();
    let script = "(setsid sleep 600 &) ; (setsid sh -c 'trap \"\" TERM; sleep 600' &) ; echo over";
    let done = ground.run(&["--timeout=60s"], &["/bin/sh", "-c", script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "over\n");
}

/// C-18
#[test]
fn descriptors_end_at_their_limit_which_cannot_be_raised() {
    let _turn = one_at_a_time();
    let text =
        include_str!("../bodies/limits/descriptors_end_at_their_limit_which_cannot_be_raised.c");
    let done = run(&[], "descriptors", text);
    done.assert_exited(0);
    assert_eq!(done.text(), "1 1 1\n");
}

#[test]
fn open_descriptors_are_as_many_as_the_flag_states() {
    let ground = Ground::new();
    let script = "ulimit -Sn; ulimit -Hn";
    for (flags, wanted) in [(&[][..], 1024), (&["--nofile=2048"], 2048)] {
        let done = ground.run(flags, &["/bin/sh", "-c", script]);
        done.assert_exited(0);
        assert_eq!(done.text(), format!("{wanted}\n{wanted}\n"));
    }
    let mut case = ground.command(&["run", "--nofile=5000", "--", "/bin/true"]);
    case.behind(&["prlimit", "--nofile=4096:4096"]);
    let done = case.done();
    assert_eq!(done.code, 125, "{}", done.stderr);
    assert_eq!(done.report["error"]["code"], "limit_unenforceable");
    assert!(done.stderr.contains("is 4096"), "{}", done.stderr);
}

/// C-38: these count against the caller's uid, uid 0 for runs of root.
#[test]
fn a_body_leaves_its_caller_inotify_instances() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/a_body_leaves_its_caller_inotify_instances.c");
    let ground = Ground::new();
    let program = c_body("inotify-instances", text);
    let program = program.to_str().expect("plain");
    let mut case = ground.command(&["run", "-i", "--ro", program, "--", program]);
    case.command.stdin(Stdio::piped());
    let mut running = case.start();
    let mut line = [0; 3];
    let stdout = running.child.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut line).expect("the body's line");
    assert_eq!(&line, b"16\n");
    let own = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC);
    assert!(own.is_ok(), "the caller has none left: {own:?}");
    drop(running.child.stdin.take());
    running.done().assert_exited(0);
}

/// C-35: without the scopes of Landlock (Linux 6.12) the body can send init signals, which the kernel
/// counts by the limit of the receiver.
#[test]
fn init_has_the_body_s_limit_of_pending_signals() {
    let script = "for process in self 1; do grep 'pending signals' /proc/$process/limits; done";
    let done = Ground::new().run(&[], &["/bin/sh", "-c", script]);
    done.assert_exited(0);
    let text = done.text();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<Vec<String>> = text.lines().map(words).collect();
    let [body, init] = lines.as_slice() else {
        panic!("{done:#?}");
    };
    assert_eq!(body, init);
    let limit: u64 = body[3].parse().expect("a number");
    assert!(limit <= 16_384, "{text}");
}

/// C-38: these count against the caller's uid too, whoever the body is.
#[test]
fn a_body_leaves_its_caller_signals_and_locked_memory() {
    let _turn = one_at_a_time();
    let text =
        include_str!("../bodies/limits/a_body_leaves_its_caller_signals_and_locked_memory.c");
    let ground = Ground::new();
    let program = c_body("signals-and-locked", text);
    let program = program.to_str().expect("plain");
    let limits = ["prlimit", "--sigpending=2000", "--memlock=1048576"];
    let mut case = ground.command(&["run", "-i", "--ro", program, "--", program]);
    case.behind(&limits);
    case.command.stdin(Stdio::piped());
    let mut running = case.start();
    let stdout = running.child.stdout.as_mut().expect("a pipe");
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("the body's line");
    let own = Command::new(limits[0])
        .args([limits[1], limits[2], program, "one"])
        .output()
        .expect("started");
    drop(running.child.stdin.take());
    running.done().assert_exited(0);
    let counts: Vec<u64> = line
        .split_whitespace()
        .map(|count| count.parse().expect("a number"))
        .collect();
    assert!(counts.iter().all(|count| *count > 0), "{line}");
    let own = String::from_utf8_lossy(&own.stdout);
    assert_eq!(own, "1 1\n", "the body took {line}");
}

/// C-35, C-09: timers, queued signals, epoll, inotify instances and watches, System V objects,
/// keys. Each is created until the kernel refuses the next one.
#[test]
fn kernel_objects_end_at_some_limit() {
    let _turn = one_at_a_time();
    // Far more than any possible limit: reaching it means that there is none.
    const UNLIMITED: u64 = 100_000;
    let text = include_str!("../bodies/limits/kernel_objects_end_at_some_limit.c");
    let done = run(&["--memory=512m"], "kernel-objects", text);
    done.assert_exited(0);
    let text = done.text();
    println!("timers, signals, epoll, inotify, watches, shm, sem, msg, keys: {text}");
    let counts: Vec<u64> = text
        .split_whitespace()
        .map(|count| count.parse().expect("a number"))
        .collect();
    let [
        timers,
        signals,
        polls,
        instances,
        watches,
        shared @ ..,
        keys,
    ] = counts.as_slice()
    else {
        panic!("{done:#?}");
    };
    // RLIMIT_SIGPENDING counts both, RLIMIT_NOFILE every descriptor.
    for held_by_a_limit_of_ours in [timers, signals, polls, instances] {
        assert!((1..=16_384).contains(held_by_a_limit_of_ours), "{text}");
    }
    assert!((1..=65_536).contains(watches), "{text}");
    // The kernel's own limits for their namespace.
    assert_eq!(shared.len(), 3, "{text}");
    assert!(shared.iter().all(|count| *count < UNLIMITED), "{text}");
    // There is no keyring.
    assert_eq!(*keys, 0, "{text}");
}

/// C-36
#[test]
fn the_body_has_no_group_to_move_itself_into() {
    let script = "ls /sys 2>/dev/null; mkdir /tmp/g; mount -t cgroup2 x /tmp/g 2>/dev/null \
        || mount -t cgroup -o memory x /tmp/g 2>/dev/null || echo refused $?; ls /tmp/g; \
        cut -d: -f3 /proc/self/cgroup | sort -u";
    let done = Ground::new().run(&[], &["/bin/sh", "-c", script]);
    done.assert_exited(0);
    // 127 would mean that there is no program to mount with.
    let text = done.text();
    let groups = text.strip_prefix("refused 32\n");
    let groups = groups.unwrap_or_else(|| panic!("{done:#?}"));
    // Seen from inside, the group is the root of the hierarchy, or without cgroups the caller's group.
    assert!(groups == "/\n" || !has_groups(), "{done:#?}");
}
