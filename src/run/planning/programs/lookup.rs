//! Finds programs that the fixed PATH inside lacks on the caller's PATH, to be mounted.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::plan::environment;
use crate::plan::grants::{Origin, Ungranted};
use crate::run::error::RunError;
use crate::run::planning::programs::interpreters;
use crate::run::planning::resolved::{ResolvedRun, is_mounted_in_place, path_bytes};
use crate::run::unpacking::bundle_files::BundleFiles;
use archive::Entry;
use sandbox::view::{BASE_CANDIDATES, check_target};
use spec::host_policy::HostPolicy;
use spec::path::{RelPath, escape, escape_path, quoted};
use spec::request::{Caller, Request, ViewEntry};

/// Whether the base view, without an image, contains this path of the host.
#[must_use]
pub(in crate::run) fn is_in_base_view(path: &Path) -> bool {
    BASE_CANDIDATES
        .iter()
        .any(|visible| path.starts_with(visible))
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Program {
    /// The path to mount, at the same place.
    bind: Option<PathBuf>,
    /// Its path, if it is mounted without the link of its name.
    target: Option<PathBuf>,
    /// Its directory inside, to be added to the PATH.
    directory: Option<Vec<u8>>,
}

/// Path of `name` on the host: on the fixed PATH, below a named prefix, or on the caller's PATH.
#[must_use]
pub(in crate::run) fn locate(
    name: &OsStr,
    caller: &Caller,
    interpreters: &[PathBuf],
) -> Option<PathBuf> {
    let fixed = environment::PATH.split(':').map(PathBuf::from);
    let named = interpreters.iter().map(|prefix| prefix.join("bin"));
    let callers = caller
        .path
        .split(|byte| *byte == b':')
        .filter(|directory| directory.first() == Some(&b'/'))
        .map(|directory| PathBuf::from(OsStr::from_bytes(directory)));
    fixed
        .chain(named)
        .chain(callers)
        .map(|at| at.join(name))
        .find(|path| is_executable(path))
}

/// Path of an interpreter that the body can use. A script on the caller's PATH (a shim of a version
/// manager) is not accepted, since its dependencies are unknown.
#[must_use]
pub(super) fn locate_usable(
    name: &OsStr,
    caller: &Caller,
    interpreters: &[PathBuf],
) -> Option<PathBuf> {
    let path = locate(name, caller, interpreters)?;
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    (is_in_base_view(&real) || !is_script(&real)).then_some(path)
}

impl ResolvedRun {
    /// Finds and mounts the program of a bundle. A bundle's own manifest gets interpreters only: by any
    /// other name it would choose a directory of the host.
    ///
    /// # Errors
    /// As [`find`]; [`RunError::Ungranted`].
    pub(in crate::run::planning) fn find_program(
        &mut self,
        request: &Request,
        policy: &HostPolicy,
        bundle: &dyn BundleFiles,
    ) -> Result<(), RunError> {
        let (Some(name), None) = (self.argv.first(), &self.image) else {
            return Ok(());
        };
        // The PATH inside begins with the bundle's own programs, unless the caller sets it.
        let is_path_set = self.environment.iter().any(|(known, _)| known == b"PATH");
        if self.program.is_none() && !is_path_set && has_own_program(bundle, name) {
            return Ok(());
        }
        let found = find(
            name,
            &request.caller,
            request.bundle.workspace.as_deref(),
            &policy.interpreters,
            &|path| is_mounted_in_place(&self.view, path),
        )?;
        if let Some(source) = found.bind
            && !is_mounted_in_place(&self.view, &source)
        {
            let is_named_by_caller = self.origin == Origin::Caller || request.bundle.run.is_some();
            let is_interpreter = interpreters::NAMES
                .iter()
                .any(|known| known.as_bytes() == name);
            if !is_named_by_caller && !is_interpreter && !policy.interpreters.contains(&source) {
                let shown = escape(&path_bytes(&source));
                return Err(RunError::Ungranted(vec![Ungranted {
                    what: format!("the program {} in {shown} (run)", escape(name)),
                    flag: format!("--ro {}", quoted(&shown)),
                }]));
            }
            self.bound.push(escape(&path_bytes(&source)));
            self.view.push(ViewEntry::Bind {
                target: source.clone(),
                source,
                writable: false,
            });
        }
        if let Some(target) = found.target {
            self.program = Some(path_bytes(&target));
        }
        self.program_directories.extend(found.directory);
        Ok(())
    }
}

/// Whether the bundle has a program of this name in `node_modules/.bin`.
fn has_own_program(bundle: &dyn BundleFiles, name: &[u8]) -> bool {
    let path = RelPath::parse(&[b"node_modules/.bin/", name].concat()).ok();
    let entry = path.and_then(|path| bundle.tree().get(&path));
    let is_program = |entry: &Entry| match entry {
        Entry::Directory => false,
        Entry::File { executable, .. } => *executable,
        Entry::Symlink { .. } => true,
    };
    !name.contains(&b'/') && entry.is_some_and(is_program)
}

/// Looks up `name` on the caller's PATH if the fixed PATH inside lacks it.
///
/// A binary is mounted with the directory above its `bin` if that is a separate prefix and not a
/// home; otherwise alone. `interpreters` are prefixes that the host policy names. `is_mounted` says
/// whether the caller mounted a path; a script there is allowed.
///
/// # Errors
/// [`RunError::Argument`] for a script, whose dependencies are unknown.
fn find(
    name: &[u8],
    caller: &Caller,
    workspace: Option<&Path>,
    interpreters: &[PathBuf],
    is_mounted: &dyn Fn(&Path) -> bool,
) -> Result<Program, RunError> {
    if name.contains(&b'/') || name.is_empty() {
        return Ok(Program::default());
    }
    let Some(path) = locate(OsStr::from_bytes(name), caller, interpreters) else {
        return Ok(Program::default());
    };
    // Resolves links into a version directory (`bin/node -> ../lib/node/bin/node`).
    let real = path
        .canonicalize()
        .unwrap_or_else(|_unreadable| path.clone());
    if is_in_base_view(&real) {
        return Ok(Program::default());
    }
    if is_script(&real) {
        if !is_mounted(&real) {
            return Err(refuse_script(&path, &real, caller, workspace));
        }
        let target = (!is_mounted(&path)).then(|| real.clone());
        return Ok(Program {
            bind: None,
            directory: directory_of(target.as_ref().unwrap_or(&path)),
            target,
        });
    }
    let source = interpreters
        .iter()
        .find(|prefix| real.starts_with(prefix.join("bin")))
        .cloned()
        .or_else(|| prefix_of(&real, caller, workspace))
        .unwrap_or_else(|| real.clone());
    // The link's directory is not mounted, and the name may exist as a link only.
    let target = (!path.starts_with(&source)).then_some(real);
    Ok(Program {
        bind: Some(source),
        directory: directory_of(target.as_ref().unwrap_or(&path)),
        target,
    })
}

/// Refuses a script outside the system directories: its dependencies are unknown.
pub(super) fn refuse_script(
    path: &Path,
    real: &Path,
    caller: &Caller,
    workspace: Option<&Path>,
) -> RunError {
    // `bin/npm` is a link to `lib/node_modules/npm/bin/npm-cli.js`: both are needed.
    let needed = prefix_of(path, caller, workspace)
        .filter(|prefix| real.starts_with(prefix))
        .or_else(|| real.parent().map(Path::to_path_buf))
        .unwrap_or_default();
    let object = escape_path(real);
    RunError::Argument {
        code: "program_is_script",
        what: "program",
        hint: Some(format!(
            "mount what it needs: --ro {}",
            quoted(&escape_path(&needed))
        )),
        object,
        problem: "is a script outside the system directories: what else it needs is unknown"
            .to_owned(),
    }
}

/// The directory above the `bin` of `program`, if it may be mounted as a whole.
pub(super) fn prefix_of(
    program: &Path,
    caller: &Caller,
    workspace: Option<&Path>,
) -> Option<PathBuf> {
    let bin = program.parent()?;
    if bin.file_name()? != "bin" {
        return None;
    }
    let prefix = bin.parent()?;
    may_be_mounted(prefix, caller, workspace).then(|| prefix.to_path_buf())
}

/// Whether a directory that programs need may be mounted as a whole.
pub(super) fn may_be_mounted(prefix: &Path, caller: &Caller, workspace: Option<&Path>) -> bool {
    // `~/.local` and `~/.cargo` contain a `bin`, but also keyrings and tokens.
    let is_hidden = prefix
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(b"."));
    let parent = prefix.parent();
    let may_contain_secrets = is_hidden && parent.is_some_and(|above| is_home(above, caller));
    let contains = |path: Option<&Path>| named_and_real(path).any(|path| path.starts_with(prefix));
    let is_writable_by_others =
        std::fs::metadata(prefix).map_or(true, |found| found.mode() & 0o002 != 0);
    let refused = check_target(prefix.as_os_str().as_bytes()).is_err()
        || contains_home(prefix, caller)
        || may_contain_secrets
        || contains(workspace)
        || contains(caller.working_directory.as_deref())
        || is_writable_by_others;
    !refused
}

/// `path` as it is named, and without links.
fn named_and_real(path: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let real = path.and_then(|path| path.canonicalize().ok());
    path.map(Path::to_path_buf).into_iter().chain(real)
}

/// Whether `path` is a home, such as the caller's.
pub(in crate::run::planning) fn is_home(path: &Path, caller: &Caller) -> bool {
    named_and_real(caller.home.as_deref()).any(|home| home == path)
        || path == Path::new("/root")
        || path.parent() == Some(Path::new("/home"))
}

/// Whether `path` is a home, or contains the caller's.
fn contains_home(path: &Path, caller: &Caller) -> bool {
    let mut homes = named_and_real(caller.home.as_deref());
    is_home(path, caller) || homes.any(|home| home.starts_with(path))
}

/// The executable of a command that is named by its path; `None` for a name without a slash.
#[must_use]
pub(in crate::run::planning) fn path_of_command(
    name: &[u8],
    working_directory: Option<&Path>,
) -> Option<PathBuf> {
    if !name.contains(&b'/') {
        return None;
    }
    let path = PathBuf::from(std::ffi::OsString::from_vec(name.to_vec()));
    if path.is_absolute() {
        Some(normalize(&path))
    } else {
        Some(normalize(&working_directory?.join(path)))
    }
}

/// The path without `.` and empty segments, with `..` resolved lexically.
pub(in crate::run) fn normalize(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => (),
            std::path::Component::ParentDir => {
                cleaned.pop();
            }
            other => cleaned.push(other),
        }
    }
    cleaned
}

pub(in crate::run) fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[must_use]
pub(in crate::run::planning) fn is_script(path: &Path) -> bool {
    let mut head = [0; 2];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut head))
        .is_ok()
        && head == *b"#!"
}

pub(super) fn directory_of(path: &Path) -> Option<Vec<u8>> {
    Some(path.parent()?.as_os_str().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(directory: &Path, name: &str, head: &[u8]) -> PathBuf {
        std::fs::create_dir_all(directory).expect("made");
        let path = directory.join(name);
        std::fs::write(&path, head).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
        path
    }

    fn caller_with(path: &Path) -> Caller {
        Caller {
            path: path.as_os_str().as_bytes().to_vec(),
            ..Caller::default()
        }
    }

    #[test]
    fn a_binary_of_the_caller_is_shown_with_the_prefix_that_it_belongs_to() {
        let home = tempfile::tempdir().expect("a directory");
        let bin = home.path().join("tool-1.2/bin");
        program(&bin, "only-here-7f3a", b"\x7fELF");
        let found = find(b"only-here-7f3a", &caller_with(&bin), None, &[], &|_path| {
            false
        })
        .expect("found");
        let prefix = home.path().join("tool-1.2").canonicalize().expect("real");
        assert_eq!(found.bind, Some(prefix));
    }

    #[test]
    fn a_prefix_that_is_a_home_or_holds_the_workspace_is_not_shown() {
        let home = tempfile::tempdir().expect("a directory");
        let real = home.path().canonicalize().expect("real");
        let bin = real.join("bin");
        let path = program(&bin, "only-here-7f3a", b"\x7fELF");
        let mut caller = caller_with(&bin);
        caller.home = Some(real.clone());
        let found = find(b"only-here-7f3a", &caller, None, &[], &|_path| false).expect("found");
        assert_eq!(found.bind.as_ref(), Some(&path));
        let links = tempfile::tempdir().expect("a directory");
        let link = links.path().join("home");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        caller.home = Some(link);
        let found = find(b"only-here-7f3a", &caller, None, &[], &|_path| false).expect("found");
        assert_eq!(found.bind.as_ref(), Some(&path));
        caller.home = None;
        let workspace = real.join("work");
        let found = find(
            b"only-here-7f3a",
            &caller,
            Some(&workspace),
            &[],
            &|_path| false,
        )
        .expect("found");
        assert_eq!(found.bind, Some(path));
    }

    #[test]
    fn a_program_in_a_hidden_directory_of_the_home_is_shown_without_what_lies_beside_it() {
        let home = tempfile::tempdir().expect("a directory");
        let real = home.path().canonicalize().expect("real");
        let bin = real.join(".local/bin");
        let path = program(&bin, "only-here-7f3a", b"\x7fELF");
        let mut caller = caller_with(&bin);
        caller.home = Some(real.clone());
        let found = find(b"only-here-7f3a", &caller, None, &[], &|_path| false).expect("found");
        assert_eq!(found.bind, Some(path));
        // A prefix that the host policy names is mounted as a whole.
        let named = [real.join(".local")];
        let found = find(b"only-here-7f3a", &caller, None, &named, &|_path| false).expect("found");
        assert_eq!(found.bind.as_ref(), Some(&named[0]));
        // A prefix of a version switcher lies deeper, and holds one version of one toolchain.
        let prefix = real.join(".switcher/versions/1.2");
        program(&prefix.join("bin"), "deeper-7f3a", b"\x7fELF");
        caller.path = prefix.join("bin").into_os_string().into_encoded_bytes();
        let found = find(b"deeper-7f3a", &caller, None, &[], &|_path| false).expect("found");
        assert_eq!(found.bind, Some(prefix));
    }

    #[test]
    fn a_script_of_the_caller_is_refused_with_the_flag_to_paste() {
        let home = tempfile::tempdir().expect("a directory");
        program(home.path(), "only-here-7f3a", b"#!/bin/sh\n");
        let error = find(
            b"only-here-7f3a",
            &caller_with(home.path()),
            None,
            &[],
            &|_path| false,
        );
        assert!(matches!(
            error,
            Err(RunError::Argument {
                code: "program_is_script",
                ..
            })
        ));
    }

    #[test]
    fn a_shim_on_the_caller_s_path_is_no_interpreter() {
        let home = tempfile::tempdir().expect("a directory");
        program(home.path(), "only-here-7f3a", b"#!/bin/sh\n");
        let caller = caller_with(home.path());
        let locate = |name: &str| locate_usable(name.as_ref(), &caller, &[]);
        assert_eq!(locate("only-here-7f3a"), None);
        assert!(locate("sh").is_some());
    }

    #[test]
    fn an_interpreter_is_found_in_a_prefix_of_the_policy() {
        let home = tempfile::tempdir().expect("a directory");
        let named = [home.path().to_path_buf()];
        let path = program(&named[0].join("bin"), "only-here-7f3a", b"\x7fELF");
        let caller = caller_with(Path::new("/nonexistent"));
        let found = locate_usable("only-here-7f3a".as_ref(), &caller, &named);
        assert_eq!(found, Some(path));
    }

    #[test]
    fn a_script_that_the_caller_made_visible_runs_and_the_hint_names_what_does_it() {
        let home = tempfile::tempdir().expect("a directory");
        let prefix = home.path().canonicalize().expect("real").join("tool-1.2");
        program(&prefix.join("lib/tool"), "main.js", b"#!/bin/sh\n");
        let bin = prefix.join("bin");
        std::fs::create_dir(&bin).expect("made");
        std::os::unix::fs::symlink("../lib/tool/main.js", bin.join("only-here-7f3a"))
            .expect("linked");
        let caller = caller_with(&bin);
        let error = find(b"only-here-7f3a", &caller, None, &[], &|_path| false);
        let Err(RunError::Argument {
            hint: Some(hint), ..
        }) = error
        else {
            panic!("{error:?}");
        };
        assert!(
            hint.ends_with(&format!("--ro {}", prefix.display())),
            "{hint}"
        );
        let is_mounted = |path: &Path| path.starts_with(&prefix);
        let found = find(b"only-here-7f3a", &caller, None, &[], &is_mounted).expect("found");
        let expected = Program {
            directory: directory_of(&bin.join("only-here-7f3a")),
            ..Program::default()
        };
        assert_eq!(found, expected);
        // The link is not mounted: the script runs by its own path.
        let script = prefix.join("lib/tool/main.js");
        let is_mounted = |path: &Path| path.starts_with(prefix.join("lib"));
        let found = find(b"only-here-7f3a", &caller, None, &[], &is_mounted).expect("found");
        assert_eq!(found.directory, directory_of(&script));
        assert_eq!(found.target, Some(script));
    }

    #[test]
    fn a_program_of_the_system_needs_nothing() {
        let found = find(
            b"sh",
            &caller_with(Path::new("/nonexistent")),
            None,
            &[],
            &|_path| false,
        );
        assert_eq!(found.expect("found"), Program::default());
    }
}
