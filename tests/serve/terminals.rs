//! Commands with a terminal.

use serde_json::{Value, json};

use crate::access::Tcp;
use crate::api::{Api, Reply, url};
use crate::commands::Client;
use support::invariants::eventually;

const COMMANDS: &str = "/v1/sandboxes/one/commands";

/// A terminal of the sandbox `one`.
struct Terminal<'api> {
    api: &'api Api,
    client: Client,
    id: u64,
    shown: String,
}

impl<'api> Terminal<'api> {
    fn start(api: &'api Api, argv: &[&str], more: &Value) -> Self {
        let mut document = json!({ "argv": argv, "tty": { "rows": 31, "columns": 97 } });
        for (name, value) in more.as_object().expect("an object") {
            document[name] = value.clone();
        }
        let mut client = Client::start(api, &["-d", &document.to_string(), &url(COMMANDS)]);
        let first = client.event();
        assert_eq!(first["type"], "started", "{first}");
        Self {
            api,
            client,
            id: first["id"].as_u64().expect("a number"),
            shown: String::new(),
        }
    }

    fn send(&self, call: &str, body: &[u8]) -> Reply {
        let path = format!("{COMMANDS}/{}/{call}", self.id);
        self.api.send("POST", &path, &[], body)
    }

    #[track_caller]
    fn types(&self, text: &str) {
        self.send("stdin", text.as_bytes()).expect(204);
    }

    /// Reads until this was shown, and forgets what was shown before.
    #[track_caller]
    fn until(&mut self, part: &str) {
        loop {
            if let Some(at) = self.shown.find(part) {
                self.shown.drain(..at + part.len());
                return;
            }
            let event = self.client.event();
            let Some(text) = event["text"].as_str() else {
                panic!("no {part:?} in {:?}, but {event}", self.shown);
            };
            self.shown.push_str(text);
        }
    }

    /// Reads to the end, and returns its event.
    fn end(mut self) -> Value {
        loop {
            let event = self.client.event();
            if event["type"] != "stdout" && event["type"] != "stderr" {
                return event;
            }
        }
    }
}

fn one() -> Api {
    let api = Api::new();
    api.create("one");
    api
}

#[test]
fn a_shell_in_a_terminal_is_typed_into_resized_interrupted_and_left() {
    let api = one();
    let more = json!({ "env": { "PS1": "> " }, "cwd": "/tmp" });
    let mut terminal = Terminal::start(&api, &["sh"], &more);
    // What is typed is shown, too, so no answer is in its question.
    terminal.types("tty; pwd; echo $TERM; stty size\n");
    for part in ["/dev/pts/0", "/tmp", "xterm-256color", "31 97"] {
        terminal.until(part);
    }
    terminal.types("trap 'echo w''inch' WINCH; echo r''eady\n");
    terminal.until("ready");
    terminal
        .send("resize", br#"{"rows": 65535, "columns": 1}"#)
        .expect(204);
    // The shell acts on signals between commands.
    terminal.types("true\n");
    terminal.until("winch");
    terminal.types("stty size\n");
    terminal.until("65535 1");
    terminal.types("sh -c 'echo r''eady; exec sleep 1000'\n");
    terminal.until("ready");
    terminal.types("\u{3}");
    terminal.types("echo s''tatus=$?\n");
    terminal.until("status=130");
    terminal.types("exit 5\n");
    let exit = json!({ "type": "exit", "exit_code": 5, "timed_out": false });
    let id = terminal.id;
    assert_eq!(terminal.end(), exit);
    let stdin = format!("{COMMANDS}/{id}/stdin");
    eventually("its terminal is gone", || {
        api.send("POST", &stdin, &[], b"x").status == 404
    });
}

#[test]
fn every_byte_arrives_as_it_was_sent() {
    let api = one();
    let text = "stty raw -echo; echo ready; head -c 256 | od -An -v -tx1 | tr -d ' \\n'";
    let mut terminal = Terminal::start(&api, &["sh", "-c", text], &json!({}));
    terminal.until("ready");
    let all: Vec<u8> = (0..=255).collect();
    terminal.send("stdin", &all).expect(204);
    let hex: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
    terminal.until(&hex);
}

#[test]
fn a_terminal_has_a_time_and_ends_with_its_client_if_asked() {
    let api = one();
    let more = json!({ "timeout_ms": 300 });
    let end = Terminal::start(&api, &["sleep", "1000"], &more).end();
    assert_eq!(
        (&end["timed_out"], &end["exit_code"]),
        (&json!(true), &json!(124)),
        "{end}"
    );
    let more = json!({ "kill_on_disconnect": true });
    let terminal = Terminal::start(&api, &["sleep", "1000"], &more);
    terminal.client.leave();
    eventually("it was ended", || {
        api.host.list()[0]["commands"] == json!([])
    });
    // Without that it goes on, and is typed into still.
    let mut terminal = Terminal::start(&api, &["sh"], &json!({}));
    terminal.types("echo r''eady\n");
    terminal.until("ready");
    let stdin = format!("{COMMANDS}/{}/stdin", terminal.id);
    terminal.client.leave();
    api.send("POST", &stdin, &[], b"echo still there > /tmp/left; exit\n")
        .expect(204);
    eventually("it has ended", || {
        api.host.list()[0]["commands"] == json!([])
    });
    assert_eq!(
        api.shell("cat /tmp/left")["stdout"]["text"],
        "still there\n"
    );
}

#[test]
fn a_shell_in_a_terminal_ends_when_the_server_does() {
    let mut api = one();
    let terminal = Terminal::start(&api, &["sh"], &json!({}));
    let Terminal { client, .. } = terminal;
    api.server.child.kill().expect("killed");
    api.server.child.wait().expect("waited");
    client.leave();
    eventually("the shell reads the end", || {
        api.host.list()[0]["commands"] == json!([])
    });
}

/// A-80.
#[test]
fn sizes_and_documents_that_make_no_sense_are_refused() {
    let api = one();
    let start = |tty: Value, more: &[(&str, Value)]| {
        let mut document = json!({ "argv": ["true"], "tty": tty });
        for (name, value) in more {
            document[name] = value.clone();
        }
        api.post(COMMANDS, &document)
    };
    let sizes = [
        json!(true),
        json!({ "rows": 0 }),
        json!({ "columns": 0 }),
        json!({ "rows": 65536 }),
        json!({ "rows": -1 }),
        json!({ "rows": "24" }),
        json!({ "rows": 24, "cols": 80 }),
    ];
    for size in &sizes {
        let reply = start(size.clone(), &[]);
        assert_eq!(reply.status, 400, "{size}: {}", reply.text());
    }
    for (name, value) in [("stdin", json!("x")), ("background", json!(true))] {
        start(json!({}), &[(name, value)]).expect(400);
    }
    assert_eq!(api.host.list()[0]["ended"]["latest"], json!([]));
    let mut terminal = Terminal::start(&api, &["sh"], &json!({}));
    for size in &sizes[1..] {
        let reply = terminal.send("resize", size.to_string().as_bytes());
        assert_eq!(reply.status, 400, "{size}: {}", reply.text());
    }
    terminal.types("stty size\n");
    terminal.until("31 97");
}

/// A-80: Who may not use the sandbox, and commands that have no terminal.
#[test]
fn a_terminal_belongs_to_its_command_and_to_who_may_use_the_sandbox() {
    let tcp = Tcp::new();
    let api = &tcp.api;
    for name in ["one", "two", "tcp.one"] {
        api.create(name);
    }
    let mut terminal = Terminal::start(api, &["sh"], &json!({}));
    let sleeps = json!({ "argv": ["sleep", "1000"], "background": true });
    let background = api.post(COMMANDS, &sleeps).expect(201).json()["id"].clone();
    let paths = [
        format!("/v1/sandboxes/two/commands/{}", terminal.id),
        format!("/v1/sandboxes/tcp.one/commands/{}", terminal.id),
        format!("{COMMANDS}/{background}"),
        format!("{COMMANDS}/99"),
    ];
    for path in &paths {
        for (call, body) in [("stdin", "exit\n"), ("resize", "{}")] {
            let path = format!("{path}/{call}");
            let refused = api.send("POST", &path, &[], body.as_bytes()).expect(404);
            assert_eq!(refused.code(), "no_terminal", "{path}");
        }
    }
    // The sandbox that clients over TCP call `one` is `tcp.one`.
    let path = format!("{COMMANDS}/{}/stdin", terminal.id);
    let words = ["--data-binary", "exit\n"];
    tcp.with_token(&words, &path).expect(404);
    tcp.call(&words, &path).expect(401);
    terminal.types("echo still h''ere\n");
    terminal.until("still here");
}

/// A-80: A body that reads nothing and writes without end: calls are bounded, and others are served.
#[test]
fn a_terminal_that_is_not_read_holds_up_nobody() {
    let api = one();
    let text = "stty raw -echo; echo ready; exec sleep 1000";
    let mut deaf = Terminal::start(&api, &["sh", "-c", text], &json!({}));
    deaf.until("ready");
    deaf.send("stdin", &vec![b'x'; (1 << 20) + 1]).expect(413);
    let path = url(&format!("{COMMANDS}/{}/stdin", deaf.id));
    let words = ["--max-time", "1", "--data-binary", "@-", &path];
    // It is still writing when its client gives up.
    let output = crate::api::run(&mut api.curl(&words), Some(&vec![b'x'; 1 << 20]));
    assert_eq!(output.status.code(), Some(28), "{output:?}");
    deaf.send("resize", br#"{"rows": 2, "columns": 3}"#)
        .expect(204);
    let flood = Terminal::start(&api, &["yes"], &json!({}));
    let kill = format!("{COMMANDS}/{}/kill", flood.id);
    // One that has read nothing but the start.
    flood.client.leave();
    api.shell("true");
    api.post(&kill, &json!({})).expect(204);
    let kill = format!("{COMMANDS}/{}/kill", deaf.id);
    api.post(&kill, &json!({})).expect(204);
    assert_eq!(deaf.end()["exit_code"], 137);
    eventually("both have ended", || {
        api.host.list()[0]["commands"] == json!([])
    });
    let calls = || api.get("/metrics").text();
    eventually("no call is left", || {
        calls().contains("\nrunner_serve_calls 0\n")
    });
}
