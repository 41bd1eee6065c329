//! The program alone. With an integration test, `cargo test` also builds it, for the tests of `runner worker`.

use std::path::PathBuf;
use std::process::Command;

/// Beside `RUNNER_BIN`, where the one that cargo built cannot be reached.
fn program() -> PathBuf {
    let beside = std::env::var_os("RUNNER_BIN").map(PathBuf::from);
    let beside = beside.map(|runner| runner.with_file_name("runner-worker"));
    beside.unwrap_or_else(|| env!("CARGO_BIN_EXE_runner-worker").into())
}

#[test]
fn a_word_that_is_no_verb_is_refused() {
    for words in [&[][..], &["nonsense"]] {
        let output = Command::new(program()).args(words).output();
        let output = output.expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(output.stdout.is_empty());
        assert!(stderr.contains("(usage)"), "{stderr}");
    }
}
