//! Finds programs that the fixed PATH inside lacks on the caller's PATH, to be mounted.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::plan::environment;
use crate::run::error::RunError;
use sandbox::view::BASE_CANDIDATES;
use spec::path::escape;
use spec::request::{Caller, ViewEntry};

/// Whether the base view, without an image, contains this path of the host.
#[must_use]
pub(in crate::run) fn is_in_base_view(path: &Path) -> bool {
    BASE_CANDIDATES
        .iter()
        .any(|visible| path.starts_with(visible))
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::run::planning) struct Program {
    pub(in crate::run::planning) bind: Option<ViewEntry>,
    /// Its directory inside, to be added to the PATH.
    pub(in crate::run::planning) directory: Option<Vec<u8>>,
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
pub(super) fn locate_usable(name: &OsStr, caller: &Caller) -> Option<PathBuf> {
    let path = locate(name, caller, &[])?;
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    (is_in_base_view(&real) || !is_script(&real)).then_some(path)
}

/// Looks up `name` on the caller's PATH if the fixed PATH inside lacks it.
///
/// A binary is mounted with the directory above its `bin` if that is a separate prefix and not a
/// home; otherwise alone. `interpreters` are prefixes that the host policy names. `is_mounted` says
/// whether the caller mounted a path; a script there is allowed.
///
/// # Errors
/// [`RunError::Argument`] for a script, whose dependencies are unknown.
pub(in crate::run::planning) fn find(
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
        if is_mounted(&path) && is_mounted(&real) {
            return Ok(Program {
                bind: None,
                directory: directory_of(&path),
            });
        }
        return Err(refuse_script(&path, &real, caller, workspace));
    }
    let source = interpreters
        .iter()
        .find(|prefix| real.starts_with(prefix.join("bin")))
        .cloned()
        .or_else(|| prefix_of(&real, caller, workspace))
        .unwrap_or_else(|| real.clone());
    // The requested name may exist as a link only.
    let directory = if path.starts_with(&source) {
        directory_of(&path)
    } else {
        directory_of(&real)
    };
    Ok(Program {
        bind: Some(ViewEntry::Bind {
            source: source.clone(),
            target: source,
            writable: false,
        }),
        directory,
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
    let object = escape(real.as_os_str().as_bytes());
    RunError::Argument {
        code: "program_is_script",
        what: "program",
        hint: Some(format!(
            "mount what it needs: --ro {}",
            escape(needed.as_os_str().as_bytes())
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
    let is_home = |path: &Path| {
        caller.home.as_deref() == Some(path)
            || path == Path::new("/root")
            || path.parent() == Some(Path::new("/home"))
    };
    let contains_home = is_home(prefix)
        || caller
            .home
            .as_deref()
            .is_some_and(|home| home.starts_with(prefix));
    // `~/.local` and `~/.cargo` contain a `bin`, but also keyrings and tokens.
    let is_hidden = prefix
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(b"."));
    let may_contain_secrets = is_hidden && prefix.parent().is_some_and(is_home);
    let contains = |path: Option<&Path>| path.is_some_and(|path| path.starts_with(prefix));
    let is_writable_by_others =
        std::fs::metadata(prefix).map_or(true, |found| found.mode() & 0o002 != 0);
    let refused = prefix == Path::new("/")
        || contains_home
        || may_contain_secrets
        || contains(workspace)
        || contains(caller.working_directory.as_deref())
        || is_writable_by_others;
    (!refused).then(|| prefix.to_path_buf())
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
        let bind = ViewEntry::Bind {
            source: prefix.clone(),
            target: prefix,
            writable: false,
        };
        assert_eq!(found.bind, Some(bind));
    }

    #[test]
    fn a_prefix_that_is_a_home_or_holds_the_workspace_is_not_shown() {
        let home = tempfile::tempdir().expect("a directory");
        let real = home.path().canonicalize().expect("real");
        let bin = real.join("bin");
        let path = program(&bin, "only-here-7f3a", b"\x7fELF");
        let mut caller = caller_with(&bin);
        caller.home = Some(real.clone());
        let alone = ViewEntry::Bind {
            source: path.clone(),
            target: path,
            writable: false,
        };
        let found = find(b"only-here-7f3a", &caller, None, &[], &|_path| false).expect("found");
        assert_eq!(found.bind, Some(alone.clone()));
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
        assert_eq!(found.bind, Some(alone));
    }

    #[test]
    fn a_program_in_a_hidden_directory_of_the_home_is_shown_without_what_lies_beside_it() {
        let home = tempfile::tempdir().expect("a directory");
        let real = home.path().canonicalize().expect("real");
        let bin = real.join(".local/bin");
        let path = program(&bin, "only-here-7f3a", b"\x7fELF");
        let mut caller = caller_with(&bin);
        caller.home = Some(real.clone());
        let alone = ViewEntry::Bind {
            source: path.clone(),
            target: path,
            writable: false,
        };
        let found = find(b"only-here-7f3a", &caller, None, &[], &|_path| false).expect("found");
        assert_eq!(found.bind, Some(alone));
        // A prefix that the host policy names is mounted as a whole.
        let named = [real.join(".local")];
        let found = find(b"only-here-7f3a", &caller, None, &named, &|_path| false).expect("found");
        let whole = found.bind.expect("bound");
        assert!(
            matches!(&whole, ViewEntry::Bind { source, .. } if *source == named[0]),
            "{whole:?}"
        );
        // A prefix of a version switcher lies deeper, and holds one version of one toolchain.
        let prefix = real.join(".switcher/versions/1.2");
        program(&prefix.join("bin"), "deeper-7f3a", b"\x7fELF");
        caller.path = prefix.join("bin").into_os_string().into_encoded_bytes();
        let found = find(b"deeper-7f3a", &caller, None, &[], &|_path| false).expect("found");
        let whole = ViewEntry::Bind {
            source: prefix.clone(),
            target: prefix,
            writable: false,
        };
        assert_eq!(found.bind, Some(whole));
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
        assert_eq!(locate_usable("only-here-7f3a".as_ref(), &caller), None);
        assert!(locate_usable("sh".as_ref(), &caller).is_some());
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
            bind: None,
            directory: directory_of(&bin.join("only-here-7f3a")),
        };
        assert_eq!(found, expected);
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
