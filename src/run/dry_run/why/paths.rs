//! Paths: where they are in the view, and the flag that changes it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::plan::access::{Class, OnHost, Place, Rule, classify, parent};
use crate::plan::learning::ACTS_OUTSIDE;
use crate::run::dry_run::why::Planned;
use crate::run::launching::predicted_view::{PredictedView, absolute, beneath, on_host};
use crate::run::launching::seen::{SeenPath, look_up};
use sandbox::mounts::{self, MountError};
use sandbox::view::{BUNDLE, SCRATCH, ViewStep};
use spec::host_policy::{HostPolicy, names};
use spec::path::{escape, escape_path, quoted};
use spec::plan_report::{DEFAULT, FIXED, HOST_POLICY, PlannedPath};
use spec::request::{Grant, Request, Subject, ViewEntry};
use spec::why_report::{Answer, Operation, State, Verdict};

/// The view of a plan or of a run, and what decided about it.
pub(in crate::run) struct PathRules<'plan> {
    pub(in crate::run) request: &'plan Request,
    pub(in crate::run) policy: &'plan HostPolicy,
    pub(in crate::run) working_directory: &'plan [u8],
    pub(in crate::run) inside: &'plan PredictedView<'plan>,
    /// The rows of the view.
    pub(in crate::run) rows: &'plan [PlannedPath],
    /// The body can make no unix socket but connected pairs.
    pub(in crate::run) refuses_sockets: bool,
}

/// What decides about an operation on a path.
pub(in crate::run) struct Decided<'plan> {
    found: SeenPath,
    of_host: PathBuf,
    pub(in crate::run) class: Class,
    row: Option<&'plan PlannedPath>,
}

impl Planned<'_> {
    pub(super) fn path(&self, path: &[u8], operation: Operation) -> Answer {
        let rules = PathRules {
            request: self.request,
            policy: self.policy,
            working_directory: &self.resolved.working_directory,
            inside: self.inside,
            rows: &self.document.view,
            // Asked only of a run that has started.
            refuses_sockets: false,
        };
        rules.answer(path, operation)
    }
}

impl PathRules<'_> {
    fn answer(&self, path: &[u8], operation: Operation) -> Answer {
        let inside = absolute(path, self.working_directory);
        let asked = format!("{} {}", operation.name(), escape(&inside));
        let decided = match self.decide(path, operation) {
            Ok(decided) => decided,
            Err(errno) => return unresolvable(asked, errno),
        };
        let (class, row) = (decided.class, decided.row);
        let decided_by = match (class.rule, row) {
            (Rule::NotInView | Rule::NotOnHost, None) => DEFAULT,
            (_, Some(row)) => &row.decided_by,
            (_, None) => FIXED,
        };
        Answer {
            asked,
            verdict: class.verdict,
            errno: class.errno.map(str::to_owned),
            state: class.state,
            found: self.describe(&decided.found, &inside, class, row),
            rule: class.rule.words().to_owned(),
            decided_by: decided_by.to_owned(),
            change: self.change(&decided, operation),
        }
    }

    /// # Errors
    /// ELOOP, ENOTDIR: the path leads nowhere.
    pub(in crate::run) fn decide(
        &self,
        path: &[u8],
        operation: Operation,
    ) -> Result<Decided<'_>, Errno> {
        let inside = absolute(path, self.working_directory);
        let writes_root = !self.policy.oci.root_read_only;
        let found = self.inside.seen(&inside, writes_root)?;
        let of_host = self.path_on_host(path, &found);
        let mut seen = found.seen;
        if seen.on_host == OnHost::Absent {
            seen.on_host = look_up(of_host.as_os_str().as_bytes());
        }
        Ok(Decided {
            class: classify(seen, operation),
            row: self.row(&found),
            found,
            of_host,
        })
    }

    /// The path that the caller means: a relative one is one of the caller's directory.
    fn path_on_host(&self, path: &[u8], found: &SeenPath) -> PathBuf {
        let of_caller = self.request.caller.working_directory.as_ref();
        let is_empty = matches!(found.seen.place, Place::Private | Place::Nowhere);
        match of_caller.filter(|_| is_empty && !path.starts_with(b"/")) {
            Some(directory) => directory.join(OsStr::from_bytes(path)),
            None => PathBuf::from(OsStr::from_bytes(&found.path)),
        }
    }

    /// The row of the plan's view for the mount of the path.
    fn row(&self, found: &SeenPath) -> Option<&PlannedPath> {
        let at = match (&found.mount, found.seen.place) {
            (Some(mount), _) => escape(mount),
            (None, Place::Image { .. }) => "/".to_owned(),
            (None, _) => escape(&found.path),
        };
        let mut rows = self.rows.iter().rev();
        rows.find(|row| row.path == at)
    }

    /// What changes the decision.
    pub(in crate::run) fn change(
        &self,
        decided: &Decided<'_>,
        operation: Operation,
    ) -> Option<String> {
        let Decided {
            found,
            of_host,
            class,
            row,
        } = decided;
        if class.verdict != Verdict::Denied {
            return None;
        }
        let is_on_host = look_up(of_host.as_os_str().as_bytes()) == OnHost::Present;
        match class.rule {
            Rule::NotInView | Rule::EmptyAtStart if is_on_host => self
                .visible_elsewhere(of_host)
                .or_else(|| self.mount_flag(of_host, flag_of(operation))),
            // The directory in which the file is to be made.
            Rule::NotOnHost if operation == Operation::Write && found.mount.is_none() => {
                let directory = parent(of_host.as_os_str().as_bytes());
                let is_there = directory != b"/" && look_up(directory) == OnHost::Present;
                let directory = Path::new(OsStr::from_bytes(directory));
                is_there
                    .then(|| self.mount_flag(directory, flag_of(operation)))
                    .flatten()
            }
            Rule::ReadOnly => {
                let row = (*row)?;
                let path = quoted(&row.path);
                match (row.decided_by.as_str(), &row.from) {
                    (FIXED, _) => None,
                    ("--ro", _) => Some(format!("--rw {path} instead of --ro {path}")),
                    ("--mount", Some(from)) => Some(format!(
                        "--mount {} without `:ro`",
                        quoted(&format!("{from}:{}", row.path))
                    )),
                    (key, _) if key.starts_with('/') => Some(format!("`mode: rw` at {key}")),
                    _ => None,
                }
            }
            Rule::Mode if operation == Operation::Execute => {
                let (step, rest) = self.inside.find_mount(&found.path)?;
                let ViewStep::Bind { source, .. } = step else {
                    return None;
                };
                let path = quoted(&escape_path(&on_host(source, rest)));
                Some(format!("on the host: chmod +x {path}"))
            }
            _ => None,
        }
    }

    /// Where another mount shows this path.
    fn visible_elsewhere(&self, of_host: &Path) -> Option<String> {
        let path = of_host.as_os_str().as_bytes();
        let inside = self.inside.steps.iter().find_map(|step| match step {
            ViewStep::Bind { source, target, .. } => {
                let rest = beneath(path, source)?;
                Some(match rest {
                    [] => escape(target),
                    rest => format!("{}/{}", escape(target), escape(rest)),
                })
            }
            _ => None,
        })?;
        Some(format!("the body finds it at {}", quoted(&inside)))
    }

    /// What lets the body connect to a unix socket that is not in its view.
    pub(in crate::run) fn socket_change(&self, decided: &Decided<'_>) -> Option<String> {
        let metadata = decided.of_host.metadata().ok()?;
        if !metadata.file_type().is_socket() {
            return None;
        }
        let flag = match self.refuses_sockets {
            true => "--unix-sockets --socket",
            false => "--socket",
        };
        let change = self.mount_flag(&decided.of_host, flag)?;
        Some(format!("{change}; {ACTS_OUTSIDE}"))
    }

    fn describe(
        &self,
        found: &SeenPath,
        asked: &[u8],
        class: Class,
        row: Option<&PlannedPath>,
    ) -> String {
        let state = match class.state {
            State::ReadOnly => "visible, read-only",
            State::ReadWrite => "visible and writable",
            State::Private => self.describe_private(found),
            State::Device => "a device",
            State::Proc => "proc of the body's own pid namespace",
            State::Masked => "an empty file or directory covers it",
            State::NoExec => "visible, but not for programs",
            State::Hidden => "nothing; it exists on the host",
            _ => "nothing; it does not exist on the host either",
        };
        let mut text = state.to_owned();
        let from = row.and_then(|row| row.from.as_ref().map(|from| (from, &row.path)));
        if let Some((from, _)) = from.filter(|(from, path)| from != path) {
            text.push_str(&format!(", from {from}"));
        }
        // A link on the way.
        if clean(asked) != found.path {
            text.push_str(&format!("; it leads to {}", escape(&found.path)));
        }
        text
    }

    /// The runner fills two of the private directories for a bundle.
    fn describe_private(&self, found: &SeenPath) -> &'static str {
        let is_bundle = matches!(self.request.subject, Subject::Bundle(_));
        match found.mount.as_deref().filter(|_| is_bundle) {
            Some(mount) if mount == BUNDLE.as_bytes() => "the run's own copy of the bundle",
            Some(mount) if mount == SCRATCH.as_bytes() => {
                "a private directory of the run, with the input files at the start"
            }
            _ => "a private directory of the run, empty at the start",
        }
    }

    /// The flag that makes a path of the host visible, or what forbids it.
    fn mount_flag(&self, path: &Path, flag: &str) -> Option<String> {
        let entry = ViewEntry::Bind {
            source: path.to_owned(),
            target: path.to_owned(),
            writable: flag == "--rw",
        };
        match mounts::inspect(&entry) {
            Ok(_) => {
                let denied =
                    names(self.policy.deny_grants).any(|name| name == Grant::Mounts.name());
                let by = if denied {
                    format!(", which {HOST_POLICY} denies (deny_grants)")
                } else {
                    String::new()
                };
                Some(format!("{flag} {}{by}", quoted(&escape_path(path))))
            }
            Err(MountError::Refused { hint, .. }) => hint,
            Err(MountError::Call { .. }) => None,
        }
    }
}

fn flag_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Write => "--rw",
        _ => "--ro",
    }
}

/// A path whose links loop, or that goes through a file.
fn unresolvable(asked: String, errno: Errno) -> Answer {
    let (name, found) = match errno {
        Errno::LOOP => ("ELOOP", "its symbolic links loop"),
        _ => ("ENOTDIR", "a file is used as a directory"),
    };
    Answer {
        asked,
        verdict: Verdict::Denied,
        errno: Some(name.to_owned()),
        state: State::Absent,
        found: found.to_owned(),
        rule: Rule::NotOnHost.words().to_owned(),
        decided_by: FIXED.to_owned(),
        change: None,
    }
}

/// Without `.` and empty segments.
fn clean(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/');
    let segments = segments.filter(|segment| !segment.is_empty() && *segment != b".");
    let joined: Vec<u8> = segments
        .flat_map(|segment| [&b"/"[..], segment].concat())
        .collect();
    if joined.is_empty() {
        b"/".to_vec()
    } else {
        joined
    }
}
