//! `/v1/runs`: what becomes of bundles that clients run.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::api::{Api, Reply, Server, reply, url};
use support::invariants::eventually;
use support::skip;

/// A server whose runs are ended with the test.
pub struct Runs {
    ends: Ends,
    pub api: Api,
}

/// Ends the runs of a state directory when it is dropped.
pub struct Ends(pub PathBuf);

impl Ends {
    pub fn new(api: &Api) -> Self {
        Self(api.host.ground.path("state/serve"))
    }

    fn directories(&self) -> Vec<PathBuf> {
        let runs = std::fs::read_dir(self.0.join("runs"));
        let runs = runs.into_iter().flatten().filter_map(Result::ok);
        runs.map(|entry| entry.path()).collect()
    }
}

/// The process of `runner exec` that has this directory, if it lives.
pub fn process(directory: &Path) -> Option<Pid> {
    let events = std::fs::read_to_string(directory.join("events.jsonl")).ok()?;
    let started: Value = serde_json::from_str(events.lines().next()?).ok()?;
    let pid = Pid::from_raw(started["pid"].as_i64()?.try_into().ok()?)?;
    let words = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).ok()?;
    let id = directory.file_name()?.to_str()?;
    String::from_utf8_lossy(&words).contains(id).then_some(pid)
}

impl Drop for Ends {
    fn drop(&mut self) {
        let living = |ends: &Self| -> Vec<Pid> {
            let directories = ends.directories().into_iter();
            directories.filter_map(|path| process(&path)).collect()
        };
        for pid in living(self) {
            // It may have ended meanwhile.
            let _sent = kill_process(pid, Signal::TERM);
        }
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !living(self).is_empty() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Runs {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(flags: &[&str]) -> Self {
        let api = Api::with(flags);
        Self {
            ends: Ends::new(&api),
            api,
        }
    }

    /// Kills the server and starts another one.
    pub fn restart(self, between: impl FnOnce(&Api)) -> Self {
        let Self { ends, api } = self;
        api.server.signal(Signal::KILL);
        between(&api);
        let Api { server, host } = api;
        drop(server);
        let server = Server::start(&host, &[]);
        Self {
            ends,
            api: Api { server, host },
        }
    }

    pub fn directory(&self, id: &str) -> PathBuf {
        self.ends.0.join("runs").join(id)
    }

    pub fn uploads(&self) -> usize {
        let servers = std::fs::read_dir(self.ends.0.join("uploads")).expect("there");
        let counts = servers.filter_map(Result::ok).map(|server| {
            let left = std::fs::read_dir(server.path());
            left.map_or(0, Iterator::count)
        });
        counts.sum()
    }

    /// A bundle of a shell script.
    pub fn bundle(&self, manifest: &str, script: &str) -> String {
        let manifest = format!("run: body.sh\n{manifest}");
        let bundle = self.api.host.ground.script(&manifest, script);
        bundle.to_str().expect("a plain path").to_owned()
    }

    /// Sends a form: each word is `NAME=VALUE`, as of curl.
    #[track_caller]
    pub fn form(&self, words: &[&str], parts: &[&str]) -> Reply {
        let mut curl = self.api.curl(words);
        for part in parts {
            curl.args(["-F", part]);
        }
        curl.arg(url("/v1/runs"));
        reply(curl, None)
    }

    /// Runs a script by the path of its bundle.
    #[track_caller]
    pub fn start(&self, manifest: &str, script: &str, more: &Value) -> String {
        let mut document = json!({ "bundle": { "path": self.bundle(manifest, script) } });
        for (key, value) in more.as_object().into_iter().flatten() {
            document[key] = value.clone();
        }
        let run = self.api.post("/v1/runs", &document).expect(201).json();
        run["id"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    pub fn get(&self, id: &str) -> Value {
        let reply = self.api.get(&format!("/v1/runs/{id}"));
        reply.expect(200).json()
    }

    /// Waits until the run has ended.
    #[track_caller]
    pub fn end(&self, id: &str) -> Value {
        eventually("the run ends", || {
            let state = &self.get(id)["state"];
            state != "pending" && state != "running"
        });
        self.get(id)
    }

    /// The events of a run that has ended, as lines.
    #[track_caller]
    pub fn events(&self, id: &str, query: &str) -> Vec<Value> {
        let path = url(&format!("/v1/runs/{id}/events{query}"));
        let curl = self
            .api
            .curl(&["-H", "Accept: application/x-ndjson", &path]);
        lines(&reply(curl, None).expect(200).text())
    }

    /// A client that follows the events from `after` on.
    fn follow(&self, id: &str, after: Option<u64>) -> Child {
        let path = url(&format!("/v1/runs/{id}/events"));
        let header = after.map(|after| format!("Last-Event-ID: {after}"));
        let mut curl = self.api.curl(&["-N", &path]);
        curl.args(header.iter().flat_map(|header| ["-H", header]));
        curl.stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started")
    }
}

pub fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a document"))
        .collect()
}

fn numbers(events: &[Value]) -> Vec<u64> {
    let numbers = events.iter().map(|event| event["seq"].as_u64());
    numbers.collect::<Option<_>>().expect("numbers")
}

/// The `data` of server-sent events until the client ends, or until `enough`.
fn data(child: &mut Child, enough: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut found = Vec::new();
    let mut id = None;
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        if let Some(number) = line.strip_prefix("id: ") {
            id = number.parse::<u64>().ok();
        }
        if let Some(data) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(data).expect("a document");
            assert_eq!(event["seq"].as_u64(), id, "{event}");
            let is_enough = enough(&event);
            found.push(event);
            if is_enough {
                break;
            }
        }
    }
    found
}

const LOUD: &str = "inputs: {type: object, properties: {word: {type: string}}}\n\
    outputs: {type: object}\n\
    inputsFiles: {notes: {path: nowhere/notes.txt}}\n\
    outputsFiles: {loud: {path: deep/<toolId>.txt, required: true}, other: {path: other.txt}}\n";
const LOUD_BODY: &str = "tr a-z A-Z < /scratch/notes > /scratch/loud\n\
    echo \"$1\"; echo oops >&2\ncat > \"$RUNNER_OUTPUT\" < \"$RUNNER_INPUT\"\n";

#[test]
fn a_run_takes_a_bundle_inputs_and_files_and_has_a_result() {
    let runs = Runs::new();
    let bundle = runs.bundle(LOUD, LOUD_BODY);
    let document = json!({ "inputs": { "word": "x" }, "args": ["-h"] });
    let uploaded = runs
        .form(
            &[],
            &[
                &format!("run={document}"),
                &format!("bundle=@{bundle}"),
                "file.notes=a few notes",
            ],
        )
        .expect(201);
    let first = uploaded.json();
    let id = first["id"].as_str().expect("an id");
    assert!(
        uploaded
            .head
            .contains(&format!("location: /v1/runs/{id}\r\n"))
    );
    let digest = first["bundle"].as_str().expect("a digest").to_owned();
    // By what the server has, and by a path.
    let files = json!({ "notes": { "base64": "YSBmZXcgbm90ZXM=" } });
    let mut document = json!({ "inputs": { "word": "x" }, "args": ["-h"], "files": files });
    let mut ids = vec![id.to_owned()];
    for reference in [json!({ "digest": digest }), json!({ "path": bundle })] {
        document["bundle"] = reference;
        let run = runs.api.post("/v1/runs", &document).expect(201).json();
        ids.push(run["id"].as_str().expect("an id").to_owned());
    }
    for id in &ids {
        let run = runs.end(id);
        assert_eq!(
            (&run["state"], &run["error"]),
            (&json!("succeeded"), &json!(null)),
            "{run}"
        );
        assert_eq!(
            (&run["outcome"], &run["exit_code"]),
            (&json!("exited"), &json!(0))
        );
        assert_eq!(run["output"]["word"], "x");
        assert_eq!(run["artifacts"][0]["key"], "loud");
        assert_eq!(run["artifacts"][0]["bytes"], 11);
        assert_eq!(run["artifacts"][1]["state"], "missing");
        let artifact = format!("/v1/runs/{id}/artifacts/loud");
        assert_eq!(runs.api.get(&artifact).expect(200).text(), "A FEW NOTES");
        let missing = format!("/v1/runs/{id}/artifacts/other");
        assert_eq!(runs.api.get(&missing).expect(404).code(), "no_artifact");
        let logs = runs.api.get(&format!("/v1/runs/{id}/logs")).expect(200);
        let logs = logs.json();
        assert_eq!(logs["stdout"]["text"], "-h\n");
        assert!(
            logs["stderr"]["text"]
                .as_str()
                .expect("text")
                .contains("oops\n")
        );
        let events = runs.events(id, "");
        assert_eq!(
            numbers(&events),
            (0..events.len() as u64).collect::<Vec<_>>()
        );
        assert_eq!(events.last().expect("one")["event"], "ended");
        // On the host it is a run like others.
        let run_id = run["run_id"].as_str().expect("an id");
        let report = runs.api.host.say(&["inspect", run_id]);
        assert_eq!(report.code, 0, "{report:?}");
    }
    let list = runs.api.get("/v1/runs?state=succeeded").expect(200).json();
    let listed = list["runs"].as_array().expect("a list").iter();
    let listed: Vec<&str> = listed.filter_map(|run| run["id"].as_str()).collect();
    ids.reverse();
    assert_eq!(listed, ids, "the newest first");
    let none = runs.api.get("/v1/runs?state=suspended").expect(200).json();
    assert_eq!(none, json!({ "runs": [] }));
    assert_eq!(runs.uploads(), 0);
    let metrics = runs.api.get("/metrics").expect(200).text();
    assert!(
        metrics.contains("runner_runs_total{outcome=\"exited\"} 3\n"),
        "{metrics}"
    );
}

/// By names that no body can choose.
#[test]
fn phases_and_denials_of_runs_are_counted() {
    let runs = Runs::new();
    let script = "unshare -r true; unshare -r true; exit 3";
    let id = runs.start("", script, &json!({ "args": ["mysterious"] }));
    runs.end(&id);
    // The server counts a run once its process has ended.
    let metrics = || runs.api.get("/metrics").expect(200).text();
    let total = "\nrunner_runs_total{outcome=\"exited\"} 1\n";
    eventually("it is counted", || metrics().contains(total));
    let text = metrics();
    for line in [
        "runner_run_denials_total{kind=\"syscall\"} 2",
        "runner_run_denials_total{kind=\"net\"} 0",
        "runner_run_phase_seconds_count{phase=\"prepare\"} 1",
        "runner_run_phase_seconds_bucket{phase=\"body\",le=\"+Inf\"} 1",
        "runner_runs 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("mysterious"), "{text}");
}

#[test]
fn each_end_of_a_run_has_its_state_and_code() {
    let runs = Runs::new();
    let required = "outputsFiles: {loud: {path: loud.txt, required: true}}\n";
    let number = "inputs: {type: object, properties: {n: {type: integer}}, required: [n]}\n";
    for (manifest, script, more, code, reason) in [
        ("", "exit 3", json!({}), "driver-error", json!(null)),
        ("", "exit 124", json!({}), "driver-error", json!(null)),
        ("", "kill -9 $$", json!({}), "driver-error", json!(null)),
        (
            required,
            "true",
            json!({}),
            "missing-artifact",
            json!("missing-artifact"),
        ),
        (
            "outputs: {type: object}\n",
            "true",
            json!({}),
            "missing-output",
            json!("missing-output"),
        ),
        (
            number,
            "true",
            json!({ "inputs": { "n": "x" } }),
            "invalid-input",
            json!("invalid-input"),
        ),
        (
            "inputsFiles: {notes: {path: notes.txt}}\n",
            "true",
            json!({}),
            "invalid-input",
            json!("input_missing"),
        ),
        (
            "",
            "sleep 1000",
            json!({ "flags": ["--timeout", "300ms"] }),
            "timeout",
            json!("any"),
        ),
        (
            "",
            "yes",
            json!({ "flags": ["--max-output=1k", "--on-output-limit=kill"] }),
            "budget-exceeded",
            json!(null),
        ),
        (
            "network: {egress: [example.org]}\n",
            "true",
            json!({}),
            "driver-error",
            json!("grant_required"),
        ),
    ] {
        let id = runs.start(manifest, script, &more);
        let run = runs.end(&id);
        let error = &run["error"];
        // On a busy host the time is over before the body starts, which is a reason.
        let reason = if reason == "any" {
            error["reason"].clone()
        } else {
            reason
        };
        assert_eq!(run["state"], "failed", "{script}: {run}");
        assert_eq!(
            (&error["code"], &error["reason"]),
            (&json!(code), &reason),
            "{run}"
        );
        assert!(!error["message"].as_str().expect("text").is_empty());
        let events = runs.events(&id, "");
        assert_eq!(events.last().expect("one")["event"], "ended", "{script}");
    }
    let list = runs.api.get("/v1/runs?state=failed").expect(200).json();
    assert_eq!(list["runs"].as_array().expect("a list").len(), 10);
}

#[test]
fn a_run_out_of_memory_has_exceeded_its_budget() {
    if !support::has_cgroup() {
        return skip("without a cgroup memory is limited for each process alone");
    }
    let runs = Runs::new();
    let more = json!({ "flags": ["-m", "32m"] });
    let id = runs.start("", "exec tail /dev/zero", &more);
    let run = runs.end(&id);
    assert_eq!(run["outcome"], "out_of_memory", "{run}");
    assert_eq!(run["error"]["code"], "budget-exceeded");
}

/// What is refused before there is a run leaves none.
#[test]
fn words_that_runner_exec_refuses_are_answered_and_leave_nothing() {
    let runs = Runs::new();
    let bundle = json!({ "path": runs.bundle("", "true") });
    for (document, status, code) in [
        (json!({}), 400, "bundle"),
        (json!({ "bundle": { "digest": "sha256:x" } }), 400, "bundle"),
        (
            json!({ "bundle": { "digest": format!("sha256:{}", "0".repeat(64)) } }),
            404,
            "no_bundle",
        ),
        (
            json!({ "bundle": bundle, "flags": ["--bogus"] }),
            400,
            "usage",
        ),
        (
            json!({ "bundle": bundle, "flags": ["other.tar.gz"] }),
            400,
            "flags",
        ),
        (
            json!({ "bundle": bundle, "flags": ["-q", "other.tar.gz"] }),
            400,
            "usage",
        ),
        (
            json!({ "bundle": bundle, "flags": ["--json=fd:3"] }),
            400,
            "flags",
        ),
        (
            json!({ "bundle": bundle, "flags": ["--memory"] }),
            400,
            "usage",
        ),
        (json!({ "bundle": bundle, "flags": ["--"] }), 400, "flags"),
        (
            json!({ "bundle": bundle, "template": "x" }),
            403,
            "no_template",
        ),
        (json!({ "bundle": bundle, "other": 1 }), 400, "document"),
        (
            json!({ "bundle": bundle, "files": { "../x": { "text": "" } } }),
            400,
            "file_key",
        ),
        (
            json!({ "bundle": bundle, "files": { "x": { "base64": "!" } } }),
            400,
            "file_key",
        ),
    ] {
        let refused = runs.api.post("/v1/runs", &document).expect(status);
        assert_eq!(refused.code(), code, "{document}");
    }
    let word = "x".repeat(300);
    let long = format!("Idempotency-Key: {word}");
    let document = json!({ "bundle": bundle }).to_string();
    runs.api
        .send("POST", "/v1/runs", &["-H", &long], document.as_bytes())
        .expect(400);
    runs.api.get("/v1/runs?state=lost").expect(400);
    runs.api.get("/v1/runs/x").expect(404);
    let list = runs.api.get("/v1/runs").expect(200).json();
    assert_eq!(list, json!({ "runs": [] }));
    assert_eq!(runs.uploads(), 0);
}

#[test]
fn a_run_is_cancelled_and_its_followers_see_the_end() {
    let runs = Runs::new();
    let id = runs.start("", "echo here; sleep 1000", &json!({}));
    let mut follower = runs.follow(&id, None);
    let cancel = format!("/v1/runs/{id}/cancel");
    runs.api.call("POST", &cancel).expect(202);
    let events = data(&mut follower, |_event| false);
    follower.wait().expect("waited");
    assert_eq!(events.last().expect("one")["outcome"], "cancelled");
    // Who has the last event finds the result.
    let run = runs.get(&id);
    assert_eq!(
        (&run["state"], &run["error"]["code"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    let again = runs.api.call("POST", &cancel).expect(409);
    assert_eq!(again.code(), "run_ended");
    runs.api
        .call("POST", "/v1/runs/00000000000000000000000000/cancel")
        .expect(404);
}

#[test]
fn a_client_that_connects_again_gets_the_events_that_it_missed() {
    let runs = Runs::new();
    let id = runs.start("", "true", &json!({}));
    runs.end(&id);
    let all = runs.events(&id, "");
    let last = all.len() - 1;
    assert!(last > 3);
    for after in 0..last {
        let rest = runs.events(&id, &format!("?after={after}"));
        assert_eq!(rest, all[after + 1..], "{after}");
    }
    // A header counts before the query, which a browser sends again.
    let mut follower = runs.follow(&id, Some(last as u64 - 1));
    assert_eq!(data(&mut follower, |_event| false), all[last..]);
    follower.wait().expect("waited");
    for query in [format!("?after={last}"), "?after=99999".to_owned()] {
        let path = format!("/v1/runs/{id}/events{query}");
        runs.api.get(&path).expect(204);
    }
    for query in [
        "?after=x",
        "?after=-1",
        "?after=99999999999999999999",
        "?before=1",
    ] {
        runs.api
            .get(&format!("/v1/runs/{id}/events{query}"))
            .expect(400);
    }
}

/// E-36: also with a run: it goes on, and its events have neither a gap nor a repeat.
#[test]
fn a_killed_server_loses_no_run_and_the_next_resumes_its_events() {
    let runs = Runs::new();
    let script = "echo before; until test -e /scratch/go; do sleep 0.02; done; echo after";
    let workspace = runs.api.host.ground.path("shared");
    std::fs::create_dir(&workspace).expect("made");
    let shared = workspace.to_str().expect("a plain path");
    let script = script.replace("/scratch/go", &format!("{shared}/go"));
    let flags = json!({ "flags": ["--ro", shared] });
    let id = runs.start("", &script, &flags);
    let mut follower = runs.follow(&id, None);
    let is_body = |event: &Value| event["event"] == "phase_started" && event["phase"] == "body";
    let mut events = data(&mut follower, is_body);
    let runs = runs.restart(|_api| ());
    follower.wait().expect("waited");
    assert_eq!(runs.get(&id)["state"], "running");
    let last = numbers(&events).last().copied();
    let mut follower = runs.follow(&id, last);
    std::fs::write(workspace.join("go"), "").expect("written");
    events.extend(data(&mut follower, |_event| false));
    follower.wait().expect("waited");
    assert_eq!(
        numbers(&events),
        (0..events.len() as u64).collect::<Vec<_>>()
    );
    assert_eq!(events.last().expect("one")["event"], "ended");
    assert_eq!(runs.end(&id)["state"], "succeeded");
    assert_eq!(events, runs.events(&id, ""));
    let logs = runs.api.get(&format!("/v1/runs/{id}/logs")).expect(200);
    assert_eq!(logs.json()["stdout"]["text"], "before\nafter\n");
}

/// A run whose process was killed is said to be interrupted, by the server that started it and by the next one; one
/// that no process began is orphaned.
#[test]
fn a_run_without_an_end_is_told_as_such() {
    let runs = Runs::new();
    let id = runs.start("", "sleep 1000", &json!({}));
    let pid = process(&runs.directory(&id)).expect("it lives");
    kill_process(pid, Signal::KILL).expect("sent");
    let run = runs.end(&id);
    assert_eq!(
        (&run["state"], &run["error"]["code"]),
        (&json!("failed"), &json!("host-interrupted"))
    );
    let events = runs.events(&id, "");
    assert_eq!(
        numbers(&events),
        (0..events.len() as u64).collect::<Vec<_>>()
    );
    let last = events.last().expect("one");
    assert_eq!(
        (&last["event"], &last["code"]),
        (&json!("error"), &json!("host-interrupted"))
    );
    let path = format!("/v1/runs/{id}/events?after={}", last["seq"]);
    runs.api.get(&path).expect(204);
    // As a server leaves it that is killed before it executes `runner exec`.
    let orphan = "01aryz6s41zzzzzzzzzzzzzzzz";
    let made = runs.directory(orphan);
    std::fs::create_dir(&made).expect("made");
    for name in ["request.json", "stderr"] {
        let from = runs.directory(&id).join(name);
        std::fs::copy(from, made.join(name)).expect("copied");
    }
    let runs = runs.restart(|_api| ());
    assert_eq!(runs.get(&id)["error"]["code"], "host-interrupted");
    let run = runs.get(orphan);
    assert_eq!(
        (&run["state"], &run["error"]["code"]),
        (&json!("failed"), &json!("orphaned"))
    );
    assert_eq!(runs.events(orphan, "")[0]["code"], "orphaned");
    let cancel = format!("/v1/runs/{orphan}/cancel");
    assert_eq!(
        runs.api.call("POST", &cancel).expect(409).code(),
        "run_ended"
    );
}

#[test]
fn the_same_key_is_one_run() {
    let runs = Runs::new();
    let document = json!({ "bundle": { "path": runs.bundle("", "true") } }).to_string();
    let post = |words: &[&str]| {
        runs.api
            .send("POST", "/v1/runs", words, document.as_bytes())
    };
    let key = ["-H", "Idempotency-Key: a key"];
    let first = post(&key).expect(201).json()["id"].clone();
    assert_eq!(post(&key).expect(200).json()["id"], first);
    assert_ne!(post(&[]).expect(201).json()["id"], first);
    // At once, of many one is the first.
    let key = ["-H", "Idempotency-Key: another"];
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6).map(|_| scope.spawn(|| post(&key))).collect();
        calls
            .into_iter()
            .map(|call| call.join().expect("joined"))
            .collect()
    });
    let created = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(created, 1, "{replies:?}");
    let ids: Vec<Value> = replies
        .iter()
        .map(|reply| reply.json()["id"].clone())
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

/// Also by a server that was started since.
#[test]
fn a_key_of_another_request_is_refused() {
    let runs = Runs::new();
    let bundle = format!("bundle=@{}", runs.bundle("", "true"));
    let other = runs.api.host.ground.write("other", "no bundle");
    let other = format!("bundle=@{}", other.display());
    let document = "run={\"args\": [\"x\"]}";
    let (one, two) = ("file.one=1", "file.two=2");
    let key = ["-H", "Idempotency-Key: a key"];
    let parts = [document, &bundle, one, two];
    let first = runs.form(&key, &parts).expect(201).json()["id"].clone();
    let check = |runs: &Runs| {
        // Each form has a boundary of its own.
        for same in [parts, [document, two, &bundle, one]] {
            assert_eq!(runs.form(&key, &same).expect(200).json()["id"], first);
        }
        for another in [
            &["run={\"args\": [\"y\"]}", &bundle, one, two][..],
            &[document, &other, one, two],
            &[document, &bundle, "file.one=2", "file.two=1"],
            &[document, &bundle, one, "file.three=2"],
            &[document, &bundle, one],
            &[&bundle, one, two],
        ] {
            let refused = runs.form(&key, another).expect(422);
            assert_eq!(refused.code(), "idempotency_key_reused", "{another:?}");
        }
        let list = runs.api.get("/v1/runs").expect(200).json();
        assert_eq!(list["runs"].as_array().map(Vec::len), Some(1), "{list}");
        assert_eq!(runs.uploads(), 0);
    };
    check(&runs);
    runs.end(first.as_str().expect("an id"));
    let runs = runs.restart(|_api| ());
    check(&runs);
    // A refused bundle is not kept.
    let bundles = std::fs::read_dir(runs.ends.0.join("bundles")).expect("there");
    assert_eq!(bundles.count(), 1);
    // A run that an older version has started has no digest, and is that of each request.
    let request = runs.directory(first.as_str().expect("an id"));
    let request = request.join("request.json");
    let text = std::fs::read_to_string(&request).expect("there");
    let mut record: Value = serde_json::from_str(&text).expect("a document");
    let record = record.as_object_mut().expect("fields");
    record.remove("request_digest").expect("one");
    std::fs::write(&request, serde_json::to_vec(record).expect("text")).expect("written");
    assert_eq!(runs.form(&key, &[&bundle]).expect(200).json()["id"], first);
}

#[test]
fn runs_are_limited_and_of_those_that_ended_the_oldest_are_removed() {
    let runs = Runs::with(&["--max-runs", "2", "--keep-runs", "3"]);
    let ids = [0; 2].map(|_| runs.start("", "sleep 1000", &json!({})));
    let document = json!({ "bundle": { "path": runs.bundle("", "true") } });
    let refused = runs.api.post("/v1/runs", &document).expect(429);
    assert_eq!(refused.code(), "too_many_runs");
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    runs.api
        .call("POST", &format!("/v1/runs/{}/cancel", ids[1]))
        .expect(202);
    runs.end(&ids[1]);
    let mut ended = Vec::new();
    for _ in 0..4 {
        // The process of the one before may need a moment after its report.
        eventually("there is a place", || {
            let list = runs.api.get("/metrics").expect(200).text();
            list.contains("runner_runs 1\n")
        });
        let id = runs.start("", "true", &json!({}));
        runs.end(&id);
        ended.push(id);
    }
    let list = runs.api.get("/v1/runs").expect(200).json();
    let listed = list["runs"].as_array().expect("a list").iter();
    let listed: Vec<&str> = listed.filter_map(|run| run["id"].as_str()).collect();
    // A run that goes on stays, and does not count.
    assert_eq!(listed, [&*ended[3], &ended[2], &ended[1], &ids[0]]);
}
