//! The program `runner` that this one was installed with, and messages in its style.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use spec::path::is_hidden;

/// Exit code of every failure that is not a command's own, as of `runner`.
pub(crate) const FAILED: u8 = 125;

/// Where `runner` is.
#[derive(Debug, Clone)]
pub(crate) struct Program(PathBuf);

impl Program {
    /// That in the directory of this program: never one of `PATH`, which may be of another version.
    pub(crate) fn beside_this_one() -> io::Result<Self> {
        let path = std::env::current_exe()?.with_file_name("runner");
        path.metadata().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Writes lines to standard error as `runner` does: the message, and a hint.
pub(crate) fn complain(message: &str, hint: Option<&str>) {
    let mut lines = format!("runner: {}\n", escape_line(message));
    if let Some(hint) = hint {
        lines += &format!("runner: hint: {}\n", escape_line(hint));
    }
    // Nobody is left to tell if it cannot be written.
    drop(io::stderr().write_all(lines.as_bytes()));
}

/// The text on one line, without anything that controls a terminal.
pub(crate) fn escape_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            line.extend(character.escape_unicode());
        } else {
            line.push(character);
        }
    }
    line
}
