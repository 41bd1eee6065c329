//! File-system credentials of this thread: setfsuid(2) and setfsgid(2).
//!
//! A supervisor that is root writes into a tmpfs of a user namespace that does not map its uid.
//! Without the body's ids each creation fails with EOVERFLOW. Leaving uid 0 also drops the
//! capabilities over files (capabilities(7)).

use rustix::io::Errno;

/// `nobody`, also the kernel's number for an unmapped id (user_namespaces(7)).
pub const OVERFLOW_UID: u32 = 65_534;

/// Whether `uid` is the effective uid or root, including an unmapped root in a user namespace.
#[must_use]
pub fn is_ours_or_roots(uid: u32) -> bool {
    [rustix::process::geteuid().as_raw(), 0, OVERFLOW_UID].contains(&uid)
}

/// A uid and a gid of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostIds {
    pub uid: u32,
    pub gid: u32,
}

/// Guard: while it lives, this thread accesses files with other ids. Not `Send`.
#[derive(Debug)]
pub struct AssumedFileIds {
    before: Option<HostIds>,
    not_send: std::marker::PhantomData<*const ()>,
}

impl AssumedFileIds {
    /// Accesses files as `ids` until the guard is dropped; `None` changes nothing. Fails with EPERM
    /// if the kernel refused the ids (setfsuid(2) itself returns no error).
    pub fn assume(ids: Option<HostIds>) -> Result<Self, Errno> {
        let Some(ids) = ids else {
            return Ok(Self {
                before: None,
                not_send: std::marker::PhantomData,
            });
        };
        let gid = set_fs_gid(ids.gid);
        let uid = set_fs_uid(ids.uid);
        let guard = Self {
            before: Some(HostIds { uid, gid }),
            not_send: std::marker::PhantomData,
        };
        // An invalid id changes nothing and returns the present one.
        if set_fs_uid(u32::MAX) != ids.uid || set_fs_gid(u32::MAX) != ids.gid {
            return Err(Errno::PERM);
        }
        Ok(guard)
    }
}

impl Drop for AssumedFileIds {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set_fs_uid(before.uid);
            set_fs_gid(before.gid);
        }
    }
}

fn set_fs_uid(uid: u32) -> u32 {
    // SAFETY: setfsuid takes a plain integer, touches no memory and changes this thread only.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

fn set_fs_gid(gid: u32) -> u32 {
    // SAFETY: setfsgid takes a plain integer, touches no memory and changes this thread only.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}
