//! Which rights each process of a run has in each phase, as the kernel shows them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::processes::{confined_child, send};
use support::rights::{
    Rights, assert_uid_of_body, children, confined_rights, field, filters, init_of, kinds,
    kinds_of_init, of_body, of_caller, of_confined, of_init, of_supervisor, rights,
};
use support::{Ground, Running, is_root, runner, text};

fn confined(running: &mut Running<'_>) -> i32 {
    let pid = running.pid();
    running.until("the supervisor gives up its rights", || {
        filters(&pid.to_string()) > filters("self")
    });
    pid
}

/// B-69: while a bundle is unpacked.
#[test]
fn each_process_has_the_rights_of_its_phase() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[
        ("manifest.yaml", "run: body.sh\n"),
        ("body.sh", "exec cat\n"),
    ]);
    let archive = fs::read(bundle).expect("read");
    let (end, mut pipe) = std::io::pipe().expect("a pipe");
    let mut case = ground.command(&["exec", "-"]);
    case.command.stdin(end);
    let mut running = case.start();
    pipe.write_all(&archive[..archive.len() / 2])
        .expect("written");
    let pid = running.pid();
    let reader_of = |pid| {
        let has_filter = |pid: &i32| field(&pid.to_string(), "Seccomp").as_deref() == Some("2");
        children(pid)
            .into_iter()
            .find(|child| has_filter(child) && init_of(pid) != Some(*child))
    };
    running.until("the reader gives up its rights", || {
        reader_of(pid).is_some_and(|reader| filters(&reader.to_string()) > filters("self"))
    });
    assert_eq!(rights(pid), of_caller());
    let reader = rights(reader_of(pid).expect("it waits for the rest"));
    let init = rights(init_of(pid).expect("it waits for its plan"));
    assert_uid_of_body(init.uid);
    assert_eq!((init.bounding, init.filters), (0, 0));
    assert_eq!(init.namespaces, Some(kinds_of_init()));
    let expected = Rights {
        bounding: reader.bounding,
        ..of_body(init.uid, is_root().then(BTreeSet::new))
    };
    assert_eq!(reader, expected);
    pipe.write_all(&archive[archive.len() / 2..])
        .expect("written");
    drop(pipe);
    running.done().assert_exited(0);
}

/// B-69: while the body runs.
#[test]
fn while_the_body_runs_no_process_has_more_than_it_needs() {
    for policy in ["default", "strict"] {
        let ground = Ground::new();
        let words = ["run", "-i", "--syscalls", policy, "--", "/bin/cat"];
        let mut case = ground.command(&words);
        case.command.stdin(Stdio::piped());
        let mut running = case.start();
        running.until_body_is("cat");
        let pid = confined(&mut running);
        assert_eq!(rights(pid), of_supervisor());
        let init = init_of(pid).expect("the body runs");
        let [body] = children(init)[..] else {
            panic!("one body");
        };
        assert_eq!(children(pid), [init]);
        running.until("init gives up its rights", || {
            filters(&init.to_string()) > filters("self") + 1
        });
        let found = rights(init);
        assert_uid_of_body(found.uid);
        assert_eq!(found, of_init(found.uid));
        assert_eq!(rights(body), of_body(found.uid, Some(kinds())));
        drop(running.child.stdin.take());
        running.done().assert_exited(0);
    }
}

/// B-69: while the body's output waits for its reader, and nobody but the supervisor is left.
#[test]
fn a_supervisor_that_drains_the_streams_has_no_right_back() {
    let ground = Ground::new();
    // More than one pipe holds and less than two.
    let script = "head -c 100000 /dev/zero";
    let words = ["run", "--grace=120s", "--", "/bin/sh", "-c", script];
    let mut running = ground.command(&words).start();
    let pid = confined(&mut running);
    running.until_printed(1);
    running.until("the body ends", || children(pid).is_empty());
    assert_eq!(rights(pid), of_supervisor());
    let done = running.done();
    done.assert_exited(0);
    assert_eq!(done.stdout.len(), 100_000);
}

/// B-69: after the clean-up, while the report waits for its reader.
#[test]
fn a_supervisor_that_reports_has_no_right_back() {
    let script = "head -c 500000 /dev/zero";
    let mut command = Command::new(runner());
    command.args(["run", "--json=-", "--", "/bin/sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
    let pid = i32::try_from(child.id()).expect("a pid");
    let mut stdout = child.stdout.take().expect("a pipe");
    while rustix::io::ioctl_fionread(stdout.as_fd()).expect("a pipe") == 0 {
        assert!(child.try_wait().expect("waited").is_none(), "no report");
        std::thread::yield_now();
    }
    assert!(children(pid).is_empty());
    assert_eq!(rights(pid), of_supervisor());
    let mut report = String::new();
    stdout.read_to_string(&mut report).expect("read");
    assert!(child.wait().expect("waited").success());
    assert!(report.contains("\"outcome\":\"exited\""), "{report:.200}");
}

/// Waits until init has its second filter, and asserts the rights of the supervisor and of init.
fn assert_supervisor_and_init(running: &mut Running<'_>) -> i32 {
    let pid = confined(running);
    assert_eq!(rights(pid), of_supervisor());
    let init = init_of(pid).expect("the body runs");
    running.until("init gives up its rights", || {
        filters(&init.to_string()) > filters("self") + 1
    });
    let found = rights(init);
    assert_uid_of_body(found.uid);
    assert_eq!(found, of_init(found.uid));
    pid
}

/// B-69: with `--trace`, where the supervisor reads the memory of the body.
#[test]
fn a_trace_gives_no_process_more_rights() {
    let ground = Ground::new();
    let mut case = ground.command(&["run", "-i", "--trace", "--", "/bin/cat"]);
    case.command.stdin(Stdio::piped());
    let mut running = case.start();
    running.until_body_is("cat");
    let pid = assert_supervisor_and_init(&mut running);
    assert_eq!(children(pid).len(), 1);
    drop(running.child.stdin.take());
    running.done().assert_exited(0);
}

/// B-69: with hosts, for which a relay and a resolver run.
#[test]
fn the_processes_of_a_network_have_no_rights() {
    let ground = Ground::new();
    let words = [
        "run",
        "-i",
        "--allow-net=example.test:443",
        "--",
        "/bin/cat",
    ];
    let mut case = ground.command(&words);
    case.command.stdin(Stdio::piped());
    let mut running = case.start();
    running.until_body_is("cat");
    let pid = assert_supervisor_and_init(&mut running);
    running.until("relay and resolver give up their rights", || {
        let found = confined_rights(pid);
        found.len() == 2 && found.iter().all(|found| found.filters == 1)
    });
    for found in confined_rights(pid) {
        assert_eq!(found, of_confined(found.bounding));
    }
    drop(running.child.stdin.take());
    running.done().assert_exited(0);
}

/// A-61, B-69: after the body, while its output document is read.
#[test]
fn the_reader_of_the_output_document_has_no_rights() {
    let ground = Ground::new();
    // More than a pipe holds, so that it is found while it reads.
    let body = "cat; { printf '\"'; head -c 15000000 /dev/zero | tr '\\0' x; printf '\"'; } \
        >\"$RUNNER_OUTPUT\"";
    let bundle = ground.script("run: body.sh\n", body);
    let mut case = ground.command(&["exec", "-i", text(&bundle)]);
    case.command.stdin(Stdio::piped());
    let mut running = case.start();
    running.until_body_is("cat");
    let pid = assert_supervisor_and_init(&mut running);
    drop(running.child.stdin.take());
    let reader = Cell::new(None);
    running.until("a reader", || {
        let is_reader = |child: &i32| {
            let seccomp = field(&child.to_string(), "Seccomp_filters");
            init_of(pid) != Some(*child) && seccomp == Some((filters("self") + 2).to_string())
        };
        reader.set(children(pid).into_iter().find(is_reader));
        reader.get().is_some()
    });
    let reader = reader.get().expect("found");
    send(reader, Signal::STOP);
    let (of_reader, of_supervisor_now) = (rights(reader), rights(pid));
    send(reader, Signal::CONT);
    // It has the filter of the supervisor, too.
    let expected = Rights {
        filters: 2,
        ..of_confined(of_reader.bounding)
    };
    assert_eq!(of_reader, expected);
    assert_eq!(of_supervisor_now, of_supervisor());
    running.done().assert_exited(0);
}

/// B-69: with `runner learn`, whose supervisor traces and writes a policy at the end.
#[test]
fn a_supervisor_that_learns_gives_up_its_rights() {
    let ground = Ground::new();
    let policy = ground.path("policy.yaml");
    let words = ["learn", "-o", text(&policy), "--", "/bin/sleep", "600"];
    let mut case = ground.command(&words);
    // Of one project.
    case.command.current_dir(ground.workspace());
    let mut running = case.start();
    let pid = running.pid();
    running.until("the body's init", || init_of(pid).is_some());
    let pid = assert_supervisor_and_init(&mut running);
    // It learns of hosts, too.
    running.until("relay and resolver have no rights", || {
        let found = confined_rights(pid);
        found
            .iter()
            .all(|found| *found == of_confined(found.bounding))
    });
    running.signal(Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
}

/// while `runner exec` pulls an image from a registry that does not answer.
#[test]
fn the_fetcher_of_a_run_has_no_rights_and_an_empty_root() {
    let ground = Ground::new();
    let registry = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = registry.local_addr().expect("bound");
    let image = format!(
        "--image=docker://{address}/team/image@sha256:{}",
        "0".repeat(64)
    );
    let bundle = ground.script("run: body.sh\n", "echo ran\n");
    let running = ground
        .command(&["exec", "--insecure", &image, text(&bundle)])
        .start();
    let pid = running.pid();
    let (mut connection, _) = registry.accept().expect("accepted");
    // It asks, and waits for an answer.
    connection.read_exact(&mut [0]).expect("read");
    let fetcher = confined_child(pid);
    let found = rights(fetcher);
    assert_eq!(found, of_confined(found.bounding));
    if is_root() {
        let root = fs::read_dir(format!("/proc/{fetcher}/root")).expect("listed");
        assert_eq!(root.count(), 0);
    }
    assert_eq!(rights(pid), of_caller());
    running.signal(Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
}
