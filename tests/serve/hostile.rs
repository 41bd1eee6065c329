//! Clients of the API that try what none should: paths around the sandbox, requests of pages, sandboxes of
//! others, connections that say nothing.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::json;

use crate::access::{TOKEN, Tcp};
use crate::api::{Api, Server, curl, reply};
use support::random;

const FILES: &str = "/v1/sandboxes/one/files";

/// Each call about one path.
const CALLS: [(&str, &str); 6] = [
    ("GET", "?path="),
    ("GET", "/list?path="),
    ("GET", "/stat?path="),
    ("DELETE", "?recursive=true&path="),
    ("POST", "/move?to=/scratch/stolen&from="),
    ("POST", "/move?from=/scratch/file&to="),
];

fn one() -> Api {
    let api = Api::new();
    api.create("one");
    api
}

/// Through proc, and links in the sandbox to it.
#[test]
fn no_way_through_proc_and_links_leads_to_a_file_of_the_host() {
    let api = one();
    let canary = random();
    let secret = api.host.ground.write("precious/secret", &canary);
    let directory = secret.parent().expect("above").to_owned();
    let secret = secret.to_str().expect("a plain path");
    let links = "proc:/proc/self/root init:/proc/1/root task:/proc/1/task/1/root cwd:/proc/1/cwd \
        thread:/proc/thread-self/root fd:/proc/self/fd up:../../../../../../.. loop:loop";
    let text = format!(
        "cd /scratch; echo inside > file; for link in {links}; do ln -s ${{link#*:}} ${{link%%:*}}; done"
    );
    assert_eq!(api.shell(&text)["exit_code"], 0);
    let mut fronts = vec![
        String::new(),
        "/proc/self/root".to_owned(),
        "/proc/1/root".to_owned(),
        "/proc/thread-self/root".to_owned(),
        "/scratch/proc/scratch/init".to_owned(),
    ];
    let links = links.split_whitespace();
    fronts.extend(links.map(|link| {
        let (name, _) = link.split_once(':').expect("a name");
        format!("/scratch/{name}")
    }));
    fronts.extend((3..6).map(|fd| format!("/scratch/fd/{fd}")));
    let runtime = api.host.runtime_directory();
    let runtime = runtime.to_str().expect("a plain path");
    let assert_nothing = |what: &str, reply: &crate::api::Reply| {
        let text = reply.text();
        assert!((400..500).contains(&reply.status), "{what}: {text}");
        assert!(!text.contains(&canary), "{what}: {text}");
    };
    for front in &fronts {
        for (method, call) in CALLS {
            let path = format!("{FILES}{call}{front}{secret}");
            assert_nothing(&path, &api.call(method, &path));
        }
        // The path may be one of the sandbox, which has a /tmp of its own.
        let path = format!("{FILES}?path={front}{secret}");
        api.send("PUT", &path, &[], b"overwritten");
        api.call("DELETE", &path);
    }
    // Processes of the host, and what they have open; a process of the sandbox may read itself.
    for path in [
        "/proc/1/environ",
        "/proc/1/mem",
        "/proc/1/exe",
        "/proc/1/fd/0",
        "/proc/self/mem",
        "/proc/self/environ",
        "/proc/self/mountinfo",
        "/proc/kcore",
        "/proc/kmsg",
        "/dev/mem",
        "/dev/fd/3",
        "/dev/stdin",
        "/dev/stderr",
    ] {
        let read = api.get(&format!("{FILES}?path={path}"));
        assert!(
            read.status < 500 && !read.text().contains(runtime),
            "{path}: {}",
            read.text()
        );
    }
    for path in [
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/1/oom_score_adj",
        "/sys/fs/cgroup/cgroup.procs",
        "/dev/full",
        "/etc/passwd",
    ] {
        let put = api.send("PUT", &format!("{FILES}?path={path}"), &[], b"1");
        assert_nothing(path, &put);
    }
    let names: Vec<_> = std::fs::read_dir(&directory)
        .expect("there")
        .map(|entry| entry.expect("read").file_name())
        .collect();
    assert_eq!(names, ["secret"]);
    assert_eq!(std::fs::read_to_string(secret).expect("there"), canary);
    assert_eq!(api.shell("cat /scratch/file")["stdout"]["text"], "inside\n");
}

/// An encoding is undone once, and a path that is too long is refused.
#[test]
fn paths_that_are_long_or_encoded_twice_or_by_halves_stay_in_their_directory() {
    let api = one();
    let long = [
        format!("/scratch/{}", "x".repeat(256)),
        format!("/scratch/{}", "%ff".repeat(256)),
        format!("/{}", "x/".repeat(2047)),
        format!("/scratch{}x", "/".repeat(4086)),
        format!("/{}", "x".repeat(4095)),
        format!("/scratch/{}", "%0a".repeat(5_000)),
        format!("/scratch{}", "/.".repeat(10_000)),
    ];
    for path in &long {
        for (method, call) in CALLS {
            let refused = api.call(method, &format!("{FILES}{call}{path}"));
            let text = refused.text();
            assert!(
                (400..500).contains(&refused.status),
                "{method} {call}: {text}"
            );
        }
        let put = api.send("PUT", &format!("{FILES}?path={path}"), &[], b"x");
        // The last component may be at the limit, and its directory in the sandbox.
        assert!(put.status < 500, "{}", put.text());
    }
    api.shell("rm -rf /scratch/*");
    let names = [
        "%252e%252e%252fx",
        "%c0%ae%c0%ae%c0%afx",
        "..%5cx",
        "..;",
        "%0a..",
        "...",
        "%",
        "%f",
        "%zz",
        "%u002e%u002e",
        "%e2%80%ae",
        "%ed%a0%80",
        "%ff%fe",
    ];
    for name in names {
        let path = format!("{FILES}?path=/scratch/{name}");
        api.send("PUT", &path, &[], name.as_bytes()).expect(204);
        assert_eq!(api.get(&path).expect(200).body, name.as_bytes());
        api.get(&format!("{FILES}/stat?path=/scratch/{name}"))
            .expect(200);
    }
    let list = api.get(&format!("{FILES}/list?path=/scratch"));
    let list = list.expect(200).json();
    let entries = list["entries"].as_array().expect("a list");
    assert_eq!(entries.len(), names.len(), "{list}");
}

/// What the server answers to these bytes until it closes.
fn raw(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("set");
    stream.write_all(request.as_bytes()).expect("written");
    until_closed(&mut stream)
}

fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => (),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => (),
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&bytes)),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A page whose name resolves to the loopback address, with the token.
#[test]
fn no_other_name_of_the_loopback_address_is_served() {
    let tcp = Tcp::new();
    let port = tcp.port;
    let ask = |target: &str, headers: &str| {
        let own = format!("Authorization: Bearer {TOKEN}\r\nConnection: close\r\n");
        raw(
            port,
            &format!("GET {target} HTTP/1.1\r\n{headers}{own}\r\n"),
        )
    };
    let own = format!("Host: 127.0.0.1:{port}\r\n");
    let path = "/v1/sandboxes";
    assert!(ask(path, &own).starts_with("HTTP/1.1 200"));
    for host in [
        format!("localhost.:{port}"),
        format!("127.0.0.1.:{port}"),
        format!("127.1:{port}"),
        format!("0.0.0.0:{port}"),
        format!("2130706433:{port}"),
        format!("0x7f000001:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("::1:{port}"),
        format!("127.0.0.1:{port}@evil.example"),
        format!("127.0.0.1:{port}@evil.example:{port}"),
        format!("evil.example#127.0.0.1:{port}"),
        format!("localhost:+{port}"),
        format!("localhost:0{port}"),
        format!("localhost:{port}, evil.example:{port}"),
        format!("a.localhost:{port}"),
    ] {
        let answer = ask(path, &format!("Host: {host}\r\n"));
        assert!(
            answer.starts_with("HTTP/1.1 403") || answer.starts_with("HTTP/1.1 400"),
            "{host}: {answer}"
        );
    }
    // Without a name, with two, and with another one in the line of the request.
    let evil = format!("Host: evil.example:{port}\r\n");
    for headers in [
        String::new(),
        format!("{own}{evil}"),
        format!("{evil}{own}"),
    ] {
        let answer = ask(path, &headers);
        assert!(answer.starts_with("HTTP/1.1 403"), "{headers}: {answer}");
    }
    let answer = ask(&format!("http://evil.example:{port}{path}"), &own);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let answer = ask(&format!("http://127.0.0.1:{port}{path}"), &own);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for origin in [
        format!("http://127.0.0.1:{port}.evil.example"),
        format!("http://127.0.0.1:{port}@evil.example"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost.evil.example:{port}"),
        format!("http://127.0.0.1:{port} http://evil.example"),
        format!("http://127.0.0.1:{port}\r\nOrigin: http://evil.example"),
        "file://".to_owned(),
        String::new(),
    ] {
        let answer = ask(path, &format!("{own}Origin: {origin}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403"), "{origin}: {answer}");
    }
    // No page is told that it may read an answer.
    let origin = format!("Origin: http://localhost:{port}");
    for method in ["OPTIONS", "GET"] {
        let words = ["-X", method, "-H", &origin];
        let asks = ["-H", "Access-Control-Request-Method: POST"];
        let answer = tcp.with_token(&[&words[..], &asks].concat(), path);
        let head = answer.head.to_ascii_lowercase();
        assert!(!head.contains("access-control-"), "{head}");
    }
}

/// What is compared does not show in what is answered; the comparison takes the same time for all.
#[test]
fn no_answer_tells_how_much_of_a_token_is_right() {
    let tcp = Tcp::new();
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let mut answers = Vec::new();
    for right in [0, 1, 16, 31] {
        let wrong = format!("{}{}", &TOKEN[..right], "~".repeat(TOKEN.len() - right));
        for path in ["/v1/sandboxes", "/v1/sandboxes/none", "/v1/none"] {
            let refused = tcp.call(&["-H", &bearer(&wrong)], path).expect(401);
            let mut lines = refused.head.lines();
            let head: Vec<String> = lines
                .by_ref()
                .filter(|line| !line.to_ascii_lowercase().starts_with("date:"))
                .map(str::to_owned)
                .collect();
            answers.push((head, refused.body));
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    // Only that header has it, and once.
    let cookie = format!("Cookie: token={TOKEN}");
    let key = format!("X-API-Key: {TOKEN}");
    let wrong = bearer("0123456789abcdef0123456789abcdeg");
    for words in [
        &["-H", &cookie][..],
        &["-H", &key],
        &["-u", &format!("token:{TOKEN}")],
        &["-H", &wrong, "-H", &bearer(TOKEN)],
    ] {
        tcp.call(words, "/v1/sandboxes").expect(401);
    }
    for query in ["token", "access_token", "authorization"] {
        tcp.call(&[], &format!("/v1/sandboxes?{query}={TOKEN}"))
            .expect(401);
    }
}

/// A sandbox belongs to the kind of listener that created it.
#[test]
fn clients_of_a_listener_do_not_see_the_sandboxes_of_another_kind() {
    let tcp = Tcp::new();
    let host = &tcp.api.host;
    let file = |name: &str, text: &str| {
        let path = host.ground.write(name, text);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("set");
        path.to_str().expect("a plain path").to_owned()
    };
    let (key, templates) = (file("key", TOKEN), file("e2b.yaml", "base: [-m, 128m]\n"));
    let flags = ["--api", "e2b", "--listen", "127.0.0.1:0"];
    let files = ["--token-file", &key, "--templates", &templates];
    let e2b = Server::start_at(host, "e2b", &[&flags[..], &files].concat());
    let header = format!("X-API-Key: {TOKEN}");
    let url = format!("http://127.0.0.1:{}", e2b.chosen_port());
    let ask = |words: &[&str], path: &str| {
        let url = format!("{url}{path}");
        reply(curl(&[&["-H", &*header], words, &[&*url]].concat()), None)
    };
    let document = json!({ "templateID": "base", "timeout": 300 }).to_string();
    let json = "Content-Type: application/json";
    let made = ask(&["-H", json, "-d", &document], "/v2/sandboxes").expect(201);
    let id = made.json()["sandboxID"].as_str().expect("an id").to_owned();
    tcp.create(&json!({ "template": "small", "name": "mine" }))
        .expect(201);
    let list = tcp.with_token(&[], "/v1/sandboxes").expect(200).json();
    assert_eq!(list["sandboxes"].as_array().expect("a list").len(), 1);
    let names = [id.clone(), format!("e2b.{id}"), format!("tcp.{id}")];
    for name in &names {
        for (method, rest) in [
            ("GET", ""),
            ("DELETE", "?force=true"),
            ("POST", "/pause"),
            ("GET", "/files?path=/etc/passwd"),
        ] {
            let path = format!("/v1/sandboxes/{name}{rest}");
            let refused = tcp.with_token(&["-X", method], &path);
            assert_eq!(refused.expect(404).code(), "no_sandbox");
        }
    }
    for name in ["mine", "tcp.mine", "e2b.mine"] {
        ask(&[], &format!("/sandboxes/{name}")).expect(404);
        ask(&["-X", "DELETE"], &format!("/sandboxes/{name}")).expect(404);
    }
    assert_eq!(host.list().len(), 2);
    ask(&["-X", "DELETE"], &format!("/sandboxes/{id}")).expect(204);
}

/// For ten seconds those of their own socket, and nobody else.
#[test]
fn strangers_that_connect_and_say_nothing_hold_up_others_for_a_bounded_time() {
    let tcp = Tcp::new();
    let connect = |_| TcpStream::connect(("127.0.0.1", tcp.port)).expect("connected");
    let mut silent: Vec<TcpStream> = (0..256).map(connect).collect();
    for _ in 0..5 {
        tcp.api.get("/v1/sandboxes").expect(200);
    }
    tcp.with_token(&[], "/v1/sandboxes").expect(200);
    for stream in &mut silent {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("set");
        let answer = until_closed(stream);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{answer}"
        );
    }
    // Lengths that contradict each other would hide a request in a body.
    let head = format!("POST /health HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", tcp.port);
    for lengths in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5, 6\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
    ] {
        let hidden = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        let answer = raw(tcp.port, &format!("{head}{lengths}\r\n{hidden}"));
        assert_eq!(
            answer.matches("HTTP/1.1 ").count(),
            1,
            "{lengths}: {answer}"
        );
        assert!(answer.starts_with("HTTP/1.1 400"), "{lengths}: {answer}");
    }
    tcp.api.get("/health").expect(200);
}
