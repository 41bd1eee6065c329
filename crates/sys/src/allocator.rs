//! The C library's allocator, with another end where there is no memory.

use std::alloc::{GlobalAlloc, Layout, System};

use super::process::exit_now;

/// What is said where there is no memory: nothing can be formatted then.
const NO_MEMORY: &[u8] = b"runner: failed: no memory is left for the supervisor: give it more \
    (ulimit -v, ulimit -d, the memory of its cgroup) (host_failed)\n";
/// The exit code of a host that failed.
const FAILED: i32 = 125;

/// Ends the process with a line and exit code 125 where an allocation fails. Rust's own end is SIGABRT,
/// and most of what allocates has no way to return an error.
#[derive(Debug)]
pub struct ExitWithoutMemory;

/// The block; does not return where there is none.
fn block_or_exit(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        out_of_memory();
    }
    block
}

#[cold]
fn out_of_memory() -> ! {
    match rustix::io::write(rustix::stdio::stderr(), NO_MEMORY) {
        // Where standard error takes nothing the code has to be enough.
        Ok(_) | Err(_) => exit_now(FAILED),
    }
}

// SAFETY: every block comes from `System` and goes back to it, with the same layout.
unsafe impl GlobalAlloc for ExitWithoutMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        block_or_exit(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        block_or_exit(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        block_or_exit(unsafe { System.realloc(block, layout, new_size) })
    }
}
