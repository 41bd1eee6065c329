//! TCP connections of the server send each piece at once (TCP_NODELAY).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;
use support::tcp::connections_send_at_once;

use crate::access::{TOKEN, Tcp};
use crate::ports;

/// A connection that has sent this, and has got an answer that ends so.
fn ask(tcp: &Tcp, call: &str, headers: &str, end: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", tcp.port)).expect("connected");
    let port = tcp.port;
    let request = format!(
        "{call} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("written");
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("read");
        read.extend(byte);
    }
    stream
}

/// A small event that follows another would wait for its acknowledgement otherwise.
#[test]
fn connections_of_clients_and_to_ports_of_sandboxes_send_at_once() {
    let tcp = Tcp::new();
    tcp.create(&json!({ "template": "small", "name": "one" }))
        .expect(201);
    ports::serve(|path, document| tcp.with_token(&["-d", &document.to_string()], path));
    let idle = ask(&tcp, "GET /health", "", "}\n");
    let upgrade = "Connection: Upgrade\r\nUpgrade: echo\r\n";
    let path = "GET /v1/sandboxes/one/ports/8000/upgrade";
    let upgraded = ask(&tcp, path, upgrade, "ready");
    assert_eq!(
        connections_send_at_once(tcp.api.server.pid()),
        [true; 3],
        "two of clients, one to the port"
    );
    drop((idle, upgraded));
}
