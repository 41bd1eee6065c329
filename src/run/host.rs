//! What this host is, and who the body will be on it.

use std::ffi::CString;

use crate::kernel::credentials::HostIds;
use crate::kernel::probe::{self, Found};
use crate::kernel::{landlock, process};
use crate::plan::run_form::{Interpreters, NodeVersion};
use crate::plan::view::BASE_CANDIDATES;
use crate::run::error::RunError;
use crate::run::program;
use crate::sandbox::prepare::Identity;
use crate::sandbox::registry::{Registry, UidClaim};
use crate::spec::host::{HostEntry, HostSupport};
use crate::spec::host_policy::UidRange;
use crate::spec::request::Caller;

/// Looks at the host as far as plans depend on it.
///
/// # Errors
/// [`RunError::Host`] where a path cannot be looked at.
pub fn look() -> Result<HostSupport, RunError> {
    let mut entries = Vec::with_capacity(BASE_CANDIDATES.len());
    for path in BASE_CANDIDATES {
        let found = match CString::new(path) {
            Ok(name) => probe::look(&name).map_err(RunError::host(format!("look at {path}")))?,
            Err(_nul) => Found::Nothing,
        };
        match found {
            Found::Nothing => (),
            Found::Directory => entries.push((path, HostEntry::Directory)),
            Found::Link(target) => entries.push((path, HostEntry::Link(target))),
            Found::File => entries.push((path, HostEntry::File)),
        }
    }
    let uid = probe::effective_uid();
    Ok(HostSupport {
        privileged: uid == 0 && !maps_a_single_id(),
        uid,
        gid: probe::effective_gid(),
        landlock_abi: landlock::abi(),
        time_namespace: matches!(probe::look(c"/proc/self/ns/time"), Ok(Found::Link(_))),
        entries,
    })
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
/// [`RunError::Registry`] where no uid is free.
pub fn claim_identity(
    host: &HostSupport,
    registry: &Registry,
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

/// Processors of this host, at least one.
#[must_use]
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1))
}

/// Ten bytes that nobody can guess.
///
/// # Errors
/// [`RunError::Host`] with the errno of getrandom(2).
pub fn random_bytes() -> Result<[u8; 10], RunError> {
    let mut bytes = [0; 10];
    process::random(&mut bytes).map_err(RunError::host("read random bytes"))?;
    Ok(bytes)
}

/// Which interpreters the body will find: on the fixed PATH, or on the caller's, from where a
/// program is made visible.
///
/// With `node_version` Node is asked for its version, with an empty environment.
#[must_use]
pub fn interpreters(caller: &Caller, node_version: bool) -> Interpreters {
    let has = |name: &str| program::locate_usable(name.as_ref(), caller).is_some();
    let node = program::locate_usable("node".as_ref(), caller).map(|path| {
        let unknown = NodeVersion { major: 0, minor: 0 };
        if !node_version {
            return unknown;
        }
        let told = std::process::Command::new(path)
            .arg("--version")
            .env_clear()
            .output();
        told.ok()
            .and_then(|told| NodeVersion::parse(&String::from_utf8_lossy(&told.stdout)))
            .unwrap_or(unknown)
    });
    Interpreters {
        node,
        python: has("python"),
        python3: has("python3"),
        bash: has("bash"),
        tsx: has("tsx"),
        npx: has("npx"),
        npm_registry: false,
    }
}
