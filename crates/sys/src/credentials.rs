//! File-system credentials of this thread: setfsuid(2) and setfsgid(2).
//!
//! Root's supervisor writes into a tmpfs that belongs to a user namespace in which its own uid
//! has no name: without the body's ids each creation fails with EOVERFLOW. Leaving uid 0 also
//! takes the capabilities over files away (capabilities(7)), so that what is done for the body
//! is done with the body's rights.

use rustix::io::Errno;

/// `nobody`, and what the kernel shows for an id without a name (user_namespaces(7)).
pub const OVERFLOW_UID: u32 = 65_534;

/// Whether what belongs to `uid` is ours or root's: also an unmapped root's, seen from a user
/// namespace.
#[must_use]
pub fn is_ours_or_roots(uid: u32) -> bool {
    [rustix::process::geteuid().as_raw(), 0, OVERFLOW_UID].contains(&uid)
}

/// An uid and a gid of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostIds {
    pub uid: u32,
    pub gid: u32,
}

/// While it lives, this thread touches files as somebody else. Not for another thread.
#[derive(Debug)]
pub struct AssumedFileIds {
    before: Option<HostIds>,
    not_send: std::marker::PhantomData<*const ()>,
}

impl AssumedFileIds {
    /// Touches files as `ids` until the guard is dropped; `None` changes nothing.
    ///
    /// # Errors
    /// EPERM where the kernel did not take the ids (setfsuid(2) itself cannot say so; it is asked).
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
        // An impossible id changes nothing and returns the present one: the only way to ask.
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
