//! Clients that are slow, many or large.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::api::{Api, url};
use support::invariants::eventually;

fn connect(api: &Api) -> UnixStream {
    let stream = UnixStream::connect(&api.server.socket).expect("connected");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    stream
}

/// What the server answers until it closes.
fn rest(mut stream: &UnixStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => (),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => (),
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&bytes)),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// 10 seconds, all at once.
#[test]
fn clients_that_send_heads_and_documents_slowly_are_closed_and_hold_up_nobody() {
    let api = Api::new();
    let silent = connect(&api);
    let head = connect(&api);
    let document = connect(&api);
    let mut idle = connect(&api);
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
        .expect("written");
    let drip = |stream: &UnixStream, start: &str, drop: &'static [u8]| {
        let mut stream = stream.try_clone().expect("duplicated");
        stream.write_all(start.as_bytes()).expect("written");
        std::thread::spawn(move || {
            // Until the server closes.
            while stream.write_all(drop).is_ok() {
                std::thread::sleep(Duration::from_millis(200));
            }
        })
    };
    let get = "GET /health HTTP/1.1\r\nHost: r\r\n";
    let post = "POST /v1/sandboxes HTTP/1.1\r\nHost: r\r\nContent-Length: 1000\r\n\r\n{";
    let drips = [drip(&head, get, b"X: y\r\n"), drip(&document, post, b" ")];
    api.get("/health").expect(200);
    api.create("one");
    let [silent, head, document, idle] = [silent, head, document, idle].map(|stream| {
        let answer = rest(&stream);
        // Closed by the server already.
        let _closed = stream.shutdown(std::net::Shutdown::Both);
        answer
    });
    for answer in [silent, head] {
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{answer}"
        );
    }
    assert!(document.starts_with("HTTP/1.1 408"), "{document}");
    assert!(idle.starts_with("HTTP/1.1 200"), "{idle}");
    for drip in drips {
        drip.join().expect("joined");
    }
    assert_eq!(api.host.list().len(), 1);
}

///
#[test]
fn more_connections_than_allowed_wait_and_do_not_fail() {
    let api = Api::new();
    let mut held: Vec<UnixStream> = (0..256).map(|_| connect(&api)).collect();
    // The first ones are accepted by now, since this one is answered or the last.
    let mut last = held.pop().expect("one");
    last.write_all(b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
        .expect("written");
    assert!(last.read(&mut [0; 1024]).expect("an answer") > 0);
    let mut further = connect(&api);
    further
        .write_all(b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
        .expect("written");
    further
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("set");
    let early = further.read(&mut [0; 1024]);
    assert!(early.is_err(), "{early:?}");
    held.pop();
    further
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    assert!(further.read(&mut [0; 1024]).expect("an answer") > 0);
}

///
#[test]
fn heads_and_bodies_have_a_largest_size() {
    let api = Api::new();
    let mut stream = connect(&api);
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: r\r\nX: ")
        .expect("written");
    // The server may close before it has everything.
    let _written = stream.write_all(&vec![b'x'; 1 << 20]);
    let answer = rest(&stream);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let mut stream = connect(&api);
    let head = "POST /v1/sandboxes HTTP/1.1\r\nHost: r\r\nContent-Length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("written");
    assert!(rest(&stream).starts_with("HTTP/1.1 413"));
    let huge = format!("{{\"name\":\"{}\"}}", "a".repeat(2 << 20));
    for words in [&[][..], &["-H", "Transfer-Encoding: chunked"]] {
        assert_eq!(
            api.send("POST", "/v1/sandboxes", words, huge.as_bytes())
                .expect(413)
                .code(),
            "too_large"
        );
    }
    // What is not HTTP is closed.
    for text in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: \0\r\n\r\n",
    ] {
        let mut stream = connect(&api);
        stream.write_all(text.as_bytes()).expect("written");
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("shut down");
        let answer = rest(&stream);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{text:?}: {answer}"
        );
    }
    let nested = "[".repeat(500_000);
    assert_eq!(
        api.send("POST", "/v1/sandboxes", &[], nested.as_bytes())
            .expect(400)
            .code(),
        "document"
    );
    api.get("/health").expect(200);
}

///
#[test]
fn calls_beyond_the_limit_are_refused_and_health_is_not() {
    let api = Api::with(&["--max-calls", "2"]);
    api.create("one");
    let body = json!({ "argv": ["sleep", "1000"], "kill_on_disconnect": true }).to_string();
    let wait = |accept: &str| {
        let header = format!("Accept: {accept}");
        let mut curl = api.curl(&[
            "-H",
            &header,
            "-d",
            &body,
            &url("/v1/sandboxes/one/commands"),
        ]);
        curl.stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started")
    };
    let mut clients = [wait("application/json"), wait("text/event-stream")];
    eventually("both wait", || {
        api.get("/metrics")
            .text()
            .contains("\nrunner_serve_calls 2\n")
    });
    let refused = api.get("/v1/sandboxes").expect(503);
    assert_eq!(refused.code(), "too_many_calls");
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    api.get("/health").expect(200);
    for client in &mut clients {
        client.kill().expect("killed");
        client.wait().expect("waited");
    }
    eventually("there is a place again", || {
        api.get("/v1/sandboxes").status == 200
    });
}

/// Otherwise a client could leave any number of processes and pipes to the server.
#[test]
fn a_command_whose_client_has_left_counts_until_its_end() {
    let api = Api::with(&["--max-calls", "1"]);
    api.create("one");
    let body = json!({ "argv": ["sleep", "1000"] }).to_string();
    let mut curl = api.curl(&["-d", &body, &url("/v1/sandboxes/one/commands")]);
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
    client.kill().expect("killed");
    client.wait().expect("waited");
    for _ in 0..20 {
        assert_eq!(
            api.get("/v1/sandboxes").expect(503).code(),
            "too_many_calls"
        );
    }
    assert_eq!(api.host.shell("one", "pkill sleep").code, 0);
    eventually("there is a place again", || {
        api.get("/v1/sandboxes").status == 200
    });
}

///
#[test]
fn a_stop_lets_calls_end_for_a_bounded_time() {
    for (ends, timeout) in [(true, "20s"), (false, "200ms")] {
        let mut api = Api::with(&["--stop-timeout", timeout]);
        api.create("one");
        let text = "echo up; until test -e /tmp/go; do sleep 0.02; done; echo end";
        let body = json!({ "argv": ["sh", "-c", text] }).to_string();
        let mut curl = api.curl(&["-d", &body, &url("/v1/sandboxes/one/commands")]);
        let client = curl
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        eventually("it runs", || {
            api.host.list()[0]["commands"]
                .as_array()
                .is_some_and(|list| list.len() == 1)
        });
        let mut idle = connect(&api);
        idle.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set");
        idle.write_all(b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
            .expect("written");
        assert!(idle.read(&mut [0; 1024]).expect("an answer") > 0);
        api.server.signal(rustix::process::Signal::TERM);
        assert_eq!(idle.read(&mut [0; 1024]).expect("closed at once"), 0);
        eventually("no connection is accepted", || {
            UnixStream::connect(&api.server.socket).is_err() || {
                // Accepted by the kernel alone: nobody answers.
                !api.curl(&["--max-time", "1", &url("/health")])
                    .output()
                    .expect("started")
                    .status
                    .success()
            }
        });
        if ends {
            assert_eq!(api.host.shell("one", ": > /tmp/go").code, 0);
        }
        let output = client.wait_with_output().expect("waited");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.contains("up\\nend\\n"), ends, "{text}");
        assert_eq!(api.server.child.wait().expect("ended").code(), Some(0));
        assert_eq!(api.host.list().len(), 1, "sandboxes stay");
    }
}
