//! Privileges of this thread: capabilities and ids.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Gid, Signal, Uid, set_parent_process_death_signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

/// Empties the bounding set, so that no later exec gains a capability; the current ones stay. Needs
/// CAP_SETPCAP. Fails with EPERM without the capability.
pub fn drop_bounding_set() -> Result<(), Errno> {
    // By number: a later kernel has capabilities without a name in rustix.
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => (),
            // Beyond the kernel's last.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Empties the ambient, inheritable, permitted and effective sets and locks the secure bits, so
/// that uid 0 gets no capabilities from here on. Call it after [`drop_bounding_set`]. Fails with
/// EPERM for a wrong order of the steps.
pub fn drop_all() -> Result<(), Errno> {
    const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
        .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
        .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
        .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
        .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
        .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
        .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);
    rustix::thread::set_capabilities_secure_bits(SECURE_BITS)?;
    give_up_capabilities()
}

/// Requests SIGKILL when the thread that cloned this process ends (prctl(2)). A change of ids
/// clears it.
pub fn die_with_parent() -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))
}

/// Requests SIGTERM for the child that `command` starts when the thread that starts it ends (prctl(2)).
pub fn end_with_parent(command: &mut Command) {
    let request = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(request) };
}

/// Sets real, effective and saved ids and empties the supplementary groups, of this thread only.
/// Fails with EINVAL for unmapped ids, EPERM without the capability.
pub fn become_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Empties the capability sets. For a process that cannot execute a program; others also need
/// [`drop_bounding_set`] and [`drop_all`].
pub fn give_up_capabilities() -> Result<(), Errno> {
    keep_capabilities(CapabilitySet::empty())
}

/// Gives up all capabilities but those in `kept`. Like [`give_up_capabilities`], not for a process that
/// can execute a program.
pub fn keep_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let present = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: present.effective & kept,
            permitted: present.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}
