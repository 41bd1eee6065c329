//! From a folder to a bundle to a run: a bundled program does the same as the program in its directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use support::bundles::{bundled, pack};
use support::packages::{esbuild, node_program, pytest, succeed, tool, wheels};
use support::{Done, Ground, needs_root, random, runner};

/// The equal parts of the reports of two runs of one program.
const ALIKE: [&str; 12] = [
    "outcome",
    "exit",
    "limits",
    "enforcement",
    "cgroup_backend",
    "inputs",
    "outputs",
    "output",
    "run_form",
    "argv",
    "runner",
    "warnings",
];

/// Runs the program of a folder in its directory, then from the archive of `runner bundle`; both
/// must exit, print and report the same. Returns the run from the archive.
pub(crate) fn exec_bundled(
    ground: &Ground,
    flags: &[&str],
    folder: &Path,
    arguments: &[&str],
) -> Done {
    let exec = |bundle: &Path| {
        let bundle = bundle.to_str().expect("a plain path");
        let words = [&["exec"], flags, &[bundle, "--"], arguments].concat();
        ground.command(&words).done()
    };
    let as_directory = exec(folder);
    let done = exec(&bundled(folder));
    assert_eq!(
        (done.code, done.text()),
        (as_directory.code, as_directory.text()),
        "{as_directory:#?} {done:#?}"
    );
    let what_is_alike = |done: &Done| {
        let mut report = done.report.clone();
        report["warnings"] = done.own_warnings().into();
        ALIKE.map(|field| (field, report[field].take()))
    };
    assert_eq!(what_is_alike(&done), what_is_alike(&as_directory));
    // The files that the archive has and the folder does not.
    let entries = |done: &Done| done.report["bundle"]["entries"].as_u64().expect("a number");
    assert_eq!(entries(&done), entries(&as_directory) + 2, "{done:#?}");
    done
}

/// A copy of a prepared folder, with a manifest and more files.
pub(crate) fn populated(ground: &Ground, prepared: &Path, files: &[(&str, &str)]) -> PathBuf {
    let folder = ground.path(&format!("program-{}", random()));
    succeed(tool("cp").arg("-a").arg(prepared).arg(&folder)).expect("copied");
    for (name, contents) in files {
        std::fs::write(folder.join(name), contents).expect("written");
    }
    folder
}

/// Each entry: kind, mode, size of a file, target of a link. Without the resolved manifest.
const LIST: &str = "find . -path ./.runner -prune -o -type f -printf '%p %y %m %s\\n' \
     -o -printf '%p %y %m %l\\n' | LC_ALL=C sort; \
     find . -path ./.runner -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | sha256sum";

/// `node_modules` has the entries of usual trees: programs, links in `.bin`, a link to a directory.
#[test]
fn the_body_finds_the_same_tree_whatever_its_bundle_was_made_with() {
    let ground = Ground::new();
    let Some(prepared) = node_program() else {
        return;
    };
    let folder = populated(
        &ground,
        &prepared,
        &[
            ("manifest.yaml", "name: list\nrun: list.sh\n"),
            ("list.sh", LIST),
        ],
    );
    let made = exec_bundled(&ground, &[], &folder, &[]);
    made.assert_exited(0);
    let text = made.text();
    let has = |part: &str| assert!(text.contains(part), "no `{part}` in {text}");
    has("./node_modules/.bin/semver l 777 ../semver/bin/semver.js\n");
    has("./node_modules/greeting l 777 ../greeting\n");
    has("./node_modules/semver/bin/semver.js f 755 ");
    has("./node_modules/semver/package.json f 644 ");
    let packed = ground.exec(&[], &pack(&folder));
    packed.assert_exited(0);
    assert_eq!(packed.text(), text);
}

const COMPOSED_MAIN: &str = "
const greeting = require('greeting');
console.log(greeting(process.argv[2]), require('semver').inc('1.2.3', 'major'), process.env.MODE);
";

/// The manifest takes packages from a folder of the workspace, a library from a code-workspace, and
/// one file from inline text.
#[test]
fn a_node_program_composed_of_a_workspaces_sources_runs() {
    let ground = Ground::new();
    let Some(prepared) = node_program() else {
        return;
    };
    let workspace = populated(&ground, &prepared, &[]);
    let write = |name: &str, text: &str| {
        let path = workspace.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    // A link to a directory is kept if its target is included.
    write(
        "apps/report/manifest.yaml",
        "name: report
code:
  sources:
    - local: {path: node_modules}
    - ref: libs/greeting
    - inline: {path: mode.txt, content: inherited}
    - local: {path: apps/report/main.js, as: main.js}
run: [node, main.js]
",
    );
    write("apps/report/main.js", COMPOSED_MAIN);
    write(
        "libs/greeting/manifest.yaml",
        "kind: code-workspace
name: greeting
code: {sources: [{local: {path: greeting}}]}
runner: {limits: {memory_mb: 200}}
",
    );
    let make = |words: &[&str]| {
        let mut command = Command::new(runner());
        command.args(["bundle", "apps/report"]).args(words);
        succeed(command.current_dir(&workspace)).expect("bundled")
    };
    let archive = ground.path("report.tar.gz");
    let to = archive.to_str().expect("a plain path");
    make(&["-o", to, "--lock", "report.lock"]);
    let first = std::fs::read(&archive).expect("read");
    make(&["-o", to, "--lock", "report.lock", "--locked"]);
    assert!(std::fs::read(&archive).expect("read") == first);

    let words = ["exec", "-e", "MODE=composed", to, "--", "workspace"];
    let done = ground.command(&words).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "hello workspace 2.0.0 composed\n");
    let memory = &done.report["limits"]["memory_bytes"];
    assert_eq!(memory["effective"], 200 << 20, "{done:#?}");
    let digest = make(&["--print-digest"]);
    assert_eq!(
        done.report["bundle"]["content_digest"],
        Value::from(digest.trim_end())
    );
}

#[test]
fn pip_installs_a_wheel_that_lies_in_the_bundle() {
    let ground = Ground::new();
    let Some(prepared) = wheels() else {
        return;
    };
    let install =
        "python3 -m pip install --quiet --no-index --find-links . --target /tmp/lib six markupsafe
        PYTHONPATH=/tmp/lib python3 -c 'import six, markupsafe._speedups; print(six.__version__)'";
    let folder = populated(
        &ground,
        &prepared,
        &[
            ("manifest.yaml", "name: install\nrun: install.sh\n"),
            ("install.sh", install),
        ],
    );
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "1.16.0\n");
}

#[test]
fn pytest_runs_a_suite_that_is_bundled_with_it() {
    let ground = Ground::new();
    let Some(prepared) = pytest() else {
        return;
    };
    let suite = include_str!("../bodies/real/pytest_runs_a_suite_that_is_bundled_with_it.py");
    let run = "name: suite
run: [python3, -m, pytest, -q, -p, 'no:cacheprovider', --basetemp=/tmp/suite, test_suite.py]
";
    let folder = populated(
        &ground,
        &prepared,
        &[("manifest.yaml", run), ("test_suite.py", suite)],
    );
    let archive = bundled(&folder);
    let done = ground.exec(&["-e", "PYTHONDONTWRITEBYTECODE=1"], &archive);
    done.assert_exited(0);
    assert!(done.text().contains("2 passed"), "{done:#?}");
}

/// A crate with a build script, a module and a test needs its folders, and must be built in another
/// directory.
const CRATE: [(&str, &str); 5] = [
    (
        "Cargo.toml",
        "[package]\nname = \"counted\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    ),
    (
        "build.rs",
        "fn main() { println!(\"cargo:rustc-env=WORDS={}\", include_str!(\"data/words\").len()); }\n",
    ),
    ("data/words", "a b c"),
    (
        "src/main.rs",
        "mod count;\nfn main() { println!(\"{} {}\", count::words(include_str!(\"../data/words\")), env!(\"WORDS\")); }\n",
    ),
    (
        "src/count.rs",
        "pub fn words(text: &str) -> usize { text.split(' ').count() }\n#[test]\nfn counts() { assert_eq!(words(\"a b\"), 2); }\n",
    ),
];

#[test]
fn cargo_builds_tests_and_runs_a_crate_of_a_bundle() {
    let ground = Ground::new();
    let Ok(sysroot) = succeed(Command::new("rustc").args(["--print", "sysroot"])) else {
        return needs_root("cargo belongs to root here");
    };
    let sysroot = sysroot.trim();
    let manifest = "name: counted
run: cargo build --quiet --offline && cargo test --quiet --offline | grep -c '1 passed' && cargo run --quiet --offline
runner: {limits: {memory_mb: 1024}}
";
    let folder = ground.folder(&[&CRATE[..], &[("manifest.yaml", manifest)]].concat());
    let path = format!("PATH={sysroot}/bin:/usr/bin:/bin");
    let flags = [
        "--ro",
        sysroot,
        "-e",
        &path,
        "-e",
        "CARGO_HOME=/tmp/cargo",
        "-e",
        "CARGO_TARGET_DIR=/tmp/target",
    ];
    let done = exec_bundled(&ground, &flags, &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "1\n3 5\n");
}

#[test]
fn a_go_program_of_an_npm_tree_is_bundled_with_what_it_bundles() {
    let ground = Ground::new();
    let Some(prepared) = esbuild() else {
        return;
    };
    let build =
        "node_modules/.bin/esbuild --bundle --log-level=error --outfile=/tmp/main.js main.ts
        node /tmp/main.js";
    let folder = populated(
        &ground,
        &prepared,
        &[
            (
                "half.ts",
                "export const half = (x: number): number => x / 2\n",
            ),
            (
                "main.ts",
                "import { half } from './half'; console.log(half(84))\n",
            ),
            ("manifest.yaml", "name: build\nrun: build.sh\n"),
            ("build.sh", build),
        ],
    );
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "42\n");
}
