//! What a release consists of beside its packages: bills of materials that name what is built, a workflow that calls
//! scripts of the tree only, and programs that `cargo install` installs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::belongs_to_tier;

use super::{said, text, tree};

const PROGRAMS: [&str; 3] = ["runner", "runner-server", "runner-worker"];

/// The bills of materials by program, as text.
fn write_bills() -> BTreeMap<&'static str, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new(tree("scripts/release"))
        .args(["--sbom-only", "bills"])
        .current_dir(directory.path())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let read = |name: &str| {
        let file = format!("bills/{name}-{}.cdx.json", env!("CARGO_PKG_VERSION"));
        fs::read_to_string(directory.path().join(file)).expect("a bill")
    };
    PROGRAMS.map(|name| (name, read(name))).into()
}

fn string<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.expect(pointer)
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.expect(pointer)
}

/// The crates that a bill names, as `name version`.
fn crates(bill: &Value) -> BTreeSet<String> {
    list(bill, "/components")
        .iter()
        .filter(|one| string(one, "/purl").starts_with("pkg:cargo/"))
        .map(|one| format!("{} {}", string(one, "/name"), string(one, "/version")))
        .collect()
}

/// The crates of supply-chain/dependencies.toml with one of these uses, as `name version`.
fn listed(used: &[&str]) -> BTreeSet<String> {
    let list = text("supply-chain/dependencies.toml");
    let field = |block: &str, name: &str| {
        let start = format!("{name} = \"");
        let line = block.lines().find_map(|line| line.strip_prefix(&start));
        line.expect("a field").trim_end_matches('"').to_owned()
    };
    list.split("[[crate]]")
        .skip(1)
        .filter(|block| used.contains(&field(block, "used").as_str()))
        .map(|block| format!("{} {}", field(block, "name"), field(block, "version")))
        .collect()
}

#[test]
fn the_bills_of_materials_name_the_crates_that_are_listed_for_each_program() {
    let bills = write_bills();
    let crates = |name: &str| crates(&serde_json::from_str(&bills[name]).expect("JSON"));
    assert_eq!(crates("runner"), listed(&["program"]));
    for (name, own, others) in [
        ("runner-server", "server", &["program", "server"][..]),
        ("runner-worker", "worker", &["program", "server", "worker"]),
    ] {
        let found = crates(name);
        let all = listed(others);
        assert!(found.is_subset(&all), "{name}: {:?}", &found - &all);
        let alone = listed(&[own]);
        assert!(alone.is_subset(&found), "{name}: {:?}", &alone - &found);
    }
}

/// What the schema of CycloneDX 1.5 requires of the parts that are used.
#[test]
fn the_bills_of_materials_are_cyclonedx_and_the_same_each_time() {
    let bills = write_bills();
    assert!(bills == write_bills(), "two bills differ");
    for (name, text) in bills {
        let bill: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(string(&bill, "/bomFormat"), "CycloneDX");
        assert_eq!(string(&bill, "/specVersion"), "1.5");
        assert_eq!(bill["version"], 1);
        let uuid = string(&bill, "/serialNumber").strip_prefix("urn:uuid:");
        let parts: Vec<usize> = uuid.expect("a UUID").split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(string(&bill, "/metadata/timestamp"), "2023-11-14T22:13:20Z");
        let top = &bill["metadata"]["component"];
        assert_eq!(string(top, "/type"), "application");
        assert_eq!(string(top, "/name"), name);
        assert_eq!(string(top, "/version"), env!("CARGO_PKG_VERSION"));

        let mut references = BTreeSet::from([string(top, "/bom-ref")]);
        for one in list(&bill, "/components") {
            assert_eq!(string(one, "/type"), "library");
            assert!(
                ["required", "excluded"].contains(&string(one, "/scope")),
                "{one}"
            );
            assert!(references.insert(string(one, "/bom-ref")), "twice: {one}");
            if string(one, "/purl").starts_with("pkg:cargo/") {
                assert!(!string(one, "/licenses/0/expression").is_empty());
                assert_eq!(string(one, "/hashes/0/alg"), "SHA-256");
                let digest = string(one, "/hashes/0/content");
                let is_hex = digest.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(is_hex && digest.len() == 64, "{one}");
            }
        }
        let mut reached = BTreeSet::from([string(top, "/bom-ref")]);
        let mut with_dependencies = BTreeSet::new();
        for one in list(&bill, "/dependencies") {
            with_dependencies.insert(string(one, "/ref"));
            reached.extend(list(one, "/dependsOn").iter().filter_map(Value::as_str));
        }
        assert_eq!(
            reached, references,
            "{name}: each component is used by another"
        );
        assert!(with_dependencies.is_subset(&references), "{name}");
    }
}

#[test]
fn the_workflow_calls_scripts_of_the_tree_and_two_actions() {
    const SETTING: &str = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0";
    let workflow: Value =
        serde_saphyr::from_str(&text(".github/workflows/ci.yml")).expect("a document");
    let mut called = BTreeSet::new();
    let jobs = workflow["jobs"].as_object().expect("jobs");
    for step in jobs.values().flat_map(|job| list(job, "/steps")) {
        let action = step["uses"]
            .as_str()
            .map(|uses| uses.split_once('@').expect("a version").0);
        let Some(command) = step["run"].as_str() else {
            let known = ["actions/checkout", "actions/upload-artifact"];
            assert!(action.is_some_and(|name| known.contains(&name)), "{step}");
            continue;
        };
        let command = command.trim_start_matches("sudo --preserve-env env \"PATH=$PATH\" ");
        let script = command.split(' ').next().expect("a word").to_owned();
        if command != SETTING {
            assert!(
                !command.contains(['\n', ';', '|', '&']),
                "one command: {command}"
            );
            let found = fs::metadata(tree(&script)).expect(&script);
            assert!(found.permissions().mode() & 0o111 != 0, "{script}");
            called.insert(script);
        }
    }
    let expected = ["scripts/release", "scripts/test", "scripts/vm-test"];
    assert_eq!(called, expected.map(str::to_owned).into());
}

fn cargo_install(path: &str, directory: &Path) {
    let documented = format!("cargo install --locked --path {path}");
    assert!(
        text("docs/editors.md").contains(&documented),
        "{documented}"
    );
    let output = Command::new("cargo")
        .args(documented.split(' ').skip(1))
        .args(["--offline", "--debug", "--root"])
        .arg(directory.join("installed"))
        .current_dir(tree("."))
        // A build of its own: other tests execute what is in that of the tree.
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn cargo_installs_programs_that_find_each_other() {
    if !belongs_to_tier("long") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for path in [".", "crates/server", "crates/worker"] {
        cargo_install(path, directory.path());
    }
    let bin = directory.path().join("installed/bin");
    let names: BTreeSet<_> = fs::read_dir(&bin)
        .expect("installed")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("plain")
        })
        .collect();
    assert_eq!(names, PROGRAMS.map(str::to_owned).into());
    for words in [["run", "--help"], ["serve", "--help"], ["submit", "--help"]] {
        let output = Command::new(bin.join("runner")).args(words).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
}
