//! Runs one command in a sandbox, for programs that have no bundle. Uses all parts of this crate in
//! order; see `examples/sandbox.rs`.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::cgroups::{self, CgroupLimits};
use crate::error::SandboxError;
use crate::host;
use crate::launch::{AuditRecords, CommandPlan, LaunchPlan, launch, program_candidates};
use crate::mounts::{self, MountError};
use crate::prefork::Prefork;
use crate::prepare::begin;
use crate::records::{RunRecords, default_directory};
use crate::resources::{ResourceRequest, Resources, ResourcesError};
use crate::supervise::judge::{Facts, judge};
use crate::supervise::meter::Meter;
use crate::supervise::streams::{OutputPump, Sink, make_pipes};
use crate::supervise::watch::{Attached, Observed, Streams, WatchError, WatchLimits, watch};
use crate::{rlimits, ruleset, seccomp, unix_sockets, view};
use spec::host_policy::UidRange;
use spec::limits::{Coverage, LimitValues};
use spec::report::{EnforcementState, with_causes};
use spec::request::{OnOutputLimit, Request, ViewEntry};
use spec::syscall_policy::SyscallPolicyName;
use sys::probe;
use sys::process;

pub use spec::limits::Limit;
pub use spec::outcome::Outcome;

const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];
const OUTPUT_BYTES_DEFAULT: u64 = 16 << 20;
/// Uids for runs of root; no account of the host may have them.
const UIDS: UidRange = UidRange {
    first: 0x7000_0000,
    last: 0x7000_ffff,
};

/// A sandbox for one command.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    entries: Vec<ViewEntry>,
    limits: LimitValues,
    environment: Vec<Vec<u8>>,
    cgroup_parent: Option<String>,
    runtime_directory: Option<PathBuf>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Outcome,
    /// Wait status of the command (wait(2)); `None` if init did not report it.
    pub raw_status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// How strongly each limit was enforced.
    pub coverage: Vec<Coverage>,
    /// Errors of the cleanup.
    pub problems: Vec<String>,
}

/// The command was not started, or its end was not observed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Resources(#[from] ResourcesError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("this host cannot enforce the limit {axis}: {reason}")]
    Unenforceable { axis: &'static str, reason: String },
    #[error("cannot {act}: {errno}")]
    Call {
        act: &'static str,
        #[source]
        errno: Errno,
    },
}

fn call(act: &'static str) -> impl FnOnce(Errno) -> CommandError {
    move |errno| CommandError::Call { act, errno }
}

impl Sandbox {
    /// Creates a sandbox with read-only system directories, an empty writable space and default
    /// limits. It has no network and no environment variables.
    #[must_use]
    pub fn builder() -> Self {
        Self::default()
    }

    /// Mounts a file or directory of the host read-only at the same path.
    #[must_use]
    pub fn read_only(self, path: impl Into<PathBuf>) -> Self {
        self.bind(path.into(), false)
    }

    /// Mounts a directory of the host writable.
    #[must_use]
    pub fn writable(self, path: impl Into<PathBuf>) -> Self {
        self.bind(path.into(), true)
    }

    fn bind(mut self, path: PathBuf, writable: bool) -> Self {
        self.entries.push(ViewEntry::Bind {
            source: path.clone(),
            target: path,
            writable,
        });
        self
    }

    /// Sets a limit, in the unit of [`Limit`].
    #[must_use]
    pub fn limit(mut self, limit: Limit, value: u64) -> Self {
        self.limits.set(limit, value);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment
            .push(format!("{name}={value}").into_bytes());
        self
    }

    /// Creates the cgroup below this one instead of below the caller's.
    #[must_use]
    pub fn cgroup_parent(mut self, path: impl Into<String>) -> Self {
        self.cgroup_parent = Some(path.into());
        self
    }

    /// Records the run in this directory instead of `/run/runner` or, for an ordinary user,
    /// `/tmp/runner-UID`. Each run cleans up after killed runs that are recorded in the same
    /// directory.
    #[must_use]
    pub fn runtime_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.runtime_directory = Some(path.into());
        self
    }

    /// Runs a command to its end; its standard input is empty and its output is captured.
    ///
    /// The calling process must have one thread. This sets close-on-exec on its descriptors from 3
    /// on, resets SIGCHLD, ignores SIGPIPE and SIGXFSZ. On failure nothing of the command is left.
    pub fn run(&self, argv: &[&str]) -> Result<Ended, CommandError> {
        process::close_on_exec_from(3).map_err(call("close descriptors on exec"))?;
        let limits = self.effective_limits();
        let host = host::detect()?;
        let directory = self.runtime_directory.clone();
        let directory =
            directory.unwrap_or_else(|| default_directory(probe::effective_uid(), None));
        let records = RunRecords::open(&directory).map_err(ResourcesError::from)?;
        // Temporary files of staged outputs belong to the `runner` program, which removes them.
        let keep = &mut |_: &_| Err("left for the next `runner gc`".into());
        records
            .collect_leftovers(keep)
            .map_err(ResourcesError::from)?;
        let named = self.cgroup_parent.as_deref();
        let observed = cgroups::observe(named, false).map_err(ResourcesError::from)?;
        let backend = cgroups::choose(named, &observed);
        let mut seed = [0; 8];
        process::random(&mut seed).map_err(call("read random bytes"))?;
        let seed = u64::from_le_bytes(seed);
        let request = ResourceRequest {
            stays: false,
            run_id: &format!("sandbox-{seed:016x}"),
            seed,
            uids: UIDS,
            space_bytes: limits.get(Limit::Disk).unwrap_or_default(),
            space_inodes: limits.get(Limit::DiskInodes).unwrap_or_default(),
            terminal: false,
        };
        let mut resources = Resources::acquire(host, &records, &backend, &request)?;
        let ended = self.run_with(argv, &limits, &mut resources);
        let errors = resources.release();
        let mut ended = ended?;
        let errors = errors.iter().map(|error| with_causes(error));
        ended.problems.extend(errors);
        Ok(ended)
    }

    /// Returns the requested limits, with defaults for the others.
    fn effective_limits(&self) -> LimitValues {
        let mut limits = self.limits;
        for limit in Limit::ALL {
            let default = match limit {
                // Files use memory; half of it remains for processes.
                Limit::Disk => limits.get(Limit::Memory).map(|bytes| bytes / 2),
                Limit::Output => Some(OUTPUT_BYTES_DEFAULT),
                Limit::Memory
                | Limit::WallTime
                | Limit::CpuTime
                | Limit::Cpus
                | Limit::Processes
                | Limit::OpenFiles
                | Limit::DiskInodes
                | Limit::FileSize => limit.row().default,
            };
            if let Some(value) = limits.get(limit).or(default) {
                // A tmpfs takes 0 for unlimited.
                let is_of_tmpfs = matches!(limit, Limit::Disk | Limit::DiskInodes);
                limits.set(limit, value.max(is_of_tmpfs.into()));
            }
        }
        limits
    }

    fn run_with(
        &self,
        argv: &[&str],
        limits: &LimitValues,
        resources: &mut Resources,
    ) -> Result<Ended, CommandError> {
        let coverage = resources.coverage();
        refuse_unenforceable(&coverage, &self.limits)?;
        let (body_ends, pipes) = make_pipes(false).map_err(call("make pipes"))?;
        let prefork = Prefork::start(resources.group.clone_into())?;
        let preparing = begin(prefork, &resources.base, body_ends, &resources.claims())?;
        let prepared = preparing.finish(&resources.base)?;
        let cgroup_limits = CgroupLimits {
            memory_bytes: limits.get(Limit::Memory),
            processes: limits.get(Limit::Processes),
            cpu_millis: limits.get(Limit::Cpus),
            kills_one: false,
        };
        let joins = resources.group.apply(&cgroup_limits);
        let joins = joins.map_err(ResourcesError::from)?;

        let (mounts, trees) = mounts::open(&self.entries, resources.body_ids())?;
        let view = view::asked(&mounts)?;
        let steps: Vec<_> = resources.base.view.iter().chain(&view).cloned().collect();
        let abi = resources.host.landlock_abi;
        let sockets = unix_sockets::decide(&self.entries, &[], false, abi);
        let plan = LaunchPlan {
            network: None,
            base_view: resources.base.view.clone(),
            view,
            root: None,
            inside: None,
            resize: None,
            ruleset: sockets.ruleset(ruleset::ruleset(abi, &steps), &[]),
            filter: seccomp::programs(SyscallPolicyName::default()),
            is_traced: false,
            records: AuditRecords::nothing(abi),
            command: CommandPlan {
                shell: None,
                second_filter: sockets.filter(),
                limits: rlimits::of(&coverage, limits, None)?,
                working_directory: view::SCRATCH.into(),
                programs: programs(argv),
                argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
                environment: self.environment.clone(),
                null_stdin: true,
            },
            stays: false,
            caller_terminal: None,
        };
        let mut launched = launch(prepared, &plan, &trees, &joins)?.finish()?;

        let output_bytes = limits.get(Limit::Output);
        let captured = |pipe| OutputPump::new(pipe, Sink::Captured(Vec::new()), output_bytes);
        let mut streams = Streams {
            stdin: None,
            stdout: captured(pipes.stdout),
            stderr: captured(pipes.stderr),
            stats: None,
        };
        let time = |limit| limits.get(limit).map(Duration::from_millis);
        let proc = launched.proc.take();
        let memory_bytes = proc.as_ref().and(limits.get(Limit::Memory));
        let watched = WatchLimits {
            wall_time: time(Limit::WallTime),
            grace: Duration::ZERO,
            cpu_time: time(Limit::CpuTime),
            memory_bytes,
            on_output_limit: OnOutputLimit::Drop,
            stop_signal: Request::SIGTERM,
            processors: host::processors(),
        };
        let sampled = proc.as_ref().map(AsFd::as_fd);
        let mut meter = Meter::new(&mut resources.group, sampled, memory_bytes);
        // Never readable: the caller handles signals itself.
        let signals = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(call("make an eventfd"))?;
        let signals = signals.as_fd();
        let observed = watch(
            &mut launched,
            &mut streams,
            signals,
            watched,
            &mut meter,
            Attached::default(),
        )?;
        let counted = meter.counted.take().unwrap_or_else(|| meter.group.count());
        let cpu_us = counted.cpu_time.map(|time| time.total_us);
        let cpu_limit_us = limits
            .get(Limit::CpuTime)
            .map(|ms| ms.saturating_mul(1_000));
        let facts = Facts {
            raw_status: observed.raw_status,
            reason: observed.reason,
            oom_kills: counted.oom_kills.unwrap_or(0),
            cpu_time_reached: cpu_limit_us
                .is_some_and(|limit| cpu_us.is_some_and(|used| used >= limit)),
        };
        Ok(ended(judge(facts), observed, streams, coverage))
    }
}

fn ended(outcome: Outcome, observed: Observed, streams: Streams, coverage: Vec<Coverage>) -> Ended {
    let captured = |pump: OutputPump| pump.finish().captured.unwrap_or_default();
    Ended {
        outcome,
        raw_status: observed.raw_status,
        stdout: captured(streams.stdout),
        stderr: captured(streams.stderr),
        coverage,
        problems: observed.problems,
    }
}

fn refuse_unenforceable(
    coverage: &[Coverage],
    requested: &LimitValues,
) -> Result<(), CommandError> {
    for limit in Limit::ALL {
        let (Some(axis), Some(_)) = (limit.axis(), requested.get(limit)) else {
            continue;
        };
        let covered = coverage.iter().find(|row| row.axis == axis);
        if covered.is_none_or(|row| row.state == EnforcementState::Absent) {
            let reason = covered.and_then(|row| row.reason.clone());
            return Err(CommandError::Unenforceable {
                axis,
                reason: reason.unwrap_or_else(|| "no mechanism is available".to_owned()),
            });
        }
    }
    Ok(())
}

/// The paths inside at which the program may be.
fn programs(argv: &[&str]) -> Vec<Vec<u8>> {
    let directories = PATH.iter().map(|path| path.as_bytes());
    let name = argv.first().map(|name| name.as_bytes());
    name.map_or_else(Vec::new, |name| program_candidates(name, directories))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_limit_of_zero_is_not_unlimited() {
        for (limit, of) in [
            (Limit::Disk, Limit::Disk),
            (Limit::Memory, Limit::Disk),
            (Limit::DiskInodes, Limit::DiskInodes),
        ] {
            let limits = Sandbox::builder().limit(limit, 0).effective_limits();
            assert_eq!(limits.get(of), Some(1), "{limit:?}");
        }
    }
}
