//! What people type who know docker, and what it means here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::cli::args::Verb;
use sandbox::view::NO_DEVICES;
use spec::path::escape;

/// The value of a `-v SRC:DST` that was meant as docker's: here `-v` takes no value, and the word
/// behind it would be the program or the bundle. Escaped.
pub(super) fn volume(words: &[OsString], verb: &Verb) -> Option<String> {
    let at = match verb {
        Verb::Run(run) => words.len().checked_sub(run.command.len())?,
        Verb::Exec(exec) => words.iter().position(|word| *word == exec.bundle)?,
        _ => return None,
    };
    let before = words.get(at.checked_sub(1)?)?;
    let word = words.get(at)?;
    (before == "-v" && is_volume(word)).then(|| escape(word.as_bytes()))
}

/// The same on a line that means nothing, also as one word with the flag.
pub(super) fn volume_of_error(words: &[OsString]) -> Option<String> {
    let nothing = OsString::new();
    let after = words.iter().skip(1).chain([&nothing]);
    let mut values = words.iter().zip(after).filter_map(|(word, next)| {
        match word.as_bytes().strip_prefix(b"-v")? {
            [] => Some(next.as_os_str()),
            value => Some(OsStr::from_bytes(value.strip_prefix(b"=").unwrap_or(value))),
        }
    });
    let found = values.find(|value| is_volume(value))?;
    Some(escape(found.as_bytes()))
}

pub(super) fn volume_hint(volume: &str) -> String {
    format!("-v prints more; to show a directory to the body: --mount {volume}")
}

/// Why there is no `flag`, which passes devices to a container.
pub(super) fn device(flag: &str) -> Option<String> {
    let is_device = matches!(flag, "device" | "gpus");
    is_device.then(|| format!("--{flag} does not exist: {NO_DEVICES}"))
}

/// `SRC:/DST`, with whatever behind it.
fn is_volume(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    bytes
        .windows(2)
        .position(|pair| pair == b":/")
        .is_some_and(|at| 0 < at && bytes.get(at + 2) != Some(&b'/'))
}
