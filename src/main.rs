//! The `runner` program.
//!
//! It starts at C's `main` and not at Rust's, which first reads /proc/self/maps, makes a signal
//! stack and installs handlers, at a price of some 20 system calls and ten page faults. What of that
//! matters is done by name: [`dispatch::main`] opens what is closed of the descriptors 0 to 2 and
//! ignores SIGPIPE, and a panic ends with the same code. Room for a stack as large as was ever needed is
//! made sure of; one that overflows all the same ends the process by SIGSEGV, at the gap that the
//! kernel keeps below it, and without a word.

#![no_main]
#![expect(
    unsafe_code,
    reason = "C's main has a name that the linker knows, and raw arguments"
)]

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::panic::catch_unwind;

use runner::cli::dispatch;
use runner::cli::dispatch::Engine;
use sys::heap::Heap;
use sys::process::exit_now;
use sys::start;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// The exit code of Rust's own `main` after a panic, which has printed its message.
const PANICKED: i32 = 101;

/// Where the C library starts the program.
///
/// # Safety
/// The arguments are those of C's `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // Out of a C function nothing may unwind.
    let ended = catch_unwind(|| {
        // SAFETY: the C library gives as many strings as it says, and nobody changes them.
        let words = unsafe { start::words(count, words) };
        // Where no run comes of it, it is dropped at the end of this block, and with it the child.
        let sown = Cell::new(None);
        dispatch::main(
            &words,
            &Engine {
                sow: &|| sown.set(runner::run::early::sow()),
                enter_scope: &|caller| runner::cli::delegate::enter_scope(caller, &words),
                execute: &|request, policy, hearing| {
                    runner::run::execute_in(sown.take(), request, policy, hearing)
                },
                explain: &runner::run::explain,
                doctor: &runner::cli::doctor::doctor,
                demo: &runner::cli::demo::demo,
                gc: &runner::cli::gc::gc,
            },
        )
    });
    // Everything that is buffered was written where it was made, so there is nothing to flush, and
    // memory is given back faster by the kernel.
    exit_now(ended.map_or(PANICKED, i32::from))
}
