//! Who may ask the server, and for what.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::api::{Api, Reply, Server, curl, reply, serve};
use crate::host::{Host, said};
use support::invariants::eventually;
use support::{is_root, needs_root};

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const TEMPLATES: &str =
    "small: [-m, 128m]\nbroken: [--bogus]\ntimed: [--timeout, 10m, --label, of=template]\n";
const RUN_TEMPLATES: &str = "short: [--timeout, 30s]\nbroken: [--bogus]\n";

/// A server that listens on the loopback interface, too.
pub struct Tcp {
    pub api: Api,
    pub port: u16,
}

impl Tcp {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(flags: &[&str]) -> Self {
        let host = Host::new();
        let token = host.ground.write("token", format!("{TOKEN}\n"));
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).expect("set");
        let templates = host.ground.write("templates.yaml", TEMPLATES);
        std::fs::set_permissions(&templates, PermissionsExt::from_mode(0o644)).expect("set");
        let run_templates = host.ground.write("runs.yaml", RUN_TEMPLATES);
        std::fs::set_permissions(&run_templates, PermissionsExt::from_mode(0o644)).expect("set");
        let plain = |path: &std::path::Path| path.to_str().expect("a plain path").to_owned();
        let own = [
            "--listen",
            "127.0.0.1:0",
            "--token-file",
            &plain(&token),
            "--templates",
            &plain(&templates),
            "--run-templates",
            &plain(&run_templates),
        ];
        let server = Server::start(&host, &[&own, flags].concat());
        let port = server.chosen_port();
        Self {
            api: Api { server, host },
            port,
        }
    }

    pub fn call(&self, words: &[&str], path: &str) -> Reply {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        reply(curl(&[words, &[&url]].concat()), None)
    }

    pub fn with_token(&self, words: &[&str], path: &str) -> Reply {
        let bearer = format!("Authorization: Bearer {TOKEN}");
        self.call(&[words, &["-H", &bearer]].concat(), path)
    }

    pub fn create(&self, document: &Value) -> Reply {
        self.with_token(&["-d", &document.to_string()], "/v1/sandboxes")
    }
}

///
#[test]
fn only_clients_with_the_token_are_served_over_tcp() {
    let tcp = Tcp::new();
    tcp.call(&[], "/health").expect(200);
    tcp.with_token(&[], "/v1/sandboxes").expect(200);
    for path in [
        "/v1/sandboxes",
        "/metrics",
        "/openapi.json",
        "/nothing",
        "/health/",
    ] {
        for words in [
            &[][..],
            &["-H", "Authorization: Bearer"],
            &[
                "-H",
                "Authorization: Bearer 0123456789abcdef0123456789abcdeg",
            ],
            &["-H", "Authorization: Bearer 0123456789abcdef"],
            &[
                "-H",
                "Authorization: Basic 0123456789abcdef0123456789abcdef",
            ],
            &["-H", "X-Token: 0123456789abcdef0123456789abcdef"],
        ] {
            let refused = tcp.call(words, path).expect(401);
            assert!(
                refused.head.contains("www-authenticate: Bearer"),
                "{}",
                refused.head
            );
            assert!(!refused.text().contains(TOKEN));
        }
    }
}

/// A page in a browser of this host: its name may resolve to the loopback address.
#[test]
fn pages_of_browsers_are_refused_even_with_the_token() {
    let tcp = Tcp::new();
    let port = tcp.port;
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        "127.0.0.1:1".to_owned(),
        String::new(),
    ] {
        let header = format!("Host: {host}");
        for path in ["/v1/sandboxes", "/health"] {
            let refused = tcp.with_token(&["-H", &header], path);
            // Without the header the request is none of HTTP/1.1, and without its value it is not ours.
            assert_eq!(
                (refused.status, &*refused.code()),
                (403, "foreign_host"),
                "{host}"
            );
        }
    }
    for host in [format!("localhost:{port}"), format!("[::1]:{port}")] {
        tcp.with_token(&["-H", &format!("Host: {host}")], "/v1/sandboxes")
            .expect(200);
    }
    for origin in [
        "https://evil.example".to_owned(),
        "null".to_owned(),
        "http://127.0.0.1:1".to_owned(),
        format!("https://127.0.0.1:{port}"),
    ] {
        let header = format!("Origin: {origin}");
        assert_eq!(
            tcp.with_token(&["-H", &header], "/v1/sandboxes")
                .expect(403)
                .code(),
            "foreign_origin"
        );
        let unix = reply(
            tcp.api.curl(&["-H", &header, "http://runner/v1/sandboxes"]),
            None,
        );
        assert_eq!(unix.expect(403).code(), "foreign_origin");
    }
    tcp.with_token(
        &["-H", &format!("Origin: http://127.0.0.1:{port}")],
        "/v1/sandboxes",
    )
    .expect(200);
}

///
#[test]
fn clients_with_the_token_get_templates_alone_and_their_own_sandboxes() {
    let tcp = Tcp::new();
    let rest = |document: &Value| tcp.create(document);
    assert_eq!(rest(&json!({})).expect(403).code(), "template_needed");
    assert_eq!(
        rest(&json!({ "flags": ["-m", "1g"] })).expect(403).code(),
        "template_needed"
    );
    let refused = rest(&json!({ "template": "small", "flags": ["--rw", "/etc"] })).expect(403);
    assert!(
        refused.json()["error"]["message"]
            .as_str()
            .expect("a message")
            .contains("`small`"),
        "{}",
        refused.text()
    );
    let refused = rest(&json!({ "template": "other" })).expect(403);
    assert!(
        refused.text().contains("broken, small, timed"),
        "{}",
        refused.text()
    );
    assert_eq!(
        rest(&json!({ "template": "broken" })).expect(400).code(),
        "usage"
    );
    let unnamed = rest(&json!({ "template": "small" })).expect(201).json();
    rest(&json!({ "template": "small", "name": "one" })).expect(201);

    // A snapshot is no way to more.
    let restore =
        |query: &str| tcp.with_token(&["--data-binary", "x"], &format!("/v1/restore{query}"));
    assert_eq!(restore("").expect(403).code(), "template_needed");
    assert_eq!(restore("?template=other").expect(403).code(), "no_template");
    assert_eq!(restore("?template=small&name=new").status, 422);

    // What the operator has created with more rights is not there for them, nor by another name.
    tcp.api.create("one");
    tcp.api.create("mine");
    let list = tcp.with_token(&[], "/v1/sandboxes").expect(200).json();
    let list = list["sandboxes"].as_array().expect("a list");
    let names: Vec<&Value> = list.iter().map(|sandbox| &sandbox["name"]).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(
        names.contains(&&json!("one")) && names.contains(&&unnamed["name"]),
        "{names:?}"
    );
    for name in ["mine", "tcp.one", "..%2fmine"] {
        for (method, rest) in [
            ("GET", ""),
            ("DELETE", "?force=true"),
            ("POST", "/pause"),
            ("GET", "/files?path=/etc/passwd"),
            ("GET", "/commands"),
        ] {
            let refused = tcp.with_token(&["-X", method], &format!("/v1/sandboxes/{name}{rest}"));
            assert!(
                [400, 404].contains(&refused.status),
                "{name} {rest}: {}",
                refused.text()
            );
        }
    }
    // Nor does a message name one: `runner` suggests names that are similar.
    tcp.api.create("tcp-secret");
    let refused = tcp.with_token(&["-X", "POST"], "/v1/sandboxes/secret/pause");
    let text = refused.expect(404).text();
    assert!(!text.contains("tcp-secret"), "{text}");
    tcp.api
        .call("DELETE", "/v1/sandboxes/tcp-secret")
        .expect(204);
    let body = json!({ "argv": ["sh", "-c", "echo inside > /tmp/x"] }).to_string();
    tcp.with_token(&["-d", &body], "/v1/sandboxes/one/commands")
        .expect(200);
    assert_eq!(
        tcp.api.host.shell("tcp.one", "cat /tmp/x").stdout,
        "inside\n"
    );
    assert_eq!(
        tcp.api.host.shell("one", "cat /tmp/x").code,
        1,
        "of the same name, and another sandbox"
    );
    // The owner sees all.
    assert_eq!(
        tcp.api.get("/v1/sandboxes").json()["sandboxes"]
            .as_array()
            .expect("a list")
            .len(),
        4
    );
    tcp.with_token(&["-X", "DELETE"], "/v1/sandboxes/one")
        .expect(204);
    tcp.api.get("/v1/sandboxes/one").expect(200);
}

///
#[test]
fn another_user_gets_nothing_from_the_socket() {
    if !is_root() {
        return needs_root("only root can become another user");
    }
    let api = Api::new();
    let socket = &api.server.socket;
    let mode = |path: &std::path::Path| {
        std::fs::metadata(path).expect("there").permissions().mode() & 0o777
    };
    assert_eq!(mode(socket), 0o600);
    for (path, mode) in [(api.host.ground.path(""), 0o755), (socket.clone(), 0o666)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("set");
    }
    // Neither an unknown user, nor that of bodies or nobody, nor with the group of the server.
    for (uid, gid) in [("40151", "40151"), ("1000", "1000"), ("65534", "0")] {
        let ids = ["--reuid", uid, "--regid", gid, "--clear-groups"];
        let output = Command::new("setpriv")
            .args(ids)
            .args(["curl", "-q", "-sS", "-i", "--unix-socket"])
            .arg(socket)
            .arg("http://runner/v1/sandboxes")
            .output()
            .expect("started");
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{ids:?}: {output:?}"
        );
    }
    api.get("/v1/sandboxes").expect(200);
    assert!(
        api.get("/metrics")
            .text()
            .contains("runner_serve_refused_total{why=\"peer\"} 3\n")
    );
}

/// An ordinary user's bodies have the uid of the server.
#[test]
fn a_body_that_sees_the_socket_gets_nothing() {
    let api = Api::new();
    let socket = api.server.socket.to_str().expect("a plain path");
    let words = [
        "run",
        "--socket",
        socket,
        "--",
        "curl",
        "-q",
        "-sS",
        "-i",
        "--unix-socket",
        socket,
        "http://runner/v1/sandboxes",
    ];
    let done = api.host.say(&words);
    // 52, 56: connected, and closed without an answer. As root the body has another uid, and no right to connect.
    assert!([52, 56, 7].contains(&done.code), "{done:?}");
    assert_eq!(done.stdout, "");
    api.get("/v1/sandboxes").expect(200);
}

#[test]
fn what_is_not_private_or_not_loopback_is_refused_at_the_start() {
    let host = Host::new();
    let file = |name: &str, text: &str, mode: u32| {
        let path = host.ground.write(name, text);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
        path.to_str().expect("a plain path").to_owned()
    };
    let good = file("good", TOKEN, 0o600);
    let link = host.ground.path("link");
    std::os::unix::fs::symlink(&good, &link).expect("linked");
    let link = link.to_str().expect("a plain path");
    let socket = host
        .ground
        .path("s")
        .to_str()
        .expect("a plain path")
        .to_owned();
    for (flags, expected) in [
        (vec!["--listen", "127.0.0.1:0"], "--token-file"),
        (vec!["--token-file", &good], "--listen"),
        (
            vec!["--listen", "0.0.0.0:0", "--token-file", &good],
            "expected a loopback address",
        ),
        (
            vec!["--listen", "[::]:0", "--token-file", &good],
            "expected a loopback address",
        ),
        (
            vec!["--listen", "localhost:0", "--token-file", &good],
            "invalid socket address",
        ),
        (
            vec![
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                &file("open", TOKEN, 0o644),
            ],
            "readable by nobody else",
        ),
        (
            vec![
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                &file("group", TOKEN, 0o640),
            ],
            "readable by nobody else",
        ),
        (
            vec!["--listen", "127.0.0.1:0", "--token-file", link],
            "symbolic links",
        ),
        (
            vec![
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                &file("short", "abc", 0o600),
            ],
            "openssl rand",
        ),
        (
            vec![
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                &file("two", "0123456789abcdef\nx", 0o600),
            ],
            "openssl rand",
        ),
        (
            vec!["--templates", &file("t1", TEMPLATES, 0o666)],
            "writable by nobody else",
        ),
        (
            vec!["--templates", &file("t2", "a: --rw", 0o600)],
            "expected `NAME: [FLAG, …]`",
        ),
        (
            vec!["--templates", &file("t3", "a: [--name, x]", 0o600)],
            "a: `--name`",
        ),
        (vec!["--templates", "/nowhere"], "/nowhere: No such file"),
        (vec!["--max-calls", "0"], "from 1 to 100000"),
        (vec!["--idle-timeout", "0s"], "no time"),
    ] {
        let flags = [&["--socket", &socket], &flags[..]].concat();
        let refused = said(serve(&host, &flags).output().expect("started"));
        assert_eq!(refused.code, 125, "{flags:?}: {refused:?}");
        assert!(refused.stderr.contains(expected), "{flags:?}: {refused:?}");
        assert!(!refused.stderr.contains(TOKEN));
    }
}

#[test]
fn a_live_server_is_not_replaced_and_a_dead_one_is() {
    let api = Api::new();
    let socket = api.server.socket.to_str().expect("a plain path").to_owned();
    let again = said(
        serve(&api.host, &["--socket", &socket])
            .output()
            .expect("started"),
    );
    assert_eq!(
        (again.code, again.stderr.lines().count()),
        (125, 1),
        "{again:?}"
    );
    assert!(
        again.stderr.contains("another `runner serve` listens here"),
        "{again:?}"
    );
    let Api { server, host } = api;
    server.signal(rustix::process::Signal::KILL);
    drop(server);
    assert!(
        std::path::Path::new(&socket).exists(),
        "left by the dead one"
    );
    let server = Server::start(&host, &[]);
    let mut api = Api { server, host };
    api.get("/health").expect(200);
    api.server.signal(rustix::process::Signal::TERM);
    assert_eq!(api.server.child.wait().expect("ended").code(), Some(0));
    assert!(
        !std::path::Path::new(&socket).exists(),
        "removed by one that ended"
    );
    // Neither another program's socket nor another file is removed.
    let other = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let refused = said(
        serve(&api.host, &["--socket", &socket])
            .output()
            .expect("started"),
    );
    assert!(
        refused.stderr.contains("another program listens here"),
        "{refused:?}"
    );
    drop(other);
    std::fs::remove_file(&socket).expect("removed");
    std::fs::write(&socket, "precious").expect("written");
    let refused = said(
        serve(&api.host, &["--socket", &socket])
            .output()
            .expect("started"),
    );
    assert!(refused.stderr.contains("is not a socket"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&socket).expect("read"), "precious");
    // A directory in which others may replace it.
    let open = api.host.ground.path("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).expect("set");
    let path = open.join("s").to_str().expect("a plain path").to_owned();
    let refused = said(
        serve(&api.host, &["--socket", &path])
            .output()
            .expect("started"),
    );
    assert!(
        refused.stderr.contains("only you may write to"),
        "{refused:?}"
    );
}

/// The default socket is where docs/serve.md says: in the runtime directory.
#[test]
fn the_default_socket_is_in_the_runtime_directory() {
    let host = Host::new();
    let socket = host.runtime_directory().join("api.sock");
    let child = serve(&host, &[]).spawn().expect("started");
    let runtime = host.runtime_directory();
    let server = Server {
        child,
        socket,
        runtime,
    };
    eventually("it listens", || {
        std::os::unix::net::UnixStream::connect(&server.socket).is_ok()
    });
    let api = Api { server, host };
    api.get("/v1/sandboxes").expect(200);
}

/// A client of a template gets in parts no longer time than the template has, and sets no label of the
/// server, whose name decides which template that is.
#[test]
fn the_template_limits_the_time_of_a_sandbox_whatever_its_client_moves() {
    let tcp = Tcp::new();
    let create = |name: &str, template: &str, labels: &Value| {
        tcp.create(&json!({ "name": name, "template": template, "labels": labels }))
    };
    let refused = create("one", "timed", &json!({ "runner.template": "small" }));
    assert_eq!(refused.expect(403).code(), "label_reserved");
    create("one", "timed", &json!({ "a": "b\nc", "of": "client" })).expect(201);
    create("two", "small", &json!({})).expect(201);
    let timeout = |name: &str, document: &Value| {
        let path = format!("/v1/sandboxes/{name}/timeout");
        tcp.with_token(&["-d", &document.to_string()], &path)
    };
    let described = |name: &str| {
        let path = format!("/v1/sandboxes/{name}");
        tcp.with_token(&[], &path).expect(200).json()
    };
    let labels = json!({ "a": "b\nc", "of": "template", "runner.template": "timed" });
    assert_eq!(described("one")["labels"], labels);
    let time = |name: &str| described("one")[name].as_u64().expect("a time");
    assert!(time("ends_in_ms") > 300_000);
    timeout("one", &json!({ "timeout_ms": 60_000 })).expect(204);
    assert!(time("ends_in_ms") <= 60_000);
    timeout("one", &json!({ "timeout_ms": 300_000 })).expect(204);
    assert!(time("ends_in_ms") > 60_000);
    for timeout_ms in [600_000_u64, 660_000, u64::MAX] {
        let refused = timeout("one", &json!({ "timeout_ms": timeout_ms })).expect(403);
        assert_eq!(refused.code(), "timeout");
        assert!(
            refused
                .text()
                .contains("600000 ms that the template allows")
        );
    }
    let refused = timeout("one", &json!({ "idle_timeout_ms": 5 })).expect(403);
    assert_eq!(refused.code(), "template_only");
    for bad in [
        json!({}),
        json!({ "timeout_ms": 0 }),
        json!({ "timeout_ms": -1 }),
        json!({ "timeout_ms": null }),
        json!({ "timeout_ms": 1, "x": 1 }),
    ] {
        timeout("one", &bad).expect(400);
    }
    // A template without a time limit has none.
    timeout("two", &json!({ "timeout_ms": 86_400_000_000_u64 })).expect(204);
    // One of the operator's that has the name alone is not of a template.
    tcp.api.host.create("tcp.three", &["--timeout", "1h"]);
    let refused = timeout("three", &json!({ "timeout_ms": 1 })).expect(403);
    assert_eq!(refused.code(), "no_template");
    tcp.api.host.create("mine", &["--timeout", "1h"]);
    timeout("mine", &json!({ "timeout_ms": 1 })).expect(404);
    // The owner is on the unix socket.
    let times = json!({ "timeout_ms": 7_200_000, "idle_timeout_ms": 7_200_000 });
    let reply = tcp.api.post("/v1/sandboxes/mine/timeout", &times);
    reply.expect(204);
    let mine = tcp.api.get("/v1/sandboxes/mine").expect(200).json();
    assert!(mine["ends_in_ms"].as_u64() > Some(3_600_000), "{mine}");
    assert_eq!(mine["idle_timeout_ms"], 7_200_000);
}

/// Words of labels never become flags, and other users do not read them.
#[test]
fn labels_are_no_words_of_a_command_line() {
    let api = Api::new();
    let labels = json!({ "--rw": "/etc", "-f": "x y", "a": "secret-of-a-label" });
    let document = json!({ "name": "one", "labels": labels });
    let created = api.post("/v1/sandboxes", &document).expect(201).json();
    assert_eq!(created["labels"], labels);
    let supervisor = api.host.supervisor().as_raw_nonzero();
    let words = std::fs::read(format!("/proc/{supervisor}/cmdline")).expect("readable");
    let words = String::from_utf8_lossy(&words).into_owned();
    assert!(
        words.contains("sandbox") && !words.contains("secret"),
        "{words}"
    );
    for (labels, status) in [
        (json!({ "": "x" }), 422),
        (json!({ "a=b": "x" }), 400),
        (json!({ "a": "\u{0}" }), 400),
        (json!({ "a": "x".repeat(20_000) }), 422),
        (json!({ "a": 1 }), 400),
    ] {
        let refused = api.post("/v1/sandboxes", &json!({ "name": "two", "labels": labels }));
        assert_eq!(refused.status, status, "{}", refused.text());
        assert!(
            !refused.text().contains("runner-serve"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(api.host.list().len(), 1);
}
