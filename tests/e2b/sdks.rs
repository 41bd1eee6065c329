//! The SDKs as the registries have them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::packages::{has, prepared, succeed, tool};
use support::{runner, source_path};

use crate::service::Service;

/// The version that the program says it is tested with.
fn version(registry: &str) -> String {
    let server = Path::new(&runner()).with_file_name("runner-server");
    let said = succeed(Command::new(server).arg("--version")).expect("it says its version");
    let end = format!(" of {registry}");
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("e2b "));
    let version = lines.find_map(|line| line.strip_suffix(&end));
    version.expect("the version of the SDK").to_owned()
}

/// A directory for `PYTHONPATH`.
pub fn python_sdk() -> Option<PathBuf> {
    let version = version("PyPI");
    prepared(&format!("e2b-python-{version}"), |folder| {
        let mut pip = tool("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]);
        succeed(pip.arg(folder).arg(format!("e2b=={version}"))).map(|_said| ())
    })
}

fn javascript_sdk() -> Option<PathBuf> {
    if !has("node") || !has("npm") {
        return None;
    }
    let version = version("npm");
    let folder = prepared(&format!("e2b-javascript-{version}"), |folder| {
        let mut npm = tool("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        succeed(npm.arg(format!("e2b@{version}")).current_dir(folder)).map(|_said| ())
    });
    folder.map(|folder| folder.join("node_modules/e2b/dist/index.mjs"))
}

/// The command ends well, and no sandbox is left.
#[track_caller]
fn passes(service: &Service, mut command: Command) {
    let output = command.output().expect("timeout starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && stdout.ends_with("all of it\n"),
        "{stdout}\n{stderr}"
    );
    assert!(service.api.host.list().is_empty());
}

#[test]
fn the_sdk_for_python_works_unmodified() {
    let Some(sdk) = python_sdk() else {
        return;
    };
    let service = Service::new();
    let mut python = service.command("python3");
    python
        .env("PYTHONPATH", sdk)
        .arg(source_path("tests/e2b/calls.py"));
    passes(&service, python);
}

#[test]
fn the_sdk_for_javascript_works_unmodified() {
    let Some(sdk) = javascript_sdk() else {
        return;
    };
    let service = Service::new();
    let mut node = service.command("node");
    node.arg(source_path("tests/e2b/calls.mjs")).arg(sdk);
    passes(&service, node);
}

/// A program that waits for a line twice: after its sandbox is there, and after the server was restarted.
#[track_caller]
fn survives_a_restart(mut service: Service, mut command: Command) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut stdin = child.stdin.take().expect("a pipe");
    let ready = lines.next().and_then(Result::ok);
    if ready.as_deref() == Some("ready") {
        // As kill -9: the streams of its commands are gone with it.
        service.restart();
        writeln!(stdin, "go").expect("it reads");
    }
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    drop(stdin);
    let output = child.wait_with_output().expect("waited");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{ready:?} {rest:?}\n{stderr}");
    assert_eq!(rest, ["all of it"], "{stderr}");
    assert!(service.api.host.list().is_empty());
}

#[test]
fn a_program_in_python_keeps_its_sandbox_over_a_killed_server() {
    let Some(sdk) = python_sdk() else {
        return;
    };
    let service = Service::new();
    let mut python = service.command("python3");
    python
        .env("PYTHONPATH", sdk)
        .arg(source_path("tests/e2b/restart.py"));
    survives_a_restart(service, python);
}

#[test]
fn a_program_in_javascript_keeps_its_sandbox_over_a_killed_server() {
    let Some(sdk) = javascript_sdk() else {
        return;
    };
    let service = Service::new();
    let mut node = service.command("node");
    node.arg(source_path("tests/e2b/restart.mjs")).arg(sdk);
    survives_a_restart(service, node);
}
