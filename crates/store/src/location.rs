//! Selects the directory of the cache of bundles: in memory if a tmpfs is large enough.

use std::path::{Path, PathBuf};

use rustix::fs::FsWord;
use rustix::io::Errno;

use crate::error::{CacheError, failed};

/// A smaller tmpfs is meant for sockets and pid files.
const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// Default size limits.
const IN_MEMORY_BYTES: u64 = 1 << 30;
const ON_DISK_BYTES: u64 = 5 << 30;
/// The default size limit is at most the file system size divided by this.
const MEMORY_DIVISOR: u64 = 4;
const DISK_DIVISOR: u64 = 10;

/// Directory and size limit of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLocation {
    pub directory: PathBuf,
    /// Bytes of all trees.
    pub size_bytes: u64,
    /// Whether its content is lost at reboot.
    pub in_memory: bool,
}

/// Selects the location: `configured`, else `bundles` in the runtime directory if that is in memory,
/// else a directory in /dev/shm, else `bundles` in `on_disk`.
///
/// # Errors
/// [`CacheError::Call`]: the file system cannot be inspected.
pub fn select_location(
    configured: Option<&Path>,
    runtime_directory: Option<&Path>,
    on_disk: &Path,
    size_bytes: Option<u64>,
) -> Result<CacheLocation, CacheError> {
    if let Some(configured) = configured {
        return location(configured.to_owned(), size_bytes);
    }
    let uid = rustix::process::geteuid().as_raw();
    let in_shm = Path::new("/dev/shm").join(format!("runner-{uid}"));
    let in_runtime_directory = runtime_directory.map(|directory| directory.join("bundles"));
    for directory in in_runtime_directory.into_iter().chain([in_shm]) {
        if let Some((true, total_bytes)) = file_system(&directory)?
            && total_bytes >= MEMORY_BYTES_MIN
        {
            return location(directory, size_bytes);
        }
    }
    location(on_disk.join("bundles"), size_bytes)
}

fn location(directory: PathBuf, size_bytes: Option<u64>) -> Result<CacheLocation, CacheError> {
    let (in_memory, total_bytes) = file_system(&directory)?.unwrap_or((false, u64::MAX));
    let default = if in_memory {
        IN_MEMORY_BYTES.min(total_bytes / MEMORY_DIVISOR)
    } else {
        ON_DISK_BYTES.min(total_bytes / DISK_DIVISOR)
    };
    Ok(CacheLocation {
        directory,
        size_bytes: size_bytes.unwrap_or(default),
        in_memory,
    })
}

/// Returns whether `path`, which need not exist, is in memory, and the size of its file system.
///
/// # Errors
/// [`CacheError::Call`].
pub fn file_system(path: &Path) -> Result<Option<(bool, u64)>, CacheError> {
    for above in path.ancestors() {
        match rustix::fs::statfs(above) {
            Ok(found) => {
                const TMPFS_MAGIC: FsWord = 0x0102_1994;
                let blocks = found.f_blocks;
                let block_bytes = u64::try_from(found.f_bsize).unwrap_or(4096);
                let is_memory = found.f_type == TMPFS_MAGIC;
                return Ok(Some((is_memory, blocks.saturating_mul(block_bytes))));
            }
            Err(Errno::NOENT) => (),
            Err(errno) => return Err(failed("statfs", above)(errno)),
        }
    }
    Ok(None)
}
