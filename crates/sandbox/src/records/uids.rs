//! Claims host uids for runs by locks on single bytes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use sys::credentials::OVERFLOW_UID;
use sys::lock;

use super::{RecordsError, failed};

/// A uid that no other live run has.
#[derive(Debug)]
pub struct UidClaim {
    uid: u32,
    fd: OwnedFd,
}

impl UidClaim {
    /// The uid. The gid is the same number.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Descriptor that holds the claim. Init keeps it open; the body must not get it.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(super) fn claim(
    path: &Path,
    directory: BorrowedFd<'_>,
    base: u32,
    count: u32,
    seed: u64,
) -> Result<UidClaim, RecordsError> {
    // 4294967295 is `-1`, which means "no change" in calls that set ids.
    let usable = base.checked_add(count).is_some_and(|end| end < u32::MAX);
    if base == 0 || count == 0 || !usable {
        return Err(RecordsError::UidRange { base, count });
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A separate open file description, because locks through the same one do not exclude each
    // other.
    let fd = rustix::fs::openat(directory, "uids", flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| failed(path, "claim a uid", "uids", "openat", errno))?;
    let first = scattered(seed) % u64::from(count);
    for step in 0..u64::from(count) {
        let offset = (first + step) % u64::from(count);
        let Ok(uid) = u32::try_from(u64::from(base) + offset) else {
            continue;
        };
        if uid == OVERFLOW_UID {
            continue;
        }
        // The offset is the uid, so that overlapping ranges exclude each other.
        let claimed = lock::try_claim_byte(fd.as_fd(), u64::from(uid))
            .map_err(|errno| failed(path, "claim a uid", "uids", "fcntl", errno))?;
        if claimed {
            return Ok(UidClaim { uid, fd });
        }
    }
    Err(RecordsError::UidsExhausted { base, count })
}

/// Finalizer of SplitMix64: similar seeds start far apart.
fn scattered(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
