//! The `runner` program.

use std::cell::Cell;
use std::process::ExitCode;

use runner::cli::dispatch::Engine;

fn main() -> ExitCode {
    // Where no run comes of it, it is dropped at the end, and with it the child.
    let sown = Cell::new(None);
    ExitCode::from(runner::cli::dispatch::main(&Engine {
        sow: &|| sown.set(runner::run::early::sow()),
        enter_scope: &runner::cli::delegate::enter_scope,
        execute: &|request, policy| runner::run::execute_in(sown.take(), request, policy),
        explain: &runner::run::explain,
        doctor: &runner::cli::doctor::doctor,
        demo: &runner::cli::demo::demo,
        gc: &runner::cli::gc::gc,
    }))
}
