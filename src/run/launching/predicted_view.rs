//! Predicts what a path inside the sandbox is, without creating the sandbox: from the steps of the
//! view, the host's files behind its mounts, the bundle and the image.
//!
//! The body's rights are derived from file modes. Files that a run writes to its private directories
//! are unknown. An unknown path counts as existing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use crate::run::image::{OpenedImage, SelectedImage};
use crate::run::planning::programs::heads::Head;
use crate::run::unpacking::bundle_files::BundleFiles;
use archive::Entry;
use sandbox::view::{BUNDLE, ViewStep};
use sources::oci::layers::Kind;
use spec::detection::Interpreter;
use spec::path::RelPath;
use spec::program_format::{Format, HEAD_BYTES};

/// Maximum number of links on one path, as in path_resolution(7).
const LINKS_MAX: usize = 40;
/// Maximum depth of scripts that run scripts (linux/fs/exec.c).
const SCRIPTS_MAX: usize = 5;
/// Maximum number of names listed of one directory.
const NAMES_MAX: usize = 20_000;
/// Maximum size of an image file that is read for its first line.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

pub(in crate::run) struct PredictedView<'plan> {
    pub(in crate::run) steps: &'plan [ViewStep],
    /// The bundle, if it was read.
    pub(in crate::run) bundle: Option<&'plan dyn BundleFiles>,
    /// Whether the body has a uid of its own, which owns no file of the host.
    pub(in crate::run) has_own_uid: bool,
    pub(in crate::run) image: Option<&'plan SelectedImage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Missing,
    /// Behind a directory that this process may not enter.
    Inaccessible,
    /// Known only during a run.
    Unknown,
    Directory,
    Link(Vec<u8>),
    File {
        /// Whether the body may execute it.
        executable: bool,
        /// Its first bytes, if known.
        head: Option<Head>,
        /// Its path on the host; `None` for a file of the bundle or of the image.
        host: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) struct Program {
    pub(in crate::run) path: Vec<u8>,
    /// Its path on the host; `None` for any other file, and if it is unknown.
    pub(in crate::run) host: Option<PathBuf>,
}

/// Why a program cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) enum ExecError {
    Missing,
    /// The interpreter in a script's first line does not exist.
    InterpreterMissing {
        script: Program,
        /// As written in the first line.
        interpreter: Vec<u8>,
    },
    /// The interpreter exists but the body cannot execute it.
    InterpreterNotExecutable {
        script: Program,
        /// As written in the first line.
        interpreter: Vec<u8>,
    },
    /// A directory, or behind a directory that may not be entered.
    Inaccessible,
    /// A file without execute permission.
    NotExecutable(Program),
    /// Neither a binary nor a script with `#!`.
    UnknownFormat(Program),
    /// Too many links or nested interpreters.
    Loop,
}

impl ExecError {
    /// The errno of execve(2).
    pub(in crate::run) fn errno(&self) -> Errno {
        match self {
            Self::Missing | Self::InterpreterMissing { .. } => Errno::NOENT,
            Self::InterpreterNotExecutable { .. } | Self::Inaccessible | Self::NotExecutable(_) => {
                Errno::ACCESS
            }
            Self::UnknownFormat(_) => Errno::NOEXEC,
            Self::Loop => Errno::LOOP,
        }
    }
}

impl PredictedView<'_> {
    /// Predicts execve(2) of these paths in turn, as execvp(3) tries them.
    ///
    /// # Errors
    /// The first [`ExecError`] other than a missing path or permission; else the last of a
    /// permission; else the first of a missing path.
    pub(in crate::run) fn program(
        &self,
        candidates: &[Vec<u8>],
        working_directory: &[u8],
    ) -> Result<Program, ExecError> {
        let mut best_error = ExecError::Missing;
        let mut unknown = None;
        for candidate in candidates {
            let path = absolute(candidate, working_directory);
            match self.executable(&path, working_directory, 0) {
                // Prefers a path that certainly exists to one that may.
                Ok(None) if matches!(self.resolve(&path), Ok(Node::Unknown)) => {
                    unknown = unknown.or(Some(path));
                }
                Ok(host) => return Ok(Program { path, host }),
                Err(error) => match error.errno() {
                    Errno::NOENT if best_error == ExecError::Missing => best_error = error,
                    Errno::NOENT => (),
                    Errno::ACCESS => best_error = error,
                    _ if unknown.is_none() => return Err(error),
                    _ => break,
                },
            }
        }
        unknown
            .map(|path| Program { path, host: None })
            .ok_or(best_error)
    }

    /// The names in a mounted directory of the host or in a directory of the bundle.
    pub(in crate::run) fn names(&self, path: &[u8]) -> Vec<String> {
        match self.find_mount(path) {
            Some((ViewStep::Bind { source, .. }, rest)) => names_in(&on_host(source, rest)),
            Some((ViewStep::SelfBind { path: own }, rest)) if own == BUNDLE.as_bytes() => {
                let Some(bundle) = self.bundle else {
                    return Vec::new();
                };
                let name_in_directory = |path: &RelPath| {
                    let name = match rest {
                        [] => path.as_bytes(),
                        rest => path.as_bytes().strip_prefix(rest)?.strip_prefix(b"/")?,
                    };
                    let name = std::str::from_utf8(name).ok()?;
                    (!name.contains('/')).then(|| name.to_owned())
                };
                bundle
                    .tree()
                    .iter()
                    .filter_map(|(path, _)| name_in_directory(path))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// The format of a file; `None`: unknown.
    pub(in crate::run) fn format(&self, path: &[u8]) -> Option<Format> {
        match self.resolve(path) {
            Ok(Node::File { head, .. }) => head?.format(),
            _ => None,
        }
    }

    /// Resolves `path` as execve(2) does and returns the program. A relative interpreter is
    /// relative to the working directory.
    fn executable(
        &self,
        path: &[u8],
        working_directory: &[u8],
        scripts: usize,
    ) -> Result<Option<PathBuf>, ExecError> {
        let found = self.resolve(path).map_err(|errno| match errno {
            Errno::LOOP => ExecError::Loop,
            _ => ExecError::Missing,
        })?;
        let (executable, head, host) = match found {
            Node::Missing | Node::Link(_) => return Err(ExecError::Missing),
            Node::Inaccessible | Node::Directory => return Err(ExecError::Inaccessible),
            Node::Unknown => return Ok(None),
            Node::File {
                executable,
                head,
                host,
            } => (executable, head, host),
        };
        let program = || Program {
            path: path.to_vec(),
            host: host.clone(),
        };
        if !executable {
            return Err(ExecError::NotExecutable(program()));
        }
        match head.and_then(|head| head.format()) {
            None | Some(Format::Elf) => (),
            Some(Format::Script(words)) => {
                if scripts >= SCRIPTS_MAX {
                    return Err(ExecError::Loop);
                }
                let interpreter = words.into_iter().next().map(String::into_bytes);
                let interpreter = interpreter.ok_or_else(|| ExecError::UnknownFormat(program()))?;
                let named = absolute(&interpreter, working_directory);
                let found = self.executable(&named, working_directory, scripts + 1);
                found.map_err(|error| match error {
                    ExecError::Missing => ExecError::InterpreterMissing {
                        script: program(),
                        interpreter,
                    },
                    ExecError::Inaccessible | ExecError::NotExecutable(_) => {
                        ExecError::InterpreterNotExecutable {
                            script: program(),
                            interpreter,
                        }
                    }
                    error => error,
                })?;
            }
            Some(Format::Empty | Format::ByteOrderMark | Format::Binary | Format::Text) => {
                return Err(ExecError::UnknownFormat(program()));
            }
        }
        Ok(host)
    }

    /// Whether the body can start in `path`.
    ///
    /// # Errors
    /// The errno of chdir(2).
    pub(in crate::run) fn enter(&self, path: &[u8]) -> Result<(), Errno> {
        match self.resolve(path)? {
            Node::Directory | Node::Unknown => Ok(()),
            Node::Inaccessible => Err(Errno::ACCESS),
            Node::Missing | Node::Link(_) => Err(Errno::NOENT),
            Node::File { .. } => Err(Errno::NOTDIR),
        }
    }

    /// What is at an absolute path, whose links are followed as the body would.
    fn resolve(&self, path: &[u8]) -> Result<Node, Errno> {
        self.locate(path).map(|(_, node)| node)
    }

    /// As [`Self::resolve`], and the path without links.
    ///
    /// # Errors
    /// ELOOP, ENOTDIR.
    pub(super) fn locate(&self, path: &[u8]) -> Result<(Vec<u8>, Node), Errno> {
        let mut left: Vec<Vec<u8>> = segments(path);
        let mut current: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        let mut last = Node::Directory;
        while let Some(segment) = left.pop() {
            if segment == b".." {
                current.pop();
                last = Node::Directory;
                continue;
            }
            current.push(segment);
            last = self.node(&joined(&current));
            match &last {
                Node::Link(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    current.pop();
                    if target.starts_with(b"/") {
                        current.clear();
                    }
                    left.extend(segments(target));
                }
                Node::Directory if left.is_empty() || self.may_search(&joined(&current)) => (),
                Node::Directory => last = Node::Inaccessible,
                Node::File { .. } if left.is_empty() => (),
                Node::File { .. } => return Err(Errno::NOTDIR),
                Node::Missing | Node::Inaccessible | Node::Unknown => (),
            }
            if matches!(last, Node::Missing | Node::Inaccessible | Node::Unknown) {
                left.reverse();
                current.append(&mut left);
            }
        }
        let node = match last {
            Node::Link(_) => Node::Directory,
            other => other,
        };
        Ok((joined(&current), node))
    }

    /// Whether the body may use names in this directory. An ordinary user's own look-ups show it.
    fn may_search(&self, directory: &[u8]) -> bool {
        let found = self.has_own_uid.then(|| self.rights(directory)).flatten();
        found.is_none_or(|rights| rights.execute)
    }

    /// What is at exactly this path, whose parents are directories.
    fn node(&self, path: &[u8]) -> Node {
        match self.find_mount(path) {
            Some((ViewStep::Bind { source, target, .. }, rest)) => {
                self.host_node(source, rest, target)
            }
            Some((ViewStep::SelfBind { path: own }, rest)) if own == BUNDLE.as_bytes() => self
                .bundle_node(rest)
                .unwrap_or_else(|| self.created_node(path)),
            Some((
                ViewStep::Attach { .. }
                | ViewStep::AttachOverlay { .. }
                | ViewStep::BindFromSpace { .. },
                _,
            )) => Node::Unknown,
            _ => self.created_node(path),
        }
    }

    /// The mount that a path lies in, and the rest of the path.
    pub(in crate::run) fn find_mount<'path>(
        &self,
        path: &'path [u8],
    ) -> Option<(&ViewStep, &'path [u8])> {
        let below = |mount: &[u8]| beneath(path, mount);
        // The deepest mount wins; of two at one path, the later one.
        self.steps
            .iter()
            .filter_map(|step| match step {
                ViewStep::Bind { target, .. }
                | ViewStep::BindFromSpace { target, .. }
                | ViewStep::Attach { target, .. }
                | ViewStep::AttachOverlay { target, .. }
                | ViewStep::Tmpfs { target, .. }
                | ViewStep::SelfBind { path: target } => Some((target.len(), step, below(target)?)),
                _ => None,
            })
            .max_by_key(|(depth, ..)| *depth)
            .map(|(_, step, rest)| (step, rest))
    }

    /// What the runner creates at a path of the new root.
    fn created_node(&self, path: &[u8]) -> Node {
        for step in self.steps {
            match step {
                ViewStep::Symlink { path: at, target } if at == path => {
                    return Node::Link(target.clone());
                }
                ViewStep::File { path: at, .. } if at == path => {
                    return Node::File {
                        executable: false,
                        head: None,
                        host: None,
                    };
                }
                _ => (),
            }
        }
        let is_above = |at: &[u8]| beneath(at, path).is_some();
        let is_directory = self.steps.iter().any(|step| match step {
            ViewStep::Directory { path: at, .. }
            | ViewStep::SelfBind { path: at }
            | ViewStep::Tmpfs { target: at, .. } => is_above(at),
            _ => false,
        });
        if is_directory {
            return Node::Directory;
        }
        // Mounted over the image as well.
        let filled_in_a_run = [&b"/proc"[..], b"/dev", b"/scratch", b"/runner"];
        if filled_in_a_run
            .iter()
            .any(|top| beneath(path, top).is_some())
        {
            return Node::Unknown;
        }
        self.image
            .map_or(Node::Missing, |image| image_node(image, path))
    }

    fn bundle_node(&self, rest: &[u8]) -> Option<Node> {
        let Some(bundle) = self.bundle else {
            return Some(Node::Unknown);
        };
        if rest.is_empty() {
            return Some(Node::Directory);
        }
        let path = RelPath::parse(rest).ok()?;
        Some(match bundle.tree().get(&path)? {
            Entry::Directory => Node::Directory,
            Entry::Symlink { target } => Node::Link(target.clone()),
            Entry::File { executable, .. } => Node::File {
                executable: *executable,
                head: bundle.head(&path, HEAD_BYTES).ok().map(Head::of_stranger),
                host: None,
            },
        })
    }

    fn host_node(&self, source: &[u8], rest: &[u8], target: &[u8]) -> Node {
        let path = on_host(source, rest);
        // The mount follows a link at its source; the body follows those below it.
        let found = match rest {
            [] => std::fs::metadata(&path),
            _ => std::fs::symlink_metadata(&path),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                return match error.kind() {
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                        Node::Missing
                    }
                    std::io::ErrorKind::PermissionDenied => Node::Inaccessible,
                    _ => Node::Unknown,
                };
            }
        };
        if found.is_symlink() {
            return match std::fs::read_link(&path) {
                Ok(target) => Node::Link(target.into_os_string().into_vec()),
                Err(_) => Node::Unknown,
            };
        }
        if found.is_dir() {
            return Node::Directory;
        }
        let executable = || {
            let rights = self.rights_on_host(&path, &found, source, target);
            rights.execute && !forbids_programs(&path)
        };
        Node::File {
            executable: found.is_file() && executable(),
            // Opens regular files only: opening a device can have effects.
            head: found
                .is_file()
                .then(|| Head::read(&path, !rest.is_empty()))
                .flatten(),
            host: Some(path),
        }
    }
}

/// An image resolves its own links; an image that is not in the store may contain anything.
fn image_node(image: &SelectedImage, path: &[u8]) -> Node {
    let Some(opened) = &image.opened else {
        return Node::Unknown;
    };
    match opened.image.kind_of(path) {
        Ok(Some(Kind::Directory)) => Node::Directory,
        Ok(Some(Kind::File { executable })) => Node::File {
            executable,
            head: head_in_image(opened, path),
            host: None,
        },
        Ok(None) => Node::Missing,
        Err(_unreadable) => Node::Unknown,
    }
}

/// The first bytes of a file of the image that is small enough for a script.
fn head_in_image(opened: &OpenedImage, path: &[u8]) -> Option<Head> {
    let text = opened.image.read_file(path, SCRIPT_BYTES_MAX).ok()??;
    Some(Head::of_stranger(text))
}

/// Whether the host's mount of `path` is noexec, which the mount in the view inherits.
pub(super) fn forbids_programs(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// The names in a directory of the host; empty if it cannot be read.
pub(super) fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(NAMES_MAX)
        .collect()
}

/// The path on the host of `rest` below the source of a mount.
pub(in crate::run) fn on_host(source: &[u8], rest: &[u8]) -> PathBuf {
    let source = PathBuf::from(OsString::from_vec(source.to_vec()));
    match rest {
        [] => source,
        rest => source.join(OsString::from_vec(rest.to_vec())),
    }
}

/// The part of `path` below `directory`: empty if they are equal.
pub(in crate::run) fn beneath<'path>(path: &'path [u8], directory: &[u8]) -> Option<&'path [u8]> {
    match path.strip_prefix(directory)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// The segments of a path, the first one last.
fn segments(path: &[u8]) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = path
        .split(|byte| *byte == b'/')
        .filter(|segment| !segment.is_empty() && *segment != b".")
        .map(<[u8]>::to_vec)
        .collect();
    found.reverse();
    found
}

fn joined(segments: &[Vec<u8>]) -> Vec<u8> {
    segments
        .iter()
        .flat_map(|segment| [&b"/"[..], segment])
        .collect::<Vec<&[u8]>>()
        .concat()
}

/// `path` as seen from `working_directory`.
pub(in crate::run) fn absolute(path: &[u8], working_directory: &[u8]) -> Vec<u8> {
    match path {
        [b'/', ..] => path.to_vec(),
        // Without the `./`, as a user writes it.
        [b'.', b'/', rest @ ..] => [working_directory, b"/", rest].concat(),
        _ => [working_directory, b"/", path].concat(),
    }
}

pub(in crate::run) fn interpreter(interpreter: Interpreter) -> String {
    match interpreter {
        Interpreter::Node => "node",
        Interpreter::Tsx => "tsx",
        Interpreter::Npx => "npx",
        Interpreter::Python => "python",
        Interpreter::Bash => "bash",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox::view::Access;

    #[test]
    fn an_unknown_path_is_preferred_to_a_later_error() {
        let directory = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("loop", directory.path().join("loop")).expect("a link");
        let steps = [ViewStep::Bind {
            source: directory.path().as_os_str().as_encoded_bytes().to_vec(),
            target: b"/data".to_vec(),
            access: Access::ReadOnly,
        }];
        let inside = PredictedView {
            steps: &steps,
            bundle: None,
            has_own_uid: false,
            image: None,
        };
        let [unknown, looping] = [&b"/scratch/tool"[..], b"/data/loop"].map(<[u8]>::to_vec);
        let alone = inside.program(std::slice::from_ref(&looping), b"/");
        assert_eq!(alone, Err(ExecError::Loop));
        let program = inside.program(&[unknown.clone(), looping], b"/");
        assert_eq!(program.map(|program| program.path), Ok(unknown));
    }
}
