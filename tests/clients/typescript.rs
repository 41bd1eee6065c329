//! The client of TypeScript, built as its package is, by its own tests.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::packages::{has, prepared, succeed, tool};
use support::source_path;

use crate::documentation::{DOCUMENT, Example, examples};
use crate::place::Place;

/// What a build reads.
const PARTS: [&str; 7] = [
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "package.json",
    "src",
    "test",
    "tsconfig.json",
];

/// A copy of the package with the packages that its lock file names.
fn copied(place: &Place) -> Option<PathBuf> {
    if !has("node") || !has("npm") {
        return None;
    }
    let source = source_path("clients/typescript");
    let modules = prepared("typescript-5.9.3", |folder| {
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(source.join(name), folder.join(name))
                .map_err(|error| error.to_string())?;
        }
        let mut npm = tool("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
        succeed(npm.current_dir(folder)).map(|_said| ())
    })?;
    let package = place.path("package");
    std::fs::create_dir(&package).expect("made");
    let mut copy = Command::new("cp");
    copy.arg("-R")
        .args(PARTS.map(|part| source.join(part)))
        .arg(&package);
    succeed(&mut copy).expect("copied");
    symlink(modules.join("node_modules"), package.join("node_modules")).expect("linked");
    Some(package)
}

fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("listed");
    let paths = entries.map(|entry| entry.expect("listed").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect();
    paths.sort();
    paths
}

/// Its own tests (options, refusals, hostile output, streams, aborts, ends of a sandbox, missing and other
/// programs), the examples of docs/clients.md, and what npm would publish.
#[test]
fn the_client_passes_its_own_tests_and_works_as_the_guide_shows() {
    let place = Place::new();
    let Some(package) = copied(&place) else {
        return;
    };
    let examples = examples(DOCUMENT, "ts");
    assert_eq!(examples.len(), 2);
    for (number, example) in examples.iter().enumerate() {
        let file = package.join(format!("test/example-{number}.ts"));
        std::fs::write(file, &example.code).expect("written");
    }
    let node = || {
        let mut node = place.command(tool("node"));
        node.current_dir(&package);
        node
    };
    let mut tsc = node();
    tsc.arg("node_modules/typescript/bin/tsc");
    place.succeed(tsc);

    let tests = files(&package.join("dist/test"), ".test.js");
    assert!(!tests.is_empty(), "no tests were built");
    let mut own = node();
    own.args(["--test", "--test-reporter=tap"]).args(tests);
    let said = place.succeed(own);
    assert!(said.contains("\n# skipped 0\n"), "{said}");

    for (number, Example { code, output }) in examples.into_iter().enumerate() {
        let mut example = node();
        example.arg(format!("dist/test/example-{number}.js"));
        assert_eq!(Some(place.succeed(example)), output, "{code}");
    }
    assert_packs_what_a_user_needs(&place, &package);
}

fn assert_packs_what_a_user_needs(place: &Place, package: &Path) {
    let mut npm = place.command(tool("npm"));
    npm.args(["pack", "--dry-run", "--json", "--ignore-scripts"])
        .current_dir(package);
    let said: serde_json::Value = serde_json::from_str(&place.succeed(npm)).expect("JSON");
    let packed = said[0]["files"].as_array().expect("files").iter();
    let packed: Vec<_> = packed.filter_map(|file| file["path"].as_str()).collect();
    for name in [
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "dist/src/index.d.ts",
        "dist/src/index.js",
    ] {
        assert!(packed.contains(&name), "{name} is not in {packed:?}");
    }
    let is_wanted = |name: &&str| name.starts_with("dist/src/") || !name.contains('/');
    assert!(packed.iter().all(is_wanted), "{packed:?}");
}
