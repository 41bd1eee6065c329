//! Directories that are watched.

use std::process::Stdio;

use serde_json::json;

use crate::access::Tcp;
use crate::api::{Api, processes, url};
use crate::commands::Client;
use support::invariants::eventually;

const WATCH: &str = "/v1/sandboxes/one/watch";

#[test]
fn events_of_a_directory_come_until_the_client_leaves_or_the_directory_does() {
    let api = Api::new();
    api.create("one");
    api.shell("mkdir -p /tmp/d/sub");
    let path = format!("{WATCH}?path=/tmp/d&recursive=true");
    let mut client = Client::start(&api, &[&url(&path)]);
    let flat = format!("{WATCH}?path=/tmp/d/");
    let mut other = Client::start(&api, &[&url(&flat)]);
    for client in [&mut client, &mut other] {
        assert_eq!(client.event(), json!({ "type": "started" }));
    }
    api.shell("cd /tmp/d; mkdir sub/a; : > \"$(printf 'b\\n\\377')\"");
    let create = |name: &str, path: &str| json!({ "type": "create", name: path });
    assert_eq!(client.event(), create("path", "sub/a"));
    for client in [&mut client, &mut other] {
        assert_eq!(client.event(), create("path_base64", "Ygr/"));
    }
    other.leave();
    let runtime = api.host.runtime_directory();
    let watches = || processes(&runtime, "\0sandbox\0watch\0").len();
    eventually("the one that left is gone", || watches() == 1);
    api.shell("mv /tmp/d /tmp/e");
    let end = client.event();
    assert_eq!(
        (&end["type"], &end["code"]),
        (&json!("error"), &json!("watch_failed")),
        "{end}"
    );
    eventually("nothing is left", || {
        watches() == 0 && api.host.list()[0]["commands"] == json!([])
    });
    let words = ["--max-time", "60", "-H", "Accept: text/event-stream"];
    let path = url(&format!("{WATCH}?path=/tmp/e"));
    let mut curl = api.curl(&[&words[..], &["-N", &path]].concat());
    let watcher = curl.stdout(Stdio::piped()).spawn().expect("started");
    eventually("it watches", || watches() == 1);
    // The end of the sandbox.
    api.call("DELETE", "/v1/sandboxes/one?force=true")
        .expect(204);
    let output = watcher.wait_with_output().expect("waited");
    let text = String::from_utf8_lossy(&output.stdout);
    if text.starts_with("event: started\ndata: {\"type\":\"started\"}\n\n") {
        assert!(
            text.contains("event: error\ndata: {\"type\":\"error\""),
            "{text}"
        );
    } else {
        // It ended before.
        assert!(text.starts_with("{\"error\":"), "{text}");
    }
}

/// A-81.
#[test]
fn what_is_no_directory_of_the_sandbox_is_not_watched() {
    let tcp = Tcp::new();
    let api = &tcp.api;
    api.create("one");
    let code = |query: &str, status| {
        let reply = api.get(&format!("{WATCH}?{query}")).expect(status);
        reply.code()
    };
    assert_eq!(code("path=/tmp/none", 404), "no_file");
    assert_eq!(code("path=/etc/passwd", 422), "watch_failed");
    for query in [
        "",
        "path=",
        "path=tmp",
        "path=/tmp/../etc",
        "path=/tmp/%00",
        "path=/tmp&path=/etc",
        "path=/tmp&recursive=1",
        "path=/tmp&depth=1",
    ] {
        api.get(&format!("{WATCH}?{query}")).expect(400);
    }
    let other = api.get("/v1/sandboxes/two/watch?path=/tmp").expect(404);
    assert_eq!(other.code(), "no_sandbox");
    // A word that is a flag.
    assert_eq!(code("path=/-r", 404), "no_file");
    let path = format!("{WATCH}?path=/tmp");
    tcp.with_token(&[], &path).expect(404);
    tcp.call(&[], &path).expect(401);
    let runtime = api.host.runtime_directory();
    eventually("nothing is left", || {
        processes(&runtime, "\0sandbox\0watch\0").is_empty()
            && api.host.list()[0]["commands"] == json!([])
    });
}

/// A-81: A client that reads nothing while a body makes events without end.
#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let api = Api::new();
    api.create("one");
    api.shell("mkdir /tmp/d");
    let mut client = Client::start(&api, &[&url(&format!("{WATCH}?path=/tmp/d"))]);
    assert_eq!(client.event(), json!({ "type": "started" }));
    let flood = json!({ "argv": ["sh", "-c", "cd /tmp/d; while echo > f; do echo > g; done"], "background": true });
    let commands = "/v1/sandboxes/one/commands";
    let id = api.post(commands, &flood).expect(201).json()["id"].clone();
    // The sandbox works while the flood fills everything that there is.
    for _ in 0..20 {
        api.shell("true");
    }
    let memory = || {
        let status = format!("/proc/{}/status", api.server.child.id());
        let status = std::fs::read_to_string(status).expect("read");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<u64>().ok())
            .expect("a number")
    };
    assert!(memory() < 96 << 10, "{} KiB", memory());
    let kill = format!("{commands}/{id}/kill");
    api.post(&kill, &json!({})).expect(204);
    client.leave();
    let runtime = api.host.runtime_directory();
    eventually("nothing is left", || {
        processes(&runtime, "\0sandbox\0watch\0").is_empty()
            && api.host.list()[0]["commands"] == json!([])
    });
}
