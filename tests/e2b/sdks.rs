//! The SDKs as the registries have them.

use std::path::PathBuf;
use std::process::Command;

use support::packages::{has, prepared, succeed, tool};
use support::source_path;

use crate::service::Service;

/// A directory for `PYTHONPATH`.
pub fn python_sdk() -> Option<PathBuf> {
    prepared("e2b-python-2.63.0", |folder| {
        let mut pip = tool("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]);
        succeed(pip.arg(folder).arg("e2b==2.63.0")).map(|_said| ())
    })
}

fn javascript_sdk() -> Option<PathBuf> {
    if !has("node") || !has("npm") {
        return None;
    }
    let folder = prepared("e2b-javascript-2.51.0", |folder| {
        let mut npm = tool("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        succeed(npm.arg("e2b@2.51.0").current_dir(folder)).map(|_said| ())
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
