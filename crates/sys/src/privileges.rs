//! Privileges of this process: capabilities, no_new_privs, the dumpable flag, the death signal.

use rustix::io::Errno;

/// Highest capability number to try; the kernel returns EINVAL beyond its last.
const CAPABILITY_MAX: u32 = 63;

/// Empties the bounding set, so that no later exec gains a capability; the current ones stay. Needs
/// CAP_SETPCAP.
///
/// # Errors
/// EPERM without the capability.
pub fn drop_bounding_set() -> Result<(), Errno> {
    for capability in 0..=CAPABILITY_MAX {
        match prctl(libc::PR_CAPBSET_DROP, capability.into()) {
            Ok(()) => (),
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Empties the ambient, inheritable, permitted and effective sets and locks the secure bits. Call
/// it after [`drop_bounding_set`].
///
/// # Errors
/// EPERM for a wrong order of the steps.
pub fn drop_all() -> Result<(), Errno> {
    // SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP, SECBIT_NO_CAP_AMBIENT_RAISE, each with its lock, and
    // the lock of SECBIT_KEEP_CAPS: uid 0 gets no capabilities from here on.
    const SECURE_BITS: u64 = 0b1110_1111;
    prctl(libc::PR_SET_SECUREBITS, SECURE_BITS)?;
    prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL.cast_unsigned().into(),
    )?;
    clear_sets()
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn clear_sets() -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = CapHeader {
        version: VERSION_3,
        pid: 0,
    };
    let none = [CapData {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: version 3 requires a header and two data structures, which are passed.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    super::process::check(result).map(|_zero| ())
}

/// Sets no_new_privs: no execve of this process or its descendants gains privileges.
///
/// # Errors
/// The errno of prctl(2).
pub fn no_new_privileges() -> Result<(), Errno> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Denies processes of the same uid access to this one through /proc or ptrace.
///
/// # Errors
/// The errno of prctl(2).
pub fn not_dumpable() -> Result<(), Errno> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Reverts [`not_dumpable`] or a change of ids: a process must be dumpable to write its own id
/// maps.
///
/// # Errors
/// The errno of prctl(2).
pub fn dumpable() -> Result<(), Errno> {
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// Requests SIGKILL when the thread that cloned this process ends. A change of ids clears it.
///
/// # Errors
/// The errno of prctl(2).
pub fn die_with_parent() -> Result<(), Errno> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
}

/// Sets real, effective and saved ids and empties the supplementary groups, of this thread only.
///
/// # Errors
/// EINVAL for unmapped ids, EPERM without the capability.
pub fn become_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    // SAFETY: zero groups, so the pointer is not read. The raw call changes this thread only; the C
    // library would signal threads that a fresh clone does not have.
    let groups = unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) };
    super::process::check(groups)?;
    // SAFETY: integers only.
    super::process::check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: integers only.
    super::process::check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })?;
    Ok(())
}

fn prctl(option: i32, argument: u64) -> Result<(), Errno> {
    // SAFETY: these options take integers; unused arguments are zero, as required.
    let result = unsafe { libc::prctl(option, argument, 0_u64, 0_u64, 0_u64) };
    super::process::check(result.into()).map(|_value| ())
}
