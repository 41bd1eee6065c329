//! What the programs installed beside `runner` share. They have threads and an asynchronous runtime, which a
//! process that clones a sandbox must not have, and no rights of their own: they execute `runner` as the same user.
//!
//! Entry points: [`Program`], [`complain`], [`service`], [`workspace`], [`own_file`], [`flags`], [`exec`], [`run_state`], [`run_totals`], [`prometheus`], [`events`].
#![forbid(unsafe_code)]

pub mod events;
pub mod exec;
pub mod flags;
pub mod own_file;
pub mod prometheus;
pub mod run_state;
pub mod run_totals;
pub mod service;
pub mod workspace;

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use spec::path::is_hidden;
use spec::request::Totals;
use spec::units::amount;

/// Exit code of every failure that is not a command's own, as of `runner`.
pub const FAILED: u8 = 125;

/// Variables of systemd for this process alone.
const OF_SYSTEMD: [&str; 7] = [
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "INVOCATION_ID",
];

/// Where `runner` is.
#[derive(Debug, Clone)]
pub struct Program(PathBuf);

impl Program {
    /// That in the directory of this program: never one of `PATH`, which may be of another version.
    ///
    /// # Errors
    /// It is not there.
    pub fn beside_this_one() -> io::Result<Self> {
        let path = std::env::current_exe()?.with_file_name("runner");
        path.metadata().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }

    /// Its absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `runner`, without words and without input. By the totals it counts, so that no two programs give the last place
    /// away.
    #[must_use]
    pub fn command(&self, totals: &Totals) -> Command {
        let mut command = Command::new(&self.0);
        command
            .envs(variables_of(totals))
            .stdin(Stdio::null())
            // Ctrl-C in the terminal of this program is for this program.
            .process_group(0);
        for name in OF_SYSTEMD {
            command.env_remove(name);
        }
        command
    }
}

/// As `runner` reads them.
fn variables_of(totals: &Totals) -> impl Iterator<Item = (&'static str, String)> {
    let cpus = totals.cpu_millis;
    [
        (
            "RUNNER_OPT_MAX_SANDBOXES",
            totals.sandboxes.map(|count| count.to_string()),
        ),
        (
            "RUNNER_OPT_MAX_MEMORY",
            totals.memory_bytes.map(|bytes| bytes.to_string()),
        ),
        (
            "RUNNER_OPT_MAX_CPUS",
            cpus.map(|millis| amount("cpu_millis", millis)),
        ),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

/// Writes lines to standard error as `runner` does: the message, and a hint.
pub fn complain(message: &str, hint: Option<&str>) {
    let mut lines = format!("runner: {}\n", escape_line(message));
    if let Some(hint) = hint {
        lines += &format!("runner: hint: {}\n", escape_line(hint));
    }
    // Nobody is left to tell if it cannot be written.
    drop(io::stderr().write_all(lines.as_bytes()));
}

/// The text on one line, without anything that controls a terminal.
#[must_use]
pub fn escape_line(text: &str) -> String {
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
