//! `--trace`: files and programs that a body could not use because of its view.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

#[path = "trace/referee.rs"]
mod referee;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::bodies::c_body;
use support::invariants::living;
use support::{Done, Ground, is_root, runner, text};
use sys::audit::AuditUnread;

/// The denials of files and programs on the ground: kind, operation, object. Others are of the libraries of
/// this host.
fn denied(ground: &Ground, done: &Done) -> Vec<Value> {
    let all = of_files(done).into_iter();
    let own = ground.path("");
    let all = all.filter(|denial| {
        denial["object"]
            .as_str()
            .is_some_and(|path| path.starts_with(text(&own)))
    });
    all.map(|denial| json!([denial["kind"], denial["operation"], denial["object"]]))
        .collect()
}

fn of_files(done: &Done) -> Vec<&Value> {
    let denials = done.report["denials"].as_array().expect("a list");
    let of_files = denials
        .iter()
        .filter(|denial| denial["kind"] == "file" || denial["kind"] == "exec");
    of_files.collect()
}

fn denial<'done>(done: &'done Done, object: &Path) -> &'done Value {
    let found = of_files(done).into_iter();
    let mut found = found.filter(|denial| denial["object"] == text(object));
    found.next().expect("a denial of this file")
}

/// `runner run --trace FLAGS… -- sh -c SCRIPT`.
fn traced(ground: &Ground, flags: &[&str], script: &str) -> Done {
    ground.run(&[&["--trace"], flags].concat(), &["sh", "-c", script])
}

fn observed(done: &Done) -> &Value {
    &done.report["observation"]["files"]
}

#[test]
fn a_file_that_is_not_in_the_view_is_a_denial_and_its_hint_makes_it_visible() {
    let ground = Ground::new();
    let key = ground.write("home/key", "of the host\n");
    let script = format!("cat {} 2>&1; true", text(&key));
    let done = traced(&ground, &[], &script);
    done.assert_exited(0);
    let found = denial(&done, &key);
    assert_eq!(found["kind"], "file");
    assert_eq!(found["operation"], "read");
    assert_eq!(found["errno"], "ENOENT");
    assert_eq!(found["rule"], "private-directory");
    assert_eq!(found["certainty"], "inferred");
    assert_eq!(found["count"], 1);
    let complete = json!({"state": "observed", "reason": null, "beyond": 0});
    assert_eq!(*observed(&done), complete);
    let hint = found["hint"].as_str().expect("a hint");
    let flags: Vec<&str> = hint.split(' ').collect();
    assert_eq!(flags, ["--ro", text(&key)]);
    let done = traced(&ground, &flags, &script);
    assert_eq!(done.text(), "of the host\n");
    assert!(
        of_files(&done)
            .iter()
            .all(|denial| denial["object"] != text(&key))
    );
}

#[test]
fn a_file_that_exists_nowhere_is_no_denial() {
    let ground = Ground::new();
    let nowhere = ground.path("nowhere");
    let script = format!(
        "cat {0} {0}/below /usr/no-such-file; cat /proc/self/no-such-file; true",
        text(&nowhere)
    );
    let done = traced(&ground, &[], &script);
    done.assert_exited(0);
    for denial in of_files(&done) {
        let object = denial["object"].as_str().expect("a path");
        assert!(!object.contains("no"), "{denial}");
    }
}

#[test]
fn without_the_flag_the_report_says_that_files_were_not_observed() {
    let ground = Ground::new();
    let key = ground.write("home/key", "");
    let done = ground.run(&[], &["sh", "-c", &format!("cat {}", text(&key))]);
    done.assert_exited(1);
    assert_eq!(denied(&ground, &done), Vec::<Value>::new());
    assert_eq!(observed(&done)["state"], "not_observed");
    let reason = observed(&done)["reason"].as_str().expect("a reason");
    assert!(reason.contains("--trace"), "{reason}");
}

#[test]
fn a_write_to_a_read_only_mount_is_a_denial_and_its_hint_makes_it_writable() {
    let ground = Ground::new();
    let old = ground.write("data/old", "");
    let directory = ground.path("data");
    let new = directory.join("new");
    let script = format!(
        "echo x > {}; echo x > {}; mkdir {}/sub; rm -f {0}; true",
        text(&old),
        text(&new),
        text(&directory)
    );
    let done = traced(&ground, &["--ro", text(&directory)], &script);
    done.assert_exited(0);
    for (path, operation) in [(&old, "write"), (&new, "create")] {
        let found = denial(&done, path);
        assert_eq!(found["operation"], operation, "{found}");
        assert_eq!(found["errno"], "EROFS");
        assert_eq!(found["rule"], "read-only");
        let hint = format!("--rw {0} instead of --ro {0}", text(&directory));
        assert_eq!(found["hint"], hint);
    }
    let removed = json!(["file", "remove", text(&old)]);
    assert!(
        denied(&ground, &done).contains(&removed),
        "{:?}",
        denied(&ground, &done)
    );
    let done = traced(&ground, &["--rw", text(&directory)], &script);
    assert_eq!(denied(&ground, &done), Vec::<Value>::new());
}

#[test]
fn a_new_file_in_a_directory_that_is_not_in_the_view_names_the_directory() {
    let ground = Ground::new();
    let directory = ground.path("data");
    ground.write("data/old", "");
    let new = directory.join("new");
    let script = format!("echo x > {}; true", text(&new));
    let done = traced(&ground, &[], &script);
    let found = denial(&done, &new);
    assert_eq!(found["operation"], "create");
    assert_eq!(found["hint"], format!("--rw {}", text(&directory)));
    let done = traced(&ground, &["--rw", text(&directory)], &script);
    assert_eq!(denied(&ground, &done), Vec::<Value>::new());
    assert!(new.exists());
}

#[test]
fn a_program_that_is_not_in_the_view_is_a_denial_of_its_own_kind() {
    let ground = Ground::new();
    let tool = ground.program("tools/tool", "#!/bin/sh\necho it runs\n");
    let script = format!("{}; true", text(&tool));
    let done = traced(&ground, &[], &script);
    done.assert_exited(0);
    let found = denial(&done, &tool);
    assert_eq!(found["kind"], "exec");
    assert_eq!(found["operation"], "execute");
    let hint = found["hint"].as_str().expect("a hint");
    let flags: Vec<&str> = hint.split(' ').collect();
    let done = traced(&ground, &flags, &script);
    assert_eq!(done.text(), "it runs\n");
}

/// B-71: however a path is named, and what memory it is in.
#[test]
fn a_path_is_found_from_where_the_body_names_it() {
    let ground = Ground::new();
    let seen = ground.path("seen");
    ground.write("seen/file", "");
    symlink("../hidden/linked", seen.join("link")).expect("made");
    let absolute = ground.path("hidden/chained");
    symlink(absolute, seen.join("absolute")).expect("made");
    symlink("./absolute", seen.join("chain")).expect("made");
    let reads = [
        "relative",
        "dots",
        "linked",
        "chained",
        "line\nbreak",
        "descriptor",
        "long",
        "thread",
        "not-dumpable",
    ];
    let inspects = ["stat", "access", "readlink"];
    let removes = ["removed", "moved"];
    for name in [&reads[..], &inspects, &removes].concat() {
        ground.write(&format!("hidden/{name}"), "");
    }
    let body = c_body("paths", include_str!("bodies/trace/paths.c"));
    let root = ground.path("");
    let root = text(&root).trim_end_matches('/').to_owned();
    let flags = ["--trace", "--ro", text(&body), "--ro", text(&seen)];
    let done = ground.run(&flags, &[text(&body), &root]);
    done.assert_exited(0);
    let creates = ["new", "directory"];
    let with = |operation: &str, names: &[&str]| -> Vec<Value> {
        let object = |name: &&str| format!("{root}/hidden/{}", name.replace('\n', "\\x0a"));
        let all = names.iter().map(object);
        all.map(|object| json!(["file", operation, object]))
            .collect()
    };
    let mut expected = [
        with("read", &reads),
        with("inspect", &inspects),
        with("remove", &removes),
        with("create", &creates),
    ]
    .concat();
    let moved = json!(["file", "create", format!("{root}/seen/moved")]);
    expected.push(moved);
    let mut found = denied(&ground, &done);
    let order = |row: &Value| row.to_string();
    expected.sort_by_key(order);
    found.sort_by_key(order);
    assert_eq!(found, expected);
    let threads = denial(&done, Path::new(&format!("{root}/hidden/thread")));
    assert_eq!(threads["count"], 4);
    assert_eq!(observed(&done)["state"], "observed", "{}", observed(&done));
}

/// The denials of one kind: operation, object, errno, rule, count.
fn of_kind(done: &Done, kind: &str) -> Vec<Value> {
    let denials = done.report["denials"].as_array().expect("a list").iter();
    let row = |denial: &Value| {
        let keys = ["object", "errno", "rule", "certainty", "count"];
        Value::from(keys.map(|key| denial[key].clone()).to_vec())
    };
    denials
        .filter(|denial| denial["kind"] == kind)
        .map(row)
        .collect()
}

#[test]
fn a_signal_to_process_1_is_a_denial_and_no_other_signal_is() {
    let ground = Ground::new();
    let body = c_body("trace-signals", include_str!("bodies/trace/signals.c"));
    let host = std::process::id().to_string();
    let words = [text(&body), host.as_str()];
    let observed = |done: &Done| done.report["observation"]["signals"]["state"].clone();
    // Before, the kernel accepts them.
    let is_refused = sys::landlock::abi().is_ok_and(|abi| 6 <= abi);
    if !is_refused {
        let done = ground.run(&["--trace"], &["true"]);
        assert_eq!(observed(&done), "not_observed");
        return;
    }
    let flags = ["--ro", text(&body)];
    let done = ground.run(&flags, &words);
    done.assert_exited(0);
    assert_eq!(observed(&done), "not_observed");
    assert_eq!(of_kind(&done, "signal"), Vec::<Value>::new());
    let done = ground.run(&[&["--trace"], &flags[..]].concat(), &words);
    done.assert_exited(0);
    let row = |signal: &str, certainty: Value, count: u64| {
        json!([
            format!("{signal} to process 1"),
            "EPERM",
            "init",
            certainty,
            count
        ])
    };
    let expected = [
        row("SIGTERM", Value::Null, 2),
        row("0", Value::Null, 1),
        row("SIGHUP", Value::Null, 2),
        row("64", Value::Null, 1),
        row("SIGUSR1", json!("inferred"), 3),
        row("SIGUSR2", json!("inferred"), 3),
    ];
    assert_eq!(of_kind(&done, "signal"), expected);
    assert_eq!(observed(&done), "partial");
    let reason = &done.report["observation"]["signals"]["reason"];
    let reason = reason.as_str().expect("a reason");
    assert!(
        reason.ends_with("; 1 call could not be looked at"),
        "{reason}"
    );
}

/// Without audit records a trace is what it was, and says what it does not see and why.
#[test]
fn where_no_audit_record_can_be_read_the_observation_says_why() {
    let ground = Ground::new();
    let done = traced(&ground, &[], "true");
    done.assert_exited(0);
    let complete = json!({"state": "observed", "reason": null, "beyond": 0});
    assert_eq!(*observed(&done), complete);
    let abi = sys::landlock::abi().expect("asked");
    let expected = match (abi, is_root(), sys::audit::open()) {
        (..6, _, _) => "before Linux 6.12",
        (6, _, _) => "(F_SETOWN): Landlock has audit records from Linux 6.15 on",
        (_, false, _) => "(F_SETOWN): audit records do not tell the body from other programs",
        (_, true, Ok(_)) => "only those to process 1; processes of the host",
        (_, true, Err(AuditUnread::Off)) => "(F_SETOWN): the audit of this host is off",
        (_, true, Err(AuditUnread::StopsHost)) => "(F_SETOWN): this host stops when",
        (_, true, Err(AuditUnread::OtherNetwork)) => "(F_SETOWN): no audit record reaches",
        (_, true, Err(AuditUnread::Call(_))) => "(F_SETOWN): the audit of this host cannot be read",
    };
    let reason = &done.report["observation"]["signals"]["reason"];
    let reason = reason.as_str().expect("a reason");
    assert!(reason.contains(expected), "{reason}");
}

/// A directory of the host with a stream and a datagram socket.
fn with_sockets(ground: &Ground) -> (std::path::PathBuf, UnixListener, UnixDatagram) {
    let directory = ground.path("sockets");
    std::fs::create_dir(&directory).expect("made");
    for name in ["file", "not-tried"] {
        ground.write(&format!("sockets/{name}"), "");
    }
    let listener = UnixListener::bind(directory.join("stream")).expect("bound");
    let receiver = UnixDatagram::bind(directory.join("datagram")).expect("bound");
    (directory, listener, receiver)
}

/// B-71.
#[test]
fn a_unix_socket_that_is_not_in_the_view_is_a_denial_and_its_hint_lets_the_body_connect() {
    let ground = Ground::new();
    let (directory, _listener, _receiver) = with_sockets(&ground);
    let body = c_body("trace-sockets", include_str!("bodies/trace/sockets.c"));
    let flags = ["--trace", "--ro", text(&body)];
    let done = ground.run(&flags, &[text(&body), text(&directory)]);
    done.assert_exited(0);
    let inside = |name: &str| directory.join(name);
    let expected = [
        json!(["file", "connect", text(&inside("stream"))]),
        json!(["file", "connect", text(&inside("datagram"))]),
        json!(["file", "connect", text(&inside("file"))]),
        json!(["file", "create", text(&inside("new"))]),
    ];
    assert_eq!(denied(&ground, &done), expected);
    assert_eq!(observed(&done)["state"], "observed", "{}", observed(&done));
    let stream = denial(&done, &inside("stream"));
    assert_eq!(stream["count"], 2);
    assert_eq!(stream["errno"], "ENOENT");
    // `--socket` refuses what is no socket.
    assert_eq!(denial(&done, &inside("file"))["hint"], Value::Null);
    for name in ["stream", "datagram"] {
        let hint = denial(&done, &inside(name))["hint"].clone();
        let hint = hint.as_str().expect("a hint");
        let (flags, why) = hint.split_once("; ").expect("a reason");
        assert_eq!(flags, format!("--socket {}", text(&inside(name))));
        assert_eq!(why, "the service behind it acts outside of the sandbox");
        let flags: Vec<&str> = flags.split(' ').collect();
        let done = traced(&ground, &flags, &connect_to(&inside(name), name));
        done.assert_exited(0);
        assert_eq!(denied(&ground, &done), Vec::<Value>::new());
    }
}

/// B-71.
#[test]
fn a_datagram_to_a_socket_that_is_not_in_the_view_is_a_denial_and_its_hint_lets_the_body_send() {
    let ground = Ground::new();
    let (directory, _listener, receiver) = with_sockets(&ground);
    let body = c_body("trace-datagrams", include_str!("bodies/trace/datagrams.c"));
    let flags = ["--trace", "--ro", text(&body)];
    let done = ground.run(&flags, &[text(&body), text(&directory)]);
    done.assert_exited(0);
    let datagram = directory.join("datagram");
    let expected = [
        json!(["file", "connect", text(&datagram)]),
        json!(["file", "connect", text(&directory.join("file"))]),
    ];
    assert_eq!(denied(&ground, &done), expected);
    assert_eq!(observed(&done)["state"], "observed", "{}", observed(&done));
    assert_eq!(denial(&done, &datagram)["count"], 2);
    let flags = ["--socket", text(&datagram)];
    let hint = denial(&done, &datagram)["hint"].clone();
    let hint = hint.as_str().expect("a hint");
    assert!(hint.starts_with(&format!("{};", flags.join(" "))), "{hint}");
    let path = text(&datagram);
    let script =
        format!("python3 -c 'import socket; socket.socket(1, 2).sendto(b\"x\", \"{path}\")'");
    let done = traced(&ground, &flags, &script);
    done.assert_exited(0);
    assert_eq!(denied(&ground, &done), Vec::<Value>::new());
    receiver.set_nonblocking(true).expect("set");
    assert_eq!(receiver.recv(&mut [0; 2]).ok(), Some(1));
}

/// A script that connects to a socket.
fn connect_to(path: &Path, kind: &str) -> String {
    let kind = kind.replace("datagram", "dgram").to_uppercase();
    let path = text(path);
    format!("python3 -c 'import socket; socket.socket(1, socket.SOCK_{kind}).connect(\"{path}\")'")
}

#[test]
fn where_directories_are_mounted_the_hint_for_a_socket_allows_sockets_too() {
    // Landlock then refuses other sockets, and the filter none.
    if sys::landlock::abi().is_ok_and(|abi| 9 <= abi) {
        return;
    }
    let ground = Ground::new();
    let (directory, listener, _receiver) = with_sockets(&ground);
    let stream = directory.join("stream");
    let visible = ground.path("visible");
    std::fs::create_dir(&visible).expect("made");
    let path = text(&stream);
    // The only sockets that it can make are connected; the name is looked up first.
    let script = format!("python3 -c 'import socket; socket.socketpair()[0].connect(\"{path}\")'");
    let flags = ["--ro", text(&visible)];
    let done = traced(&ground, &flags, &script);
    done.assert_exited(1);
    let hint = denial(&done, &stream)["hint"].clone();
    let hint = hint.as_str().expect("a hint");
    let added = hint.split(';').next().expect("flags");
    assert_eq!(added, format!("--unix-sockets --socket {path}"));
    let flags = [&flags[..], &added.split(' ').collect::<Vec<_>>()].concat();
    let done = traced(&ground, &flags, &connect_to(&stream, "stream"));
    done.assert_exited(0);
    assert!(listener.accept().is_ok());
}

#[test]
fn a_path_that_is_no_text_is_escaped() {
    let ground = Ground::new();
    let odd = ground.path("").join(OsStr::from_bytes(b"odd\xff\x1b[2J"));
    std::fs::write(&odd, "").expect("written");
    let done = ground.command(&["run", "--trace", "--", "cat"]);
    let mut case = done;
    case.command.arg(&odd);
    let done = case.done();
    done.assert_exited(1);
    let objects: Vec<String> = denied(&ground, &done)
        .iter()
        .map(|row| row[2].to_string())
        .collect();
    assert!(
        objects.iter().any(|object| object.contains("\\\\xff")),
        "{objects:?}"
    );
    assert!(!done.stderr.contains("\x1b[2J\n"), "{}", done.stderr);
}

/// B-71: the path of a refused call is of no importance, and a refused call never goes on.
#[test]
fn calls_stay_refused_while_their_paths_change() {
    let ground = Ground::new();
    let body = c_body("race", include_str!("bodies/trace/race.c"));
    let done = ground.run(&["--trace", "--ro", text(&body)], &[text(&body)]);
    done.assert_exited(0);
    let denials = done.report["denials"].as_array().expect("a list");
    let count = |object: &str| {
        let mut of_call = denials.iter().filter(|denial| denial["object"] == object);
        of_call.next().map(|denial| denial["count"].clone())
    };
    for call in ["chroot", "mount", "pivot_root", "ptrace"] {
        assert_eq!(count(call), Some(json!(2_000)), "{call}: {denials:?}");
    }
}

#[test]
fn a_body_that_is_killed_while_it_waits_is_not_waited_for() {
    let ground = Ground::new();
    let key = ground.write("home/key", "");
    let body = c_body("killed", include_str!("bodies/trace/killed.c"));
    let flags = ["--trace", "--ro", text(&body)];
    let done = ground.run(&flags, &[text(&body), text(&key)]);
    done.assert_exited(0);
    assert_eq!(
        denied(&ground, &done),
        [json!(["file", "read", text(&key)])]
    );
}

/// B-71: what is kept is limited, and the report says that it is not all.
#[test]
fn a_flood_of_paths_is_counted_and_the_observation_is_partial() {
    let ground = Ground::new();
    let key = ground.write("home/key", "");
    let body = c_body("paths-flood", include_str!("bodies/trace/flood.c"));
    let flags = ["--trace", "--ro", text(&body)];
    let done = ground.run(&flags, &[text(&body), text(&key)]);
    done.assert_exited(0);
    assert_eq!(observed(&done)["state"], "partial");
    let reason = observed(&done)["reason"].as_str().expect("a reason");
    assert!(reason.contains("too many"), "{reason}");
}

/// B-71: nothing of a body stays when nobody answers.
#[test]
fn a_body_whose_calls_wait_dies_with_a_killed_supervisor() {
    let ground = Ground::new();
    let script = "echo started; while :; do test -e /no/such/file; done";
    let words = ["run", "--trace", "--", "sh", "-c", script];
    let case = ground
        .command(&words)
        .without("I4")
        .without("I5")
        .without("I8");
    let mut running = case.start();
    running.until("the body", || !living(ground.marker()).is_empty());
    running.signal(Signal::KILL);
    assert_eq!(running.done().code, 137);
}

#[test]
fn where_calls_cannot_be_traced_the_run_is_refused_with_one_clear_error() {
    let ground = Ground::new();
    let prelude = include_str!("bodies/escapes/attempts_prelude.c");
    let wrapper = include_str!("bodies/escapes/under_a_listener.c");
    let wrapper = c_body("under-a-listener", &format!("{prelude}\n{wrapper}"));
    let mut command = Command::new(wrapper);
    command.arg(runner()).args(["run", "--trace", "--", "true"]);
    let done = ground.harness(command).done();
    done.assert_error("failed", "sandbox_step_failed");
    let error = &done.report["error"];
    let message = error["message"].as_str().expect("a message");
    assert!(message.starts_with("cannot trace the body"), "{message}");
    let hint = error["hint"].as_str().expect("a hint");
    assert!(hint.contains("no sandbox around the runner"), "{hint}");
}

#[test]
fn a_body_that_fails_is_told_which_files_it_could_not_use() {
    let ground = Ground::new();
    let key = ground.write("home/key", "");
    let done = traced(&ground, &[], &format!("cat {}", text(&key)));
    done.assert_exited(1);
    let line = format!("denied file read {} (private-directory)", text(&key));
    assert!(done.stderr.contains(&line), "{}", done.stderr);
}

#[test]
fn programs_go_on_as_without_a_trace() {
    let ground = Ground::new();
    let mode = std::fs::Permissions::from_mode(0o755);
    let tool = ground.program("tools/tool", "#!/bin/sh\necho \"$0\" >&2\ncat\n");
    std::fs::set_permissions(&tool, mode).expect("set");
    let script = "cd /tmp && mkdir -p a/b && echo x | tee a/b/c > a/d && ln -s b a/e && \
                  mv a/e/c a/e/f && cat a/b/f && rm -r a && ls && find /usr/share -name 'no such'";
    let script = format!("{script}; echo y | {}", text(&tool));
    let run = |flags: &[&str]| {
        let flags = [flags, &["--ro", text(&tool)]].concat();
        let done = ground.run(&flags, &["sh", "-c", &script]);
        done.assert_exited(0);
        (done.text(), done.stderr.contains("tool"))
    };
    assert_eq!(run(&["--trace", "-q"]), run(&[]));
}
