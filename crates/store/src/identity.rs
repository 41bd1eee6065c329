//! Identity of a file without reading it: device, inode, size, times, owner and mode.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use sha2::Digest as _;

use crate::UNPACK_RULES;
use crate::error::{CacheError, failed};
use crate::private::replaceable_above;
use archive::UnpackLimits;
use spec::digest::Digest;
use sys::credentials::is_ours_or_roots;

/// A file that changed less than this before it was read may change again with the same times: their
/// granularity is a clock tick, on some file systems a second or two.
const SETTLED_AFTER_S: i64 = 2;
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Identity of a file. Writing to the file changes it, even if the mtime is set back: no process
/// can set the ctime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    uid: u32,
    mode: u32,
}

/// Why the identity of a file does not prove its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// It belongs to neither this user nor root, or others can write to it.
    OthersMayWrite,
    /// Others can replace it, or a directory above it.
    OthersMayReplace,
    /// It changed less than two seconds ago, or its ctime is unreliable.
    TooRecent,
}

impl Identity {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn of(file: &File) -> Result<Self, CacheError> {
        let status = rustix::fs::fstat(file).map_err(failed("fstat", Path::new("the bundle")))?;
        Ok(Self::of_status(&status))
    }

    #[expect(
        clippy::unnecessary_cast,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "the fields have other types on other processors, and sizes are not negative"
    )]
    fn of_status(status: &Stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            bytes: status.st_size as u64,
            modified: (status.st_mtime as i64, status.st_mtime_nsec as i64),
            changed: (status.st_ctime as i64, status.st_ctime_nsec as i64),
            uid: status.st_uid,
            mode: status.st_mode,
        }
    }

    /// The size of the file, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns why this does not prove the content of `file`; `None` if it does.
    ///
    /// # Errors
    /// [`CacheError::Call`]: its path, or a directory above it, cannot be inspected.
    pub fn distrust(&self, file: &File) -> Result<Option<Distrust>, CacheError> {
        if self.mode & OTHERS_MAY_WRITE != 0 || !is_ours_or_roots(self.uid) {
            return Ok(Some(Distrust::OthersMayWrite));
        }
        let path = path_of(file)?;
        if replaceable_above(&path)?.is_some() {
            return Ok(Some(Distrust::OthersMayReplace));
        }
        Ok((!self.is_settled(SystemTime::now())).then_some(Distrust::TooRecent))
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        // Whole seconds, rounded down. A time in the future is not settled.
        let latest_s = self.modified.0.max(self.changed.0);
        // A ctime in whole seconds comes from a file system image (squashfs, ISO 9660), whose creator
        // chose it, or from a file system without ctime (FAT). In two images mounted one after the
        // other a file may have the same device, inode, size and times.
        self.changed.1 != 0 && latest_s.saturating_add(SETTLED_AFTER_S) < now_s
    }

    /// Returns its name in the index.
    pub(super) fn key(&self, limits: &UnpackLimits) -> String {
        let (uid, mode) = (u64::from(self.uid), u64::from(self.mode));
        let numbers = [self.device, self.inode, self.bytes, uid, mode];
        let times = [self.modified, self.changed].map(|(s, ns)| [s, ns]);
        let mut bytes = limits_bytes(limits);
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(
            times
                .concat()
                .iter()
                .flat_map(|number| number.to_le_bytes()),
        );
        Digest::of(&bytes).hexadecimal()
    }
}

/// Returns the name of an archive in the index.
pub(super) fn archive_key(archive: &Digest, limits: &UnpackLimits) -> String {
    let mut bytes = limits_bytes(limits);
    bytes.extend_from_slice(archive.to_string().as_bytes());
    Digest::of(&bytes).hexadecimal()
}

fn limits_bytes(limits: &UnpackLimits) -> Vec<u8> {
    let UnpackLimits {
        compressed_bytes,
        unpacked_bytes,
        entries,
    } = *limits;
    let rules = u64::from(UNPACK_RULES);
    [rules, compressed_bytes, unpacked_bytes, entries]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// Hashes `source` to its end.
///
/// # Errors
/// The error of reading.
pub fn hash(source: &mut impl Read) -> std::io::Result<Digest> {
    const READ_BYTES: usize = 256 << 10;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(Digest::from_hasher(hasher)),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the path of an open file, free of links (`/proc/self/fd/N`, proc(5)).
pub(super) fn path_of(file: &impl AsRawFd) -> Result<PathBuf, CacheError> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path =
        rustix::fs::readlink(&link, Vec::new()).map_err(failed("readlink", Path::new(&link)))?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    fn opened(path: &Path) -> File {
        File::open(path).expect("opened")
    }

    #[test]
    fn a_file_with_its_old_size_and_mtime_has_another_identity() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        std::fs::write(&path, b"one").expect("written");
        let file = opened(&path);
        let before = Identity::of(&file).expect("looked at");
        let modified = file.metadata().and_then(|status| status.modified());
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&path, b"two").expect("written");
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(modified.expect("an mtime")))
            .expect("set back");
        let after = Identity::of(&file).expect("looked at");
        assert_eq!(
            (before.modified, before.bytes),
            (after.modified, after.bytes)
        );
        let limits = UnpackLimits::default();
        assert_ne!(before.key(&limits), after.key(&limits));
    }

    #[test]
    fn the_same_file_under_other_limits_has_another_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        std::fs::write(&path, b"one").expect("written");
        let identity = Identity::of(&opened(&path)).expect("looked at");
        let (usual, mut others) = (UnpackLimits::default(), UnpackLimits::default());
        others.entries -= 1;
        assert_ne!(identity.key(&usual), identity.key(&others));
        assert_eq!(identity.key(&usual), identity.key(&usual));
    }

    #[test]
    fn files_that_others_can_replace_and_recent_files_are_not_trusted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        std::fs::write(&path, b"one").expect("written");
        let file = opened(&path);
        let judged = || Identity::of(&file).and_then(|identity| identity.distrust(&file));
        assert_eq!(judged().expect("judged"), Some(Distrust::TooRecent));
        let mode = |path: &Path, bits| {
            let mode = std::fs::Permissions::from_mode(bits);
            std::fs::set_permissions(path, mode).expect("set");
        };
        mode(&path, 0o664);
        assert_eq!(judged().expect("judged"), Some(Distrust::OthersMayWrite));
        mode(&path, 0o644);
        mode(directory.path(), 0o777);
        assert_eq!(judged().expect("judged"), Some(Distrust::OthersMayReplace));
        mode(directory.path(), 0o700);
        assert_eq!(judged().expect("judged"), Some(Distrust::TooRecent));
    }

    #[test]
    fn a_file_is_settled_two_whole_seconds_after_its_last_change_and_never_in_the_future() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        std::fs::write(&path, b"one").expect("written");
        let mut identity = Identity::of(&opened(&path)).expect("looked at");
        identity.modified = (100, 999_999_999);
        identity.changed = (90, 1);
        let at = |seconds| UNIX_EPOCH + Duration::from_millis(seconds);
        for (now_ms, settled) in [
            (0, false),
            (100_000, false),
            (102_999, false),
            (103_000, true),
        ] {
            assert_eq!(identity.is_settled(at(now_ms)), settled, "{now_ms}");
        }
        identity.changed = (101, 1);
        assert!(!identity.is_settled(at(103_000)));
        identity.changed = (90, 0);
        assert!(!identity.is_settled(at(103_000)));
    }
}
