//! Prepare: a child in namespaces of its own that has made the writable space and waits.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::kernel::arena::Arena;
use crate::kernel::credentials::HostIds;
use crate::kernel::link::{self, Message, Received};
use crate::kernel::namespace::{self, kind};
use crate::kernel::process::{self, ArgumentArea, Forked};
use crate::plan::view::{INSIDE_ID, ViewStep};
use crate::sandbox::child;
use crate::sandbox::error::SandboxError;
use crate::sandbox::steps::{self, BaseSteps, ChildStep, OwnMaps, Streams, message};
use crate::spec::path::escape;

/// Address space for the plan: more than execve(2) takes of arguments and environment together.
const ARENA_BYTES: usize = 16 << 20;
/// Stack of the body's first process until its exec.
const STACK_BYTES: usize = 256 << 10;

/// How long a dropped child may take to die, seconds.
const DROP_PATIENCE_S: i64 = 5;

/// Who the body is on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The caller's own ids, which are all that an ordinary user may map.
    Own(HostIds),
    /// Ids of its own, which root claimed for this run.
    Claimed(HostIds),
}

impl Identity {
    /// The ids to assume for touching the body's files; `None` where they are ours anyway.
    #[must_use]
    pub fn to_assume(self) -> Option<HostIds> {
        match self {
            Self::Own(_) => None,
            Self::Claimed(ids) => Some(ids),
        }
    }
}

/// What is known before the clone.
#[derive(Debug, Clone)]
pub struct BasePlan {
    /// Who the body is.
    pub identity: Identity,
    /// An empty directory of the host; covered in the child's mount namespace only.
    pub mount_point: PathBuf,
    /// Size of the writable space while the supervisor fills it.
    pub space_bytes: u64,
    /// Inodes of it.
    pub space_inodes: u64,
    /// The base view.
    pub view: Vec<ViewStep>,
    /// Whether the body gets a pseudo-terminal.
    pub terminal: bool,
    /// Whether the supervisor has to watch the body's processes itself.
    pub send_proc: bool,
    /// Whether to make a time namespace.
    pub time_namespace: bool,
    /// Descriptors whose claims init shares, so that they outlive a killed supervisor until the
    /// body has ended too.
    pub keep: Vec<RawFd>,
}

/// The body's ends of its standard streams.
#[derive(Debug)]
pub struct BodyStreams {
    /// Its standard input.
    pub stdin: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
}

/// A child of ours, killed and reaped when it is dropped.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Child {
    /// Its pid as this process sees it.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable once it has ended.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// SIGKILL. That it has ended already is fine.
    ///
    /// # Errors
    /// The errno of pidfd_send_signal(2).
    pub fn kill(&self) -> Result<(), Errno> {
        match process::signal_pidfd(self.pidfd.as_fd(), libc::SIGKILL) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Waits for its end; with it everything in its pid namespace has ended.
    ///
    /// # Errors
    /// The errno of wait4(2).
    pub fn reap(&mut self) -> Result<process::Ended, Errno> {
        let ended = process::wait(self.pid, true)?.ok_or(Errno::CHILD)?;
        self.reaped = true;
        Ok(ended)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let killed = self.kill();
            debug_assert!(killed.is_ok(), "SIGKILL to a child of ours");
            // Not for ever: a frozen tree, or one in an uninterruptible wait, dies when it can,
            // and the record that stays tells the next start.
            let patience = Timespec {
                tv_sec: DROP_PATIENCE_S,
                tv_nsec: 0,
            };
            let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
            if matches!(poll(&mut ended, Some(&patience)), Ok(count) if 0 < count) {
                let reaped = process::wait(self.pid, true);
                debug_assert!(reaped.is_ok(), "wait for a child of ours");
            }
        }
    }
}

/// The child runs and makes its namespaces, which takes it a while: time for the supervisor.
#[derive(Debug)]
pub struct Preparing {
    child: Child,
    link: OwnedFd,
    arena: Arena,
    time_namespace: bool,
}

/// The child waits in its namespaces and has handed over the writable space.
#[derive(Debug)]
pub struct Prepared {
    pub(super) child: Child,
    pub(super) link: OwnedFd,
    pub(super) space: OwnedFd,
    pub(super) arena: Arena,
    /// What came with its word that the new root is assembled, once it has come.
    pub(super) ready: Option<(Message, Received)>,
    /// Whether it has a time namespace of its own.
    pub time_namespace: bool,
}

impl Prepared {
    /// The root of the writable space: `bundle`, `scratch`, `runner` lie in it. To be touched with
    /// the ids of [`Identity::to_assume`].
    #[must_use]
    pub fn space(&self) -> BorrowedFd<'_> {
        self.space.as_fd()
    }
}

/// Clones the child, which begins to make its namespaces and its writable space.
///
/// `into_cgroup` is an open directory of a version 2 group. The calling process must have one
/// thread only.
///
/// # Errors
/// [`SandboxError`]; then nothing of the child is left.
pub fn begin(
    plan: &BasePlan,
    streams: BodyStreams,
    into_cgroup: Option<BorrowedFd<'_>>,
) -> Result<Preparing, SandboxError> {
    let supervisor = |act, object: &str| {
        let object = object.to_owned();
        move |errno| SandboxError::Supervisor { act, object, errno }
    };
    let arena = Arena::new(ARENA_BYTES).map_err(supervisor("map", "memory for the plan"))?;
    let (ours, theirs) = link::pair().map_err(supervisor("make", "a socket pair"))?;
    let maps = Maps::of(plan.identity);
    let raw = Streams {
        stdin: streams.stdin.as_raw_fd(),
        stdout: streams.stdout.as_raw_fd(),
        stderr: streams.stderr.as_raw_fd(),
    };
    let mut stack = vec![0_u8; STACK_BYTES];
    let wanted = kind::USER | kind::MOUNT | kind::PID;
    let time = if plan.time_namespace { kind::TIME } else { 0 };
    let base = lay_out(&arena, plan, &maps, raw).map_err(supervisor("lay out", "the plan"))?;
    let mut clone = |namespaces| {
        #[expect(unsafe_code, reason = "the one place where a child is cloned")]
        // SAFETY: the caller has one thread only, as this function's contract says.
        let forked = unsafe { process::fork_into(namespaces, into_cgroup) };
        if matches!(forked, Ok(Forked::Child)) {
            // The other end would keep the link open after the supervisor's death.
            process::close_quietly(ours.as_raw_fd());
            child::run(&base, &arena, &theirs, &mut stack);
        }
        forked
    };
    let (forked, time_namespace) = match clone(wanted | time) {
        // A kernel that has no time namespaces, though it shows the file.
        Err(Errno::INVAL) if time != 0 => (clone(wanted), false),
        other => (other, time != 0),
    };
    let (pid, pidfd) = match forked {
        Ok(Forked::Parent { pid, pidfd }) => (pid, pidfd),
        Ok(Forked::Child) => return Err(SandboxError::ChildGone { act: "run" }),
        Err(errno) => return Err(SandboxError::Clone { errno }),
    };
    let child = Child {
        pid,
        pidfd,
        reaped: false,
    };
    drop((theirs, streams));
    if let Identity::Claimed(_) = plan.identity {
        maps.write_for(pid)?;
        let mapped = Message {
            kind: message::MAPPED,
            values: [0; 3],
        };
        link::send(ours.as_fd(), mapped, &[]).map_err(supervisor("send to", "the child"))?;
    }
    Ok(Preparing {
        child,
        link: ours,
        arena,
        time_namespace,
    })
}

impl Preparing {
    /// Whether the child has a time namespace of its own.
    #[must_use]
    pub fn has_time_namespace(&self) -> bool {
        self.time_namespace
    }

    /// Waits until the writable space is there. `plan` is the one that it was begun with.
    ///
    /// # Errors
    /// [`SandboxError`]; then nothing of the child is left.
    pub fn finish(self, plan: &BasePlan) -> Result<Prepared, SandboxError> {
        let describe = |step, index| describe_base(plan, step, index);
        let act = "make the writable space";
        let (_, mut received) = expect_message(self.link.as_fd(), message::SPACE, act, &describe)?;
        let space = received[0].take().ok_or(SandboxError::ChildGone {
            act: "hand over the space",
        })?;
        let Self {
            child,
            link,
            arena,
            time_namespace,
        } = self;
        Ok(Prepared {
            child,
            link,
            space,
            arena,
            ready: None,
            time_namespace,
        })
    }
}

/// The id maps, as text for uid_map and gid_map.
struct Maps {
    own: bool,
    uid: String,
    gid: String,
}

impl Maps {
    fn of(identity: Identity) -> Self {
        let (Identity::Own(ids) | Identity::Claimed(ids)) = identity;
        let own = matches!(identity, Identity::Own(_));
        let line = |outside: u32| format!("{INSIDE_ID} {outside} 1\n");
        Self {
            own,
            uid: line(ids.uid),
            gid: line(ids.gid),
        }
    }

    fn write_for(&self, pid: i32) -> Result<(), SandboxError> {
        for (name, text) in [("gid_map", &self.gid), ("uid_map", &self.uid)] {
            let mut path = format!("/proc/{pid}/{name}");
            let failed = |errno| SandboxError::Supervisor {
                act: "write",
                object: format!("the body's {name} ({})", text.trim_end()),
                errno,
            };
            path.push('\0');
            let path =
                CStr::from_bytes_with_nul(path.as_bytes()).map_err(|_nul| failed(Errno::INVAL))?;
            namespace::write_file(path, text.as_bytes()).map_err(failed)?;
        }
        Ok(())
    }
}

fn lay_out<'a>(
    arena: &'a Arena,
    plan: &BasePlan,
    maps: &Maps,
    streams: Streams,
) -> Result<BaseSteps<'a>, Errno> {
    let own_maps = if maps.own {
        let uid_map = arena.slice(maps.uid.as_bytes())?;
        let gid_map = arena.slice(maps.gid.as_bytes())?;
        Some(OwnMaps { uid_map, gid_map })
    } else {
        None
    };
    Ok(BaseSteps {
        own_maps,
        inside_id: INSIDE_ID,
        mount_point: arena.c_string(plan.mount_point.as_os_str().as_bytes())?,
        space_size: arena.c_string(plan.space_bytes.to_string().as_bytes())?,
        space_inodes: arena.c_string(plan.space_inodes.to_string().as_bytes())?,
        view: steps::lay_out_view(arena, &plan.view)?,
        terminal: plan.terminal,
        send_proc: plan.send_proc,
        streams,
        keep: arena.slice(&plan.keep)?,
        arguments: ArgumentArea::of_this_process()?,
    })
}

/// Waits for a message of `kind`; a reported failure becomes an error that names the object.
pub(super) fn expect_message(
    link: BorrowedFd<'_>,
    kind: u32,
    act: &'static str,
    describe: &dyn Fn(ChildStep, usize) -> String,
) -> Result<(Message, Received), SandboxError> {
    let answer = link::receive(link).map_err(|errno| SandboxError::Supervisor {
        act: "hear from",
        object: "the child".to_owned(),
        errno,
    })?;
    match answer {
        Some((message, received)) if message.kind == kind => Ok((message, received)),
        Some((
            Message {
                kind: message::FAILED,
                values: [number, index, errno],
            },
            _,
        )) => {
            let errno = Errno::from_raw_os_error(errno);
            let (step, act) =
                ChildStep::from_number(number).ok_or(SandboxError::ChildGone { act })?;
            let mut object = describe(step, usize::try_from(index).unwrap_or(0));
            if !object.is_empty() {
                object.insert(0, ' ');
            }
            Err(SandboxError::Child {
                step,
                act,
                object,
                errno,
            })
        }
        Some(_) | None => Err(SandboxError::ChildGone { act }),
    }
}

pub(super) fn describe_base(plan: &BasePlan, step: ChildStep, index: usize) -> String {
    match step {
        ChildStep::BaseView => plan.view.get(index).map(describe_view).unwrap_or_default(),
        ChildStep::AttachRoot => format!("at {}", escape(plan.mount_point.as_os_str().as_bytes())),
        _ => String::new(),
    }
}

/// A step of the view for people.
pub(super) fn describe_view(step: &ViewStep) -> String {
    let mut text = String::from("(");
    let (act, path): (&str, &[u8]) = match step {
        ViewStep::Directory { path, .. } => ("directory ", path),
        ViewStep::File { path, .. } => ("file ", path),
        ViewStep::Symlink { path, .. } => ("link ", path),
        ViewStep::Bind { source, .. } => ("bind of ", source),
        ViewStep::Attach { target, .. } => ("mount at ", target),
        ViewStep::OwnMount { path } => ("own mount ", path),
        ViewStep::Tmpfs { target, .. } => ("tmpfs ", target),
        ViewStep::Proc => ("mount of ", b"/proc"),
        ViewStep::Devpts => ("mount of ", b"/dev/pts"),
        ViewStep::Mask { path } | ViewStep::MaskDirectory { path } => ("mask of ", path),
    };
    text.push_str(act);
    let written = write!(text, "{})", escape(path));
    debug_assert!(written.is_ok(), "writing to a string");
    text
}
