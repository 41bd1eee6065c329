//! What the events of `runner exec --events` say to a program that started it.

use std::io::{self, ErrorKind};
use std::path::Path;

use serde_json::Value;

/// Whether the limits of the run are counted in the totals: a plan was made, and something follows.
///
/// # Errors
/// Those of reading the file of events.
pub fn is_planned(events: &Path) -> io::Result<bool> {
    let text = match std::fs::read(events) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    Ok(lines.any(|line| {
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        event["event"] == "phase_started" && event["phase"] == "stage"
    }))
}
