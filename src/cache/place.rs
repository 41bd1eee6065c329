//! Where the cache lies: in memory where that is large enough, and nobody else's.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, Mode, OFlags};
use rustix::io::Errno;

use crate::cache::error::{CacheError, failed};
use crate::cache::identity::path_of;
use crate::kernel::credentials::is_ours_or_roots;
use crate::spec::path::escape;

/// A tmpfs that is smaller is meant for sockets and pid files.
const MEMORY_BYTES_LEAST: u64 = 256 << 20;
/// Most that the cache takes of memory, and of a disk, unless somebody states a size.
const IN_MEMORY_BYTES: u64 = 1 << 30;
const ON_DISK_BYTES: u64 = 5 << 30;
/// The part of its file system that it takes at most, unless somebody states a size.
const PART_OF_MEMORY: u64 = 4;
const PART_OF_DISK: u64 = 10;
const PRIVATE_MODE: u32 = 0o700;
const FOR_ALL_AND_STICKY: u32 = 0o1002;
const FOR_ALL: u32 = 0o0002;

/// Where the cache lies and how much it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The directory, absolute.
    pub directory: PathBuf,
    /// Bytes of all trees.
    pub size_bytes: u64,
    /// Whether it lies in memory: then nothing of it outlives the boot.
    pub in_memory: bool,
}

/// Chooses the place: `stated`, else below the runtime directory where that is in memory, else
/// below /dev/shm, else `on_disk`.
///
/// # Errors
/// [`CacheError::Call`] where the file system cannot be looked at.
pub fn choose(
    stated: Option<&Path>,
    runtime_directory: Option<&Path>,
    on_disk: &Path,
    size_bytes: Option<u64>,
) -> Result<Place, CacheError> {
    if let Some(stated) = stated {
        return at(stated.to_owned(), size_bytes);
    }
    let uid = rustix::process::geteuid().as_raw();
    let of_shm = Path::new("/dev/shm").join(format!("runner-{uid}"));
    let below = runtime_directory.map(|directory| directory.join("bundles"));
    for directory in below.into_iter().chain([of_shm]) {
        if let Some((true, total_bytes)) = file_system(&directory)?
            && MEMORY_BYTES_LEAST <= total_bytes
        {
            return at(directory, size_bytes);
        }
    }
    at(on_disk.join("bundles"), size_bytes)
}

fn at(directory: PathBuf, size_bytes: Option<u64>) -> Result<Place, CacheError> {
    let (in_memory, total_bytes) = file_system(&directory)?.unwrap_or((false, u64::MAX));
    let usual = match in_memory {
        true => IN_MEMORY_BYTES.min(total_bytes / PART_OF_MEMORY),
        false => ON_DISK_BYTES.min(total_bytes / PART_OF_DISK),
    };
    Ok(Place {
        directory,
        size_bytes: size_bytes.unwrap_or(usual),
        in_memory,
    })
}

/// Whether what is at `path`, or would be, lies in memory, and the size of its file system.
fn file_system(path: &Path) -> Result<Option<(bool, u64)>, CacheError> {
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

/// Opens the directory of the cache, making it and what is missing above it, and returns its path
/// free of links.
///
/// # Errors
/// [`CacheError::Unsafe`] where it is no directory of this uid's with mode 0700, or somebody else
/// may replace it or a directory above it; [`CacheError::Call`].
pub(super) fn open_private(directory: &Path) -> Result<(OwnedFd, PathBuf), CacheError> {
    let opened = match open(directory) {
        Err(Errno::NOENT) => {
            make(directory)?;
            open(directory)
        }
        other => other,
    };
    let opened = opened.map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => not_safe(directory, "a link or a file".to_owned()),
        Errno::ACCESS => not_safe(directory, "closed to this user".to_owned()),
        errno => failed("open", directory)(errno),
    })?;
    let status = rustix::fs::fstat(&opened).map_err(failed("fstat", directory))?;
    let (uid, mode) = (status.st_uid, status.st_mode & 0o7777);
    if uid != rustix::process::geteuid().as_raw() || mode != PRIVATE_MODE {
        return Err(not_safe(
            directory,
            format!("a directory of uid {uid} with mode {mode:04o}"),
        ));
    }
    let path = path_of(&opened)?;
    for above in path.ancestors().skip(1) {
        let status = rustix::fs::stat(above).map_err(failed("stat", above))?;
        let is_open = status.st_mode & FOR_ALL_AND_STICKY == FOR_ALL;
        if is_open || !is_ours_or_roots(status.st_uid) {
            return Err(CacheError::Unsafe {
                path: escape(above.as_os_str().as_encoded_bytes()),
                found: format!(
                    "a directory of uid {} with mode {:04o} above it",
                    status.st_uid,
                    status.st_mode & 0o7777
                ),
                expected: "one of root's or of this user's that not everybody may write to, or a sticky one",
            });
        }
    }
    Ok((opened, path))
}

fn open(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty())
}

fn make(directory: &Path) -> Result<(), CacheError> {
    let missing = directory.ancestors().take_while(|above| !above.exists());
    let mut missing: Vec<&Path> = missing.collect();
    missing.reverse();
    for one in missing {
        match rustix::fs::mkdir(one, Mode::from_raw_mode(PRIVATE_MODE)) {
            // EEXIST: another run was faster, or it is a link to nothing; looked at afterwards.
            Ok(()) | Err(Errno::EXIST) => (),
            Err(errno) => return Err(failed("mkdir", one)(errno)),
        }
    }
    Ok(())
}

fn not_safe(path: &Path, found: String) -> CacheError {
    CacheError::Unsafe {
        path: escape(path.as_os_str().as_encoded_bytes()),
        found,
        expected: "a directory of this user's with mode 0700: remove it, or name another (cache.bundles.directory)",
    }
}
