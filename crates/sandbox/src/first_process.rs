//! The first process of a body or command: from vfork to exec, in the memory of init. Nothing is
//! allocated here, and a step that fails ends the process.

use std::cell::Cell;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use landlock::{RestrictSelfAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::child::store_timestamp;
use crate::launch::AuditRecords;
use crate::steps::{ChildStep, CommandSteps, StepError, at, at_index};
use sys::arena::Arena;
use sys::namespace::kind;
use sys::signal::{self, SignalSet};
use sys::{landlock as kernel_landlock, namespace, privileges, process, rlimit, seccomp};

/// umask of the body, independent of the caller's.
const BODY_UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// Data of a command's first process, in memory that it shares with init until the exec.
pub(super) struct CommandStart<'a> {
    pub(super) arena: &'a Arena,
    pub(super) command: &'a CommandSteps<'a>,
    /// Files of the cgroups to join.
    pub(super) joins: &'a [Option<OwnedFd>],
    /// What the process has to leave itself. `None`: init has left it, and has no capability.
    pub(super) leaves: Option<Leaves<'a>>,
    pub(super) terminal: Option<&'a OwnedFd>,
    pub(super) streams: [BorrowedFd<'a>; 3],
    pub(super) failed: Cell<Option<StepError>>,
    /// All steps are done except the exec.
    pub(super) confined: Cell<bool>,
}

/// The Landlock domain to enter, below that of init, from the host's cgroup namespace.
pub(super) struct Leaves<'a> {
    pub(super) ruleset: &'a Cell<Option<RulesetCreated>>,
    pub(super) records: AuditRecords,
}

/// Returns the pid, or `None` if the process was killed before the exec, for example out of memory.
pub(super) fn start_command(
    start: &CommandStart<'_>,
    stack: &mut [u8],
) -> Result<Option<i32>, StepError> {
    #[expect(
        unsafe_code,
        reason = "the one place where a command's first process is started"
    )]
    // SAFETY: `command_main` changes only the Cells of its argument.
    let pid = unsafe { process::vfork_onto(stack, command_main, start) };
    let pid = pid.map_err(at(ChildStep::StartBody))?;
    match start.failed.get() {
        None => Ok(start.confined.get().then_some(pid)),
        Some(failed) => Err(failed),
    }
}

/// The command's first process until its exec, in init's memory.
fn command_main(start: &CommandStart<'_>) -> ! {
    start.failed.set(Some(confine_and_execute(start)));
    process::exit_now(127)
}

fn confine_and_execute(start: &CommandStart<'_>) -> StepError {
    match confine(start) {
        Ok(()) => {
            start.confined.set(true);
            execute(start.command)
        }
        Err(failed) => failed,
    }
}

pub(super) fn join_groups(groups: &[Option<OwnedFd>]) -> Result<(), StepError> {
    for (index, group) in (0..).zip(groups.iter().flatten()) {
        // `0` is the writing thread; joining through `tasks` takes no lock over all threads.
        rustix::io::write(group, b"0").map_err(at_index(ChildStep::JoinCgroup, index))?;
    }
    Ok(())
}

/// Call it after joining, because the current cgroup becomes the namespace's root.
pub(super) fn leave_cgroup_namespace() -> Result<(), StepError> {
    namespace::unshare(kind::CGROUP).map_err(at(ChildStep::CgroupNamespace))
}

/// Confines this process as the first one of a command.
pub(super) fn confine(start: &CommandStart<'_>) -> Result<(), StepError> {
    let command = start.command;
    store_timestamp(start.arena, ChildStep::StartBody);
    join_groups(start.joins)?;
    if start.leaves.is_some() {
        leave_cgroup_namespace()?;
        store_timestamp(start.arena, ChildStep::JoinCgroup);
        privileges::drop_all().map_err(at(ChildStep::Capabilities))?;
    }
    rustix::process::setsid().map_err(at(ChildStep::Session))?;
    for (index, limit) in (0..).zip(command.limits) {
        rlimit::set(limit.resource, limit.value)
            .map_err(at_index(ChildStep::ResourceLimit, index))?;
    }
    connect_streams(start)?;
    if let Some(Leaves { ruleset, records }) = &start.leaves
        && let Some(ruleset) = ruleset.take()
    {
        restrict(ruleset, Domain::OfBody, *records)?;
    }
    process::close_all_but(&[0, 1, 2]).map_err(at(ChildStep::CloseDescriptors))?;
    // After closing descriptors: a working directory `/proc/self/fd/N` could be a directory of the
    // host (CVE-2024-21626).
    rustix::process::chdir(command.working_directory).map_err(at(ChildStep::WorkingDirectory))?;
    // Reset signals that the caller ignores, SIGPIPE and SIGXFSZ, which init ignores.
    signal::default_dispositions().map_err(at(ChildStep::Signals))?;
    signal::set_mask(SignalSet::NONE).map_err(at(ChildStep::Signals))?;
    rustix::process::umask(BODY_UMASK);
    store_timestamp(start.arena, ChildStep::WorkingDirectory);
    if !command.second_filter.is_empty() {
        seccomp::load(command.second_filter).map_err(at(ChildStep::Seccomp))?;
    }
    // Reads the clock without a system call, because the filter might refuse one.
    store_timestamp(start.arena, ChildStep::Seccomp);
    Ok(())
}

/// Whose domain is entered. That of the body is below that of init.
#[derive(Debug, Clone, Copy)]
pub(super) enum Domain {
    OfInit,
    OfBody,
}

/// Enters the domain of the ruleset. A flag that the kernel does not know would be an error.
pub(super) fn restrict(
    ruleset: RulesetCreated,
    domain: Domain,
    records: AuditRecords,
) -> Result<(), StepError> {
    let flagged = match (domain, records) {
        (Domain::OfInit, AuditRecords::Nothing) => ruleset.log_subdomains(false),
        // Before its exec the body has not begun.
        (Domain::OfBody, AuditRecords::OfBody) => ruleset
            .log_same_exec(false)
            .and_then(|ruleset| ruleset.log_new_exec(true))
            .and_then(|ruleset| ruleset.log_subdomains(false)),
        (Domain::OfInit, AuditRecords::OfBody | AuditRecords::Unsupported)
        | (Domain::OfBody, AuditRecords::Nothing | AuditRecords::Unsupported) => Ok(ruleset),
    };
    let restricted = flagged
        // no_new_privs is already set.
        .and_then(|ruleset| ruleset.no_new_privs(false).restrict_self());
    let status =
        restricted.map_err(|error| at(ChildStep::Landlock)(kernel_landlock::errno_in(&error)))?;
    if status.ruleset == RulesetStatus::FullyEnforced {
        Ok(())
    } else {
        Err(at(ChildStep::Landlock)(Errno::OPNOTSUPP))
    }
}

fn connect_streams(start: &CommandStart<'_>) -> Result<(), StepError> {
    let null;
    let [stdin, stdout, stderr] = match start.terminal {
        Some(terminal) => [terminal.as_fd(); 3],
        None if start.command.null_stdin => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(rustix::fs::CWD, c"/dev/null", flags, Mode::empty());
            null = opened.map_err(at(ChildStep::Streams))?;
            let [_, stdout, stderr] = start.streams;
            [null.as_fd(), stdout, stderr]
        }
        None => start.streams,
    };
    // Sources are above 2, so none is overwritten.
    dup2_stdin(stdin)
        .and_then(|()| dup2_stdout(stdout))
        .and_then(|()| dup2_stderr(stderr))
        .map_err(at(ChildStep::Streams))?;
    if let Some(terminal) = start.terminal {
        rustix::process::ioctl_tiocsctty(terminal).map_err(at(ChildStep::Terminal))?;
    }
    Ok(())
}

fn execute(command: &CommandSteps<'_>) -> StepError {
    let mut failure = Errno::NOENT;
    for program in command.programs {
        // As execvp(3): skip missing files, remember a file that cannot be executed, and try the
        // rest.
        match process::execve(program, command.argv, command.environment) {
            Errno::NOENT | Errno::NOTDIR => (),
            Errno::ACCESS => failure = Errno::ACCESS,
            other => {
                failure = other;
                break;
            }
        }
    }
    at(ChildStep::Execute)(failure)
}
