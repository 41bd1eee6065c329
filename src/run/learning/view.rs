//! What a run sees while it is learned from.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::plan::learning::Shown;
use crate::run::error::RunError;
use crate::run::host::resources::runtime_directory;
use crate::run::launching::launch_plan::is_at;
use crate::run::learning::host_files::{CallersFiles, Search};
use crate::run::learning::{Learning, Observed};
use sandbox::view::{BASE_CANDIDATES, check_target};
use spec::credential_files;
use spec::host_policy::{HostPolicy, names};
use spec::path::escape_path;
use spec::request::{Caller, Grant, Request, Subject, ViewEntry};
use sys::trusted_links::open_without_automount;

/// Fewer credentials of the working directory than this are covered.
const COVERED_MAX: usize = 64;
/// Directories at the top of the host that are never shown: they are those of the system, of the
/// sandbox, of all users, or have sockets, logs and data of services.
const NOT_SHOWN: [&str; 12] = [
    "boot",
    "dev",
    "etc",
    "home",
    "lost+found",
    "media",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "var",
];

impl Learning {
    /// Adds to the request what is shown while learning. `is_closed`: no host can be reached, so that
    /// the home and other directories of the host are shown, too, read-only, and to a bundle the
    /// working directory.
    ///
    /// # Errors
    /// [`RunError::Argument`] if the policy of the host denies mounts, or if the working directory
    /// cannot be that of a project.
    pub(crate) fn begin(
        request: &mut Request,
        policy: &HostPolicy,
        is_closed: bool,
    ) -> Result<Self, RunError> {
        let host = CallersFiles::open()?;
        let caller = &request.caller;
        let home = caller
            .home
            .as_ref()
            .and_then(|home| home.canonicalize().ok());
        let directory = shown_project(request, home.as_deref(), is_closed)?;
        if directory.is_some() || is_closed {
            check_mounts(policy)?;
        }
        let shows_host = is_closed && request.oci.image.is_none();
        let (named, elsewhere): (Vec<&ViewEntry>, Vec<&ViewEntry>) =
            request.view.iter().partition(|entry| is_in_place(entry));
        let [named, elsewhere] = [named, elsewhere].map(|entries| {
            let targets = entries.into_iter().map(target_of);
            targets.collect::<Vec<PathBuf>>()
        });
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let mut shown = Shown {
            home: home.as_deref().map(bytes),
            working_directory: directory.as_deref().map(bytes).unwrap_or_default(),
            of_host: Vec::new(),
            is_image: false,
            read_only: Vec::new(),
            writable: Vec::new(),
            named: named.iter().map(|path| bytes(path)).collect(),
            elsewhere: elsewhere.iter().map(|path| bytes(path)).collect(),
            hidden: Vec::new(),
        };
        for entry in request.view.iter().filter(|entry| is_in_place(entry)) {
            match entry {
                ViewEntry::Bind {
                    target, writable, ..
                } if *writable => shown.writable.push(bytes(target)),
                entry => shown.read_only.push(bytes(&target_of(entry))),
            }
        }
        let mut added = Vec::new();
        let is_named = |path: &Path| named.iter().any(|named| path.starts_with(named));
        if let Some(directory) = directory.as_ref().filter(|directory| !is_named(directory)) {
            shown.writable.push(bytes(directory));
            added.push(bind(directory, true));
        }
        let runtime = runtime_directory(caller);
        for path in shown_directories(home.as_deref()) {
            let mut taken = named.iter().chain(&elsewhere).chain(&directory);
            if taken.any(|taken| *taken == path) || runtime.starts_with(&path) {
                continue;
            }
            shown.of_host.push(bytes(&path));
            if shows_host {
                shown.read_only.push(bytes(&path));
                added.push(bind(&path, false));
            }
        }
        let is_shown = |path: &Path| {
            let mut all = shown.read_only.iter().chain(&shown.writable);
            all.any(|top| path.starts_with(OsStr::from_bytes(top)))
        };
        let of_project = match directory.as_ref().filter(|directory| !is_named(directory)) {
            Some(directory) => credentials_in(directory, &host, is_closed)?,
            None => Vec::new(),
        };
        let mut hidden: Vec<PathBuf> = dangerous_paths(caller, home.as_deref())
            .into_iter()
            .filter_map(|path| path.canonicalize().ok())
            .chain(of_project)
            .filter(|path| is_shown(path) && !is_named(path))
            .collect();
        hidden.sort();
        hidden.dedup_by(|path, above| path.starts_with(above));
        shown.hidden = hidden.iter().map(|path| bytes(path)).collect();
        request.view.extend(added);
        request.is_traced = true;
        Ok(Self {
            shown: RefCell::new(shown),
            host,
            observed: RefCell::new(Observed::default()),
        })
    }
}

impl Shown {
    /// Adds mounts that the manifest of a bundle asks for.
    pub(super) fn add_view(&mut self, view: &[ViewEntry]) {
        let elsewhere = view.iter().filter(|entry| !is_in_place(entry));
        let targets = elsewhere.map(|entry| target_of(entry).into_os_string().into_vec());
        self.elsewhere.extend(targets);
    }

    /// Whether the entry shows the home or a directory at the top of the host.
    pub(super) fn is_of_host(&self, entry: &ViewEntry) -> bool {
        let target = target_of(entry);
        let mut of_host = self.of_host.iter();
        of_host.any(|path| path == target.as_os_str().as_bytes())
    }
}

fn check_mounts(policy: &HostPolicy) -> Result<(), RunError> {
    if names(policy.deny_grants).any(|name| name == Grant::Mounts.name()) {
        let problem = "cannot be shown: the host policy denies mounts (deny_grants)";
        let hint = "ask the administrator of this host";
        return Err(refused(Path::new("."), problem, hint));
    }
    Ok(())
}

/// The working directory, if it is shown.
fn shown_project(
    request: &Request,
    home: Option<&Path>,
    is_closed: bool,
) -> Result<Option<PathBuf>, RunError> {
    let found = project_directory(&request.caller, home);
    match &request.subject {
        Subject::Command(_) | Subject::Sandbox => found.map(Some),
        // It works in its own directory: that of the caller is one of the paths that it may use.
        Subject::Bundle(_) => {
            let found = found.ok().filter(|_| is_closed);
            Ok(found.filter(|directory| is_own(directory)))
        }
    }
}

/// The files of a project that may hold credentials.
fn credentials_in(
    project: &Path,
    host: &CallersFiles,
    is_closed: bool,
) -> Result<Vec<PathBuf>, RunError> {
    let Search { found, is_whole } = host.search(project.as_os_str().as_bytes(), COVERED_MAX);
    if found.len() == COVERED_MAX || (!is_whole && !is_closed) {
        let problem = "has too many files to hide those that may hold credentials";
        return Err(refused(project, problem, "show all of it: --rw ."));
    }
    let found = found.into_iter();
    Ok(found.map(|path| OsString::from_vec(path).into()).collect())
}

/// Whether it belongs to the caller, as the lower directory of an overlayfs must.
fn is_own(directory: &Path) -> bool {
    let caller = rustix::process::geteuid().as_raw();
    caller == 0
        || directory
            .metadata()
            .is_ok_and(|found| found.uid() == caller)
}

/// The caller's working directory, if its changes can be learned.
fn project_directory(caller: &Caller, home: Option<&Path>) -> Result<PathBuf, RunError> {
    let Some(directory) = caller.working_directory.clone() else {
        let hint = "change to a directory that exists";
        return Err(refused(Path::new("."), "does not exist", hint));
    };
    let is_shared =
        directory.parent().is_none() || home.is_some_and(|home| home.starts_with(&directory));
    if is_shared {
        let problem = "is not that of one project: a policy would have all that is in it";
        return Err(refused(
            &directory,
            problem,
            "change to the directory of a project",
        ));
    }
    Ok(directory)
}

/// The home, and the directories at the top of the host that are not those of the system.
fn shown_directories(home: Option<&Path>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            is_directory && !NOT_SHOWN.iter().any(|name| entry.file_name() == *name)
        })
        .map(|entry| entry.path())
        .chain(home.map(Path::to_owned))
        .filter(|path| {
            let text = path.as_os_str().as_bytes();
            let is_base = BASE_CANDIDATES.iter().any(|base| path.starts_with(base));
            let rights = Access::READ_OK | Access::EXEC_OK;
            // A name that the body looks up in an automount point would be mounted on the host.
            let is_automount = || open_without_automount(&[text, b"/.."].concat()).is_err();
            !is_base
                && check_target(text).is_ok()
                && access(path, rights).is_ok()
                && !is_automount()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Paths that stay hidden: those of the list of files with credentials that are in the home, and the
/// runner's own directories.
fn dangerous_paths(caller: &Caller, home: Option<&Path>) -> Vec<PathBuf> {
    let mut paths = caller.directories_without_outputs.clone();
    paths.push(caller.cache_directory.clone());
    paths.push(caller.history_directory.clone());
    paths.extend(caller.bundle_cache_directory.clone());
    paths.extend(caller.oci_directory.clone());
    paths.extend(caller.docker_config.clone());
    let rules = credential_files::rules().unwrap_or_default();
    for pattern in rules.iter().flat_map(|rule| &rule.paths) {
        let name = pattern.strip_prefix("**/").unwrap_or(pattern);
        let name = name.strip_suffix("/*").unwrap_or(name);
        let is_literal = !name.contains(['*', '?', '[', '!']);
        paths.extend(home.filter(|_| is_literal).map(|home| home.join(name)));
    }
    paths
}

pub(super) fn target_of(entry: &ViewEntry) -> PathBuf {
    match entry {
        ViewEntry::Bind { target, .. } | ViewEntry::Tmpfs { target, .. } => target.clone(),
    }
}

/// Whether the path inside is that of the host.
fn is_in_place(entry: &ViewEntry) -> bool {
    let ViewEntry::Bind { source, target, .. } = entry else {
        return false;
    };
    source
        .canonicalize()
        .is_ok_and(|source| is_at(&source, target))
}

fn bind(path: &Path, writable: bool) -> ViewEntry {
    ViewEntry::Bind {
        source: path.to_owned(),
        target: path.to_owned(),
        writable,
    }
}

fn refused(directory: &Path, problem: &str, hint: &str) -> RunError {
    RunError::Argument {
        code: "learn_refused",
        what: "the working directory",
        object: escape_path(directory),
        problem: problem.to_owned(),
        hint: Some(hint.to_owned()),
    }
}
