//! The client of Python, installed as pip installs it, by its own tests.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use support::packages::{pytest, python_package, succeed, tool};
use support::source_path;

use crate::place::Place;

/// The client and pytest, for `PYTHONPATH`: built and installed by pip, with its entry points.
pub fn installed(place: &Place) -> Option<OsString> {
    let (backend, pytest) = (python_package("flit-core", "3.12.0")?, pytest()?);
    let installed = place.path("installed");
    let mut pip = place.command(tool("python3"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]);
    pip.args(["--no-cache-dir", "--no-build-isolation", "--target"]);
    pip.arg(&installed).arg(source_path("clients/python"));
    succeed(pip.env("PYTHONPATH", backend)).expect("installed");
    let paths = std::env::join_paths([installed, pytest]).expect("paths without a colon");
    Some(paths)
}

/// Python with these packages.
pub fn python(place: &Place, packages: &OsString) -> Command {
    let mut python = place.command(tool("python3"));
    python.env("PYTHONPATH", packages);
    python
}

/// Their own tests: keywords, refusals, hostile output, ends of a sandbox, Ctrl-C, missing and other
/// programs, the plugin of pytest.
#[test]
fn the_client_and_the_plugin_of_pytest_pass_their_own_tests() {
    let place = Place::new();
    let Some(packages) = installed(&place) else {
        return;
    };
    let mut pytest = python(&place, &packages);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.arg(format!("--basetemp={}", place.path("pytest").display()));
    pytest.arg(source_path("clients/python/tests"));
    let said = place.succeed(pytest);
    assert!(said.contains(" passed in "), "{said}");
}

#[test]
fn mypy_finds_nothing_in_strict_mode() {
    if std::env::var_os("RUNNER_TESTS_HALF").is_some_and(|half| half == "user") {
        println!("was run as root: the same source is checked");
        return;
    }
    let place = Place::new();
    let (Some(mypy), Some(pytest)) = (python_package("mypy", "1.13.0"), pytest()) else {
        return;
    };
    let packages = std::env::join_paths([mypy, pytest]).expect("paths without a colon");
    let source = source_path("clients/python");
    let check = |words: &[&str], paths: &[PathBuf]| {
        let mut mypy = python(&place, &packages);
        mypy.args(["-m", "mypy", "--cache-dir"])
            .arg(place.path("cache"))
            .arg("--config-file")
            .arg(source.join("pyproject.toml"));
        let said = place.succeed({
            mypy.args(words).args(paths);
            mypy
        });
        assert!(said.starts_with("Success: no issues"), "{said}");
    };
    check(
        &[],
        &[source.join("src/runner_sandbox"), source.join("tests")],
    );
    // pytest of today does not parse as Python 3.9: the client alone.
    let files = std::fs::read_dir(source.join("src/runner_sandbox")).expect("listed");
    let files = files.map(|entry| entry.expect("listed").path());
    let files: Vec<_> = files
        .filter(|file| {
            let is_code = file.extension().is_some_and(|extension| extension == "py");
            is_code && !file.ends_with("pytest_plugin.py")
        })
        .collect();
    check(&["--python-version", "3.9"], &files);
}
