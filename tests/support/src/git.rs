//! Git with an empty configuration.

use std::path::Path;
use std::process::Command;

/// Runs `git WORDS…` in a directory with an empty configuration.
#[track_caller]
pub fn git(directory: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(words)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ALLOW_PROTOCOL", "file")
        .envs([
            ("GIT_AUTHOR_NAME", "A"),
            ("GIT_AUTHOR_EMAIL", "a@example.org"),
            ("GIT_AUTHOR_DATE", "1600000000 +0000"),
            ("GIT_COMMITTER_NAME", "C"),
            ("GIT_COMMITTER_EMAIL", "c@example.org"),
            ("GIT_COMMITTER_DATE", "1700000000 +0200"),
        ])
        .output()
        .expect("git starts");
    let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(
        output.status.success(),
        "{words:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}
