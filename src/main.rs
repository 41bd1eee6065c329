//! The `runner` program.
//!
//! It starts at C's `main`. Rust's reads /proc/self/maps and installs a signal stack and handlers, of
//! which this program needs nothing, at 0.04 of the time of a bubblewrap launch (docs/performance.md).
//! [`dispatch`] opens closed standard descriptors, sets signal dispositions and reserves the stack.

#![no_main]
#![expect(unsafe_code, reason = "the C library calls `main` by its name")]

use std::ffi::{OsString, c_int};
use std::mem::ManuallyDrop;
use std::panic::catch_unwind;

use runner::cli::dispatch::dispatch;
use sys::allocator::{ExitWithoutMemory, keep_from_children};

#[global_allocator]
static ALLOCATOR: ExitWithoutMemory = ExitWithoutMemory;

/// The exit code of Rust's `main` after a panic.
const PANICKED: u8 = 101;

#[cfg(not(target_env = "gnu"))]
compile_error!("`std::env::args_os` is empty below C's `main`, unless the C library is glibc");

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    // Never dropped: a child that goes on with the program finds zeros in place of the words.
    let words: ManuallyDrop<Vec<OsString>> =
        ManuallyDrop::new(keep_from_children(|| std::env::args_os().collect()));
    // Unwinding out of a C function aborts.
    let code = catch_unwind(|| dispatch(&words)).unwrap_or(PANICKED);
    c_int::from(code)
}
