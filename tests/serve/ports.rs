//! Servers in sandboxes, reached through the API.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::access::{TOKEN, Tcp};
use crate::api::{Api, Reply, processes, reply, url};
use support::invariants::eventually;
use support::{has_cgroup, skip};

const SERVER: &str = include_str!("../bodies/sandboxes/server.py");
const PORT: &str = "/v1/sandboxes/one/ports/8000";

/// Starts a server in the sandbox, and waits until it listens.
pub fn serve(post: impl Fn(&str, &Value) -> Reply) {
    let commands = "/v1/sandboxes/one/commands";
    let server =
        json!({ "argv": ["python3", "-c", SERVER, "raw_http", "8000"], "background": true });
    post(commands, &server).expect(201);
    let look = json!({ "argv": ["grep", "-q", ":1F40", "/proc/net/tcp"] });
    eventually("it listens", || {
        post(commands, &look).expect(200).json()["exit_code"] == 0
    });
}

fn one() -> Api {
    let api = Api::new();
    api.create("one");
    serve(|path, document| api.post(path, document));
    api
}

fn header<'reply>(reply: &'reply Reply, name: &str) -> Vec<&'reply str> {
    let lines = reply.head.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect()
}

#[test]
fn a_request_and_its_answer_pass() {
    let api = one();
    let echoed = |method: &str, path: &str, words: &[&str], body: &[u8]| {
        let path = format!("{PORT}{path}");
        api.send(method, &path, words, body).expect(200).json()
    };
    let got = echoed("POST", "/a%2Fb/?q=%20x&y", &["-H", "X-Own: 1"], b"body");
    assert_eq!(got["line"], "POST /a%2Fb/?q=%20x&y HTTP/1.1");
    assert_eq!(got["body"], "body");
    let headers = got["headers"].to_string();
    for pair in [
        "[\"host\",\"localhost:8000\"]",
        "[\"x-own\",\"1\"]",
        "[\"connection\",\"close\"]",
    ] {
        assert!(headers.contains(pair), "{pair}: {headers}");
    }
    for method in ["PUT", "PATCH", "DELETE"] {
        let long = vec![b'x'; 200_000];
        let chunked = [
            "-H",
            "Transfer-Encoding: chunked",
            "-H",
            "Expect: 100-continue",
        ];
        let got = echoed(method, "/", &chunked, &long);
        assert_eq!(got["line"], format!("{method} / HTTP/1.1"));
        assert_eq!(got["body"].as_str().map(str::len), Some(long.len()));
    }
    let get = |path: &str| api.get(&format!("{PORT}{path}"));
    assert_eq!(get("/chunked").expect(200).text(), "hello world");
    assert_eq!(get("/closed").expect(200).text(), "until the end");
    assert_eq!(get("/continue").expect(418).text(), "hi");
    assert_eq!(get("/open").expect(200).text(), "open");
    assert_eq!(get("/none").expect(204).text(), "");
    let head = api.curl(&["-I", &url(&format!("{PORT}/x"))]);
    let head = reply(head, None).expect(200);
    assert!(
        header(&head, "content-length")[0] != "0" && head.body.is_empty(),
        "{head:?}"
    );
    // A stream arrives while it goes on, and its client may leave.
    let mut child = api
        .curl(&["-N", &url(&format!("{PORT}/events"))])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut first = [0; 9];
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut first).expect("read");
    assert_eq!(&first, b"data: 1\n\n");
    child.kill().expect("killed");
    child.wait().expect("waited");
    eventually("nobody is served", || calls(&api) == 0);
}

/// Calls in progress.
fn calls(api: &Api) -> u64 {
    let metrics = api.get("/metrics").expect(200).text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("runner_serve_calls "));
    line.and_then(|count| count.parse().ok()).expect("a number")
}

#[test]
fn an_upgraded_connection_carries_bytes_in_both_directions() {
    let api = one();
    let mut stream = UnixStream::connect(&api.server.socket).expect("connected");
    let request = format!(
        "GET {PORT}/upgrade HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("written");
    let mut read = Vec::new();
    while !read.ends_with(b"ready") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("read");
        read.extend(byte);
    }
    let head = String::from_utf8_lossy(&read).to_ascii_lowercase();
    assert!(
        head.starts_with("http/1.1 101 ") && head.contains("upgrade: echo"),
        "{head}"
    );
    let sent = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        let mut near = &stream;
        scope.spawn(move || {
            let mut back = vec![0; 1 << 20];
            near.read_exact(&mut back).expect("read");
            assert!(back.iter().all(|byte| *byte == 7));
        });
        (&stream).write_all(&sent).expect("written");
    });
    // It is a call until it ends, with the client or the sandbox.
    assert_eq!(calls(&api), 1);
    api.call("DELETE", "/v1/sandboxes/one?force=true")
        .expect(204);
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    eventually("it has ended", || calls(&api) == 0);
}

///
#[test]
fn a_hostile_server_is_told_from_an_answer_and_holds_up_nobody() {
    let api = one();
    for path in [
        "/empty", "/garbage", "/line", "/fold", "/huge", "/many", "/both", "/lengths", "/length",
        "/switch",
    ] {
        let refused = api.get(&format!("{PORT}{path}"));
        assert_eq!(
            (refused.status, refused.code()),
            (502, "bad_gateway".to_owned()),
            "{path}"
        );
    }
    for path in ["/cut", "/chunk", "/size"] {
        let output = api
            .curl(&[&url(&format!("{PORT}{path}"))])
            .output()
            .expect("curl starts");
        assert!(
            !output.status.success(),
            "{path}: the client knows that it is cut"
        );
    }
    // One that never answers, and one that never ends, while nobody reads.
    let waiting = ["/silent", "/flood"].map(|path| {
        let mut stream = UnixStream::connect(&api.server.socket).expect("connected");
        let request = format!("GET {PORT}{path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("written");
        stream
    });
    eventually("both are calls", || calls(&api) == 2);
    assert_eq!(
        api.get(&format!("{PORT}/chunked")).expect(200).text(),
        "hello world"
    );
    drop(waiting);
    eventually("they have ended", || calls(&api) == 0);
    let runtime = api.host.runtime_directory();
    eventually("nothing is left", || {
        processes(&runtime, "\0sandbox\0forward\0").is_empty()
    });
}

/// what a page or a client of this origin could take for the server's own word, and what a stranger could learn.
#[test]
fn neither_credentials_nor_words_about_the_origin_pass() {
    let tcp = Tcp::new();
    tcp.create(&json!({ "template": "small", "name": "one" }))
        .expect(201);
    serve(|path, document| tcp.with_token(&["-d", &document.to_string()], path));
    let words = [
        "-H",
        "Cookie: session=1",
        "-H",
        "X-API-Key: k",
        "-H",
        "Proxy-Authorization: Basic x",
    ];
    let got = tcp
        .with_token(&words, &format!("{PORT}/"))
        .expect(200)
        .text();
    let lower = got.to_ascii_lowercase();
    for word in [
        TOKEN,
        "authorization",
        "cookie",
        "session",
        "api-key",
        &tcp.port.to_string(),
    ] {
        assert!(!lower.contains(word), "{word}: {got}");
    }
    let answer = tcp.with_token(&[], &format!("{PORT}/origin")).expect(200);
    assert_eq!(header(&answer, "content-security-policy"), ["sandbox"]);
    assert_eq!(header(&answer, "x-kept"), ["1"]);
    for name in [
        "set-cookie",
        "clear-site-data",
        "alt-svc",
        "strict-transport-security",
        "service-worker-allowed",
        "www-authenticate",
        "keep-alive",
        "x-gone",
    ] {
        assert_eq!(header(&answer, name), [""; 0], "{name}");
    }
    // A client that follows sends its token along.
    let moved = tcp.with_token(&[], &format!("{PORT}/redirect")).expect(307);
    assert_eq!(header(&moved, "location"), [format!("{PORT}/next")]);
    let away = tcp
        .with_token(&[], &format!("{PORT}/redirect-away"))
        .expect(307);
    assert_eq!(header(&away, "location"), [""; 0]);
    // Who may not ask for a sandbox may not ask for its ports.
    tcp.call(&[], &format!("{PORT}/")).expect(401);
    let page = ["-H", "Origin: http://evil.example"];
    tcp.with_token(&page, &format!("{PORT}/")).expect(403);
    let other = ["-H", "Host: evil.example"];
    tcp.with_token(&other, &format!("{PORT}/")).expect(403);
    let hidden = tcp.api.get(&format!("{PORT}/"));
    assert_eq!(
        hidden.expect(404).code(),
        "no_sandbox",
        "it is tcp.one there"
    );
    tcp.api.host.create("one", &[]);
    tcp.with_token(&["-X", "DELETE"], "/v1/sandboxes/one?force=true")
        .expect(204);
    tcp.with_token(&[], &format!("{PORT}/")).expect(404);
}

#[test]
fn what_is_not_served_says_why() {
    let api = Api::new();
    api.create("one");
    let code = |path: &str, status: u16| api.get(path).expect(status).code();
    assert_eq!(code(&format!("{PORT}/"), 502), "no_listener");
    assert_eq!(code("/v1/sandboxes/two/ports/8000/", 404), "no_sandbox");
    for port in [
        "0",
        "65536",
        "-1",
        "x",
        "%38%30",
        "080",
        "+80",
        "80:22",
        "99999999999999999999",
    ] {
        let path = format!("/v1/sandboxes/one/ports/{port}/");
        assert_eq!(code(&path, 400), "port", "{port}");
    }
    assert_eq!(code("/v1/sandboxes/one/ports/8000", 404), "no_route");
    assert_eq!(
        api.call("TRACE", &format!("{PORT}/")).expect(405).code(),
        "method"
    );
    if !has_cgroup() {
        return skip("without a cgroup there may be no freezer");
    }
    api.call("POST", "/v1/sandboxes/one/pause").expect(204);
    assert_eq!(code(&format!("{PORT}/"), 409), "sandbox_paused");
}
