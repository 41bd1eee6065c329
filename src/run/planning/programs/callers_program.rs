//! Finds the program that the caller's shell would start, and the directories that it needs.
//!
//! It is the first match on the caller's PATH, as in execvp(3). If that one cannot be mounted, no
//! program of the system replaces it. Shims of version managers are read, never executed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::run::error::RunError;
use crate::run::planning::programs::heads::{Head, without_return};
use crate::run::planning::programs::lookup::{
    directory_of, is_executable, is_in_base_view, is_script, may_be_mounted, prefix_of,
    refuse_script,
};
use crate::run::planning::programs::shims::{self, Shim};
use crate::run::planning::programs::text_files::find_in;
use spec::path::escape_path;
use spec::program_format::Format;
use spec::request::Caller;

/// The file in which a Python virtual environment names its base installation (PEP 405).
const VENV: &str = "pyvenv.cfg";
/// What an environment consists of, where other files are beside it.
const VENV_PARTS: [&str; 5] = ["bin", "lib", "lib64", "include", VENV];

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
                    object: escape_path(&path),
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
    if let Some((program, root)) = find_environment(&path) {
        return Ok(resolve_in_environment(program, root, caller));
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
        if !is_mounted(&real) {
            return Err(refuse_script(&path, &real, caller, None));
        }
        // The link may not be mounted.
        let program = if is_mounted(&path) { path } else { real };
        return Ok(Found {
            directory: directory_of(&program),
            needs: Vec::new(),
            program,
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
    let head = Head::read(script, false).filter(|_| script.starts_with(prefix));
    let Some(Format::Script(words)) = head.and_then(|head| head.format()) else {
        return false;
    };
    // A wrong line end is reported when the script does not start.
    let words =
        without_return(&words).unwrap_or_else(|| words.iter().map(String::as_str).collect());
    let interpreter = match words[..] {
        ["/usr/bin/env", name, ..] => prefix.join("bin").join(name),
        [interpreter, ..] => PathBuf::from(interpreter),
        [] => return false,
    };
    let real = interpreter.canonicalize();
    real.is_ok_and(|real| real.starts_with(prefix))
}

/// The program without links in its directory, and the virtual environment that contains it.
fn find_environment(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let bin = path.parent()?.canonicalize().ok()?;
    let root = bin.parent()?.to_path_buf();
    let program = bin.join(path.file_name()?);
    root.join(VENV).is_file().then_some((program, root))
}

/// Python finds its environment by the path it was started by, and its library in the base
/// installation.
fn resolve_in_environment(program: PathBuf, root: PathBuf, caller: &Caller) -> Found {
    let mut needs = find_base(&root, caller).unwrap_or_default();
    let directory = directory_of(&program);
    if may_be_mounted(&root, caller, None) {
        needs.push(root);
    } else {
        let parts = VENV_PARTS.map(|name| root.join(name));
        // `lib64` is a link to `lib`. A link to anything else would mount what it names.
        let is_part = |part: &PathBuf| part.canonicalize().is_ok_and(|real| parts.contains(&real));
        let own = parts.iter().filter(|part| is_part(part));
        needs.extend(own.filter(|part| !is_in_base_view(part)).cloned());
    }
    Found {
        program,
        needs,
        directory,
    }
}

/// The installation of the base Python, if it has to be mounted. Whoever wrote the environment may name
/// any directory as `home`: it must be the `bin` that has the environment's Python. uv names it by a link
/// to the installation, which is needed, too.
fn find_base(root: &Path, caller: &Caller) -> Option<Vec<PathBuf>> {
    let named = read_base(root)?;
    let bin = named.canonicalize().ok()?;
    let is_base_of = |name: &str| {
        let own = root.join("bin").join(name);
        let is_copy = own.is_file() && !own.is_symlink() && is_executable(&bin.join(name));
        let real = own.canonicalize().ok().filter(|real| is_executable(real));
        is_copy || real.is_some_and(|real| real.parent() == Some(&bin))
    };
    let is_base = !is_in_base_view(&bin) && ["python", "python3"].into_iter().any(is_base_of);
    let prefix = prefix_of(&bin.join("python3"), caller, None).filter(|_| is_base)?;
    let link = prefix_of(&named.join("python3"), caller, None);
    let is_same = |link: &PathBuf| link.canonicalize().is_ok_and(|real| real == prefix);
    let link = link.filter(is_same).filter(|link| *link != prefix);
    Some(link.into_iter().chain([prefix]).collect())
}

/// `home` of the environment's file: the directory of the base Python.
fn read_base(root: &Path) -> Option<PathBuf> {
    let home = find_in(&root.join(VENV), &|text| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "home").then(|| value.trim().to_owned())
        })
    });
    home.map(PathBuf::from).filter(|home| home.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_program_of_an_environment_is_named_by_the_path_that_is_mounted() {
        let directory = tempfile::tempdir().expect("a directory");
        let real = directory.path().canonicalize().expect("real");
        let root = real.join("environment");
        std::fs::create_dir_all(root.join("bin")).expect("made");
        std::fs::write(root.join(VENV), "home = /usr/bin\n").expect("written");
        symlink("/usr/bin/env", root.join("bin/python3")).expect("linked");
        symlink(&root, real.join("link")).expect("linked");
        let path = real.join("link/bin/python3");
        let found = resolve(path, &Caller::default(), &[], &|_path| false).expect("found");
        let program = root.join("bin/python3");
        assert_eq!(found.directory, directory_of(&program));
        assert_eq!((found.program, found.needs), (program, vec![root.clone()]));
        // A home is not mounted as a whole.
        let caller = Caller {
            home: Some(root.clone()),
            ..Caller::default()
        };
        let path = root.join("bin/python3");
        let found = resolve(path, &caller, &[], &|_path| false).expect("found");
        assert_eq!(found.needs, [root.join("bin"), root.join(VENV)]);
    }

    /// The environment `root`, with a base Python in `home` behind its link.
    fn environment(root: &Path, home: &Path, target: &Path) -> PathBuf {
        std::fs::create_dir_all(root.join("bin")).expect("made");
        std::fs::write(root.join(VENV), format!("home = {}\n", home.display())).expect("written");
        symlink(target, root.join("bin/python3")).expect("linked");
        root.join("bin/python3")
    }

    fn needs(program: PathBuf, caller: &Caller) -> Vec<PathBuf> {
        let found = resolve(program, caller, &[], &|_path| false);
        found.expect("found").needs
    }

    /// A copy of a system program, so that it lies outside the base view.
    fn lay_program(bin: &Path, name: &str) -> PathBuf {
        std::fs::create_dir_all(bin).expect("made");
        std::fs::copy("/usr/bin/env", bin.join(name)).expect("copied");
        bin.join(name)
    }

    #[test]
    fn the_base_of_an_environment_is_mounted_only_if_it_is_an_installation_with_its_python() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().canonicalize().expect("real");
        let caller = Caller {
            home: Some(home.clone()),
            ..Caller::default()
        };
        let base = home.join(".local/share/python/1.2");
        let python = lay_program(&base.join("bin"), "python1.2");
        lay_program(&base.join("bin"), "python3");
        let secret = lay_program(&home.join(".ssh"), "python3");
        let local = lay_program(&home.join(".local/bin"), "python3");
        let root = home.join("project/venv");
        for (named, target, is_accepted) in [
            (base.join("bin"), &python, true),
            (base.clone(), &python, false),
            (home.clone(), &python, false),
            (home.join(".ssh"), &secret, false),
            (home.join(".local/bin"), &local, false),
            ("/var/lib".into(), &python, false),
            // Another program than that of the link.
            (base.join("bin"), &secret, false),
            (base.join("bin"), &base.join("bin/missing"), false),
        ] {
            let program = environment(&root, &named, target);
            let expected = [(is_accepted, &base), (true, &root)];
            let expected = expected.iter().filter(|(is_needed, _)| *is_needed);
            let expected: Vec<_> = expected.map(|(_, path)| (*path).clone()).collect();
            assert_eq!(needs(program, &caller), expected, "{named:?} {target:?}");
            std::fs::remove_file(root.join("bin/python3")).expect("removed");
        }
        // `venv --copies` copies the program instead of linking it.
        environment(&root, &base.join("bin"), &python);
        std::fs::remove_file(root.join("bin/python3")).expect("removed");
        let copy = lay_program(&root.join("bin"), "python3");
        assert_eq!(needs(copy, &caller), [base, root]);
    }

    #[test]
    fn of_an_environment_that_may_contain_secrets_only_its_own_parts_are_mounted() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().canonicalize().expect("real");
        let mut caller = Caller {
            home: Some(home.clone()),
            ..Caller::default()
        };
        std::fs::create_dir_all(home.join(".local/share/keyrings")).expect("made");
        std::fs::create_dir(home.join(".ssh")).expect("made");
        let system = Path::new("/usr/bin");
        let local = home.join(".local");
        let program = environment(&local, system, &system.join("env"));
        // A part is no link to something else.
        symlink("../.ssh", local.join("lib")).expect("linked");
        symlink("bin", local.join("lib64")).expect("linked");
        let parts = ["bin", "lib64", VENV].map(|name| local.join(name));
        assert_eq!(needs(program, &caller), parts);
        let project = home.join("project");
        let program = environment(&project, system, &system.join("env"));
        assert_eq!(needs(program.clone(), &caller), vec![project.clone()]);
        caller.working_directory = Some(project.join("below"));
        let parts = ["bin", VENV].map(|name| project.join(name));
        assert_eq!(needs(program, &caller), parts);
    }
}
