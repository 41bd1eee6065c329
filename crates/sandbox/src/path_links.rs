//! The symbolic links on the way to the paths of a body's calls, which `runner learn` needs: a policy with
//! only what they lead to would lack them.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::path_trace::name_of;

/// Links that are followed on one path.
const LINKS_ON_PATH_MAX: usize = 8;
/// Distinct paths that are looked at, and bytes of them and of all links.
const PATHS_MAX: usize = 20_000;
const BYTES_MAX: usize = 8 << 20;

/// The links of the body's view that its calls passed, bounded.
#[derive(Debug, Default)]
pub(crate) struct PathLinks {
    asked: HashSet<Vec<u8>>,
    links: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl PathLinks {
    /// The absolute paths of the links.
    pub(crate) fn paths(&self) -> &BTreeSet<Vec<u8>> {
        &self.links
    }

    /// Looks at an absolute path below `root`, unless it did before. `proc` is /proc of this process.
    pub(crate) fn look_at(&mut self, proc: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &[u8]) {
        let is_full = self.asked.len() >= PATHS_MAX || self.bytes >= BYTES_MAX;
        if is_full || self.asked.contains(path) {
            return;
        }
        self.bytes += path.len();
        self.asked.insert(path.to_vec());
        for link in links_on(proc, root, path) {
            if !self.links.contains(&link) {
                self.bytes += link.len();
                self.links.insert(link);
            }
        }
    }
}

/// The links on a path, as far as it can be followed. Opens no file.
fn links_on(proc: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut left: Vec<Vec<u8>> = reversed_names(path);
    let mut directory: Option<OwnedFd> = None;
    while let Some(name) = left.pop() {
        // What `..` leads to may have moved.
        if name == b".." || found.len() == LINKS_ON_PATH_MAX {
            break;
        }
        let here = directory.as_ref().map_or(root, std::os::fd::AsFd::as_fd);
        let as_path = Path::new(OsStr::from_bytes(&name));
        match rustix::fs::readlinkat(here, as_path, Vec::new()) {
            Ok(target) => {
                let Ok(above) = name_of(proc, &format!("self/fd/{}", here.as_raw_fd())) else {
                    break;
                };
                let above = above.strip_suffix(b"/").unwrap_or(&above);
                found.push([above, b"/", &name].concat());
                let target = target.into_bytes();
                if target.starts_with(b"/") {
                    directory = None;
                }
                left.append(&mut reversed_names(&target));
            }
            Err(Errno::INVAL) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match rustix::fs::openat(here, as_path, flags, Mode::empty()) {
                    Ok(opened) => directory = Some(opened),
                    Err(_) => break,
                }
            }
            Err(_) => break,
        }
    }
    found
}

fn reversed_names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').rev();
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    names.map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn each_link_on_a_path_is_found_once() {
        let base = tempfile::tempdir().expect("a directory");
        let path = |name: &str| base.path().join(name);
        std::fs::create_dir_all(path("opt/tool-1/bin")).expect("made");
        std::fs::write(path("opt/tool-1/bin/run"), "").expect("written");
        for (target, link) in [
            ("tool-1", "opt/tool"),
            ("bin/run", "opt/tool-1/main"),
            ("loop", "opt/loop"),
        ] {
            symlink(target, path(link)).expect("a link");
        }
        let [proc, root] = ["/proc", "/"].map(|path| File::open(path).expect("opened"));
        let mut links = PathLinks::default();
        for name in [
            "opt/tool/main",
            "opt/tool/bin/run",
            "opt/tool/../x",
            "opt/loop/x",
            "none/x",
        ] {
            let path = path(name);
            links.look_at(proc.as_fd(), root.as_fd(), path.as_os_str().as_bytes());
        }
        let real = base.path().canonicalize().expect("real");
        let expected = ["opt/loop", "opt/tool", "opt/tool-1/main"];
        let expected = expected.map(|name| real.join(name).as_os_str().as_bytes().to_vec());
        assert!(links.paths().iter().eq(&expected), "{links:?}");
    }
}
