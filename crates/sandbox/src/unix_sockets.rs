//! Unix sockets of the host. A body can connect to those in a mounted directory, even a read-only
//! one.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::ruleset::{RESOLVE_UNIX_SINCE, Ruleset};
use filter::bpf::Instruction;
use filter::{Arch, without_unix_sockets};
use spec::report::{Enforcement, EnforcementState};
use spec::request::ViewEntry;

/// How the body's use of unix sockets is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnixSockets {
    /// Not at all: no mount can contain a socket of the host except those that `--socket` names.
    Own,
    /// Landlock denies connections to sockets of the host.
    Confined,
    /// Only connected pairs are available, because this kernel's Landlock cannot restrict unix sockets.
    Refused,
    /// Not at all: with `--unix-sockets` the caller accepts that the body can reach sockets of the
    /// host.
    Accepted,
}

/// Decides for the bind mounts in `view` and Landlock version `abi`. `named` are the sockets of
/// `--socket`; `accepted` is `--unix-sockets`.
#[must_use]
pub fn decide(view: &[ViewEntry], named: &[PathBuf], accepted: bool, abi: u32) -> UnixSockets {
    let mounted = view.iter().filter_map(|entry| match entry {
        ViewEntry::Bind { target, .. } if named.contains(target) => None,
        ViewEntry::Bind { source, .. } => Some(source),
        ViewEntry::Tmpfs { .. } => None,
    });
    // Everything except a regular file may be or contain a socket, also a source of unknown type.
    let mut candidates =
        mounted.filter(|source| !source.metadata().is_ok_and(|found| found.is_file()));
    decide_for(candidates.next().is_some(), accepted, abi)
}

const fn decide_for(has_candidate: bool, accepted: bool, abi: u32) -> UnixSockets {
    if !has_candidate {
        UnixSockets::Own
    } else if accepted {
        UnixSockets::Accepted
    } else if abi >= RESOLVE_UNIX_SINCE {
        UnixSockets::Confined
    } else {
        UnixSockets::Refused
    }
}

impl UnixSockets {
    /// The second seccomp filter; empty if it is not needed.
    #[must_use]
    pub fn filter(self) -> Vec<Instruction> {
        match self {
            Self::Refused => without_unix_sockets(Arch::NATIVE).to_vec(),
            Self::Own | Self::Confined | Self::Accepted => Vec::new(),
        }
    }

    /// Adds the restriction to `ruleset`.
    #[must_use]
    pub fn ruleset(self, ruleset: Option<Ruleset>, named: &[PathBuf]) -> Option<Ruleset> {
        if self != Self::Confined {
            return ruleset;
        }
        let named = named
            .iter()
            .map(|path| path.as_os_str().as_bytes().to_vec());
        ruleset.map(|ruleset| ruleset.with_own_sockets_and(named))
    }

    /// Whether the body cannot connect to the named sockets either.
    #[must_use]
    pub fn refuses_named(self) -> bool {
        self == Self::Refused
    }

    /// Whether Landlock alone refuses sockets of the host, which the body sees.
    #[must_use]
    pub fn confines(self) -> bool {
        self == Self::Confined
    }

    /// Row of the report.
    #[must_use]
    pub fn enforcement(self) -> Enforcement {
        let (state, reason) = match self {
            Self::Own => (EnforcementState::Enforced, None),
            Self::Confined => (
                EnforcementState::Enforced,
                Some(
                    "mounted directories may contain sockets of the host: Landlock lets the body connect \
                     only to its own unix sockets and to those of --socket",
                ),
            ),
            Self::Refused => (
                EnforcementState::Enforced,
                Some(
                    "mounted directories may contain sockets of the host: socket(2) refuses unix \
                     sockets (EAFNOSUPPORT); --unix-sockets allows them",
                ),
            ),
            Self::Accepted => (
                EnforcementState::Weaker,
                Some(
                    "--unix-sockets: the body can connect to unix sockets of the host in mounted \
                     directories",
                ),
            ),
        };
        Enforcement {
            axis: "unix_sockets".to_owned(),
            state,
            reason: reason.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::ruleset;

    #[test]
    fn landlock_restricts_from_its_ninth_version_on_and_the_filter_before() {
        use UnixSockets::{Accepted, Confined, Own, Refused};
        for abi in 0..=10 {
            let restricted = if abi < 9 { Refused } else { Confined };
            for (has_candidate, accepted, expected) in [
                (false, false, Own),
                (false, true, Own),
                (true, false, restricted),
                (true, true, Accepted),
            ] {
                let decided = decide_for(has_candidate, accepted, abi);
                assert_eq!(decided, expected, "{has_candidate} {accepted} {abi}");
                // Exactly one of the two enforces a restriction; neither enforces an accepted risk.
                let is_restricted = matches!(expected, Confined | Refused);
                let by_filter = !decided.filter().is_empty();
                let rules = decided.ruleset(ruleset(abi, &[]), &["/run/agent".into()]);
                let by_ruleset = rules
                    .as_ref()
                    .is_some_and(|rules| rules.handled.contains(landlock::AccessFs::ResolveUnix));
                assert_eq!(
                    by_filter != by_ruleset,
                    is_restricted,
                    "{has_candidate} {accepted} {abi}"
                );
                assert_eq!(rules.is_some(), abi != 0);
                let is_weaker = decided.enforcement().state == EnforcementState::Weaker;
                assert_eq!(is_weaker, expected == Accepted);
                assert_eq!(decided.refuses_named(), expected == Refused);
                assert_eq!(decided.confines(), by_ruleset);
            }
        }
    }
}
