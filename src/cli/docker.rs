//! Recognises docker's `-v SRC:DST` and device flags, which mean something else here or do not exist.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::cli::args::Verb;
use sandbox::view::NO_DEVICES;
use spec::path::escape;

/// The value of docker's `-v SRC:DST`, escaped. Here `-v` takes no value, so `SRC:DST` was read as the
/// program or the bundle.
pub(super) fn volume(words: &[OsString], verb: &Verb) -> Option<String> {
    let find = |bundle: &PathBuf| words.iter().position(|word| word == bundle);
    let at = match verb {
        Verb::Run(run) => words.len().checked_sub(run.command.len())?,
        Verb::Exec(exec) => find(&exec.bundle)?,
        Verb::Plan(plan) => find(plan.bundle.as_ref()?)?,
        _ => return None,
    };
    let before = words.get(at.checked_sub(1)?)?;
    let word = words.get(at)?;
    (ends_with_v(before) && is_volume(word)).then(|| escape(word.as_bytes()))
}

/// Whether it is `-v`, or several short flags such as `-itv`.
fn ends_with_v(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.ends_with(b"v")
}

/// As [`volume`], for a line that clap refused. Flag and value may be one word.
pub(super) fn volume_of_error(words: &[OsString]) -> Option<String> {
    let nothing = OsString::new();
    let after = words.iter().skip(1).chain([&nothing]);
    let pairs = words.iter().zip(after);
    let flags = pairs.take_while(|(word, _)| *word != "--");
    let mut values =
        flags.filter_map(|(word, next)| match word.as_bytes().strip_prefix(b"-v")? {
            [] => Some(next.as_os_str()),
            value => Some(OsStr::from_bytes(value.strip_prefix(b"=").unwrap_or(value))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::CommandLine;
    use clap::Parser as _;

    #[test]
    fn the_value_of_dockers_v_is_no_program_and_no_bundle() {
        for (line, expected) in [
            ("runner run -v /a:/b x", Some("/a:/b")),
            ("runner run -itv /a:/b x", Some("/a:/b")),
            ("runner exec -v /a:/b", Some("/a:/b")),
            ("runner plan -v /a:/b", Some("/a:/b")),
            ("runner plan -v /a:/b -- x", Some("/a:/b")),
            ("runner run -v x /a:/b", None),
            ("runner run -v -- /a:/b", None),
            ("runner exec -v a:b", None),
            ("runner plan -v -- x", None),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let verb = CommandLine::try_parse_from(&words).expect("read").verb;
            assert_eq!(volume(&words, &verb).as_deref(), expected, "{line}");
        }
    }
}
