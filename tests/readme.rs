//! README.md and the guide as a new user follows them: each command, in order, in one directory
//! that is empty at first.

#![expect(clippy::expect_used, reason = "a failure of a test is a panic")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The documents, followed one after the other.
const DOCUMENTS: &[&str] = &[
    include_str!("../README.md"),
    include_str!("../docs/bundles.md"),
    include_str!("../docs/secrets.md"),
    include_str!("../docs/sources.md"),
    include_str!("../docs/images.md"),
    include_str!("../docs/security.md"),
    include_str!("../docs/network.md"),
    include_str!("../docs/command-line.md"),
    include_str!("../docs/sandboxes.md"),
    include_str!("../docs/mcp.md"),
    include_str!("../docs/report.md"),
    include_str!("../docs/configuration.md"),
    include_str!("../docs/learn.md"),
    include_str!("../docs/editors.md"),
    include_str!("../docs/systemd.md"),
    include_str!("../docs/troubleshooting.md"),
    include_str!("../docs/costs.md"),
    include_str!("../docs/cache.md"),
];
/// A screen and a half.
const README_BYTES_MAX: usize = 8 << 10;
/// Commands that cannot be run here: their beginning, and the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo run", "is for the source tree, and builds"),
    ("cargo build", "is for the source tree"),
    ("scripts/", "is for the source tree"),
    ("SOURCE_DATE_EPOCH=", "needs a registry at 127.0.0.1:5000"),
    ("runner exec review", "needs what was sent to that registry"),
    (
        "runner exec --insecure",
        "needs what was sent to that registry",
    ),
    (
        "runner run --image oci:tiny",
        "needs an image, which no command makes",
    ),
    (
        "runner exec --policy",
        "needs indexes of Debian and Python packages",
    ),
    ("runner source pull REF", "has a placeholder"),
    ("runner source push NAME", "has a placeholder"),
    ("runner source inspect REF", "has a placeholder"),
    ("runner source rm NAME", "has a placeholder"),
    ("runner exec -vv B.tar.gz", "has a placeholder"),
    (
        "install ",
        "needs root; the guest installs the units (tests/guest/units)",
    ),
    ("sudo ", "changes the host"),
    ("runner learn -o", "needs packages of npm's registry"),
    ("runner cache ls [", "says which flags there are"),
    ("runner cache verify [", "says which flags there are"),
    ("runner cache gc [", "says which flags there are"),
];
/// Commands that the text says exit with another code than 0.
const CODES: &[(&str, i32)] = &[
    ("mkdir hello work", 1),
    ("runner check bad.yaml", 125),
    ("runner why", 1),
    ("runner run --timeout 1s -- sleep 60", 124),
    (
        "mkdir -p site && cd site && runner sandbox create --name site --rw .\nrunner sandbox exec --timeout",
        124,
    ),
];
/// Commands whose output depends on the host: it is not compared.
const OF_HOST: &[&str] = &[
    "runner plan",
    "runner source",
    "runner cache",
    "runner doctor |",
];

#[test]
fn the_readme_is_short() {
    assert!(DOCUMENTS[0].len() <= README_BYTES_MAX);
}

/// A command, and its output if shown.
#[derive(Debug)]
struct Shown {
    command: String,
    output: Option<String>,
}

fn begins<T>(list: &[(&'static str, T)], command: &str) -> Option<usize> {
    list.iter()
        .position(|(start, _)| command.starts_with(start))
}

/// All commands of the document, in order.
fn commands(document: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut lines = document.lines().peekable();
    // Whether the previous block contained commands: the next one is its output.
    let mut awaits_output = false;
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            match language {
                "sh" => found.push(Shown {
                    command: block.join("\n"),
                    output: None,
                }),
                "text" if block[0].starts_with("$ ") => found.extend(session(&block)),
                "text" if awaits_output => {
                    let last = found.last_mut().expect("a command");
                    last.output = Some(block.join("\n"));
                }
                _ => (),
            }
            awaits_output = language == "sh";
        } else if let Some(command) = line.strip_prefix("    ")
            && ["runner ", "cargo ", "scripts/"]
                .iter()
                .any(|word| command.starts_with(word))
        {
            found.push(Shown {
                command: command.to_owned(),
                output: None,
            });
        } else if !line.is_empty() {
            awaits_output = false;
        }
    }
    found
}

/// `$ command`, its output, and so on.
fn session(block: &[&str]) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut goes_on = false;
    for line in block {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push(Shown {
                command: command.to_owned(),
                output: Some(String::new()),
            }),
            (None, Some(last)) if goes_on => last.command += &format!("\n{line}"),
            (None, Some(Shown { output, .. })) => {
                let output = output.as_mut().expect("made above");
                output.push_str(line);
                output.push('\n');
            }
            (None, None) => (),
        }
        goes_on = line.ends_with('\\');
    }
    found
}

fn shell(directory: &Path, command: &str) -> (Option<i32>, String) {
    let program = PathBuf::from(support::runner());
    let mut path = OsString::from(program.parent().expect("a directory"));
    path.push(":/usr/local/bin:/usr/bin:/bin");
    let home = directory.parent().expect("above").join("home");
    let output = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(directory)
        .env("PATH", path)
        .env("HOME", &home)
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("LC_ALL", "C")
        .output()
        .expect("bash starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

#[test]
fn every_command_of_the_documents_works_as_printed_from_an_empty_directory() {
    let ground = tempfile::tempdir().expect("a directory");
    let directory = ground.path().join("empty");
    for name in ["empty", "home"] {
        std::fs::create_dir(ground.path().join(name)).expect("made");
    }
    let mut left_out = vec![false; NOT_RUN.len()];
    let mut wrong = Vec::new();
    for Shown { command, output } in DOCUMENTS.iter().flat_map(|text| commands(text)) {
        if let Some(at) = begins(NOT_RUN, &command) {
            left_out[at] = true;
            continue;
        }
        let (code, printed) = shell(&directory, &command);
        // A limit of one command needs a group.
        if printed.contains("(limit_unenforceable)") {
            support::skip(&format!("`{command}`: no group can be created"));
            continue;
        }
        // If no group can be created, every run prints that.
        let mut printed: Vec<&str> = printed.lines().collect();
        printed.retain(|line| !line.ends_with("(limit_weaker)"));
        let printed = printed.join("\n");
        let expected = begins(CODES, &command).map_or(0, |at| CODES[at].1);
        if code != Some(expected) {
            wrong.push(format!("`{command}` ended with {code:?}: {printed}"));
        }
        let is_of_host = OF_HOST.iter().any(|start| command.starts_with(start));
        if let Some(output) = output
            && !is_of_host
            && output.trim_end() != printed.trim_end()
        {
            wrong.push(format!("`{command}` printed:\n{printed}"));
        }
    }
    for ((command, why), is_there) in NOT_RUN.iter().zip(left_out) {
        if !is_there {
            wrong.push(format!("no command begins with `{command}` ({why})"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
