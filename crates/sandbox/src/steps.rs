//! The child's plan as data in the shared arena. All types are `Copy` and point into the arena only,
//! so that the child allocates nothing.

use std::ffi::CStr;

use landlock::{AccessFs, BitFlags, Scope};
use rustix::io::Errno;

use crate::command_plan::BuiltIn;
use crate::launch::{AuditRecords, ImageRoot};
use crate::network::NetworkSteps;
use crate::ruleset::{Rule, Ruleset};
use crate::seccomp::Programs;
use crate::view::ViewStep;
use filter::bpf::Instruction;
use spec::sandboxes::TerminalSize;
use sys::arena::{Arena, Slot, StringArray};
use sys::process::ArgumentArea;

/// Declares the enum, its numbers and its descriptions.
macro_rules! child_steps {
    ($($name:ident: $act:literal,)*) => {
        /// Step that the child reports when it fails.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(i32)]
        pub enum ChildStep {
            $(#[doc = $act] $name,)*
        }

        const CHILD_STEPS: &[(ChildStep, &str)] = &[$((ChildStep::$name, $act),)*];
    };
}

child_steps! {
    DeathSignal: "set the death signal",
    OpenFiles: "raise the limit of open descriptors",
    KernelObjects: "limit the inotify instances, inotify watches and pending signals",
    Namespaces: "leave the host's network, ipc and uts namespaces",
    Loopback: "bring the loopback device up and open its ports to the body",
    HostName: "set the host and domain names",
    PrivateMounts: "make the mounts private",
    AwaitBase: "wait for the base plan",
    Processors: "restore its CPU affinity",
    Clocks: "set the clocks of its time namespace",
    WriteIds: "write the id maps",
    BecomeBody: "become the body's uid",
    WritableSpace: "make the writable space",
    AttachRoot: "attach the new root",
    BaseView: "assemble the new root",
    Terminal: "open the pseudo-terminal",
    ProcDescriptor: "open proc",
    AwaitLaunch: "wait for the launch",
    Routes: "add the routes of the body's network",
    Proxies: "open the proxy's listeners in the body's network",
    DnsSockets: "open the sockets for DNS queries",
    Log: "open the log of refused packets",
    Listeners: "open the listeners for captured connections",
    CaptureRules: "load the rules that capture connections",
    Tap: "open the tap on the loopback device",
    PortListener: "listen for the body's connections at",
    SendSockets: "send the sockets of the body's network to the supervisor",
    Overlay: "create an overlayfs",
    Resize: "limit the writable space",
    LaunchView: "make a requested mount",
    ImageRoot: "attach the image's root",
    BindIntoImage: "bind-mount into the image",
    Pivot: "enter the new root",
    ReadOnlyRoot: "make the new root read-only",
    NoNewPrivileges: "set no_new_privs",
    ImageUser: "become the image's user",
    NotDumpable: "become non-dumpable",
    Ruleset: "create the Landlock ruleset",
    Rule: "add a Landlock rule",
    Signals: "block the signals",
    StartBody: "start the body",
    JoinCgroup: "join the cgroup",
    CgroupNamespace: "leave the host's cgroup namespace",
    Capabilities: "drop the capabilities",
    Session: "start a session",
    ResourceLimit: "set a resource limit",
    Streams: "connect the standard streams",
    CloseDescriptors: "close the descriptors",
    WorkingDirectory: "enter the working directory",
    Landlock: "apply the Landlock ruleset",
    Seccomp: "apply the seccomp filter",
    Trace: "trace the body",
    Execute: "execute the program",
    Wait: "wait for the body",
}

impl ChildStep {
    /// Description for messages.
    #[must_use]
    pub fn act(self) -> &'static str {
        let found = CHILD_STEPS.iter().find(|(step, _)| *step == self);
        found.map_or("", |(_, act)| *act)
    }

    /// Finds the step and its description by number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<(Self, &'static str)> {
        CHILD_STEPS
            .iter()
            .copied()
            .find(|(step, _)| *step as i32 == number)
    }
}

/// Index of a failure that no entry of the list caused.
pub(super) const NO_INDEX: i32 = -1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepError {
    pub(super) step: ChildStep,
    /// Index in the list of the step, or [`NO_INDEX`].
    pub(super) index: i32,
    pub(super) errno: Errno,
}

impl StepError {
    /// The values of the message about it.
    pub(super) fn to_values(self) -> [i32; 3] {
        [self.step as i32, self.index, self.errno.raw_os_error()]
    }
}

pub(super) fn at(step: ChildStep) -> impl Fn(Errno) -> StepError {
    at_index(step, 0)
}

pub(super) fn at_index(step: ChildStep, index: i32) -> impl Fn(Errno) -> StepError {
    move |errno| StepError { step, index, errno }
}

pub(super) mod message {
    /// Never sent.
    pub(crate) const NOTHING: u32 = 0;
    /// Init: the writable space exists; one descriptor.
    pub(crate) const SPACE: u32 = 1;
    /// Init: ready for the launch; descriptors of proc and of the terminal, if requested.
    pub(crate) const READY: u32 = 2;
    /// Init: the body was executed: 0 and the listener of the filter, or the errno for which it has none.
    pub(crate) const STARTED: u32 = 3;
    /// Init: a step failed before the body was executed: number, index, errno.
    pub(crate) const FAILED: u32 = 4;
    /// Init: the body's first process ended: wait status.
    pub(crate) const ENDED: u32 = 5;
    /// Init: sockets of the network: part, sockets per service; descriptors.
    pub(crate) const NETWORK: u32 = 6;
    /// Init: result of a connection request: id, errno; a descriptor on success.
    pub(crate) const CONNECTED: u32 = 7;
    /// Init: result of one overlayfs: 0 or errno.
    pub(crate) const OVERLAID: u32 = 8;
    /// Init: as [`FAILED`], but after the body was executed; the body is killed with init.
    pub(crate) const LOST: u32 = 9;
    /// Init: the listener of the filter, before [`STARTED`], if the body is traced.
    pub(crate) const LISTENER: u32 = 10;
    /// Init: a command of a sandbox that stays was executed: its pid inside; the supervisor's end of its
    /// terminal, if it has one.
    pub(crate) const COMMAND_STARTED: u32 = 11;
    /// Init: as [`FAILED`], of a command of a sandbox that stays.
    pub(crate) const COMMAND_FAILED: u32 = 12;
    /// Init: the first process of a command ended: its pid inside, wait status.
    pub(crate) const COMMAND_ENDED: u32 = 13;
    /// Supervisor: the base plan is in the arena, and for root the id maps are written; the body's
    /// ends of its three streams, then the claims.
    pub(crate) const BASE: u32 = 16;
    /// Supervisor: the launch plan is in the arena; trees, then cgroup files to join.
    pub(crate) const LAUNCH: u32 = 17;
    /// Supervisor: a signal for the process group of the body, or, if the second value is not 0, of the
    /// command with this pid. If the third value is not 0, SIGKILL is for its whole session, and any
    /// signal lets its session end with its first process.
    pub(crate) const SIGNAL: u32 = 18;
    /// Supervisor: connect to the body's loopback: id, 1 for IPv6, port.
    pub(crate) const CONNECT: u32 = 19;
    /// Supervisor: overlayfs requests are in the arena; their trees, in order.
    pub(crate) const OVERLAY: u32 = 20;
    /// Supervisor: a command is in the arena; its three streams, then cgroup files to join.
    pub(crate) const COMMAND: u32 = 21;
    /// Supervisor: end, and with init everything that runs.
    pub(crate) const END: u32 = 22;
}

/// A step of the view for the child. Targets are relative to the new root.
pub(super) type Step<'a> = ViewStep<&'a CStr, &'a [u8]>;

#[derive(Debug, Clone, Copy)]
pub(super) struct IdMaps<'a> {
    pub(super) uid_map: &'a [u8],
    pub(super) gid_map: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BaseSteps<'a> {
    /// `None`: the supervisor writes the maps.
    pub(super) id_maps: Option<IdMaps<'a>>,
    pub(super) inside_id: u32,
    /// `None`: the kernel has no time namespaces.
    pub(super) clocks: Option<ClockSteps<'a>>,
    pub(super) mount_point: &'a CStr,
    pub(super) space_size: &'a CStr,
    pub(super) space_inodes: &'a CStr,
    pub(super) view: &'a [Step<'a>],
    pub(super) terminal: bool,
    pub(super) send_proc: bool,
    /// Number of descriptors whose locks must outlive the supervisor; init keeps them open.
    pub(super) claims: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ClockSteps<'a> {
    /// Text for `/proc/self/timens_offsets`.
    pub(super) offsets: &'a [u8],
    /// How far the offset sets the monotonic clock back.
    pub(super) monotonic_back_ns: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RulesetSteps<'a> {
    pub(super) handled: BitFlags<AccessFs>,
    pub(super) scoped: BitFlags<Scope>,
    pub(super) rules: &'a [(&'a CStr, BitFlags<AccessFs>)],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RootSteps<'a> {
    pub(super) overlay: usize,
    pub(super) writable: bool,
    /// Path relative to the writable space and to the image, and whether the mount is read-only.
    pub(super) binds: &'a [(&'a CStr, bool)],
}

/// A limit of setrlimit(2), soft and hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    pub resource: u32,
    pub value: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchSteps<'a> {
    pub(super) network: Option<&'a NetworkSteps<'a>>,
    pub(super) view: &'a [Step<'a>],
    pub(super) root: Option<RootSteps<'a>>,
    /// Maps of a second user namespace, in which the body has the ids of the image.
    pub(super) inner_id_maps: Option<IdMaps<'a>>,
    pub(super) resize: Option<(&'a CStr, &'a CStr)>,
    pub(super) trees: usize,
    pub(super) joins: usize,
    pub(super) ruleset: Option<RulesetSteps<'a>>,
    pub(super) filter: Programs,
    pub(super) is_traced: bool,
    pub(super) records: AuditRecords,
    /// `None`: the sandbox stays, and commands follow ([`message::COMMAND`]).
    pub(super) command: Option<CommandSteps<'a>>,
    /// Erased, because the body could read init's arguments.
    pub(super) arguments: ArgumentArea,
}

/// What the process of a command does until its exec.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandSteps<'a> {
    pub(super) second_filter: &'a [Instruction],
    pub(super) limits: &'a [ResourceLimit],
    pub(super) working_directory: &'a CStr,
    pub(super) programs: &'a [&'a CStr],
    pub(super) argv: StringArray<'a>,
    pub(super) environment: StringArray<'a>,
    pub(super) null_stdin: bool,
    pub(super) terminal: Option<TerminalSize>,
    /// What it runs instead of a program, with its words.
    pub(super) built_in: Option<(BuiltIn, &'a [&'a CStr])>,
}

/// A plan that the supervisor publishes in the arena and the child reads.
pub(super) trait Plan: Copy {
    const SLOT: Slot;
}

impl Plan for BaseSteps<'_> {
    const SLOT: Slot = Slot::Base;
}

impl Plan for LaunchSteps<'_> {
    const SLOT: Slot = Slot::Launch;
}

impl Plan for CommandSteps<'_> {
    const SLOT: Slot = Slot::Command;
}

/// Publishes `plan`, whose references point into `arena`. Send the message about it afterwards.
/// Fails with E2BIG if the plan is larger than its slot.
pub(super) fn publish<'a, P: Plan + 'a>(arena: &'a Arena, plan: P) -> Result<(), Errno> {
    arena.publish(P::SLOT, plan)
}

/// Reads the published plan. Call it only after the message about it.
pub(super) fn read_plan<'a, P: Plan + 'a>(arena: &'a Arena) -> P {
    #[expect(
        unsafe_code,
        reason = "the compiler cannot check memory that another process wrote"
    )]
    // SAFETY: each slot belongs to one type, and the child reads it only after the message.
    unsafe {
        arena.read_published(P::SLOT)
    }
}

pub(super) fn timestamps(arena: &Arena) -> Vec<(&'static str, u64)> {
    let mut completed: Vec<(&'static str, u64)> = CHILD_STEPS
        .iter()
        .filter_map(|(step, act)| Some((*act, arena.timestamp(*step as usize)?)))
        .collect();
    completed.sort_by_key(|(_, time_ns)| *time_ns);
    completed
}

/// Copies `steps` into the arena. Fails with EINVAL for a NUL in a path, ENOMEM if the arena is
/// full.
pub(super) fn copy_view<'a>(arena: &'a Arena, steps: &[ViewStep]) -> Result<&'a [Step<'a>], Errno> {
    let copied: Result<Vec<Step<'a>>, Errno> =
        steps.iter().map(|step| copy_step(arena, step)).collect();
    arena.slice(&copied?)
}

fn copy_step<'a>(arena: &'a Arena, step: &ViewStep) -> Result<Step<'a>, Errno> {
    let relative = |path: &[u8]| copy_relative(arena, path);
    Ok(match step {
        ViewStep::Directory { path, mode } => Step::Directory {
            path: relative(path)?,
            mode: *mode,
        },
        ViewStep::File { path, contents } => Step::File {
            path: relative(path)?,
            contents: arena.slice(contents)?,
        },
        ViewStep::Symlink { path, target } => Step::Symlink {
            path: relative(path)?,
            target: arena.c_string(target)?,
        },
        ViewStep::Bind {
            source,
            target,
            access,
        } => Step::Bind {
            source: arena.c_string(source)?,
            target: relative(target)?,
            access: *access,
        },
        ViewStep::BindFromSpace {
            source,
            target,
            access,
        } => Step::BindFromSpace {
            source: relative(source)?,
            target: relative(target)?,
            access: *access,
        },
        ViewStep::Attach {
            tree,
            access,
            target,
        } => Step::Attach {
            tree: *tree,
            access: *access,
            target: relative(target)?,
        },
        ViewStep::AttachOverlay {
            overlay,
            access,
            target,
        } => Step::AttachOverlay {
            overlay: *overlay,
            access: *access,
            target: relative(target)?,
        },
        ViewStep::SelfBind { path } => Step::SelfBind {
            path: relative(path)?,
        },
        ViewStep::Tmpfs { target, size_bytes } => Step::Tmpfs {
            target: relative(target)?,
            size_bytes: *size_bytes,
        },
        ViewStep::Proc => Step::Proc,
        ViewStep::Devpts => Step::Devpts,
        ViewStep::Mask { path } => Step::Mask {
            path: relative(path)?,
        },
        ViewStep::MaskDirectory { path } => Step::MaskDirectory {
            path: relative(path)?,
        },
    })
}

/// Converts a path inside to one relative to the new root, the child's working directory.
fn copy_relative<'a>(arena: &'a Arena, path: &[u8]) -> Result<&'a CStr, Errno> {
    arena.c_string(path.strip_prefix(b"/").unwrap_or(path))
}

pub(super) fn copy_root<'a>(arena: &'a Arena, root: &ImageRoot) -> Result<RootSteps<'a>, Errno> {
    let binds: Result<Vec<(&'a CStr, bool)>, Errno> = root
        .binds
        .iter()
        .map(|bind| Ok((copy_relative(arena, &bind.path)?, bind.read_only)))
        .collect();
    Ok(RootSteps {
        overlay: root.overlay,
        writable: root.writable,
        binds: arena.slice(&binds?)?,
    })
}

pub(super) fn copy_ruleset<'a>(
    arena: &'a Arena,
    ruleset: &Ruleset,
) -> Result<RulesetSteps<'a>, Errno> {
    let rules: Result<Vec<_>, Errno> = ruleset
        .rules
        .iter()
        .map(|Rule { path, allowed }| Ok((arena.c_string(path)?, *allowed)))
        .collect();
    Ok(RulesetSteps {
        handled: ruleset.handled,
        scoped: ruleset.scoped,
        rules: arena.slice(&rules?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_number_and_a_name() {
        for (step, name) in CHILD_STEPS {
            assert_eq!(ChildStep::from_number(*step as i32), Some((*step, *name)));
        }
        assert_eq!(ChildStep::from_number(-1), None);
        assert_eq!(ChildStep::from_number(10_000), None);
    }
}
