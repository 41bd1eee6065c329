//! The `runner` program.
//!
//! Rust's runtime opens /dev/null for closed standard descriptors and ignores SIGPIPE before `main`.
//! [`dispatch`] reserves the stack.

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
