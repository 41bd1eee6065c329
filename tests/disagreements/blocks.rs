//! Rows that a manifest alone decides.

use std::collections::BTreeMap;

use serde_json::json;
use spec::code_block::{CodeSource, SourceTarget};
use spec::document::{self, Format};
use spec::egress::{EgressRule, intersect};
use spec::manifest::{
    self, BlockDocument, BlockDocuments, BlockForm, BlockReference, Level, Manifest, ManifestError,
    STRICT_REFUSES, inherit,
};
use spec::parse_permit::ParsePermit;
use spec::run_form::{TextForm, text_form};
use spec::runner_block::Engine;

const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

fn yaml(text: &str) -> Result<Manifest, ManifestError> {
    manifest::parse(&PERMIT, text.as_bytes(), Format::Yaml, "manifest.yaml")
}

#[track_caller]
fn accepted(text: &str) -> Manifest {
    yaml(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

#[track_caller]
fn refused(text: &str, code: &str) -> ManifestError {
    let error = yaml(text).expect_err(text);
    assert_eq!(error.code(), code, "{text}\n{error}");
    error
}

fn warnings(manifest: &Manifest) -> Vec<&str> {
    let codes = manifest.warnings.iter();
    codes.map(|warning| warning.code.as_str()).collect()
}

/// A manifest whose block `runner` is in `RUNNER.md`, referenced in this form.
fn with_document(text: &str, form: BlockForm) -> Manifest {
    let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("YAML");
    let block = "---\nengine: sandbox\nlimits: {memory_mb: 5}\n---\n";
    let mut blocks = BlockDocuments::default();
    blocks.insert(
        BlockReference {
            block: "runner",
            form,
            text: "./RUNNER.md".to_owned(),
        },
        BlockDocument {
            file: "RUNNER.md".to_owned(),
            root: document::parse(&PERMIT, block.as_bytes(), Format::FrontMatter)
                .expect("front matter"),
        },
    );
    let parsed = manifest::parse_with(&root, "manifest.yaml", &blocks);
    parsed
        .manifest
        .unwrap_or_else(|| panic!("{text}\n{:?}", parsed.errors))
}

/// Row 1.
#[test]
fn a_runner_block_is_unwrapped_from_inline_ref_and_file_and_judged_like_any_other() {
    let plain = accepted("runner: {engine: sandbox, limits: {memory_mb: 5}}");
    let inline = accepted("runner: {inline: {engine: sandbox, limits: {memory_mb: 5}}}");
    assert_eq!(inline.runner, plain.runner);
    for (text, form) in [
        ("runner: {ref: ./RUNNER.md}", BlockForm::Ref),
        ("runner: {file: ./RUNNER.md}", BlockForm::File),
    ] {
        assert_eq!(
            with_document(text, form).runner.engine,
            Engine::Sandbox,
            "{text}"
        );
        refused(text, "runner_ref_unresolvable");
    }
    refused("runner: {inline: {engin: sandbox}}", "unknown_key");
}

/// Row 2.
#[test]
fn a_life_cycle_is_accepted_in_both_spellings_and_with_unsupported_keys() {
    let sandbox = |lifecycle: &str| {
        accepted(&format!(
            "sandbox: {{provider: local, config: {{}}, lifecycle: {{{lifecycle}}}}}"
        ))
    };
    let new = sandbox("pause_after_idle: idle-600, destroy_on: workspace-close");
    let old = sandbox("pause_after_idle_ms: 600000, destroy_on_workspace_close: true");
    for manifest in [&new, &old] {
        let block = manifest.sandbox.as_ref().expect("a sandbox");
        assert_eq!(block.pause_after_idle.as_deref(), Some("idle-600"));
        assert_eq!(block.destroy_on.as_deref(), Some("workspace-close"));
        assert_eq!(manifest.ignored, ["/sandbox/lifecycle"]);
        assert_eq!(manifest.check_executable(), Ok(()));
    }
    assert_eq!(warnings(&new), [""; 0]);
    assert_eq!(warnings(&old), ["deprecated_field"; 2]);
}

/// Row 3.
#[test]
fn a_sandbox_key_in_camel_case_is_refused_with_the_one_in_snake_case() {
    for (text, meant) in [
        (
            "sandbox: {provider: local, config: {}, readOnly: true}",
            "read_only",
        ),
        (
            "sandbox: {provider: local, config: {}, limits: {timeoutMs: 5}}",
            "timeout_ms",
        ),
        (
            "sandbox: {provider: local, config: {}, limits: {memoryMb: 5}}",
            "memory_mb",
        ),
        (
            "sandbox: {provider: local, config: {}, lifecycle: {destroyOn: x}}",
            "destroy_on",
        ),
    ] {
        let error = refused(text, "unknown_key");
        assert_eq!(
            error.hint(),
            Some(format!("did you mean `{meant}`?")),
            "{text}"
        );
    }
}

/// Row 4.
#[test]
fn a_missing_config_is_empty_with_a_warning_that_strict_refuses() {
    let manifest = accepted("sandbox: {provider: local}");
    assert_eq!(warnings(&manifest), ["config_missing"]);
    assert!(STRICT_REFUSES.contains(&"config_missing"));
    refused("sandbox: {provider: mastra-e2b}", "missing_key");
}

/// Row 5.
#[test]
fn a_credential_in_plain_text_is_refused_by_its_key_and_by_its_start_and_never_repeated() {
    for text in [
        "sandbox: {provider: mastra-e2b, config: {api_key: sk-live-0123456789}}",
        "sandbox: {provider: mastra-e2b, config: {api_key: whatever}}",
        "sandbox: {provider: mastra-e2b, config: {template: sk-live-0123456789}}",
        "sandbox: {provider: local, config: {}, metadata: {a: {db_password: p}}}",
        "secrets: {A: {vault: ghp_0123456789abcdef}}",
    ] {
        let error = refused(text, "plaintext_credential");
        assert!(!error.to_string().contains("0123456789"), "{error}");
    }
    accepted("sandbox: {provider: mastra-e2b, config: {api_key_ref: org/acme/key}}");
}

/// Row 6.
#[test]
fn a_config_has_the_keys_of_its_provider_and_no_others() {
    let manifest = accepted("sandbox: {provider: local, config: {cwd: src, shell: /bin/bash}}");
    let local = manifest.sandbox.expect("a sandbox").local;
    assert_eq!(local.cwd.expect("a folder").to_string(), "src");
    for config in ["{template: a}", "{zzz: 1}"] {
        let text = format!("sandbox: {{provider: local, config: {config}}}");
        refused(&text, "unknown_key");
    }
    refused(
        "sandbox: {provider: node-permission, config: {cwd: a}}",
        "unknown_key",
    );
}

/// Row 7.
#[test]
fn a_mount_point_is_taken_as_it_is_written_or_refused_and_parents_come_first() {
    let mounts = |points: &[&str]| {
        let entries: Vec<String> = points
            .iter()
            .map(|at| format!("{{source: workspace, at: {at}}}"))
            .collect();
        let entries = entries.join(", ");
        format!("sandbox: {{provider: local, config: {{}}, mounts: [{entries}]}}")
    };
    for at in [
        "/a/../etc",
        "/a//b",
        "//a",
        "/a/.",
        "/a/",
        "a",
        "/",
        "/proc",
        "/sys/x",
        "/dev",
    ] {
        refused(&mounts(&[at]), "mount_refused");
    }
    refused(&mounts(&["/w", "/w"]), "duplicate_claim");
    let manifest = accepted(&mounts(&["/w/a/b", "/w", "/w/a"]));
    let order: Vec<&str> = manifest
        .mounts
        .iter()
        .map(|mount| mount.target.as_str())
        .collect();
    assert_eq!(order, ["/w", "/w/a", "/w/a/b"]);
}

/// Row 8.
#[test]
fn an_egress_entry_is_a_host_and_a_missing_list_allows_none() {
    for entry in [
        "'*'",
        "''",
        "'http://a.com'",
        "a.com/x",
        "10.0.0.0/8",
        "'*.com'",
        "a.com:0",
    ] {
        refused(&format!("network: {{egress: [{entry}]}}"), "egress_invalid");
    }
    for entry in [
        "a.com",
        "a.com:443",
        "'*.a.com'",
        "192.0.2.1",
        "'[2001:db8::1]:443'",
    ] {
        accepted(&format!("network: {{egress: [{entry}]}}"));
    }
    assert_eq!(
        accepted("sandbox: {provider: local, config: {}}").egress,
        []
    );
    assert_eq!(accepted("network: {}").egress, []);
    let rule = |text: &str| EgressRule::parse(text).expect(text);
    let below = rule("*.a.com");
    assert!(below.covers(&rule("x.a.com")) && below.covers(&rule("y.x.a.com")));
    assert!(!below.covers(&rule("a.com")) && !below.covers(&rule("xa.com")));
}

/// Row 9.
#[test]
fn the_rich_and_the_lean_form_are_both_accepted() {
    let rich = accepted(
        "kind: code-workspace\nname: a\ncode: {sources: [{local: a.py}]}\nsource: {origin: workspace}\n",
    );
    let lean = accepted(
        "schema: code/v2\nid: '@owner/code/notion-search'\nsource: {local: ./a.py}\nrun: python a.py\n",
    );
    assert_eq!(rich.code, lean.code);
    assert_eq!(lean.id.as_deref(), Some("@owner/code/notion-search"));
    accepted("sandbox: {provider: local, config: {}, id: '@owner/code/notion-search'}");
}

/// Row 10.
#[test]
fn the_schema_of_a_sandbox_is_sandbox_v1_and_no_title() {
    accepted("sandbox: {provider: local, config: {}, schema: sandbox/v1}");
    refused(
        "sandbox: {provider: local, config: {}, schema: agentsandbox/v1}",
        "unknown_value",
    );
}

/// Row 11.
#[test]
fn code_that_leaves_its_folder_or_names_a_commit_is_refused_after_the_schema() {
    for (text, code) in [
        ("code: ./x@4f3a2b1c", "path_refused"),
        ("code: ../x", "path_refused"),
        ("code: /etc/x", "path_refused"),
        (
            "code: {sources: [{inline: {path: /etc/x, content: a}}]}",
            "path_refused",
        ),
        (
            "code: {sources: [{inline: {path: a/../../b, content: a}}]}",
            "path_refused",
        ),
        (
            "code: {sources: [{inline: {path: a, content: \"a\\0b\"}}]}",
            "wrong_type",
        ),
    ] {
        refused(text, code);
    }
}

/// Row 12.
#[test]
fn a_source_and_a_run_have_no_unknown_keys() {
    for text in [
        "code: {sources: [{inline: {path: a, content: b}, zzz: 1}]}",
        "code: {sources: [{inline: {path: a, content: b, zzz: 1}}]}",
        "code: {sources: [{ref: {path: a, zzz: 1}}]}",
        "run: {file: a.py, zz: 1}",
    ] {
        refused(text, "unknown_key");
    }
}

/// Row 13.
#[test]
fn a_run_is_a_shell_command_by_its_signs_or_an_unquoted_space() {
    for (text, form) in [
        ("tool.ts", TextForm::Path),
        ("src/index.ts", TextForm::Path),
        ("tool.ts --flag", TextForm::Shell),
        ("my tool.ts", TextForm::Shell),
        ("tail -f /dev/null", TextForm::Shell),
        ("a&&b", TextForm::Shell),
        ("a||b", TextForm::Shell),
        ("a|b", TextForm::Shell),
        ("a;b", TextForm::Shell),
        ("a>b", TextForm::Shell),
        ("a<b", TextForm::Shell),
        ("a&", TextForm::Shell),
        ("`a`", TextForm::Shell),
        ("$(a)", TextForm::Shell),
        ("${A}", TextForm::Shell),
        ("a\nb", TextForm::Shell),
        ("$A", TextForm::Path),
    ] {
        assert_eq!(text_form(text), form, "{text:?}");
    }
    refused("run: '\"my tool.ts\"'", "run_invalid");
}

/// Row 14.
#[test]
fn a_source_keeps_its_path_unless_as_strips_it() {
    let target = |text: &str| {
        let manifest = accepted(&format!("code: {{sources: [{text}]}}"));
        match manifest.code.as_slice() {
            [CodeSource::Local { target, .. } | CodeSource::GitHub { target, .. }] => {
                target.clone()
            }
            other => panic!("{text}: {other:?}"),
        }
    };
    assert_eq!(target("{local: a/b}"), SourceTarget::Same);
    assert_eq!(target("{local: {path: a/b, as: .}}"), SourceTarget::Top);
    assert_eq!(
        target("{github: {repo: o/n, ref: v1, path: src}}"),
        SourceTarget::Same
    );
    assert_eq!(
        target("{github: {repo: o/n, ref: v1, path: src, as: ./}}"),
        SourceTarget::Top
    );
}

/// Row 17.
#[test]
fn eight_hexadecimal_digits_are_a_branch_that_looks_like_a_commit() {
    let warned = |reference: &str| {
        let manifest = accepted(&format!(
            "code: {{sources: [{{github: {{repo: o/n, ref: {reference}}}}}]}}"
        ));
        warnings(&manifest) == ["reference_looks_abbreviated"]
    };
    assert!(warned("4f3a2b1c"));
    assert!(!warned(&"4f3a2b1c".repeat(5)));
    assert!(!warned("main") && !warned("v1.2.3"));
}

/// Row 22.
#[test]
fn a_limit_of_the_host_does_not_stand_in_the_portable_block() {
    for limit in ["vcpus", "pids", "nofile", "output_bytes"] {
        let error = refused(
            &format!("runner: {{limits: {{{limit}: 2}}}}"),
            "unknown_key",
        );
        let hint = error.hint().expect("a hint");
        assert!(hint.contains("--pids") && hint.contains("--cpus"), "{hint}");
    }
}

/// Row 24.
#[test]
fn only_in_process_is_downgraded_and_the_downgrade_can_be_seen() {
    for (text, engine, downgraded) in [
        ("runner: {engine: in-process}", Engine::Subprocess, true),
        ("runner: {engine: subprocess}", Engine::Subprocess, false),
        ("runner: {engine: sandbox}", Engine::Sandbox, false),
    ] {
        let manifest = accepted(text);
        assert_eq!(manifest.runner.engine, engine, "{text}");
        assert_eq!(manifest.runner.downgraded, downgraded, "{text}");
        let warned = warnings(&manifest).contains(&"engine_downgraded");
        assert_eq!(warned, downgraded, "{text}");
    }
}

/// Row 26.
#[test]
fn inherited_egress_is_a_union_limited_by_the_host_policy() {
    let level = |file: &str, hosts: &[&str]| Level {
        file: file.to_owned(),
        resolved: json!({ "network": { "egress": hosts } }),
        provenance: BTreeMap::new(),
    };
    let own = level("tool.yaml", &["b.com"]);
    let workspace = level("workspace.yaml", &["a.com", "x.c.org"]);
    let inherited = inherit(own, &[workspace]).expect("no contradiction");
    let egress = inherited.manifest["network"]["egress"]
        .as_array()
        .expect("a list");
    let from = |host: &str| {
        let index = egress.iter().position(|entry| entry == host).expect(host);
        inherited.provenance[&format!("/network/egress/{index}")].as_str()
    };
    assert_eq!(egress.len(), 3);
    assert_eq!(
        (from("a.com"), from("b.com")),
        ("workspace.yaml", "tool.yaml")
    );
    let rules = |texts: &[&str]| -> Vec<EgressRule> {
        let parsed = texts.iter().map(|text| EgressRule::parse(text));
        parsed.map(|rule| rule.expect("a rule")).collect()
    };
    let hosts: Vec<&str> = egress.iter().filter_map(|entry| entry.as_str()).collect();
    let reachable = intersect(&rules(&hosts), &rules(&["*.c.org", "b.com:443"]));
    let mut reachable: Vec<String> = reachable.iter().map(ToString::to_string).collect();
    reachable.sort();
    assert_eq!(reachable, ["b.com:443", "x.c.org"]);
}

/// Row 27.
#[test]
fn a_sandbox_block_of_a_command_line_is_recognised() {
    for text in [
        "sandbox: {fs: {read: [/a]}}",
        "sandbox: {exec: {spawn: [git]}}",
        "sandbox: {env: {pass: [A]}}",
        "sandbox: {env: {set: {A: b}}}",
    ] {
        let error = refused(text, "sandbox_is_cli_block");
        assert!(error.to_string().contains("AIP-29"), "{error}");
    }
}

/// Row 28.
#[test]
fn an_output_may_be_required_and_is_not_by_default() {
    let manifest = accepted("outputsFiles: {a: {path: a, required: true}, b: {path: b}}");
    let required: Vec<bool> = manifest
        .io
        .output_files
        .iter()
        .map(|file| file.required)
        .collect();
    assert_eq!(required, [true, false]);
}

/// Row 30.
#[test]
fn a_declared_file_has_one_segment_inside_and_stays_in_the_workspace() {
    for key in ["../a", "a/b", ".", "..", "/a", "''"] {
        refused(
            &format!("inputsFiles: {{{key}: {{path: a}}}}"),
            "file_key_refused",
        );
    }
    for path in [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "<runId>/../../a",
    ] {
        refused(
            &format!("outputsFiles: {{a: {{path: '{path}'}}}}"),
            "path_refused",
        );
    }
    refused("outputsFiles: {a: {path: <userId>/a}}", "token_unknown");
    refused(
        "{id: a/b, outputsFiles: {a: {path: <toolId>}}}",
        "token_id_invalid",
    );
}

/// Row 31.
#[test]
fn a_key_that_only_code_knows_is_ignored_with_a_warning_that_strict_refuses() {
    for block in [
        "config: {}, env: {autoPassthrough: true}",
        "config: {}, extraPorts: [80]",
        "config: {}, join: {tokenEnv: A}",
        "config: {installAdapters: true}",
    ] {
        let manifest = accepted(&format!("sandbox: {{provider: local, {block}}}"));
        assert_eq!(warnings(&manifest), ["unspecified_key"], "{block}");
        assert_eq!(manifest.ignored.len(), 1, "{block}");
    }
    assert!(STRICT_REFUSES.contains(&"unspecified_key"));
}
