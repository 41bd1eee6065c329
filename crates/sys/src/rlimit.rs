//! Resource limits: prlimit(2).

use rustix::io::Errno;

use super::process::check;

/// Resource numbers.
pub mod resource {
    /// CPU time of a process, seconds.
    pub const CPU: u32 = libc::RLIMIT_CPU;
    /// Size of a written file, bytes.
    pub const FILE_SIZE: u32 = libc::RLIMIT_FSIZE;
    /// Data, heap and private writable mappings of a process, bytes.
    pub const DATA: u32 = libc::RLIMIT_DATA;
    pub(crate) const STACK: u32 = libc::RLIMIT_STACK;
    pub(crate) const ADDRESS_SPACE: u32 = libc::RLIMIT_AS;
    /// Core file, bytes.
    pub const CORE: u32 = libc::RLIMIT_CORE;
    /// Open descriptors.
    pub const OPEN_FILES: u32 = libc::RLIMIT_NOFILE;
    /// Locked memory, bytes.
    pub const LOCKED_MEMORY: u32 = libc::RLIMIT_MEMLOCK;
    /// Processes and threads of the uid in its user namespace.
    pub const PROCESSES: u32 = libc::RLIMIT_NPROC;
    /// Queued signals and timers.
    pub const PENDING_SIGNALS: u32 = libc::RLIMIT_SIGPENDING;
}

/// Sets soft and hard limit to `value`, or to the present hard limit if that is lower (prlimit(2)).
/// Allocates nothing.
pub fn set(resource: u32, value: u64) -> Result<(), Errno> {
    let value = value.min(present(resource)?.rlim_max);
    change(
        resource,
        libc::rlimit64 {
            rlim_cur: value,
            rlim_max: value,
        },
    )
}

/// Raises the soft limit to the hard one (prlimit(2)).
pub fn raise(resource: u32) -> Result<(), Errno> {
    let libc::rlimit64 { rlim_max, .. } = present(resource)?;
    change(
        resource,
        libc::rlimit64 {
            rlim_cur: rlim_max,
            rlim_max,
        },
    )
}

/// Returns the soft limit (prlimit(2)); `u64::MAX` is unlimited.
pub fn soft(resource: u32) -> Result<u64, Errno> {
    Ok(present(resource)?.rlim_cur)
}

/// Returns the hard limit (prlimit(2)); `u64::MAX` is unlimited.
pub fn hard(resource: u32) -> Result<u64, Errno> {
    Ok(present(resource)?.rlim_max)
}

fn present(resource: u32) -> Result<libc::rlimit64, Errno> {
    let mut present = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let none = std::ptr::null::<libc::rlimit64>();
    // SAFETY: the out-parameter lives across the call; pid 0 is this process.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, none, &raw mut present) })?;
    Ok(present)
}

fn change(resource: u32, limit: libc::rlimit64) -> Result<(), Errno> {
    let no_old = std::ptr::null_mut::<libc::rlimit64>();
    // SAFETY: the structure lives across the call; pid 0 is this process.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, no_old) })
        .map(|_zero| ())
}
