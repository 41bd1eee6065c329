//! `runner check`: every error of a manifest, of its blocks and of the code-workspaces below it.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::process::Command;

use serde_json::Value;

use support::{Ground, runner};

/// Writes files below the workspace of the case.
fn write(ground: &Ground, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = ground.workspace().join(path);
        let folder = path.parent().expect("a folder");
        std::fs::create_dir_all(folder).expect("made");
        std::fs::write(&path, text).expect("written");
    }
}

/// The exit code and standard output of `runner check`, which prints nothing on standard error.
fn checked(ground: &Ground, words: &[&str]) -> (i32, String) {
    let output = Command::new(runner())
        .arg("check")
        .args(words)
        .env_remove("RUNNER_OPT_WORKSPACE")
        .env("HOME", "/nonexistent")
        .env("RUNNER_TEST_CANARY_SECRET", ground.canary())
        .current_dir(ground.workspace())
        .output()
        .expect("the runner starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "", "{words:?}");
    let stdout = String::from_utf8(output.stdout).expect("text");
    (output.status.code().expect("an exit code"), stdout)
}

/// The document of `--json`, validated with its published schema.
fn document(ground: &Ground, words: &[&str]) -> Value {
    let (code, text) = checked(ground, &[words, &["--json"]].concat());
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let schema = Command::new(runner()).args(["schema", "check"]).output();
    let schema = serde_json::from_slice(&schema.expect("a schema").stdout).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, [""; 0], "{text}");
    assert_eq!(document["valid"], Value::from(code == 0), "{text}");
    assert!(code == 0 || code == 125);
    document
}

/// `file:line:column pointer code` of each error.
fn told(document: &Value) -> Vec<String> {
    let errors = document["errors"].as_array().expect("a list");
    let word = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    errors
        .iter()
        .map(|error| {
            let [file, line, column, pointer, code] =
                ["file", "line", "column", "pointer", "code"].map(|key| word(&error[key]));
            format!("{file}:{line}:{column} {pointer} {code}")
        })
        .collect()
}

#[test]
fn a_manifest_without_errors_is_ok_with_its_warnings() {
    let ground = Ground::new();
    write(
        &ground,
        &[(
            "tool/manifest.yaml",
            "name: hello\nrun: main.py\nsandbox: {provider: local}\nmetadata: {x: 1}\n",
        )],
    );
    write(&ground, &[("tool/main.py", "")]);
    let (code, text) = checked(&ground, &["tool"]);
    assert_eq!(code, 0);
    assert_eq!(
        text,
        "warning: tool/manifest.yaml:3:10 at /sandbox: `config` is missing: `{}` is assumed \
         (config_missing)\nok: hello, 1 warning\n"
    );
    let (code, text) = checked(&ground, &["tool", "-v"]);
    assert!(code == 0 && text.contains("ignored: /metadata\n"), "{text}");
    assert_eq!(checked(&ground, &["tool", "-q"]), (0, String::new()));
    let document = document(&ground, &["tool/manifest.yaml"]);
    assert_eq!(document["name"], "hello");
    assert_eq!(document["ignored"], serde_json::json!(["/metadata"]));
    assert_eq!(document["warnings"][0]["code"], "config_missing");
}

#[test]
fn all_errors_are_reported_at_once_with_position_and_hint() {
    let ground = Ground::new();
    write(
        &ground,
        &[(
            "manifest.yaml",
            "run: main.py\nrunner: {engin: sandbox, limits: {memory_mb: 0}}\n\
             network: {egress: ['http://a']}\ninputs: {type: strin}\n",
        )],
    );
    let (code, text) = checked(&ground, &["."]);
    assert_eq!(code, 125);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..6],
        [
            "manifest.yaml:2:10: found the key `engin`, expected one of engine, image, needs, \
             limits (unknown_key)",
            "  |",
            "2 | runner: {engin: sandbox, limits: {memory_mb: 0}}",
            "  |          ^",
            "    at /runner/engin",
            "    hint: did you mean `engine`?",
        ],
        "{text}"
    );
    assert!(text.ends_with("refused: 4 errors, 0 warnings\n"), "{text}");
    assert_eq!(
        told(&document(&ground, &["."])),
        [
            "manifest.yaml:2:10 /runner/engin unknown_key",
            "manifest.yaml:2:46 /runner/limits/memory_mb out_of_range",
            "manifest.yaml:3:20 /network/egress/0 egress_invalid",
            "manifest.yaml:4:16 /inputs/type schema_invalid",
        ]
    );
}

/// The line with a caret, as each verb prints it.
const CARET: &str = "  |\n2 | runner: {engin: sandbox}\n  |          ^\n";

/// What a verb prints on both streams, without the prefix of messages.
fn printed(ground: &Ground, words: &[&str]) -> String {
    let output = Command::new(runner())
        .args(words)
        .env("HOME", "/nonexistent")
        .env("RUNNER_OPT_NO_RECORD", "yes")
        .current_dir(ground.workspace())
        .output()
        .expect("the runner starts");
    assert_eq!(output.status.code(), Some(125), "{words:?}");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("text");
    let lines = text.lines();
    let lines = lines.map(|line| line.strip_prefix("runner: ").unwrap_or(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// G-20.
#[test]
fn each_verb_that_refuses_a_manifest_shows_its_line_with_a_caret() {
    let ground = Ground::new();
    let bad = "run: main.py\nrunner: {engin: sandbox}\n";
    let good = "run: main.py\n";
    write(
        &ground,
        &[
            ("bad/manifest.yaml", bad),
            ("bad/main.py", ""),
            ("good/manifest.yaml", good),
            ("good/main.py", ""),
            ("own.yaml", bad),
            (
                "block/manifest.yaml",
                "run: main.py\nrunner: {file: RUNNER.md}\n",
            ),
            ("block/RUNNER.md", "---\nengin: sandbox\n---\n"),
            ("block/main.py", ""),
            ("policy.yaml", "maxima:\n  memroy: 1g\n"),
            (
                "code/manifest.yaml",
                "run: main.py\ncode: {sources: [{local: gone}]}\n",
            ),
        ],
    );
    let archive = ground.path("bad.tar.gz");
    let tar = Command::new("tar")
        .args(["-czf", archive.to_str().expect("a path"), "-C"])
        .arg(ground.workspace().join("bad"))
        .arg(".")
        .status();
    assert!(tar.expect("tar runs").success());
    let archive = archive.to_str().expect("a path");
    for words in [
        &["check", "bad"][..],
        &["bundle", "bad", "--list"],
        &["exec", "bad"],
        &["exec", archive],
        &["plan", "bad"],
        &["plan", archive],
        &["plan", "bad/manifest.yaml"],
        &["why", "--path", "/x", "bad"],
        &["exec", "--manifest", "own.yaml", "good"],
    ] {
        let text = printed(&ground, words);
        assert!(text.contains(CARET), "{words:?}\n{text}");
    }
    for words in [
        &["check", "block"][..],
        &["exec", "block"],
        &["bundle", "block", "--list"],
        &["exec", "--manifest", "block/manifest.yaml", "good"],
    ] {
        let text = printed(&ground, words);
        let caret = "  |\n2 | engin: sandbox\n  | ^\n";
        assert!(text.contains(caret), "{words:?}\n{text}");
    }
    for words in [
        &["check", "good", "--policy", "policy.yaml"][..],
        &["exec", "good", "--policy", "policy.yaml"],
        &["run", "--policy", "policy.yaml", "--", "true"],
    ] {
        let text = printed(&ground, words);
        let caret = "  |\n2 |   memroy: 1g\n  |   ^\n";
        assert!(text.contains(caret), "{words:?}\n{text}");
    }
    for words in [&["check", "code"][..], &["bundle", "code", "--list"]] {
        let text = printed(&ground, words);
        let caret = "  |\n2 | code: {sources: [{local: gone}]}\n  |                  ^\n";
        assert!(text.contains(caret), "{words:?}\n{text}");
    }
    // The documents for programs stay as they are.
    let document = document(&ground, &["bad"]);
    let keys: Vec<&String> = document["errors"][0]
        .as_object()
        .expect("a map")
        .keys()
        .collect();
    assert_eq!(keys.len(), 7, "{keys:?}");
}

/// G-20.
#[test]
fn a_line_of_a_hostile_manifest_is_escaped_and_cut() {
    let ground = Ground::new();
    let filler = "x".repeat(1 << 18);
    write(
        &ground,
        &[
            (
                "control/manifest.yaml",
                "run: main.py\nname: a\u{1b}[31m\u{7}: [\n",
            ),
            (
                "bidi/manifest.yaml",
                "run: main.py\n\u{202e}\u{200b}emaN: 1\n",
            ),
            (
                "long/manifest.yaml",
                &format!("run: main.py\nz: [{filler}, }} {filler}]\n"),
            ),
            ("wide/manifest.yaml", "run: main.py\n漢字: 1\n"),
        ],
    );
    for case in ["control", "bidi", "long", "wide"] {
        write(&ground, &[(&format!("{case}/main.py"), "")]);
        for verb in ["check", "exec"] {
            let text = printed(&ground, &[verb, case]);
            assert!(text.contains("2 | "), "{case}: {text}");
            let is_bad = |sign: char| {
                sign != '\n' && (sign.is_control() || matches!(sign, '\u{202e}' | '\u{200b}'))
            };
            assert!(!text.contains(is_bad), "{case}: {text:?}");
            assert!(text.len() < 2_000, "{case}: {} bytes", text.len());
        }
    }
    let text = printed(&ground, &["check", "wide"]);
    assert!(text.contains("2 | 漢字: 1\n  | ^\n"), "{text}");
}

#[test]
fn a_line_with_a_credential_is_not_shown() {
    let ground = Ground::new();
    for (manifest, code) in [
        (
            "run: main.py\nrunner: {api_key: hunter2hunter2, x: 1}\n",
            "unknown_key",
        ),
        (
            "run: main.py\nname: {x: 1}\nmetadata: {token: hunter2hunter2\n",
            "manifest_syntax",
        ),
        ("run: main.py\nfoo: [ghp_hunter2hunter2]\n", "unknown_key"),
        (
            "run: main.py\nsecrets: {A: hunter2hunter2}\nfoo: [hunter2]\n",
            "plaintext_credential",
        ),
    ] {
        write(&ground, &[("manifest.yaml", manifest), ("main.py", "")]);
        for verb in ["check", "exec", "bundle"] {
            let words: &[&str] = match verb {
                "bundle" => &["bundle", ".", "--list"],
                verb => &[verb, "."],
            };
            let text = printed(&ground, words);
            assert!(text.contains(code), "{manifest}{text}");
            assert!(!text.contains("hunter2"), "{verb} {manifest}{text}");
        }
    }
}

#[test]
fn warnings_are_printed_also_if_there_are_errors() {
    let ground = Ground::new();
    let manifest = "run: main.py\nruntime: {mode: other}\n";
    write(&ground, &[("manifest.yaml", manifest)]);
    let (_, text) = checked(&ground, &["."]);
    assert!(text.contains("(deprecated_runtime)"), "{text}");
    assert!(text.ends_with("refused: 1 error, 1 warning\n"), "{text}");
}

#[test]
fn blocks_are_read_beside_the_file_that_names_them_and_from_the_registry() {
    let ground = Ground::new();
    let registered = ground.workspace().join("host/SANDBOX.md");
    let policy = ground.workspace().join("host/policy.yaml");
    write(
        &ground,
        &[
            (
                ".code/search/CODE.md",
                "---\nschema: code/v2\nid: '@acme/code/search'\nsource: {local: ./search.py}\n\
                 run: python search.py\nrunner: {ref: ./RUNNER.md}\n\
                 driver: {ref: ./DRIVER.md}\nsandbox: {ref: '@agentik/python-mcp'}\n\
                 secrets: {ref: ../SECRETS.md}\nidentity: {ref: 'operator://current'}\n---\nText\n",
            ),
            (
                ".code/search/RUNNER.md",
                "---\nengine: subprocess\nlimits: {cpu_ms: soon}\n---\n",
            ),
            (".code/SECRETS.md", "---\nsecrets: [{name: x}]\n---\n"),
            (
                "host/SANDBOX.md",
                "---\nschema: sandbox/v1\nprovider: local\nconfig: {shel: /bin/sh}\n---\n",
            ),
            (
                "host/policy.yaml",
                &format!(
                    "refs: {{'@agentik/python-mcp': {}}}\n",
                    registered.display()
                ),
            ),
        ],
    );
    let flag = format!("--policy={}", policy.display());
    let found = told(&document(&ground, &["search", "--workspace", ".", &flag]));
    assert_eq!(
        found,
        [
            ".code/search/RUNNER.md:3:18 /limits/cpu_ms wrong_type".to_owned(),
            format!("{}:4:10 /config/shel unknown_key", registered.display()),
            ".code/SECRETS.md:2:11 /secrets/0 missing_key".to_owned(),
        ]
    );
    let without = told(&document(&ground, &[".code/search", "--workspace", "."]));
    assert!(
        without.contains(&".code/search/CODE.md:8:16 /sandbox/ref sandbox_ref_unresolvable".into()),
        "{without:?}"
    );
}

#[test]
fn no_block_is_read_from_outside_the_workspace() {
    let ground = Ground::new();
    let secret = ground.workspace().parent().expect("a folder").join("R.md");
    std::fs::write(&secret, "---\nengine: hunter2\n---\n").expect("written");
    std::os::unix::fs::symlink(&secret, ground.workspace().join("link.md")).expect("linked");
    for reference in [
        "../R.md",
        "./link.md",
        "/etc/passwd",
        "./nothing.md",
        "./folder.md",
    ] {
        write(
            &ground,
            &[
                ("folder.md/x", ""),
                (
                    "m.yaml",
                    &format!("run: x\nrunner: {{file: '{reference}'}}\n"),
                ),
            ],
        );
        let document = document(&ground, &["m.yaml"]);
        assert_eq!(
            told(&document),
            ["m.yaml:2:16 /runner/file runner_ref_unresolvable"],
            "{reference}"
        );
        assert!(!document.to_string().contains("hunter2"), "{reference}");
    }
}

#[test]
fn the_code_workspaces_below_are_read_too() {
    let ground = Ground::new();
    write(
        &ground,
        &[
            (
                "tool.yaml",
                "run: tool.py\ncode: {sources: [{ref: a}, {ref: b}, {ref: gone}, {ref: tool}]}\n",
            ),
            (
                "a/manifest.yaml",
                "kind: code-workspace\ncode: ./c\nnme: x\n",
            ),
            (
                "b/manifest.yaml",
                "kind: code-workspace\ncode: ./c\nrunner: {engine: vm}\n",
            ),
            ("c/manifest.yaml", "kind: code-workspace\nversion: 1\n"),
            ("tool/manifest.yaml", "run: x\n"),
        ],
    );
    assert_eq!(
        told(&document(&ground, &["tool.yaml"])),
        [
            "a/manifest.yaml:3:1 /nme unknown_key",
            "c/manifest.yaml:2:10 /version wrong_type",
            "b/manifest.yaml:3:18 /runner/engine unknown_value",
            "tool.yaml:2:44 /code/sources/2 source_missing",
            "tool.yaml:2:57 /code/sources/3 source_not_code_workspace",
        ]
    );
}

#[test]
fn circles_and_contradictions_between_manifests_are_errors() {
    let ground = Ground::new();
    write(
        &ground,
        &[
            ("a/manifest.yaml", "kind: code-workspace\ncode: ./b\n"),
            (
                "b/manifest.yaml",
                "kind: code-workspace\ncode: {sources: [{ref: a}]}\n",
            ),
            ("self/manifest.yaml", "kind: code-workspace\ncode: ./self\n"),
            (
                "node/manifest.yaml",
                "kind: code-workspace\nrunner: {needs: {language: node}}\n",
            ),
            ("tool.yaml", "run: tool.py\ncode: ./node\n"),
        ],
    );
    let circle = document(&ground, &["a"]);
    assert_eq!(
        told(&circle),
        ["b/manifest.yaml:2:24 /code/sources/0 code_cycle"]
    );
    let message = circle["errors"][0]["message"].as_str().expect("text");
    assert!(message.contains("a → b → a"), "{message}");
    assert_eq!(
        told(&document(&ground, &["self"])),
        ["self/manifest.yaml:2:7 /code code_cycle"]
    );
    assert_eq!(
        told(&document(&ground, &["tool.yaml"])),
        ["tool.yaml:-:- /run needs_contradict_run"]
    );
}

#[test]
fn a_reference_that_can_be_moved_is_refused_where_pins_are_asked_for() {
    let ground = Ground::new();
    let sha = "0123456789abcdef0123456789abcdef01234567";
    write(
        &ground,
        &[(
            "manifest.yaml",
            &format!(
                "run: x.py\ncode:\n  sources:\n  - github: {{repo: a/b, ref: main}}\n  \
                 - github: {{repo: a/b, ref: {sha}}}\n  - github: {{repo: a/c, ref: v1}}\n"
            ),
        )],
    );
    assert_eq!(told(&document(&ground, &["."])), [""; 0]);
    assert_eq!(
        told(&document(&ground, &[".", "--require-pin"])),
        [
            "manifest.yaml:4:30 /code/sources/0 pin_required",
            "manifest.yaml:6:30 /code/sources/2 pin_required"
        ]
    );
}

#[test]
fn an_unreadable_document_is_an_error_like_any_other() {
    let ground = Ground::new();
    write(&ground, &[("broken.yaml", "a: [\n"), ("empty/x", "")]);
    let codes = |words: &[&str]| {
        let document = document(&ground, words);
        let code = document["errors"][0]["code"].clone();
        assert!(document["errors"][0]["message"].is_string());
        code.as_str().expect("text").to_owned()
    };
    assert_eq!(codes(&["broken.yaml"]), "manifest_syntax");
    assert_eq!(codes(&["nothing/m.yaml"]), "manifest_missing");
    assert_eq!(codes(&["empty"]), "manifest_missing");
    assert_eq!(
        codes(&["nothing", "--workspace", "."]),
        "workspace_not_found"
    );
    let (code, text) = checked(&ground, &["broken.yaml"]);
    assert!(code == 125 && text.starts_with("broken.yaml:"), "{text}");
}

#[test]
fn common_mistakes_in_a_first_manifest_get_a_suggestion() {
    let ground = Ground::new();
    let list = "name: a\nrun: a\nfrobnicate: 1\ncode:\n  - local: src\n";
    let elsewhere = "name: b\nrun: a\ncode: {sources: [{ref: ./lib}]}\n";
    write(
        &ground,
        &[("a.yaml", list), ("tool/manifest.yaml", elsewhere)],
    );
    let hints = |words: &[&str]| {
        let document = document(&ground, words);
        let errors = document["errors"].as_array().expect("a list").clone();
        let hints = errors.iter().map(|error| error["hint"].clone());
        hints
            .map(|hint| hint.as_str().unwrap_or_default().to_owned())
            .collect::<Vec<String>>()
    };
    assert_eq!(
        hints(&["a.yaml"]),
        [
            "`runner schema manifest` lists them",
            "write the list under the key `sources`"
        ]
    );
    let hint = hints(&["tool"]).concat();
    assert!(hint.contains("not to `tool/manifest.yaml`"), "{hint}");
    let hint = hints(&["nothing"]).concat();
    assert!(hint.contains("the path of a manifest"), "{hint}");
}

#[test]
fn the_flood_of_a_hostile_graph_is_bounded() {
    let ground = Ground::new();
    let wrong: String = (0..500).map(|index| format!("wrong{index}: 1\n")).collect();
    let names: Vec<String> = (0..50).map(|index| format!("{{ref: w{index}}}")).collect();
    for index in 0..50 {
        let path = format!("w{index}/manifest.yaml");
        write(
            &ground,
            &[(&path, &format!("kind: code-workspace\n{wrong}"))],
        );
    }
    let text = format!("run: x\ncode: {{sources: [{}]}}\n", names.join(", "));
    write(&ground, &[("m.yaml", &text)]);
    let document = document(&ground, &["m.yaml"]);
    let errors = document["errors"].as_array().expect("a list");
    assert!(errors.len() <= 210, "{}", errors.len());
    assert_eq!(errors.last().expect("an error")["code"], "more_errors");
}

#[test]
fn check_and_bundle_find_what_exec_refuses() {
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let source = |reference: &str| {
        format!("run: tool.py\nworkspaceSources: [{{id: a, ref: '{reference}', mountPath: /d}}]\n")
    };
    let rows = [
        (
            "run: tol.py\n".to_owned(),
            "manifest.yaml:1:6 /run run_target_missing",
            "did you mean `tool.py`?",
        ),
        (
            "name: x\nrun: {file: tool.rb}\n".to_owned(),
            "manifest.yaml:2:6 /run run_target_missing",
            "did you mean `tool.py`?",
        ),
        (
            "run: tool.py\nrunner: {engine: sandbox, image: minimal-pyton}\n".to_owned(),
            "manifest.yaml:2:34 /runner/image image_unknown",
            "did you mean `minimal-python`?",
        ),
        (
            source("r.test/a/b@sha256:abc"),
            "manifest.yaml:2:33 /workspaceSources/0/ref source_reference_invalid",
            "the digest is not `sha256:` and 64 lower-case hexadecimal digits",
        ),
        (
            source("backend:1"),
            "manifest.yaml:2:33 /workspaceSources/0/ref source_reference_invalid",
            "it names no registry",
        ),
        (
            "run: tool.py\nsecrets: {A_KEY: {vault: 'A Key'}}\n".to_owned(),
            "manifest.yaml:2:26 /secrets/A_KEY/vault wrong_type",
            "found the slug `A Key`, expected lower-case letters, digits and `-`",
        ),
        (
            "run: tool.py\nsecrets: {A_KEY: {oauth: ../x}}\n".to_owned(),
            "manifest.yaml:2:26 /secrets/A_KEY/oauth wrong_type",
            "found the slug `../x`",
        ),
        (
            "run: tool.py\nrunner: {limits: {memory_mb: 1}}\n".to_owned(),
            "manifest.yaml:2:30 /runner/limits/memory_mb limit_too_small",
            "1 MiB is below 4 MiB",
        ),
        (
            "run: tool.py\ninputs: {type: 5}\n".to_owned(),
            "manifest.yaml:2:9 /inputs schema_invalid",
            "the schema of `inputs` is not accepted",
        ),
        (
            "run: tool.py\noutputs: {properties: {a: {type: strng}}}\n".to_owned(),
            "manifest.yaml:2:34 /outputs/properties/a/type schema_invalid",
            "did you mean `string`?",
        ),
    ];
    for (text, place, fragment) in rows {
        let ground = Ground::new();
        write(&ground, &[("manifest.yaml", &text), ("tool.py", "")]);
        let document = document(&ground, &["."]);
        assert_eq!(told(&document), [place], "{text}");
        assert!(document.to_string().contains(fragment), "{document}");
        let code = place.rsplit(' ').next().expect("a code");
        let refused = bundled(&ground);
        assert!(refused.contains(&format!("({code})")), "{text}{refused}");
        assert!(refused.contains(fragment), "{text}{refused}");
        assert!(!ground.workspace().join("b.tar.gz").exists(), "{text}");
    }
    let ground = Ground::new();
    let text = format!(
        "{}secrets: {{A: {{vault: acme/a-key}}}}\n",
        source(&format!("r.test/a/b@{digest}"))
    );
    write(&ground, &[("manifest.yaml", &text), ("tool.py", "")]);
    assert_eq!(told(&document(&ground, &["."])), [""; 0]);
    assert_eq!(bundled(&ground), "");
}

#[test]
fn a_source_that_is_missing_is_found_by_check() {
    let ground = Ground::new();
    write(
        &ground,
        &[(
            "manifest.yaml",
            "run: src/a.py\ncode: {sources: [{local: src}]}\n",
        )],
    );
    assert_eq!(
        told(&document(&ground, &["."])),
        ["manifest.yaml:2:18 /code/sources/0 source_missing"]
    );
    write(&ground, &[("src/a.py", "")]);
    assert_eq!(told(&document(&ground, &["."])), [""; 0]);
}

/// What `runner bundle` prints to standard error if it refuses; otherwise empty.
fn bundled(ground: &Ground) -> String {
    let output = Command::new(runner())
        .args(["bundle", ".", "-o", "b.tar.gz"])
        .env("HOME", "/nonexistent")
        .current_dir(ground.workspace())
        .output()
        .expect("the runner starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => String::new(),
        false => stderr,
    }
}

/// The error, its line, and a part of the message or hint.
const MISTAKES: &[(&str, u64, &str)] = &[
    ("network:\n  egress: [*.x.com]\n", 3, "write `'*.x.com'`"),
    (
        "network:\n  egress:\n    - *.x.com\n",
        4,
        "text that starts with `*` needs quotes",
    ),
    ("name: @acme/x\n", 2, "write `'@acme/x'`"),
    (
        "description: foo: bar\n",
        2,
        "put the text in quotes: `description: 'foo: bar'`",
    ),
    ("description: it's: so\n", 2, "`description: 'it''s: so'`"),
    (
        "network:\n  egress: [a.x\ntimeout_ms: 5\n",
        3,
        "the `[` is not closed",
    ),
    (
        "runner: {engine: sandbox\ntimeout_ms: 5\n",
        2,
        "the `{` is not closed",
    ),
    (
        "description: \"a\ntimeout_ms: 5\n",
        2,
        "the `\"` is not closed",
    ),
    (
        "description: 'a\ntimeout_ms: 5\n",
        2,
        "the `'` is not closed",
    ),
    (
        "network:\n\tegress: [a.x]\n",
        3,
        "found a tab, expected spaces",
    ),
    (
        "network:\n\u{a0}\u{a0}egress: [a.x]\n",
        3,
        "(U+00A0), expected a space",
    ),
    (
        "network:\n  egress:\u{a0}[a.x]\n",
        3,
        "(U+00A0), expected a space",
    ),
    ("network:\n  egress:\n  -a.x\n", 4, "write `- a.x`"),
    (
        "runner:\n  engine: sandbox\n   limits: {}\n",
        4,
        "by the same number of spaces",
    ),
    (
        "runner: {inline: {}, ref: ./R.md}\n",
        2,
        "write either `inline` or `ref`",
    ),
    // Keys that are found are not suggested.
    (
        "runner: {ref: ./R.md, inline: {}}\n",
        2,
        "found the key `inline`, expected one of ref",
    ),
    (
        "secrets: {X: {}}\n",
        2,
        "the key `vault`, `oauth` or `value` is missing",
    ),
    (
        "runner: {limits: {memory_mb: 512m}}\n",
        2,
        "counts MiB and has no unit: write `512`",
    ),
    ("runner: {limits: {memory_mb: 2 GB}}\n", 2, "write `2048`"),
    (
        "timeout_ms: 30s\n",
        2,
        "counts milliseconds and has no unit: write `30000`",
    ),
    ("engine: sandbox\n", 2, "write `runner: {engine: …}`"),
    ("egress: [a.x]\n", 2, "write `network: {egress: …}`"),
    (
        "memory_mb: 5\n",
        2,
        "write `runner: {limits: {memory_mb: …}}`",
    ),
    (
        "runner: {pip: [a]}\n",
        2,
        "write `runner: {needs: {pip: …}}`",
    ),
    (
        "sandbox: {provider: local, config: {}, inputs: {}}\n",
        2,
        "belongs to the top level",
    ),
    ("network: {egress: a.x}\n", 2, "write a list: `[a.x]`"),
    ("network: {egress: '*.x'}\n", 2, "write a list: `['*.x']`"),
    (
        "code: {sources: ./a}\n",
        2,
        "write a list: `[{local: ./a}]`",
    ),
    ("outputsFiles: {a: out.csv}\n", 2, "write `{path: out.csv}`"),
    ("inputsFiles: in.csv\n", 2, "write `{NAME: {path: in.csv}}`"),
    (
        "inputsFiles: [in.csv]\n",
        2,
        "write `{NAME: {path: in.csv}}`",
    ),
    ("network: a.x\n", 2, "write `{egress: [a.x]}`"),
    ("network: [a.x]\n", 2, "write `{egress: [a.x]}`"),
    (
        "code: {sources: {local: a}}\n",
        2,
        "write a list: `[{…}]`, or `- ` before its first key",
    ),
    (
        "code: {sources: [{ref: ./code-workspaces/x}]}\n",
        2,
        "did you mean `.code-workspaces/x`?",
    ),
    (
        "outputsFiles: [{path: a.csv}]\n",
        2,
        "each file by its name: `{NAME: {path: …}}`",
    ),
    ("inputs: object\n", 2, "write `{type: object, properties:"),
    ("outputs: [a]\n", 2, "write `{type: object, properties:"),
    (
        "inputs:\n  properties:\n    a: string\n",
        4,
        "write `{type: string}`",
    ),
    (
        "inputs:\n  properties:\n    type: string\n",
        4,
        "write `{type: string}`",
    ),
    (
        "inputs:\n  properties:\n    properties: {type: objct}\n",
        4,
        "did you mean `object`?",
    ),
    ("inputs:\n  items: strin\n", 3, "write `{type: string}`"),
    ("inputs:\n  required: a\n", 3, "write a list: `[a]`"),
    ("secrets: A_KEY\n", 2, "write `{A_KEY: {vault: NAME}}`"),
    ("secrets: [A_KEY]\n", 2, "write `{A_KEY: {vault: NAME}}`"),
    ("secrets: {A_KEY: }\n", 2, "write `{vault: NAME}`"),
    (
        "code: {sources: [main.py]}\n",
        2,
        "write `{local: main.py}`",
    ),
    (
        "sandbox: {provider: local, config: {}, mounts: /a}\n",
        2,
        "write a list: `[{source: …, at: …}]`",
    ),
    ("workspaceSources: a\n", 2, "write a list: `[{id: …, ref: …"),
    ("network: {egress: [a.x}\n", 2, "write `]` before that `}`"),
    ("name:\u{a0}tool\n", 2, "(U+00A0), expected a space"),
    (
        "code: {sources: [{local: a, github: {repo: a/b, ref: main}}]}\n",
        2,
        "found `local` and `github` in one entry",
    ),
    ("inputs: {type: objct}\n", 2, "did you mean `object`?"),
    (
        "inputs:\n  type: object\n  properties:\n    a: {type: strng}\n",
        5,
        "found the type `strng`, expected one of array,",
    ),
];

#[test]
fn each_mistake_is_reported_with_its_line_and_a_correction() {
    let ground = Ground::new();
    let workspace = (".code-workspaces/x/manifest.yml", "kind: code-workspace\n");
    write(&ground, &[("main.py", ""), workspace]);
    for (mistake, line, fragment) in MISTAKES {
        write(
            &ground,
            &[("manifest.yaml", &format!("run: main.py\n{mistake}"))],
        );
        let document = document(&ground, &["."]);
        let errors = document["errors"].as_array().expect("a list");
        assert_eq!(errors.len(), 1, "{mistake}{document}");
        assert_eq!(errors[0]["line"], *line, "{mistake}{document}");
        let said = [&errors[0]["message"], &errors[0]["hint"]].map(|text| text.as_str());
        let is_told = said.iter().flatten().any(|text| text.contains(fragment));
        assert!(is_told, "{mistake}: {fragment}\n{document}");
    }
}

#[test]
fn an_unknown_schema_keyword_is_a_warning() {
    let ground = Ground::new();
    write(&ground, &[("main.py", "")]);
    for (schema, place, fragment) in [
        (
            "inputs: {name: string}\n",
            "manifest.yaml:2:10:",
            "properties: {NAME: {type: string}}",
        ),
        (
            "inputs:\n  type: object\n  propertis: {}\n",
            "manifest.yaml:4:3:",
            "did you mean `properties`?",
        ),
        (
            "outputs: {properties: {a: {typ: string}}}\n",
            "manifest.yaml:2:28:",
            "did you mean `type`?",
        ),
    ] {
        write(
            &ground,
            &[("manifest.yaml", &format!("run: main.py\n{schema}"))],
        );
        let document = document(&ground, &["."]);
        let warnings = document["warnings"].as_array().expect("a list");
        assert_eq!(warnings.len(), 1, "{schema}{document}");
        assert_eq!(warnings[0]["code"], "schema_keyword_unknown");
        let message = warnings[0]["message"].as_str().expect("text");
        assert!(
            message.starts_with(place) && message.contains(fragment),
            "{message}"
        );
    }
    let known = "inputs: {type: object, properties: {propertis: {type: string, x-a: 1}}}\n";
    write(
        &ground,
        &[("manifest.yaml", &format!("run: main.py\n{known}"))],
    );
    assert_eq!(document(&ground, &["."])["warnings"], serde_json::json!([]));
}

#[test]
fn a_manifest_may_be_called_manifest_yml() {
    let ground = Ground::new();
    write(
        &ground,
        &[
            ("manifest.yml", "name: short\nrun: main.py\n"),
            ("main.py", ""),
        ],
    );
    assert_eq!(document(&ground, &["."])["name"], "short");
    assert_eq!(bundled(&ground), "");
}

#[test]
fn a_document_of_a_block_is_read_by_its_own_schema() {
    let ground = Ground::new();
    for (name, good, bad, place) in [
        (
            "RUNNER.md",
            "engine: sandbox",
            "engin: sandbox",
            "RUNNER.md:2:1 /engin unknown_key",
        ),
        (
            "SANDBOX.md",
            "schema: sandbox/v1\nprovider: local\nconfig: {}",
            "provider: local\nconfig: {shel: /bin/sh}",
            "SANDBOX.md:3:10 /config/shel unknown_key",
        ),
        (
            "SECRETS.md",
            "secrets: [{slug: a-key, name: A, description: d}]",
            "secrets: [{slug: a-key, name: A}]",
            "SECRETS.md:2:11 /secrets/0 missing_key",
        ),
        (
            "IO.md",
            "inputs: {type: object}\noutputsFiles: {a: {path: a.txt}}",
            "run: main.py",
            "IO.md:2:1 /run unknown_key",
        ),
    ] {
        write(&ground, &[(name, &format!("---\n{good}\n---\n"))]);
        let accepted = document(&ground, &[name]);
        assert_eq!(told(&accepted), [""; 0], "{name}");
        // A document without `run` does not need it.
        let warnings = accepted["warnings"].to_string();
        assert!(!warnings.contains("run_missing"), "{name}: {warnings}");
        assert_eq!(accepted["name"], name);
        write(&ground, &[(name, &format!("---\n{bad}\n---\n"))]);
        assert_eq!(told(&document(&ground, &[name])), [place]);
    }
}

#[test]
fn a_folder_of_the_convention_may_have_its_manifest_by_either_ending() {
    let ground = Ground::new();
    let text = "name: tool\nrun: main.py\n";
    for file in ["manifest.yml", "manifest.yaml"] {
        for folder in [".code-workspaces", ".code"] {
            let name = format!("{}-{}", &folder[1..], file.len());
            let manifest = format!("{folder}/{name}/{file}");
            let main = format!("{folder}/{name}/main.py");
            write(&ground, &[(&manifest, text), (&main, "")]);
            assert_eq!(told(&document(&ground, &[&name])), [""; 0], "{manifest}");
            // Both errors: one comes first, and the other is reported too.
            let other = format!("{folder}/{name}/manifest.yml");
            write(&ground, &[(&manifest.replace(".yml", ".yaml"), text)]);
            write(&ground, &[(&other, text)]);
            let warnings = document(&ground, &[&name])["warnings"].to_string();
            let said = format!("{other} is ignored: {folder}/{name}/manifest.yaml comes first");
            assert!(warnings.contains(&said), "{warnings}");
        }
    }
}

#[test]
fn of_an_unpacked_bundle_the_manifest_that_exec_runs_is_checked() {
    let ground = Ground::new();
    let files = [
        ("manifest.yaml", "run: tool.sh\n"),
        ("tool.sh", "true\n"),
        (".runner/manifest.json", r#"{"run": "gone.sh"}"#),
    ];
    write(&ground, &files);
    let workspace = ground.workspace();
    let workspace = workspace.to_str().expect("plain");
    let place = [".runner/manifest.json:1:9 /run run_target_missing"];
    for words in [&["."][..], &[workspace], &["--workspace", workspace, "."]] {
        let found = document(&ground, words);
        assert_eq!(told(&found), place, "{words:?}");
        let warning = "manifest.yaml is ignored: .runner/manifest.json comes first";
        assert!(found.to_string().contains(warning), "{found}");
    }
    write(&ground, &[(files[2].0, r#"{"run": "tool.sh"}"#)]);
    let own = ".runner/manifest.json";
    for words in [&["."][..], &[workspace], &[own]] {
        assert_eq!(told(&document(&ground, words)), [""; 0], "{words:?}");
    }
    std::fs::remove_file(ground.workspace().join("manifest.yaml")).expect("removed");
    assert_eq!(told(&document(&ground, &["."])), [""; 0]);
}

/// `runner exec` refuses it too.
#[test]
fn a_resolved_manifest_with_code_is_an_error() {
    let ground = Ground::new();
    let code = "{\"run\": \"main.py\", \"code\": {\"sources\": [{\"inline\": \
        {\"path\": \"main.py\", \"content\": \"\"}}]}}";
    write(
        &ground,
        &[
            (".runner/manifest.json", code),
            ("manifest.json", code),
            ("main.py", ""),
        ],
    );
    let found = document(&ground, &[".runner/manifest.json"]);
    assert_eq!(found["errors"][0]["code"], "code_unresolved", "{found}");
    document(&ground, &["manifest.json"])["valid"]
        .as_bool()
        .filter(|is_valid| *is_valid)
        .expect("bundle resolves it");
    let bundle = support::bundles::pack(&ground.workspace());
    let done = ground.exec(&[], &bundle);
    done.assert_error("refused", "code_unresolved");
}
