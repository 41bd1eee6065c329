//! Recognises docker's `-v SRC:DST` and device flags, which mean something else here or do not exist.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::cli::args::Verb;
use sandbox::view::NO_DEVICES;
use spec::path::escape;

/// The value of docker's `-v SRC:DST`, escaped. Here `-v` takes no value, so `SRC:DST` was read as the
/// program or the bundle.
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

/// As [`volume`], for a line that clap refused. Flag and value may be one word.
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
    format!("-v prints more; to make a directory visible to the body: --mount {volume}")
}

/// The message for docker's flags that pass devices.
pub(super) fn device(flag: &str) -> Option<String> {
    let is_device = matches!(flag, "device" | "gpus");
    is_device.then(|| format!("--{flag} does not exist: {NO_DEVICES}"))
}

/// Whether it begins like `SRC:/DST`.
fn is_volume(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    bytes
        .windows(2)
        .position(|pair| pair == b":/")
        .is_some_and(|at| at > 0 && bytes.get(at + 2) != Some(&b'/'))
}
