//! What the paths of a body's calls lead to in its view, for `--trace`: looked up while the call waits.
//!
//! Nothing here decides about a call. Another thread of the body may change a path after it was read, and
//! the files may change before the call is made: what is found is shown, and nothing else.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use filter::{Arguments, PathAccess, PathArgument, SocketAddress, TracedCall};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use spec::path_use::{PathOperation, PathOutcome, PathUse, PathUses};
use sys::seccomp::{Listener, Waiting};

use crate::path_links::PathLinks;
use crate::path_memory::{read_message_path, read_path, read_socket_path};
use crate::path_want::{Want, lower};
use crate::ruleset::Ruleset;
use crate::seccomp::traced_call;
use crate::signal_trace::{InitSignals, signal_to_init};
use crate::socket_types::is_datagram;

/// Links to files that do not exist that are followed on one path.
const DANGLING_LINKS_MAX: usize = 8;
/// Look-ups of a path with `..` that are repeated, because a directory was renamed meanwhile.
const ATTEMPTS: usize = 4;

/// Looks up the paths of calls.
#[derive(Debug)]
pub(crate) struct PathTrace {
    /// /proc of this process.
    proc: OwnedFd,
    /// The root directory of the body. All its processes have the same one: no call that changes it is
    /// allowed.
    root: Option<OwnedFd>,
    /// The body has not started yet, as far as this process knows.
    is_launching: bool,
    /// Of the first call: the body's first process, before its exec.
    first_process: Option<u32>,
    /// That of the body.
    ruleset: Option<Ruleset>,
    uses: PathUses,
    links: RefCell<PathLinks>,
    signals: InitSignals,
}

/// Why a path has no use.
pub(crate) enum Unseen {
    /// It names no path, or one in proc, or the call fails whatever the view is.
    Skipped,
    Unknown,
}

impl From<Errno> for Unseen {
    fn from(_: Errno) -> Self {
        Self::Unknown
    }
}

impl PathTrace {
    /// # Errors
    /// The errno of openat(2); ENOENT if /proc is not that of this pid namespace.
    pub(crate) fn start(ruleset: Option<Ruleset>) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
        let own = rustix::fs::readlinkat(&proc, "self", Vec::new())?;
        if own.to_bytes() != std::process::id().to_string().as_bytes() {
            return Err(Errno::NOENT);
        }
        Ok(Self {
            proc,
            root: None,
            is_launching: false,
            first_process: None,
            ruleset,
            uses: PathUses::default(),
            links: RefCell::default(),
            signals: InitSignals::default(),
        })
    }

    pub(crate) fn uses(&self) -> &PathUses {
        &self.uses
    }

    pub(crate) fn first_process(&self) -> Option<u32> {
        self.first_process
    }

    pub(crate) fn signals(&self) -> &InitSignals {
        &self.signals
    }

    /// The symbolic links on the way to the paths.
    pub(crate) fn links(&self) -> BTreeSet<Vec<u8>> {
        self.links.borrow().paths().clone()
    }

    /// Whether calls are skipped that are not of the body yet.
    pub(crate) fn set_launching(&mut self, is_launching: bool) {
        self.is_launching = is_launching;
    }

    /// Whether `thread` has not executed the body's program yet and is still a copy of this one.
    fn is_of_launch(&self, thread: u32) -> bool {
        let program = |process: &str| {
            let found = rustix::fs::statat(&self.proc, format!("{process}/exe"), AtFlags::empty());
            found.map(|found| (found.st_dev, found.st_ino))
        };
        match program(&thread.to_string()) {
            Ok(found) => program("self") == Ok(found),
            // An ordinary user may not look at init, whose memory the thread shares.
            Err(_) => true,
        }
    }

    /// Looks at the paths or the signal of a call, before it is made.
    pub(crate) fn look_at(&mut self, listener: &Listener, waiting: &Waiting, now_ms: u64) {
        let Some(TracedCall { paths, signal, .. }) = traced_call(waiting.call.number) else {
            return;
        };
        if self.is_launching && self.is_of_launch(waiting.thread) {
            self.first_process.get_or_insert(waiting.thread);
            return;
        }
        if let Some(signal) = signal {
            let found = signal_to_init(self.proc.as_fd(), waiting, signal);
            if listener.is_waiting(waiting) {
                self.signals.add(found, now_ms);
            }
            return;
        }
        let root = match self.root.take() {
            Some(root) => Ok(root),
            None => self.open_root(waiting.thread),
        };
        let found: Vec<_> = paths
            .iter()
            .map(|argument| self.path_use(root.as_ref().ok(), waiting, argument))
            .collect();
        // The thread may have ended, and what was found may be of another one.
        if !listener.is_waiting(waiting) {
            return;
        }
        self.root = root.ok();
        for path_use in found {
            match path_use {
                Ok(path_use) => self.uses.add(path_use, now_ms),
                Err(Unseen::Skipped) => (),
                Err(Unseen::Unknown) => self.uses.unknown += 1,
            }
        }
    }

    fn open_root(&self, thread: u32) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.proc, format!("{thread}/root"), flags, Mode::empty())
    }

    fn path_use(
        &self,
        root: Option<&OwnedFd>,
        waiting: &Waiting,
        argument: &PathArgument,
    ) -> Result<PathUse, Unseen> {
        let arguments = &waiting.call.arguments;
        let asked = self.path(waiting.thread, arguments, argument)?;
        let want = Want::of(arguments, argument);
        let view = View {
            proc: self.proc.as_fd(),
            root: root.ok_or(Unseen::Unknown)?.as_fd(),
        };
        self.links
            .borrow_mut()
            .look_at(view.proc, view.root, &asked);
        let (operation, path, outcome) = match view.resolve(asked, want.follows)? {
            Found::Node { node, path } => {
                let outcome = match outcome(node.as_fd(), want.if_exists)? {
                    PathOutcome::Found
                        if want.if_exists == PathOperation::Execute
                            && !self.permits_program(&path) =>
                    {
                        PathOutcome::NoExec
                    }
                    outcome => outcome,
                };
                (want.if_exists, path, outcome)
            }
            Found::Missing { directory, path } => {
                let outcome = match directory {
                    Some(directory) if want.if_missing == PathOperation::Create => {
                        outcome(directory.as_fd(), PathOperation::Create)?
                    }
                    _ => PathOutcome::Absent,
                };
                (want.if_missing, path, outcome)
            }
            Found::NotPermitted { path } => (want.if_exists, path, PathOutcome::NotPermitted),
        };
        Ok(PathUse {
            operation,
            path,
            outcome,
        })
    }

    /// Whether Landlock permits the program. What may be written is the same for the mounts.
    fn permits_program(&self, path: &[u8]) -> bool {
        let ruleset = self.ruleset.as_ref();
        ruleset.is_none_or(|ruleset| ruleset.permits_program(path))
    }

    /// The path as the thread names it, made absolute.
    fn path(
        &self,
        thread: u32,
        arguments: &Arguments,
        argument: &PathArgument,
    ) -> Result<Vec<u8>, Unseen> {
        let address = arguments[usize::from(argument.path)];
        let path = match argument.address {
            None => read_path(thread, address)?,
            Some(SocketAddress::WithLength(length)) => {
                read_socket_path(thread, address, lower(arguments, length))?
            }
            Some(SocketAddress::OfMessage) => read_message_path(thread, address)?,
        };
        if path.is_some()
            && argument.address.is_some()
            && !self.uses_path(thread, lower(arguments, 0), argument.access)?
        {
            return Err(Unseen::Skipped);
        }
        let mut path = path.ok_or(Unseen::Skipped)?;
        match path.first() {
            // ENOENT, or the descriptor itself.
            None => return Err(Unseen::Skipped),
            Some(b'/') => return Ok(path),
            Some(_) => (),
        }
        let directory = match argument.directory.map(|index| lower(arguments, index)) {
            None => format!("{thread}/cwd"),
            Some(descriptor) if descriptor == CWD_NUMBER => format!("{thread}/cwd"),
            Some(descriptor) => format!("{thread}/fd/{descriptor}"),
        };
        let mut absolute = name_of(self.proc.as_fd(), &directory)?;
        absolute.push(b'/');
        absolute.append(&mut path);
        Ok(absolute)
    }

    /// Whether a descriptor is a socket that uses the path of a call. If not, the call fails with EBADF, ENOTSOCK
    /// or EISCONN, or ignores the path.
    fn uses_path(&self, thread: u32, socket: u32, access: PathAccess) -> Result<bool, Errno> {
        let link = format!("{thread}/fd/{socket}");
        let target = match rustix::fs::readlinkat(&self.proc, link, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        let inode = target
            .strip_prefix(b"socket:[")
            .and_then(|rest| rest.strip_suffix(b"]"));
        match (inode, access) {
            (None, _) => Ok(false),
            (Some(inode), PathAccess::Send) => is_datagram(self.proc.as_fd(), thread, inode),
            (Some(_), _) => Ok(true),
        }
    }
}

/// AT_FDCWD.
const CWD_NUMBER: u32 = (-100_i32).cast_unsigned();

/// Whether the mount of `node`, or for a new entry of its directory, permits `operation`.
fn outcome(node: BorrowedFd<'_>, operation: PathOperation) -> Result<PathOutcome, Errno> {
    let forbids = |flag| {
        let found = rustix::fs::fstatvfs(node)?;
        Ok::<_, Errno>(found.f_flag.contains(flag))
    };
    let mode = || rustix::fs::fstat(node).map(|found| found.st_mode);
    Ok(match operation {
        PathOperation::Inspect | PathOperation::Read | PathOperation::Connect => PathOutcome::Found,
        PathOperation::Write | PathOperation::Create | PathOperation::Remove => {
            let is_read_only = forbids(StatVfsMountFlags::RDONLY)?;
            // What is written to a device or a pipe is not written to its file system.
            let is_file = || {
                let kind = FileType::from_raw_mode(mode()?);
                Ok::<_, Errno>(matches!(
                    kind,
                    FileType::RegularFile | FileType::Directory | FileType::Symlink
                ))
            };
            if is_read_only && is_file()? {
                PathOutcome::ReadOnly
            } else {
                PathOutcome::Found
            }
        }
        PathOperation::Execute => {
            let mode = mode()?;
            let is_program =
                FileType::from_raw_mode(mode) == FileType::RegularFile && mode & 0o111 != 0;
            if !is_program {
                PathOutcome::NotPermitted
            } else if forbids(StatVfsMountFlags::NOEXEC)? {
                PathOutcome::NoExec
            } else {
                PathOutcome::Found
            }
        }
    })
}

/// The body's view of files, from outside.
struct View<'trace> {
    proc: BorrowedFd<'trace>,
    root: BorrowedFd<'trace>,
}

enum Found {
    Node {
        node: OwnedFd,
        path: Vec<u8>,
    },
    Missing {
        /// Its directory, if that exists.
        directory: Option<OwnedFd>,
        path: Vec<u8>,
    },
    /// This process may not search a directory on the way, or a link must not be followed.
    NotPermitted {
        path: Vec<u8>,
    },
}

impl View<'_> {
    fn resolve(&self, mut path: Vec<u8>, follows: bool) -> Result<Found, Unseen> {
        for _ in 0..DANGLING_LINKS_MAX {
            path = outside_of_proc(cleaned(&path))?;
            match self.open(&path, follows) {
                Ok(node) => {
                    let path = outside_of_proc(self.name(&node)?)?;
                    return Ok(Found::Node { node, path });
                }
                Err(Errno::ACCESS)
                    if !path.split(|byte| *byte == b'/').any(|name| name == b"..") =>
                {
                    return Ok(Found::NotPermitted { path });
                }
                Err(Errno::NOENT) => (),
                // The call fails with the same errno; the last one also for links of proc.
                Err(Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => {
                    return Err(Unseen::Skipped);
                }
                Err(_) => return Err(Unseen::Unknown),
            }
            match self.missing(&path)? {
                Missing::Link(target) => path = target,
                Missing::Entry { directory, path } => {
                    let path = outside_of_proc(path)?;
                    return Ok(Found::Missing { directory, path });
                }
            }
        }
        Err(Unseen::Unknown)
    }

    /// Opens what is at an absolute path of the view. Opens no file: only its place.
    fn open(&self, path: &[u8], follows: bool) -> Result<OwnedFd, Errno> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !follows);
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            result = rustix::fs::openat2(self.root, path, flags, Mode::empty(), resolve);
            if !matches!(result, Err(Errno::AGAIN)) {
                break;
            }
        }
        result
    }

    /// What a path ends at that does not exist: the entry that is missing, or a link to it.
    fn missing(&self, path: &[u8]) -> Result<Missing, Unseen> {
        let slashes: Vec<usize> = (0..path.len()).filter(|at| path[*at] == b'/').collect();
        // The deepest directory that exists. If one does not exist, none below does.
        let (mut exists, mut is_missing) = (0, slashes.len());
        let mut deepest = self.open(b"/", true)?;
        let mut next = slashes.len() - 1;
        while exists < next {
            match self.open(&path[..slashes[next]], true) {
                Ok(found) => (exists, deepest) = (next, found),
                Err(Errno::NOENT) => is_missing = next,
                Err(_) => return Err(Unseen::Unknown),
            }
            next = usize::midpoint(exists, is_missing);
        }
        let directory = self.name(&deepest)?;
        let rest = &path[slashes[exists] + 1..];
        let mut names = rest.split(|byte| *byte == b'/');
        let name = names.next().unwrap_or_default();
        let below: Vec<&[u8]> = names.collect();
        match rustix::fs::readlinkat(&deepest, as_path(name), Vec::new()) {
            Ok(target) => {
                let target = target.into_bytes();
                let start = if target.starts_with(b"/") {
                    b""
                } else {
                    &directory[..]
                };
                let parts = [&[start, &target[..]], &below[..]].concat();
                return Ok(Missing::Link(parts.join(&b'/')));
            }
            Err(Errno::NOENT) => (),
            Err(_) => return Err(Unseen::Unknown),
        }
        let is_last = below.is_empty();
        // The kernel gets no further than the missing entry.
        let below = below.into_iter().take_while(|name| *name != b"..");
        let parts: Vec<&[u8]> = [&directory[..], name].into_iter().chain(below).collect();
        Ok(Missing::Entry {
            directory: is_last.then_some(deepest),
            path: cleaned(&parts.join(&b'/')),
        })
    }

    /// The path of `node` in the view.
    fn name(&self, node: &OwnedFd) -> Result<Vec<u8>, Unseen> {
        let number = std::os::fd::AsRawFd::as_raw_fd(node);
        name_of(self.proc, &format!("self/fd/{number}"))
    }
}

enum Missing {
    Link(Vec<u8>),
    Entry {
        directory: Option<OwnedFd>,
        path: Vec<u8>,
    },
}

/// The path of what a link of proc leads to.
pub(crate) fn name_of(proc: BorrowedFd<'_>, link: &str) -> Result<Vec<u8>, Unseen> {
    let name = rustix::fs::readlinkat(proc, link, Vec::new())?.into_bytes();
    // Sockets and pipes have no path, and removed directories none that leads to them.
    let has_path = name.starts_with(b"/") && !name.ends_with(b" (deleted)");
    if has_path {
        Ok(name)
    } else {
        Err(Unseen::Unknown)
    }
}

/// In proc, each process sees itself.
fn outside_of_proc(path: Vec<u8>) -> Result<Vec<u8>, Unseen> {
    match path.strip_prefix(b"/proc") {
        Some([] | [b'/', ..]) => Err(Unseen::Skipped),
        _ => Ok(path),
    }
}

/// An absolute path without `.` and empty segments.
fn cleaned(path: &[u8]) -> Vec<u8> {
    let mut cleaned = Vec::with_capacity(path.len());
    for segment in path.split(|byte| *byte == b'/') {
        if !matches!(segment, b"" | b".") {
            cleaned.push(b'/');
            cleaned.extend_from_slice(segment);
        }
    }
    if cleaned.is_empty() {
        cleaned.push(b'/');
    }
    cleaned
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::path::escape;

    /// A view whose root is a directory of this test.
    #[test]
    fn a_path_is_resolved_below_its_root_and_as_far_as_it_exists() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a path");
        let below = |path: &str| [root.as_os_str().as_bytes(), path.as_bytes()].concat();
        std::fs::create_dir_all(root.join("a/b")).expect("made");
        std::fs::write(root.join("a/file"), "").expect("written");
        for (link, target) in [
            ("a/up", "../../../../a"),
            ("a/absolute", "/a/b"),
            ("a/dangling", "missing/../c"),
            ("a/loop", "loop"),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).expect("made");
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &Path| rustix::fs::open(path, flags, Mode::empty()).expect("opened");
        let (proc, root_directory) = (open(Path::new("/proc")), open(&root));
        let view = View {
            proc: proc.as_fd(),
            root: root_directory.as_fd(),
        };
        let resolve = |path: &str, follows| match view.resolve(path.as_bytes().to_vec(), follows) {
            Ok(Found::Node { path, .. }) => ("found", path),
            Ok(Found::Missing { directory, path }) => match directory {
                Some(_) => ("missing", path),
                None => ("missing directory", path),
            },
            Ok(Found::NotPermitted { path }) => ("not permitted", path),
            Err(Unseen::Skipped) => ("skipped", Vec::new()),
            Err(Unseen::Unknown) => ("unknown", Vec::new()),
        };
        // The name of what exists is that of this process, outside of the root.
        for (path, follows, expected, name) in [
            ("/a/../a//./file", true, "found", "/a/file"),
            ("/../../a/up/b", true, "found", "/a/b"),
            ("/a/absolute", true, "found", "/a/b"),
            ("/a/absolute", false, "found", "/a/absolute"),
            ("/a/dangling", false, "found", "/a/dangling"),
            ("/a/c", true, "missing", "/a/c"),
            ("/a/absolute/c", true, "missing", "/a/b/c"),
            ("/c/d/e", true, "missing directory", "/c/d/e"),
            ("/a/c/../../etc/passwd", true, "missing directory", "/a/c"),
        ] {
            let (how, found) = resolve(path, follows);
            assert_eq!(how, expected, "{path}");
            assert_eq!(escape(&found), escape(&below(name)), "{path}");
        }
        for path in ["/a/loop", "/a/file/below", "/proc/self/exe", "/proc"] {
            assert_eq!(resolve(path, true).0, "skipped", "{path}");
        }
    }
}
