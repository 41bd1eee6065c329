//! Runs that clients or bodies want to use for something else.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::access::Tcp;
use crate::api::{reply, url};
use crate::runs::{Ends, Runs, lines};
use support::invariants::eventually;

/// keys of artifacts that are paths, and artifacts that are links or no files.
#[test]
fn a_key_names_an_artifact_of_the_report_and_nothing_else() {
    let runs = Runs::new();
    let manifest = "outputsFiles: {good: {path: deep/good.txt}, link: {path: link.txt}, directory: {path: d.txt}, \
                    fifo: {path: f.txt}}\n";
    let body = "echo good > /scratch/good\nln -s /etc/passwd /scratch/link\nmkdir /scratch/directory\n\
                mkfifo /scratch/fifo\n";
    let id = runs.start(manifest, body, &json!({}));
    let run = runs.end(&id);
    assert_eq!(
        run["artifacts"].as_array().expect("a list").len(),
        4,
        "{run}"
    );
    let artifact = |key: &str| runs.api.get(&format!("/v1/runs/{id}/artifacts/{key}"));
    assert_eq!(artifact("good").expect(200).text(), "good\n");
    for key in [
        "link",
        "directory",
        "fifo",
        "",
        "..",
        "../request.json",
        "..%2frequest.json",
        "../../x",
        "%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "deep%2fgood.txt",
        "deep/good.txt",
        "good%00",
        "good/",
    ] {
        let refused = artifact(key).expect(404);
        assert!(!refused.text().contains("root:"), "{key}");
    }
    for path in [
        "..",
        "%2e%2e",
        "%2e%2e%2fruns",
        &id.to_uppercase(),
        "..%2f..%2fhistory",
    ] {
        runs.api.get(&format!("/v1/runs/{path}")).expect(404);
        runs.api.get(&format!("/v1/runs/{path}/events")).expect(404);
    }
    // Whatever is at the path of an artifact afterwards: no link is followed, and nothing but a file is read.
    let kept = runs.directory(&id).join("artifacts/deep");
    let outside = runs.api.host.ground.write("outside", "secret");
    std::fs::remove_file(kept.join("good.txt")).expect("removed");
    std::os::unix::fs::symlink(&outside, kept.join("good.txt")).expect("linked");
    let through_link = artifact("good").expect(500);
    std::fs::remove_dir_all(&kept).expect("removed");
    let elsewhere = runs.api.host.ground.path("elsewhere");
    std::fs::create_dir(&elsewhere).expect("made");
    std::fs::write(elsewhere.join("good.txt"), "secret").expect("written");
    std::os::unix::fs::symlink(&elsewhere, &kept).expect("linked");
    for refused in [through_link, artifact("good").expect(500)] {
        assert!(!refused.text().contains("secret"), "{}", refused.text());
    }
}

/// a hostile bundle reaches nothing of the server, and its names do not leave JSON.
#[test]
fn a_hostile_bundle_finds_no_run_and_forges_no_event() {
    let runs = Runs::new();
    let state = runs.api.host.ground.path("state");
    let state = state.to_str().expect("a plain path");
    let body = format!(
        "printf '\\ndata: {{\"seq\":0,\"event\":\"ended\"}}\\n\\n\\033[2J' >&2\n\
         for number in 0 1 2 3 4 5 6 7 8 9; do\n\
         echo '{{\"seq\":1,\"event\":\"ended\",\"outcome\":\"exited\"}}' >&$number || true\n\
         done 2>/dev/null\n\
         ls {state} && exit 0\n\
         kill -9 -1; exit 7\n"
    );
    let id = runs.start("", &body, &json!({}));
    let run = runs.end(&id);
    assert_eq!(
        (&run["state"], &run["error"]["code"]),
        (&json!("failed"), &json!("driver-error"))
    );
    let path = url(&format!("/v1/runs/{id}/events"));
    let events = reply(runs.api.curl(&[&path]), None).expect(200).text();
    let sent = events.lines().filter(|line| line.starts_with("data: "));
    let ends = sent.filter(|line| line.contains("\"event\":\"ended\""));
    assert_eq!(ends.count(), 1, "{events}");
    let logs = runs.api.get(&format!("/v1/runs/{id}/logs")).expect(200);
    assert!(!logs.body.contains(&0x1b), "{}", logs.text());

    // Flags do not lead what the server has to find elsewhere.
    let elsewhere = runs.api.host.ground.path("elsewhere");
    let elsewhere = elsewhere.to_str().expect("a plain path");
    let words = ["--json", "--events", "--out-dir"].map(|flag| format!("{flag}={elsewhere}"));
    let run = runs.end(&runs.start("", "true", &json!({ "flags": words })));
    assert_eq!(run["state"], "succeeded", "{run}");
    assert!(!std::path::Path::new(elsewhere).exists());

    // What the server keeps cannot be mounted to be written.
    for path in [state.to_owned(), format!("{state}/serve/runs/{id}")] {
        let flags = json!({ "flags": ["--rw", path] });
        let run = runs.end(&runs.start("", "true", &flags));
        let reason = run["error"]["reason"].as_str().expect("a reason");
        assert!(reason.starts_with("mount_holds_"), "{run}");
    }
}

/// the body of a request is larger than allowed, or its client leaves while it sends.
#[test]
fn uploads_that_are_too_large_or_not_finished_leave_nothing() {
    let runs = Runs::with(&["--max-file", "1m"]);
    // With the form around it, and so that the client has sent nearly everything when it is refused.
    let large = runs.api.host.ground.write("large", vec![0; 1 << 20]);
    let part = format!("bundle=@{}", large.display());
    assert_eq!(runs.form(&[], &[&part]).expect(413).code(), "too_large");
    let chunked = ["-H", "Transfer-Encoding: chunked"];
    assert_eq!(
        runs.form(&chunked, &[&part]).expect(413).code(),
        "too_large"
    );
    let small = runs.bundle("", "true");
    let small = format!("bundle=@{small}");
    for parts in [
        &["run={}"][..],
        &[&small, "run={}"],
        &[&small, &small],
        &["run={}", "run={}", &small],
        &["run=x", &small],
        &["other=x", &small],
        &["file.=x", &small],
        &["file.a=x", "file.a=x", &small],
        &["file...=x", &small],
        &["file.a/b=x", &small],
    ] {
        runs.form(&[], parts).expect(400);
    }
    let head = "POST /v1/runs HTTP/1.1\r\nHost: r\r\nContent-Length: 100000\r\n\
                Content-Type: multipart/form-data; boundary=xyz\r\n\r\n\
                --xyz\r\nContent-Disposition: form-data; name=\"bundle\"; filename=\"b\"\r\n\r\nthe beginning";
    let clients = [0; 3].map(|_| {
        let mut client = UnixStream::connect(&runs.api.server.socket).expect("connected");
        client.write_all(head.as_bytes()).expect("written");
        client
    });
    eventually("their uploads have begun", || runs.uploads() == 3);
    drop(clients);
    eventually("what they sent is removed", || runs.uploads() == 0);
    // And what a killed server had received, by the next one.
    let mut client = UnixStream::connect(&runs.api.server.socket).expect("connected");
    client.write_all(head.as_bytes()).expect("written");
    eventually("its upload has begun", || runs.uploads() == 1);
    let runs = runs.restart(|_api| ());
    // It listens before.
    eventually("it is removed, too", || runs.uploads() == 0);
    let list = runs.api.get("/v1/runs").expect(200).json();
    assert_eq!(list, json!({ "runs": [] }));
}

/// a client with the token asks for more than its template, or for runs of others.
#[test]
fn clients_with_the_token_run_bundles_of_theirs_with_templates_alone() {
    let tcp = Tcp::new();
    let _ends = Ends::new(&tcp.api);
    let bundle = tcp.api.host.ground.script("run: body.sh\n", "echo mine\n");
    let bundle = bundle.to_str().expect("a plain path");
    let upload = format!("bundle=@{bundle}");
    let form = |document: &Value| {
        let run = format!("run={document}");
        tcp.with_token(&["-F", &run, "-F", &upload], "/v1/runs")
    };
    let short = json!({ "template": "short" });
    for (document, code) in [
        (json!({}), "template_needed"),
        (json!({ "template": "other" }), "no_template"),
        // Of sandboxes.
        (json!({ "template": "small" }), "no_template"),
        (
            json!({ "template": "short", "flags": ["--rw", "/etc"] }),
            "template_only",
        ),
        (
            json!({ "template": "short", "bundle": { "path": bundle } }),
            "template_only",
        ),
    ] {
        let refused = form(&document).expect(403);
        assert_eq!(refused.code(), code, "{document}");
        if code == "template_only" {
            assert!(refused.text().contains("`short`"), "{}", refused.text());
        }
    }
    // Without a part `run` there is no template.
    let refused = tcp.with_token(&["-F", &upload], "/v1/runs").expect(403);
    assert_eq!(refused.code(), "template_needed");
    let broken = form(&json!({ "template": "broken" })).expect(400);
    assert_eq!(broken.code(), "usage");

    // Runs and bundles of the owner are not theirs.
    let path = json!({ "bundle": { "path": bundle } });
    let owned = tcp.api.post("/v1/runs", &path).expect(201).json();
    let other = tcp
        .api
        .host
        .ground
        .script("run: body.sh\n", "echo of the owner\n");
    let other = format!("bundle=@{}", other.display());
    let mut curl = tcp.api.curl(&["-F", &other]);
    curl.arg(url("/v1/runs"));
    let uploaded = reply(curl, None).expect(201).json();
    let mut foreign = short.clone();
    foreign["bundle"] = json!({ "digest": uploaded["bundle"] });
    let refused = tcp.with_token(&["-d", &foreign.to_string()], "/v1/runs");
    assert_eq!(refused.expect(404).code(), "no_bundle");
    for run in [owned, uploaded] {
        let id = run["id"].as_str().expect("an id");
        for (method, rest) in [
            ("GET", ""),
            ("GET", "/events"),
            ("GET", "/logs"),
            ("GET", "/artifacts/x"),
            ("POST", "/cancel"),
        ] {
            let path = format!("/v1/runs/{id}{rest}");
            let refused = tcp.with_token(&["-X", method], &path).expect(404);
            assert_eq!(refused.code(), "no_run", "{path}");
        }
    }
    // The same key of another kind of client is another run.
    let key = ["-H", "Idempotency-Key: one"];
    let of_owner = tcp
        .api
        .send("POST", "/v1/runs", &key, path.to_string().as_bytes());
    of_owner.expect(201);
    let run = format!("run={short}");
    let words = [&key[..], &["-F", &run, "-F", &upload]].concat();
    let mine = tcp.with_token(&words, "/v1/runs").expect(201).json();
    let id = mine["id"].as_str().expect("an id");
    let path = format!("/v1/runs/{id}/events");
    let followed = tcp.with_token(&["-H", "Accept: application/x-ndjson"], &path);
    let events = lines(&followed.expect(200).text());
    assert_eq!(events.last().expect("one")["outcome"], "exited");
    let list = tcp.with_token(&[], "/v1/runs").expect(200).json();
    assert_eq!(list["runs"].as_array().expect("a list").len(), 1, "{list}");
    // The owner sees all.
    let list = tcp.api.get("/v1/runs").expect(200).json();
    assert_eq!(list["runs"].as_array().expect("a list").len(), 4, "{list}");
}
