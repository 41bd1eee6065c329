//! Room for the main thread's stack, which the kernel only makes when it is written to, and which it
//! refuses with SIGSEGV.

use std::hint::black_box;
use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::rlimit::{resource, soft};

/// What the program is sure of from its start on: several times what was ever seen in use.
const STACK_BYTES: usize = 1 << 20;
/// The least limit on the stack: arguments and environment, which the kernel counts too, take a quarter
/// of it at most.
const LIMIT_BYTES_MIN: u64 = 2 << 20;

/// Why the stack may not become as large as it may have to.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StackError {
    /// The limit on the stack itself.
    #[error(
        "the limit on the stack is {limit_bytes} bytes, less than {LIMIT_BYTES_MIN}; raise it (ulimit -s, LimitSTACK=)"
    )]
    Limit { limit_bytes: u64 },
    /// The limit on the address space.
    #[error(
        "the limit on address space leaves no {STACK_BYTES} bytes for the stack; raise it (ulimit -v, LimitAS=)"
    )]
    AddressSpace(#[source] Errno),
}

/// Makes sure that the stack can become 1 MiB large. Without limits it costs two system calls; under a
/// limit on the address space so much of the stack is made at once, so that nothing else takes it. A
/// host that commits no more memory than it has (vm.overcommit_memory=2) may still refuse it later. Where
/// limits cannot be read nothing is done: a run, which has to set some, fails for that itself.
///
/// # Errors
/// Which limit is too low.
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
    // SAFETY: mapped above, and known to nobody else.
    unsafe { munmap(mapped, STACK_BYTES) }.map_err(StackError::AddressSpace)?;
    grow();
    Ok(())
}

/// Writes to as much of the stack. What the kernel has made it does not take back.
#[inline(never)]
fn grow() {
    black_box(&mut [1_u8; STACK_BYTES]);
}
