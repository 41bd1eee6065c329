//! The `runner` program.
//!
//! Rust's `main` has opened /dev/null in place of closed standard descriptors and ignores SIGPIPE. Room
//! for a stack as large as was ever needed is made sure of by [`dispatch`].

use std::ffi::OsString;
use std::process::ExitCode;

use runner::cli::dispatch::dispatch;
use sys::allocator::ExitWithoutMemory;

#[global_allocator]
static ALLOCATOR: ExitWithoutMemory = ExitWithoutMemory;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(dispatch(&words))
}
