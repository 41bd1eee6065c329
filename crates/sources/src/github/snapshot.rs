//! Unpacks the archive of a commit and checks that it is of that commit.

use std::fs::File;
use std::os::fd::BorrowedFd;

use crate::github::error::GitHubError;
use crate::github::reference::is_commit;
use archive::gzip::GzipError;
use archive::{EntryRefusal, UnpackError, UnpackLimits, unpack_hosted};
use spec::digest::Digest;
use spec::path::RelPath;

#[derive(Debug)]
pub(super) struct Archive {
    pub(super) bytes: u64,
    pub(super) digest: Digest,
    pub(super) content_digest: Digest,
    pub(super) file_bytes: u64,
    pub(super) entries: u64,
    pub(super) instead: Option<&'static str>,
}

#[derive(Debug)]
pub(super) enum Problem {
    Damaged(String),
    /// Violates a rule of bundles, or is of another commit.
    Refused(String, Option<Box<UnpackError>>),
    Host(Box<GitHubError>),
}

/// Unpacks `folder` of the archive of the commit `sha` into the empty directory `into`.
///
/// # Errors
/// [`Problem`].
pub(super) fn unpack(
    archive: File,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
    folder: Option<&RelPath>,
    sha: &str,
) -> Result<Archive, Problem> {
    let bytes = archive.metadata().map_or(0, |status| status.len());
    let hosted = unpack_hosted(archive, into, limits, folder.cloned()).map_err(problem)?;
    let comment = hosted.comment.as_deref().map(<[u8]>::trim_ascii);
    if let Some(comment) = comment.and_then(|comment| str::from_utf8(comment).ok())
        && is_commit(comment)
        && comment != sha
    {
        return Err(Problem::Refused(
            format!("it says that it is the one of {comment}"),
            None,
        ));
    }
    let unpacked = hosted.unpacked;
    Ok(Archive {
        bytes,
        digest: unpacked
            .archive_digest
            .ok_or_else(|| Problem::Damaged("the archive was not read to its end".to_owned()))?,
        content_digest: unpacked.content_digest,
        file_bytes: unpacked.bytes,
        entries: unpacked.entries,
        instead: hosted.instead,
    })
}

fn problem(error: UnpackError) -> Problem {
    let is_damaged = matches!(
        &error,
        UnpackError::Gzip(
            GzipError::Truncated { .. }
                | GzipError::Deflate { .. }
                | GzipError::Stalled { .. }
                | GzipError::Checksum { .. }
                | GzipError::Length { .. }
        ) | UnpackError::EndMissing { .. }
            | UnpackError::Entry {
                refusal: EntryRefusal::Truncated,
                ..
            }
    );
    if is_damaged {
        return Problem::Damaged(error.to_string());
    }
    if error.is_refusal() {
        return Problem::Refused(error.to_string(), Some(Box::new(error)));
    }
    match error {
        UnpackError::Target { name, source } | UnpackError::Source { name, source } => {
            Problem::Host(Box::new(GitHubError::Cache {
                object: name,
                problem: "cannot be unpacked",
                source: Some(source),
            }))
        }
        other => Problem::Damaged(other.to_string()),
    }
}
