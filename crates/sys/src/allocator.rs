//! The C library's allocator, with a clean exit when it is out of memory.

use std::alloc::{GlobalAlloc, Layout, System};

use super::process::exit_now;

/// A constant, because formatting may need memory.
const NO_MEMORY: &[u8] = b"runner: failed: no memory is left for the supervisor: give it more \
    (ulimit -v, ulimit -d, the memory of its cgroup) (host_failed)\n";
const FAILED: i32 = 125;

/// Allocator that prints a line and exits with code 125 when an allocation fails. The default of
/// Rust is SIGABRT.
#[derive(Debug)]
pub struct ExitWithoutMemory;

fn block_or_exit(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        out_of_memory();
    }
    block
}

#[cold]
fn out_of_memory() -> ! {
    match rustix::io::write(rustix::stdio::stderr(), NO_MEMORY) {
        Ok(_) | Err(_) => exit_now(FAILED),
    }
}

// SAFETY: every block comes from `System` and is freed by it with the same layout.
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
