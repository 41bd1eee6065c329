//! Scripts whose first line ends with CR LF: the kernel passes the carriage return as part of the
//! last word, and `env` then looks for a program that does not exist.

use crate::run::planning::programs::shebang::{HEAD_BYTES, first_line, split_words};
use crate::run::unpacking::bundle_files::BundleFiles;
use spec::path::{RelPath, escape};
use spec::report::WarningReport;

/// Warning code in a plan, and in a run that ended with 127, the exit code of `env`.
pub(in crate::run) const SCRIPT_LINE_ENDS: &str = "script_line_ends";

/// Exit code of `env` and shells for a missing program.
pub(in crate::run) const NOT_FOUND: i32 = 127;

/// Checks a program of the bundle.
pub(in crate::run::planning) fn check_bundle_program(
    bundle: &dyn BundleFiles,
    program: &[u8],
) -> Option<WarningReport> {
    let path = RelPath::parse(program.strip_prefix(b"./").unwrap_or(program)).ok()?;
    bundle.tree().get(&path)?;
    check_head(&bundle.head(&path, HEAD_BYTES).ok()?, path.as_bytes())
}

/// Checks a program at `path` that begins with `head`. Skips a line of one word: its start fails
/// with a clear reason.
pub(in crate::run::planning) fn check_head(head: &[u8], path: &[u8]) -> Option<WarningReport> {
    let mut words = split_words(first_line(head)?.strip_suffix(b"\r")?);
    words.next()?;
    let last = words.next_back()?;
    let message = format!(
        "the first line of {} ends with a carriage return (CR LF), so that it looks for `{}\\r`: save \
         the file with line feeds (LF)",
        escape(path),
        escape(last)
    );
    Some(WarningReport::new(SCRIPT_LINE_ENDS, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_line_with_an_argument_gets_a_warning() {
        for (head, last) in [
            (
                &b"#!/usr/bin/env python3\r\nprint(1)\r\n"[..],
                Some("`python3\\r`"),
            ),
            (b"#! /usr/bin/env -S python3 -u\r\n", Some("`-u\\r`")),
            (b"#!/usr/bin/env python3\nprint(1)\r\n", None),
            (b"#!/bin/sh\r\n", None),
            (b"#!\r\n", None),
            (b"#!/usr/bin/env python3", None),
            (b"\x7fELF\r\n", None),
            (b"", None),
        ] {
            let message = check_head(head, b"tool").map(|warning| warning.message);
            assert_eq!(message.is_some(), last.is_some(), "{message:?}");
            let message = message.unwrap_or_default();
            assert!(message.contains(last.unwrap_or_default()), "{message}");
        }
    }
}
