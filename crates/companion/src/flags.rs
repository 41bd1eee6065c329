//! The command line of a verb, of which `runner` passes the words on.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use crate::FAILED;

/// Why there are no flags.
#[derive(Debug, PartialEq, Eq)]
pub enum NoFlags {
    /// The help, which was asked for.
    Help(String),
    /// What is wrong, on one line.
    Mistake(String),
}

/// Reads the words that follow `name`.
///
/// # Errors
/// [`NoFlags`].
pub fn parse<Flags: clap::Parser>(name: &str, words: &[OsString]) -> Result<Flags, NoFlags> {
    let name = OsString::from(name);
    let parsed = Flags::try_parse_from(std::iter::once(&name).chain(words));
    parsed.map_err(|error| {
        let text = error.render().to_string();
        match error.use_stderr() {
            false => NoFlags::Help(text),
            true => {
                // The usage follows, which the help has too.
                let message = text.split("\n\n").next().unwrap_or_default();
                let words: Vec<&str> = message.split_whitespace().skip(1).collect();
                NoFlags::Mistake(words.join(" "))
            }
        }
    })
}

/// Writes a text to standard output, and returns the exit code.
#[must_use]
pub fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::from(FAILED),
    }
}
