//! `/v1/sandboxes`: sandboxes that clients create, list, pause and delete.

use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::api::{Api, Server, create_at_once};
use support::invariants::eventually;

#[test]
fn a_sandbox_is_created_listed_paused_resumed_and_deleted() {
    let api = Api::new();
    let created = api
        .post(
            "/v1/sandboxes",
            &json!({ "name": "one", "flags": ["-m", "256m"] }),
        )
        .expect(201);
    assert!(
        created.head.contains("location: /v1/sandboxes/one\r\n"),
        "{}",
        created.head
    );
    assert_eq!(created.json()["name"], "one");
    // The verbs see the same sandboxes.
    api.host.create("two", &[]);
    let names = |api: &Api| -> Vec<String> {
        let list = api.get("/v1/sandboxes").expect(200).json();
        let list = list["sandboxes"].as_array().expect("a list").clone();
        list.iter()
            .map(|sandbox| sandbox["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names(&api), ["one", "two"]);
    assert_eq!(
        api.host
            .shell("one", "cat /sys/fs/cgroup/memory.max; true")
            .code,
        0
    );
    if support::has_cgroup() {
        api.call("POST", "/v1/sandboxes/one/pause").expect(204);
        assert_eq!(
            api.get("/v1/sandboxes/one").expect(200).json()["is_paused"],
            true
        );
        let refused = api
            .post("/v1/sandboxes/one/commands", &json!({ "argv": ["true"] }))
            .expect(409);
        assert_eq!(refused.code(), "sandbox_paused");
        api.call("POST", "/v1/sandboxes/one/resume").expect(204);
    }
    let again = api
        .post("/v1/sandboxes", &json!({ "name": "one" }))
        .expect(409);
    assert_eq!(again.code(), "sandbox_exists");
    api.post(
        "/v1/sandboxes/one/commands",
        &json!({ "argv": ["sleep", "1000"], "background": true }),
    )
    .expect(201);
    assert_eq!(
        api.call("DELETE", "/v1/sandboxes/one").expect(409).code(),
        "sandbox_busy"
    );
    api.call("DELETE", "/v1/sandboxes/one?force=true")
        .expect(204);
    assert_eq!(
        api.get("/v1/sandboxes/one").expect(404).code(),
        "no_sandbox"
    );
    assert_eq!(
        api.call("DELETE", "/v1/sandboxes/one").expect(404).code(),
        "no_sandbox"
    );
    assert_eq!(names(&api), ["two"]);
}

#[test]
fn a_sandbox_without_a_name_gets_one() {
    let api = Api::new();
    let created = api.post("/v1/sandboxes", &json!({})).expect(201).json();
    assert_eq!(created["name"], created["run_id"]);
}

/// A-74: Names and words of clients never become flags or paths.
#[test]
fn names_that_are_none_and_flags_that_are_none_are_refused() {
    let api = Api::new();
    for name in [
        "../x",
        "-f",
        "--force",
        "a/b",
        "a b",
        "",
        ".",
        "a\n",
        &"a".repeat(49),
    ] {
        let refused = api
            .post("/v1/sandboxes", &json!({ "name": name }))
            .expect(400);
        assert_eq!(refused.code(), "sandbox_name", "{name:?}");
    }
    for name in ["..%2fx", "-f", "--force", "a%00", "%2e%2e", "%ff", "a%20b"] {
        for (method, rest) in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/pause"),
            ("GET", "/commands"),
            ("GET", "/files?path=/x"),
        ] {
            let refused = api.call(method, &format!("/v1/sandboxes/{name}{rest}"));
            assert_eq!(refused.status, 400, "{name:?}: {}", refused.text());
        }
    }
    for flags in [
        &["x"][..],
        &["--"],
        &["--name", "y"],
        &["--name=y"],
        &["--json=fd:3"],
        &["--events", "fd:3"],
        &["--help"],
    ] {
        let refused = api
            .post("/v1/sandboxes", &json!({ "name": "x", "flags": flags }))
            .expect(400);
        assert_eq!(refused.code(), "flags", "{flags:?}");
    }
    // Flags that `runner` does not know, or a value that swallows nothing of ours.
    for flags in [&["--bogus"][..], &["-m", "1g", "stray"], &["--rw"]] {
        let refused = api
            .post("/v1/sandboxes", &json!({ "name": "x", "flags": flags }))
            .expect(400);
        assert_eq!(refused.code(), "usage", "{flags:?}");
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        r#"{"nmae":"x"}"#,
        r#"{"name":1}"#,
        "\u{0}",
    ] {
        let refused = api
            .send("POST", "/v1/sandboxes", &[], body.as_bytes())
            .expect(400);
        assert_eq!(refused.code(), "document", "{body:?}");
    }
    assert!(api.host.list().is_empty());
}

#[test]
fn one_sandbox_more_than_allowed_is_refused_until_one_is_deleted() {
    let api = Api::with(&["--max-sandboxes", "2"]);
    // Also those that the command line created count.
    api.host.create("mine", &[]);
    let said = create_at_once(&[&api.server], 4, "%{http_code} %header{retry-after}");
    assert_eq!(said, ["201 ", "429 10", "429 10", "429 10"]);
    assert_eq!(api.host.list().len(), 2);
    api.call("DELETE", "/v1/sandboxes/mine").expect(204);
    api.create("next");
}

/// A-76: Creating and describing a sandbox asks no other one, so that neither takes longer the more there are.
#[test]
fn a_supervisor_that_does_not_answer_holds_up_no_other_sandbox() {
    let api = Api::with(&["--max-sandboxes", "3"]);
    api.create("silent");
    let silent = api.host.supervisor();
    kill_process(silent, Signal::STOP).expect("stopped");
    // Nor the start of a server.
    drop(Server::start_at(&api.host, "other", &[]));
    api.create("one");
    api.get("/v1/sandboxes/one").expect(200);
    let done = api.post("/v1/sandboxes/one/commands", &json!({ "argv": ["true"] }));
    done.expect(200);
    let metrics = api.get("/metrics").expect(200).text();
    assert!(metrics.contains("\nrunner_serve_calls 0\n"), "{metrics}");
    assert!(
        metrics.contains("\nrunner_sandboxes 2\n")
            && metrics.contains("\nrunner_sandboxes_unresponsive 1\n"),
        "{metrics}"
    );
    // Nor the list, which names it.
    let list = api.get("/v1/sandboxes").expect(200).json();
    let names = |list: &serde_json::Value| {
        let rows = list.as_array().expect("a list").iter();
        rows.map(|row| row["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&list["sandboxes"]), ["one"]);
    assert_eq!(names(&list["unresponsive"]), ["silent"]);
    let unresponsive = api.get("/v1/sandboxes/silent").expect(504);
    assert_eq!(unresponsive.code(), "sandbox_unresponsive");
    // It counts, and so does one whose supervisor was killed until its init has ended.
    api.create("two");
    let refused = api.post("/v1/sandboxes", &json!({ "name": "three" }));
    assert_eq!(refused.expect(429).code(), "too_many_sandboxes");
    kill_process(silent, Signal::KILL).expect("killed");
    eventually("its place is free", || {
        let created = api.post("/v1/sandboxes", &json!({ "name": "three" }));
        created.status == 201
    });
    let metrics = api.get("/metrics").text();
    assert!(
        metrics.contains("\nrunner_serve_refused_total{why=\"sandboxes\"} "),
        "{metrics}"
    );
}

#[test]
fn two_servers_do_not_give_the_last_place_away_twice() {
    let api = Api::with(&["--max-sandboxes", "1"]);
    let other = Server::start_at(&api.host, "other", &["--max-sandboxes", "1"]);
    let said = create_at_once(&[&api.server, &other], 4, "%{http_code}");
    assert_eq!(said, ["201", "429", "429", "429"]);
    assert_eq!(api.host.list().len(), 1);
}

/// What a client forgets ends by itself.
#[test]
fn a_sandbox_that_no_client_uses_ends() {
    let api = Api::with(&["--idle-timeout", "300ms"]);
    api.create("one");
    api.post(
        "/v1/sandboxes",
        &json!({ "name": "two", "flags": ["--idle-timeout", "1h"] }),
    )
    .expect(201);
    eventually("it ended", || api.get("/v1/sandboxes/one").status == 404);
    api.get("/v1/sandboxes/two").expect(200);
}

#[test]
fn a_snapshot_is_restored_in_a_new_sandbox() {
    let api = Api::with(&["--max-file", "1m"]);
    api.create("one");
    api.shell("echo kept > /scratch/file; ln -s /etc/passwd /scratch/link");
    let snapshot = api.get("/v1/sandboxes/one/snapshot").expect(200);
    assert!(snapshot.head.contains("content-type: application/x-tar"));
    let restore =
        |query: &str, body: &[u8]| api.send("POST", &format!("/v1/restore?{query}"), &[], body);
    restore("name=two", &snapshot.body).expect(201);
    let found = api
        .host
        .shell("two", "cat /scratch/file; readlink /scratch/link");
    assert_eq!(found.stdout, "kept\n/etc/passwd\n");
    assert_eq!(
        restore("name=two", &snapshot.body).expect(409).code(),
        "sandbox_exists"
    );
    assert_eq!(
        restore("name=-f", &snapshot.body).expect(400).code(),
        "sandbox_name"
    );
    assert_eq!(
        restore("template=x", &snapshot.body).expect(403).code(),
        "no_template"
    );
    assert_eq!(
        restore("flags=-m", &snapshot.body).expect(400).code(),
        "query"
    );
    assert_eq!(
        restore("name=three", &vec![0; 2 << 20]).expect(413).code(),
        "too_large"
    );
    let nonsense = restore("name=three", b"nonsense");
    assert_eq!(nonsense.status, 422, "{}", nonsense.text());
    api.shell("head -c 3000000 /dev/urandom > /scratch/large");
    assert_eq!(
        api.get("/v1/sandboxes/one/snapshot").expect(413).code(),
        "too_large"
    );
    assert_eq!(
        api.get("/v1/sandboxes/none/snapshot").expect(404).code(),
        "no_sandbox"
    );
    assert_eq!(api.host.list().len(), 2);
    assert_eq!(api.host.list()[0]["is_paused"], false);
}
