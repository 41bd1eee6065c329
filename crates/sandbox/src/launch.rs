//! Launch: the plan goes to the waiting child, and the body runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::SandboxError;
use crate::image_root::Graft;
use crate::network::{self, NetworkPlan, NetworkSockets};
use crate::prefork::Child;
use crate::prepare::{Prepared, describe_view, expect_message, send_or_hear_why};
use crate::ruleset::Ruleset;
use crate::steps::{self, ChildStep, LaunchSteps, OwnMaps, ResourceLimit, message};
use crate::view::{INSIDE_ID, ViewStep};
use spec::bpf::Instruction;
use spec::path::escape;
use spec::report::StepEnd;
use sys::arena::{Arena, Slot};
use sys::link::{self, Message, Received};
use sys::process::ArgumentArea;
use sys::terminal::copy_size;

/// What is known once the manifest has been read.
#[derive(Debug, Clone)]
pub struct LaunchPlan<'a> {
    /// What is laid out in the network namespace; `None`: nothing but its own loopback.
    pub network: Option<NetworkPlan>,
    /// What the base plan shows: the child may meet an error in it only now.
    pub base_view: Vec<ViewStep>,
    /// Mounts that were asked for.
    pub view: Vec<ViewStep>,
    /// The image that becomes the root; `None`: the base view is.
    pub root: Option<ImageRoot>,
    /// Uid and gid of the body inside, where they are others than `INSIDE_ID`.
    pub inside: Option<(u32, u32)>,
    /// New limits of the writable space: bytes and inodes.
    pub resize: Option<(u64, u64)>,
    /// The second line for files.
    pub ruleset: Option<Ruleset>,
    /// The system call filter.
    pub filter: &'a [Instruction],
    /// A second one, which can only refuse more; empty: none.
    pub second_filter: Vec<Instruction>,
    /// Limits of setrlimit(2).
    pub limits: Vec<ResourceLimit>,
    pub working_directory: Vec<u8>,
    /// Paths to try in order.
    pub programs: Vec<Vec<u8>>,
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// Whether the body reads /dev/null in place of its pipe.
    pub null_stdin: bool,
    /// The caller's terminal, whose size the body's own one has from the start.
    pub caller_terminal: Option<BorrowedFd<'a>>,
}

/// An image that becomes the root.
#[derive(Debug, Clone)]
pub struct ImageRoot {
    /// The overlayfs that was laid of it ([`crate::overlay::Shown::AtLaunch`]).
    pub overlay: usize,
    /// Whether the overlayfs takes changes.
    pub writable: bool,
    /// What of the run's own space is shown over it; each place is there, and no link leads to it.
    pub grafts: Vec<Graft>,
}

/// The body runs.
#[derive(Debug)]
pub struct Launched {
    /// Init of its pid namespace.
    pub child: Child,
    /// The link to init.
    pub link: OwnedFd,
    /// The root of the writable space.
    pub space: OwnedFd,
    /// The supervisor's end of the body's pseudo-terminal.
    pub terminal: Option<OwnedFd>,
    /// proc of the body's pid namespace, where it was asked for.
    pub proc: Option<OwnedFd>,
    /// The sockets of the body's network namespace, where something was laid out there.
    pub network: Option<NetworkSockets>,
    arena: Arena,
    cloned_ns: u64,
}

impl Launched {
    /// When the child had done each step that it noted, in the order in which it did them.
    #[must_use]
    pub fn steps(&self) -> Vec<StepEnd> {
        let since = |moment_ns: u64| moment_ns.saturating_sub(self.cloned_ns) / 1_000;
        let moments = steps::moments(&self.arena).into_iter();
        moments
            .map(|(act, moment_ns)| StepEnd {
                act: act.into(),
                at_us: since(moment_ns),
            })
            .collect()
    }

    /// Sends `signal` to the body's process group. That init has ended already is fine.
    ///
    /// # Errors
    /// The errno of sendmsg(2).
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        let message = Message {
            kind: message::SIGNAL,
            values: [signal, 0, 0],
        };
        match link::send(self.link.as_fd(), message, &[]) {
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            other => other,
        }
    }

    /// Asks init for a connection to `port` of the body's own loopback; [`hear`] answers with the
    /// same `id`. That init has ended already is an answer too: `false`.
    ///
    /// # Errors
    /// The errno of sendmsg(2).
    pub fn connect(&self, id: i32, is_v6: bool, port: u16) -> Result<bool, Errno> {
        let message = Message {
            kind: message::CONNECT,
            values: [id, i32::from(is_v6), i32::from(port)],
        };
        match link::send(self.link.as_fd(), message, &[]) {
            Ok(()) => Ok(true),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// What init says while the body runs.
#[derive(Debug)]
pub enum Word {
    /// The body's first process ended with this wait status.
    Ended(i32),
    /// What became of a connection to the body that [`Launched::connect`] asked for: its id, a
    /// non-blocking socket that is connected or about to be.
    Connected(i32, Result<OwnedFd, Errno>),
    /// Init itself failed, or is gone.
    Gone,
}

/// Takes init's word from the link once it is readable.
///
/// # Errors
/// The errno of recvmsg(2).
pub fn hear(link: BorrowedFd<'_>) -> Result<Word, Errno> {
    // Init may end with a signal of ours still unread. Then the kernel says ECONNRESET once, and
    // only after that gives out what init had said before.
    let word = match link::receive_what_fits(link) {
        Err(Errno::CONNRESET) => link::receive_what_fits(link),
        other => other,
    };
    match word {
        Ok(Some((
            Message {
                kind: message::ENDED,
                values: [raw_status, ..],
            },
            ..,
        ))) => Ok(Word::Ended(raw_status)),
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
                // It was sent, and there was no room for it here: the body may have used it up
                // with connections. One connection is refused, and the run goes on.
                0 => Errno::MFILE,
                errno => link::stated_errno(errno),
            };
            Ok(Word::Connected(id, socket.ok_or(refused)))
        }
        Ok(_) | Err(Errno::CONNRESET) => Ok(Word::Gone),
        Err(errno) => Err(errno),
    }
}

/// Sends the plan and waits until the body's program has been executed.
///
/// `trees` are what [`ViewStep::Attach`] names; `joins` are opened `tasks` files of groups of
/// version 1.
///
/// # Errors
/// [`SandboxError`]; then nothing of the child is left. The body did not run, except where init
/// failed or ended after it had been executed ([`SandboxError::Lost`], [`SandboxError::ChildGone`]).
pub fn launch(
    mut prepared: Prepared,
    plan: &LaunchPlan<'_>,
    trees: &[OwnedFd],
    joins: &[OwnedFd],
) -> Result<Launched, SandboxError> {
    let describe = |step, index| describe_launch(plan, step, index);
    let heard = prepared.ready.take();
    let link = prepared.link.as_fd();
    publish(&prepared, plan, trees.len(), joins.len()).map_err(|errno| {
        SandboxError::Supervisor {
            act: "lay out",
            object: "the launch (arguments and environment together are limited to 16 MiB)"
                .to_owned(),
            errno,
        }
    })?;
    let fds: Vec<BorrowedFd<'_>> = trees.iter().chain(joins).map(AsFd::as_fd).collect();
    let go = Message {
        kind: message::LAUNCH,
        values: [0; 3],
    };
    // The child takes it when it has assembled its root: nobody waits for anybody. Only a terminal
    // must have its size before the body runs, and comes with the child's answer.
    let told = plan.caller_terminal.is_none();
    if told {
        send_or_hear_why(link, go, &fds, &describe)?;
    }
    let (proc, terminal) = await_ready(heard, link, plan, &describe)?;
    if !told {
        send_or_hear_why(link, go, &fds, &describe)?;
    }
    let network = match &plan.network {
        Some(_) => Some(network::take_over(link, &describe)?),
        None => None,
    };
    match expect_message(link, message::STARTED, "start the body", &describe) {
        Ok(_) => (),
        Err(SandboxError::Child {
            step: ChildStep::Execute,
            errno,
            ..
        }) => {
            return Err(not_executed(plan, errno));
        }
        Err(error) => return Err(error),
    }
    let Prepared {
        child,
        link,
        space,
        mut arena,
        cloned_ns,
        ..
    } = prepared;
    // The body has been executed, and init reads nothing of its plan after that: what stays of the
    // arena are the moments.
    arena.overwrite_plan();
    Ok(Launched {
        arena,
        cloned_ns,
        child,
        link,
        space,
        terminal,
        proc,
        network,
    })
}

/// The child has assembled its root; what it hands over: proc, and the pseudo-terminal.
fn await_ready(
    heard: Option<(Message, Received)>,
    link: BorrowedFd<'_>,
    plan: &LaunchPlan<'_>,
    describe: &dyn Fn(ChildStep, usize) -> String,
) -> Result<(Option<OwnedFd>, Option<OwnedFd>), SandboxError> {
    let act = "assemble the new root";
    let (ready, mut received) = match heard {
        Some(heard) => heard,
        None => expect_message(link, message::READY, act, describe)?,
    };
    let [has_proc, has_terminal, _] = ready.values;
    let mut descriptors = received.iter_mut().filter_map(Option::take);
    let mut take = |has: i32| (has != 0).then(|| descriptors.next()).flatten();
    let (proc, terminal) = (take(has_proc), take(has_terminal));
    if let (Some(from), Some(to)) = (plan.caller_terminal, &terminal) {
        copy_size(from, to.as_fd()).map_err(|errno| SandboxError::Supervisor {
            act: "copy the size of",
            object: "the caller's terminal".to_owned(),
            errno,
        })?;
    }
    Ok((proc, terminal))
}

fn not_executed(plan: &LaunchPlan<'_>, errno: Errno) -> SandboxError {
    let program = escape(plan.argv.first().map_or(&b""[..], Vec::as_slice));
    match errno {
        Errno::NOENT | Errno::NOTDIR => SandboxError::ProgramNotFound { program },
        errno => SandboxError::ProgramNotExecutable { program, errno },
    }
}

fn publish(
    prepared: &Prepared,
    plan: &LaunchPlan<'_>,
    trees: usize,
    joins: usize,
) -> Result<(), Errno> {
    let arena = &prepared.arena;
    let number = |value: u64| arena.c_string(value.to_string().as_bytes());
    let mut programs = Vec::with_capacity(plan.programs.len());
    for program in &plan.programs {
        programs.push(arena.c_string(program)?);
    }
    let steps = LaunchSteps {
        network: match &plan.network {
            Some(plan) => Some(network::lay_out(arena, plan)?),
            None => None,
        },
        view: steps::lay_out_view(arena, &plan.view)?,
        root: match &plan.root {
            Some(root) => Some(steps::lay_out_root(
                arena,
                root.overlay,
                root.writable,
                &root.grafts,
            )?),
            None => None,
        },
        other_ids: match plan.inside {
            Some((uid, gid)) => {
                let map = |id: u32| arena.slice(format!("{id} {INSIDE_ID} 1\n").as_bytes());
                let (uid_map, gid_map) = (map(uid)?, map(gid)?);
                Some(OwnMaps { uid_map, gid_map })
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
            Some(ruleset) => Some(steps::lay_out_ruleset(arena, ruleset)?),
            None => None,
        },
        filter: arena.slice(plan.filter)?,
        second_filter: arena.slice(&plan.second_filter)?,
        limits: arena.slice(&plan.limits)?,
        working_directory: arena.c_string(&plan.working_directory)?,
        programs: arena.slice(&programs)?,
        argv: steps::lay_out_strings(arena, &plan.argv)?,
        environment: steps::lay_out_strings(arena, &plan.environment)?,
        null_stdin: plan.null_stdin,
        arguments: ArgumentArea::of_this_process()?,
    };
    arena.publish(Slot::Launch, steps)
}

fn describe_launch(plan: &LaunchPlan<'_>, step: ChildStep, index: usize) -> String {
    match step {
        ChildStep::BaseView => plan
            .base_view
            .get(index)
            .map(describe_view)
            .unwrap_or_default(),
        ChildStep::LaunchView => plan.view.get(index).map(describe_view).unwrap_or_default(),
        ChildStep::Graft => plan
            .root
            .as_ref()
            .and_then(|root| root.grafts.get(index))
            .map(|graft| format!("/{}", escape(&graft.path)))
            .unwrap_or_default(),
        ChildStep::ImageUser => plan
            .inside
            .map(|(uid, gid)| format!("{uid}:{gid}"))
            .unwrap_or_default(),
        ChildStep::Rule => plan
            .ruleset
            .as_ref()
            .and_then(|ruleset| ruleset.rules.get(index))
            .map(|rule| escape(&rule.path))
            .unwrap_or_default(),
        ChildStep::PortListener => plan
            .network
            .as_ref()
            .and_then(|network| network.capture.ports.get(index))
            .map(|port| format!("port {port}"))
            .unwrap_or_default(),
        ChildStep::WorkingDirectory => escape(&plan.working_directory),
        ChildStep::ResourceLimit => plan
            .limits
            .get(index)
            .map(|limit| limit.resource.to_string())
            .unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::NO_PLACE;

    #[test]
    fn an_init_that_failed_says_whether_the_body_was_started_and_names_no_mount_that_is_not_meant()
    {
        let told = |kind, step: ChildStep, index| {
            let (ours, theirs) = link::pair().expect("a pair");
            let values = [step as i32, index, Errno::NOMEM.raw_os_error()];
            link::send(theirs.as_fd(), Message { kind, values }, &[]).expect("sent");
            let name = |_, index| format!("mount {index}");
            let heard = expect_message(ours.as_fd(), message::STARTED, "start the body", &name);
            let error = heard.expect_err("it failed");
            (error.code(), error.to_string())
        };
        for (kind, step, index, code, said) in [
            (
                message::FAILED,
                ChildStep::LaunchView,
                0,
                "sandbox_step_failed",
                "cannot mount what was asked for mount 0: ",
            ),
            (
                message::FAILED,
                ChildStep::LaunchView,
                NO_PLACE,
                "sandbox_step_failed",
                "cannot mount what was asked for: ",
            ),
            (
                message::LOST,
                ChildStep::Capabilities,
                0,
                "sandbox_init_failed",
                "the body was started, and ended again with its init, which cannot drop the capabilities: ",
            ),
        ] {
            let told = told(kind, step, index);
            assert_eq!(told.0, code);
            assert!(told.1.starts_with(said), "{}", told.1);
        }
    }

    #[test]
    fn the_last_word_of_an_init_that_ended_with_a_signal_unread_is_heard() {
        let (ours, theirs) = link::pair().expect("a pair");
        let say = |end: &OwnedFd, kind| {
            let values = [7 << 8, 0, 0];
            link::send(end.as_fd(), Message { kind, values }, &[]).expect("sent");
        };
        say(&ours, message::SIGNAL);
        say(&theirs, message::ENDED);
        drop(theirs);
        assert!(matches!(hear(ours.as_fd()), Ok(Word::Ended(status)) if status == 7 << 8));
        assert!(matches!(hear(ours.as_fd()), Ok(Word::Gone)));
    }
}
