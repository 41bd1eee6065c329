//! The `runner` program.

use std::process::ExitCode;

use runner::cli::dispatch::Engine;

fn main() -> ExitCode {
    ExitCode::from(runner::cli::dispatch::main(&Engine {
        enter_scope: &runner::cli::delegate::enter_scope,
        execute: &runner::run::execute,
        explain: &runner::run::explain,
        doctor: &runner::cli::doctor::doctor,
        demo: &runner::cli::demo::demo,
        gc: &runner::cli::gc::gc,
        resident: &runner::resident::launcher::serve,
    }))
}
