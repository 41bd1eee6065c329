//! Requests that are refused while their clients send them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use crate::access::{TOKEN, Tcp};
use crate::api::{curl, run, url};

const BODY: &str = "Content-Length: 102400";

const CALLS: [(&str, &str, &str); 5] = [
    ("POST /nothing", BODY, "404"),
    ("POST /v1/nothing", "Transfer-Encoding: chunked", "404"),
    ("PATCH /v1/sandboxes", BODY, "405"),
    ("PUT /v1/sandboxes/one/files?path=x", BODY, "400"),
    ("POST /v1/sandboxes", "Content-Length: 99999999999", "413"),
];

trait Stream: Read + Write {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// A connection to the unix socket or to the port, which does not wait for ever.
fn connect(tcp: &Tcp, is_tcp: bool) -> Box<dyn Stream> {
    let time = Some(Duration::from_secs(60));
    if is_tcp {
        let stream = TcpStream::connect(("127.0.0.1", tcp.port)).expect("connected");
        stream.set_read_timeout(time).expect("set");
        stream.set_write_timeout(time).expect("set");
        Box::new(stream)
    } else {
        let stream = UnixStream::connect(&tcp.api.server.socket).expect("connected");
        stream.set_read_timeout(time).expect("set");
        stream.set_write_timeout(time).expect("set");
        Box::new(stream)
    }
}

fn head(tcp: &Tcp, call: &str, token: &str, body: &str) -> String {
    let port = tcp.port;
    format!(
        "{call} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n{body}\r\n\r\n"
    )
}

/// Calls on both sockets that are refused, with their statuses.
fn refused(tcp: &Tcp) -> Vec<(bool, String, &'static str)> {
    let mut calls = vec![(true, head(tcp, "POST /v1/sandboxes", "wrong", BODY), "401")];
    for (call, body, status) in CALLS {
        let head = head(tcp, call, TOKEN, body);
        calls.extend([(false, head.clone(), status), (true, head, status)]);
    }
    calls
}

/// The server has answered before the body is sent.
#[test]
fn a_client_may_send_its_body_after_the_answer() {
    let tcp = Tcp::new();
    for (is_tcp, head, status) in refused(&tcp) {
        let mut stream = connect(&tcp, is_tcp);
        stream.write_all(head.as_bytes()).expect("written");
        // Up to the end that the server announces.
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let start = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&start), "{head}{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(answer.ends_with("}\n"), "{answer}");
        for _ in 0..100 {
            stream.write_all(&[b'x'; 1024]).expect("read by the server");
        }
    }
}

/// With `--max-file` as the limit.
#[test]
fn a_client_that_sends_a_refused_request_without_end_is_cut() {
    let tcp = Tcp::with(&["--max-file", "1m"]);
    for is_tcp in [false, true] {
        let mut stream = connect(&tcp, is_tcp);
        let head = head(&tcp, "POST /nothing", TOKEN, "Content-Length: 99999999999");
        stream.write_all(head.as_bytes()).expect("written");
        let mut sent = 0;
        while stream.write_all(&[b'x'; 1 << 16]).is_ok() {
            sent += 1 << 16;
            // Buffers of the kernel take some MiB.
            assert!(sent < 1 << 28, "it reads without end");
        }
        assert!(sent >= 1 << 20, "{sent}");
    }
    tcp.call(&[], "/health").expect(200);
}

#[test]
fn curl_gets_the_answer_to_a_refused_upload() {
    let tcp = Tcp::new();
    let body = vec![b'x'; 100 << 10];
    let put = |curl: &mut Command| {
        curl.args([
            "-T",
            "-",
            "-H",
            "Expect:",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ]);
        let output = run(curl, Some(&body));
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), status)
    };
    let path = "/v1/sandboxes/none/files?path=x";
    let over_tcp = format!("http://127.0.0.1:{}{path}", tcp.port);
    for _ in 0..10 {
        let mut unix = tcp.api.curl(&[&url(path)]);
        assert_eq!(put(&mut unix), (Some(0), "400".to_owned()));
        assert_eq!(put(&mut curl(&[&over_tcp])), (Some(0), "401".to_owned()));
    }
}
