//! The sandbox of a server: made before the protocol begins, removed with the server, and told of when it
//! has ended.

use std::cell::RefCell;
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::json;

use crate::client::Client;
use crate::host::Host;
use support::invariants::eventually;

#[test]
fn each_server_has_a_sandbox_of_its_own_which_ends_with_standard_input() {
    let host = Host::new();
    let mut one = Client::start(&host, &[]);
    let mut two = Client::start(&host, &[]);
    one.shell("echo one > /tmp/file");
    assert_eq!(two.shell("cat /tmp/file")["exit_code"], 1);
    assert_eq!(host.list().len(), 2);
    // A command that runs in the background does not hold it up.
    one.background("sleep 1000");
    for client in [one, two] {
        let gone = client.close();
        assert_eq!((gone.code, &*gone.stderr), (0, ""));
    }
    host.assert_empty();
}

#[test]
fn a_signal_ends_the_server_and_the_sandbox_while_a_command_runs() {
    let host = Host::new();
    for (sent, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut client = Client::start(&host, &[]);
        client.begin(
            "execute_command",
            &json!({"command": "echo up; sleep 1000"}),
        );
        eventually("it runs", || host.list()[0]["commands"] != json!([]));
        client.signal(sent);
        let gone = client.wait();
        assert_eq!((gone.code, &*gone.stderr), (code, ""));
        host.assert_empty();
    }
}

/// What was asked before the input ended is answered.
#[test]
fn calls_that_run_when_standard_input_ends_have_time_to_end() {
    let host = Host::new();
    let mut client = Client::start(&host, &[]);
    let id = client.begin(
        "execute_command",
        &json!({"command": "sleep 0.5; echo done"}),
    );
    client.end_input();
    assert_eq!(
        client.answer(id)["result"]["structuredContent"]["stdout"],
        "done\n"
    );
    assert_eq!(client.wait().code, 0);
    host.assert_empty();
}

/// E-36: Neither a command in the foreground nor one in the background keeps the sandbox of a server that was
/// killed: each has a timeout, after which the idle time begins.
#[test]
fn the_idle_timeout_ends_the_sandbox_of_a_killed_server() {
    let host = Host::new();
    let mut client = Client::start(&host, &["--idle-timeout", "1s", "--grace", "100ms"]);
    client.begin(
        "execute_command",
        &json!({"command": "sleep 1000", "timeout": 1}),
    );
    client.begin(
        "execute_command",
        &json!({"command": "sleep 1000", "timeout": 2, "background": true}),
    );
    eventually("both run", || {
        host.list()[0]["commands"].as_array().map(Vec::len) == Some(2)
    });
    client.signal(Signal::KILL);
    assert_eq!(client.wait().code, 137);
    assert_eq!(host.list().len(), 1);
    eventually("the sandbox has ended", || host.list().is_empty());
    eventually("nothing is left", || {
        host.files("runs").is_empty() && host.files("sandboxes").is_empty()
    });
}

/// The last flag counts: that of the operator.
#[test]
fn the_sandbox_has_an_idle_timeout_unless_the_operator_sets_another() {
    let host = Host::new();
    let words_of_supervisor = || {
        let pid = host.supervisor().as_raw_pid();
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).expect("there");
        String::from_utf8(words).expect("text").replace('\0', " ")
    };
    let client = Client::start(&host, &["--ro", "/usr"]);
    let words = words_of_supervisor();
    assert!(words.ends_with("--idle-timeout 1h --ro /usr "), "{words}");
    assert_eq!(client.close().code, 0);
    let client = Client::start(&host, &["--idle-timeout", "9s"]);
    let words = words_of_supervisor();
    assert!(
        words.ends_with("--idle-timeout 1h --idle-timeout 9s "),
        "{words}"
    );
    assert_eq!(client.close().code, 0);
    let mut client = Client::start_with(&host, &[], &[("RUNNER_OPT_IDLE_TIMEOUT", "1s")]);
    assert!(!words_of_supervisor().contains("--idle-timeout"));
    client.shell("true");
    eventually("the variable ended it", || host.list().is_empty());
}

#[test]
fn every_command_has_a_timeout_and_the_sandbox_an_idle_timeout() {
    let host = Host::new();
    let mut client = Client::start(&host, &[]);
    let id = client.begin("execute_command", &json!({"command": "sleep 1000"}));
    client.background("sleep 1000");
    eventually("both run", || {
        host.list()[0]["commands"].as_array().map(Vec::len) == Some(2)
    });
    for command in host.list()[0]["commands"].as_array().expect("a list") {
        let expected = if command["is_detached"] == true {
            3_600_000
        } else {
            120_000
        };
        assert_eq!(command["timeout_ms"], expected, "{command}");
    }
    client.notify("notifications/cancelled", &json!({"requestId": id}));
    eventually("the cancelled one has ended", || {
        host.list()[0]["commands"].as_array().map(Vec::len) == Some(1)
    });
    // Other calls go on.
    assert_eq!(client.shell("echo on")["stdout"], "on\n");
}

/// The registry accepts connections and never answers.
#[test]
fn a_signal_during_the_creation_leaves_nothing() {
    let host = Host::new();
    let registry = TcpListener::bind("127.0.0.1:0").expect("bound");
    registry.set_nonblocking(true).expect("set");
    let port = registry.local_addr().expect("an address").port();
    let image = format!("docker://127.0.0.1:{port}/image:tag");
    let flags = ["--image", &image, "--allow-tags", "--insecure"];
    let mut client = Client::start_silent(&host, &flags);
    let connection = RefCell::new(None);
    eventually("the image is asked for", || {
        *connection.borrow_mut() = registry.accept().ok();
        connection.borrow().is_some()
    });
    client.signal(Signal::TERM);
    assert_eq!(client.wait_code(), 143);
    // The creation, which nobody waits for any more, ends with the answer of the registry.
    drop((connection, registry));
    eventually("nothing is left", || {
        host.files("runs").is_empty() && host.files("sandboxes").is_empty()
    });
}

#[test]
fn calls_after_the_end_of_the_sandbox_say_so() {
    let host = Host::new();
    let mut client = Client::start(&host, &["--idle-timeout", "1s"]);
    client.shell("unshare -U true");
    eventually("it is idle long enough", || host.list().is_empty());
    let after = client.call("execute_command", &json!({"command": "echo"}));
    assert_eq!(after["isError"], true);
    assert!(
        after["content"][0]["text"]
            .as_str()
            .expect("text")
            .contains("has ended")
    );
    for (tool, arguments) in [
        ("read_file", json!({"path": "/etc/passwd"})),
        ("write_file", json!({"path": "/tmp/a", "content": ""})),
        ("list_files", json!({})),
        ("get_process_output", json!({"id": 1})),
        ("kill_process", json!({"id": 1})),
    ] {
        let refusal = client.refused(tool, &arguments);
        assert!(refusal.contains("has ended"), "{tool}: {refusal}");
    }
    // Only now it can be told what was denied.
    let told = client.call("explain_denial", &json!({}));
    let ended = told["structuredContent"]["ended"].as_str().expect("text");
    assert!(ended.contains("denied    syscall unshare"), "{ended}");
    assert!(
        ended.contains("change    --idle-timeout sets it"),
        "{ended}"
    );
    assert_eq!(client.close().code, 0);
}

#[test]
fn a_sandbox_that_cannot_be_created_is_told_before_the_protocol_begins() {
    let host = Host::new();
    for (flags, problem) in [
        (&["--rw", "/nonexistent"][..], "(mount_source_missing)"),
        (&["--nonsense"], "(usage)"),
        (&["-i"], "(usage)"),
        (&["--name", "x"], "--name cannot be used"),
        (
            &["--rw", ".", "--bundles", "."],
            "--bundles must be the first",
        ),
        (&["--bundles", "nonexistent"], "(mcp_bundles)"),
    ] {
        let mut client = Client::start_silent(&host, flags);
        let gone = client.wait();
        assert_eq!(gone.code, 125, "{flags:?}: {gone:?}");
        assert!(gone.stderr.contains(problem), "{flags:?}: {gone:?}");
        assert!(
            gone.stderr.lines().all(|line| line.starts_with("runner: ")),
            "{gone:?}"
        );
    }
    host.assert_empty();
    let help = host.say(&["mcp", "--help"]);
    assert_eq!((help.code, &*help.stderr), (0, ""));
    assert!(
        help.stdout
            .contains("Usage: runner mcp [--bundles DIR] [FLAGS]")
    );
}
