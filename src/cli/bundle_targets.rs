//! The files that `runner bundle` writes, and what they may replace: an earlier bundle, an earlier
//! lock file, and never the file of another kind that a slip of the hand names.

use crate::cli::bundle::is_standard;
use crate::cli::bundle_flags::Bundle;
use bundler::error::ComposeError;
use bundler::files::FileIdentity;
use bundler::output::OutputFile;

/// What gzip data begins with (RFC 1952, 2.3.1).
const GZIP_START: [u8; 2] = [0x1f, 0x8b];
/// Bytes of a lock file in which its first key stands.
const LOCK_START_BYTES: u64 = 4096;
/// The first key of a lock file, which are sorted.
const LOCK_KEY: &[u8] = b"\"content_digest\"";

/// The files that will be written.
pub(super) struct Targets {
    /// The bundle, where it goes to a file.
    pub(super) output: Option<OutputFile>,
    /// The lock file, where one is written.
    pub(super) lock_file: Option<OutputFile>,
}

/// Opens what will be written.
///
/// # Errors
/// [`ComposeError::Output`]; [`ComposeError::OutputRefused`] where a file of another kind would be
/// lost.
pub(super) fn targets(bundle: &Bundle) -> Result<Targets, ComposeError> {
    let output = match bundle.output.as_deref() {
        Some(path) if !is_standard(path) => Some(OutputFile::create(path)?),
        _ => None,
    };
    let lock_file = bundle
        .lock
        .as_deref()
        .filter(|_| !bundle.locked)
        .map(OutputFile::create)
        .transpose()?;
    if let (Some(output), Some(lock_file)) = (&output, &lock_file)
        && output.is_at_the_place_of(lock_file)?
    {
        return Err(output.refused(
            "also the file of --lock",
            "one file for the bundle and another for the lock file",
        ));
    }
    if let (Some(output), Some(lock)) = (&output, &bundle.lock)
        && let Some(replaced) = output.replaces()?
        && FileIdentity::at(lock).is_ok_and(|identity| identity == replaced)
    {
        return Err(output.refused("the lock file", "a file of its own for the bundle"));
    }
    if let Some(output) = &output
        && let Some(start) = output.start_of_replaced(GZIP_START.len() as u64)?
        && !start.is_empty()
        && start != GZIP_START
    {
        return Err(output.refused(
            "a file of another kind, which would be lost",
            "no such file, an empty one or an earlier bundle",
        ));
    }
    if let Some(lock_file) = &lock_file
        && let Some(start) = lock_file.start_of_replaced(LOCK_START_BYTES)?
        && !start.is_empty()
        && !is_lock(&start)
    {
        return Err(lock_file.refused(
            "a file of another kind, which would be lost",
            "no such file, an empty one or an earlier lock file",
        ));
    }
    Ok(Targets { output, lock_file })
}

/// Also one that this program cannot read any more, or that a merge has marked.
fn is_lock(start: &[u8]) -> bool {
    start
        .windows(LOCK_KEY.len())
        .any(|window| window == LOCK_KEY)
}
