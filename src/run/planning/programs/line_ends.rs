//! Scripts whose first line ends with CR LF: the kernel passes the carriage return as part of the
//! last word, and `env` then looks for a program that does not exist.

use crate::run::planning::programs::heads::{Head, without_return};
use crate::run::unpacking::bundle_files::BundleFiles;
use sandbox::view::BUNDLE;
use spec::path::{RelPath, escape};
use spec::program_format::{Format, HEAD_BYTES};
use spec::report::WarningReport;

/// Warning code in a plan, and in a run that ended with 127.
const SCRIPT_LINE_ENDS: &str = "script_line_ends";

/// Exit code of `env` and shells for a missing program.
pub(in crate::run) const NOT_FOUND: i32 = 127;

/// The program that a run starts, which is parsed only if there may be a reason to warn.
#[derive(Debug, Clone)]
pub(in crate::run) struct StartedProgram {
    path: Vec<u8>,
    head: Head,
}

impl StartedProgram {
    pub(in crate::run::planning) fn new(path: &[u8], head: Head) -> Self {
        Self {
            path: path.to_vec(),
            head,
        }
    }

    /// A program of the bundle.
    pub(in crate::run::planning) fn of_bundle(
        bundle: &dyn BundleFiles,
        program: &[u8],
    ) -> Option<Self> {
        let below = program.strip_prefix(b"./").or_else(|| {
            let below = program.strip_prefix(BUNDLE.as_bytes())?;
            below.strip_prefix(b"/")
        });
        let path = RelPath::parse(below.unwrap_or(program)).ok()?;
        bundle.tree().get(&path)?;
        let head = bundle.head(&path, HEAD_BYTES).ok()?;
        Some(Self::new(path.as_bytes(), Head::of_stranger(head)))
    }

    /// Skips a line of one word: its start fails with a clear reason.
    pub(in crate::run) fn warning(&self) -> Option<WarningReport> {
        let Format::Script(words) = self.head.format()? else {
            return None;
        };
        let words = without_return(&words)?;
        let last = words.get(1..)?.last()?;
        let message = format!(
            "the first line of {} ends with a carriage return (CR LF), so that it looks for `{}\\r`: save \
             the file with line feeds (LF)",
            escape(&self.path),
            escape(last.as_bytes())
        );
        Some(WarningReport::new(SCRIPT_LINE_ENDS, message))
    }
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
            (b"#!/usr/bin/env python3 \r\n", Some("`python3\\r`")),
            (b"#!/usr/bin/env python3\nprint(1)\r\n", None),
            (b"#!/bin/sh\r\n", None),
            (b"#!/bin/sh \r\n", None),
            (b"#!\r\n", None),
            (b"#!/usr/bin/env python3", None),
            (b"\x7fELF\r\n", None),
            (b"", None),
        ] {
            let started = StartedProgram::new(b"tool", Head::of_stranger(head.to_vec()));
            let message = started.warning().map(|warning| warning.message);
            assert_eq!(message.is_some(), last.is_some(), "{message:?}");
            let message = message.unwrap_or_default();
            assert!(message.contains(last.unwrap_or_default()), "{message}");
        }
    }
}
