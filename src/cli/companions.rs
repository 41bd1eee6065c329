//! Verbs of programs that are installed beside this one, which it executes: `runner-server` and `runner-worker`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::cli::print::Printer;
use spec::report::ErrorReport;

// The words of such a verb, whose program reads them itself. No doc comment: clap would show it.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "A program that is installed beside `runner` reads the flags; --help lists them."
)]
pub struct CompanionWords {
    /// Flags of this verb; its `--help` lists them
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

/// The program behind a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Companion {
    Server,
    Worker,
}

impl Companion {
    const fn name(self) -> &'static str {
        match self {
            Self::Server => "runner-server",
            Self::Worker => "runner-worker",
        }
    }

    /// Executes it with the verb and its words as they were typed: clap would take a `--` away. Returns only if
    /// it cannot be executed.
    pub(crate) fn execute(self, words: &[OsString], printer: &Printer) -> u8 {
        let program = match std::env::current_exe() {
            Ok(program) => program.with_file_name(self.name()),
            Err(error) => return self.failed("/proc/self/exe", &error, printer),
        };
        let error = Command::new(&program).args(words).exec();
        self.failed(&program.to_string_lossy(), &error, printer)
    }

    fn failed(self, program: &str, error: &std::io::Error, printer: &Printer) -> u8 {
        let hint = format!(
            "install `{}` of the same version in the directory of `runner`",
            self.name()
        );
        let code = match self {
            Self::Server => "server_missing",
            Self::Worker => "worker_missing",
        };
        printer.problem(
            "refused",
            &ErrorReport::new(code, format!("{program}: {error}")).with_hint(hint),
        )
    }
}
