//! Words in the text files of tools and projects, such as a version. The files may be a stranger's: a process
//! without rights parses them.

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use spec::parse_permit::ParsePermit;
use sys::file::read_regular;

/// Maximum size of a file; a larger one is ignored.
const FILE_BYTES_MAX: usize = 1 << 20;

/// What `find` finds in the text of the file at `path`.
pub(super) fn find_in(path: &Path, find: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    // O_NONBLOCK: opening a FIFO would block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let text = read_regular(file, FILE_BYTES_MAX).ok()?;
    let find = |_: &ParsePermit, text: &[u8]| std::str::from_utf8(text).ok().and_then(find);
    reader::parse_with(&text, &find).ok()?
}
