//! docs/serve.md, followed by a reader: each block, in order, in one shell.

use std::process::Command;

use crate::host::Host;
use support::runner;

/// The blocks of the document that are commands, and what it says that they print.
fn blocks(text: &str) -> Vec<(String, Option<String>)> {
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match language {
            "sh" => found.push((block.join("\n"), None)),
            // `nginx.rs` uses it.
            "nginx" => (),
            _ => found.last_mut().expect("a command before").1 = Some(block.join("\n")),
        }
    }
    found
}

/// Whether the output is as printed, where `…` is anything.
fn is_as_printed(printed: &str, expected: &str) -> bool {
    let mut parts = expected.trim_end().split('…');
    let Some(mut rest) = printed
        .trim_end()
        .strip_prefix(parts.next().unwrap_or_default())
    else {
        return false;
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || expected.ends_with('…')
}

#[test]
fn every_command_of_the_document_works_as_printed() {
    const MARK: &str = "=== end of block ===";
    let host = Host::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
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
        script += &format!("\necho '{MARK}'\n");
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
    let mark = format!("{MARK}\n");
    let mut parts = printed.split(&*mark);
    for (commands, expected) in &blocks {
        let printed = parts.next().expect("as many parts as blocks");
        // What a server says at its start, at any time after that.
        let mut printed: Vec<&str> = printed.lines().collect();
        printed.retain(|line| !line.starts_with("runner: listening on "));
        let printed = &printed.join("\n");
        let expected = expected.as_deref().unwrap_or_default();
        assert!(
            is_as_printed(printed, expected),
            "{commands}\nprinted:\n{printed}\nexpected:\n{expected}"
        );
    }
    assert!(host.list().is_empty());
}
