//! seccomp(2): load a filter that was compiled before.

use rustix::io::Errno;
use spec::bpf::Instruction;
use std::mem::{align_of, offset_of, size_of};

// The kernel reads our instructions in place: they must be its `struct sock_filter`.
const _: () = {
    assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
    assert!(align_of::<Instruction>() == align_of::<libc::sock_filter>());
    assert!(offset_of!(Instruction, code) == offset_of!(libc::sock_filter, code));
    assert!(offset_of!(Instruction, jt) == offset_of!(libc::sock_filter, jt));
    assert!(offset_of!(Instruction, jf) == offset_of!(libc::sock_filter, jf));
    assert!(offset_of!(Instruction, k) == offset_of!(libc::sock_filter, k));
};

/// Puts this thread, and all that it starts from now on, under `program`. It cannot be undone.
///
/// Allocates nothing and takes no lock, so it may be called between clone and exec. The caller
/// has set no_new_privs.
///
/// # Errors
/// The errno of seccomp(2): EINVAL where the kernel finds the program invalid or there are more
/// than 4096 instructions (or none), EACCES where neither no_new_privs is set nor CAP_SYS_ADMIN
/// held, ENOSYS where the kernel has no filters.
pub fn load(program: &[Instruction]) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_too_long| Errno::INVAL)?;
    let program = libc::sock_fprog {
        len,
        // The kernel copies from it and never writes; the C type has no const.
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: `program` points to `len` instructions that live until the call returns; their
    // layout is checked above. The call touches no other memory of ours.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    // SAFETY: it takes nothing and only says where this thread's errno lies.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the place lives as long as the thread and nobody else writes to it.
    let errno = unsafe { *errno };
    Err(Errno::from_raw_os_error(errno))
}
