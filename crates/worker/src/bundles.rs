//! Bundles that were fetched, by the digits of their digests, so that they are not fetched for each run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use companion::workspace::make_private;
use spec::digest::Digest;

use crate::engine::Engine;
use crate::objects::FetchError;

/// A directory of this user. Other workers may have it, too.
#[derive(Debug)]
pub(crate) struct BundleCache {
    directory: PathBuf,
    bytes_max: u64,
}

impl BundleCache {
    /// # Errors
    /// A message: the directory cannot be made, or is not private.
    pub(crate) fn open(directory: PathBuf, bytes_max: u64) -> Result<Self, String> {
        make_private(&directory)?;
        Ok(Self {
            directory,
            bytes_max,
        })
    }

    /// Makes `path` a hard link of the bundle, which the cache may remove meanwhile.
    pub(crate) async fn fetch(
        &self,
        engine: &Engine,
        digest: Digest,
        path: &Path,
        max_bytes: u64,
    ) -> Result<(), FetchError> {
        let failed = |source: io::Error| FetchError::Write {
            path: path.display().to_string(),
            source,
        };
        let cached = self.directory.join(digest.hexadecimal());
        match std::fs::hard_link(&cached, path) {
            Ok(()) => {
                let used =
                    std::fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
                return used.map_err(failed);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(failed(error)),
        }
        engine.bundles.fetch(digest, path, max_bytes).await?;
        // Its content is not checked again: not after a power loss, either.
        let synced = std::fs::File::open(path).and_then(|file| file.sync_all());
        synced.map_err(failed)?;
        match std::fs::hard_link(path, &cached) {
            // Another place has fetched it, too.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => self.prune().map_err(failed),
        }
    }

    /// Removes what was not used for the longest time, if there is too much.
    fn prune(&self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            match entry.metadata() {
                // Another worker has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                metadata => {
                    let metadata = metadata?;
                    found.push((metadata.modified()?, metadata.len(), entry.path()));
                }
            }
        }
        found.sort_unstable_by(|left, right| right.cmp(left));
        let mut bytes: u64 = 0;
        for (_used, length, path) in found {
            bytes = bytes.saturating_add(length);
            if bytes > self.bytes_max {
                match std::fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => (),
                }
            }
        }
        Ok(())
    }
}
