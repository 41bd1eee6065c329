//! Checks at the start that the main thread's stack can grow. The kernel allocates it on first use and
//! sends SIGSEGV if it cannot.

use std::hint::black_box;
use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::rlimit::{resource, soft};

/// Several times the highest use measured.
const STACK_BYTES: usize = 1 << 20;
/// Minimum stack limit: arguments and environment take up to a quarter of it.
const LIMIT_BYTES_MIN: u64 = 2 << 20;

/// A limit that prevents the stack from growing to its required size.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StackError {
    #[error(
        "the limit on the stack is {limit_bytes} bytes, less than {LIMIT_BYTES_MIN}; raise it (ulimit -s, LimitSTACK=)"
    )]
    Limit { limit_bytes: u64 },
    #[error(
        "the limit on address space leaves less than {STACK_BYTES} bytes for the stack; raise it (ulimit -v, LimitAS=)"
    )]
    AddressSpace(#[source] Errno),
}

/// Checks the limit on the stack. If the address space is limited, checks that 1 MiB of it is left and
/// lets the stack grow by that, before anything else uses it up. Ignores unreadable limits: setting
/// limits fails later in the run.
///
/// # Errors
/// The limit that is too low.
pub fn reserve() -> Result<(), StackError> {
    let (Ok(limit_bytes), Ok(space_bytes)) = (soft(resource::STACK), soft(resource::ADDRESS_SPACE))
    else {
        return Ok(());
    };
    if limit_bytes < LIMIT_BYTES_MIN {
        return Err(StackError::Limit { limit_bytes });
    }
    if space_bytes == u64::MAX {
        return Ok(());
    }
    // A probe, because growing beyond the limit is a SIGSEGV. Without access it does not count as
    // committed memory, so with vm.overcommit_memory=2 growing can still fail.
    // SAFETY: a null hint and no MAP_FIXED: the kernel picks an address that nothing uses.
    let mapped = unsafe {
        mmap_anonymous(
            null_mut(),
            STACK_BYTES,
            ProtFlags::empty(),
            MapFlags::PRIVATE,
        )
    };
    let mapped = mapped.map_err(StackError::AddressSpace)?;
    // SAFETY: mapped above, with no other user.
    unsafe { munmap(mapped, STACK_BYTES) }.map_err(StackError::AddressSpace)?;
    grow();
    Ok(())
}

/// Writes to the stack, so that the kernel extends it.
#[inline(never)]
fn grow() {
    black_box(&mut [1_u8; STACK_BYTES]);
}
