//! `/mcp` of `runner serve`: clients without rights, and clients that are slow, silent, large or many.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::api::{curl, reply};
use crate::host::Host;
use crate::http::{Server, WAYS, Way, header, initialize, message, tool_call};
use crate::sessions::{ask_for_stream, rights, send};
use support::invariants::eventually;

/// A-85: Neither a client without the token nor a page of a browser, even with the id of a session.
#[test]
fn clients_without_the_token_and_pages_of_browsers_are_refused() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &[]);
    let session = server.open(Way::Tcp);
    let call = tool_call("execute_command", &json!({"command": "touch /tmp/reached"})).to_string();
    let begin = initialize().to_string();
    let named = format!("Mcp-Session-Id: {}", session.id);
    for words in [
        &[][..],
        &[
            "-H",
            "Authorization: Bearer 0123456789abcdef0123456789abcdeg",
        ],
        &["-H", "Authorization: Bearer"],
    ] {
        for (method, body) in [
            ("POST", &*call),
            ("POST", &begin),
            ("GET", ""),
            ("DELETE", ""),
        ] {
            let mut curl = curl(words);
            curl.args([
                "-X",
                method,
                "-H",
                &named,
                "-H",
                "Accept: text/event-stream",
            ]);
            curl.args(["--data-binary", "@-"]).arg(server.url("/mcp"));
            reply(curl, Some(body.as_bytes())).expect(401);
        }
    }
    let foreign_host = format!("Host: evil.example:{}", server.port);
    for (way, header) in [
        (Way::Tcp, &*foreign_host),
        (Way::Tcp, "Host: 127.0.0.1:1"),
        (Way::Tcp, "Origin: http://evil.example"),
        (Way::Tcp, "Origin: null"),
        (Way::Unix, "Origin: http://127.0.0.1"),
    ] {
        for (id, body) in [(Some(&*session.id), &*call), (None, &*begin)] {
            server
                .post(way, id, &["-H", header], body.as_bytes())
                .expect(403);
        }
        for method in ["GET", "DELETE"] {
            let words = ["-X", method, "-H", &named, "-H", header];
            server.ask(way, "/mcp", &words, None).expect(403);
        }
    }
    assert_eq!(session.shell("test -e /tmp/reached")["exit_code"], 1);
    assert_eq!(host.list().len(), 1);
    // A page of the server's own origin would be one of its answers, none of which is a page.
    let origin = format!("Origin: http://127.0.0.1:{}", server.port);
    let answer = server.post(
        Way::Tcp,
        Some(&session.id),
        &["-H", &origin],
        call.as_bytes(),
    );
    assert_eq!(
        header(&answer.expect(200), "x-content-type-options"),
        Some("nosniff")
    );
}

/// A-85: Bodies that are too large or no message make neither a session nor a sandbox.
#[test]
fn malformed_and_huge_messages_are_refused_and_make_nothing() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &[]);
    let huge = vec![b' '; (8 << 20) + 1];
    let deep = "[".repeat(100_000);
    let twice = br#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"initialize","params":{}}"#;
    let pair = format!("[{}]", initialize());
    for way in WAYS {
        for (body, status) in [
            (&huge[..], 413..=413),
            (deep.as_bytes(), 400..=499),
            (twice, 400..=499),
            (pair.as_bytes(), 400..=499),
            (b"", 400..=499),
            (b"\xff\xfe", 400..=499),
            (br#"{"jsonrpc":"2.0","method":"initialize"}"#, 400..=599),
            (
                br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
                400..=400,
            ),
        ] {
            let answer = server.post(way, None, &[], body);
            assert!(
                status.contains(&answer.status),
                "{}\n{}",
                answer.head,
                answer.text()
            );
            assert_eq!(header(&answer, "mcp-session-id"), None);
        }
        let unread = server.ask(
            way,
            "/mcp",
            &["-H", "Content-Type: text/plain"],
            Some(b"{}"),
        );
        assert_eq!(unread.status, 406);
        for method in ["PUT", "PATCH", "OPTIONS"] {
            server.ask(way, "/mcp", &["-X", method], None).expect(405);
        }
        for method in ["GET", "DELETE"] {
            server.ask(way, "/mcp", &["-X", method], None).expect(400);
        }
    }
    eventually("no sandbox is left", || host.list().is_empty());
    // They end no session either.
    let session = server.open(Way::Tcp);
    for body in [&huge[..], deep.as_bytes(), twice, b"", b"{}"] {
        let answer = server.post(Way::Tcp, Some(&session.id), &[], body);
        assert!(answer.status >= 400, "{}", answer.head);
    }
    assert_eq!(session.shell("echo on")["stdout"], "on\n");
}

/// A version without sessions has nothing that a sandbox could belong to. A client that knows earlier ones is
/// told which.
#[test]
fn a_version_without_sessions_is_refused_and_says_which_there_are() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let refused = |method: &str, session: Option<&str>, more: &Value| {
        let mut params = more.clone();
        params["_meta"] = meta.clone();
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let method = format!("Mcp-Method: {method}");
        let name = ["-H", "Mcp-Name: execute_command"];
        let words = [
            &["-H", "MCP-Protocol-Version: 2026-07-28", "-H", &method],
            &name[..],
        ]
        .concat();
        let answer = server.post(Way::Tcp, session, &words, asked.to_string().as_bytes());
        let error = message(&answer.expect(400))["error"].clone();
        let supported = error["data"]["supported"].as_array().cloned();
        let supported = supported.unwrap_or_else(|| panic!("{error}"));
        assert!(supported.contains(&json!("2025-11-25")), "{error}");
        assert!(!supported.contains(&json!("2026-07-28")), "{error}");
    };
    let call = json!({"name": "execute_command", "arguments": {"command": "touch /tmp/reached"}});
    refused("server/discover", None, &json!({}));
    refused("tools/call", None, &call);
    assert!(host.list().is_empty());
    let session = server.open(Way::Tcp);
    refused("tools/call", Some(&session.id), &call);
    assert_eq!(session.shell("test -e /tmp/reached")["exit_code"], 1);
}

/// A-85: A body that comes slowly, streams that nobody reads, more of them than allowed, and answers that
/// nobody reads hold up no other client.
#[test]
fn slow_and_silent_clients_hold_up_nobody() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &[]);
    let (session, other) = (server.open(Way::Tcp), server.open(Way::Tcp));
    let slow = format!(
        "POST /mcp HTTP/1.1\r\n{}Content-Length: 1000\r\n\r\n{{",
        rights(&server)
    );
    let slow = send(&server, &slow);
    let mut drops = slow.get_ref().try_clone().expect("duplicated");
    let drips = std::thread::spawn(move || {
        // Until the server closes.
        while drops.write_all(b" ").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    // As many as all sessions may have together; the library closes the oldest of a session with more than 33.
    let crowd = [(); 4].map(|()| server.open(Way::Tcp));
    let mut streams = Vec::new();
    for silent in &crowd {
        for _ in 0..32 {
            let (stream, status) = ask_for_stream(&server, &silent.id, "");
            assert_eq!(status, "HTTP/1.1 200 OK");
            streams.push(stream);
        }
    }
    let (_refused, status) = ask_for_stream(&server, &session.id, "");
    assert!(status.starts_with("HTTP/1.1 503"), "{status}");
    // Escaped, each byte has six.
    let large = json!({"command": "head -c 30000 /dev/zero | tr '\\0' '\\33'"});
    let unread: Vec<BufReader<TcpStream>> = (0..8)
        .map(|_| {
            let body = tool_call("execute_command", &large).to_string();
            let head = format!(
                "POST /mcp HTTP/1.1\r\n{}Mcp-Session-Id: {}\r\nContent-Type: application/json\r\n\
                 Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
                rights(&server),
                session.id,
                body.len()
            );
            send(&server, &head)
        })
        .collect();
    for held in [&other, &session, &crowd[0]] {
        assert_eq!(held.shell("echo on")["stdout"], "on\n");
    }
    let mut answer = String::new();
    let mut slow = slow;
    slow.read_line(&mut answer).expect("read");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    drop(slow);
    drips.join().expect("joined");
    drop(unread);
    // A stream that its client has closed gives its place back.
    drop(streams);
    eventually("there are places again", || {
        let (_stream, status) = ask_for_stream(&server, &session.id, "");
        status == "HTTP/1.1 200 OK"
    });
}

/// A-85: A client that leaves gives the place of its call back when the call has ended, not before.
#[test]
fn a_call_keeps_its_place_when_its_client_leaves() {
    let host = Host::new();
    let server = Server::start(&host, "[]", &["--max-calls", "1"]);
    let session = server.open(Way::Tcp);
    let text = "echo up; until test -e /tmp/go; do sleep 0.02; done";
    let body = tool_call("execute_command", &json!({"command": text})).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\n{}Mcp-Session-Id: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        rights(&server),
        session.id,
        body.len()
    );
    let mut stream = send(&server, &head);
    let mut line = String::new();
    stream.read_line(&mut line).expect("read");
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    eventually("it runs", || host.list()[0]["commands"] != json!([]));
    // The server has seen that it left when it has closed its half, too.
    let _closed = stream.get_ref().shutdown(std::net::Shutdown::Write);
    let mut rest = Vec::new();
    let _ended = stream.read_to_end(&mut rest);
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    session.send(&ping).expect(503);
    let name = host.list()[0]["name"].as_str().expect("a name").to_owned();
    assert_eq!(host.shell(&name, "touch /tmp/go").code, 0);
    eventually("it has ended", || session.send(&ping).status == 200);
}
