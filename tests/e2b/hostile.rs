//! Clients that have no key, another's key, or send what no SDK sends.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::api::{is_on_a_command_line, serve};
use crate::host::{Host, said};
use crate::service::{Access, KEY, Service, frame, messages};
use support::invariants::eventually;
use support::random;

fn start(command: &str) -> Vec<u8> {
    let process = json!({"cmd": "/bin/sh", "args": ["-c", command]});
    frame(&json!({"process": process, "stdin": false}))
}

///
#[test]
fn without_the_key_there_is_nothing() {
    let service = Service::new();
    let access = service.create();
    let paths = [
        "/sandboxes",
        "/v2/sandboxes",
        &format!("/sandboxes/{}", access.id),
    ];
    let wrong = format!("X-API-Key: {}", KEY.replace('0', "1"));
    let longer = format!("X-API-Key: {KEY}0");
    let right = format!("X-API-Key: {KEY}");
    let bearer = format!("Authorization: Bearer {KEY}");
    let twice = ["-H", &*right, "-H", &wrong];
    for path in paths {
        for words in [
            &[][..],
            &["-H", &wrong],
            &["-H", &longer],
            &["-H", &bearer],
            &twice,
        ] {
            service.call(words, path, None).expect(401);
        }
        service.call(&["-H", &right], path, None).expect(200);
        service
            .call(&["-H", &right, "-H", "Host: example.org"], path, None)
            .expect(403);
        service
            .call(
                &["-H", &right, "-H", "Origin: http://example.org"],
                path,
                None,
            )
            .expect(403);
    }
    service.call(&["-X", "DELETE"], paths[2], None).expect(401);
    // The API of `runner serve` is not there, whatever the client has.
    service
        .call(&["-H", &bearer, "-H", &right], "/v1/sandboxes", None)
        .expect(501);
    service.control("GET", paths[2], None).expect(200);
}

///
#[test]
fn a_sandbox_is_used_with_its_own_token_alone() {
    let service = Service::new();
    let (one, other) = (service.create(), service.create());
    assert_ne!(one.token, other.token);
    let with = |id: &str, token: &str| Access {
        id: id.to_owned(),
        token: token.to_owned(),
    };
    for access in [
        with(&one.id, &other.token),
        with(&one.id, KEY),
        with(&one.id, ""),
        with(&one.id, "x"),
    ] {
        service.stream(&access, "Start", &start("true")).expect(401);
        service
            .unary(
                &access,
                "filesystem.Filesystem/ListDir",
                &json!({"path": "/"}),
            )
            .expect(401);
        service
            .unary(&access, "process.Process/List", &json!({}))
            .expect(401);
        service
            .envd(&access, &[], "/files?path=/etc/passwd", None)
            .expect(401);
        service.envd(&access, &[], "/health", None).expect(401);
    }
    // Sandboxes of others are not found, by whatever name.
    service.api.host.create("own", &[]);
    service.api.host.create("e2b.named", &[]);
    let missing = [
        "own",
        "named",
        "e2b.named",
        "..",
        &format!("e2b.{}", one.id),
    ];
    for id in missing {
        // Nobody is told which sandboxes there are.
        service
            .envd(&with(id, &one.token), &[], "/health", None)
            .expect(401);
    }
    service
        .call(&[], "/files?path=/etc/passwd", None)
        .expect(400);
    for id in ["own", "named", "e2b.named", "-f", "%2e%2e", "a%20b"] {
        for path in ["", "/pause", "/connect", "/timeout"] {
            let (method, document) = match path {
                "" => ("DELETE", None),
                "/timeout" => ("POST", Some(json!({"timeout": 5}))),
                _ => ("POST", Some(json!({}))),
            };
            let reply =
                service.control(method, &format!("/sandboxes/{id}{path}"), document.as_ref());
            reply.expect(404);
        }
    }
    assert_eq!(service.api.host.list().len(), 4);
    service.envd(&one, &[], "/health", None).expect(204);
}

const SERVER: &str = include_str!("../bodies/sandboxes/server.py");

///
#[test]
fn a_port_of_a_sandbox_is_for_clients_with_its_token() {
    let service = Service::new();
    let [one, other] = [service.create(), service.create()];
    let port = ["-H", "E2b-Sandbox-Port: 8000"];
    let ask = |access: &Access, path: &str| service.envd(access, &port, path, None);
    ask(&one, "/health").expect(502);
    let name = format!("e2b.{}", one.id);
    let server = ["python3", "-c", SERVER, "raw_http", "8000"];
    let words = [&["sandbox", "exec", "-d", &name, "--"], &server[..]].concat();
    assert_eq!(service.api.host.say(&words).code, 0);
    eventually("it answers", || ask(&one, "/health").status == 200);
    let got = ask(&one, "/sandboxes/x?y=z").expect(200).text();
    assert!(got.contains("GET /sandboxes/x?y=z HTTP/1.1"), "{got}");
    for secret in [&one.token, &one.id, KEY] {
        assert!(!got.contains(secret), "{got}");
    }
    ask(&other, "/").expect(502);
    let mixed = Access {
        id: one.id.clone(),
        token: other.token.clone(),
    };
    ask(&mixed, "/health").expect(401);
    service.call(&port, "/health", None).expect(400);
    for number in ["0", "65536", "x", "", "+8000"] {
        let port = format!("E2b-Sandbox-Port: {number}");
        let reply = service.envd(&one, &["-H", &port], "/", None);
        // curl sends no header without a value.
        assert!([400, 501].contains(&reply.status), "{number}: {reply:?}");
    }
}

/// No call about a sandbox asks another one, also after the start of a server.
#[test]
fn a_supervisor_that_does_not_answer_holds_up_no_call_about_another_sandbox() {
    let mut service = Service::new();
    let silent_one = service.create();
    let silent = service.api.host.supervisor();
    let one = service.create();
    kill_process(silent, Signal::STOP).expect("stopped");
    service.restart();
    let path = format!("/sandboxes/{}", one.id);
    let found = service.control("GET", &path, None).expect(200).json();
    assert_eq!(found["sandboxID"], json!(one.id));
    let list = service
        .control("GET", "/v2/sandboxes", None)
        .expect(200)
        .json();
    let ids = list.as_array().expect("a list").iter();
    let ids: Vec<_> = ids.map(|row| row["sandboxID"].clone()).collect();
    assert_eq!(ids, [json!(one.id)]);
    let silent_path = format!("/sandboxes/{}", silent_one.id);
    service.control("GET", &silent_path, None).expect(504);
    service.envd(&one, &[], "/health", None).expect(204);
    let timeout = json!({ "timeout": 60 });
    let moved = service.control("POST", &format!("{path}/timeout"), Some(&timeout));
    moved.expect(204);
    service.control("DELETE", &path, None).expect(204);
    service.control("GET", &path, None).expect(404);
    service.envd(&one, &[], "/health", None).expect(502);
    for id in ["none", "tcp.x", "..%2fx", "%ff"] {
        let missing = service.control("GET", &format!("/sandboxes/{id}"), None);
        assert!(
            [400, 404].contains(&missing.status),
            "{id}: {}",
            missing.text()
        );
    }
    kill_process(silent, Signal::KILL).expect("killed");
}

/// The error at the end of a stream.
#[track_caller]
fn code(service: &Service, access: &Access, method: &str, request: &[u8]) -> String {
    let reply = service.stream(access, method, request).expect(200);
    let found = messages(&reply.body);
    let [(2, end)] = &found[..] else {
        panic!("{found:?}");
    };
    end["error"]["code"].as_str().expect("an error").to_owned()
}

///
#[test]
fn malformed_messages_are_refused_and_start_nothing() {
    let service = Service::new();
    let access = service.create();
    let whole = start("true");
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    let requests = [
        Vec::new(),
        whole[..4].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        [&*whole, &whole].concat(),
        with(0, 1),
        with(0, 2),
        with(1, 255),
        frame(&json!([])),
        frame(&json!({"process": {"cmd": ["sh"]}})),
        frame(&json!({"process": {"cmd": ""}})),
        frame(&json!({"process": {"cmd": "sh", "args": ["a\u{0}b"]}})),
        frame(&json!({"process": {"cmd": "sh", "envs": {"A=B": "c"}}})),
        frame(&json!({"process": {"cmd": "sh", "envs": {"": "c"}}})),
        frame(&json!({"process": {"cmd": "sh", "cwd": "/\u{0}"}})),
    ];
    for request in requests {
        assert_eq!(
            code(&service, &access, "Start", &request),
            "invalid_argument",
            "{request:?}"
        );
    }
    // More than a message may have, said at once and said by and by.
    let huge = vec![b' '; 2 << 20];
    assert_eq!(
        code(&service, &access, "Start", &huge),
        "resource_exhausted"
    );
    let chunked = [
        "-H",
        "Content-Type: application/connect+json",
        "-H",
        "Transfer-Encoding: chunked",
    ];
    let reply = service.envd(&access, &chunked, "/process.Process/Start", Some(&huge));
    assert_eq!(
        messages(&reply.expect(200).body)[0].1["error"]["code"],
        "resource_exhausted"
    );
    for pid in [json!(0), json!(1), json!(4_000_000_000_u64)] {
        let connect = frame(&json!({"process": {"pid": pid}}));
        assert_eq!(code(&service, &access, "Connect", &connect), "not_found");
        let signal = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
        service
            .unary(&access, "process.Process/SendSignal", &signal)
            .expect(404);
    }
    for size in [
        json!(null),
        json!({}),
        json!({"rows": 24}),
        json!({"rows": 24, "cols": 65536}),
        json!({"rows": -1, "cols": 80}),
    ] {
        let request = frame(&json!({"process": {"cmd": "sh"}, "pty": {"size": size}}));
        assert_eq!(
            code(&service, &access, "Start", &request),
            "invalid_argument",
            "{size}"
        );
    }
    let tag = frame(&json!({"process": {"cmd": "sh"}, "tag": "x"}));
    assert_eq!(code(&service, &access, "Start", &tag), "unimplemented");
    let stream = "process.Process/StreamInput";
    service.unary(&access, stream, &json!({})).expect(501);
    assert_eq!(service.api.host.list()[0]["ended"]["latest"], json!([]));
    // A program that is not there is refused as that.
    let missing = frame(&json!({"process": {"cmd": "/no/such"}, "stdin": false}));
    assert_eq!(code(&service, &access, "Start", &missing), "not_found");
}

///
#[test]
fn words_of_a_client_are_no_flags_of_runner() {
    let service = Service::new();
    let access = service.create();
    let run = |process: Value| {
        let request = frame(&json!({"process": process, "stdin": false}));
        let reply = service.stream(&access, "Start", &request).expect(200);
        messages(&reply.body)
    };
    for cmd in ["--help", "-d", "--timeout=1ms", "--"] {
        let found = run(json!({"cmd": cmd, "args": ["true"]}));
        assert_eq!(found.len(), 1, "{cmd}: {found:?}");
        assert_eq!(found[0].1["error"]["code"], "not_found", "{cmd}: {found:?}");
    }
    let found = run(json!({"cmd": "/bin/sh", "args": ["-c", "exit 4"], "cwd": "--help"}));
    assert!(
        found.last().expect("an end").1["error"].is_object(),
        "{found:?}"
    );
    let found = run(json!({"cmd": "/bin/sh", "args": ["-c", "exit 4"], "envs": {"-d": "x"}}));
    assert_eq!(
        found[found.len() - 2].1["event"]["end"]["exitCode"],
        4,
        "{found:?}"
    );
    // The document of a sandbox has no flags, and no way to what the template decides.
    for (name, value) in [
        ("flags", json!(["--rw", "/etc"])),
        ("network", json!({"allowOut": ["0.0.0.0/0"]})),
        ("allow_internet_access", json!(true)),
        ("volumeMounts", json!([{"name": "x", "path": "/etc"}])),
        ("secure", json!(false)),
        ("unknown", json!(1)),
    ] {
        let mut document = json!({"templateID": "base"});
        document[name] = value;
        let reply = service.control("POST", "/v2/sandboxes", Some(&document));
        assert!(
            [400, 501].contains(&reply.status),
            "{name}: {}",
            reply.text()
        );
    }
    // A template's own time is the longest.
    let times = |timeout| json!({"templateID": "short", "timeout": timeout});
    service
        .control("POST", "/sandboxes", Some(&times(61)))
        .expect(400);
    assert_eq!(service.api.host.list().len(), 1);
}

/// Variables of a sandbox and of a command, of which those of the command count.
#[test]
fn no_process_of_the_host_has_a_variable_among_its_words() {
    let service = Service::new();
    let (first, second) = (random(), random());
    let document = json!({
        "templateID": "base",
        "envVars": {"FIRST": first, "SECOND": "replaced", "RUNNER_OPT_TIMEOUT": "1ms"},
    });
    let made = service.control("POST", "/v2/sandboxes", Some(&document));
    let made = made.expect(201).json();
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    let access = Access {
        id: text("sandboxID"),
        token: text("envdAccessToken"),
    };
    let waits = "until test -e /tmp/go; do sleep 0.02; done; echo $FIRST-$SECOND > /tmp/done";
    let process = json!({"cmd": "/bin/sh", "args": ["-c", waits], "envs": {"SECOND": second, "PATH": "/bin"}});
    let request = frame(&json!({"process": process, "stdin": false}));
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| service.stream(&access, "Start", &request).expect(200));
        eventually("it runs", || {
            service.api.host.list()[0]["commands"]
                .as_array()
                .is_some_and(|list| list.len() == 1)
        });
        let is_seen = [&first, &second].map(|value| is_on_a_command_line(value));
        service
            .stream(&access, "Start", &start(": > /tmp/go"))
            .expect(200);
        let found = messages(&runs.join().expect("answered").body);
        assert_eq!(is_seen, [false, false], "{found:?}");
    });
    let done = service.envd(&access, &[], "/files?path=/tmp/done", None);
    assert_eq!(done.expect(200).text(), format!("{first}-{second}\n"));
}

///
#[test]
fn files_are_those_of_the_sandbox() {
    let service = Service::new();
    let access = service.create();
    let read = |query: &str| service.envd(&access, &[], &format!("/files?{query}"), None);
    for query in [
        "path=/../etc/passwd",
        "path=/tmp/../../etc/passwd",
        "path=%2e%2e%2fetc/passwd",
        "path=/tmp/%00",
        "path=",
        "",
        "path=/tmp&path=/etc",
        "path=/etc/passwd&other=1",
    ] {
        read(query).expect(400);
    }
    read("path=/etc/passwd&username=root").expect(501);
    read("path=/tmp").expect(409);
    let octets = ["-H", "Content-Type: application/octet-stream"];
    for path in ["/", "/tmp/..", "/tmp/."] {
        let path = format!("/files?path={path}");
        service
            .envd(&access, &octets, &path, Some(b"x"))
            .expect(400);
    }
    let gzip = [&octets[..], &["-H", "Content-Encoding: gzip"]].concat();
    service
        .envd(&access, &gzip, "/files?path=/tmp/x", Some(b"x"))
        .expect(501);
    let form = ["-H", "Content-Type: multipart/form-data; boundary=b"];
    let part = |name: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n")
    };
    for text in [
        String::new(),
        "--b--\r\n".to_owned(),
        "x--b\r\n".to_owned(),
        part("/tmp/cut"),
        format!("{}x\r\n--b", part("/tmp/cut")),
        format!("{}x\r\n--b--", part("/tmp/../../up")),
        format!("{}x\r\n--bx--", part("/tmp/cut")),
        format!("--b\r\n{}\r\n\r\nx\r\n--b--", "X: y\r\n".repeat(10_000)),
        format!("{}x\r\n", part("/tmp/many")).repeat(65) + "--b--",
    ] {
        let reply = service.envd(&access, &form, "/files", Some(text.as_bytes()));
        assert_eq!(reply.status, 400, "{text:.80}: {}", reply.text());
    }
    let list = service.unary(
        &access,
        "filesystem.Filesystem/ListDir",
        &json!({"path": "/tmp"}),
    );
    assert_eq!(list.expect(200).json(), json!({"entries": []}));
    for path in ["/", "//", "/.."] {
        let reply = service.unary(
            &access,
            "filesystem.Filesystem/Remove",
            &json!({"path": path}),
        );
        reply.expect(400);
    }
    // A secret of the host, which a link of the sandbox names.
    let secret = service.api.host.ground.write("secret", "of the host");
    let link = format!("ln -s {} /tmp/link", secret.display());
    service.stream(&access, "Start", &start(&link)).expect(200);
    read("path=/tmp/link").expect(404);
    service.envd(&access, &octets, "/files?path=/tmp/link", Some(b"x"));
    assert_eq!(
        std::fs::read_to_string(&secret).expect("there"),
        "of the host"
    );
}

/// A body that writes without end, to clients that leave: nothing is left, and the server goes on.
#[test]
fn a_client_that_leaves_holds_nothing_up() {
    let service = Service::new();
    let access = service.create();
    let endless = start("yes");
    let words = [
        "--max-time",
        "1",
        "-H",
        "Content-Type: application/connect+json",
        "-o",
        "/dev/null",
    ];
    let headers = [
        format!("E2b-Sandbox-Id: {}", access.id),
        format!("X-Access-Token: {}", access.token),
    ];
    let url = format!("{}/process.Process/Start", service.url());
    let more = [
        "-H",
        &*headers[0],
        "-H",
        &headers[1],
        "--data-binary",
        "@-",
        &url,
    ];
    let output = crate::api::run(
        &mut crate::api::curl(&[&words[..], &more].concat()),
        Some(&endless),
    );
    assert_eq!(output.status.code(), Some(28), "{output:?}");
    let list = || {
        service
            .unary(&access, "process.Process/List", &json!({}))
            .expect(200)
            .json()
    };
    let pid = list()["processes"][0]["pid"].clone();
    let signal = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
    service
        .unary(&access, "process.Process/SendSignal", &signal)
        .expect(200);
    eventually("the command has ended", || {
        list() == json!({"processes": []})
    });
    let removed = service.control("DELETE", &format!("/sandboxes/{}", access.id), None);
    removed.expect(204);
}

/// More events than are kept, and a watcher of another sandbox.
#[test]
fn a_watcher_keeps_a_bounded_number_of_events_for_its_sandbox_alone() {
    let service = Service::new();
    let (access, other) = (service.create(), service.create());
    let unary = |access: &Access, method: &str, document: Value| {
        service.unary(
            access,
            &format!("filesystem.Filesystem/{method}"),
            &document,
        )
    };
    let made = unary(&access, "CreateWatcher", json!({"path": "/tmp"}));
    let watcher = made.expect(200).json();
    for method in ["GetWatcherEvents", "RemoveWatcher"] {
        unary(&other, method, watcher.clone()).expect(404);
        unary(&access, method, json!({"watcherId": "x"})).expect(404);
        unary(&access, method, json!({})).expect(400);
    }
    for (name, value) in [
        ("includeEntry", json!(true)),
        ("allowNetworkMounts", json!(true)),
    ] {
        let mut document = json!({"path": "/tmp"});
        document[name] = value;
        unary(&access, "CreateWatcher", document).expect(501);
    }
    let run = |text: &str| {
        service.stream(&access, "Start", &start(text)).expect(200);
    };
    let events = || unary(&access, "GetWatcherEvents", watcher.clone());
    eventually("more than are kept have come", || {
        run("cd /tmp; i=0; while test $i -lt 9000; do i=$((i+1)); echo > f; echo > g; done");
        let reply = events();
        reply.status == 429 && reply.json()["code"] == "resource_exhausted"
    });
    let made = json!({"name": "end", "type": "EVENT_TYPE_CREATE"});
    eventually("it goes on", || {
        run("rm -f /tmp/end; : > /tmp/end");
        let found = events().json()["events"].clone();
        found.as_array().is_some_and(|found| found.contains(&made))
    });
    unary(&access, "RemoveWatcher", watcher.clone()).expect(200);
    unary(&access, "RemoveWatcher", watcher.clone()).expect(404);
    let runtime = service.api.host.runtime_directory();
    eventually("its process has ended", || {
        crate::api::processes(&runtime, "\0sandbox\0watch\0").is_empty()
    });
}

///
#[test]
fn the_key_is_needed_to_start() {
    let host = Host::new();
    for flags in [
        &["--api", "e2b"][..],
        &["--api", "e2b", "--listen", "127.0.0.1:0"],
        &["--api", "other"],
    ] {
        let output = serve(&host, flags).output().expect("started");
        let said = said(output);
        assert_eq!(said.code, 125, "{said:?}");
    }
}

/// After a restart as before it, and whatever is known of other sandboxes.
#[test]
fn a_restarted_server_takes_the_token_of_the_sandbox_alone() {
    let mut service = Service::new();
    let (one, other) = (service.create(), service.create());
    service.api.host.create("e2b.named", &[]);
    service
        .api
        .host
        .create("own", &["--label", "runner.api=e2b"]);
    service.restart();
    let with = |id: &str, token: &str| Access {
        id: id.to_owned(),
        token: token.to_owned(),
    };
    let shorter = &one.token[..one.token.len() - 1];
    let longer = format!("{}0", one.token);
    let upper = one.token.to_ascii_uppercase();
    for token in [&*other.token, KEY, "", shorter, &longer, &upper, &one.id] {
        let access = with(&one.id, token);
        service.envd(&access, &[], "/health", None).expect(401);
        service.stream(&access, "Start", &start("true")).expect(401);
    }
    for id in ["own", "named", "e2b.named", "..", "-f"] {
        service
            .envd(&with(id, &one.token), &[], "/health", None)
            .expect(401);
        service
            .control("GET", &format!("/sandboxes/{id}"), None)
            .expect(404);
    }
    for access in [&one, &other] {
        service.envd(access, &[], "/health", None).expect(204);
        let reply = service.stream(access, "Start", &start("echo on"));
        let found = messages(&reply.expect(200).body);
        assert!(
            found
                .iter()
                .any(|(_, event)| event["event"]["end"]["exited"] == true),
            "{found:?}"
        );
    }
    // One that has ended is not there, also with its token.
    service
        .control("DELETE", &format!("/sandboxes/{}", one.id), None)
        .expect(204);
    service.envd(&one, &[], "/health", None).expect(502);
    service.restart();
    service.envd(&one, &[], "/health", None).expect(502);
    service.envd(&other, &[], "/health", None).expect(204);
    // With another key there are other tokens.
    let key = service.api.host.ground.path("key");
    std::fs::write(&key, format!("{}\n", KEY.replace('0', "1"))).expect("written");
    service.restart();
    service.envd(&other, &[], "/health", None).expect(401);
}

/// The variables and labels of a client are on no command line, and cannot pass for those of the server.
#[test]
fn variables_and_metadata_of_a_client_stay_what_they_are() {
    let service = Service::new();
    let create = |document: &Value| service.control("POST", "/sandboxes", Some(document));
    let metadata = json!({ "--rw": "/etc", "text": "secret-metadata\n\u{1b}[2J" });
    let variables =
        json!({ "LD_PRELOAD": "/tmp/x.so", "RUNNER_OPT_RW": "/etc", "KEY": "secret\nvalue" });
    let document = json!({ "templateID": "base", "metadata": metadata, "envVars": variables });
    let made = create(&document).expect(201).json();
    let id = made["sandboxID"].as_str().expect("an id");
    let supervisor = service.api.host.supervisor().as_raw_nonzero();
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{supervisor}/{file}")).expect("readable");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(
            !text.contains("secret") && !text.contains("x.so"),
            "{file}: {text}"
        );
    }
    let found = service.control("GET", &format!("/sandboxes/{id}"), None);
    assert_eq!(found.expect(200).json()["metadata"], metadata);
    let name = format!("e2b.{id}");
    let printed = service
        .api
        .host
        .shell(&name, "unset LD_PRELOAD; printf %s \"$KEY\"; ls /tmp");
    assert_eq!(printed.stdout, "secret\nvalue");
    for (field, value, status) in [
        ("metadata", json!({ "runner.template": "short" }), 403),
        ("metadata", json!({ "a": "x".repeat(20_000) }), 422),
        ("envVars", json!({ "A B": "x" }), 400),
        ("envVars", json!({ "A": "x".repeat(132_000) }), 400),
    ] {
        let mut document = json!({ "templateID": "base" });
        document[field] = value;
        let refused = create(&document).expect(status);
        assert!(
            !refused.text().contains("runner-serve"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(service.api.host.list().len(), 1);
}

/// The SDKs would ask again for as long as a call may take.
#[test]
fn a_sandbox_beyond_the_total_of_memory_is_refused_at_once() {
    let service = Service::with(&["--max-memory", "800m"]);
    let access = service.create();
    let wanted = json!({"templateID": "base", "timeout": 300});
    let create = || service.control("POST", "/v2/sandboxes", Some(&wanted));
    let refused = create().expect(429);
    assert!(
        refused.text().contains("(too_much_memory)"),
        "{}",
        refused.text()
    );
    assert!(
        refused.head.contains("should-retry: false"),
        "{}",
        refused.head
    );
    let path = format!("/sandboxes/{}", access.id);
    service.control("DELETE", &path, None).expect(204);
    create().expect(201);
}
