//! Unix sockets: what listens in a directory that is lent could be connected to, whatever the mount is.

use crate::plan::filter::{Arch, without_unix_sockets};
use crate::run::error::RunError;
use crate::spec::bpf::Instruction;
use crate::spec::path::escape;
use crate::spec::report::{Enforcement, EnforcementState};
use crate::spec::request::{Request, ViewEntry};

/// What a body may do with unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnixSockets {
    /// All: nothing is lent in which a program of the host could listen, but what `--socket` names.
    Own,
    /// Nothing but pairs: something is.
    Refused,
    /// All: something is, and `--unix-sockets` accepts it.
    Accepted,
}

/// Decides for a run that shows `view`. The private trees of sources and images are not in it.
pub(super) fn of(request: &Request, view: &[ViewEntry]) -> UnixSockets {
    let lent = view.iter().filter_map(|entry| match entry {
        ViewEntry::Bind { target, .. } if request.sockets.contains(target) => None,
        ViewEntry::Bind { source, .. } => Some(source),
        ViewEntry::Tmpfs { .. } => None,
    });
    // A program's file, for instance, is nothing to connect to. What cannot be looked at may be.
    let mut lent = lent.filter(|source| !source.metadata().is_ok_and(|found| found.is_file()));
    match lent.next() {
        None => UnixSockets::Own,
        Some(_) if request.unix_sockets => UnixSockets::Accepted,
        Some(_) => UnixSockets::Refused,
    }
}

impl UnixSockets {
    /// The filter that holds it; empty where all may be had.
    pub(super) fn filter(self) -> Vec<Instruction> {
        match self {
            Self::Refused => without_unix_sockets(Arch::NATIVE).to_vec(),
            Self::Own | Self::Accepted => Vec::new(),
        }
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
