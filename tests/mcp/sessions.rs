//! `/mcp` of `runner serve`: sessions and their sandboxes, and who reaches them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::host::Host;
use crate::http::{Server, Session, TOKEN, WAYS, Way, header, initialize, message, tool_call};
use support::invariants::eventually;

/// Names of the sandboxes.
fn names(host: &Host) -> Vec<String> {
    let names = host.list().into_iter();
    let names = names.map(|sandbox| sandbox["name"].as_str().expect("a name").to_owned());
    names.collect()
}

/// A-84: Neither by the files of both, nor by ids, nor by the names of sandboxes.
#[test]
fn sessions_have_sandboxes_of_their_own_which_end_with_them() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &[]);
    for way in WAYS {
        let (one, two) = (server.open(way), server.open(way));
        assert_ne!(one.id, two.id);
        one.shell("echo one > /tmp/file");
        assert_eq!(two.shell("cat /tmp/file")["exit_code"], 1);
        assert_eq!(one.shell("cat /tmp/file")["stdout"], "one\n");
        assert_eq!(host.list().len(), 2);
        // Gone when it is answered, also while a command runs.
        two.call(
            "execute_command",
            &json!({"command": "sleep 1000", "background": true}),
        );
        two.method("DELETE", &[]).expect(204);
        assert_eq!(host.list().len(), 1);
        two.send(&tool_call("list_files", &json!({}))).expect(404);
        two.method("GET", &["-H", "Accept: text/event-stream"])
            .expect(404);
        two.method("DELETE", &[]).expect(404);
        assert_eq!(one.shell("cat /tmp/file")["stdout"], "one\n");
        one.method("DELETE", &[]).expect(204);
        host.assert_empty();
    }
}

/// A-84: A session belongs to the way that it was begun by, and ids tell nothing about others.
#[test]
fn nobody_reaches_the_session_of_another() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &[]);
    let (unix, tcp) = (server.open(Way::Unix), server.open(Way::Tcp));
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}).to_string();
    let ping = |way, id: &str| server.post(way, Some(id), &[], ping.as_bytes());
    ping(Way::Unix, &unix.id).expect(200);
    ping(Way::Tcp, &tcp.id).expect(200);
    let [sandbox, other] = &names(&host)[..] else {
        panic!("not two sandboxes");
    };
    let upper = tcp.id.to_uppercase();
    let cut = &tcp.id[1..];
    for (way, id) in [
        (Way::Tcp, &*unix.id),
        (Way::Unix, &tcp.id),
        (Way::Tcp, &upper),
        (Way::Tcp, cut),
        (Way::Tcp, "00000000-0000-4000-8000-000000000000"),
        (Way::Tcp, "1"),
        (Way::Tcp, "../.."),
        (Way::Tcp, sandbox),
        (Way::Tcp, other),
    ] {
        let answer = ping(way, id).expect(404);
        assert_eq!(answer.code(), "no_session");
        assert!(!answer.text().contains(id), "{}", answer.text());
    }
    // The first of two would be one of ours.
    let second = format!("Mcp-Session-Id: {}", unix.id);
    let two = server.post(Way::Tcp, Some(&tcp.id), &["-H", &second], b"{}");
    assert_eq!(two.expect(400).code(), "session");
    // A client with the token sees the sandboxes of sessions in no other call either.
    let listed = server.ask(Way::Tcp, "/v1/sandboxes", &[], None).expect(200);
    assert_eq!(listed.json(), json!({"sandboxes": [], "unresponsive": []}));
    for name in [sandbox, other] {
        let path = format!("/v1/sandboxes/{name}");
        server.ask(Way::Tcp, &path, &[], None).expect(404);
        server
            .ask(Way::Tcp, &path, &["-X", "DELETE"], None)
            .expect(404);
        server.ask(Way::Unix, &path, &[], None).expect(200);
    }
    for session in [unix, tcp] {
        session.method("DELETE", &[]).expect(204);
    }
    host.assert_empty();
}

/// A-84: The template decides; what a call says more is refused.
#[test]
fn calls_have_the_flags_of_the_template_and_no_others() {
    let host = Host::new();
    let server = Server::start(&host, "[-m, 64m, --ro, .]", &[]);
    let session = server.open(Way::Tcp);
    let list = host.list();
    let words = |sandbox: &Value| {
        sandbox["name"]
            .as_str()
            .map(|name| name.starts_with("mcp."))
    };
    assert_eq!(list.iter().map(words).collect::<Vec<_>>(), [Some(true)]);
    let arguments =
        json!({"command": "true", "rw": "/", "template": "other", "flags": ["--rw", "/"]});
    let refused = session.call("execute_command", &arguments);
    let said = refused["content"][0]["text"].as_str().expect("text");
    assert!(said.contains("unknown field"), "{said}");
    for text in ["touch file", "unshare -U true", "ls /root/.ssh"] {
        assert_ne!(session.shell(text)["exit_code"], 0, "{text}");
    }
    let denied = session.call("explain_denial", &json!({"host": "example.com"}));
    assert_eq!(denied["structuredContent"]["answer"]["verdict"], "denied");
    let written =
        json!({"path": format!("{}", host.ground.workspace().display()), "operation": "write"});
    let denied = session.call("explain_denial", &written);
    assert_eq!(denied["structuredContent"]["answer"]["verdict"], "denied");
    // No such tool: it would run what the operator has not offered.
    let bundle = message(&session.send(&tool_call("run_bundle", &json!({"bundle": "a"}))));
    assert!(bundle["error"].is_object(), "{bundle}");
    session.method("DELETE", &[]).expect(204);
}

#[test]
fn it_is_off_unless_the_operator_chooses_a_template() {
    let host = Host::new();
    let server = Server::start_plain(&host, "api.sock", &[]);
    for way in WAYS {
        let body = initialize().to_string();
        let answer = server.post(way, None, &[], body.as_bytes()).expect(404);
        assert_eq!(answer.code(), "no_route");
    }
    drop(server);
    let templates = host.ground.write("templates.yaml", "agent: []\n");
    let templates = templates.to_str().expect("a plain path");
    let socket = host.ground.path("other.sock");
    let socket = socket.to_str().expect("a plain path");
    for (flags, problem) in [
        (&["--mcp", "agent"][..], "--templates"),
        (
            &["--mcp", "none", "--templates", templates],
            "no such template",
        ),
        (&["--templates", templates, "--mcp"], "a value is required"),
    ] {
        let said = host.say(&[&["serve", "--socket", socket], flags].concat());
        assert_eq!(said.code, 125, "{said:?}");
        assert!(said.stderr.contains(problem), "{said:?}");
    }
    host.assert_empty();
}

/// A-84: A server that ends leaves none, and ends the calls that outlast --stop-timeout.
#[test]
fn a_server_that_ends_removes_all_sandboxes() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &["--stop-timeout", "100ms"]);
    let sessions = [
        server.open(Way::Unix),
        server.open(Way::Tcp),
        server.open(Way::Tcp),
    ];
    let (stream, status) = ask_for_stream(&server, &sessions[1].id, "");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let command = json!({"command": "sleep 1000", "background": true});
    sessions[0].call("execute_command", &command);
    let id = sessions[2].id.clone();
    let waits = tool_call("execute_command", &json!({"command": "sleep 1000"}));
    send_and_leave(&server, &id, &waits);
    eventually("the command runs", || {
        let list = host.list();
        list.iter()
            .filter(|sandbox| sandbox["commands"] != json!([]))
            .count()
            == 2
    });
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
    host.assert_empty();
    drop(stream);
}

/// A-84: The next server at the same socket removes what a killed one has left, and nothing else: not the
/// sandboxes of a server at another socket, nor those of `runner sandbox create`.
#[test]
fn the_next_server_removes_the_sandboxes_of_a_killed_one() {
    let host = Host::new();
    host.create("mcp.own", &[]);
    let silent = host.supervisor();
    let other = Server::start_at(&host, "other.sock", "[]", &[]);
    let kept = other.open(Way::Tcp);
    kept.shell("echo kept > /tmp/file");
    let server = Server::start(&host, "[]", &[]);
    let lost = server.open(Way::Tcp);
    lost.call(
        "execute_command",
        &json!({"command": "sleep 1000", "background": true}),
    );
    server.open(Way::Unix);
    let before = names(&host);
    assert_eq!(before.len(), 4, "{before:?}");
    let lost = lost.id.clone();
    server.signal(Signal::KILL);
    assert_eq!(server.wait(), None);
    assert_eq!(names(&host).len(), 4);
    // A supervisor that does not answer holds up nothing.
    kill_process(silent, Signal::STOP).expect("stopped");
    let next = Server::start(&host, "[]", &[]);
    kill_process(silent, Signal::CONT).expect("continued");
    assert_eq!(names(&host).len(), 2);
    assert_eq!(kept.shell("cat /tmp/file")["stdout"], "kept\n");
    // As the protocol says, a client then begins a new session.
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}).to_string();
    next.post(Way::Tcp, Some(&lost), &[], ping.as_bytes())
        .expect(404);
    next.open(Way::Tcp).shell("true");
    for server in [other, next] {
        server.signal(Signal::TERM);
        assert_eq!(server.wait(), Some(0));
    }
    assert_eq!(names(&host), ["mcp.own"]);
}

/// A-76: Also while the supervisor of another sandbox does not answer.
#[test]
fn a_session_ends_with_its_sandbox() {
    let host = Host::new();
    // Longer than a loaded host needs to answer to `initialize`.
    let server = Server::start(&host, "[--idle-timeout, 4s]", &[]);
    host.create("silent", &[]);
    let silent = host.supervisor();
    kill_process(silent, Signal::STOP).expect("stopped");
    let (idle, listening) = (server.open(Way::Unix), server.open(Way::Tcp));
    let mut stream = read_stream(&listening);
    eventually("the sandboxes have ended", || {
        host.files("sandboxes").len() == 1
    });
    let after = idle.send(&tool_call("execute_command", &json!({"command": "true"})));
    // If it has not been noticed yet.
    if after.status == 200 {
        assert!(after.text().contains("has ended"), "{}", after.text());
    }
    // Within ten seconds: as long as `eventually` waits.
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let until = Instant::now() + Duration::from_secs(60);
    for session in [&idle, &listening] {
        while session.send(&ping).status != 404 {
            assert!(Instant::now() < until, "the session goes on");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // Its stream ends with it.
    assert!(stream.wait().expect("waited").success());
    kill_process(silent, Signal::CONT).expect("continued");
    assert_eq!(names(&host), ["silent"]);
}

#[test]
fn sessions_count_as_sandboxes() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &["--max-sandboxes", "2"]);
    host.create("one", &[]);
    let session = server.open(Way::Tcp);
    let begin = || {
        let body = initialize().to_string();
        server.post(Way::Tcp, None, &[], body.as_bytes())
    };
    let refused = begin().expect(429);
    assert_eq!(refused.code(), "too_many_sandboxes");
    assert!(header(&refused, "retry-after").is_some());
    session.method("DELETE", &[]).expect(204);
    let id = header(&begin().expect(200), "mcp-session-id")
        .expect("an id")
        .to_owned();
    assert_ne!(id, session.id);
}

#[test]
fn the_memory_of_sessions_counts_in_the_total() {
    let host = Host::new();
    let server = Server::start(&host, "[-m, 300m]", &["--max-memory", "500m"]);
    let session = server.open(Way::Tcp);
    let begin = || {
        let body = initialize().to_string();
        server.post(Way::Tcp, None, &[], body.as_bytes())
    };
    assert_eq!(begin().expect(429).code(), "too_much_memory");
    session.method("DELETE", &[]).expect(204);
    begin().expect(200);
}

/// The template is wrong only when it is used.
#[test]
fn a_sandbox_that_cannot_be_created_is_told_to_the_client() {
    let host = Host::new();
    let server = Server::start(&host, "[--bogus]", &[]);
    let body = initialize().to_string();
    let refused = server.post(Way::Tcp, None, &[], body.as_bytes());
    assert!(refused.status >= 400, "{}", refused.head);
    assert!(refused.text().contains("--bogus"), "{}", refused.text());
    host.assert_empty();
}

/// A client whose connection broke gets the answer of a call that has not ended.
#[test]
fn a_cut_stream_is_resumed() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &[]);
    let session = server.open(Way::Tcp);
    let text = "until test -e /tmp/go; do sleep 0.02; done; echo on";
    let cut = send_and_leave(
        &server,
        &session.id,
        &tool_call("execute_command", &json!({"command": text})),
    );
    let (stream, status) =
        ask_for_stream(&server, &session.id, &format!("Last-Event-ID: {cut}\r\n"));
    assert_eq!(status, "HTTP/1.1 200 OK");
    session.shell("touch /tmp/go");
    let mut lines = stream.lines().map(|line| line.expect("read"));
    let answer = lines.find(|line| line.contains("structuredContent"));
    assert!(answer.is_some_and(|answer| answer.contains(r#""stdout":"on\n""#)));
}

/// Sends a call over TCP, and closes the connection when the first event has come. Returns its id.
fn send_and_leave(server: &Server, session: &str, call: &Value) -> String {
    let body = call.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\n{}Mcp-Session-Id: {session}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        rights(server),
        body.len()
    );
    let lines = send(server, &head).lines();
    let mut ids =
        lines.filter_map(|line| Some(line.expect("read").strip_prefix("id: ")?.to_owned()));
    ids.next().expect("an event")
}

/// The headers of a client that may.
pub fn rights(server: &Server) -> String {
    format!(
        "Host: 127.0.0.1:{}\r\nAuthorization: Bearer {TOKEN}\r\n",
        server.port
    )
}

/// Sends bytes over TCP; returns the connection.
pub fn send(server: &Server, bytes: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    let patience = Duration::from_secs(60);
    stream.set_read_timeout(Some(patience)).expect("set");
    stream.write_all(bytes.as_bytes()).expect("written");
    BufReader::new(stream)
}

/// Asks for the stream of a session over TCP. Returns it unread, and its status.
pub fn ask_for_stream(
    server: &Server,
    session: &str,
    headers: &str,
) -> (BufReader<TcpStream>, String) {
    let head = format!(
        "GET /mcp HTTP/1.1\r\n{}Mcp-Session-Id: {session}\r\nAccept: text/event-stream\r\n{headers}\r\n",
        rights(server)
    );
    let mut stream = send(server, &head);
    let mut line = String::new();
    stream.read_line(&mut line).expect("read");
    (stream, line.trim_end().to_owned())
}

/// A stream that curl reads to its end.
fn read_stream(session: &Session<'_>) -> std::process::Child {
    let mut curl = session.server.curl(session.way, &["-N", "-o", "/dev/null"]);
    curl.args(["-H", "Accept: text/event-stream", "-H"]);
    curl.arg(format!("Mcp-Session-Id: {}", session.id));
    curl.arg(session.server.url("/mcp"))
        .spawn()
        .expect("started")
}
