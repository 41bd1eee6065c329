//! Manifests of other authors: what is accepted, and the help in a refusal.
//!
//! Group G of the threats. Every case uses the public function `manifest::parse`, or those of its
//! parts: `document::parse` and `io::Contract`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tables of rows, and a failure that shows the manifest it is about"
)]

#[path = "schemas/agreement.rs"]
mod agreement;

use std::time::Duration;

use proptest::prelude::*;
use reader::{Question, Refused, WaitLimit, judge};
use serde_json::json;
use spec::access_mode::AccessMode;
use spec::document::{self, Node, Value};
use spec::io::{Contract, declare_fs_root, inject_fs_root, read_document};
use spec::manifest::{self, Format, Kind, Manifest, ManifestError, SecretReference};
use spec::parse_permit::ParsePermit;
use spec::run_form::Run;
use spec::runner_block::{Engine, Language};
use spec::sandbox_block::Provider;

const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

/// The result of the parser; the published schema must agree.
fn yaml(text: &str) -> Result<Manifest, ManifestError> {
    let manifest = manifest::parse(&PERMIT, text.as_bytes(), Format::Yaml, "manifest.yaml");
    let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml);
    if let Some(document) = root.ok().and_then(|root| root.to_json().ok()) {
        agreement::assert_agreement(text, &document, manifest.as_ref().err());
    }
    manifest
}

fn accepted(text: &str) -> Manifest {
    yaml(text).unwrap_or_else(|error| panic!("{text}\n{error} {:?}", error.hint()))
}

fn refused(text: &str) -> ManifestError {
    match yaml(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error,
    }
}

/// Code, `line:column` and JSON Pointer of a refusal.
fn told(error: &ManifestError) -> (String, String, String) {
    (
        error.code().to_owned(),
        error
            .place
            .map_or_else(String::new, |place| place.to_string()),
        error.pointer.clone().unwrap_or_default(),
    )
}

/// Each row: a manifest, and the code, the place and the JSON Pointer of its refusal.
fn assert_refusals(rows: &[(&str, &str, &str, &str)]) {
    for (text, code, place, pointer) in rows {
        let error = refused(text);
        assert_eq!(
            told(&error),
            (
                (*code).to_owned(),
                (*place).to_owned(),
                (*pointer).to_owned()
            ),
            "{text}\n{error}"
        );
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("manifest.yaml:{place}")),
            "{message}"
        );
        assert!(!message.contains(char::is_control), "{message:?}");
    }
}

fn warning_codes(manifest: &Manifest) -> Vec<&str> {
    manifest
        .warnings
        .iter()
        .map(|warning| warning.code.as_str())
        .collect()
}

#[test]
fn a_whole_manifest_is_read() {
    let manifest = accepted(
        "kind: tool\n\
         id: render-invoice\n\
         name: Render invoice\n\
         version: 1.2.3\n\
         description: Renders\n\
         run: invoice.py\n\
         timeout_ms: 45000\n\
         runner:\n\
         \x20 engine: sandbox\n\
         \x20 image: mcp-python-server\n\
         \x20 needs: {language: python, native: [weasyprint], npm: ['stripe@^11.0.0'], pip: ['requests==2.31.0']}\n\
         \x20 limits: {memory_mb: 1024, timeout_ms: 60000, cpu_ms: 30000}\n\
         network: {egress: [API.example.com, '*.example.org:8443']}\n\
         secrets:\n\
         \x20 CLOUDINARY_KEY: {vault: cloudinary-api-key}\n\
         inputs: {type: object, properties: {a: {type: number, minimum: 0.5}}}\n\
         outputs: {type: object}\n\
         inputsFiles:\n\
         \x20 data.csv: {path: ./in/data.csv, mode: ro, contentType: text/csv}\n\
         outputsFiles:\n\
         \x20 report.pdf: {path: 'out/<isoDate>/<toolId>-<runId>.pdf', required: true}\n\
         approval: on-mutate\n\
         tags: [a]\n\
         metadata: {x: 1}\n",
    );
    assert_eq!(manifest.kind, Kind::Tool);
    assert_eq!(manifest.token_id(), Some("render-invoice"));
    assert_eq!(manifest.run, Some(Run::Text("invoice.py".to_owned())));
    assert_eq!(manifest.runner.engine, Engine::Sandbox);
    assert_eq!(manifest.runner.image.as_deref(), Some("mcp-python-server"));
    assert_eq!(manifest.runner.needs.language, Some(Language::Python));
    assert_eq!(manifest.runner.needs.pip, ["requests==2.31.0"]);
    let limits: Vec<(&str, u64, &str)> = manifest
        .limits
        .iter()
        .map(|limit| (limit.limit.name(), limit.value, limit.source.as_str()))
        .collect();
    assert_eq!(
        limits,
        [
            ("wall_time_ms", 45_000, "timeout_ms"),
            ("memory_bytes", 1 << 30, "runner.limits.memory_mb"),
            ("wall_time_ms", 60_000, "runner.limits.timeout_ms"),
            ("cpu_time_ms", 30_000, "runner.limits.cpu_ms"),
        ]
    );
    let egress: Vec<String> = manifest
        .egress
        .iter()
        .map(|request| format!("{} {}", request.source, request.rule))
        .collect();
    assert_eq!(
        egress,
        [
            "network.egress api.example.com",
            "network.egress *.example.org:8443"
        ]
    );
    assert_eq!(manifest.secrets[0].variable, "CLOUDINARY_KEY");
    assert_eq!(
        manifest.secrets[0].reference,
        SecretReference::Vault("cloudinary-api-key".to_owned())
    );
    assert_eq!(
        manifest.io.inputs,
        Some(json!({"type": "object", "properties": {"a": {"type": "number", "minimum": 0.5}}}))
    );
    let input = &manifest.io.input_files[0];
    assert_eq!(input.key.as_bytes(), b"data.csv");
    assert_eq!(input.path.to_string(), "in/data.csv");
    assert_eq!(input.mode, Some(AccessMode::ReadOnly));
    assert_eq!(input.content_type.as_deref(), Some("text/csv"));
    let output = &manifest.io.output_files[0];
    assert!(output.required);
    assert_eq!(output.source, "/outputsFiles/report.pdf");
    assert_eq!(manifest.restrictions[0].source, "approval");
    assert_eq!(manifest.restrictions[0].value.as_deref(), Some("on-mutate"));
    assert_eq!(manifest.ignored, ["/tags", "/metadata"]);
    assert_eq!(manifest.warnings, []);
    assert_eq!(manifest.check_executable(), Ok(()));
}

#[test]
fn the_same_manifest_in_json_and_in_front_matter_is_the_same() {
    let text = "run: [python, -m, m]\nrunner:\n  limits: {cpu_ms: 5}\n";
    let from_yaml = accepted(text);
    let from_json = manifest::parse(
        &PERMIT,
        br#"{"run": ["python", "-m", "m"], "runner": {"limits": {"cpu_ms": 5}}}"#,
        Format::Json,
        "m.json",
    );
    assert_eq!(from_json.expect("accepted"), from_yaml);
    for markdown in [
        format!("---\n{text}---\n# Title\n\nrun: other\n"),
        format!("---\r\n{}---\r\n", text.replace('\n', "\r\n")),
        format!("\u{feff}---\n{text}---"),
    ] {
        let front = manifest::parse(&PERMIT, markdown.as_bytes(), Format::FrontMatter, "TOOL.md");
        assert_eq!(front.expect("accepted"), from_yaml);
    }
}

#[test]
fn places_in_front_matter_are_those_of_the_file() {
    let text = b"---\nname: x\nrunn: y\n---\n";
    let error =
        manifest::parse(&PERMIT, text, Format::FrontMatter, "CODE.md").expect_err("refused");
    assert_eq!(
        told(&error),
        told(&ManifestError {
            file: "CODE.md".to_owned(),
            ..error.clone()
        })
    );
    assert_eq!(
        error.place.map(|place| place.to_string()).as_deref(),
        Some("3:1")
    );
    for text in [
        "# Title\n",
        "---\nrun: a\n",
        "",
        "----\nrun: a\n---\n",
        " ---\nrun: a\n---\n",
    ] {
        let error = manifest::parse(&PERMIT, text.as_bytes(), Format::FrontMatter, "CODE.md");
        assert_eq!(
            error.expect_err(text).code(),
            "front_matter_missing",
            "{text}"
        );
    }
    let error = manifest::parse(&PERMIT, b"---\n---\n", Format::FrontMatter, "CODE.md");
    assert_eq!(error.expect_err("refused").code(), "manifest_empty");
}

#[test]
fn an_empty_bundle_has_the_manifest_by_default() {
    let manifest = manifest::empty();
    assert_eq!(manifest.kind, Kind::Tool);
    assert_eq!(manifest.runner.engine, Engine::Subprocess);
    assert_eq!(manifest.run, None);
    assert_eq!(manifest.check_executable(), Ok(()));
}

/// G-01, G-02: the limits of values and bytes bound the work, whatever aliases expand to.
#[test]
fn alias_bombs_are_refused() {
    let mut laughs = "a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for (previous, name) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        let aliases = vec![format!("*{previous}"); 9].join(", ");
        laughs.push_str(&format!("{name}: &{name} [{aliases}]\n"));
    }
    assert_eq!(refused(&laughs).code(), "manifest_too_much");
    let quadratic = format!(
        "a: &a [{}]\nb: [{}]\n",
        "x, ".repeat(900),
        "*a, ".repeat(900)
    );
    assert_eq!(refused(&quadratic).code(), "manifest_too_much");
    let long = format!(
        "a: &a '{}'\nb: [{}]\n",
        "x".repeat(500_000),
        "*a, ".repeat(900)
    );
    assert_eq!(refused(&long).code(), "manifest_too_much");
    let many_anchors: String = (0..60_000)
        .map(|number| format!("- &a{number} 1\n"))
        .collect();
    assert_eq!(refused(&many_anchors).code(), "manifest_too_much");
    let nested = format!(
        "{}{}{}",
        (0..60).map(|n| format!("&a{n} [")).collect::<String>(),
        "x, ".repeat(2_000),
        "]".repeat(60)
    );
    assert_eq!(refused(&nested).code(), "manifest_too_much");
}

#[test]
fn an_alias_is_the_value_that_it_names() {
    let manifest = accepted(
        "run: x\nmetadata:\n  a: &a {b: [1]}\n  c: *a\ninputs: {default: &d [1, 2], examples: [*d]}\n",
    );
    assert_eq!(
        manifest.io.inputs,
        Some(json!({"default": [1, 2], "examples": [[1, 2]]}))
    );
}

/// G-03.
#[test]
fn anchor_cycles_and_unknown_anchors_are_refused() {
    assert_refusals(&[
        ("&a [*a]", "alias_cycle", "1:5", ""),
        ("a: &a\n  b: {c: *a}\n", "alias_cycle", "2:10", ""),
        ("run: *gone\n", "manifest_syntax", "1:6", ""),
    ]);
}

/// G-04: neither parser uses the stack of the process for nesting.
#[test]
fn a_hundred_thousand_levels_are_refused() {
    let block: String = (0..1_000)
        .map(|level| format!("{}a:\n", " ".repeat(level)))
        .collect();
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        block,
    ] {
        assert_eq!(refused(&text).code(), "manifest_too_deep");
    }
    assert_eq!(refused(&"? ".repeat(100_000)).code(), "key_not_text");
    for text in ["[".repeat(100_000), "{\"a\":".repeat(100_000)] {
        let error =
            manifest::parse(&PERMIT, text.as_bytes(), Format::Json, "m.json").expect_err("refused");
        assert_eq!(error.code(), "manifest_too_deep");
    }
    let levels = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for format in [Format::Yaml, Format::Json] {
        assert!(document::parse(&PERMIT, levels(document::DEPTH_MAX).as_bytes(), format).is_ok());
        let deeper = levels(document::DEPTH_MAX + 1);
        assert!(document::parse(&PERMIT, deeper.as_bytes(), format).is_err());
    }
}

/// G-05: the parser stops at the same number of bytes.
#[test]
fn a_text_longer_than_a_mebibyte_is_refused() {
    let text = format!("description: '{}'\n", "x".repeat(document::TEXT_BYTES_MAX));
    assert_eq!(refused(&text).code(), "manifest_too_large");
    let text = format!(
        "run: x\ndescription: '{}'\n",
        "x".repeat(document::TEXT_BYTES_MAX - 30)
    );
    assert!(yaml(&text).is_ok());
}

/// G-06.
#[test]
fn duplicate_keys_are_refused_wherever_they_stand() {
    assert_refusals(&[
        ("run: a\nrun: b\n", "duplicate_key", "2:1", ""),
        ("run: a\n\"run\": b\n", "duplicate_key", "2:1", ""),
        (
            "runner: {engine: sandbox, engine: subprocess}\n",
            "duplicate_key",
            "1:27",
            "",
        ),
        ("a: &a {run: x}\n<<: *a\n", "merge_key_refused", "2:1", ""),
        (
            "metadata: {<<: {a: 1}, a: 2}\n",
            "merge_key_refused",
            "1:12",
            "",
        ),
    ]);
    assert!(
        refused("run: a\nrun: b\n")
            .to_string()
            .contains("first at 1:1")
    );
    let text = br#"{"run": "a", "r\u0075n": "b"}"#;
    let error = manifest::parse(&PERMIT, text, Format::Json, "m.json").expect_err("refused");
    assert_eq!(told(&error).0, "duplicate_key");
    assert_eq!(told(&error).1, "1:14");
}

/// G-07: at every level.
#[test]
fn an_unknown_key_is_refused_with_a_suggestion() {
    for (text, place, pointer, meant) in [
        ("rnu: x\n", "1:1", "/rnu", Some("run")),
        (
            "run: x\noutputFiles: {}\n",
            "2:1",
            "/outputFiles",
            Some("outputsFiles"),
        ),
        (
            "runner:\n  limits:\n    timeuot_ms: 5\n",
            "3:5",
            "/runner/limits/timeuot_ms",
            Some("timeout_ms"),
        ),
        (
            "runner: {engin: sandbox}\n",
            "1:10",
            "/runner/engin",
            Some("engine"),
        ),
        (
            "runner: {needs: {languages: node}}\n",
            "1:18",
            "/runner/needs/languages",
            Some("language"),
        ),
        (
            "runner: {inline: {limts: {}}}\n",
            "1:19",
            "/runner/inline/limts",
            Some("limits"),
        ),
        ("run: {fille: x}\n", "1:7", "/run/fille", Some("file")),
        (
            "network: {egres: []}\n",
            "1:11",
            "/network/egres",
            Some("egress"),
        ),
        (
            "secrets: {A: {valt: x}}\n",
            "1:15",
            "/secrets/A/valt",
            Some("vault"),
        ),
        (
            "code: {source: []}\n",
            "1:8",
            "/code/source",
            Some("sources"),
        ),
        (
            "code: {sources: [{inlin: {}}]}\n",
            "1:19",
            "/code/sources/0/inlin",
            Some("inline"),
        ),
        (
            "code: {sources: [{local: {path: a, to: b}}]}\n",
            "1:36",
            "/code/sources/0/local/to",
            None,
        ),
        (
            "code: {sources: [{inline: {path: a, content: b}, zzz: 1}]}\n",
            "1:50",
            "/code/sources/0/zzz",
            None,
        ),
        (
            "inputsFiles: {a: {pth: x}}\n",
            "1:19",
            "/inputsFiles/a/pth",
            Some("path"),
        ),
        (
            "outputsFiles: {a: {path: x, content_type: y}}\n",
            "1:29",
            "/outputsFiles/a/content_type",
            Some("contentType"),
        ),
        (
            "workspaceSources: [{id: a, ref: b, mountpath: /c}]\n",
            "1:36",
            "/workspaceSources/0/mountpath",
            Some("mountPath"),
        ),
        (
            "sandbox: {provider: local, readOnly: true}\n",
            "1:28",
            "/sandbox/readOnly",
            Some("read_only"),
        ),
        (
            "sandbox: {provider: local, limits: {timeoutMs: 5}}\n",
            "1:37",
            "/sandbox/limits/timeoutMs",
            Some("timeout_ms"),
        ),
        (
            "sandbox: {provider: local, config: {cdw: x}}\n",
            "1:37",
            "/sandbox/config/cdw",
            Some("cwd"),
        ),
        (
            "sandbox: {provider: local, config: {}, env: {passtrough: []}}\n",
            "1:46",
            "/sandbox/env/passtrough",
            Some("passthrough"),
        ),
        (
            "sandbox: {provider: local, config: {}, env: {auth: {state: {envs: []}}}}\n",
            "1:61",
            "/sandbox/env/auth/state/envs",
            Some("env"),
        ),
        (
            "sandbox: {provider: local, config: {}, network: {ingress: []}}\n",
            "1:50",
            "/sandbox/network/ingress",
            Some("egress"),
        ),
        (
            "sandbox: {provider: local, config: {}, mounts: [{source: workspace, att: /w}]}\n",
            "1:69",
            "/sandbox/mounts/0/att",
            Some("at"),
        ),
        (
            "sandbox: {provider: local, config: {}, lifecycle: {destroyOn: x}}\n",
            "1:52",
            "/sandbox/lifecycle/destroyOn",
            Some("destroy_on"),
        ),
        (
            "runtime: {mode: sandbox, timeoutMs: 5}\n",
            "1:26",
            "/runtime/timeoutMs",
            Some("timeout_ms"),
        ),
    ] {
        let error = refused(text);
        assert_eq!(
            told(&error),
            (
                "unknown_key".to_owned(),
                place.to_owned(),
                pointer.to_owned()
            ),
            "{text}"
        );
        let hint = meant.map(|meant| format!("did you mean `{meant}`?"));
        assert_eq!(error.hint(), hint, "{text}");
    }
    let error = refused("runner: {limits: {pids: 5}}\n");
    assert!(error.hint().expect("a hint").contains("--pids"), "{error}");
}

/// G-07.
#[test]
fn an_unknown_enum_value_is_refused() {
    assert_refusals(&[
        ("kind: tol\n", "unknown_value", "1:7", "/kind"),
        ("kind: Tool\n", "unknown_value", "1:7", "/kind"),
        ("schema: code/v1\n", "unknown_value", "1:9", "/schema"),
        (
            "runner: {engine: in_process}\n",
            "unknown_value",
            "1:18",
            "/runner/engine",
        ),
        (
            "runner: {needs: {language: ruby}}\n",
            "unknown_value",
            "1:28",
            "/runner/needs/language",
        ),
        (
            "runtime: {mode: fast}\n",
            "unknown_value",
            "1:17",
            "/runtime/mode",
        ),
        ("approval: never\n", "unknown_value", "1:11", "/approval"),
        (
            "approval: 'policy:'\n",
            "unknown_value",
            "1:11",
            "/approval",
        ),
        (
            "sandbox: {provider: docker, config: {}}\n",
            "unknown_value",
            "1:21",
            "/sandbox/provider",
        ),
        (
            "sandbox: {provider: local, schema: agentsandbox/v1}\n",
            "unknown_value",
            "1:36",
            "/sandbox/schema",
        ),
        (
            "sandbox: {provider: local, config: {shell: /bin/zsh}}\n",
            "unknown_value",
            "1:44",
            "/sandbox/config/shell",
        ),
        (
            "inputsFiles: {a: {path: x, mode: r}}\n",
            "unknown_value",
            "1:34",
            "/inputsFiles/a/mode",
        ),
    ]);
    let hint = refused("runner: {engine: in_process}\n").hint();
    assert_eq!(hint.as_deref(), Some("did you mean `in-process`?"));
}

/// G-08.
#[test]
fn a_value_of_another_type_is_refused() {
    for value in [
        "\"10\"", "true", "[]", "null", "~", "", "{}", "ten", "[10]", "1_000", "12:30:00", "1.5",
        "1e3", "10.0",
    ] {
        let error = refused(&format!("runner: {{limits: {{timeout_ms: {value}}}}}\n"));
        assert_eq!(error.code(), "wrong_type", "{value}: {error}");
        assert_eq!(
            error.pointer.as_deref(),
            Some("/runner/limits/timeout_ms"),
            "{value}"
        );
    }
    assert_refusals(&[
        ("a\n", "wrong_type", "1:1", ""),
        ("- run: x\n", "wrong_type", "1:1", ""),
        ("name: 5\n", "wrong_type", "1:7", "/name"),
        ("name: ' '\n", "wrong_type", "1:7", "/name"),
        ("name: \"a\\nb\"\n", "wrong_type", "1:7", "/name"),
        ("version: 1.10\n", "wrong_type", "1:10", "/version"),
        ("id: [a]\n", "wrong_type", "1:5", "/id"),
        ("runner: subprocess\n", "wrong_type", "1:9", "/runner"),
        (
            "runner: {needs: {native: weasyprint}}\n",
            "wrong_type",
            "1:26",
            "/runner/needs/native",
        ),
        (
            "runner: {needs: {npm: [-g]}}\n",
            "wrong_type",
            "1:24",
            "/runner/needs/npm/0",
        ),
        (
            "runner: {image: 'docker://debian'}\n",
            "wrong_type",
            "1:17",
            "/runner/image",
        ),
        ("network: [a.com]\n", "wrong_type", "1:10", "/network"),
        (
            "network: {egress: a.com}\n",
            "wrong_type",
            "1:19",
            "/network/egress",
        ),
        (
            "network: {egress: [443]}\n",
            "wrong_type",
            "1:20",
            "/network/egress/0",
        ),
        ("inputs: true\n", "wrong_type", "1:9", "/inputs"),
        ("inputsFiles: [a]\n", "wrong_type", "1:14", "/inputsFiles"),
        (
            "secrets: {1A: {vault: x}}\n",
            "wrong_type",
            "1:11",
            "/secrets/1A",
        ),
        (
            "sandbox: {provider: local, read_only: 'yes'}\n",
            "wrong_type",
            "1:39",
            "/sandbox/read_only",
        ),
        (
            "sandbox: {provider: local, id: sandbox}\n",
            "wrong_type",
            "1:32",
            "/sandbox/id",
        ),
        (
            "sandbox: {provider: local, config: {}, env: {passthrough: [A=B]}}\n",
            "wrong_type",
            "1:60",
            "/sandbox/env/passthrough/0",
        ),
        ("code: []\n", "wrong_type", "1:7", "/code"),
        (
            "code: {sources: []}\n",
            "wrong_type",
            "1:17",
            "/code/sources",
        ),
        (
            "code: {sources: [{}]}\n",
            "wrong_type",
            "1:18",
            "/code/sources/0",
        ),
        (
            "code: {sources: [{github: {repo: a, ref: b}}]}\n",
            "wrong_type",
            "1:34",
            "/code/sources/0/github/repo",
        ),
        (
            "workspaceSources: {id: a}\n",
            "wrong_type",
            "1:19",
            "/workspaceSources",
        ),
    ]);
    for (text, hint) in [
        ("runner: {limits: {cpu_ms: '5'}}\n", "remove the quotes"),
        ("version: 1.10\n", "put it in quotes"),
        (
            "sandbox: {provider: local, read_only: yes}\n",
            "booleans of YAML 1.2",
        ),
        ("name:\n", "remove the key"),
    ] {
        let found = refused(text).hint().expect(text);
        assert!(found.contains(hint), "{text}: {found}");
    }
}

/// G-09, G-10.
#[test]
fn only_an_exact_whole_number_in_range_is_a_limit() {
    for (value, code) in [
        ("0", "out_of_range"),
        ("-1", "out_of_range"),
        ("-0", "out_of_range"),
        ("9223372036854775807", "out_of_range"),
        ("9223372036854775808", "out_of_range"),
        ("18446744073709551615", "out_of_range"),
        ("18446744073709551616", "out_of_range"),
        ("99999999999999999999999999999999999999", "out_of_range"),
        ("1e309", "wrong_type"),
        ("1.5", "wrong_type"),
        ("1e3", "wrong_type"),
        ("1_000", "wrong_type"),
        ("0b101", "wrong_type"),
        ("0x10", "ambiguous_number"),
        ("0o17", "ambiguous_number"),
        ("010", "ambiguous_number"),
        ("+1", "ambiguous_number"),
        ("1.", "ambiguous_number"),
        (".5", "ambiguous_number"),
        (".nan", "number_not_finite"),
        (".inf", "number_not_finite"),
        ("-.INF", "number_not_finite"),
        ("NaN", "wrong_type"),
    ] {
        for key in ["memory_mb", "timeout_ms", "cpu_ms"] {
            let error = refused(&format!("runner: {{limits: {{{key}: {value}}}}}\n"));
            assert_eq!(error.code(), code, "{key}: {value}: {error}");
        }
        assert_eq!(
            refused(&format!("timeout_ms: {value}\n")).code(),
            code,
            "{value}"
        );
    }
    let largest = accepted("runner: {limits: {memory_mb: 8796093022207}}\n");
    assert_eq!(largest.limits[0].value, 8_796_093_022_207 << 20);
    assert!(i64::try_from(largest.limits[0].value).is_ok());
    assert_eq!(
        refused("runner: {limits: {memory_mb: 8796093022208}}\n").code(),
        "out_of_range"
    );
    let text = refused("runner: {limits: {memory_mb: 0}}\n").to_string();
    assert!(text.contains("from 1 to 8796093022207"), "{text}");
}

/// G-09: numbers in a schema are data, and keep their precision.
#[test]
fn numbers_in_a_schema_are_exact_or_refused() {
    let schema =
        accepted("inputs: {a: 18446744073709551615, b: -9223372036854775808, c: 1.5e3, d: -0}\n")
            .io
            .inputs;
    assert_eq!(
        schema,
        Some(json!({"a": u64::MAX, "b": i64::MIN, "c": 1500.0, "d": -0.0}))
    );
    assert_refusals(&[
        (
            "inputs: {a: 18446744073709551616}\n",
            "number_out_of_range",
            "1:13",
            "",
        ),
        ("inputs: {a: 1e309}\n", "number_out_of_range", "1:13", ""),
    ]);
}

/// G-11.
#[test]
fn words_of_yaml_1_1_are_text() {
    for word in [
        "no",
        "on",
        "y",
        "yes",
        "off",
        "12:30:00",
        "2024-01-01",
        "1_000",
        "0b1",
        "1.2.3",
        "=",
        "NO",
    ] {
        let manifest = accepted(&format!("run: x\nname: {word}\n"));
        assert_eq!(manifest.name.as_deref(), Some(word));
    }
    // A number there as well: text must be quoted.
    assert_eq!(refused("run: x\nname: 1.10\n").code(), "wrong_type");
    assert_eq!(refused("no: 1\n").pointer.as_deref(), Some("/no"));
    for key in ["1", "true", "null", "~", "1.5"] {
        assert_eq!(
            refused(&format!("metadata: {{{key}: x}}\n")).code(),
            "key_not_text",
            "{key}"
        );
    }
}

/// G-12.
#[test]
fn text_is_utf_8_or_refused() {
    let code = |bytes: &[u8]| {
        let error = manifest::parse(&PERMIT, bytes, Format::Yaml, "m").expect_err("refused");
        (told(&error).0, told(&error).1)
    };
    let is = |code: &str, place: &str| (code.to_owned(), place.to_owned());
    assert_eq!(
        code(b"run: x\nname: \xff\n"),
        is("manifest_not_utf8", "2:7")
    );
    assert_eq!(code(b"run: \xc0\xaf\n"), is("manifest_not_utf8", "1:6"));
    assert_eq!(code(b"run: \xed\xa0\x80\n"), is("manifest_not_utf8", "1:6"));
    assert_eq!(code(b"\xff\xfer\0u\0n\0"), is("manifest_not_utf8", "1:1"));
    assert_eq!(code(b"\xfe\xff\0r\0u\0n"), is("manifest_not_utf8", "1:1"));
    assert_eq!(code(b"\xff\xfe\0\0r\0\0\0"), is("manifest_not_utf8", "1:1"));
    assert_eq!(code(b"r\0u\0n\0:\0"), is("manifest_nul_character", "1:2"));
    assert_eq!(
        code(b"run: x\nname: a\0b\n"),
        is("manifest_nul_character", "2:8")
    );
    assert_eq!(code(b"runner:\n\tengine: sandbox\n").0, "manifest_syntax");
    assert_eq!(code(b"run: 'a\x1bb'\n").0, "manifest_syntax");
    assert_eq!(
        accepted("\u{feff}run: x\r\nname: y\r\n").name.as_deref(),
        Some("y")
    );
    assert_eq!(
        accepted("run: x\nname: 'a\u{2028}b'\n").name.as_deref(),
        Some("a\u{2028}b")
    );
    assert_eq!(
        refused("name: ü\nrunn: x\n")
            .place
            .map(|place| place.column),
        Some(1)
    );
    assert_eq!(
        refused("{name: üü, runn: x}\n")
            .place
            .map(|place| place.column),
        Some(12)
    );
}

/// G-13, G-14.
#[test]
fn one_document_without_tags_is_accepted_and_nothing_else() {
    assert_refusals(&[
        (
            "run: x\n---\nrun: y\n",
            "manifest_second_document",
            "2:1",
            "",
        ),
        (
            "run: x\n...\ngarbage\n",
            "manifest_second_document",
            "3:1",
            "",
        ),
        ("", "manifest_empty", "1:1", ""),
        ("\n\n", "manifest_empty", "1:1", ""),
        ("# only\n", "manifest_empty", "1:1", ""),
        ("---\n", "manifest_empty", "1:4", ""),
        ("null\n", "manifest_empty", "1:1", ""),
        (
            "run: !!python/object:os.system x\n",
            "tag_refused",
            "1:6",
            "",
        ),
        ("run: !include x\n", "tag_refused", "1:6", ""),
        ("run: !!binary eA==\n", "tag_refused", "1:6", ""),
        ("run: !!str x\n", "tag_refused", "1:6", ""),
        ("run: ! x\n", "tag_refused", "1:6", ""),
        ("!!map {run: x}\n", "tag_refused", "1:1", ""),
        ("run: !<tag:x> [a]\n", "tag_refused", "1:6", ""),
        ("? !!str run\n: x\n", "tag_refused", "1:3", ""),
        ("%YAML 1.1\n---\nrun: x\n", "manifest_syntax", "1:1", ""),
        ("%TAG ! tag:x\n---\nrun: x\n", "manifest_syntax", "1:1", ""),
        ("? [a]\n: b\n", "key_not_text", "1:3", ""),
        ("{a: 1}: b\n", "key_not_text", "1:1", ""),
        ("run: a: b\n", "manifest_syntax", "1:7", ""),
        ("run: [a\n", "manifest_syntax", "1:6", ""),
        ("run: 'a\n", "manifest_syntax", "1:6", ""),
    ]);
    assert_eq!(
        accepted("---\nrun: x\n...\n").run,
        Some(Run::Text("x".to_owned()))
    );
}

/// G-15.
#[test]
fn a_path_that_could_leave_its_folder_is_refused() {
    for path in [
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/..",
        "..",
        ".",
        "",
        "a//b",
        "a/",
        "~/x",
        "~root/x",
        "$HOME/x",
        "${HOME}/x",
        "http://h/x",
        "file:///etc/passwd",
        "file:x",
        "a\\\\b",
        "a\\0b",
    ] {
        for block in ["inputsFiles", "outputsFiles"] {
            let error = refused(&format!("{block}: {{a: {{path: \"{path}\"}}}}\n"));
            assert!(
                ["path_refused", "wrong_type"].contains(&error.code()),
                "{path}: {error}"
            );
            assert_eq!(error.pointer, Some(format!("/{block}/a/path")), "{path}");
        }
        let error = refused(&format!(
            "run: x\ncode: {{sources: [{{inline: {{path: \"{path}\", content: x}}}}]}}\n"
        ));
        assert!(
            ["path_refused", "wrong_type"].contains(&error.code()),
            "{path}: {error}"
        );
    }
    assert_refusals(&[
        (
            "inputsFiles: {a: {path: a/<runid>}}\n",
            "token_unknown",
            "1:25",
            "/inputsFiles/a/path",
        ),
        (
            "inputsFiles: {a: {path: a<b}}\n",
            "token_unknown",
            "1:25",
            "/inputsFiles/a/path",
        ),
        (
            "inputsFiles: {a: {path: ../<runId>}}\n",
            "path_refused",
            "1:25",
            "/inputsFiles/a/path",
        ),
        (
            "id: '@o/x'\noutputsFiles: {a: {path: <toolId>}}\n",
            "token_id_invalid",
            "1:5",
            "/id",
        ),
        (
            "name: ..\noutputsFiles: {a: {path: <workflowId>}}\n",
            "token_id_invalid",
            "1:7",
            "/name",
        ),
        (
            "inputsFiles: {../a: {path: x}}\n",
            "file_key_refused",
            "1:15",
            "/inputsFiles/..~1a",
        ),
        (
            "inputsFiles: {'': {path: x}}\n",
            "file_key_refused",
            "1:15",
            "/inputsFiles/",
        ),
        (
            "inputsFiles: {..: {path: x}}\n",
            "file_key_refused",
            "1:15",
            "/inputsFiles/..",
        ),
        (
            "inputsFiles: {\"a\\nb\": {path: x}}\n",
            "file_key_refused",
            "1:15",
            "/inputsFiles/a\\x0ab",
        ),
        (
            "inputsFiles: {a: {}}\n",
            "missing_key",
            "1:18",
            "/inputsFiles/a",
        ),
        (
            "outputsFiles: {a: {path: x}, b: {path: ./x}}\n",
            "duplicate_claim",
            "1:40",
            "/outputsFiles/b/path",
        ),
        ("code: ../x\n", "path_refused", "1:7", "/code"),
        ("code: /x\n", "path_refused", "1:7", "/code"),
        ("code: ./x@4f3a2b1c\n", "path_refused", "1:7", "/code"),
        (
            "code: {sources: [{ref: a/../../b}]}\n",
            "path_refused",
            "1:24",
            "/code/sources/0/ref",
        ),
        (
            "code: {sources: [{local: {path: a, as: ../b}}]}\n",
            "path_refused",
            "1:40",
            "/code/sources/0/local/as",
        ),
        (
            "code: {sources: [{inline: {path: a, content: \"\\0\"}}]}\n",
            "wrong_type",
            "1:46",
            "/code/sources/0/inline/content",
        ),
        (
            "sandbox: {provider: local, config: {cwd: ../x}}\n",
            "path_refused",
            "1:42",
            "/sandbox/config/cwd",
        ),
        (
            "workspaceSources: [{id: a, ref: b, mountPath: /c, subpath: ../d}]\n",
            "path_refused",
            "1:60",
            "/workspaceSources/0/subpath",
        ),
    ]);
    assert!(yaml("id: '@o/x'\noutputsFiles: {a: {path: <runId>}}\n").is_ok());
    let error = refused("inputsFiles: {a: {path: <runid>}}\n");
    assert_eq!(error.hint().as_deref(), Some("did you mean `<runId>`?"));
}

/// G-16.
#[test]
fn a_run_that_cannot_be_started_is_refused() {
    let long = format!("run: [a, '{}']\n", "x".repeat(200_000));
    assert_eq!(refused(&long).code(), "run_invalid");
    let many = format!("run: [{}]\n", "a,".repeat(100_000));
    assert_eq!(refused(&many).code(), "manifest_too_much");
    assert_refusals(&[
        ("run: ''\n", "run_invalid", "1:6", "/run"),
        ("run: []\n", "run_invalid", "1:6", "/run"),
        ("run: ['']\n", "run_invalid", "1:6", "/run"),
        ("run: [a, \"b\\0\"]\n", "run_invalid", "1:6", "/run"),
        ("run: \"a\\0\"\n", "run_invalid", "1:6", "/run"),
        ("run: 5\n", "run_invalid", "1:6", "/run"),
        ("run:\n", "run_invalid", "1:4", "/run"),
        ("run: {}\n", "run_invalid", "1:6", "/run"),
        ("run: {file: a, exec: [b]}\n", "run_invalid", "1:6", "/run"),
        ("run: {exec: a}\n", "wrong_type", "1:13", "/run/exec"),
        ("run: {file: 5}\n", "wrong_type", "1:13", "/run/file"),
        ("run: [a, 5]\n", "wrong_type", "1:10", "/run/1"),
        ("run: [a, null]\n", "wrong_type", "1:10", "/run/1"),
        ("run: /x.py\n", "run_invalid", "1:6", "/run"),
        ("run: ../x.py\n", "run_invalid", "1:6", "/run"),
        ("run: {file: a/../../x.py}\n", "run_invalid", "1:6", "/run"),
        ("run: '\"my tool.ts\"'\n", "run_invalid", "1:6", "/run"),
        (
            "run: x.py\nentry: y.py\n",
            "conflicting_keys",
            "2:1",
            "/entry",
        ),
        ("entry: /y.py\n", "run_invalid", "1:8", "/entry"),
        (
            "run: tool.py\nrunner: {needs: {language: node}}\n",
            "needs_contradict_run",
            "1:6",
            "/run",
        ),
        (
            "run: {file: a.ts}\nrunner: {needs: {language: python}}\n",
            "needs_contradict_run",
            "1:6",
            "/run",
        ),
    ]);
    for (text, run) in [
        (
            "run: [a, '']\n",
            Run::Array(vec!["a".to_owned(), String::new()]),
        ),
        ("run: {exec: [a]}\n", Run::Exec(vec!["a".to_owned()])),
        ("run: {shell: /x.py}\n", Run::Shell("/x.py".to_owned())),
        ("run: a && b\n", Run::Text("a && b".to_owned())),
    ] {
        assert_eq!(accepted(text).run, Some(run));
    }
}

/// G-17: the tests of the parser cover the grammar itself.
#[test]
fn an_egress_entry_that_is_no_host_is_refused() {
    for entry in [
        "*",
        "*.com",
        "",
        " host",
        "host:99999",
        "http://h",
        "h/",
        "H.",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "fe80::1%eth0",
        "10.0.0.0/8",
        "münchen.de",
    ] {
        for (start, end, pointer) in [
            ("network: {egress: [a.com, '", "']}\n", "/network/egress/1"),
            (
                "sandbox: {provider: local, network: {egress: ['",
                "']}}\n",
                "/sandbox/network/egress/0",
            ),
            (
                "runtime: {mode: subprocess, network: {egress: ['",
                "']}}\n",
                "/runtime/network/egress/0",
            ),
        ] {
            let error = refused(&format!("{start}{entry}{end}"));
            assert_eq!(error.code(), "egress_invalid", "{entry}");
            assert_eq!(error.pointer.as_deref(), Some(pointer), "{entry}");
        }
    }
    assert_eq!(accepted("network: {}\n").egress, []);
    assert_eq!(accepted("network: {egress: []}\n").egress, []);
    assert_eq!(
        accepted("network: {egress: [a.com, A.com]}\n").egress.len(),
        1
    );
}

/// G-18: a limit that is too low is an ordinary number; the component that enforces it reports it.
#[test]
fn the_smallest_limits_are_accepted() {
    let limits = accepted("runner: {limits: {memory_mb: 1, timeout_ms: 1, cpu_ms: 1}}\n").limits;
    assert_eq!(
        limits.iter().map(|limit| limit.value).collect::<Vec<_>>(),
        [1 << 20, 1, 1]
    );
}

/// G-20.
#[test]
fn a_message_never_carries_what_a_terminal_would_obey() {
    for text in [
        "\"a\\e[31m\\u202eb\": 1\n",
        "run: {\"\\e]0;x\\a\": 1}\n",
        "kind: \"\\e[2J\"\n",
        "network: {egress: [\"\\e[2J\"]}\n",
        "inputsFiles: {\"\\e\": {path: x}}\n",
        "inputsFiles: {a: {path: \"../\\e[2J\\r\\n\"}}\n",
        "sandbox: {provider: local, mounts: [{source: workspace, at: \"/\\e/..\"}]}\n",
        "code: \"/\\u009b31m\"\n",
    ] {
        let error = refused(text);
        let shown = format!("{error} {:?} {:?}", error.hint(), error.pointer);
        assert!(
            !shown.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{shown:?}"
        );
    }
    let error = manifest::parse(&PERMIT, b"a", Format::Yaml, "\x1b[31m.yaml").expect_err("refused");
    assert!(
        error.to_string().starts_with("\\x1b[31m.yaml:1:1"),
        "{error}"
    );
    let long = refused(&format!("{}: 1\n", "k".repeat(1_000)));
    assert!(long.to_string().len() < 300, "{long}");
}

#[test]
fn the_sandbox_block_is_read() {
    let manifest = accepted(
        "run: x\n\
         sandbox:\n\
         \x20 inline:\n\
         \x20   provider: local\n\
         \x20   config: {cwd: sub, shell: /bin/bash}\n\
         \x20   limits: {timeout_ms: 30000, memory_mb: 64, cpu_ms: 5}\n\
         \x20   env:\n\
         \x20     auth: {ref: ./SECRETS.md, state: {env: [OPENAI_API_KEY]}}\n\
         \x20     passthrough: [NODE_ENV, DEBUG]\n\
         \x20   network: {egress: [api.openai.com]}\n\
         \x20   mounts:\n\
         \x20     - {source: workspace, at: /workspace/deep, mode: read-only}\n\
         \x20     - {source: workspace, at: /workspace}\n\
         \x20   identity: {ref: 'bot://agentik'}\n\
         \x20   policy: {ref: ./POLICY.md}\n\
         \x20   lifecycle: {pause_after_idle_ms: 300000, destroy_on_workspace_close: true}\n\
         \x20   read_only: false\n\
         \x20   metadata: {x: {y: 1}}\n",
    );
    let block = manifest.sandbox.as_ref().expect("a block");
    assert_eq!(block.provider, Provider::Local);
    assert_eq!(
        block.local.cwd.as_ref().map(ToString::to_string).as_deref(),
        Some("sub")
    );
    assert_eq!(block.pause_after_idle.as_deref(), Some("idle-300"));
    assert_eq!(block.destroy_on.as_deref(), Some("workspace-close"));
    assert_eq!(manifest.limits[1].source, "sandbox.limits.memory_mb");
    assert_eq!(
        manifest.secrets[0].reference,
        SecretReference::Vault("openai-api-key".to_owned())
    );
    assert_eq!(manifest.secrets[0].source, "sandbox.env.auth");
    assert_eq!(manifest.env_passthrough, ["NODE_ENV", "DEBUG"]);
    assert_eq!(manifest.egress[0].source, "sandbox.network.egress");
    let mounts: Vec<(&str, bool)> = manifest
        .mounts
        .iter()
        .map(|mount| (mount.target.as_str(), mount.mode.is_writable()))
        .collect();
    assert_eq!(
        mounts,
        [("/workspace", true), ("/workspace/deep", false)],
        "parents first"
    );
    assert_eq!(manifest.restrictions[0].source, "sandbox.policy");
    assert_eq!(
        warning_codes(&manifest),
        ["deprecated_field", "deprecated_field"]
    );
    assert_eq!(
        manifest.ignored,
        [
            "/sandbox/inline/identity",
            "/sandbox/inline/lifecycle",
            "/sandbox/inline/metadata"
        ]
    );
    assert_eq!(manifest.check_executable(), Ok(()));
}

#[test]
fn a_sandbox_that_this_program_is_not_is_refused_before_anything_is_started() {
    assert_refusals(&[
        ("sandbox: {config: {}}\n", "missing_key", "1:10", "/sandbox"),
        (
            "sandbox: {ref: ./main.SANDBOX.md}\n",
            "sandbox_ref_unresolvable",
            "1:16",
            "/sandbox/ref",
        ),
        (
            "sandbox: {file: ./main.SANDBOX.md}\n",
            "sandbox_ref_unresolvable",
            "1:17",
            "/sandbox/file",
        ),
        (
            "sandbox: {inline: {provider: local}, ref: x}\n",
            "unknown_key",
            "1:38",
            "/sandbox/ref",
        ),
        (
            "runner: {ref: '@a/b'}\n",
            "runner_ref_unresolvable",
            "1:15",
            "/runner/ref",
        ),
        (
            "runner: {file: ./RUNNER.md}\n",
            "runner_ref_unresolvable",
            "1:16",
            "/runner/file",
        ),
        (
            "secrets: {ref: ./SECRETS.md}\n",
            "secrets_ref_unresolvable",
            "1:16",
            "/secrets/ref",
        ),
        (
            "sandbox: {fs: {read: [a]}}\n",
            "sandbox_is_cli_block",
            "1:15",
            "/sandbox/fs",
        ),
        (
            "sandbox: {exec: {spawn: true}}\n",
            "sandbox_is_cli_block",
            "1:17",
            "/sandbox/exec",
        ),
        (
            "sandbox: {env: {pass: [A]}}\n",
            "sandbox_is_cli_block",
            "1:23",
            "/sandbox/env/pass",
        ),
        (
            "sandbox: {provider: mastra-e2b}\n",
            "missing_key",
            "1:10",
            "/sandbox",
        ),
        (
            "sandbox: {provider: local, lifecycle: {destroy_on: x, destroy_on_workspace_close: true}}\n",
            "conflicting_keys",
            "1:39",
            "/sandbox/lifecycle",
        ),
        (
            "runner: {engine: subprocess}\nruntime: {engine: subprocess}\n",
            "conflicting_keys",
            "2:1",
            "/runtime",
        ),
    ]);
    for (text, code) in [
        (
            "sandbox: {provider: mastra-e2b, config: {template: t, api_key_ref: r}}\n",
            "provider_unavailable",
        ),
        (
            "sandbox: {provider: mastra-modal, config: {app_name: a}}\n",
            "provider_unavailable",
        ),
        (
            "sandbox: {provider: local, config: {}, read_only: true}\n",
            "sandbox_read_only",
        ),
        (
            "sandbox: {provider: local, config: {}, mounts: [{source: {ref: '@a/b'}, at: /v}]}\n",
            "storage_unsupported",
        ),
        (
            "sandbox: {provider: local, config: {}, mounts: [{source: {inline: {provider: x}}, at: /v}]}\n",
            "storage_unsupported",
        ),
        ("code: ./shared\n", "code_unresolved"),
        (
            "code: {sources: [{inline: {path: a, content: b}}]}\n",
            "code_unresolved",
        ),
        (
            "schema: code/v2\nsource: {local: ./search.py}\nrun: python search.py\n",
            "code_unresolved",
        ),
    ] {
        let error = accepted(text).check_executable().expect_err(text);
        assert_eq!(error.code(), code, "{text}");
        assert!(error.place.is_some() && error.hint().is_some(), "{text}");
    }
    let origin = accepted("run: x\nsource: {origin: ai-draft}\n");
    assert_eq!(origin.check_executable(), Ok(()));
    assert_eq!(origin.ignored, ["/source"]);
}

#[test]
fn a_credential_in_plain_text_is_refused_and_not_repeated() {
    for text in [
        "sandbox: {provider: mastra-e2b, config: {template: t, api_key: hunter2hunter2}}\n",
        "sandbox: {provider: local, config: {cwd: sk-live-hunter2hunter2}}\n",
        "sandbox: {provider: local, metadata: {x: {dbPassword: hunter2hunter2}}}\n",
        "sandbox: {provider: local, metadata: {x: [ghp_hunter2hunter2]}}\n",
        "secrets: {API_KEY: hunter2hunter2}\n",
        "secrets: {API_KEY: {value: sk-live-hunter2hunter2}}\n",
        "secrets: {API_KEY: {oauth: ghp_hunter2hunter2}}\n",
        "secrets: {API_KEY: {plaintext: hunter2hunter2}}\n",
        "secrets: {API_KEY: {vault: sk-live-hunter2hunter2}}\n",
    ] {
        let error = refused(text);
        assert_eq!(error.code(), "plaintext_credential", "{text}");
        assert!(
            !format!("{error:?} {error}").contains("hunter2"),
            "{error:?}"
        );
        assert!(error.hint().expect("a hint").contains("--secret"));
    }
}

#[test]
fn a_mount_that_would_hide_the_system_is_refused() {
    for at in [
        "/",
        "relative",
        "/a/../etc",
        "//a",
        "/a//b",
        "/proc",
        "/sys/x",
        "/dev",
        "/usr",
        "/lib64",
        "/etc/x",
        "/runner",
        "/bundle",
        "/scratch",
        "/tmp",
    ] {
        let error = refused(&format!(
            "sandbox: {{provider: local, mounts: [{{source: workspace, at: '{at}'}}]}}\n"
        ));
        assert_eq!(
            told(&error),
            (
                "mount_refused".to_owned(),
                "1:61".to_owned(),
                "/sandbox/mounts/0/at".to_owned()
            ),
            "{at}"
        );
        let error = refused(&format!(
            "workspaceSources: [{{id: a, ref: b, mountPath: '{at}'}}]\n"
        ));
        assert_eq!(error.code(), "mount_refused", "{at}");
    }
    assert_refusals(&[
        (
            "sandbox: {provider: local, mounts: [{source: workspace, at: /w}, {source: workspace, at: /w}]}\n",
            "duplicate_claim",
            "1:90",
            "/sandbox/mounts/1/at",
        ),
        (
            "sandbox: {provider: local, mounts: [{source: home, at: /w}]}\n",
            "unknown_value",
            "1:46",
            "/sandbox/mounts/0/source",
        ),
        (
            "workspaceSources: [{id: a, ref: b, mountPath: /c}, {id: a, ref: b, mountPath: /d}]\n",
            "duplicate_claim",
            "1:57",
            "/workspaceSources/1/id",
        ),
        (
            "sandbox: {provider: local, mounts: [{source: workspace, at: /w}]}\nworkspaceSources: [{id: a, ref: b, mountPath: /w}]\n",
            "duplicate_claim",
            "2:20",
            "/workspaceSources/0",
        ),
    ]);
    let source =
        &accepted("workspaceSources: [{id: a, ref: r, mountPath: /w}]\n").workspace_sources[0];
    assert_eq!((source.writable, source.required), (false, true));
}

#[test]
fn keys_of_other_programs_are_ignored_with_a_warning() {
    let manifest = accepted(
        "run: x\nsandbox: {provider: local, env: {autoPassthrough: true}, extraPorts: [80], join: {tokenEnv: X}, config: {installAdapters: true}}\n",
    );
    let codes = warning_codes(&manifest);
    assert_eq!(codes, ["unspecified_key"; 4]);
    assert!(
        codes
            .iter()
            .all(|code| manifest::STRICT_REFUSES.contains(code))
    );
    let manifest = accepted("run: x\nsandbox: {provider: node-permission}\n");
    assert_eq!(warning_codes(&manifest), ["config_missing"]);
    assert!(manifest::STRICT_REFUSES.contains(&"config_missing"));
}

#[test]
fn in_process_becomes_subprocess_and_says_so() {
    for text in [
        "runner: {engine: in-process}\n",
        "runtime: {engine: in-process}\n",
        "runtime: {mode: in-process}\n",
    ] {
        let manifest = accepted(text);
        assert_eq!(manifest.runner.engine, Engine::Subprocess);
        assert!(manifest.runner.downgraded, "{text}");
        assert!(
            warning_codes(&manifest).contains(&"engine_downgraded"),
            "{text}"
        );
    }
    assert!(!accepted("runner: {engine: subprocess}\n").runner.downgraded);
}

#[test]
fn the_old_runtime_block_means_what_it_meant() {
    let manifest = accepted(
        "entry: tool.ts\n\
         runtime:\n\
         \x20 mode: sandbox\n\
         \x20 env: [STRIPE_API_KEY]\n\
         \x20 fs: {read: [in/a.csv], write: {b.csv: {path: out/b.csv}}}\n\
         \x20 network: {egress: [api.stripe.com]}\n\
         \x20 cpu_ms_max: 1\n\
         \x20 memory_mb_max: 2\n\
         \x20 timeout_ms_max: 3\n",
    );
    assert_eq!(manifest.run, Some(Run::File("tool.ts".to_owned())));
    assert_eq!(manifest.runner.engine, Engine::Subprocess);
    assert_eq!(
        manifest.secrets[0].reference,
        SecretReference::Vault("stripe-api-key".to_owned())
    );
    assert_eq!(manifest.io.input_files[0].key.as_bytes(), b"a.csv");
    assert_eq!(manifest.io.output_files[0].path.to_string(), "out/b.csv");
    assert_eq!(manifest.egress[0].source, "runtime.network.egress");
    assert_eq!(manifest.limits[1].source, "runtime.memory_mb_max");
    assert_eq!(manifest.limits[1].value, 2 << 20);
    assert_eq!(
        warning_codes(&manifest),
        ["deprecated_entry", "deprecated_runtime"]
    );
    assert_eq!(
        accepted("runtime: {engine: sandbox}\n").runner.engine,
        Engine::Sandbox
    );
    assert_refusals(&[
        (
            "runtime: {mode: subprocess, env: [A]}\nsecrets: {A: {vault: a}}\n",
            "duplicate_claim",
            "2:10",
            "/secrets",
        ),
        (
            "runtime: {mode: subprocess, engine: subprocess}\n",
            "unknown_key",
            "1:11",
            "/runtime/mode",
        ),
        (
            "runtime: {mode: subprocess, fs: {read: [a/x, b/x]}}\n",
            "duplicate_claim",
            "1:46",
            "/runtime/fs/read/1",
        ),
    ]);
}

#[test]
fn a_code_workspace_has_no_call() {
    for key in ["inputs", "outputs", "inputsFiles", "outputsFiles"] {
        let error = refused(&format!("kind: code-workspace\n{key}: {{}}\n"));
        assert_eq!(
            told(&error),
            (
                "io_in_code_workspace".to_owned(),
                "2:1".to_owned(),
                format!("/{key}")
            )
        );
    }
    let manifest = accepted(
        "kind: code-workspace\nname: x\ncode: {sources: [{github: {repo: a/b, ref: 4f3a2b1c, path: src/, as: .}}, {local: lib/}]}\n",
    );
    assert_eq!(manifest.kind, Kind::CodeWorkspace);
    assert_eq!(manifest.code.len(), 2);
    assert_eq!(warning_codes(&manifest), ["reference_looks_abbreviated"]);
}

#[test]
fn the_reserved_input_may_only_be_declared_as_text() {
    let error = refused(
        "inputs: {properties: {_workflowFsRoot: {type: number}}}\ninputsFiles: {a: {path: b}}\n",
    );
    assert_eq!(
        told(&error),
        (
            "fs_root_declared".to_owned(),
            "1:40".to_owned(),
            "/inputs/properties/_workflowFsRoot".to_owned()
        )
    );
    assert!(
        yaml(
            "inputs: {properties: {_workflowFsRoot: {type: string}}}\ninputsFiles: {a: {path: b}}\n"
        )
        .is_ok()
    );
    assert!(yaml("inputs: {properties: {_workflowFsRoot: {type: number}}}\n").is_ok());
}

/// G-22, in the spirit of JSONTestSuite: invalid JSON is not accepted.
#[test]
fn invalid_json_is_refused() {
    for text in [
        "[1,]",
        "[,1]",
        "[1,,2]",
        "[1 2]",
        "[",
        "]",
        "{",
        "}",
        "[1",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,\"a\":1}",
        "{a:1}",
        "{'a':1}",
        "{\"a\" 1}",
        "{\"a\"::1}",
        "{1:1}",
        "{null:1}",
        "[\"a\" : 1]",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1}}",
        "[1]x",
        "[1][2]",
        "1 2",
        "// c\n[1]",
        "/* */[1]",
        "[1]#",
        "[01]",
        "[-01]",
        "[1.]",
        "[.5]",
        "[-.5]",
        "[1.e3]",
        "[1e]",
        "[1e+]",
        "[1eE2]",
        "[+1]",
        "[--1]",
        "[-]",
        "[0x1]",
        "[1_0]",
        "[1+2]",
        "[0.1.2]",
        "[NaN]",
        "[-NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[-1x]",
        "[1a]",
        "[\u{ff11}]",
        "[nul]",
        "[nulll]",
        "[Null]",
        "[True]",
        "[truth]",
        "[tru]",
        "[\"]",
        "[\"\\x\"]",
        "[\"\\\"]",
        "[\"\\u00\"]",
        "[\"\\u00g0\"]",
        "[\"\\U0041\"]",
        "[\"\\ud800\"]",
        "[\"\\udc00\"]",
        "[\"\\ud800\\ud800\"]",
        "[\"\\ud800x\"]",
        "[\"\\ud800\\n\"]",
        "[\"\t\"]",
        "[\"\n\"]",
        "[\"\u{1f}\"]",
        "['a']",
        "[a]",
        "[\u{c}]",
        "[\u{a0}1]",
        "[\u{2060}]",
        "\u{feff}\u{feff}[1]",
        "[1]\u{feff}",
        "[\"a\",\n4\n,1,",
        "{\"a\":\"b\"}/**/",
        "{\"x\", null}",
        "<null>",
        "[<null>]",
        "*",
        "{\"a\":*x}",
        "&a [1]",
        "!!str \"a\"",
        "- 1",
        "a: 1",
        "\"a\" \"b\"",
        "[\"a\"\"b\"]",
        "[\\u000A\"\"]",
        "{\"a\":\"b\",\"a\":\"b\"}",
    ] {
        assert!(
            document::parse(&PERMIT, text.as_bytes(), Format::Json).is_err(),
            "{text}"
        );
    }
    for text in [
        "[]",
        "{}",
        "[ ]",
        " [1]\r\n\t ",
        "[1,2]",
        "[[],{}]",
        "{\"\":0}",
        "{\"a\":{\"b\":[]}}",
        "[0]",
        "[-0]",
        "[-1]",
        "[1.5]",
        "[1e3]",
        "[1E3]",
        "[1e-3]",
        "[1e+3]",
        "[0e1]",
        "[123456789012345678901234567890]",
        "[1e9999]",
        "[true,false,null]",
        "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
        "[\"\\u0041\\uD83D\\uDE00\"]",
        "[\"\\u0000\"]",
        "[\"\u{7f}\"]",
        "[\"\u{2028}\u{2029}\"]",
        "\"a\"",
        "1",
        "true",
        "[\"\u{10ffff}\"]",
        "{\"a\\u0000b\":1}",
        "\u{feff}[1]",
    ] {
        assert!(
            document::parse(&PERMIT, text.as_bytes(), Format::Json).is_ok(),
            "{text}"
        );
    }
    let root =
        document::parse(&PERMIT, br#"["\u0041\uD83D\uDE00\/"]"#, Format::Json).expect("JSON");
    assert_eq!(root.to_json(), Ok(json!(["A😀/"])));
}

#[test]
fn an_error_in_json_has_its_place() {
    let text = b"{\n  \"run\": \"x\",\n  \"runner\": {\"limits\": {\"cpu_ms\": 1.5}}\n}";
    let error = manifest::parse(&PERMIT, text, Format::Json, "m.json").expect_err("refused");
    assert_eq!(
        error.to_string(),
        "m.json:3:35 at /runner/limits/cpu_ms: found the number 1.5, expected a whole number in decimal digits"
    );
    let error = manifest::parse(&PERMIT, b"{\n  \"run\": x\n}", Format::Json, "m.json")
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "m.json:2:10: found `x`, expected a value; text needs double quotes"
    );
}

/// G-23: the parsers are pure functions of their arguments; the architecture test forbids the environment.
#[test]
fn the_same_text_is_read_the_same_way_twice() {
    let text = "run: x\nname: ı\ninputs: {a: 1.5, b: 1e3}\n";
    assert_eq!(accepted(text), accepted(text));
    assert_eq!(refused("kınd: x\n"), refused("kınd: x\n"));
}

/// The result of validating `document` with `schema` in a separate process: a code, and text.
fn judged(schema: &serde_json::Value, document: &serde_json::Value) -> (String, String) {
    let question = Question {
        block: "inputs",
        schema,
        document: Some(document),
    };
    let limit = WaitLimit {
        time: Some(Duration::from_secs(3)),
        signals: None,
    };
    match judge(&[question], limit) {
        Ok(()) => ("accepted".to_owned(), String::new()),
        Err(Refused::Schema { error, .. }) => (error.code().to_owned(), error.to_string()),
        Err(Refused::Document(found)) => ("mismatch".to_owned(), format!("{found:?}")),
        Err(other) => panic!("{other:?}"),
    }
}

/// G-24.
#[test]
fn a_hostile_schema_is_refused_or_given_up_and_the_judge_goes_on() {
    let patterns = |count: usize, text: fn(usize) -> String| -> serde_json::Value {
        let patterns: serde_json::Map<String, serde_json::Value> = (0..count)
            .map(|n| (format!("p{n}"), json!({"pattern": text(n)})))
            .collect();
        json!({"properties": patterns})
    };
    let mut anchored = serde_json::Map::new();
    for level in 0..40 {
        let below = json!({"$ref": format!("#l{}", level + 1)});
        let part = json!({"$anchor": format!("l{level}"), "allOf": [below, below]});
        anchored.insert(format!("l{level}"), part);
    }
    anchored.insert("l40".to_owned(), json!({"$anchor": "l40"}));
    let decoys: Vec<_> = (0..40)
        .map(|level| json!({"$anchor": format!("l{level}")}))
        .collect();
    let unevaluated = (0..30).fold(
        json!({}),
        |inner, _| json!({"unevaluatedProperties": false, "allOf": [inner]}),
    );
    let recursive = json!({"properties": {"x": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
    let deep = (0..90).fold(json!(1), |inner, _| json!({"x": inner}));
    let (invalid, costly) = ("schema_invalid", "schema_too_costly");
    for (schema, codes, told) in [
        (
            json!({"$ref": "http://127.0.0.1/x"}),
            vec![invalid],
            "127.0.0.1",
        ),
        (
            json!({"$ref": "file:///etc/passwd"}),
            vec![invalid],
            "passwd",
        ),
        (json!({"$ref": "#/$defs/gone"}), vec![invalid], "gone"),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            vec![invalid],
            "2020-12",
        ),
        (json!({"pattern": "(?=a)b"}), vec![invalid], "regex"),
        (json!({"pattern": "(a)\\1"}), vec![invalid], "regex"),
        (
            json!({"pattern": "((a{100}){100}){100}"}),
            vec![invalid],
            "regex",
        ),
        (json!({"type": "strin"}), vec![invalid], "at /type"),
        (
            json!({"description": "x".repeat(2 << 20)}),
            vec![invalid],
            "at most 1 MiB",
        ),
        (
            json!({"$defs": anchored, "$ref": "#l0", "examples": decoys}),
            vec![costly, invalid],
            "",
        ),
        (unevaluated, vec![costly, "accepted", "mismatch"], ""),
        (recursive, vec![costly, "accepted"], ""),
        (
            patterns(500, |n| format!("(?:\\p{{L}}{{12}}|x{n})")),
            vec![costly, invalid],
            "",
        ),
        (
            patterns(1_000, |n| format!("(a+)+{n}")),
            vec![costly, "accepted"],
            "",
        ),
        (json!({"$ref": "#"}), vec![costly, "accepted"], ""),
        (json!({"pattern": "^(a+)+$"}), vec!["accepted"], ""),
        (json!({"uniqueItems": true}), vec!["accepted"], ""),
    ] {
        let (code, said) = judged(&schema, &deep);
        assert!(codes.contains(&code.as_str()), "{code} {said} {codes:?}");
        assert!(said.contains(told), "{told}: {said}");
    }
    // The next document is validated by another process.
    assert_eq!(judged(&json!({"type": "object"}), &deep).0, "accepted");
    let many = json!((0..100_000).collect::<Vec<_>>());
    assert_eq!(judged(&json!({"uniqueItems": true}), &many).0, "accepted");
    let linear = json!("a".repeat(200_000) + "b");
    assert_eq!(
        judged(&json!({"pattern": "^(a+)+$"}), &linear).0,
        "mismatch"
    );
}

#[test]
fn a_mismatch_names_the_place_and_what_was_expected() {
    let contract = Contract::compile(
        &PERMIT,
        &json!({
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"$ref": "#/$defs/b"}},
            "required": ["a"],
            "additionalProperties": false,
            "$defs": {"b": {"type": "array", "items": {"type": "string"}}}
        }),
    )
    .expect("a contract");
    assert_eq!(contract.validate(&json!({"a": 1, "b": ["x"]})), Ok(()));
    let mismatches = contract
        .validate(&json!({"a": 0, "b": ["x", 5], "c\u{1b}": 1}))
        .expect_err("refused");
    let pointers: Vec<&str> = mismatches
        .iter()
        .map(|mismatch| mismatch.pointer.as_str())
        .collect();
    assert!(
        pointers.contains(&"/a") && pointers.contains(&"/b/1"),
        "{mismatches:?}"
    );
    assert!(
        mismatches
            .iter()
            .all(|mismatch| !mismatch.message.contains('\u{1b}')),
        "{mismatches:?}"
    );
    let many =
        Contract::compile(&PERMIT, &json!({"items": {"type": "string"}})).expect("a contract");
    let mismatches = many.validate(&json!(vec![1; 1_000])).expect_err("refused");
    assert_eq!(mismatches.len(), 8);
}

/// G-24.
#[test]
fn a_document_is_measured_before_it_is_read() {
    for (text, told) in [
        (vec![b' '; (16 << 20) + 1], "expected at most 16 MiB"),
        (b"[".repeat(100_000), "nested deeper than 100"),
        (b"{\"a\":".repeat(100_000), "nested deeper than 100"),
        (
            [&b"["[..], &b"1,".repeat(1_000_001), b"1]"].concat(),
            "more than 42 MiB of memory",
        ),
        (
            [&b"["[..], &b"[1],".repeat(200_000), b"1]"].concat(),
            "more than 42 MiB of memory",
        ),
        (
            [&b"["[..], &b"{\"a\":1},".repeat(100_000), b"1]"].concat(),
            "more than 42 MiB of memory",
        ),
        (b"{\"a\":1,}".to_vec(), "not JSON"),
        (b"".to_vec(), "not JSON"),
        (b"[1] [2]".to_vec(), "not JSON"),
        (b"\"\xff\"".to_vec(), "not JSON"),
        (b"1e999".to_vec(), "not JSON"),
        (
            b"{\"a\": 18446744073709551616}".to_vec(),
            "18446744073709551616 at byte 6",
        ),
        (b"[\"\\\\\", -9223372036854775809]".to_vec(), "at byte 7"),
        (
            b"123456789012345678901234567890".to_vec(),
            "more than 64 bits",
        ),
    ] {
        let error = read_document(&PERMIT, &text, usize::MAX).expect_err(told);
        assert!(error.to_string().contains(told), "{told}: {error}");
    }
    let exact = "[18446744073709551615,-9223372036854775808,\"99999999999999999999\\\"1\",1e300]";
    let read = read_document(&PERMIT, exact.as_bytes(), 4_096).expect("read");
    assert_eq!(read.to_string(), exact.replace("1e300", "1e+300"));
    assert_eq!(
        read_document(&PERMIT, b"[\"[[\\\"[[\", {\"a\": 1}]", 4_096),
        Ok(json!(["[[\"[[", {"a": 1}]))
    );
}

#[test]
fn the_scratch_files_place_is_told_by_the_host() {
    let mut schema = json!({"type": "object", "additionalProperties": false});
    declare_fs_root(&mut schema).expect("declared");
    let contract = Contract::compile(&PERMIT, &schema).expect("a contract");
    let mut input = json!({"_workflowFsRoot": "/etc"});
    inject_fs_root(&mut input, "/scratch").expect("an object");
    assert_eq!(contract.validate(&input), Ok(()));
    assert_eq!(input["_workflowFsRoot"], "/scratch");
}

fn every_place_is_inside(node: &Node, lines: u32) {
    assert!(
        (1..=lines + 1).contains(&node.place.line),
        "{:?}",
        node.place
    );
    match &node.value {
        Value::List(items) => items
            .iter()
            .for_each(|item| every_place_is_inside(item, lines)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|(_, value)| every_place_is_inside(value, lines)),
        _ => (),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for format in [Format::Yaml, Format::Json, Format::FrontMatter] {
            let told = manifest::parse(&PERMIT, &bytes, format, "m").map_err(|error| (error.to_string(), error.hint()));
            prop_assert_eq!(&told, &manifest::parse(&PERMIT, &bytes, format, "m").map_err(|error| (error.to_string(), error.hint())));
        }
    }

    #[test]
    fn any_text_of_the_signs_of_yaml_is_read_or_refused(text in "[-:?,\\[\\]{}#&*!|>'\"%@` \n\ta0.~<é]{0,80}") {
        if let Ok(root) = document::parse(&PERMIT, text.as_bytes(), Format::Yaml) {
            every_place_is_inside(&root, u32::try_from(text.lines().count()).unwrap_or(u32::MAX));
        }
        prop_assert!(yaml(&text).is_err() || yaml(&text).is_ok());
    }

    #[test]
    fn any_change_of_a_good_manifest_is_read_or_refused(at in 0_usize..400, with in "\\PC{0,3}|[\n:\\[{}\\]'\"]") {
        let good = "run: [a, b]\nid: x\nrunner:\n  limits: {memory_mb: 5}\nsandbox:\n  provider: local\n  config: {cwd: a}\n  mounts:\n    - {source: workspace, at: /w}\nnetwork: {egress: ['a.com:5']}\ninputsFiles: {a: {path: 'b/<runId>'}}\nsecrets: {A: {vault: b}}\n";
        let mut changed: Vec<char> = good.chars().collect();
        let at = at % changed.len();
        changed.splice(at..=at, with.chars());
        let changed: String = changed.into_iter().collect();
        if let Err(error) = yaml(&changed) {
            prop_assert!(error.place.is_some(), "{}", error);
            prop_assert!(!error.code().is_empty());
        }
    }

    /// The JSON parser and `serde_json` accept the same texts, except for duplicate keys and depth.
    #[test]
    fn json_is_what_serde_json_takes_for_json(text in "[-+\\[\\]{},:\"\\\\ue0-9.tfn ]{0,24}|\"[ -~]{0,12}\"|\\[(-?[0-9.eE+-]{1,8},?)*\\]") {
        let ours = document::parse(&PERMIT, text.as_bytes(), Format::Json);
        let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
        match (&ours, &theirs) {
            (Ok(root), Ok(value)) => {
                if let Ok(json) = root.to_json() {
                    prop_assert_eq!(&json, value);
                }
            }
            (Err(error), Ok(value)) => {
                prop_assert!(matches!(error.problem.code(), "duplicate_key" | "manifest_empty"), "{} {}", text, value);
            }
            (Ok(root), Err(_)) => prop_assert!(root.to_json().is_err(), "{}", text),
            (Err(_), Err(_)) => (),
        }
    }
}
