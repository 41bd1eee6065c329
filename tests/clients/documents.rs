//! What both clients share with the program: types of its documents, versions, licences.

use std::fs::read_to_string;

use support::packages::{succeed, tool};
use support::source_path;

#[test]
fn the_types_of_the_documents_are_those_of_the_schemas() {
    let mut generate = tool("python3");
    generate
        .arg(source_path("clients/generate-types"))
        .arg("--check");
    succeed(&mut generate).expect("as written");
}

#[test]
fn the_clients_have_the_version_and_the_licences_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        (
            "python/src/runner_sandbox/_version.py",
            format!("__version__ = \"{version}\""),
        ),
        (
            "typescript/src/version.ts",
            format!("export const VERSION = \"{version}\";"),
        ),
        (
            "typescript/package.json",
            format!("  \"version\": \"{version}\","),
        ),
        (
            "python/pyproject.toml",
            "license = \"MIT OR Apache-2.0\"".to_owned(),
        ),
        (
            "typescript/package.json",
            "  \"license\": \"MIT OR Apache-2.0\",".to_owned(),
        ),
    ] {
        let text = read_to_string(source_path("clients").join(file)).expect("readable");
        assert!(text.lines().any(|found| found == line), "{file}: {line}");
    }
    // A package must have its licences inside.
    for (name, text) in [
        ("LICENSE-APACHE", include_str!("../../LICENSE-APACHE")),
        ("LICENSE-MIT", include_str!("../../LICENSE-MIT")),
    ] {
        for client in ["python", "typescript"] {
            let file = source_path("clients").join(client).join(name);
            assert_eq!(read_to_string(file).expect("readable"), text, "{name}");
        }
    }
}
