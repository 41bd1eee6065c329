//! Unix sockets: what listens in a directory that is lent could be connected to, whatever the mount is.

use std::os::unix::ffi::OsStrExt as _;

use crate::run::error::RunError;
use sandbox::filter::{Arch, without_unix_sockets};
use sandbox::ruleset::{RESOLVE_UNIX_SINCE, Ruleset};
use spec::bpf::Instruction;
use spec::path::escape;
use spec::report::{Enforcement, EnforcementState};
use spec::request::{Request, ViewEntry};

/// What a body may do with unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnixSockets {
    /// All: nothing is lent in which a program of the host could listen, but what `--socket` names.
    Own,
    /// All, and Landlock lets none connect to what listens outside: something is.
    Confined,
    /// Nothing but pairs: something is, and Landlock cannot tell.
    Refused,
    /// All: something is, and `--unix-sockets` accepts it.
    Accepted,
}

/// Decides for a run that shows `view`, on a host with Landlock of version `abi`. The private trees of
/// sources and images are not in it.
pub(super) fn of(request: &Request, view: &[ViewEntry], abi: u32) -> UnixSockets {
    let lent = view.iter().filter_map(|entry| match entry {
        ViewEntry::Bind { target, .. } if request.sockets.contains(target) => None,
        ViewEntry::Bind { source, .. } => Some(source),
        ViewEntry::Tmpfs { .. } => None,
    });
    // A program's file, for instance, is nothing to connect to. What cannot be looked at may be.
    let mut lent = lent.filter(|source| !source.metadata().is_ok_and(|found| found.is_file()));
    decide(lent.next().is_some(), request.unix_sockets, abi)
}

const fn decide(lent: bool, accepted: bool, abi: u32) -> UnixSockets {
    match (lent, accepted) {
        (false, _) => UnixSockets::Own,
        (true, true) => UnixSockets::Accepted,
        (true, false) if RESOLVE_UNIX_SINCE <= abi => UnixSockets::Confined,
        (true, false) => UnixSockets::Refused,
    }
}

impl UnixSockets {
    /// The filter that holds it; empty where all may be had.
    pub(super) fn filter(self) -> Vec<Instruction> {
        match self {
            Self::Refused => without_unix_sockets(Arch::NATIVE).to_vec(),
            Self::Own | Self::Confined | Self::Accepted => Vec::new(),
        }
    }

    /// The ruleset that holds it, made of the one that holds the rest.
    pub(super) fn ruleset(self, rest: Option<Ruleset>, request: &Request) -> Option<Ruleset> {
        if self != Self::Confined {
            return rest;
        }
        let named = request.sockets.iter();
        let named = named.map(|path| path.as_os_str().as_bytes().to_vec());
        rest.map(|rest| rest.with_own_sockets_and(named))
    }

    /// Refuses `--socket` where the body gets no unix sockets.
    ///
    /// # Errors
    /// [`RunError::Argument`].
    pub(super) fn permit(self, request: &Request) -> Result<(), RunError> {
        let (Self::Refused, Some(named)) = (self, request.sockets.first()) else {
            return Ok(());
        };
        Err(RunError::Argument {
            code: "socket_beside_directories",
            what: "--socket",
            object: escape(named.as_os_str().as_encoded_bytes()),
            problem: "is to be connected to, and directories are lent in which anything else that \
                      listens could be connected to as well"
                .to_owned(),
            hint: Some("lend no directory, or accept that with --unix-sockets".to_owned()),
        })
    }

    /// How it stands in the report.
    pub(super) fn enforcement(self) -> Enforcement {
        let (state, reason) = match self {
            Self::Own => (EnforcementState::Enforced, None),
            Self::Confined => (
                EnforcementState::Enforced,
                Some(
                    "directories are lent, and programs of the host may listen in them: Landlock \
                     lets the body connect to its own unix sockets only, and to those of --socket",
                ),
            ),
            Self::Refused => (
                EnforcementState::Enforced,
                Some(
                    "directories are lent, and programs of the host may listen in them: socket(2) \
                     gives no unix sockets (EAFNOSUPPORT); --unix-sockets gives them",
                ),
            ),
            Self::Accepted => (
                EnforcementState::Weaker,
                Some(
                    "--unix-sockets: what listens on a unix socket in a lent directory can be \
                     connected to",
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
    use sandbox::ruleset::ruleset;
    use spec::request::Caller;

    #[test]
    fn landlock_holds_from_its_ninth_version_on_and_the_filter_before() {
        use UnixSockets::{Accepted, Confined, Own, Refused};
        for abi in 0..=10 {
            let held = if abi < 9 { Refused } else { Confined };
            for (lent, accepted, expected) in [
                (false, false, Own),
                (false, true, Own),
                (true, false, held),
                (true, true, Accepted),
            ] {
                let decided = decide(lent, accepted, abi);
                assert_eq!(decided, expected, "{lent} {accepted} {abi}");
                // One of the two holds what has to be held, and none what has not.
                let is_held = matches!(expected, Confined | Refused);
                let by_filter = !decided.filter().is_empty();
                let request = request();
                let rules = decided.ruleset(ruleset(abi, &[]), &request);
                let by_ruleset = rules
                    .as_ref()
                    .is_some_and(|one| one.handled & (1 << 16) != 0);
                assert_eq!(by_filter != by_ruleset, is_held, "{lent} {accepted} {abi}");
                assert_eq!(rules.is_some(), abi != 0);
                let is_weaker = decided.enforcement().state == EnforcementState::Weaker;
                assert_eq!(is_weaker, expected == Accepted);
                assert_eq!(decided.permit(&request).is_err(), expected == Refused);
            }
        }
    }

    fn request() -> Request {
        let mut request = Request::captured(
            spec::request::Subject::Command(Vec::new()),
            Caller::default(),
        );
        request.sockets = vec!["/run/agent".into()];
        request
    }
}
