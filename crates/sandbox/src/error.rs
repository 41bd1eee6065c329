//! Errors before the body runs.

use rustix::io::Errno;

use crate::steps::ChildStep;

/// Hint if an existing process is missing in /proc.
const OWN_PROC: &str =
    "/proc belongs to another pid namespace than the runner's: mount -t proc proc /proc";

/// The supervisor raises its OOM score, in /proc/self.
pub(crate) const RAISE: &str = "raise";

/// The supervisor looks at the body's calls, in /proc.
pub(crate) const TRACE: &str = "trace the body through";

/// ENOTSUPP of the kernel, which has no text: it could not compile the filter.
const NOT_SUPPORTED: Errno = Errno::from_raw_os_error(524);

/// The sandbox could not be created, or the body could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("cannot make a user namespace: {errno}")]
    Clone {
        #[source]
        errno: Errno,
    },
    #[error("cannot {act} {object}: {errno}")]
    Supervisor {
        act: &'static str,
        object: String,
        #[source]
        errno: Errno,
    },
    #[error("cannot write the body's {map}: {errno}")]
    IdMap {
        map: String,
        #[source]
        errno: Errno,
    },
    /// A step of the child failed before the body was executed.
    #[error("cannot {act}{object}: {errno}")]
    Child {
        step: ChildStep,
        act: &'static str,
        /// With a leading space, or empty.
        object: String,
        #[source]
        errno: Errno,
    },
    /// Init failed after the exec and ended the body, which may have had effects.
    #[error("the body was killed because init failed after its start: cannot {act}: {errno}")]
    Lost {
        /// Description of init's step.
        act: &'static str,
        #[source]
        errno: Errno,
    },
    #[error("program `{program}` was not found inside the sandbox")]
    ProgramNotFound {
        /// As requested, escaped.
        program: String,
    },
    #[error("program `{program}` cannot be executed: {errno}")]
    ProgramNotExecutable {
        /// As requested, escaped.
        program: String,
        #[source]
        errno: Errno,
    },
    #[error("the sandbox's child process ended before it could {act}")]
    ChildGone { act: &'static str },
}

impl SandboxError {
    pub(crate) fn supervisor(
        act: &'static str,
        object: impl Into<String>,
    ) -> impl Fn(Errno) -> Self {
        let object = object.into();
        move |errno| Self::Supervisor {
            act,
            object: object.clone(),
            errno,
        }
    }

    /// Stable error code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Clone { .. } => "user_namespace_unavailable",
            Self::Supervisor { .. } | Self::IdMap { .. } => "host_failed",
            Self::Child { .. } => "sandbox_step_failed",
            Self::Lost { .. } => "sandbox_init_failed",
            Self::ProgramNotFound { .. } => "program_not_found",
            Self::ProgramNotExecutable { .. } => "program_not_executable",
            Self::ChildGone { .. } => "sandbox_child_gone",
        }
    }

    /// Whether the cause may be that the host forbids user namespaces. AppArmor allows creating them
    /// and denies operations in them.
    #[must_use]
    pub fn may_be_forbidden(&self) -> bool {
        match self {
            Self::Clone { errno } => {
                matches!(*errno, Errno::NOSPC | Errno::PERM | Errno::ACCESS)
            }
            Self::Supervisor { errno, .. } => matches!(*errno, Errno::PERM | Errno::ACCESS),
            // Later steps use the caller's paths, which fail for other reasons.
            Self::Child { step, errno, .. } => {
                let is_early = matches!(
                    step,
                    ChildStep::Namespaces
                        | ChildStep::Loopback
                        | ChildStep::HostName
                        | ChildStep::PrivateMounts
                        | ChildStep::WriteIds
                        | ChildStep::BecomeBody
                        | ChildStep::WritableSpace
                        | ChildStep::AttachRoot
                        | ChildStep::BaseView
                );
                is_early && matches!(*errno, Errno::PERM | Errno::ACCESS)
            }
            _ => false,
        }
    }

    /// Advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Clone {
                errno: Errno::NOSPC,
            } => Some("raise the limit: sysctl -w user.max_user_namespaces=10000".to_owned()),
            Self::Clone {
                errno: Errno::PERM | Errno::ACCESS | Errno::NOSYS,
            } => Some("`runner doctor` names what forbids them, and the command that allows them".to_owned()),
            Self::Clone {
                errno: Errno::AGAIN,
            } => Some("a process limit is reached: see ulimit -u and pids.max".to_owned()),
            Self::ProgramNotFound { .. } => Some(
                "only the host's system directories and requested mounts are visible: add --ro PATH"
                    .to_owned(),
            ),
            Self::ProgramNotExecutable {
                errno: Errno::NOEXEC,
                ..
            } => Some(
                "a script needs a first line such as #!/bin/sh; a binary must be built for this \
                 machine's architecture"
                    .to_owned(),
            ),
            // execve(2): 128 KiB per string, a quarter of the stack limit in total.
            Self::ProgramNotExecutable {
                errno: Errno::TOOBIG,
                ..
            } => Some(
                "an argument or variable is longer than 128 KiB, or all together exceed this host's \
                 limit: pass large values as an input file"
                    .to_owned(),
            ),
            Self::ProgramNotExecutable { .. } => {
                Some("check its mode (chmod +x) and that its interpreter is visible".to_owned())
            }
            Self::Child {
                step: ChildStep::Trace,
                ..
            } => Some(
                "--trace and learn need Linux 5.19, and no sandbox around the runner that observes \
                 its system calls"
                    .to_owned(),
            ),
            Self::Child {
                step: ChildStep::Seccomp,
                errno: NOT_SUPPORTED,
                ..
            } => Some(
                "the memory for the compiled filters of all processes is used up: end other \
                 sandboxes, or raise the limit with sysctl -w net.core.bpf_jit_limit=BYTES"
                    .to_owned(),
            ),
            Self::Child {
                step: ChildStep::CaptureRules | ChildStep::Log,
                ..
            } => Some(
                "this kernel refuses the runner's nf_tables rules, which need Linux 4.19, \
                 CONFIG_NFT_TPROXY and CONFIG_NETFILTER_NETLINK_LOG: use --egress-capture auto"
                    .to_owned(),
            ),
            Self::Child {
                step: ChildStep::WriteIds,
                errno: Errno::NOENT,
                ..
            }
            | Self::IdMap {
                errno: Errno::NOENT,
                ..
            }
            | Self::Supervisor {
                act: RAISE | TRACE,
                errno: Errno::NOENT,
                ..
            } => Some(OWN_PROC.to_owned()),
            Self::Child {
                step: ChildStep::LaunchView,
                errno: Errno::ROFS,
                ..
            } => Some(
                "a target inside a read-only mount must exist in its source: create it there, or \
                 choose another target"
                    .to_owned(),
            ),
            Self::Child {
                step: ChildStep::BaseView,
                errno: Errno::PERM,
                ..
            }
            | Self::Child {
                step: ChildStep::KernelObjects,
                errno: Errno::ROFS,
                ..
            } => Some(
                "proc cannot be mounted while parts of /proc are masked (in a container): run \
                 outside the container, or unmask /proc"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_the_kernel_has_no_memory_to_compile_names_the_limit() {
        let hint = |errno| {
            let error = SandboxError::Child {
                step: ChildStep::Seccomp,
                act: "apply the seccomp filter",
                object: String::new(),
                errno,
            };
            error.hint()
        };
        let named = hint(NOT_SUPPORTED).expect("a hint");
        assert!(named.contains("net.core.bpf_jit_limit"), "{named}");
        assert_eq!(hint(Errno::INVAL), None);
    }
}
