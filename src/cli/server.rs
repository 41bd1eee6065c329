//! `runner serve` and `runner mcp`: executes `runner-server`, which is installed beside this program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::cli::print::Printer;
use spec::report::ErrorReport;

// The words of a verb of `runner-server`, which reads them itself. No doc comment: clap would show it.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "The program `runner-server`, installed beside `runner`, reads the flags.\n\
                  `runner mcp --help` and `runner serve --help` list them."
)]
pub struct ServerWords {
    /// Flags of this verb; its `--help` lists them
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

/// Returns only if the program cannot be executed.
pub(crate) fn execute(verb: &str, words: &[OsString], printer: &Printer) -> u8 {
    let program = match std::env::current_exe() {
        Ok(program) => program.with_file_name("runner-server"),
        Err(error) => return failed("/proc/self/exe", &error, printer),
    };
    let error = Command::new(&program).arg(verb).args(words).exec();
    failed(&program.to_string_lossy(), &error, printer)
}

fn failed(program: &str, error: &std::io::Error, printer: &Printer) -> u8 {
    printer.problem(
        "refused",
        &ErrorReport::new("server_missing", format!("{program}: {error}"))
            .with_hint("install `runner-server` of the same version in the directory of `runner`"),
    )
}
