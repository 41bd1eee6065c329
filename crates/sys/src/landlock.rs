//! Landlock(7): whether this kernel has it.

use rustix::io::Errno;

use super::process::check;

/// Version of the kernel's Landlock; 0 if it is missing, disabled, or hidden by an outer filter
/// (EPERM).
///
/// # Errors
/// Any other errno of landlock_create_ruleset(2).
pub fn abi() -> Result<u32, Errno> {
    let nothing = std::ptr::null::<u8>();
    // SAFETY: a null attribute with size 0 and the VERSION flag is the documented query.
    let version = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, 1) });
    match version {
        Ok(version) => u32::try_from(version).map_err(|_range| Errno::RANGE),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// The errno of a failed call in the causes of `error`; EINVAL if a package refused before the call.
pub fn errno_in(error: &(dyn std::error::Error + 'static)) -> Errno {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(errno) = error
            .downcast_ref::<std::io::Error>()
            .and_then(Errno::from_io_error)
        {
            return errno;
        }
        cause = error.source();
    }
    Errno::INVAL
}
