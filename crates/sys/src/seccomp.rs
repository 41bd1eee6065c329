//! seccomp(2): loads a compiled filter.

use filter::bpf::Instruction;
use rustix::io::Errno;
use std::mem::{align_of, offset_of, size_of};

use super::process::check;

// `Instruction` must have the layout of `struct sock_filter`.
const _: () = {
    assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
    assert!(align_of::<Instruction>() == align_of::<libc::sock_filter>());
    assert!(offset_of!(Instruction, code) == offset_of!(libc::sock_filter, code));
    assert!(offset_of!(Instruction, jt) == offset_of!(libc::sock_filter, jt));
    assert!(offset_of!(Instruction, jf) == offset_of!(libc::sock_filter, jf));
    assert!(offset_of!(Instruction, k) == offset_of!(libc::sock_filter, k));
};

/// Applies `program` to this thread and its children, irrevocably. Needs no_new_privs.
///
/// Allocates nothing and takes no lock, so it may be called between clone and exec.
///
/// # Errors
/// The errno of seccomp(2): EINVAL for an invalid program, none or more than 4096 instructions,
/// EACCES without no_new_privs or CAP_SYS_ADMIN, ENOSYS without kernel support.
pub fn load(program: &[Instruction]) -> Result<(), Errno> {
    let program = as_sock_fprog(program)?;
    // SAFETY: `program` points to instructions that live across the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    })
    .map(|_zero| ())
}

/// Converts to the C structure, which points to `program`. The kernel only reads through it.
pub(super) fn as_sock_fprog(program: &[Instruction]) -> Result<libc::sock_fprog, Errno> {
    Ok(libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_too_long| Errno::INVAL)?,
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    })
}
