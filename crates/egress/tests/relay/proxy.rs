//! The compatibility proxy: the same decisions as for other connections, and an answer with the reason.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use crate::ground::{Ground, Plan, ask, connect, enter, exchange, hello, is_reset};

fn plan() -> Plan {
    Plan {
        allowed: vec![
            "api.openai.com",
            "db.example:9000",
            "*.anthropic.com",
            "93.184.216.35",
        ],
        hosts: "93.184.216.34 api.openai.com\n10.1.2.3 a.anthropic.com\n93.184.216.34 db.example",
        ..Plan::default()
    }
}

/// Sends bytes to the proxy; returns its answer up to the end.
fn say(text: &str) -> String {
    let mut stream = connect("127.0.0.1:3");
    stream.write_all(text.as_bytes()).expect("written");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an orderly end");
    String::from_utf8(all).expect("text")
}

/// CONNECT: returns the status, and the stream after it.
fn tunnel(target: &str) -> (String, TcpStream) {
    let mut stream = connect("[::1]:3");
    write!(
        stream,
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
    )
    .expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
    (String::from_utf8_lossy(&head[9..12]).into_owned(), stream)
}

/// SOCKS5: returns the code of the reply, and the stream after it.
fn socks(kind: u8, address: &[u8], port: u16) -> (u8, TcpStream) {
    let mut stream = connect("127.0.0.1:3");
    stream.write_all(&[5, 1, 0]).expect("written");
    let mut method = [0; 2];
    stream.read_exact(&mut method).expect("a method");
    assert_eq!(method, [5, 0]);
    let request = [&[5, 1, 0, kind][..], address, &port.to_be_bytes()].concat();
    stream.write_all(&request).expect("written");
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).expect("a reply");
    (reply[1], stream)
}

fn named(name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).expect("short");
    [&[length], name.as_bytes()].concat()
}

#[test]
fn connect_requests_are_decided_by_name_port_and_first_bytes() {
    if !enter("proxy::connect_requests_are_decided_by_name_port_and_first_bytes") {
        return;
    }
    let mut ground = Ground::new(plan());
    ground.act(|| {
        let (status, mut stream) = tunnel("api.openai.com:8080");
        assert_eq!(
            (status.as_str(), exchange(&mut stream, b"raw")),
            ("200", b"raw".to_vec())
        );
        let (status, mut stream) = tunnel("api.openai.com:443");
        let hello_bytes = hello(&["api.openai.com"], false);
        assert_eq!(status, "200");
        assert!(exchange(&mut stream, &hello_bytes) == hello_bytes);
        let (status, mut stream) = tunnel("api.openai.com:443");
        assert_eq!(status, "200");
        stream
            .write_all(&hello(&["evil.com"], false))
            .expect("written");
        assert!(is_reset(&mut stream));
        let (status, mut stream) = tunnel("api.openai.com:80");
        assert_eq!(status, "200");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n")
            .expect("written");
        assert!(is_reset(&mut stream));
        for (target, status) in [
            ("evil.com:443", "403"),
            ("db.example:443", "403"),
            ("8.8.8.8:443", "403"),
            ("[2001:4860::8888]:443", "403"),
            ("[::ffff:8.8.8.8]:443", "403"),
            ("a.anthropic.com:8080", "403"),
            ("127.0.0.1:8080", "403"),
            ("db.example:9000", "502"),
        ] {
            let (found, mut stream) = tunnel(target);
            assert_eq!(found, status, "{target}");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an orderly end");
            if target == "evil.com:443" {
                assert!(text.contains("--allow-net evil.com:443"), "{text}");
            }
        }
        // The synthetic address of a DNS answer stands for the name.
        let address = ask("api.openai.com").1.expect("an address");
        assert_eq!(tunnel(&format!("{address}:8080")).0, "200");
        assert_eq!(tunnel("93.184.216.35:8080").0, "200");
        // Data after the request is forwarded.
        let mut early = connect("127.0.0.1:3");
        early
            .write_all(b"CONNECT api.openai.com:8080 HTTP/1.1\r\n\r\nearly")
            .expect("written");
        early.shutdown(Shutdown::Write).expect("shut down");
        let mut all = String::new();
        early.read_to_string(&mut all).expect("an orderly end");
        assert!(
            all.starts_with("HTTP/1.1 200 ") && all.ends_with("\r\n\r\nearly"),
            "{all}"
        );
    });
    let dialled = ground.outside.dialled();
    assert!(
        dialled.iter().all(|to| !to.starts_with("10.")),
        "{dialled:?}"
    );
    let outcome = ground.finish();
    assert_eq!(
        crate::ground::shown(&outcome),
        [
            "tcp api.openai.com:443 sni-mismatch x1",
            "tcp api.openai.com:80 host-mismatch x1",
            "tcp evil.com:443 name-not-allowed x1",
            "tcp db.example:443 port-not-allowed x1",
            "tcp 8.8.8.8:443 ip-literal x2",
            "tcp 2001:4860::8888:443 ip-literal x1",
            "tcp a.anthropic.com:8080 resolves-to-private x1",
            "tcp 127.0.0.1:8080 ip-literal x1",
        ]
    );
    assert_eq!(outcome.report.unreachable.len(), 1);
}

#[test]
fn socks_connects_by_name_and_address_and_nothing_else() {
    if !enter("proxy::socks_connects_by_name_and_address_and_nothing_else") {
        return;
    }
    let mut ground = Ground::new(plan());
    ground.act(|| {
        let v6: std::net::Ipv6Addr = "2001:4860::8888".parse().expect("one");
        let (code, mut stream) = socks(3, &named("API.openai.com"), 8080);
        assert_eq!((code, exchange(&mut stream, b"raw")), (0, b"raw".to_vec()));
        assert_eq!(socks(1, &[93, 184, 216, 35], 8080).0, 0);
        let synthetic = ask("api.openai.com").1.expect("an address");
        assert_eq!(socks(1, &synthetic.octets(), 8080).0, 0);
        for (kind, address, port, code) in [
            (3, named("evil.com"), 443, 2),
            (3, named("api.openai.com\0.evil.com"), 443, 2),
            (3, named("api.openai.com "), 443, 2),
            (3, named("127.1"), 443, 2),
            (3, named("8.8.8.8"), 443, 2),
            (1, vec![8, 8, 8, 8], 443, 2),
            (4, v6.octets().to_vec(), 443, 2),
            (3, named("db.example"), 443, 2),
            (3, named("db.example"), 9000, 4),
        ] {
            assert_eq!(socks(kind, &address, port).0, code, "{address:?}");
        }
        let mut bind = connect("127.0.0.1:3");
        bind.write_all(&[5, 1, 0, 5, 2, 0, 1, 8, 8, 8, 8, 1, 187])
            .expect("written");
        let mut all = Vec::new();
        bind.read_to_end(&mut all).expect("an orderly end");
        assert_eq!(all, [5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]);
        let mut password = connect("127.0.0.1:3");
        password.write_all(&[5, 1, 2]).expect("written");
        let mut all = Vec::new();
        password.read_to_end(&mut all).expect("an orderly end");
        assert_eq!(all, [5, 0xff]);
        let (code, mut stream) = socks(3, &named("api.openai.com"), 443);
        assert_eq!(code, 0);
        stream.write_all(b"raw").expect("written");
        assert!(is_reset(&mut stream));
    });
    assert_eq!(
        ground.denials(),
        [
            "tcp evil.com:443 name-not-allowed x1",
            "tcp api.openai.com\\x00.evil.com:443 name-not-allowed x1",
            "tcp api.openai.com :443 name-not-allowed x1",
            "tcp 127.1:443 name-not-allowed x1",
            "tcp 8.8.8.8:443 ip-literal x2",
            "tcp 2001:4860::8888:443 ip-literal x1",
            "tcp db.example:443 port-not-allowed x1",
            "tcp api.openai.com:443 not-tls x1",
        ]
    );
}

#[test]
fn one_request_is_forwarded_and_an_ambiguous_one_is_refused() {
    if !enter("proxy::one_request_is_forwarded_and_an_ambiguous_one_is_refused") {
        return;
    }
    let mut ground = Ground::new(Plan {
        hosts: "93.184.216.34 api.openai.com db.example",
        ..Plan::default()
    });
    // Returns the request, and waits for its end.
    ground.outside.serve_with(9000, |mut stream| {
        let mut request = vec![0; 4_096];
        let mut read = 0;
        while !request[..read].ends_with(b"12345") {
            read += stream.read(&mut request[read..]).expect("read");
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            .expect("written");
        stream.write_all(&request[..read]).expect("written");
    });
    ground.act(|| {
        let answer = say(
            "POST http://db.example:9000/a?b HTTP/1.1\r\nHost: db.example:9000\r\n\
             Proxy-Connection: keep-alive\r\nContent-Length: 5\r\n\r\n12345\
             GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
        );
        assert_eq!(
            answer,
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nPOST /a?b HTTP/1.1\r\n\
             Host: db.example:9000\r\nContent-Length: 5\r\nConnection: close\r\n\r\n12345"
        );
        for (text, status) in [
            ("GET http://evil.com/ HTTP/1.1|Host: evil.com||", "403"),
            ("GET http://db.example/ HTTP/1.1|Host: db.example||", "403"),
            (
                "GET http://api.openai.com:443/ HTTP/1.1|Host: api.openai.com:443||",
                "403",
            ),
            (
                "GET http://api.openai.com/ HTTP/1.1|Host: evil.com||",
                "400",
            ),
            ("GET / HTTP/1.1|Host: api.openai.com||", "400"),
            (
                "GET http://api.openai.com/ x HTTP/1.1|Host: api.openai.com||",
                "400",
            ),
            (
                "POST http://api.openai.com/ HTTP/1.1|Host: api.openai.com|Content-Length: 1|\
                 Content-Length: 2||",
                "400",
            ),
            (
                "POST http://api.openai.com/ HTTP/1.1|Host: api.openai.com|Content-Length: 1|\
                 Transfer-Encoding: chunked||",
                "400",
            ),
            (
                "POST http://api.openai.com/ HTTP/1.1|Host: api.openai.com|\
                 Transfer-Encoding: chunked||",
                "501",
            ),
            ("GARBAGE||", "400"),
        ] {
            let answer = say(&text.replace('|', "\r\n"));
            assert_eq!(&answer[9..12], status, "{text}");
        }
        let long = format!("GET http://a.com/{} HTTP/1.1\r\n", "a".repeat(20_000));
        assert_eq!(&say(&long)[9..12], "431");
    });
    assert_eq!(
        ground.denials(),
        [
            "tcp evil.com:80 name-not-allowed x1",
            "tcp db.example:80 port-not-allowed x1",
            "tcp api.openai.com:443 not-tls x1"
        ]
    );
}

#[test]
fn names_in_proxy_requests_count_under_their_wildcard() {
    if !enter("proxy::names_in_proxy_requests_count_under_their_wildcard") {
        return;
    }
    let mut ground = Ground::new(plan());
    let codes = ground.act(|| {
        let codes = (0..80).map(|number| tunnel(&format!("n{number}.anthropic.com:8080")).0);
        codes.collect::<Vec<String>>()
    });
    // The names do not exist outside; those beyond the limit are not looked up.
    assert_eq!(codes.iter().filter(|code| *code == "502").count(), 64);
    assert_eq!(codes.iter().filter(|code| *code == "403").count(), 16);
    assert_eq!(ground.denials(), ["tcp *.anthropic.com:8080 limit x16"]);
}
