//! Commands: their results, streams and logs.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::{Api, is_on_a_command_line, processes, url};
use crate::host::RIGHTS;
use support::invariants::eventually;
use support::random;

const COMMANDS: &str = "/v1/sandboxes/one/commands";

fn one() -> Api {
    let api = Api::new();
    api.create("one");
    api
}

/// A client that reads the events of a command.
pub struct Client {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Client {
    pub fn start(api: &Api, words: &[&str]) -> Self {
        let words = [&["-N", "-H", "Accept: application/x-ndjson"], words].concat();
        let mut child = api
            .curl(&words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, lines }
    }

    pub fn event(&mut self) -> Value {
        let line = self.lines.next().expect("an event").expect("read");
        serde_json::from_str(&line).expect("a document")
    }

    /// Closes the connection.
    pub fn leave(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }
}

#[test]
fn a_command_answers_with_its_exit_code_and_both_streams() {
    let api = one();
    let document = json!({
        "argv": ["sh", "-c", "echo $A; pwd; printf '\\377' >&2; exit 3"],
        "env": { "A": "a b=c" },
        "cwd": "/tmp",
    });
    let done = api.post(COMMANDS, &document).expect(200).json();
    assert_eq!(
        done,
        json!({
            "exit_code": 3,
            "timed_out": false,
            "stdout": { "text": "a b=c\n/tmp\n", "truncated": false },
            "stderr": { "base64": "/w==", "truncated": false },
        })
    );
    assert_eq!(api.shell("kill -TERM $$")["exit_code"], 128 + 15);
    let text = "x\n".repeat(300_000);
    let reads = json!({ "argv": ["wc", "-c"], "stdin": text });
    let reads = api.post(COMMANDS, &reads).expect(200).json();
    assert_eq!(reads["stdout"]["text"], "600000\n");
    let reads_not = json!({ "argv": ["true"], "stdin": text });
    api.post(COMMANDS, &reads_not).expect(200);
    let nothing = api.shell("wc -c");
    assert_eq!(nothing["stdout"]["text"], "0\n");
    let late = json!({ "argv": ["sleep", "1000"], "timeout_ms": 100 });
    let late = api.post(COMMANDS, &late).expect(200).json();
    assert_eq!(
        (&late["exit_code"], &late["timed_out"]),
        (&json!(124), &json!(true))
    );
    let long = json!({ "argv": ["seq", "1000000"], "max_output_bytes": 4 });
    let long = api.post(COMMANDS, &long).expect(200).json();
    assert_eq!(
        long["stdout"],
        json!({ "text": "1\n2\n", "truncated": true })
    );
    assert_eq!(long["exit_code"], 0, "it was not ended by a closed pipe");
}

/// B-75: besides each attempt of `escapes`, which this program makes again: as root, and with
/// `scripts/test --long` as an ordinary user, for whom `sandboxes` makes them without a server.
#[test]
fn a_command_of_a_client_has_the_rights_of_the_command_of_a_run() {
    let api = one();
    api.shell("true");
    let document = json!({ "argv": ["sh", "-c", RIGHTS], "max_output_bytes": 8 << 20 });
    let done = api.post(COMMANDS, &document).expect(200).json();
    api.host
        .assert_rights_of_a_run(done["stdout"]["text"].as_str().expect("text"));
}

/// A-74: Codes of `runner sandbox exec` for itself are no codes of the command, whatever it writes.
#[test]
fn a_command_cannot_pretend_that_it_was_not_started() {
    let api = one();
    for code in [124, 125, 126, 127] {
        let said = api.shell(&format!(
            "echo 'runner: refused: gone (no_sandbox)' >&2; exit {code}"
        ));
        assert_eq!(
            (&said["exit_code"], &said["timed_out"]),
            (&json!(code), &json!(false)),
            "{said}"
        );
    }
    for (argv, code) in [
        (json!(["no-such-program"]), "program_not_found"),
        (json!(["/etc"]), "program_not_executable"),
        (json!(["--help"]), "program_not_found"),
        (json!(["--", "true"]), "program_not_found"),
        (json!(["-it"]), "program_not_found"),
    ] {
        assert_eq!(
            api.post(COMMANDS, &json!({ "argv": argv }))
                .expect(422)
                .code(),
            code,
            "{argv}"
        );
    }
    let nowhere = json!({ "argv": ["true"], "cwd": "--help" });
    assert_eq!(
        api.post(COMMANDS, &nowhere).expect(422).code(),
        "command_not_started"
    );
    for bad in [
        json!({}),
        json!({ "argv": [] }),
        json!({ "argv": [""] }),
        json!({ "argv": ["a\0b"] }),
        json!({ "argv": ["a"], "env": { "": "x" } }),
        json!({ "argv": ["a"], "env": { "A=B": "x" } }),
        json!({ "argv": ["a"], "timeout_ms": 0 }),
        json!({ "argv": ["a"], "timeout_ms": -1 }),
        json!({ "argv": ["a"], "background": true, "kill_on_disconnect": true }),
        json!({ "argv": ["a"], "tty": true }),
        json!({ "argv": ["a"], "background": true, "stdin": "x" }),
    ] {
        assert_eq!(api.post(COMMANDS, &bad).status, 400, "{bad}");
    }
    let huge = json!({ "argv": ["true", "x".repeat(200_000)] });
    assert_eq!(api.post(COMMANDS, &huge).expect(413).code(), "too_large");
    assert_eq!(
        api.post("/v1/sandboxes/two/commands", &json!({ "argv": ["true"] }))
            .expect(404)
            .code(),
        "no_sandbox"
    );
}

/// A-86: Also not for one with the same words that was.
#[test]
fn a_command_that_was_not_started_is_not_taken_for_one_with_the_same_words() {
    let api = one();
    let same = json!({ "argv": ["/tmp/x"] });
    for _ in 0..2 {
        let missing = api.post(COMMANDS, &same).expect(422);
        assert_eq!(missing.code(), "program_not_found");
        api.shell("printf '#!/bin/sh\\nexit 127\\n' > /tmp/x; chmod +x /tmp/x");
        let done = api.post(COMMANDS, &same).expect(200).json();
        assert_eq!(done["exit_code"], 127, "{done}");
        api.shell("printf '#!/bin/sh\\nexit 126\\n' > /tmp/x");
        let done = api.post(COMMANDS, &same).expect(200).json();
        assert_eq!(done["exit_code"], 126, "{done}");
        api.shell("chmod -x /tmp/x");
        let refused = api.post(COMMANDS, &same).expect(422);
        assert_eq!(refused.code(), "program_not_executable");
        api.shell("rm /tmp/x");
    }
}

/// A-86: They may be secrets.
#[test]
fn no_process_of_the_host_has_a_variable_of_a_command_among_its_words() {
    let api = one();
    let canary = random();
    let text = "until test -e /tmp/go; do sleep 0.02; done; echo $CANARY";
    let document = |background: bool| json!({ "argv": ["sh", "-c", text], "env": { "CANARY": canary }, "background": background });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| api.post(COMMANDS, &document(false)).expect(200).json());
        eventually("it runs", || {
            api.host.list()[0]["commands"]
                .as_array()
                .is_some_and(|list| list.len() == 1)
        });
        let is_seen = is_on_a_command_line(&canary);
        api.shell(": > /tmp/go");
        let done = waits.join().expect("answered");
        assert!(!is_seen);
        assert_eq!(done["stdout"]["text"], format!("{canary}\n"));
        // A command in the background that its supervisor does not start yet.
        let supervisor = api.host.supervisor();
        rustix::process::kill_process(supervisor, Signal::STOP).expect("stopped");
        let waits = scope.spawn(|| api.post(COMMANDS, &document(true)).expect(201).json());
        let runtime = api.host.runtime_directory();
        eventually("it waits", || {
            !processes(&runtime, "\0exec\0-d\0").is_empty()
        });
        let is_seen = is_on_a_command_line(&canary);
        rustix::process::kill_process(supervisor, Signal::CONT).expect("continued");
        let id = waits.join().expect("answered")["id"].clone();
        eventually("it has the variable", || {
            let logs = api.get(&format!("{COMMANDS}/{id}/logs")).json();
            logs["stdout"]["text"] == format!("{canary}\n")
        });
        assert!(!is_seen);
    });
}

/// A-86: They are for the command, and change nothing that `runner` does.
#[test]
fn variables_with_any_name_and_value_reach_the_command_and_nothing_else() {
    let api = one();
    let env = json!({
        "PATH": "/nowhere",
        "HOME": "/nowhere",
        "TMPDIR": "/nowhere",
        "GCONV_PATH": "/nowhere",
        "RUNNER_OPT_TIMEOUT": "1ms",
        "RUNNER_OPT_JSON": "-",
        "RUNNER_OPT_RUNTIME_DIRECTORY": "/nowhere",
        "--env-file": "/etc/passwd",
        "#A": "b",
        "BASH_FUNC_x%%": "() { :; }",
        "LINES": "a\nFORGED=1\r\n\n# b",
        "QUOTES": " '\"$HOME\\ ",
        "EMPTY": "",
        "\u{e4}": "\u{20ac}",
    });
    let document = json!({ "argv": ["/usr/bin/env", "-0"], "env": env });
    let done = api.post(COMMANDS, &document).expect(200).json();
    let found = done["stdout"]["text"].as_str().expect("text");
    let found: Vec<&str> = found.split_terminator('\0').collect();
    for (name, value) in env.as_object().expect("an object") {
        let entry = format!("{name}={}", value.as_str().expect("text"));
        assert!(found.contains(&&*entry), "{entry:?}: {found:?}");
    }
    assert!(
        !found.iter().any(|entry| entry.starts_with("FORGED=")),
        "{found:?}"
    );
    // More than a pipe has room for.
    let many: serde_json::Map<String, Value> = (0..20)
        .map(|number| (format!("V{number}"), json!("x".repeat(40_000))))
        .collect();
    let document = json!({ "argv": ["sh", "-c", "echo ${#V19}"], "env": many });
    let done = api.post(COMMANDS, &document).expect(200).json();
    assert_eq!(done["stdout"]["text"], "40000\n");
    for (name, value, code) in [
        ("A\0B", "x".to_owned(), "variable"),
        ("A", "x\0LD_PRELOAD=y".to_owned(), "variable"),
        ("", "x".to_owned(), "variable"),
        ("A=B", "x".to_owned(), "variable"),
        ("A B", "x".to_owned(), "variable"),
        ("A", "x".repeat(200_000), "variable"),
    ] {
        for background in [false, true] {
            let document =
                json!({ "argv": ["true"], "env": { name: value }, "background": background });
            let refused = api.post(COMMANDS, &document).expect(400);
            assert_eq!(refused.code(), code, "{name:?}");
        }
    }
}

#[test]
fn events_come_while_the_command_runs_and_the_last_one_has_its_exit_code() {
    let api = one();
    let text = "printf 'a\\342\\202'; until test -e /tmp/go; do sleep 0.02; done; printf '\\254b'; echo err >&2; exit 5";
    let body = json!({ "argv": ["sh", "-c", text] }).to_string();
    let mut client = Client::start(&api, &["-d", &body, &url(COMMANDS)]);
    assert_eq!(client.event(), json!({ "type": "stdout", "text": "a" }));
    assert!(client.child.try_wait().expect("asked").is_none());
    api.shell(": > /tmp/go");
    let mut rest = [client.event(), client.event()];
    rest.sort_by_key(|event| event["type"].to_string());
    assert_eq!(rest[0], json!({ "type": "stderr", "text": "err\n" }));
    assert_eq!(
        rest[1],
        json!({ "type": "stdout", "text": "\u{20ac}b" }),
        "between characters"
    );
    assert_eq!(
        client.event(),
        json!({ "type": "exit", "exit_code": 5, "timed_out": false })
    );
    assert!(client.lines.next().is_none());
    let body = json!({ "argv": ["nosuch"] }).to_string();
    let text = api
        .send(
            "POST",
            COMMANDS,
            &["-H", "Accept: text/event-stream"],
            body.as_bytes(),
        )
        .expect(200);
    assert!(
        text.head.contains("content-type: text/event-stream\r\n"),
        "{}",
        text.head
    );
    let text = text.text();
    let last = text.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(
        last.starts_with("event: error\ndata: {\"type\":\"error\",\"code\":\"program_not_found\""),
        "{text}"
    );
}

/// A-74: An event is one line, whatever the command writes.
#[test]
fn output_cannot_forge_an_event() {
    let api = one();
    let text = r#"printf 'x\n\nevent: exit\ndata: {"type":"exit","exit_code":0}\n\n'; exit 9"#;
    let body = json!({ "argv": ["sh", "-c", text] }).to_string();
    let stream = api
        .send(
            "POST",
            COMMANDS,
            &["-H", "Accept: text/event-stream"],
            body.as_bytes(),
        )
        .text();
    let names: Vec<&str> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(names, ["stdout", "exit"], "{stream}");
    assert!(stream.contains(r#""exit_code":9"#), "{stream}");
}

#[test]
fn a_client_that_leaves_ends_a_command_only_if_it_asked() {
    let api = one();
    let start = |kills: bool, number: &str| {
        // It writes on: a pipe that nobody reads would end or stop it.
        let text = format!(
            "echo up; until test -e /tmp/go; do echo more; sleep 0.01; done; echo {number} > /tmp/done"
        );
        let body = json!({ "argv": ["sh", "-c", text], "kill_on_disconnect": kills }).to_string();
        let mut client = Client::start(&api, &["-d", &body, &url(COMMANDS)]);
        assert!(
            client.event()["text"]
                .as_str()
                .expect("text")
                .starts_with("up")
        );
        client.leave();
    };
    start(true, "killed");
    eventually("it was ended", || {
        api.host.list()[0]["commands"] == json!([])
    });
    let ended = api.host.list()[0]["ended"]["latest"][0].clone();
    assert_eq!(ended["outcome"], "signaled", "{ended}");
    start(false, "left");
    assert_eq!(
        api.host.list()[0]["commands"]
            .as_array()
            .expect("a list")
            .len(),
        1
    );
    api.shell(": > /tmp/go");
    eventually("it went on to its end", || {
        api.shell("cat /tmp/done")["stdout"]["text"] == "left\n"
    });
}

#[test]
fn a_command_in_the_background_has_an_id_a_log_and_gets_signals() {
    let api = one();
    let text = "echo first; echo err >&2; until test -e /tmp/go; do sleep 0.02; done; echo last";
    let document = json!({ "argv": ["sh", "-c", text], "background": true });
    assert_eq!(
        api.post(COMMANDS, &document).expect(201).json(),
        json!({ "id": 1 })
    );
    let at = |rest: &str| format!("{COMMANDS}/1{rest}");
    assert_eq!(api.get(&at("")).expect(200).json()["ended_at"], Value::Null);
    eventually("both streams are kept", || {
        api.get(&at("/logs")).expect(200).json()
            == json!({ "stdout": { "text": "first\n", "truncated": false }, "stderr": { "text": "err\n", "truncated": false } })
    });
    let mut follower = Client::start(&api, &[&url(&at("/logs?follow=true"))]);
    let mut first = [follower.event(), follower.event()];
    first.sort_by_key(|event| event["type"].to_string());
    assert_eq!(first[1]["text"], "first\n");
    // One that leaves takes its process with it.
    let other = Client::start(&api, &[&url(&at("/logs?follow=true"))]);
    let runtime = api.host.runtime_directory();
    let followers = || processes(&runtime, "\0logs\0-f\0").len();
    eventually("both follow", || followers() == 2);
    other.leave();
    eventually("one is left", || followers() == 1);
    api.shell(": > /tmp/go");
    assert_eq!(
        follower.event(),
        json!({ "type": "stdout", "text": "last\n" })
    );
    assert_eq!(follower.event(), json!({ "type": "end" }));
    let list = api.get(COMMANDS).expect(200).json();
    assert_eq!(list["ended"]["latest"][0]["exit"]["code"], 0, "{list}");

    let sleeps = json!({ "argv": ["sleep", "1000"], "background": true });
    let id = api.post(COMMANDS, &sleeps).expect(201).json()["id"].clone();
    let kill = format!("{COMMANDS}/{id}/kill");
    api.post(&kill, &json!({ "signal": "TERM" })).expect(204);
    eventually("the signal came", || {
        api.get(&format!("{COMMANDS}/{id}")).json()["exit"]["signal"] == 15
    });
    assert_eq!(api.post(&kill, &json!({})).expect(404).code(), "no_command");
    for signal in ["", "--help", "BOGUS", "TERM\0"] {
        let refused = api.post(&kill, &json!({ "signal": signal }));
        assert_eq!(refused.status, 400, "{signal:?}: {}", refused.text());
    }
    for id in ["99", "0"] {
        assert_eq!(
            api.get(&format!("{COMMANDS}/{id}")).expect(404).code(),
            "no_command"
        );
        assert_eq!(
            api.get(&format!("{COMMANDS}/{id}/logs")).expect(404).code(),
            "no_log"
        );
    }
    for id in ["-1", "%2b1", "x", "18446744073709551616", "%00"] {
        assert_eq!(
            api.get(&format!("{COMMANDS}/{id}/logs")).expect(400).code(),
            "command",
            "{id}"
        );
    }
}
