//! Generated files that are checked in: a test compares each with newly generated text.

use std::path::Path;

/// Whether the files are written instead of compared: `RUNNER_UPDATE_GOLDEN=1`.
fn is_updating() -> bool {
    std::env::var_os("RUNNER_UPDATE_GOLDEN").is_some_and(|value| value == "1")
}

/// Compares the file with `text`, or writes it. The panic message has the first line that differs.
pub fn assert_golden(path: &Path, text: &str) {
    if is_updating() {
        std::fs::write(path, text).expect("written");
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let renewed = "RUNNER_UPDATE_GOLDEN=1 writes it anew";
    for (number, (kept, now)) in (1..).zip(kept.lines().zip(text.lines())) {
        assert!(
            kept == now,
            "{}:{number} differs; {renewed}\n kept: {kept}\n  now: {now}",
            path.display()
        );
    }
    assert!(
        kept == text,
        "{} has {} lines, and now there are {}; {renewed}",
        path.display(),
        kept.lines().count(),
        text.lines().count()
    );
}
