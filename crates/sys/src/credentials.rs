//! File-system credentials of this thread: setfsuid(2) and setfsgid(2).
//!
//! A supervisor that is root writes into a tmpfs of a user namespace that does not map its uid.
//! Without the body's ids each creation fails with EOVERFLOW. Leaving uid 0 also drops the
//! capabilities over files (capabilities(7)).

use rustix::io::Errno;
use rustix::process::{Signal, parent_process_death_signal, set_parent_process_death_signal};

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
    before: Option<Before>,
    not_send: std::marker::PhantomData<*const ()>,
}

#[derive(Debug)]
struct Before {
    ids: HostIds,
    /// What the caller of this program requested for it. Each change of ids clears it (prctl(2)).
    death_signal: Option<Signal>,
}

impl AssumedFileIds {
    /// Accesses files as `ids` until the guard is dropped; `None` changes nothing. Fails with EPERM
    /// if the kernel refused the ids (setfsuid(2) itself returns no error), and with the errno of prctl(2).
    pub fn assume(ids: Option<HostIds>) -> Result<Self, Errno> {
        let Some(ids) = ids else {
            return Ok(Self {
                before: None,
                not_send: std::marker::PhantomData,
            });
        };
        let death_signal = parent_process_death_signal()?;
        let gid = set_fs_gid(ids.gid);
        let uid = set_fs_uid(ids.uid);
        let guard = Self {
            before: Some(Before {
                ids: HostIds { uid, gid },
                death_signal,
            }),
            not_send: std::marker::PhantomData,
        };
        keep_death_signal(death_signal);
        // An invalid id changes nothing and returns the present one.
        if set_fs_uid(u32::MAX) != ids.uid || set_fs_gid(u32::MAX) != ids.gid {
            return Err(Errno::PERM);
        }
        Ok(guard)
    }
}

impl Drop for AssumedFileIds {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set_fs_uid(before.ids.uid);
            set_fs_gid(before.ids.gid);
            keep_death_signal(before.death_signal);
        }
    }
}

/// Requests it again. A parent that ended just before is not noticed.
fn keep_death_signal(signal: Option<Signal>) {
    if signal.is_some() {
        // It was requested before, so it is a signal, and nothing else can be wrong with it.
        let requested = set_parent_process_death_signal(signal);
        debug_assert_eq!(requested, Ok(()));
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
