//! `runner completions SHELL`: what a shell completes, from the description of the command line.

use clap_complete::{Shell, generate};

use crate::cli::args;

pub(crate) const COMPLETIONS_HELP: &str = "\
Examples:
  runner completions bash > ~/.local/share/bash-completion/completions/runner
  runner completions zsh > ~/.zfunc/_runner
  runner completions fish > ~/.config/fish/completions/runner.fish";

#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell
    pub shell: ShellArgument,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ShellArgument {
    Bash,
    Zsh,
    Fish,
}

/// The script to source.
#[must_use]
pub(crate) fn script(shell: ShellArgument) -> String {
    let shell = match shell {
        ShellArgument::Bash => Shell::Bash,
        ShellArgument::Zsh => Shell::Zsh,
        ShellArgument::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut args::command(), "runner", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
