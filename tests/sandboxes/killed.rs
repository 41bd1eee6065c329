//! Killed supervisors and clients: the next start finds what they left.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use crate::host::Host;
use rustix::process::{Pid, Signal, kill_process};
use support::invariants::{eventually, living};

/// Whether a process is left, other than a zombie that nobody has reaped.
fn is_gone(pid: rustix::process::Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    status.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        || std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|text| text.contains(") Z "))
}

/// E-31.
#[test]
fn a_killed_supervisor_ends_its_sandbox_and_its_name_is_free_again() {
    let host = Host::new();
    let marker = format!("RUNNER_TEST_MARKER={}", host.ground.marker());
    host.create("one", &["-e", &marker]);
    let mut child = host.start("one", "echo up; exec sleep 1000");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    let supervisor = host.supervisor();
    kill_process(supervisor, Signal::KILL).expect("sent");
    // The client learns of it.
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    eventually("the supervisor is gone", || is_gone(supervisor));
    eventually("no process of the sandbox is left", || {
        living(host.ground.marker()).is_empty()
    });
    assert_eq!(host.list(), Vec::<serde_json::Value>::new());
    let gone = host.shell("one", "true");
    assert!(gone.stderr.contains("(no_sandbox)"), "{gone:?}");
    assert_eq!(host.files("sandboxes").len(), 1, "the socket is left");
    let created = host.say(&["sandbox", "create", "--name", "one"]);
    assert_eq!(
        (created.code, &*created.stdout),
        (0, "one\n"),
        "{created:?}"
    );
    assert_eq!(host.files("sandboxes").len(), 1);
    assert_eq!(host.shell("one", "echo new").stdout, "new\n");
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    host.assert_empty();
}

/// E-31.
#[test]
fn gc_removes_what_a_killed_supervisor_left_and_nothing_of_a_live_one() {
    let host = Host::new();
    host.create("one", &[]);
    let supervisor = host.supervisor();
    host.create("two", &[]);
    kill_process(supervisor, Signal::KILL).expect("sent");
    eventually("the supervisor is gone", || is_gone(supervisor));
    eventually("its record is free", || {
        let collected = host.say(&["gc"]);
        assert_eq!(collected.code, 0, "{collected:?}");
        host.files("runs").len() == 1
    });
    assert_eq!(host.files("sandboxes").len(), 1);
    assert_eq!(host.shell("two", "echo lives").stdout, "lives\n");
}

/// E-31.
#[test]
fn a_killed_client_leaves_its_command_running() {
    let host = Host::new();
    host.create("one", &[]);
    let mut child = host.start("one", "echo up; exec sleep 1000");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let states = host.list();
    assert_eq!(
        states[0]["commands"][0]["argv"][2],
        "echo up; exec sleep 1000"
    );
    assert_eq!(host.shell("one", "true").code, 0);
}

/// E-31: A client that reads a command's output says in one line, in its document and by its exit code that the
/// sandbox has ended.
#[test]
fn a_client_says_that_the_supervisor_of_its_command_was_killed() {
    let host = Host::new();
    host.create("one", &[]);
    let end = host.ground.path("end.json");
    let json = format!("--json={}", end.display());
    let words = ["sandbox", "exec", &json, "one", "--", "yes"];
    let mut child = host
        .command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "y");
    kill_process(host.supervisor(), Signal::KILL).expect("sent");
    assert!(lines.all(|line| line.is_ok_and(|line| line == "y" || line.is_empty())));
    let ended = child.wait_with_output().expect("ended");
    assert_eq!(ended.status.code(), Some(137));
    let stderr = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(
        stderr,
        "runner: the sandbox one ended, and the command with it\n"
    );
    let end = std::fs::read_to_string(end).expect("written");
    let end: serde_json::Value = serde_json::from_str(&end).expect("a document");
    assert_eq!(end["outcome"], "cancelled", "{end}");
}

/// E-31: What a command writes after its client was killed ends it by SIGPIPE, as in a pipeline of a shell.
#[test]
fn a_command_whose_client_was_killed_gets_sigpipe_when_it_writes() {
    let host = Host::new();
    host.create("one", &[]);
    let mut child = host.start(
        "one",
        "echo up; until test -e /tmp/go; do :; done; exec yes",
    );
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    child.kill().expect("killed");
    child.wait().expect("ended");
    drop(lines);
    assert_eq!(host.shell("one", ": > /tmp/go").code, 0);
    eventually("it has ended", || {
        host.list()[0]["commands"] == serde_json::json!([])
    });
    let ended = host.list()[0]["ended"]["latest"].clone();
    let mut ended = ended.as_array().expect("a list").iter();
    let writer = ended.find(|command| command["id"] == 1).expect("listed");
    assert_eq!(writer["exit"]["signal"], Signal::PIPE.as_raw(), "{writer}");
}

/// E-31.
#[test]
fn a_stopped_supervisor_asks_its_commands_to_end_and_leaves_nothing() {
    let host = Host::new();
    host.create("one", &["--grace", "30s"]);
    let text = "trap 'echo asked; exit 4' TERM; echo up; while :; do sleep 0.05; done";
    let mut child = host.start("one", text);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    let supervisor = host.supervisor();
    kill_process(supervisor, Signal::TERM).expect("sent");
    assert_eq!(lines.next().expect("a line").expect("read"), "asked");
    assert_eq!(child.wait().expect("ended").code(), Some(4));
    eventually("the supervisor is gone", || is_gone(supervisor));
    host.assert_empty();
}

/// E-36: The registry accepts connections and never answers.
#[test]
fn a_creation_ends_with_the_process_that_waits_for_it() {
    let host = Host::new();
    let registry = TcpListener::bind("127.0.0.1:0").expect("bound");
    registry.set_nonblocking(true).expect("set");
    let port = registry.local_addr().expect("an address").port();
    let image = format!("docker://127.0.0.1:{port}/image:tag");
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let words = ["sandbox", "create", "--name", "one", "--image", &image];
        let mut create = host
            .command(&[&words[..], &["--allow-tags", "--insecure"]].concat())
            .env("RUNNER_OPT_OCI_DIRECTORY", host.ground.path("oci"))
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let connection = RefCell::new(None);
        eventually("the image is asked for", || {
            *connection.borrow_mut() = registry.accept().ok();
            connection.borrow().is_some()
        });
        // It holds up nobody.
        assert_eq!(host.list(), [serde_json::Value::Null; 0]);
        for words in [&["rm", "-f", "one"][..], &["exec", "one", "--", "true"]] {
            let refused = host.say(&[&["sandbox"], words].concat());
            assert!(refused.stderr.contains("(no_sandbox)"), "{refused:?}");
        }
        kill_process(Pid::from_child(&create), signal).expect("sent");
        create.wait().expect("ended");
        eventually("nothing is left", || {
            host.files("runs").is_empty() && host.files("sandboxes").is_empty()
        });
    }
}
