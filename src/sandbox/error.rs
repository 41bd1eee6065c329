//! What can go wrong before the body runs.

use rustix::io::Errno;

use crate::sandbox::steps::ChildStep;

/// The sandbox could not be made, or the body could not be started in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// clone3(2) refused.
    #[error("cannot make a user namespace: {errno}")]
    Clone {
        /// The kernel's answer.
        #[source]
        errno: Errno,
    },
    /// A step of the supervisor failed.
    #[error("cannot {act} {object}: {errno}")]
    Supervisor {
        /// What was tried.
        act: &'static str,
        /// On what.
        object: String,
        /// The kernel's answer.
        #[source]
        errno: Errno,
    },
    /// A step of the child failed; the body did not run.
    #[error("cannot {act}{object}: {errno}")]
    Child {
        /// Which.
        step: ChildStep,
        /// The same for people.
        act: &'static str,
        /// With a leading space, or empty.
        object: String,
        /// The kernel's answer.
        #[source]
        errno: Errno,
    },
    /// The program is not there inside.
    #[error("program `{program}` was not found inside the sandbox")]
    ProgramNotFound {
        /// As it was asked for, escaped.
        program: String,
    },
    /// The program is there and cannot be executed.
    #[error("program `{program}` cannot be executed: {errno}")]
    ProgramNotExecutable {
        /// As it was asked for, escaped.
        program: String,
        /// The kernel's answer.
        #[source]
        errno: Errno,
    },
    /// The child ended without a word.
    #[error("the child ended while it was to {act}")]
    ChildGone {
        /// What was awaited.
        act: &'static str,
    },
}

impl SandboxError {
    /// Stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Clone { .. } => "user_namespace_unavailable",
            Self::Supervisor { .. } => "host_failed",
            Self::Child { .. } => "sandbox_step_failed",
            Self::ProgramNotFound { .. } => "program_not_found",
            Self::ProgramNotExecutable { .. } => "program_not_executable",
            Self::ChildGone { .. } => "sandbox_child_gone",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Clone {
                errno: Errno::NOSPC,
            } => Some("raise the limit: sysctl -w user.max_user_namespaces=10000".to_owned()),
            Self::Clone { errno: Errno::PERM } => Some(
                "allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1 (Debian), or \
                 sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
                    .to_owned(),
            ),
            Self::Clone {
                errno: Errno::AGAIN,
            } => Some("the host is at a process limit: see ulimit -u and pids.max".to_owned()),
            Self::ProgramNotFound { .. } => Some(
                "only the host's system directories and what was asked for are visible; \
                 show more with --ro PATH"
                    .to_owned(),
            ),
            Self::ProgramNotExecutable {
                errno: Errno::NOEXEC,
                ..
            } => Some(
                "a script needs a first line such as #!/bin/sh, and a binary this machine's \
                 architecture"
                    .to_owned(),
            ),
            Self::ProgramNotExecutable { .. } => {
                Some("check its mode (chmod +x) and that its interpreter is visible".to_owned())
            }
            Self::Child {
                step: ChildStep::CaptureRules | ChildStep::Log,
                ..
            } => Some(
                "this kernel does not take our rules of nf_tables in a network namespace (Linux \
                 4.19, CONFIG_NFT_TPROXY, CONFIG_NETFILTER_NETLINK_LOG): use --egress-capture auto"
                    .to_owned(),
            ),
            Self::Child {
                step: ChildStep::BaseView,
                errno: Errno::PERM,
                ..
            } => Some(
                "a proc with masked parts (a container's) cannot be mounted anew: run outside, or \
                 with an unmasked /proc"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
