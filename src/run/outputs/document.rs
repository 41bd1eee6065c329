//! Reads and validates the output document, and checks the required output files.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::run::error::{RunError, mismatches};
use crate::run::interruptible::WaitLimit;
use reader::{Question, Refused, Unparsed, judge, parse_json};
use spec::io::contract::{DOCUMENT_BYTES_MAX, DOCUMENT_MEMORY_MAX};
use spec::path::escape;
use spec::report::{SyncState, SyncedReport};
use sys::file::{Unread, open_beneath, regular_size};

/// Memory that an output document always gets, besides full streams of the default size.
const BESIDE_FULL_STREAMS: usize = 12 << 20;

/// Maximum number of reasons for undelivered outputs in one message.
const REASONS_SHOWN_MAX: usize = 4;

/// The text of an output document.
pub(super) enum OutputText<'run> {
    /// The file that the body wrote, and its size.
    File(File, usize),
    /// The whole stdout, which is a document if it is one JSON value.
    Stdout(&'run [u8]),
}

fn invalid(problem: String) -> RunError {
    RunError::Output {
        code: "invalid-output",
        message: format!("the body's output document {problem}"),
    }
}

/// Opens the text of the output document. The body's file ids must be assumed.
///
/// # Errors
/// [`RunError::Output`] with `invalid-output` for a file that cannot be read.
pub(super) fn open_text<'run>(
    space: BorrowedFd<'_>,
    stdout: Option<&'run [u8]>,
) -> Result<Option<OutputText<'run>>, RunError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = match open_beneath(space, b"runner/out/output.json", flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(stdout.map(OutputText::Stdout)),
        Err(errno) => return Err(invalid(format!("cannot be opened: {errno}"))),
    };
    let size_bytes = regular_size(file.as_fd(), DOCUMENT_BYTES_MAX).map_err(|unread| {
        invalid(match unread {
            Unread::Stat(errno) | Unread::Read(errno) => format!("cannot be read: {errno}"),
            Unread::NotRegular => "is not a regular file".to_owned(),
            Unread::TooLarge => "is larger than 16 MiB".to_owned(),
        })
    })?;
    Ok(Some(OutputText::File(File::from(file), size_bytes)))
}

/// Parses the output document in a process without rights.
///
/// `captured_bytes` of output are already in memory. The document gets the rest of
/// [`DOCUMENT_MEMORY_MAX`], but at least what remains beside full streams of the default size.
///
/// # Errors
/// [`RunError::Output`] with `invalid-output` for a file that is not JSON; [`RunError::Cancelled`].
pub(super) fn parse_text(
    text: OutputText<'_>,
    captured_bytes: usize,
    wait_limit: WaitLimit<'_>,
) -> Result<Option<Value>, RunError> {
    let memory_max = DOCUMENT_MEMORY_MAX
        .saturating_sub(captured_bytes)
        .max(BESIDE_FULL_STREAMS);
    match text {
        OutputText::File(mut file, size_bytes) => {
            let memory_max = memory_max.saturating_sub(size_bytes);
            match parse_json(&mut file, memory_max, wait_limit) {
                Ok(value) => Ok(Some(value)),
                Err(Unparsed::Document(error)) => Err(invalid(format!("cannot be read: {error}"))),
                Err(other) => Err(other.into()),
            }
        }
        OutputText::Stdout(mut text) if may_be_json(text) => {
            match parse_json(&mut text, memory_max, wait_limit) {
                Ok(value) => Ok(Some(value)),
                Err(Unparsed::Document(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        }
        OutputText::Stdout(_) => Ok(None),
    }
}

/// Whether `text` starts as JSON does. What most programs print does not, and needs no process.
fn may_be_json(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let words = [&b"true"[..], b"false", b"null"];
    let has_sign = |first: &u8| b"{[\"-0123456789".contains(first);
    text.first().is_some_and(has_sign) || words.iter().any(|word| text.starts_with(word))
}

/// Validates the output of a body that exited with 0.
///
/// # Errors
/// [`RunError::Output`]: `missing-output` or `invalid-output`.
pub(super) fn check_output(
    schema: Option<&Value>,
    output: Option<&Value>,
    wait_limit: WaitLimit<'_>,
) -> Result<(), RunError> {
    let Some(schema) = schema else {
        return Ok(());
    };
    let Some(output) = output else {
        return Err(RunError::Output {
            code: "missing-output",
            message: "the body wrote no output document to $RUNNER_OUTPUT, and its stdout is not \
                      one JSON value"
                .to_owned(),
        });
    };
    let invalid = |why: String| RunError::Output {
        code: "invalid-output",
        message: format!("the output does not satisfy `outputs`: {why}"),
    };
    let question = Question {
        block: "outputs",
        schema,
        document: Some(output),
    };
    judge(&[question], wait_limit).map_err(|refused| match refused {
        Refused::Document(found) => invalid(mismatches(&found)),
        Refused::Schema { error, .. } => invalid(error.to_string()),
        other => other.into(),
    })
}

/// Checks that a body that exited with 0 made each required file and that it was delivered.
///
/// # Errors
/// [`RunError::Output`]: `missing-artifact`, with every required key that the body did not make.
/// [`RunError::Undelivered`] if all were made and one could not be written to the workspace.
pub(in crate::run) fn check_files(
    required: &[String],
    synced: &[SyncedReport],
) -> Result<(), RunError> {
    let mut missing = Vec::new();
    let mut undelivered = Vec::new();
    for file in synced.iter().filter(|file| required.contains(&file.key)) {
        match (file.state, &file.error) {
            (SyncState::Missing, _) => {
                missing.push(format!("/scratch/{}", escape(file.key.as_bytes())));
            }
            (SyncState::Failed, Some(error)) => undelivered.push(error),
            _ => (),
        }
    }
    if !missing.is_empty() {
        return Err(RunError::Output {
            code: "missing-artifact",
            message: format!(
                "the body did not make {}, which `outputsFiles` requires",
                missing.join(", ")
            ),
        });
    }
    let Some(first) = undelivered.first() else {
        return Ok(());
    };
    let hint = first.hint.clone();
    let count = undelivered.len();
    // Outputs often fail for the same reason.
    let mut reasons: Vec<&str> = undelivered.iter().map(|error| &*error.message).collect();
    reasons.dedup();
    let what = match count {
        1 => "a required output was not delivered".to_owned(),
        _ => format!("{count} required outputs were not delivered"),
    };
    let shown = reasons.len().min(REASONS_SHOWN_MAX);
    let more = match reasons.len() - shown {
        0 => String::new(),
        more => format!("; and {more} more, with their reasons in the report"),
    };
    let reasons = reasons[..shown].join("; ");
    Err(RunError::Undelivered {
        message: format!("{what}: {reasons}{more}"),
        hint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_json_is_taken_for_plain_text() {
        for text in [
            "{}", " [1]", "\"x\"", "-1", "0", "\n\ttrue", "false", "null\n",
        ] {
            assert!(may_be_json(text.as_bytes()), "{text}");
        }
        for text in ["", " ", "hello", "test passed", "nothing", "+1", ".5"] {
            assert!(!may_be_json(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_missing_output_is_named_by_its_path_in_the_sandbox() {
        let missing = SyncedReport {
            key: "loud".to_owned(),
            path: "loud.txt".to_owned(),
            state: SyncState::Missing,
            sha256: None,
            bytes: None,
            error: None,
        };
        let error = check_files(&["loud".to_owned()], &[missing]).expect_err("refused");
        let message = "the body did not make /scratch/loud, which `outputsFiles` requires";
        assert_eq!(error.to_string(), message);
    }
}
