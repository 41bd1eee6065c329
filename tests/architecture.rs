//! The architecture as a test: which crates and modules may refer to which, where effects and
//! unsafe code may be, and how long a file may be.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the source has nothing to say"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate and the crates that it may depend on, bottom first.
const CRATES: &[(&str, &[&str])] = &[
    ("spec", &[]),
    ("filter", &[]),
    ("sys", &["spec", "filter"]),
    ("archive", &["spec", "sys"]),
    ("store", &["spec", "sys", "archive"]),
    ("secrets", &["spec", "sys"]),
    ("confinement", &["spec", "filter", "sys"]),
    ("reader", &["spec", "sys", "archive", "confinement"]),
    ("egress", &["spec", "filter", "sys", "confinement"]),
    (
        "sources",
        &[
            "spec",
            "sys",
            "archive",
            "store",
            "secrets",
            "confinement",
            "reader",
            "egress",
        ],
    ),
    ("bundler", &["spec", "sys", "archive", "reader", "sources"]),
    ("sandbox", &["spec", "filter", "sys", "egress"]),
    ("companion", &["spec"]),
    ("server", &["spec", "sys", "companion"]),
    ("worker", &["spec", "sys", "companion"]),
];

/// Each module of the program and the modules that it may refer to.
const MODULES: &[(&str, &[&str])] = &[
    ("plan", &[]),
    ("staging", &[]),
    ("page", &[]),
    ("run", &["plan", "staging"]),
    ("cli", &["page", "plan", "run"]),
];

/// Crates whose code may run between clone and exec, where no event may be emitted, and crates
/// without events.
const WITHOUT_EVENTS: &[&str] = &[
    "spec",
    "sys",
    "archive",
    "store",
    "secrets",
    "confinement",
    "reader",
    "egress",
    "sandbox",
];

/// Modules that decide: no unsafe, no clock, no file, no process, no environment.
const PURE: &[&str] = &[
    "crates/egress/src/allowlist.rs",
    "crates/filter/src",
    "crates/sandbox/src/audit_record.rs",
    "crates/sandbox/src/image_root.rs",
    "crates/sandbox/src/image_user.rs",
    "crates/sandbox/src/ruleset.rs",
    "crates/sandbox/src/view.rs",
    "crates/spec/src",
    "src/page",
    "src/plan",
];
const EFFECTS: &[&str] = &[
    "std::fs",
    "std::env",
    "std::process",
    "std::net",
    "libc::",
    "Instant::now",
    "SystemTime",
];

/// The only files that may contain unsafe code.
const UNSAFE_FILES: &[&str] = &[
    "crates/sandbox/src/built_in.rs",
    "crates/sandbox/src/first_process.rs",
    "crates/sandbox/src/prefork.rs",
    "crates/sandbox/src/steps.rs",
    "crates/sys/src/lib.rs",
    "src/main.rs",
];

/// Declares the constructors of the permission to parse.
const PERMIT_FILE: &str = "crates/spec/src/parse_permit.rs";
/// The only file that gives the permission for what strangers wrote.
const CONFINEMENT_FILE: &str = "crates/confinement/src/lib.rs";

/// What is parsed with rights, and the only files that do so.
const TRUSTED_TEXTS: &[(&str, &[&str])] = &[
    (
        "a manifest of one line that this program wrote",
        &["crates/bundler/src/check.rs"],
    ),
    (
        "JSON that this program wrote of parsed values",
        &[
            "crates/bundler/src/runnable.rs",
            "crates/bundler/src/secrets.rs",
            "crates/spec/src/manifest/inherit.rs",
            "src/run/dry_run/manifest_alone.rs",
        ],
    ),
    (
        "the schema `true`, compiled before the process gives up its rights",
        &["crates/reader/src/schemas.rs"],
    ),
    (
        "the definition of a program that calls `define_io` or one of its like",
        &[
            "crates/spec/src/define/io.rs",
            "crates/spec/src/define/mod.rs",
        ],
    ),
    (
        "patterns of `policies/credential-files.yaml`",
        &["crates/bundler/src/credentials.rs"],
    ),
    (
        "a program in a system directory of the host, and the Node that a PATH of the caller or of the policy finds",
        &[
            "src/run/planning/programs/heads.rs",
            "src/run/planning/programs/node_version.rs",
        ],
    ),
    (
        "the value of `--run`",
        &["src/run/inputs/loaded_manifest.rs"],
    ),
];

/// What a decoder is called by.
const DECODERS: &[&str] = &[
    "serde_json::from_reader",
    "serde_json::from_slice",
    "serde_json::from_str",
    "serde_json::Deserializer",
    "serde_saphyr",
    "jsonschema",
    "flate2",
    "lzma_rust2",
    "ruzstd",
    "glob::",
    "ignore::gitignore",
    "Agent::with_parts",
    // HTTP by hyper, paths by axum, MCP by rmcp, messages and object metadata by async-nats.
    "http1::Builder",
    "Router::new()",
    "AsyncRwTransport",
    "StreamableHttpService::new",
    "ConnectOptions",
    "jetstream::object_store",
];

/// Why a decoder may be called, and the only files that do so.
const DECODER_FILES: &[(&str, &[&str])] = &[
    (
        "`Contract::compile` and `read_document` ask for the permission",
        &["crates/spec/src/io/contract.rs"],
    ),
    (
        "`build_agent` asks for the permission",
        &["crates/sources/src/http/client.rs"],
    ),
    (
        "a part of `compressed::decode`, which asks for the permission",
        &[
            "crates/archive/src/compressed.rs",
            "crates/archive/src/gzip.rs",
        ],
    ),
    (
        "a part of `document::parse`, which asks for the permission",
        &[
            "crates/spec/src/document/mistake.rs",
            "crates/spec/src/document/yaml.rs",
        ],
    ),
    (
        "answers of processes without rights, checked",
        &[
            "crates/egress/src/link.rs",
            "crates/egress/src/outcome.rs",
            "crates/reader/src/documents.rs",
            "crates/reader/src/json.rs",
            "crates/reader/src/message.rs",
            "crates/reader/src/schemas.rs",
            "crates/reader/src/snapshots.rs",
            "crates/reader/src/texts.rs",
            "crates/sources/src/http/message.rs",
        ],
    ),
    ("compresses only", &["crates/bundler/src/write.rs"]),
    (
        "configuration of the host or the caller",
        &[
            "crates/sources/src/oci/registry/docker_config.rs",
            "crates/spec/src/host_config/mod.rs",
            "crates/spec/src/host_config/statement.rs",
            "crates/spec/src/image.rs",
        ],
    ),
    (
        "requests of the same user or of clients with its token, templates of the operator, and what `runner` \
         prints or writes for the server, which has its user's rights alone",
        &[
            "crates/companion/src/events.rs",
            "crates/server/src/mcp/mod.rs",
            "crates/server/src/serve/body.rs",
            "crates/server/src/serve/connections.rs",
            "crates/server/src/serve/e2b/mod.rs",
            "crates/server/src/serve/mcp/mod.rs",
            "crates/server/src/serve/mcp/sessions.rs",
            "crates/server/src/serve/routes.rs",
            "crates/server/src/serve/runs/events.rs",
            "crates/server/src/serve/runs/known.rs",
            "crates/server/src/serve/templates.rs",
            "crates/server/src/serve/verbs.rs",
            "crates/server/src/serve/watching.rs",
        ],
    ),
    (
        "answers of a server in a sandbox, that is of a stranger, to the server, which has its user's rights alone \
         (`docs/security-model.md`)",
        &["crates/server/src/serve/ports/mod.rs"],
    ),
    (
        "what the message server sends, messages of those who may write to the stream, requests for metrics, and what \
         `runner` writes, for the worker, which has its user's rights alone",
        &[
            "crates/worker/src/engine.rs",
            "crates/worker/src/execute.rs",
            "crates/worker/src/messages.rs",
            "crates/worker/src/metrics.rs",
            "crates/worker/src/objects.rs",
            "crates/worker/src/submit.rs",
        ],
    ),
    (
        "output of the caller's helpers and providers of secrets",
        &[
            "crates/secrets/src/lib.rs",
            "crates/sources/src/oci/registry/credentials.rs",
        ],
    ),
    (
        "policies and lists of this program",
        &[
            "crates/filter/src/read.rs",
            "crates/filter/src/tightening.rs",
            "crates/spec/src/credential_files.rs",
        ],
    ),
    (
        "requests of the same user, and the answers of a supervisor to its user",
        &[
            "crates/sandbox/src/control/client.rs",
            "crates/sandbox/src/control/server.rs",
        ],
    ),
    (
        "documents that `runner` wrote for the server that executed it",
        &[
            "crates/server/src/mcp/sandbox.rs",
            "crates/server/src/mcp/tools/denials.rs",
        ],
    ),
    (
        "records of this program",
        &[
            "crates/sandbox/src/records/record.rs",
            "crates/sources/src/github/cache.rs",
            "crates/sources/src/oci/layers/image.rs",
            "crates/sources/src/oci/store/names.rs",
            "crates/store/src/cache.rs",
            "crates/store/src/facts.rs",
            "crates/store/src/publishing.rs",
            "src/run/preparation/mod.rs",
            "src/run/verbs/history.rs",
        ],
    ),
    (
        "functions that `reader::parse_with` calls in its process",
        &["src/run/planning/programs/shims.rs"],
    ),
    (
        "`Patterns::parse` and `PathPattern::parse` ask for the permission",
        &[
            "crates/bundler/src/ignored.rs",
            "crates/bundler/src/pattern.rs",
        ],
    ),
];

const NON_TEST_LINES_MAX: usize = 500;

#[test]
fn crates_depend_only_on_crates_below_them_and_say_what_they_are() {
    let mut on_disk = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates is readable") {
        on_disk.insert(entry.expect("listed").file_name());
    }
    let on_map: BTreeSet<_> = CRATES.iter().map(|(name, _)| (*name).into()).collect();
    assert_eq!(on_disk, on_map, "CRATES does not list what lies in crates/");
    for (name, allowed) in CRATES {
        let file = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(file).expect("a manifest");
        // Its tests may compare it with crates above it.
        let (manifest, _) = manifest
            .split_once("[dev-dependencies]")
            .unwrap_or((&manifest, ""));
        let described = manifest
            .lines()
            .any(|line| line.starts_with("description = \""));
        assert!(described, "{name}: no description in one sentence");
        for (other, _) in CRATES {
            let depends = manifest.contains(&format!("\n{other}.workspace = true"));
            assert_eq!(depends, allowed.contains(other), "{name}: {other}");
        }
    }
}

#[test]
fn nothing_is_logged_between_clone_and_exec() {
    for name in WITHOUT_EVENTS {
        let file = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(file).expect("a manifest");
        assert!(!manifest.contains("tracing"), "{name} depends on tracing");
    }
}

#[test]
fn modules_of_the_program_only_name_the_modules_below_them() {
    let mut breaches = Vec::new();
    for file in source_files() {
        for (number, line) in code_lines(&file) {
            let place = format!("{}:{number}", file.display());
            assert!(
                !line.contains("super::super"),
                "{place}: name the path from `crate::`"
            );
            let Some((module, allowed)) = module_of(&file) else {
                continue;
            };
            assert!(
                !line.contains("crate::{"),
                "{place}: write one `use crate::…` per module"
            );
            for named in crate_paths(&line) {
                let known = MODULES.iter().any(|(name, _)| *name == named);
                if known && named != module && !allowed.contains(&named.as_str()) {
                    breaches.push(format!("{place}: {module} names {named}"));
                }
            }
        }
    }
    assert!(
        breaches.is_empty(),
        "these name what lies above them:\n{}",
        breaches.join("\n")
    );
}

#[test]
fn decisions_have_no_effects() {
    let mut breaches = Vec::new();
    for pure in PURE {
        assert!(root().join(pure).exists(), "PURE names {pure}");
    }
    for file in source_files() {
        let inside = file.strip_prefix(root()).expect("below the root");
        if !PURE.iter().any(|pure| inside.starts_with(pure)) {
            continue;
        }
        for (number, line) in code_lines(&file) {
            for effect in EFFECTS.iter().filter(|effect| line.contains(**effect)) {
                breaches.push(format!("{}:{number}: {effect}", inside.display()));
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn the_ban_on_unsafe_is_lifted_only_where_the_map_says() {
    for file in source_files() {
        let text = fs::read_to_string(&file).expect("source file is readable");
        let lifts = text.contains("allow(unsafe_code") || text.contains("expect(unsafe_code");
        let may = UNSAFE_FILES.iter().any(|allowed| file.ends_with(allowed));
        assert!(
            may || !lifts,
            "{} lifts the ban on unsafe code",
            file.display()
        );
    }
}

#[test]
fn only_a_process_without_rights_may_parse_what_strangers_wrote() {
    let declared = ("declares it", &[PERMIT_FILE][..]);
    let confinement = ("gives up rights", &[CONFINEMENT_FILE][..]);
    assert_only(&["after_giving_up_rights"], &[declared, confinement]);
    assert_only(
        &["for_trusted_text"],
        &[TRUSTED_TEXTS, &[declared]].concat(),
    );
}

#[test]
fn decoders_are_called_only_where_the_map_says() {
    assert_only(DECODERS, DECODER_FILES);
}

/// Checks that the files of `groups`, and no others, have one of `words` outside of tests.
fn assert_only(words: &[&str], groups: &[(&str, &[&str])]) {
    let listed = groups.iter().flat_map(|(_, files)| files.iter());
    let listed: BTreeSet<PathBuf> = listed.map(|file| root().join(file)).collect();
    let has_word = |file: &PathBuf| {
        let mut lines = code_lines(file).into_iter();
        lines.any(|(_, line)| words.iter().any(|word| line.contains(word)))
    };
    let found: BTreeSet<PathBuf> = source_files().into_iter().filter(has_word).collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    let unused: Vec<_> = listed.difference(&found).collect();
    assert!(
        unlisted.is_empty() && unused.is_empty(),
        "{words:?} in {unlisted:?}, and no longer in {unused:?}"
    );
}

#[test]
fn every_file_opens_with_a_header_and_fits_the_reader() {
    let mut breaches = Vec::new();
    for file in source_files() {
        let text = fs::read_to_string(&file).expect("source file is readable");
        if !text.starts_with("//! ") {
            breaches.push(format!(
                "{}: first line is not a `//!` header",
                file.display()
            ));
        }
        let lines = code_lines(&file).len();
        if NON_TEST_LINES_MAX < lines {
            breaches.push(format!(
                "{}: {lines} lines, limit {NON_TEST_LINES_MAX}",
                file.display()
            ));
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn every_module_of_the_program_is_on_the_map() {
    let on_disk: BTreeSet<String> = source_files()
        .iter()
        .filter_map(|file| top_level_name(file))
        .collect();
    let on_map: BTreeSet<String> = MODULES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let stray: Vec<&String> = on_disk
        .difference(&on_map)
        .filter(|name| !["lib", "main"].contains(&name.as_str()))
        .collect();
    assert!(stray.is_empty(), "add to MODULES: {stray:?}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files of the program and of its crates.
fn source_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root().join("src"), root().join("crates")];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).expect("a source directory is readable") {
            let path = entry.expect("entry is readable").path();
            match path.extension() {
                _ if path.is_dir() && !path.ends_with("tests") => pending.push(path),
                Some(extension) if extension == "rs" => found.push(path),
                _ => (),
            }
        }
    }
    found.sort();
    found
}

/// Lines before the `mod tests` block, comments removed, with their 1-based numbers.
fn code_lines(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).expect("source file is readable");
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.trim_start().starts_with("mod tests"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect()
}

fn top_level_name(file: &Path) -> Option<String> {
    let inside = file.strip_prefix(root().join("src")).ok()?;
    Some(
        inside
            .components()
            .next()?
            .as_os_str()
            .to_str()?
            .trim_end_matches(".rs")
            .to_owned(),
    )
}

fn module_of(file: &Path) -> Option<(&'static str, &'static [&'static str])> {
    let name = top_level_name(file)?;
    MODULES.iter().find(|(module, _)| *module == name).copied()
}

fn crate_paths(line: &str) -> Vec<String> {
    line.match_indices("crate::")
        .map(|(at, token)| {
            line[at + token.len()..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let root = root();
    let mut documents = vec![root.join("README.md"), root.join("SECURITY.md")];
    for folder in ["docs", "packaging", "policies"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("listed");
        let paths = entries.map(|entry| entry.expect("listed").path());
        documents.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let mut broken = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).expect("readable");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.with_file_name(file),
            };
            let found = std::fs::read_to_string(&target);
            let is_there = found.is_ok() || target.exists();
            let headings = found.unwrap_or_default();
            let mut headings = headings.lines().filter(|line| line.starts_with('#'));
            if !is_there || !heading.is_empty() && !headings.any(|line| anchor(line) == heading) {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        character if character.is_alphanumeric() || "-_".contains(character) => Some(character),
        _ => None,
    });
    kept.collect()
}
