//! Finds the program that the caller's shell would start, and the directories that it needs.
//!
//! It is the first match on the caller's PATH, as in execvp(3). If that one cannot be mounted, no
//! program of the system replaces it. Shims of version managers are read, never executed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::run::error::RunError;
use crate::run::planning::programs::lookup::{
    directory_of, is_executable, is_in_base_view, is_script, prefix_of, refuse_script,
};
use crate::run::planning::programs::shebang::{first_line, read_head, split_words};
use crate::run::planning::programs::shims::{self, Shim};
use spec::path::escape;
use spec::request::Caller;

/// The file in which a Python virtual environment names its base installation (PEP 405).
const VENV: &str = "pyvenv.cfg";
const VENV_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(in crate::run) struct Found {
    /// Its path, the same on the host and inside.
    pub(in crate::run) program: PathBuf,
    /// Paths that must be mounted for it, read-only, at the same place.
    pub(in crate::run) needs: Vec<PathBuf>,
    /// The directory to prepend to the PATH inside; `None` if the default PATH has it.
    pub(in crate::run) directory: Option<Vec<u8>>,
}

/// Resolves the first word of `argv` as the caller's shell does; `None` if the caller's PATH has no
/// match. `interpreters` are prefixes that the host policy names; `is_mounted` says whether the caller
/// mounted a path.
///
/// # Errors
/// [`RunError::Argument`] if the program or its dependencies are unknown.
pub(in crate::run::planning) fn find(
    argv: &[Vec<u8>],
    caller: &Caller,
    interpreters: &[PathBuf],
    is_mounted: &dyn Fn(&Path) -> bool,
) -> Result<Option<Found>, RunError> {
    let Some((name, words)) = argv.split_first() else {
        return Ok(None);
    };
    if name.is_empty() || name.contains(&b'/') {
        return Ok(None);
    }
    for path in on_path(OsStr::from_bytes(name), caller) {
        match shims::read(&path, words, caller) {
            Shim::NextOnPath => (),
            Shim::Ordinary => return resolve(path, caller, interpreters, is_mounted).map(Some),
            Shim::Target(path) => return resolve(path, caller, interpreters, is_mounted).map(Some),
            Shim::Unknown {
                manager,
                problem,
                hint,
            } => {
                return Err(RunError::Argument {
                    code: "program_is_shim",
                    what: "program",
                    object: escape(path.as_os_str().as_bytes()),
                    problem: format!("is a shim of {manager}: {problem}"),
                    hint: Some(hint),
                });
            }
        }
    }
    Ok(None)
}

/// Every match on the caller's PATH. An empty entry is the working directory.
fn on_path(name: &OsStr, caller: &Caller) -> impl Iterator<Item = PathBuf> {
    let here = caller.working_directory.clone();
    let entries = caller.path.split(|byte| *byte == b':');
    entries
        .filter(|_| !caller.path.is_empty())
        .filter_map(move |entry| Some(here.as_ref()?.join(OsStr::from_bytes(entry)).join(name)))
        .filter(|path| is_executable(path))
}

pub(in crate::run) fn resolve(
    path: PathBuf,
    caller: &Caller,
    interpreters: &[PathBuf],
    is_mounted: &dyn Fn(&Path) -> bool,
) -> Result<Found, RunError> {
    if let Some(environment) = find_environment(&path) {
        return Ok(resolve_in_environment(path, environment, caller));
    }
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let is_system = is_in_base_view(&path);
    if is_in_base_view(&real) {
        return Ok(Found {
            directory: None,
            needs: Vec::new(),
            program: if is_system { path } else { real },
        });
    }
    if is_script(&real) {
        let prefix = prefix_of(&path, caller, None);
        if let Some(prefix) = prefix.filter(|prefix| is_self_contained(prefix, &real)) {
            return Ok(Found {
                directory: directory_of(&path),
                needs: vec![prefix],
                program: path,
            });
        }
        if !(is_mounted(&path) && is_mounted(&real)) {
            return Err(refuse_script(&path, &real, caller, None));
        }
        return Ok(Found {
            directory: directory_of(&path),
            needs: Vec::new(),
            program: path,
        });
    }
    let named = interpreters
        .iter()
        .find(|prefix| real.starts_with(prefix.join("bin")));
    let source = named.cloned().or_else(|| prefix_of(&real, caller, None));
    let source = source.unwrap_or_else(|| real.clone());
    let program = if path.starts_with(&source) || is_system {
        path
    } else {
        // The link's directory is not mounted.
        real
    };
    Ok(Found {
        directory: directory_of(&program).filter(|_| !is_system),
        needs: vec![source],
        program,
    })
}

/// Whether a script and its interpreter lie below `prefix`, as `bin/npm` beside `bin/node`.
fn is_self_contained(prefix: &Path, script: &Path) -> bool {
    let Some(head) = read_head(script, false).filter(|_| script.starts_with(prefix)) else {
        return false;
    };
    let line = first_line(&head).unwrap_or_default();
    // A wrong line end is reported when the script does not start.
    let mut words = split_words(line.strip_suffix(b"\r").unwrap_or(line));
    let interpreter = match words.next() {
        Some(b"/usr/bin/env") => words
            .next()
            .map(|name| prefix.join("bin").join(OsStr::from_bytes(name))),
        other => other.map(|path| PathBuf::from(OsStr::from_bytes(path))),
    };
    let real = interpreter.and_then(|path| path.canonicalize().ok());
    real.is_some_and(|real| real.starts_with(prefix))
}

/// The virtual environment that contains a program.
fn find_environment(path: &Path) -> Option<PathBuf> {
    let bin = path.parent()?.canonicalize().ok()?;
    let root = bin.parent()?;
    root.join(VENV).is_file().then(|| root.to_path_buf())
}

/// Python finds its environment by the path it was started by, and its library in the base
/// installation.
fn resolve_in_environment(path: PathBuf, root: PathBuf, caller: &Caller) -> Found {
    let mut needs = Vec::new();
    if let Some(base) = read_base(&root)
        && let Ok(real) = base.canonicalize()
        && !is_in_base_view(&real)
    {
        // `home` names a `bin` directory: its prefix is that of a program in it.
        let prefix = prefix_of(&real.join("python3"), caller, None);
        needs.push(prefix.unwrap_or(real));
    }
    let directory = directory_of(&path);
    needs.push(root);
    Found {
        program: path,
        needs,
        directory,
    }
}

/// `home` of the environment's file: the directory of the base Python.
fn read_base(root: &Path) -> Option<PathBuf> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(root.join(VENV)).ok()?;
    file.take(VENV_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = PathBuf::from(value.trim());
        (key.trim() == "home" && value.is_absolute()).then_some(value)
    })
}
