//! The clients of the protocol that others use, from the public registries.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::host::{Host, Said, said};
use crate::http::{Server, TOKEN};
use support::packages::{has, npm_packages, python_package, tool};
use support::{runner, source_path};

const TYPESCRIPT_SDK: &str = "@modelcontextprotocol/sdk@1.32.2";
/// The last version that runs on Node 20.
const INSPECTOR: &str = "@modelcontextprotocol/inspector-cli@0.22.0";

/// Runs a client in a directory of the ground, as `host` runs the program.
fn run(host: &Host, mut client: Command, directory: &Path) -> Said {
    for (name, value) in host.command(&["mcp"]).get_envs() {
        client.env(name, value.expect("a value"));
    }
    let client = client.current_dir(directory).stdin(Stdio::null());
    said(client.output().expect("the client starts"))
}

/// What is left of a client and its arguments when they have used a server by HTTP.
fn use_by_http(mut client: Command) {
    let host = Host::new();
    let server = Server::start(&host, "[--rw, .]", &[]);
    client.arg(server.url("/mcp")).arg(TOKEN);
    let done = run(&host, client, &host.ground.workspace());
    assert_eq!((done.code, &*done.stdout), (0, "used\n"), "{done:?}");
    // The client has ended the session.
    host.assert_empty();
}

#[test]
fn the_official_client_of_python_uses_every_tool_by_http() {
    if !has("python3") {
        return;
    }
    let Some(sdk) = python_package("mcp", "2.3.0") else {
        return;
    };
    let mut client = tool("timeout");
    let program = source_path("tests/mcp/client.py");
    client.args(["100", "python3"]).arg(program);
    client.env("PYTHONPATH", sdk);
    use_by_http(client);
}

#[test]
fn the_official_client_of_typescript_cancels_and_resumes_by_http() {
    let Some(sdk) = npm_packages("mcp-typescript-1", &[TYPESCRIPT_SDK]) else {
        return;
    };
    let host = Host::new();
    let mut client = tool("timeout");
    client
        .args(["100", "node"])
        .arg(program_beside(&host, &sdk));
    use_by_http(client);
}

/// The program of the client, copied: Node looks for packages beside it.
fn program_beside(host: &Host, sdk: &Path) -> PathBuf {
    let program = host.ground.path("client.mjs");
    std::fs::copy(source_path("tests/mcp/client.mjs"), &program).expect("copied");
    let modules = host.ground.path("node_modules");
    std::os::unix::fs::symlink(sdk.join("node_modules"), modules).expect("linked");
    program
}

#[test]
fn the_official_client_of_python_uses_every_tool() {
    if !has("python3") {
        return;
    }
    let Some(sdk) = python_package("mcp", "2.3.0") else {
        return;
    };
    let host = Host::new();
    let mut client = tool("timeout");
    client
        .args(["100", "python3"])
        .arg(source_path("tests/mcp/client.py"));
    // It passes on few variables of its own.
    client.args(["env"]);
    let variables = host.command(&["mcp"]);
    for (name, value) in variables.get_envs() {
        let value = value.expect("a value").to_str().expect("text");
        client.arg(format!("{}={value}", name.to_str().expect("text")));
    }
    client.arg(runner()).args(["mcp", "--rw", "."]);
    client.env("PYTHONPATH", sdk);
    let done = run(&host, client, &host.ground.workspace());
    assert_eq!((done.code, &*done.stdout), (0, "used\n"), "{done:?}");
    host.assert_empty();
}

#[test]
fn the_official_client_of_typescript_checks_results_and_cancels() {
    let Some(sdk) = npm_packages("mcp-typescript-1", &[TYPESCRIPT_SDK]) else {
        return;
    };
    let host = Host::new();
    let mut client = tool("timeout");
    client
        .args(["100", "node"])
        .arg(program_beside(&host, &sdk))
        .arg(runner())
        .args(["--rw", "."]);
    let done = run(&host, client, &host.ground.workspace());
    assert_eq!((done.code, &*done.stdout), (0, "used\n"), "{done:?}");
    host.assert_empty();
}

#[test]
fn the_command_line_of_the_inspector_lists_and_calls_tools() {
    let Some(inspector) = npm_packages("mcp-inspector-1", &[INSPECTOR]) else {
        return;
    };
    let host = Host::new();
    // It finds its own version only from there.
    let directory = inspector.join("node_modules/@modelcontextprotocol/inspector-cli/build");
    let ask = |words: &[&str]| -> Value {
        let mut client = tool("timeout");
        client.args(["100", "node"]).arg(directory.join("index.js"));
        client.arg(runner()).arg("mcp").args(words);
        let done = run(&host, client, &directory);
        // It also complains of parts of a schema that it does not know.
        assert_eq!((done.code, &*done.stderr), (0, ""), "{done:?}");
        serde_json::from_str(&done.stdout).expect("a document")
    };
    let listed = ask(&["--method", "tools/list"]);
    assert_eq!(listed["tools"].as_array().expect("a list").len(), 7);
    let words = ["--method", "tools/call", "--tool-name", "execute_command"];
    let called = ask(&[&words[..], &["--tool-arg", "command=echo $((6 * 7))"]].concat());
    assert_eq!(called["structuredContent"]["stdout"], "42\n", "{called}");
    host.assert_empty();
}
