//! The schemas in an editor: yaml-language-server of npm, over its standard streams.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use support::packages::{has, prepared, succeed, tool};
use support::runner;

/// The last versions of which Node 20 is enough.
const SERVER: &str = "yaml-language-server@1.25.0";

/// The line at the top of a document, as docs/editors.md shows it.
fn modeline(schema: &str) -> String {
    let line = format!("# yaml-language-server: $schema=./{schema}.schema.json\n");
    let page = include_str!("../../docs/editors.md");
    assert!(schema != "manifest" || page.contains(&line), "{page}");
    line
}

/// The answers of the server to requests about files of `directory`. `None`, with a printed skip: the server
/// cannot be installed.
fn answers(directory: &Path, requests: &[Value]) -> Option<Vec<Value>> {
    if !has("node") || !has("npm") {
        return None;
    }
    let server = prepared("yaml-language-server-1", |folder| {
        let mut npm = tool("npm");
        npm.args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ]);
        succeed(npm.arg(SERVER).current_dir(folder)).map(|_said| ())
    })?;
    let client = include_str!("../bodies/editor/client.py");
    let mut child = Command::new("python3")
        .args(["-c", client])
        .arg(directory)
        .arg("node")
        .arg(server.join("node_modules/yaml-language-server/bin/yaml-language-server"))
        .arg("--stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let lines: String = requests
        .iter()
        .map(|request| format!("{request}\n"))
        .collect();
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(lines.as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("the client ends");
    assert!(output.status.success(), "{:?}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    let answers = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>();
    Some(answers.expect("JSON"))
}

#[test]
fn an_editor_shows_what_is_wrong_and_completes_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("written");
    };
    for schema in ["manifest", "config"] {
        let output = Command::new(runner()).args(["schema", schema]).output();
        let text = String::from_utf8(output.expect("the runner starts").stdout).expect("text");
        write(&format!("{schema}.schema.json"), &text);
    }
    let good = "name: hello\nrun: [sh, main.sh]\nrunner:\n  limits:\n    memory_mb: 64\nnetwork:\n  \
                egress: [api.example.com]\n";
    let bad = "name: hello\nrun: [sh, main.sh]\nmemroy: 1\nrunner: {limits: {memory_mb: much}}\n";
    let half = "name: hello\nrunner:\n  limits:\n    me\n";
    for (name, schema, text) in [
        ("good.yaml", "manifest", good),
        ("bad.yaml", "manifest", bad),
        ("half.yaml", "manifest", half),
        ("config.yaml", "config", "maxima:\n  memory: 1g\n"),
        ("wrong.yaml", "config", "maxima:\n  memroy: 1g\n"),
    ] {
        write(name, &(modeline(schema) + text));
    }
    let found = answers(
        directory.path(),
        &[
            json!({"file": "good.yaml"}),
            json!({"file": "bad.yaml"}),
            json!({"file": "half.yaml", "line": 4, "character": 6}),
            json!({"file": "config.yaml"}),
            json!({"file": "wrong.yaml"}),
        ],
    );
    let Some(found) = found else {
        return;
    };
    let lines = |answer: &Value| -> Vec<u64> {
        let list = answer["diagnostics"].as_array().expect("a list").iter();
        let mut lines: Vec<u64> = list.filter_map(|one| one[0].as_u64()).collect();
        lines.sort_unstable();
        lines
    };
    let [good, bad, half, config, wrong] = &found[..] else {
        panic!("five answers, found {found:?}");
    };
    assert_eq!((lines(good), lines(config)), (vec![], vec![]), "{found:#?}");
    assert_eq!(lines(bad), [3, 4], "{bad:#}");
    assert!(bad.to_string().contains("memroy"), "{bad:#}");
    assert_eq!(lines(wrong), [2], "{wrong:#}");
    let labels = half["completions"].as_array().expect("a list");
    assert!(labels.contains(&json!("memory_mb")), "{half:#}");
    // What the editor accepts and refuses, `check` does too.
    for (name, code) in [("good.yaml", 0), ("bad.yaml", 125)] {
        std::fs::write(directory.path().join("main.sh"), "").expect("written");
        let status = Command::new(runner())
            .arg("check")
            .arg(directory.path().join(name))
            .stdout(Stdio::null())
            .status();
        assert_eq!(
            status.expect("the runner starts").code(),
            Some(code),
            "{name}"
        );
    }
}
