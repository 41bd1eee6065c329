//! Launch: sends the plan to the waiting child and starts the body.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;

pub use crate::command_plan::{CommandPlan, program_candidates};
use crate::command_plan::{CommandWords, copy_command};
use crate::error::{SandboxError, TRACE};
use crate::image_root::ImageBind;
use crate::network::{self, NetworkPlan, NetworkSockets};
use crate::prefork::{Child, Prefork};
use crate::prepare::{Prepared, describe_view, expect_message, send_or_read_failure};
use crate::refused_calls::RefusedCalls;
use crate::ruleset::Ruleset;
use crate::seccomp::Programs;
use crate::steps::{self, ChildStep, IdMaps, LaunchSteps, message};
use crate::view::{INSIDE_ID, ViewStep};
use spec::path::escape;
use spec::report::StepEnd;
use sys::arena::Arena;
use sys::link::{self, Message, Received};
use sys::process::ArgumentArea;
use sys::seccomp::Listener;
use sys::terminal::copy_size;

/// Everything that is known after the manifest was read.
#[derive(Debug, Clone)]
pub struct LaunchPlan<'a> {
    pub network: Option<NetworkPlan>,
    /// The base view, to name objects in errors.
    pub base_view: Vec<ViewStep>,
    pub view: Vec<ViewStep>,
    /// `None`: the base view is the root.
    pub root: Option<ImageRoot>,
    /// Uid and gid of the body inside, if they differ from `INSIDE_ID`.
    pub inside: Option<(u32, u32)>,
    /// New size of the writable space: bytes and inodes.
    pub resize: Option<(u64, u64)>,
    pub ruleset: Option<Ruleset>,
    pub filter: Programs,
    /// The paths of the body's calls are looked at.
    pub is_traced: bool,
    /// What of Landlock's refusals is recorded if the audit of the host is on.
    pub records: AuditRecords,
    pub command: CommandPlan,
    /// No body is started. The sandbox stays until [`Launched::end`], and each command is started by
    /// `Launched::start`.
    pub stays: bool,
    /// Terminal of the caller, which determines the initial size of the body's.
    pub caller_terminal: Option<BorrowedFd<'a>>,
}

/// Audit records of what Landlock refuses in a sandbox (Linux 6.15, Landlock ABI 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditRecords {
    /// The kernel makes none.
    Unsupported,
    /// None, not even for domains that the body makes itself: otherwise it could fill the log of the host.
    Nothing,
    /// What the domain of the body refuses after its exec.
    OfBody,
}

impl AuditRecords {
    /// No record, with this version of Landlock.
    #[must_use]
    pub const fn nothing(abi: u32) -> Self {
        match abi {
            0..AUDIT_SINCE => Self::Unsupported,
            AUDIT_SINCE.. => Self::Nothing,
        }
    }
}

/// Version of Landlock since which its refusals are recorded.
const AUDIT_SINCE: u32 = 7;

/// An image that becomes the root.
#[derive(Debug, Clone)]
pub struct ImageRoot {
    /// Number of the overlayfs ([`crate::overlay::MountAt::Launch`]).
    pub overlay: usize,
    pub writable: bool,
    /// Bind mounts of the writable space over the image. Each target exists, and no component is a
    /// link.
    pub binds: Vec<ImageBind>,
}

/// A running body.
#[derive(Debug)]
pub struct Launched {
    /// Init of the pid namespace.
    pub child: Child,
    pub link: OwnedFd,
    pub space: OwnedFd,
    /// Supervisor's end of the body's pseudo-terminal.
    pub terminal: Option<OwnedFd>,
    /// proc of the body's pid namespace, if requested.
    pub proc: Option<OwnedFd>,
    /// Sockets of the body's network namespace, if a network was set up.
    pub network: Option<NetworkSockets>,
    pub refused_calls: RefusedCalls,
    /// A second filter keeps unix sockets away. It asks no listener about what it refuses.
    pub refuses_sockets: bool,
    arena: Arena,
    cloned_ns: u64,
}

impl Launched {
    /// Timestamps of the child's completed steps, in order.
    #[must_use]
    pub fn steps(&self) -> Vec<StepEnd> {
        let since = |time_ns: u64| time_ns.saturating_sub(self.cloned_ns) / 1_000;
        let timestamps = steps::timestamps(&self.arena).into_iter();
        timestamps
            .map(|(name, time_ns)| StepEnd {
                name: name.into(),
                at_us: since(time_ns),
            })
            .collect()
    }

    /// Sends `signal` to the body's process group (sendmsg(2)). Does nothing if init has ended.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.send(message::SIGNAL, [signal, 0, 0])
            .map(|_is_sent| ())
    }

    /// Requests a connection to `port` of the body's loopback from init (sendmsg(2)). [`receive`]
    /// returns the answer with the same `id`. Returns `false` if init has ended.
    pub fn connect(&self, id: i32, is_v6: bool, port: u16) -> Result<bool, Errno> {
        self.send(message::CONNECT, [id, i32::from(is_v6), i32::from(port)])
    }

    /// Requests the start of a command in a sandbox that stays, with its three streams, in the cgroups of
    /// the files `joins`. [`receive`] returns the answer; until then no other command can be started.
    /// Returns `false` if init has ended.
    ///
    /// # Errors
    /// ENOMEM: arguments and environment are too long; EINVAL: one of them contains a NUL; those of
    /// sendmsg(2).
    pub(crate) fn start(
        &mut self,
        plan: &CommandPlan,
        words: &CommandWords<'_>,
        streams: [BorrowedFd<'_>; 3],
        joins: &[OwnedFd],
    ) -> Result<bool, Errno> {
        self.arena.overwrite_plan();
        steps::publish(&self.arena, copy_command(&self.arena, plan, words)?)?;
        let joins = joins.iter().map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd<'_>> = streams.into_iter().chain(joins).collect();
        self.send_with(message::COMMAND, [0; 3], &descriptors)
    }

    /// Overwrites the plan of a command whose start was answered.
    pub(crate) fn forget_plan(&mut self) {
        self.arena.overwrite_plan();
    }

    /// Sends `signal` to the process group of the command with this pid, as [`Launched::signal`].
    pub(crate) fn signal_command(&self, pid: i32, signal: i32) -> Result<bool, Errno> {
        self.send(message::SIGNAL, [signal, pid, 0])
    }

    /// As [`Launched::signal_command`], to end it: once its first process has ended, or with SIGKILL at
    /// once, everything that is left in its session is killed.
    pub(crate) fn end_command(&self, pid: i32, signal: i32) -> Result<bool, Errno> {
        self.send(message::SIGNAL, [signal, pid, 1])
    }

    /// Ends a sandbox that stays, with everything that runs in it. Returns `false` if init has ended.
    pub fn end(&self) -> Result<bool, Errno> {
        self.send(message::END, [0; 3])
    }

    fn send(&self, kind: u32, values: [i32; 3]) -> Result<bool, Errno> {
        self.send_with(kind, values, &[])
    }

    fn send_with(
        &self,
        kind: u32,
        values: [i32; 3],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<bool, Errno> {
        match link::send(self.link.as_fd(), Message { kind, values }, descriptors) {
            Ok(()) => Ok(true),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// Message of init while the body runs.
#[derive(Debug)]
pub enum InitMessage {
    Ended(i32),
    /// Result of [`Launched::connect`]: its id and a non-blocking socket that is connected or
    /// connecting.
    Connected(i32, Result<OwnedFd, Errno>),
    /// Of a sandbox that stays.
    Command(CommandEvent),
    Gone,
}

/// What becomes of a command of a sandbox that stays.
#[derive(Debug)]
pub enum CommandEvent {
    /// It runs, with this pid inside; our end of its terminal.
    Started(i32, Option<OwnedFd>),
    /// It was not executed: what failed, the number of the part, the errno.
    Failed(ChildStep, i32, Errno),
    /// Its first process ended: its pid inside, wait status.
    Ended(i32, i32),
}

/// Reads a message of init from the link, which must be readable (recvmsg(2)).
pub fn receive(link: BorrowedFd<'_>) -> Result<InitMessage, Errno> {
    // If init ended with unread messages of the supervisor, the kernel returns ECONNRESET once,
    // before the queued messages of init.
    let message = match link::receive_lossy(link) {
        Err(Errno::CONNRESET) => link::receive_lossy(link),
        other => other,
    };
    match message {
        Ok(Some((
            Message {
                kind: message::ENDED,
                values: [raw_status, ..],
            },
            ..,
        ))) => Ok(InitMessage::Ended(raw_status)),
        Ok(Some((
            Message {
                kind: message::CONNECTED,
                values: [id, errno, _],
            },
            received,
            _,
        ))) => {
            let socket = received.into_iter().flatten().next();
            let refused = match errno {
                // The descriptor was lost: connections of the body may have used up the limit of
                // open files. Refuse this one and continue.
                0 => Errno::MFILE,
                errno => link::errno_from_peer(errno),
            };
            Ok(InitMessage::Connected(id, socket.ok_or(refused)))
        }
        Ok(Some((Message { kind, values }, received, _))) if is_about_command(kind) => {
            let terminal = received.into_iter().flatten().next();
            about_command(kind, values, terminal).map(InitMessage::Command)
        }
        Ok(_) | Err(Errno::CONNRESET) => Ok(InitMessage::Gone),
        Err(errno) => Err(errno),
    }
}

fn is_about_command(kind: u32) -> bool {
    matches!(
        kind,
        message::COMMAND_STARTED | message::COMMAND_FAILED | message::COMMAND_ENDED
    )
}

/// Init may be compromised: a number that names no step is EPROTO.
fn about_command(
    kind: u32,
    values: [i32; 3],
    terminal: Option<OwnedFd>,
) -> Result<CommandEvent, Errno> {
    let [first, second, errno] = values;
    Ok(match kind {
        message::COMMAND_STARTED => CommandEvent::Started(first, terminal),
        message::COMMAND_ENDED => CommandEvent::Ended(first, second),
        _ => {
            let (step, _act) = ChildStep::from_number(first).ok_or(Errno::PROTO)?;
            CommandEvent::Failed(step, second, link::errno_from_peer(errno))
        }
    })
}

/// A child that enters its root. Killed and reaped on drop.
#[derive(Debug)]
pub struct Launching<'plan> {
    prepared: Prepared,
    plan: &'plan LaunchPlan<'plan>,
    trees: &'plan [OwnedFd],
    joins: &'plan [OwnedFd],
}

/// Sends the plan.
///
/// `trees` are those of [`ViewStep::Attach`]; `joins` are open `tasks` files of version 1 cgroups.
///
/// # Errors
/// [`SandboxError`]; then nothing of the child is left, and the body did not run.
pub fn launch<'plan>(
    prepared: Prepared,
    plan: &'plan LaunchPlan<'plan>,
    trees: &'plan [OwnedFd],
    joins: &'plan [OwnedFd],
) -> Result<Launching<'plan>, SandboxError> {
    publish(&prepared.prefork.arena, plan, trees.len(), joins.len()).map_err(|errno| {
        let object = match errno {
            Errno::NOMEM => {
                "the launch plan (arguments and environment together are limited to 16 MiB)"
            }
            _ => "the launch plan",
        };
        SandboxError::supervisor("store", object)(errno)
    })?;
    let launching = Launching {
        prepared,
        plan,
        trees,
        joins,
    };
    // Before the child is ready, to save a wait. Exception: a terminal, which comes with the child's
    // answer, must get its size before the body runs.
    if plan.caller_terminal.is_none() {
        launching.send()?;
    }
    Ok(launching)
}

impl Launching<'_> {
    fn send(&self) -> Result<(), SandboxError> {
        let link = self.prepared.prefork.link.as_fd();
        let fds = self.trees.iter().chain(self.joins).map(AsFd::as_fd);
        let describe = |step, index| describe_launch(self.plan, step, index);
        let go = Message::of(message::LAUNCH);
        send_or_read_failure(link, go, &fds.collect::<Vec<_>>(), &describe)
    }

    /// Waits until the body's program has been executed, or, in a sandbox that stays, until commands can be
    /// started.
    ///
    /// # Errors
    /// [`SandboxError`]; then nothing of the child is left. The body did not run, except if init failed
    /// or ended after the exec ([`SandboxError::Lost`], [`SandboxError::ChildGone`]).
    pub fn finish(mut self) -> Result<Launched, SandboxError> {
        let ready = self.prepared.ready.take();
        let plan = self.plan;
        let describe = |step, index| describe_launch(plan, step, index);
        let link = self.prepared.prefork.link.as_fd();
        let (proc, terminal) = await_ready(ready, link, plan, &describe)?;
        if plan.caller_terminal.is_some() {
            self.send()?;
        }
        let network = match &plan.network {
            Some(_) => Some(network::receive_sockets(link, &describe)?),
            None => None,
        };
        let act = "start the body";
        let early = if plan.is_traced {
            let (message, mut received) = expect_message(link, message::LISTENER, act, &describe)?;
            let listener = listener(message, &mut received);
            let mut traced = RefusedCalls::new(listener, plan.filter.silent, Instant::now())
                .traced(plan.ruleset.clone())
                .map_err(SandboxError::supervisor(TRACE, "/proc"))?;
            traced
                .answer_until_readable(link)
                .map_err(SandboxError::supervisor("answer", "the calls of the body"))?;
            Some(traced)
        } else {
            None
        };
        let refused_calls = match expect_message(link, message::STARTED, act, &describe) {
            Ok((started, mut received)) => early.unwrap_or_else(|| {
                let listener = listener(started, &mut received);
                RefusedCalls::new(listener, plan.filter.silent, Instant::now())
            }),
            Err(SandboxError::Child {
                step: ChildStep::Execute,
                errno,
                ..
            }) => {
                return Err(not_executed(plan, errno));
            }
            Err(error) => return Err(error),
        };
        let Prefork {
            child,
            link,
            mut arena,
            cloned_ns,
        } = self.prepared.prefork;
        // Init does not read its plan after the exec. The timestamps stay.
        arena.overwrite_plan();
        Ok(Launched {
            arena,
            cloned_ns,
            child,
            link,
            space: self.prepared.space,
            terminal,
            proc,
            network,
            refused_calls,
            refuses_sockets: !plan.command.second_filter.is_empty(),
        })
    }
}

/// The listener in the message about the start.
fn listener(started: Message, received: &mut Received) -> Result<Listener, Errno> {
    let listener = received.first_mut().and_then(Option::take);
    listener
        .map(Listener::new)
        .ok_or_else(|| link::errno_from_peer(started.values[0]))
}

/// Waits until the root is assembled; returns proc and the pseudo-terminal.
fn await_ready(
    ready: Option<(Message, Received)>,
    link: BorrowedFd<'_>,
    plan: &LaunchPlan<'_>,
    describe: &dyn Fn(ChildStep, usize) -> String,
) -> Result<(Option<OwnedFd>, Option<OwnedFd>), SandboxError> {
    let act = "assemble the new root";
    let (ready, mut received) = match ready {
        Some(ready) => ready,
        None => expect_message(link, message::READY, act, describe)?,
    };
    let [has_proc, has_terminal, _] = ready.values;
    let mut descriptors = received.iter_mut().filter_map(Option::take);
    let mut take = |has: i32| (has != 0).then(|| descriptors.next()).flatten();
    let (proc, terminal) = (take(has_proc), take(has_terminal));
    if let (Some(from), Some(to)) = (plan.caller_terminal, &terminal) {
        copy_size(from, to.as_fd()).map_err(SandboxError::supervisor(
            "copy the size of",
            "the caller's terminal",
        ))?;
    }
    Ok((proc, terminal))
}

fn not_executed(plan: &LaunchPlan<'_>, errno: Errno) -> SandboxError {
    let program = escape(plan.command.argv.first().map_or(&b""[..], Vec::as_slice));
    match errno {
        Errno::NOENT | Errno::NOTDIR => SandboxError::ProgramNotFound { program },
        errno => SandboxError::ProgramNotExecutable { program, errno },
    }
}

fn publish(arena: &Arena, plan: &LaunchPlan<'_>, trees: usize, joins: usize) -> Result<(), Errno> {
    let number = |value: u64| arena.c_string(value.to_string().as_bytes());
    let steps = LaunchSteps {
        network: match &plan.network {
            Some(plan) => Some(network::copy_plan(arena, plan)?),
            None => None,
        },
        view: steps::copy_view(arena, &plan.view)?,
        root: match &plan.root {
            Some(root) => Some(steps::copy_root(arena, root)?),
            None => None,
        },
        inner_id_maps: match plan.inside {
            Some((uid, gid)) => {
                let map = |id: u32| arena.slice(format!("{id} {INSIDE_ID} 1\n").as_bytes());
                let (uid_map, gid_map) = (map(uid)?, map(gid)?);
                Some(IdMaps { uid_map, gid_map })
            }
            None => None,
        },
        resize: match plan.resize {
            Some((bytes, inodes)) => Some((number(bytes)?, number(inodes)?)),
            None => None,
        },
        trees,
        joins,
        ruleset: match &plan.ruleset {
            Some(ruleset) => Some(steps::copy_ruleset(arena, ruleset)?),
            None => None,
        },
        filter: plan.filter,
        is_traced: plan.is_traced,
        records: plan.records,
        command: match plan.stays {
            false => {
                let words = CommandWords::of_plan(&plan.command);
                Some(copy_command(arena, &plan.command, &words)?)
            }
            true => None,
        },
        arguments: ArgumentArea::of_this_process()?,
    };
    steps::publish(arena, steps)
}

fn describe_launch(plan: &LaunchPlan<'_>, step: ChildStep, index: usize) -> String {
    let object = match step {
        ChildStep::BaseView => plan.base_view.get(index).map(describe_view),
        ChildStep::LaunchView => plan.view.get(index).map(describe_view),
        ChildStep::BindIntoImage => plan
            .root
            .as_ref()
            .and_then(|root| root.binds.get(index))
            .map(|bind| format!("/{}", escape(&bind.path))),
        ChildStep::ImageUser => plan.inside.map(|(uid, gid)| format!("{uid}:{gid}")),
        ChildStep::Rule => plan
            .ruleset
            .as_ref()
            .and_then(|ruleset| ruleset.rules.get(index))
            .map(|rule| escape(&rule.path)),
        ChildStep::PortListener => plan
            .network
            .as_ref()
            .and_then(|network| network.capture.ports.get(index))
            .map(|port| format!("port {port}")),
        ChildStep::WorkingDirectory => Some(escape(&plan.command.working_directory)),
        ChildStep::ResourceLimit => {
            let limit = plan.command.limits.get(index);
            limit.map(|limit| limit.resource.to_string())
        }
        _ => None,
    };
    object.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::NO_INDEX;

    #[test]
    fn a_failure_of_init_names_the_mount_if_one_failed_and_says_if_the_body_was_started() {
        let failure = |kind, step: ChildStep, index| {
            let (parent_end, child_end) = link::pair().expect("a pair");
            let values = [step as i32, index, Errno::NOMEM.raw_os_error()];
            link::send(child_end.as_fd(), Message { kind, values }, &[]).expect("sent");
            let name = |_, index| format!("mount {index}");
            let received = expect_message(
                parent_end.as_fd(),
                message::STARTED,
                "start the body",
                &name,
            );
            let error = received.expect_err("it failed");
            (error.code(), error.to_string())
        };
        for (kind, step, index, code, start) in [
            (
                message::FAILED,
                ChildStep::LaunchView,
                0,
                "sandbox_step_failed",
                "cannot make a requested mount mount 0: ",
            ),
            (
                message::FAILED,
                ChildStep::LaunchView,
                NO_INDEX,
                "sandbox_step_failed",
                "cannot make a requested mount: ",
            ),
            (
                message::LOST,
                ChildStep::Capabilities,
                0,
                "sandbox_init_failed",
                "the body was killed because init failed after its start: cannot drop the capabilities: ",
            ),
        ] {
            let (found, message) = failure(kind, step, index);
            assert_eq!(found, code);
            assert!(message.starts_with(start), "{message}");
        }
    }

    #[test]
    fn the_last_message_of_an_init_that_ended_with_an_unread_signal_is_received() {
        let (parent_end, child_end) = link::pair().expect("a pair");
        let send = |end: &OwnedFd, kind| {
            let values = [7 << 8, 0, 0];
            link::send(end.as_fd(), Message { kind, values }, &[]).expect("sent");
        };
        send(&parent_end, message::SIGNAL);
        send(&child_end, message::ENDED);
        drop(child_end);
        assert!(
            matches!(receive(parent_end.as_fd()), Ok(InitMessage::Ended(status)) if status == 7 << 8)
        );
        assert!(matches!(receive(parent_end.as_fd()), Ok(InitMessage::Gone)));
    }
}
