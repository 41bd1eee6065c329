//! The server holds nothing that its end could lose.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::api::{Api, Server, url};
use support::invariants::eventually;

/// E-36: Under load: neither a sandbox, nor a command in the background, nor what it wrote is lost.
#[test]
fn a_killed_server_loses_no_sandbox_and_no_output_and_the_next_finds_all() {
    let api = Api::new();
    for name in ["one", "two"] {
        api.create(name);
    }
    let text = "echo before; until test -e /tmp/go; do sleep 0.02; done; echo after";
    let document = json!({ "argv": ["sh", "-c", text], "background": true });
    for name in ["one", "two"] {
        api.post(&format!("/v1/sandboxes/{name}/commands"), &document)
            .expect(201);
    }
    // Calls of every kind that are in progress when it dies.
    let load = |words: &[&str]| -> Child {
        let mut curl = api.curl(words);
        curl.stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started")
    };
    let waits = json!({ "argv": ["sh", "-c", "sleep 1000"] }).to_string();
    let large = json!({ "argv": ["sh", "-c", "head -c 30000000 /dev/zero > /scratch/large"] });
    api.post("/v1/sandboxes/one/commands", &large).expect(200);
    let commands = url("/v1/sandboxes/one/commands");
    let clients = [
        load(&["-d", &waits, &commands]),
        load(&["-H", "Accept: text/event-stream", "-d", &waits, &commands]),
        load(&[&url("/v1/sandboxes/one/commands/1/logs?follow=true")]),
        load(&[
            "--limit-rate",
            "1m",
            "-o",
            "/dev/null",
            &url("/v1/sandboxes/one/files?path=/scratch/large"),
        ]),
        load(&["-d", "{\"name\":\"three\"}", &url("/v1/sandboxes")]),
    ];
    eventually("they run", || {
        let one = api.get("/v1/sandboxes/one").json();
        one["commands"]
            .as_array()
            .is_some_and(|list| list.len() >= 3)
    });
    let Api { server, host } = api;
    server.signal(rustix::process::Signal::KILL);
    drop(server);
    for mut client in clients {
        client.wait().expect("waited");
    }
    let server = Server::start(&host, &[]);
    let api = Api { server, host };
    // The creation that was in progress goes on without the server, if it had begun.
    let names = |api: &Api| -> Vec<Value> {
        let list = api.get("/v1/sandboxes").expect(200).json();
        list["sandboxes"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|sandbox| sandbox["name"].clone())
            .collect()
    };
    assert!(names(&api).contains(&json!("one")) && names(&api).contains(&json!("two")));
    for name in ["one", "two"] {
        let argv = json!({ "argv": ["sh", "-c", ": > /tmp/go"] });
        api.post(&format!("/v1/sandboxes/{name}/commands"), &argv)
            .expect(200);
        let logs = format!("/v1/sandboxes/{name}/commands/1/logs");
        eventually("nothing was lost", || {
            api.get(&logs).expect(200).json()["stdout"]["text"] == "before\nafter\n"
        });
    }
    // What the dead one left of files in progress is removed.
    let uid = rustix::process::geteuid().as_raw();
    let common = api.host.ground.path(&format!(".runner-serve-{uid}"));
    assert_eq!(
        std::fs::read_dir(common).expect("there").count(),
        1,
        "that of the live server"
    );
}

/// E-36: A stream of a server that was killed is cut: it has no last event, and its client learns of that.
#[test]
fn a_stream_of_a_killed_server_has_no_last_event() {
    let mut api = Api::new();
    api.create("one");
    let document = json!({ "argv": ["yes"] }).to_string();
    let mut curl = api.curl(&["-N", "-H", "Accept: application/x-ndjson", "-d", &document]);
    let mut client = curl
        .arg(url("/v1/sandboxes/one/commands"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(client.stdout.take().expect("a pipe")).lines();
    let is_output = |line: &str| line.starts_with("{\"type\":\"stdout\",");
    assert!(is_output(&lines.next().expect("a line").expect("read")));
    api.server.child.kill().expect("killed");
    api.server.child.wait().expect("waited");
    assert!(lines.all(|line| !line.expect("read").contains("\"exit\"")));
    // CURLE_PARTIAL_FILE
    assert_eq!(client.wait().expect("ended").code(), Some(18));
    eventually("the command gets SIGPIPE", || {
        api.host.list()[0]["commands"] == json!([])
    });
    let listed = &api.host.list()[0]["ended"]["latest"][0];
    let signal = rustix::process::Signal::PIPE.as_raw();
    assert_eq!(listed["exit"]["signal"], signal, "{listed}");
}

/// Ctrl-C in the terminal of the server ends the server alone.
#[test]
fn an_interrupted_server_ends_and_its_commands_do_not() {
    let mut api = Api::with(&["--stop-timeout", "100ms"]);
    api.create("one");
    let waits = json!({ "argv": ["sh", "-c", "trap 'exit 9' INT TERM; until test -e /tmp/go; do sleep 0.02; done; echo done > /tmp/done"] });
    let mut curl = api.curl(&["-d", &waits.to_string(), &url("/v1/sandboxes/one/commands")]);
    let mut client = curl
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    eventually("it runs", || {
        api.host.list()[0]["commands"]
            .as_array()
            .is_some_and(|list| list.len() == 1)
    });
    // The terminal sends it to the group of the server.
    let group = api.server.pid();
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).expect("sent");
    assert_eq!(api.server.child.wait().expect("ended").code(), Some(0));
    client.wait().expect("waited");
    assert_eq!(api.host.shell("one", ": > /tmp/go").code, 0);
    eventually("the command went on", || {
        api.host.shell("one", "cat /tmp/done").stdout == "done\n"
    });
}
