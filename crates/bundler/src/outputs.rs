//! The files that `runner bundle` writes. Each may replace an earlier one, but not a file of another
//! kind, which was named by mistake.

use std::path::Path;

use crate::error::BundleError;
use crate::files::FileIdentity;
use crate::manifests::Unread;
use crate::output::OutputFile;
use crate::pinned::LockUse;
use spec::lock::Lock;
use spec::path::escape_path;

/// The start of gzip data (RFC 1952, 2.3.1).
const GZIP_START: [u8; 2] = [0x1f, 0x8b];
/// Bytes of a lock file that contain its first key.
const LOCK_START_BYTES: u64 = 4096;
/// The first key of a lock file, whose keys are sorted.
const LOCK_KEY: &[u8] = b"\"content_digest\"";
pub(crate) const OTHER_KIND: &str = "a file of another kind, which would be lost";

pub(crate) struct Outputs {
    pub(crate) bundle: Option<OutputFile>,
    lock_file: Option<OutputFile>,
}

impl Outputs {
    /// Opens the outputs. Nothing is visible at their names before [`Outputs::commit`].
    pub(crate) fn create(output: Option<&Path>, lock: LockUse<'_>) -> Result<Self, BundleError> {
        let bundle = output.map(|path| {
            if path.as_os_str() == "-" {
                OutputFile::standard_output()
            } else {
                OutputFile::create(path)
            }
        });
        let bundle = bundle.transpose()?;
        let lock_file = match lock {
            LockUse::Write(path) => Some(OutputFile::create(path)?),
            LockUse::Unused | LockUse::Match(_) => None,
        };
        if let Some(bundle) = &bundle {
            check_bundle(bundle, lock_file.as_ref(), lock)?;
        }
        if let Some(lock_file) = &lock_file {
            let start = lock_file.start_of_replaced(LOCK_START_BYTES)?;
            if !start.is_empty() && !is_lock(&start) {
                let expected = "no such file, an empty one or an earlier lock file";
                return Err(lock_file.refused(OTHER_KIND, expected));
            }
        }
        Ok(Self { bundle, lock_file })
    }

    /// Whether the bundle is visible while it is written.
    pub(crate) fn is_stream(&self) -> bool {
        self.bundle.as_ref().is_some_and(OutputFile::is_stream)
    }

    /// Returns the files to exclude from the bundle: old and new outputs, and the lock file of
    /// `--locked`.
    pub(crate) fn identities(&self, lock: LockUse<'_>) -> Result<Vec<FileIdentity>, BundleError> {
        let mut identities = Vec::new();
        for output in [&self.bundle, &self.lock_file].into_iter().flatten() {
            identities.extend(output.replaces()?);
            identities.push(output.identity()?);
        }
        if let LockUse::Match(path) = lock {
            let identity = FileIdentity::at(path).map_err(|source| {
                let shown = escape_path(path);
                BundleError::LockUnreadable(Unread::new(&shown, "cannot be read", Some(source)))
            });
            identities.push(identity?);
        }
        Ok(identities)
    }

    /// Publishes the bundle, and then its lock file.
    pub(crate) fn commit(self, lock: Option<&Lock>) -> Result<(), BundleError> {
        let mut lock_file = self.lock_file;
        if let (Some(file), Some(lock)) = (&mut lock_file, lock) {
            file.write_document(lock.to_json()?.as_bytes())?;
        }
        for file in [self.bundle, lock_file].into_iter().flatten() {
            file.commit()?;
        }
        Ok(())
    }
}

fn check_bundle(
    bundle: &OutputFile,
    lock_file: Option<&OutputFile>,
    lock: LockUse<'_>,
) -> Result<(), BundleError> {
    if let Some(lock_file) = lock_file
        && bundle.has_same_path(lock_file)?
    {
        return Err(bundle.refused(
            "also the file of --lock",
            "one file for the bundle and another for the lock file",
        ));
    }
    if let LockUse::Write(path) | LockUse::Match(path) = lock
        && let Some(replaced) = bundle.replaces()?
        && FileIdentity::at(path).is_ok_and(|identity| identity == replaced)
    {
        return Err(bundle.refused("the lock file", "a file of its own for the bundle"));
    }
    let start = bundle.start_of_replaced(GZIP_START.len() as u64)?;
    if !start.is_empty() && start != GZIP_START {
        let expected = "no such file, an empty one or an earlier bundle";
        return Err(bundle.refused(OTHER_KIND, expected));
    }
    Ok(())
}

/// Whether `start` is the start of a lock file, also with conflict markers of a merge.
fn is_lock(start: &[u8]) -> bool {
    start
        .windows(LOCK_KEY.len())
        .any(|window| window == LOCK_KEY)
}
