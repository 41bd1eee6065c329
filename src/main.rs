//! The `runner` program.
//!
//! Rust's `main` has opened /dev/null in place of closed standard descriptors and ignores SIGPIPE. Room
//! for a stack as large as was ever needed is made sure of by [`dispatch::main`].

use std::cell::Cell;
use std::ffi::OsString;
use std::process::ExitCode;

use runner::cli::dispatch;
use runner::cli::dispatch::Engine;
use sys::allocator::ExitWithoutMemory;

#[global_allocator]
static ALLOCATOR: ExitWithoutMemory = ExitWithoutMemory;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // Where no run comes of it, it is dropped at the end, and with it the child.
    let early = Cell::new(None);
    let code = dispatch::main(
        &words,
        &Engine {
            prefork: &|| early.set(runner::run::early::prefork()),
            enter_scope: &|caller| runner::cli::systemd_scope::enter_scope(caller, &words),
            execute: &|request, policy, listener| {
                runner::run::execute_in(early.take(), request, policy, listener)
            },
            explain: &runner::run::explain,
            doctor: &runner::cli::doctor::doctor,
            demo: &runner::cli::demo::demo,
            gc: &runner::cli::gc::gc,
        },
    );
    ExitCode::from(code)
}
