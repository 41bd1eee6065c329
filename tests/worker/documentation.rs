//! docs/workers.md, followed by a reader: each block, in order, in one shell.

use std::path::PathBuf;
use std::process::Command;

use support::documents::{blocks, is_as_printed};
use support::{Ground, runner};

#[test]
fn every_command_of_the_document_works_as_printed() {
    const MARK: &str = "=== end of block ===";
    let ground = Ground::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let text = include_str!("../../docs/workers.md").replace("4222", &port);
    let blocks = blocks(&text);
    // Job control, as in the shell of a reader: `%2` is a job.
    let mut script = "set -em\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for (commands, _) in &blocks {
        script += &format!("{commands}\necho '{MARK}'\n");
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
    let mark = format!("{MARK}\n");
    let mut parts = printed.split(&*mark);
    for (commands, expected) in &blocks {
        let printed = parts.next().expect("as many parts as blocks");
        // What the shell says of its jobs.
        let mut printed: Vec<&str> = printed.lines().collect();
        printed.retain(|line| !line.starts_with('['));
        let printed = &printed.join("\n");
        let expected = expected.as_deref().unwrap_or_default();
        assert!(
            is_as_printed(printed, expected),
            "{commands}\nprinted:\n{printed}\nexpected:\n{expected}"
        );
    }
}
