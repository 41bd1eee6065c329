//! What strangers put into the stream and its buckets.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::queue::{Queue, STREAM, script};
use support::invariants::eventually;

/// A-91.
#[test]
fn messages_that_are_no_requests_are_refused_and_kept() {
    let queue = Queue::start();
    let _worker = queue.worker("one", &[]);
    let mut client = queue.client();
    let zeros = format!("sha256:{}", "0".repeat(64));
    let cases = [
        ("empty", String::new()),
        ("text", "rm -rf /".to_owned()),
        (
            "unknown",
            format!(r#"{{"bundle":"{zeros}","flags":["--net","host"]}}"#),
        ),
        (
            "key",
            format!(r#"{{"bundle":"{zeros}","input_files":{{"../x":"{zeros}"}}}}"#),
        ),
        ("deep", "[".repeat(100_000)),
    ];
    for (id, content) in &cases {
        client.publish(&format!("{STREAM}.run.{id}"), content.as_bytes());
    }
    for (id, _) in &cases {
        let result = queue.result(id);
        assert_eq!(result["error"]["code"], "invalid-input", "{result}");
    }
    assert_eq!(client.messages("t-dead"), cases.len() as u64);
}

/// A-91.
#[test]
fn a_subject_that_is_no_id_is_kept_and_acknowledged() {
    let queue = Queue::start();
    let _worker = queue.worker("one", &[]);
    let mut client = queue.client();
    client.publish(&format!("{STREAM}.run.$(id)"), b"{}");
    client.publish(&format!("{STREAM}.run.{}", "x".repeat(200)), b"{}");
    eventually("both are dead letters", || {
        queue.client().messages("t-dead") == 2
    });
    eventually("they are acknowledged", || {
        queue.client().messages(STREAM) == 0
    });
}

/// A-91.
#[test]
fn a_digest_that_names_nothing_or_something_else_ends_the_run_alone() {
    let queue = Queue::start();
    let worker = queue.worker("one", &["--max-file", "64k"]);
    let mut client = queue.client();
    let zeros = format!("sha256:{}", "0".repeat(64));
    client.publish(
        "t.run.missing",
        format!(r#"{{"bundle":"{zeros}"}}"#).as_bytes(),
    );
    let result = queue.result("missing");
    assert_eq!(result["error"]["code"], "invalid-input", "{result}");
    // Too large, and so not fetched whole.
    let large = queue.ground.write("large", vec![7; 1 << 20]);
    queue.submit("large", &large, &[]);
    let result = queue.result("large");
    assert!(
        result["error"]["message"]
            .as_str()
            .expect("text")
            .contains("--max-file"),
        "{result}"
    );
    // Other content below the name of a digest: the meta data of an object is a message that can be written again.
    let bundle = script(&queue.ground, "echo expected");
    queue.submit("whole", &bundle, &[]);
    assert_eq!(queue.result("whole")["state"], "succeeded");
    let other = script(&queue.ground, "echo forged");
    swap(&queue, &bundle, &other);
    drop(worker);
    let _empty_cache = queue.worker("other", &[]);
    client.publish("t.run.forged", request_of(&bundle).as_bytes());
    let result = queue.result("forged");
    assert_eq!(result["error"]["code"], "invalid-input", "{result}");
    assert!(
        result["error"]["message"]
            .as_str()
            .expect("text")
            .contains("other content"),
        "{result}"
    );
}

/// A-91.
#[test]
fn a_worker_executes_only_bundles_that_its_flags_name() {
    let queue = Queue::start();
    let named = script(&queue.ground, "echo named");
    let other = script(&queue.ground, "echo other");
    let _worker = queue.worker("one", &["--bundle", &digest(&named)]);
    queue.submit("named", &named, &[]);
    queue.submit("other", &other, &[]);
    assert_eq!(queue.result("named")["state"], "succeeded");
    let result = queue.result("other");
    assert_eq!(result["error"]["code"], "invalid-input", "{result}");
    let message = result["error"]["message"].as_str().expect("text");
    assert!(
        message.contains(&digest(&other)) && message.contains("--bundle"),
        "{message}"
    );
    assert_eq!(result["report"], serde_json::Value::Null, "{result}");
}

/// A-91.
#[test]
fn outputs_of_a_forged_result_do_not_leave_the_directory() {
    let queue = Queue::start();
    drop(queue.worker("makes-the-stream", &[]));
    let digest = digest(&queue.ground.write("file", "forged"));
    let artifact = format!(r#"{{"key":"k","path":"../escaped","digest":"{digest}","bytes":6}}"#);
    let result = format!(
        r#"{{"id":"forged","state":"succeeded","error":null,"worker":"","deliveries":1,
            "report":null,"stdout":null,"stderr":null,"artifacts":[{artifact}]}}"#
    );
    queue
        .client()
        .publish("$KV.t-runs.forged", result.as_bytes());
    let outputs = queue.ground.path("outputs");
    let output = queue.run(&[
        "result",
        "--out-dir",
        outputs.to_str().expect("plain"),
        "forged",
    ]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(!queue.ground.path("escaped").exists());
}

#[test]
fn a_mistake_of_the_command_line_is_named() {
    let queue = Queue::start();
    for (words, said) in [
        (&["submit", "missing.tar.gz"][..], "missing.tar.gz"),
        (&["submit", "/tmp"], "`runner bundle"),
        (&["submit", "--id", "a.b", "x"], "letters, digits"),
        (&["submit", "--inputs", "{", "Cargo.toml"], "expected JSON"),
        (&["result", "none"], "`runner worker --stream t` makes it"),
        (&["worker", "--metrics", "0.0.0.0:1"], "loopback"),
        (&["worker", "--nats", "nats://127.0.0.1:1"], "NATS_URL"),
        (&["worker", "--", "--memry", "1g"], "--memry"),
        (&["worker", "--", "--memory", "lots"], "lots"),
    ] {
        let output = queue.run(words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {stderr}");
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
}

fn digest(path: &std::path::Path) -> String {
    let output = Command::new("sha256sum")
        .arg(path)
        .output()
        .expect("started");
    format!("sha256:{}", &String::from_utf8_lossy(&output.stdout)[..64])
}

fn request_of(bundle: &std::path::Path) -> String {
    format!(r#"{{"bundle":"{}"}}"#, digest(bundle))
}

/// A-91.
#[test]
fn an_object_that_is_a_link_to_itself_ends_the_run_alone() {
    let queue = Queue::start();
    let worker = queue.worker("one", &[]);
    let name = format!("sha256:{}", "7".repeat(64));
    let link = format!(r#"{{"bucket":"t-bundles","name":"{name}"}}"#);
    let info = format!(
        r#"{{"name":"{name}","bucket":"t-bundles","nuid":"x","size":1,"chunks":1,"options":{{"link":{link}}}}}"#
    );
    let mut client = queue.client();
    let subject = format!("$O.t-bundles.M.{}", base64url(name.as_bytes()));
    client.publish(&subject, info.as_bytes());
    client.publish("t.run.link", format!(r#"{{"bundle":"{name}"}}"#).as_bytes());
    let result = queue.result("link");
    assert_eq!(result["error"]["code"], "invalid-input", "{result}");
    queue.submit("after", &script(&queue.ground, "true"), &[]);
    assert_eq!(
        queue.result("after")["state"],
        "succeeded",
        "{}",
        worker.said()
    );
}

/// Gives the object of `bundle` the content of `other`, as one does who may write to the bucket.
fn swap(queue: &Queue, bundle: &std::path::Path, other: &std::path::Path) {
    let mut client = queue.client();
    let content = std::fs::read(other).expect("read");
    client.publish("$O.t-bundles.C.forged", &content);
    let (name, found) = (digest(bundle), digest(other));
    let raw: Vec<u8> = (0..32)
        .map(|at| u8::from_str_radix(&found[7 + 2 * at..9 + 2 * at], 16).expect("digits"))
        .collect();
    let info = format!(
        r#"{{"name":"{name}","bucket":"t-bundles","nuid":"forged","size":{},"chunks":1,"digest":"SHA-256={}"}}"#,
        content.len(),
        base64url(&raw),
    );
    client.publish(
        &format!("$O.t-bundles.M.{}", base64url(name.as_bytes())),
        info.as_bytes(),
    );
}

fn base64url(bytes: &[u8]) -> String {
    let mut command = Command::new("basenc");
    command.args(["--base64url", "-w0"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let stdin = child.stdin.take().expect("piped");
    { stdin }.write_all(bytes).expect("written");
    let output = child.wait_with_output().expect("waited");
    String::from_utf8(output.stdout).expect("text")
}
