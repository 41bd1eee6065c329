//! docs/serve.md, followed by a reader: each block, in order, in one shell.

use std::process::Command;

use crate::host::Host;
use support::documents::{END_OF_BLOCK, assert_as_printed, blocks};
use support::ports::free_port;
use support::runner;

#[test]
fn every_command_of_the_document_works_as_printed() {
    let host = Host::new();
    let port = free_port(std::net::Ipv4Addr::LOCALHOST).to_string();
    let text = include_str!("../../docs/serve.md").replace("8080", &port);
    let mut blocks = blocks(&text);
    blocks.retain(|(commands, _)| !commands.starts_with("sudo "));
    let mut script =
        "set -e\nuntil_there() { until test -S \"$1\"; do sleep 0.05; done; }\n".to_owned();
    for (commands, _) in &blocks {
        script += commands;
        for socket in ["api.sock", "tcp.sock"] {
            if commands.contains(&format!("--socket {socket}")) {
                script += &format!("\nuntil_there {socket}");
            }
        }
        script += &format!("\necho '{END_OF_BLOCK}'\n");
    }
    let program = std::path::PathBuf::from(runner());
    let programs = program
        .parent()
        .expect("a directory")
        .to_str()
        .expect("a plain path");
    let home = host.ground.path("home");
    std::fs::create_dir(&home).expect("made");
    let mut bash = Command::new("timeout");
    bash.args(["60", "bash", "-c", &format!("exec 2>&1\n{script}")])
        .current_dir(host.ground.workspace())
        .env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin"))
        .env("HOME", home)
        .env("TMPDIR", host.ground.path(""))
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", host.runtime_directory())
        .env("RUNNER_OPT_STATE_DIRECTORY", host.ground.path("state"));
    let output = bash.output().expect("started");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    // What a server says at its start, at any time after that.
    assert_as_printed(&blocks, &printed, |line| {
        line.starts_with("runner: listening on ")
    });
    assert!(host.list().is_empty());
}
