//! What this host is, and who the body will be on it.

use std::ffi::CString;

use rustix::io::Errno;

use crate::run::error::RunError;
use crate::run::node::NodeVersions;
use crate::run::program;
use sandbox::prepare::Identity;
use sandbox::records::{RunRecords, UidClaim};
use sandbox::view::BASE_CANDIDATES;
use spec::detection::{Interpreters, NodeVersion};
use spec::host::{HostEntry, HostSupport};
use spec::host_policy::UidRange;
use spec::request::Caller;
use spec::run_form::Run;
use spec::typescript::NpmRegistry;
use sys::credentials::HostIds;
use sys::probe;
use sys::{landlock, process};

/// Looks at the host as far as plans depend on it.
///
/// # Errors
/// [`RunError::Host`] where a path cannot be looked at.
pub fn look() -> Result<HostSupport, RunError> {
    let mut entries = Vec::with_capacity(BASE_CANDIDATES.len());
    for path in BASE_CANDIDATES {
        let failed = |errno| RunError::host(format!("look at {path}"))(errno);
        let name = CString::new(path).map_err(|_nul| failed(Errno::INVAL))?;
        if let Some(entry) = probe::look(&name).map_err(failed)? {
            entries.push((path, entry));
        }
    }
    let uid = probe::effective_uid();
    Ok(HostSupport {
        privileged: is_privileged(),
        uid,
        gid: probe::effective_gid(),
        landlock_abi: landlock::abi().map_err(RunError::host("ask for the version of landlock"))?,
        time_namespace: matches!(
            probe::look(c"/proc/self/ns/time"),
            Ok(Some(HostEntry::Link(_)))
        ),
        entries,
    })
}

/// Whether the caller is root, and of more than a user namespace of one id.
pub(super) fn is_privileged() -> bool {
    probe::effective_uid() == 0 && !maps_a_single_id()
}

/// Root of a user namespace with one id can map nothing but that id: an ordinary user.
fn maps_a_single_id() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/uid_map") else {
        return false;
    };
    let ids: u64 = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum();
    ids == 1
}

/// The body's ids on the host, and the claim that keeps other runs from taking them.
#[derive(Debug)]
pub struct Claimed {
    /// Who the body is.
    pub identity: Identity,
    /// Held until the run is over, by init too.
    pub claim: Option<UidClaim>,
}

/// Decides who the body is: root's runs get an uid of their own each.
///
/// # Errors
/// [`RunError::RunRecords`] where no uid is free.
pub(crate) fn claim_identity(
    host: &HostSupport,
    registry: &RunRecords,
    range: UidRange,
    seed: u64,
) -> Result<Claimed, RunError> {
    if !host.privileged {
        let ids = HostIds {
            uid: host.uid,
            gid: host.gid,
        };
        return Ok(Claimed {
            identity: Identity::Own(ids),
            claim: None,
        });
    }
    let count = range.last.saturating_sub(range.first).saturating_add(1);
    let claim = registry.claim_uid(range.first, count, seed)?;
    let ids = HostIds {
        uid: claim.uid(),
        gid: claim.uid(),
    };
    Ok(Claimed {
        identity: Identity::Claimed(ids),
        claim: Some(claim),
    })
}

/// Processors that this process may run on, at least one.
///
/// Not what the standard library says: that also reads the quota of the cgroup, five files, to
/// give a lower number.
#[must_use]
pub fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}

/// Ten bytes that nobody can guess.
///
/// # Errors
/// [`RunError::Host`] with the errno of getrandom(2).
pub(crate) fn random_bytes() -> Result<[u8; 10], RunError> {
    let mut bytes = [0; 10];
    process::random(&mut bytes).map_err(RunError::host("read random bytes"))?;
    Ok(bytes)
}

/// Which interpreters the body will find: on the fixed PATH, or on the caller's, from where a
/// program is made visible. Only those are looked for that `run` may turn out to need.
///
/// The version of Node is looked for where TypeScript is to be run.
#[must_use]
pub fn interpreters(
    caller: &Caller,
    run: &Run,
    versions: &NodeVersions,
    npm_registry: NpmRegistry,
) -> Interpreters {
    let wanted = wanted_by(run);
    let locate = |name: &str| {
        wanted
            .contains(&name)
            .then(|| program::locate_usable(name.as_ref(), caller))
            .flatten()
    };
    let has = |name: &str| locate(name).is_some();
    let node = locate("node").map(|path| {
        let unknown = NodeVersion { major: 0, minor: 0 };
        if !is_typescript(run) {
            return unknown;
        }
        versions.of(&path).unwrap_or(unknown)
    });
    Interpreters {
        node,
        python: has("python"),
        python3: has("python3"),
        bash: has("bash"),
        tsx: has("tsx"),
        npx: has("npx"),
        npm_registry,
    }
}

/// A text may turn out to be a file or a shell command: bash is wanted besides what its ending
/// says.
pub(super) fn wanted_by(run: &Run) -> &'static [&'static str] {
    match run {
        Run::Shell(_) => &["bash"],
        Run::Array(words) | Run::Exec(words) => match words.first().map(String::as_str) {
            Some("python") => &["python", "python3"],
            _ => &[],
        },
        Run::Text(text) | Run::File(text) => match text.rsplit_once('.') {
            Some((_, "py")) => &["bash", "python", "python3"],
            Some((_, "ts" | "tsx" | "mts" | "js" | "mjs" | "cjs")) => {
                &["bash", "node", "tsx", "npx"]
            }
            _ => &["bash"],
        },
    }
}

fn is_typescript(run: &Run) -> bool {
    match run {
        Run::Text(text) | Run::File(text) => [".ts", ".tsx", ".mts"]
            .iter()
            .any(|ending| text.ends_with(ending)),
        Run::Array(_) | Run::Exec(_) | Run::Shell(_) => false,
    }
}
