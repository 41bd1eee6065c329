//! The first bytes of programs.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use crate::run::planning::programs::lookup::is_in_base_view;
use spec::parse_permit::ParsePermit;
use spec::program_format::{Format, HEAD_BYTES};

/// The first bytes of a program, of which nothing is known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) struct Head {
    bytes: Vec<u8>,
    /// In a system directory of the host.
    is_trusted: bool,
}

impl Head {
    /// Of a bundle, or of an image.
    pub(in crate::run) fn of_stranger(mut bytes: Vec<u8>) -> Self {
        bytes.truncate(usize::try_from(HEAD_BYTES).unwrap_or_default());
        Self {
            bytes,
            is_trusted: false,
        }
    }

    /// Of a regular file of the host, without blocking. `is_checked`: the file itself was checked, so a link
    /// that replaced it is not followed.
    pub(in crate::run) fn read(path: &Path, is_checked: bool) -> Option<Self> {
        // The file may have been replaced by a FIFO or a link.
        let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        flags.set(OFlags::NOFOLLOW, is_checked);
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .ok()?;
        if !opened.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        opened.take(HEAD_BYTES).read_to_end(&mut bytes).ok()?;
        Some(Self {
            bytes,
            is_trusted: is_in_base_view(path),
        })
    }

    /// Parsed in a process without rights, unless the host trusts the program. `None`: unknown.
    pub(in crate::run) fn format(&self) -> Option<Format> {
        if self.is_trusted {
            return Format::parse(&ParsePermit::for_trusted_text(), &self.bytes);
        }
        let parsed = reader::parse_with(&self.bytes, &Format::parse);
        parsed.ok()?.filter(Format::is_possible)
    }
}

/// The words of a first line, without a carriage return at its end; `None` if it has none.
pub(super) fn without_return(words: &[String]) -> Option<Vec<&str>> {
    let (last, others) = words.split_last()?;
    let words = others.iter().map(String::as_str);
    let last = Some(last.strip_suffix('\r')?).filter(|last| !last.is_empty());
    Some(words.chain(last).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_what_the_kernel_does() {
        let script = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned());
            Some(Format::Script(words.collect()))
        };
        for (head, expected) in [
            (&b""[..], Some(Format::Empty)),
            (b"\x7fELF\x02", Some(Format::Elf)),
            (b"#!/bin/sh\nexit\n", script(&["/bin/sh"])),
            (
                b"#! /usr/bin/env\t-S  x\r\n",
                script(&["/usr/bin/env", "-S", "x\r"]),
            ),
            (b"#!", script(&[])),
            (b"#!/\xff\n", None),
            (b"\xef\xbb\xbf#!/bin/sh\n", Some(Format::ByteOrderMark)),
            (b"MZ\x00", Some(Format::Binary)),
            (b"echo\n", Some(Format::Text)),
        ] {
            let head = Head::of_stranger(head.to_vec());
            assert_eq!(head.format(), expected, "{head:?}");
            let trusted = Head {
                is_trusted: true,
                ..head
            };
            assert_eq!(trusted.format(), expected, "{trusted:?}");
        }
    }
}
