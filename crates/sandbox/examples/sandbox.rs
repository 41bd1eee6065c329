//! Runs a command confined, shows it one directory read-only, and prints how it ended:
//!
//! `cargo run -p runner-sandbox --example sandbox -- docs ls -l "$PWD/docs"`

use std::io::Write as _;

use runner_sandbox::command::{Limit, Sandbox};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [directory, argv @ ..] = words.as_slice() else {
        return Err("usage: sandbox DIRECTORY COMMAND [ARGUMENT]...".into());
    };
    let mut sandbox = Sandbox::builder()
        .read_only(std::fs::canonicalize(directory)?)
        .variable("LANG", "C.UTF-8")
        .limit(Limit::Memory, 64 << 20)
        .limit(Limit::Processes, 32)
        .limit(Limit::WallTime, 2_000);
    if let Ok(parent) = std::env::var("RUNNER_OPT_CGROUP_PARENT") {
        sandbox = sandbox.cgroup_parent(parent);
    }
    if let Ok(directory) = std::env::var("RUNNER_OPT_RUNTIME_DIRECTORY") {
        sandbox = sandbox.runtime_directory(directory);
    }
    let ended = sandbox.run(argv)?;
    std::io::stderr().write_all(&ended.stderr)?;
    let mut stdout = std::io::stdout();
    stdout.write_all(&ended.stdout)?;
    writeln!(stdout, "{:?} {:?}", ended.outcome, ended.raw_status)?;
    Ok(())
}
