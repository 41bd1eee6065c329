//! docs/cargo.md: the tests of a published crate, and a hostile test, by the recipes as printed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::packages::{succeed, tool};
use support::{needs_root, runner, skip};

use crate::documentation::examples;
use crate::place::{Place, shown};

const DOCUMENT: &str = include_str!("../../docs/cargo.md");
/// A crate that this workspace needs anyway, with tests of each kind and without dependencies.
const PUBLISHED: &str = "strsim";
const HOSTILE: &str = include_str!("../bodies/clients/hostile.rs");

/// cargo with the caller's toolchain and packages, without the settings of the cargo that runs this test.
fn cargo(place: &Place) -> Command {
    let mut command = place.command(Command::new("cargo"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if (name.starts_with("CARGO") && name != "CARGO_HOME") || name == "RUSTFLAGS" {
            command.env_remove(&*name);
        }
    }
    with_runner_on_the_path(command)
}

fn with_runner_on_the_path(mut command: Command) -> Command {
    let program = PathBuf::from(runner());
    let directory = program.parent().expect("a directory").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = [directory].into_iter().chain(std::env::split_paths(&path));
    // rustup and cargo are where the caller has them.
    command
        .env("PATH", std::env::join_paths(paths).expect("a path"))
        .env("HOME", std::env::var_os("HOME").unwrap_or_default());
    command
}

/// Whether this user has cargo: the ordinary user of `scripts/test` has none.
fn has_cargo() -> bool {
    let said = Command::new("cargo").arg("--version").output();
    let is_there = said.is_ok_and(|said| said.status.success());
    if !is_there {
        // What the recipe starts is covered: `real::harnesses` runs a built test program as this user.
        println!("this user has no cargo");
    }
    is_there
}

/// A copy of the published crate, with a lock file.
fn published(place: &Place) -> Option<PathBuf> {
    let mut metadata = tool("cargo");
    metadata.args(["metadata", "--offline", "--locked", "--format-version=1"]);
    metadata.current_dir(env!("CARGO_MANIFEST_DIR"));
    let metadata = match succeed(&mut metadata) {
        Ok(metadata) => metadata,
        Err(why) => {
            needs_root(&format!("cargo does not say where {PUBLISHED} is: {why}"));
            return None;
        }
    };
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == PUBLISHED);
    let manifest = package.expect("in the lock file")["manifest_path"]
        .as_str()
        .expect("a path");
    let source = Path::new(manifest).parent().expect("a directory");
    let folder = place.path(PUBLISHED);
    succeed(Command::new("cp").arg("-R").arg(source).arg(&folder)).expect("copied");
    let mut lock = cargo(place);
    lock.args(["generate-lockfile", "--offline"])
        .current_dir(&folder);
    succeed(&mut lock).expect("locked");
    Some(folder)
}

fn write_configuration(folder: &Path) {
    let [configuration] = &examples(DOCUMENT, "toml")[..] else {
        panic!("not one configuration");
    };
    std::fs::create_dir_all(folder.join(".cargo")).expect("made");
    std::fs::write(folder.join(".cargo/config.toml"), &configuration.code).expect("written");
}

#[test]
fn the_tests_of_a_published_crate_pass_confined_and_so_does_its_whole_build() {
    let place = Place::new();
    if !has_cargo() {
        return;
    }
    let Some(folder) = published(&place) else {
        return;
    };
    let [build] = &examples(DOCUMENT, "sh")[..] else {
        panic!("not one command");
    };
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    if ![".rustup", ".cargo/bin", ".cargo/registry"]
        .iter()
        .all(|name| home.join(name).exists())
    {
        return skip("rustup and cargo are not where the recipe of the whole build has them");
    }
    let mut whole = with_runner_on_the_path(place.command(Command::new("bash")));
    whole.args(["-euc", &build.code]).current_dir(&folder);
    let said = place.succeed(whole);
    assert_eq!(said.matches("test result: ok").count(), 3, "{said}");
    assert!(!folder.join("target/debug").exists());

    write_configuration(&folder);
    let mut tests = cargo(&place);
    tests.args(["test", "--offline"]).current_dir(&folder);
    let said = place.succeed(tests);
    // Unit, integration and documentation tests.
    assert_eq!(said.matches("test result: ok").count(), 3, "{said}");
}

/// A test of a crate reads files of the user, changes the project and what cargo executes later, and
/// connects.
#[test]
fn a_hostile_test_gets_nothing_by_the_recipe_and_everything_without() {
    let place = Place::new();
    if !has_cargo() {
        return;
    }
    let secret = place.host.ground.write("home/.ssh/id", "secret");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let ground = &place.host.ground;
    ground.write(
        "member/Cargo.toml",
        "[workspace]\nmembers = [\"inner\"]\nresolver = \"2\"\n",
    );
    ground.write(
        "member/inner/Cargo.toml",
        "[package]\nname = \"inner\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    ground.write("member/inner/src/lib.rs", "");
    ground.write("member/inner/fixture.txt", "a fixture");
    ground.write("member/inner/tests/hostile.rs", HOSTILE);
    let folder = place.path("member");
    let attempts = |expected: &str| {
        let mut tests = cargo(&place);
        tests
            .args([
                "test",
                "--offline",
                "--test",
                "hostile",
                "--",
                "--nocapture",
            ])
            .env("SECRET", &secret)
            .env("PORT", port.to_string())
            .current_dir(&folder);
        let output = place.output(tests);
        let printed = shown(&output);
        for attempt in [
            "read the secret",
            "change the source",
            "change what cargo executes",
            "connect",
            "see the environment",
        ] {
            let line = format!("{attempt}: {expected}");
            assert!(printed.contains(&line), "`{line}` is not in:\n{printed}");
        }
        assert!(printed.contains("read a fixture: done"), "{printed}");
        assert!(printed.contains("write a result: done"), "{printed}");
    };
    attempts("done");
    write_configuration(&folder);
    attempts("refused");
}
