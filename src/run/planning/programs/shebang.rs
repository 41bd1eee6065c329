//! First lines of scripts, as the kernel reads them (linux/fs/binfmt_script.c).

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Bytes that the kernel reads of a program (BINPRM_BUF_SIZE of linux/binfmts.h).
pub(in crate::run) const HEAD_BYTES: u64 = 256;

/// The first bytes of a regular file of the host, without blocking. `is_checked`: the file itself was
/// checked, so a link that replaced it is not followed.
pub(in crate::run) fn read_head(path: &Path, is_checked: bool) -> Option<Vec<u8>> {
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
    let mut head = Vec::new();
    opened.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The first line after `#!`, without its end; `None` without `#!`.
pub(in crate::run) fn first_line(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?;
    line.split(|byte| *byte == b'\n').next()
}

/// The words of such a line, the interpreter first.
pub(in crate::run) fn split_words(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty())
}
