//! docs/workers.md, followed by a reader: each block, in order, in one shell.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use support::documents::{END_OF_BLOCK, assert_as_printed, blocks};
use support::ports::free_port;
use support::{Ground, runner};

#[test]
fn every_command_of_the_document_works_as_printed() {
    let ground = Ground::new();
    let port = free_port(Ipv4Addr::LOCALHOST).to_string();
    let text = include_str!("../../docs/workers.md").replace("4222", &port);
    let blocks = blocks(&text);
    // Job control, as in the shell of a reader: `%2` is a job.
    let mut script = "set -em\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for (commands, _) in &blocks {
        script += &format!("{commands}\necho '{END_OF_BLOCK}'\n");
    }
    let program = PathBuf::from(runner());
    let programs = program.parent().expect("a directory").display();
    let home = ground.path("home");
    std::fs::create_dir(&home).expect("made");
    let mut bash = Command::new("timeout");
    bash.args([
        "--foreground",
        "60",
        "bash",
        "-c",
        &format!("exec 2>&1\n{script}"),
    ])
    .current_dir(ground.workspace())
    .env(
        "PATH",
        format!("{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"),
    )
    .env("HOME", home);
    let output = bash.output().expect("started");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    // What the shell says of its jobs.
    assert_as_printed(&blocks, &printed, |line| line.starts_with('['));
}
