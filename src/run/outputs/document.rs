//! Reads and validates the output document, and checks the required output files.

use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::run::contract::DOCUMENT_BYTES_MAX;
use crate::run::error::{RunError, mismatches};
use crate::run::interruptible::WaitLimit;
use reader::{Question, Refused};
use spec::io::contract::{DOCUMENT_MEMORY_MAX, read_document};
use spec::path::escape;
use spec::report::{SyncState, SyncedReport};
use sys::file::{Unread, open_beneath, read_regular};

/// Memory that an output document always gets, besides full streams of the default size.
const BESIDE_FULL_STREAMS: usize = 12 << 20;

/// Maximum number of reasons for undelivered outputs in one message.
const REASONS_SHOWN_MAX: usize = 4;

/// Reads the output document: the file that the body wrote, else its whole stdout if that is one
/// JSON value. The body's file ids must be assumed.
///
/// `captured_bytes` of output are already in memory. The document gets the rest of
/// [`DOCUMENT_MEMORY_MAX`], but at least what remains beside full streams of the default size.
///
/// # Errors
/// [`RunError::Output`] with `invalid-output` for a document that cannot be read or is not JSON.
pub(super) fn read_output(
    space: BorrowedFd<'_>,
    stdout: Option<&[u8]>,
    captured_bytes: usize,
) -> Result<Option<Value>, RunError> {
    let memory_max = DOCUMENT_MEMORY_MAX
        .saturating_sub(captured_bytes)
        .max(BESIDE_FULL_STREAMS);
    let invalid = |problem: String| RunError::Output {
        code: "invalid-output",
        message: format!("the body's output document {problem}"),
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = match open_beneath(space, b"runner/out/output.json", flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            return Ok(stdout.and_then(|text| read_document(text, memory_max).ok()));
        }
        Err(errno) => return Err(invalid(format!("cannot be opened: {errno}"))),
    };
    let text = read_regular(file, DOCUMENT_BYTES_MAX).map_err(|unread| {
        invalid(match unread {
            Unread::Stat(errno) | Unread::Read(errno) => format!("cannot be read: {errno}"),
            Unread::NotRegular => "is not a regular file".to_owned(),
            Unread::TooLarge => "is larger than 16 MiB".to_owned(),
        })
    })?;
    read_document(&text, memory_max.saturating_sub(text.len()))
        .map(Some)
        .map_err(|error| invalid(format!("is not JSON: {error}")))
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
    wait_limit
        .validate(&[question])
        .map_err(|refused| match refused {
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
                missing.push(format!("/staging/{}", escape(file.key.as_bytes())));
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
    // If none could be written, the first reason applies to all.
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
