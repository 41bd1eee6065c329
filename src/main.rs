//! The `runner` program.

use std::process::ExitCode;

use runner::cli::dispatch::Engine;

fn main() -> ExitCode {
    ExitCode::from(runner::cli::dispatch::main(&Engine {
        execute: &runner::run::execute,
        doctor: &|_, _, _, _| 125,
        demo: &|_, _, _| 125,
        gc: &|_, _, _| 125,
    }))
}
