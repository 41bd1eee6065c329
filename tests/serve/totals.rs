//! `--max-memory` and `--max-cpus`: what all sandboxes and runs of a user may use together.

use rustix::process::Signal;
use serde_json::json;

use crate::api::{Api, Reply, Server, create_at_once};
use crate::host::Host;
use crate::runs::Ends;
use support::invariants::eventually;

fn create(api: &Api, name: &str, flags: &[&str]) -> Reply {
    api.post("/v1/sandboxes", &json!({ "name": name, "flags": flags }))
}

#[track_caller]
fn assert_full(refused: Reply, code: &str) {
    let refused = refused.expect(429);
    assert!(refused.head.contains("retry-after: 10"), "{}", refused.head);
    assert_eq!(refused.code(), code, "{}", refused.text());
}

/// Sandboxes and runs, whoever started them, and a server that was killed meanwhile.
#[test]
fn more_memory_than_all_may_use_together_is_refused_until_one_ends() {
    let flags = ["--max-memory", "600m"];
    let api = Api::with(&flags);
    let ends = Ends::new(&api);
    create(&api, "one", &["-m", "200m"]).expect(201);
    // Without a limit of its own it has the default, 256m. The command line is not refused.
    api.host.create("mine", &[]);
    assert_full(create(&api, "two", &["-m", "200m"]), "too_much_memory");
    create(&api, "small", &["-m", "100m"]).expect(201);
    let Api { server, host } = api;
    server.signal(Signal::KILL);
    drop(server);
    let server = Server::start(&host, &flags);
    let api = Api { server, host };
    assert_full(create(&api, "two", &["-m", "200m"]), "too_much_memory");
    let bundle = api.host.ground.script("run: body.sh\n", "sleep 1000");
    let run = json!({ "bundle": { "path": bundle }, "flags": ["-m", "200m"] });
    assert_full(api.post("/v1/runs", &run), "too_much_memory");
    assert_eq!(api.get("/v1/runs").json()["runs"], json!([]));
    api.call("DELETE", "/v1/sandboxes/one").expect(204);
    let run = api.post("/v1/runs", &run).expect(201).json();
    assert_full(create(&api, "two", &["-m", "200m"]), "too_much_memory");
    let id = run["id"].as_str().expect("an id");
    api.call("POST", &format!("/v1/runs/{id}/cancel"))
        .expect(202);
    eventually("the memory of the run is free", || {
        create(&api, "two", &["-m", "200m"]).status == 201
    });
    let alone = create(&api, "large", &["-m", "601m"]).expect(422);
    assert_eq!(alone.code(), "limit_above_maximum");
    let metrics = api.get("/metrics").text();
    let count = "\nrunner_serve_refused_total{why=\"memory\"} ";
    assert!(metrics.contains(count), "{metrics}");
    assert!(!metrics.contains(&format!("{count}0\n")), "{metrics}");
    drop(ends);
}

/// Two servers of one user, too, do not give the same memory away twice.
#[test]
fn sandboxes_that_are_created_at_once_do_not_exceed_the_total() {
    let flags = ["--max-memory", "512m"];
    let api = Api::with(&flags);
    let other = Server::start_at(&api.host, "other", &flags);
    let said = create_at_once(&[&api.server, &other], 6, "%{http_code}");
    assert_eq!(said, ["201", "201", "429", "429", "429", "429"]);
}

#[test]
fn more_processors_than_all_may_use_together_are_refused() {
    let api = Api::with(&["--max-cpus", "0.5"]);
    // Without a limit it may use all.
    let alone = create(&api, "all", &[]).expect(422);
    assert_eq!(alone.code(), "limit_above_maximum");
    if support::has_cgroup() {
        create(&api, "one", &["--cpus", "0.3"]).expect(201);
        let refused = create(&api, "two", &["--cpus", "0.3"]);
        assert_full(refused, "too_many_cpus");
        create(&api, "two", &["--cpus", "0.2"]).expect(201);
    }
}

/// A total that cannot be read is no total that is not there.
#[test]
fn totals_that_cannot_be_read_are_refused() {
    let host = Host::new();
    for (flag, variable) in [
        ("--max-sandboxes", "RUNNER_OPT_MAX_SANDBOXES"),
        ("--max-memory", "RUNNER_OPT_MAX_MEMORY"),
        ("--max-cpus", "RUNNER_OPT_MAX_CPUS"),
    ] {
        let said = host.say(&["serve", flag, "lots"]);
        assert_eq!(said.code, 125, "{said:?}");
        let mut command = host.command(&["run", "--", "true"]);
        let output = command.env(variable, "lots").output().expect("started");
        assert_eq!(output.status.code(), Some(125), "{variable}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(variable), "{stderr}");
    }
    assert_eq!(host.list(), [json!(null); 0]);
}
