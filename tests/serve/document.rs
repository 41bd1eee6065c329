//! The OpenAPI document, compared with what the server answers.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::api::{Api, Reply, parse, reply as reply_of, url};
use crate::commands::Client;
use crate::ports::serve;
use crate::runs::Ends;

/// Checks answers against the document, and remembers which were seen.
struct Checked {
    api: Api,
    document: Value,
    seen: BTreeSet<(String, String, u16)>,
}

impl Checked {
    fn new() -> Self {
        let api = Api::new();
        let document = api.get("/openapi.json").expect(200).json();
        Self {
            api,
            document,
            seen: BTreeSet::new(),
        }
    }

    /// The schema `schema`, with the definitions that it names.
    fn validator(&self, schema: &Value) -> jsonschema::Validator {
        let mut whole = json!({ "components": self.document["components"] });
        whole["allOf"] = json!([schema]);
        jsonschema::validator_for(&whole).expect("a schema")
    }

    fn check(&mut self, method: &str, route: &str, reply: Reply) -> Reply {
        let operation = &self.document["paths"][route][method.to_ascii_lowercase()];
        assert!(
            operation.is_object(),
            "the document has no {method} {route}"
        );
        let answers = &operation["responses"];
        let status = reply.status.to_string();
        let answer = if answers[&status].is_object() {
            &answers[&status]
        } else {
            &answers["default"]
        };
        let name = format!("{method} {route}: {status}");
        let content = reply
            .head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        match (content, &answer["content"]) {
            (None, Value::Null) => assert!(reply.body.is_empty(), "{name}"),
            (Some(content), contents) => {
                let content = content.split(';').next().expect("a type");
                let described = match &contents["*/*"] {
                    Value::Null => &contents[content],
                    any => any,
                };
                assert!(
                    described.is_object(),
                    "{name}: {content} is not in the document"
                );
                if described["schema"].is_object() && content == "application/json" {
                    let validator = self.validator(&described["schema"]);
                    let body = reply.json();
                    let errors: Vec<String> = validator
                        .iter_errors(&body)
                        .map(|error| error.to_string())
                        .collect();
                    assert!(errors.is_empty(), "{name}: {errors:?}: {body}");
                }
                if described["x-itemSchema"].is_object() {
                    let validator = self.validator(&described["x-itemSchema"]);
                    for line in reply.text().lines() {
                        let event = line.strip_prefix("data: ").unwrap_or(line);
                        if event.starts_with('{') {
                            let event = serde_json::from_str(event).expect("a document");
                            assert!(validator.is_valid(&event), "{name}: {event}");
                        }
                    }
                }
            }
            (None, contents) => panic!("{name}: no content, and the document has {contents}"),
        }
        self.seen
            .insert((method.to_owned(), route.to_owned(), reply.status));
        reply
    }

    fn call(&mut self, method: &str, route: &str, query: &str) -> Reply {
        let path = route.replace("{name}", "one").replace("{id}", "1");
        let reply = self.api.call(method, &format!("{path}{query}"));
        self.check(method, route, reply)
    }

    /// Sends a body that has to match the document, too.
    fn send(&mut self, method: &str, route: &str, words: &[&str], body: &Value) -> Reply {
        let described =
            &self.document["paths"][route][method.to_ascii_lowercase()]["requestBody"]["content"];
        assert!(
            self.validator(&described["application/json"]["schema"])
                .is_valid(body),
            "{method} {route}: {body}"
        );
        let path = route.replace("{name}", "one").replace("{id}", "1");
        let reply = self
            .api
            .send(method, &path, words, body.to_string().as_bytes());
        self.check(method, route, reply)
    }
}

const SANDBOX: &str = "/v1/sandboxes/{name}";

#[test]
fn every_route_answers_as_the_document_says() {
    let mut checked = Checked::new();
    let at = |rest: &str| format!("{SANDBOX}{rest}");
    let commands = at("/commands");
    for route in ["/health", "/metrics", "/openapi.json", "/v1/sandboxes"] {
        checked.call("GET", route, "").expect(200);
    }
    let created = json!({ "name": "one", "flags": ["-m", "256m"], "labels": { "a": "b" } });
    checked
        .send("POST", "/v1/sandboxes", &[], &created)
        .expect(201);
    checked
        .send("POST", "/v1/sandboxes", &[], &created)
        .expect(409);
    let command = json!({ "argv": ["sh", "-c", "echo x; printf '\\377' >&2"], "env": { "A": "b" }, "cwd": "/", "timeout_ms": 60_000 });
    checked
        .send(
            "POST",
            &commands,
            &[],
            &json!({ "argv": ["sleep", "1000"], "background": true }),
        )
        .expect(201);
    checked.send("POST", &commands, &[], &command).expect(200);
    for form in ["application/x-ndjson", "text/event-stream"] {
        checked
            .send(
                "POST",
                &commands,
                &["-H", &format!("Accept: {form}")],
                &command,
            )
            .expect(200);
    }
    checked
        .send("POST", &commands, &[], &json!({ "argv": ["nosuch"] }))
        .expect(422);
    for route in [
        SANDBOX,
        "/v1/sandboxes/{name}/commands",
        "/v1/sandboxes/{name}/commands/{id}",
        "/v1/sandboxes/{name}/commands/{id}/logs",
        "/v1/sandboxes",
    ] {
        checked.call("GET", route, "").expect(200);
    }
    checked
        .send(
            "POST",
            &at("/commands/{id}/kill"),
            &[],
            &json!({ "signal": "KILL" }),
        )
        .expect(204);
    checked
        .call("GET", &at("/commands/{id}/logs"), "?follow=true")
        .expect(200);
    call_terminal(&mut checked);
    call_files(&mut checked);
    call_runs(&mut checked);
    call_ports(&mut checked);
    let times = json!({ "timeout_ms": 3_600_000, "idle_timeout_ms": 600_000 });
    checked
        .send("POST", &at("/timeout"), &[], &times)
        .expect(204);
    watch(&mut checked);
    if support::has_cgroup() {
        checked.call("POST", &at("/pause"), "").expect(204);
        checked.call("POST", &at("/resume"), "").expect(204);
    }
    let snapshot = checked.call("GET", &at("/snapshot"), "").expect(200);
    let restored = checked
        .api
        .send("POST", "/v1/restore?name=two", &[], &snapshot.body);
    checked.check("POST", "/v1/restore", restored).expect(201);
    checked.call("DELETE", SANDBOX, "?force=true").expect(204);
    checked.call("GET", SANDBOX, "").expect(404);
    let needs_cgroup = |route: &str| {
        !support::has_cgroup() && (route.ends_with("/pause") || route.ends_with("/resume"))
    };
    let paths = checked.document["paths"].as_object().expect("paths");
    for (route, methods) in paths {
        for (method, operation) in methods.as_object().expect("methods") {
            for status in operation["responses"].as_object().expect("answers").keys() {
                let status = status.parse().unwrap_or(0);
                let key = (method.to_ascii_uppercase(), route.clone(), status);
                let is_seen = status == 0 || checked.seen.contains(&key) || needs_cgroup(route);
                assert!(is_seen, "the test got no {key:?}");
            }
        }
    }
}

/// All calls about runs.
fn call_runs(checked: &mut Checked) {
    let _ends = Ends::new(&checked.api);
    let manifest = "run: body.sh\noutputsFiles: {x: {path: x.txt}}\n";
    let script = "echo x > /scratch/x; test \"$1\" != wait || sleep 1000\n";
    let bundle = checked.api.host.ground.script(manifest, script);
    let bundle = json!({ "path": bundle.to_str().expect("a plain path") });
    let document = json!({ "bundle": bundle, "inputs": {}, "files": {}, "args": ["once"] });
    let key = ["-H", "Idempotency-Key: one"];
    let reply = checked.send("POST", "/v1/runs", &key, &document);
    let run = reply.expect(201).json();
    checked
        .send("POST", "/v1/runs", &key, &document)
        .expect(200);
    let id = run["id"].as_str().expect("an id").to_owned();
    let at = |rest: &str| format!("/v1/runs/{id}{rest}");
    for form in ["application/x-ndjson", "text/event-stream"] {
        let accept = format!("Accept: {form}");
        let path = url(&at("/events"));
        let events = reply_of(checked.api.curl(&["-H", &accept, &path]), None);
        checked
            .check("GET", "/v1/runs/{run}/events", events)
            .expect(200);
    }
    for (route, rest, status) in [
        ("", "", 200),
        ("/events", "/events?after=99", 204),
        ("/logs", "/logs", 200),
        ("/artifacts/{key}", "/artifacts/x", 200),
    ] {
        let reply = checked.api.get(&at(rest));
        let route = format!("/v1/runs/{{run}}{route}");
        checked.check("GET", &route, reply).expect(status);
    }
    let list = checked.api.get("/v1/runs?state=succeeded");
    checked.check("GET", "/v1/runs", list).expect(200);
    let document = json!({ "bundle": bundle, "args": ["wait"] });
    let run = checked
        .send("POST", "/v1/runs", &[], &document)
        .expect(201)
        .json();
    let path = format!("/v1/runs/{}/cancel", run["id"].as_str().expect("an id"));
    let reply = checked.api.call("POST", &path);
    checked
        .check("POST", "/v1/runs/{run}/cancel", reply)
        .expect(202);
}

/// All calls about terminals.
fn call_terminal(checked: &mut Checked) {
    let commands = format!("{SANDBOX}/commands");
    let ends = json!({ "argv": ["true"], "tty": { "rows": 24, "columns": 80 } });
    let stream = checked.send("POST", &commands, &[], &ends).expect(200);
    assert!(stream.text().starts_with("{\"type\":\"started\""));
    let shell = json!({ "argv": ["sh"], "tty": {} }).to_string();
    let path = commands.replace("{name}", "one");
    let mut client = Client::start(&checked.api, &["-d", &shell, &url(&path)]);
    let id = client.event()["id"].clone();
    for (call, body) in [("resize", "{\"rows\":1}"), ("stdin", "exit\n")] {
        let reply = checked
            .api
            .send("POST", &format!("{path}/{id}/{call}"), &[], body.as_bytes());
        let route = format!("{commands}/{{id}}/{call}");
        checked.check("POST", &route, reply).expect(204);
    }
    while client.event()["type"] != "exit" {}
}

fn watch(checked: &mut Checked) {
    checked.api.host.shell("one", "mkdir /scratch/d");
    let path = url("/v1/sandboxes/one/watch?path=/scratch/d");
    let mut curl = checked.api.curl(&["-i", "-N", &path]);
    let mut child = curl.stdout(Stdio::piped()).spawn().expect("started");
    let mut answer = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut text = String::new();
    while !text.contains("started") {
        assert!(answer.read_line(&mut text).expect("read") > 0, "{text}");
    }
    let change = "cd /scratch; echo x > d/a; chmod 600 d/a; mv d/a d/b; rm d/b; rmdir d";
    checked.api.host.shell("one", change);
    answer.read_to_string(&mut text).expect("read");
    child.wait().expect("waited");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let reply = checked.check(
        "GET",
        &format!("{SANDBOX}/watch"),
        parse(head, body.as_bytes()),
    );
    let kinds = ["create", "write", "chmod", "rename", "remove", "error"];
    for kind in kinds {
        assert!(
            reply.text().contains(&format!("{{\"type\":\"{kind}\"")),
            "{kind}: {text}"
        );
    }
}

/// All calls about files.
fn call_files(checked: &mut Checked) {
    let at = |rest: &str| format!("{SANDBOX}{rest}");
    let written = checked
        .api
        .send("PUT", "/v1/sandboxes/one/files?path=/scratch/a", &[], b"x");
    checked.check("PUT", &at("/files"), written).expect(204);
    checked
        .call("GET", &at("/files"), "?path=/scratch/a")
        .expect(200);
    checked.api.host.shell("one", "ln -s a /scratch/link");
    checked
        .call("GET", &at("/files/list"), "?path=/scratch")
        .expect(200);
    checked
        .call("GET", &at("/files/stat"), "?path=/scratch/link")
        .expect(200);
    checked
        .call("POST", &at("/files/move"), "?from=/scratch/a&to=/scratch/b")
        .expect(204);
    checked
        .call("DELETE", &at("/files"), "?path=/scratch/b")
        .expect(204);
    checked
        .call("GET", &at("/files"), "?path=/scratch/b")
        .expect(404);
}

fn call_ports(checked: &mut Checked) {
    serve(|path, document| checked.api.post(path, document));
    for route in ["/ports/{port}/", "/ports/{port}/{path}"] {
        for method in ["GET", "PUT", "POST", "PATCH", "DELETE"] {
            let path = route.replace("{port}", "8000").replace("{path}", "a/b");
            let reply = checked
                .api
                .call(method, &format!("/v1/sandboxes/one{path}"));
            let route = format!("{SANDBOX}{route}");
            checked.check(method, &route, reply).expect(200);
        }
    }
}

/// A label that a client chose could fill the memory of a monitor.
#[test]
fn metrics_count_answers_by_names_of_the_api_alone() {
    let api = Api::new();
    for path in [
        "/v1/sandboxes/mysterious",
        "/mysterious",
        "/v1/sandboxes/mysterious/commands/7",
    ] {
        api.get(path).expect(404);
    }
    api.call("MYSTERIOUS", "/health").expect(405);
    api.call("GET", "/v1/sandboxes?mysterious=1").expect(400);
    let text = api.get("/metrics").expect(200).text();
    assert!(!text.to_ascii_lowercase().contains("mysterious"), "{text}");
    assert!(text.contains("runner_serve_requests_total{method=\"GET\",path=\"/v1/sandboxes/{name}\",status=\"404\"} 1\n"), "{text}");
    assert!(
        text.contains(
            "runner_serve_requests_total{method=\"other\",path=\"other\",status=\"404\"} 1\n"
        ),
        "{text}"
    );
}
