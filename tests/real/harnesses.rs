//! `runner run --` started by other programs: cargo, pytest, systemd-run.

use std::path::{Path, PathBuf};
use std::process::Command;

use support::packages::{prepared, pytest, succeed, tool};
use support::{Ground, runner};

const CRATE: [(&str, &str); 4] = [
    (
        "Cargo.toml",
        "[package]\nname = \"counted\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    ),
    (
        "src/lib.rs",
        r#"//! ```
//! assert!(std::env::var_os("RUNNER_RUN_ID").is_some());
//! assert_eq!(counted::words("a b"), 2);
//! ```
pub fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[test]
fn two_words() {
    assert_eq!(words("a b"), 2);
}

#[test]
fn this_runs_in_the_sandbox() {
    assert!(std::env::var_os("RUNNER_RUN_ID").is_some());
}

#[test]
#[ignore = "fails on purpose"]
fn a_wrong_count() {
    assert_eq!(words("a b"), 3);
}
"#,
    ),
    (
        "tests/files.rs",
        r#"#[test]
fn a_fixture_is_read_and_a_result_is_written() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixture.txt");
    let text = std::fs::read_to_string(fixture).unwrap();
    let result = concat!(env!("CARGO_TARGET_TMPDIR"), "/result");
    std::fs::write(result, counted::words(&text).to_string()).unwrap();
    assert!(std::fs::write(fixture, "changed").is_err());
}
"#,
    ),
    ("tests/fixture.txt", "a b c\n"),
];

/// cargo for a crate of the test, without the settings of the cargo that runs this test.
fn cargo(folder: &Path) -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if (name.starts_with("CARGO") && name != "CARGO_HOME") || name == "RUSTFLAGS" {
            command.env_remove(&*name);
        }
    }
    command.current_dir(folder);
    command.env("CARGO_TARGET_DIR", folder.join("target"));
    command.args(["test", "--offline"]);
    command
}

fn has_cargo() -> bool {
    Command::new("cargo")
        .arg("--version")
        .output()
        .is_ok_and(|said| said.status.success())
}

fn write_crate(folder: &Path) -> std::io::Result<()> {
    for (name, contents) in CRATE {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(path, contents)?;
    }
    Ok(())
}

/// The test program of the crate's library, for a user who cannot start cargo.
fn built_test_program() -> Option<PathBuf> {
    let folder = prepared("crate-1", |folder| {
        // Outside the cache: cargo would use the settings of this project, which is above it.
        let apart = tempfile::tempdir().map_err(|error| error.to_string())?;
        write_crate(apart.path()).map_err(|error| error.to_string())?;
        let mut build = cargo(apart.path());
        succeed(build.args(["--quiet", "--lib", "--no-run"]))?;
        let built = std::fs::read_dir(apart.path().join("target/debug/deps"))
            .map_err(|error| error.to_string())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_none())
            .ok_or("cargo built no program")?;
        // By a process of its own: see `support::bodies::copy_program`.
        let mut copy = Command::new("cp");
        succeed(copy.arg(built).arg(folder.join("counted"))).map(|_output| ())
    })?;
    Some(folder.join("counted"))
}

/// `[target.<triple>] runner = "runner run --ro … --rw … --"`: tests read the crate, and write only
/// in the directory that cargo provides (`CARGO_TARGET_TMPDIR`). The test program itself needs no
/// flag. Unit tests without files need only `runner run --`.
#[test]
fn cargo_runs_unit_integration_and_documentation_tests_through_the_runner() {
    let program = built_test_program();
    let ground = Ground::new();
    if !has_cargo() {
        println!("this user has no cargo: as cargo would, on what the run as root built");
        let Some(program) = program else {
            return;
        };
        let program = program.to_str().expect("a plain path");
        ground.run(&[], &[program]).assert_exited(0);
        let done = ground.run(&[], &[program, "--ignored"]);
        done.assert_exited(101);
        assert!(
            done.text().contains("a_wrong_count ... FAILED"),
            "{done:#?}"
        );
        return;
    }
    let folder = ground.path("counted");
    write_crate(&folder).expect("written");
    let temporary = folder.join("target/tmp");
    std::fs::create_dir_all(&temporary).expect("made");
    let host = succeed(tool("rustc").arg("-vV")).expect("rustc answers");
    let triple = host
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("a host");
    let variable = format!(
        "CARGO_TARGET_{}_RUNNER",
        triple.to_uppercase().replace('-', "_")
    );
    let value = format!(
        "{} run --ro {} --rw {} --",
        runner().display(),
        folder.display(),
        temporary.display()
    );

    let mut command = cargo(&folder);
    command.env(&variable, &value);
    let done = ground.harness(command).done();
    done.assert_exited(0);
    let text = done.text();
    assert_eq!(text.matches("test result: ok").count(), 3, "{done:#?}");
    let result = std::fs::read_to_string(temporary.join("result")).expect("written");
    assert_eq!(result, "3");

    let mut command = cargo(&folder);
    command.env(&variable, &value);
    command.args(["--lib", "--", "--ignored"]);
    let done = ground.harness(command).done();
    done.assert_exited(101);
    assert!(
        done.text().contains("a_wrong_count ... FAILED"),
        "{done:#?}"
    );
}

#[test]
fn pytest_runs_tests_that_start_the_runner() {
    let ground = Ground::new();
    let Some(pytest) = pytest() else {
        return;
    };
    let suite = include_str!("../bodies/real/pytest_runs_tests_that_start_the_runner.py");
    let suite = ground.write("suite/test_confined.py", suite);
    let mut command = tool("python3");
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    command.arg(&suite);
    command.arg(format!("--basetemp={}", ground.path("pytest").display()));
    command.env("PYTHONPATH", pytest);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("RUNNER_UNDER_TEST", runner());
    // The outcome of the last run is not that of pytest: its report is not compared.
    let done = ground.harness(command).without("I8").done();
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(done.text().contains("3 passed"), "{done:#?}");
    // The timeout of pytest sends SIGKILL: the next start removes the leftovers of that run.
    ground.run(&[], &["true"]).assert_exited(0);
}

#[test]
fn pytest_itself_runs_in_the_sandbox() {
    let ground = Ground::new();
    let Some(pytest) = pytest() else {
        return;
    };
    let suite = include_str!("../bodies/real/pytest_itself_runs_in_the_sandbox.py");
    ground.write("suite/test_inside.py", suite);
    ground.write(
        "broken/test_broken.py",
        "def test_broken():\n    assert 1 == 2\n",
    );
    let pytest = pytest.to_str().expect("a plain path").to_owned();
    for (folder, code, said) in [("suite", 0, "2 passed"), ("broken", 1, "1 failed")] {
        let folder = ground.path(folder);
        let folder = folder.to_str().expect("a plain path");
        let variable = format!("PYTHONPATH={pytest}");
        let flags = ["--ro", &pytest, "--ro", folder, "-e", &variable];
        let body = [
            "python3",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            folder,
        ];
        let done = ground.run(&flags, &body);
        done.assert_exited(code);
        assert!(done.text().contains(said), "{done:#?}");
    }
}
