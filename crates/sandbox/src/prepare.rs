//! Prepare: a child in its namespaces that has created the writable space and waits.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::error::SandboxError;
use crate::prefork::Prefork;
use crate::steps::{self, BaseSteps, ChildStep, ClockSteps, IdMaps, message};
use crate::view::{INSIDE_ID, ViewStep};
use spec::path::escape;
use sys::arena::Arena;
use sys::credentials::HostIds;
use sys::link::{self, Message, Received};
use sys::{namespace, process};

/// Identity of the body on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The caller's ids, the only ones that an ordinary user may map.
    Own(HostIds),
    /// Ids that root claimed for this run.
    Claimed(HostIds),
}

impl Identity {
    /// Ids to assume for accessing the body's files; `None` if they are the caller's.
    #[must_use]
    pub(crate) fn to_assume(self) -> Option<HostIds> {
        match self {
            Self::Own(_) => None,
            Self::Claimed(ids) => Some(ids),
        }
    }
}

/// Everything that is known before the clone.
#[derive(Debug, Clone)]
pub struct BasePlan {
    pub identity: Identity,
    /// An empty directory of the host; covered in the child's mount namespace only.
    pub mount_point: PathBuf,
    /// Size of the writable space while the supervisor fills it.
    pub space_bytes: u64,
    pub space_inodes: u64,
    pub view: Vec<ViewStep>,
    pub terminal: bool,
    /// The supervisor watches the body's processes itself.
    pub send_proc: bool,
    /// Use a time namespace: the monotonic and boot clocks start with the run, which hides the
    /// host's uptime.
    pub own_clocks: bool,
}

/// The body's ends of its standard streams.
#[derive(Debug)]
pub struct BodyStreams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// A child that creates its namespaces in parallel to the supervisor.
#[derive(Debug)]
pub struct Preparing {
    prefork: Prefork,
}

/// A child that waits in its namespaces and has sent the writable space.
#[derive(Debug)]
pub struct Prepared {
    pub(super) prefork: Prefork,
    pub(super) space: OwnedFd,
    /// The child's message that the new root is assembled, if it was already received.
    pub(super) ready: Option<(Message, Received)>,
    pub(super) overlays_pending: usize,
}

impl Prepared {
    /// Root of the writable space, with `bundle`, `scratch` and `runner`. Access it with the ids of
    /// [`crate::resources::Resources::body_ids`].
    #[must_use]
    pub fn space(&self) -> BorrowedFd<'_> {
        self.space.as_fd()
    }
}

/// Sends the base plan to the child, which then creates its writable space.
///
/// Init keeps the descriptors `claims` open until the body has ended, even if the supervisor is
/// killed. On failure nothing of the child is left.
pub fn begin(
    prefork: Prefork,
    plan: &BasePlan,
    streams: BodyStreams,
    claims: &[BorrowedFd<'_>],
) -> Result<Preparing, SandboxError> {
    let arena = &prefork.arena;
    copy_plan(arena, plan, claims.len())
        .and_then(|steps| steps::publish(arena, steps))
        .map_err(SandboxError::supervisor("store", "the base plan"))?;
    if let Identity::Claimed(ids) = plan.identity {
        write_id_maps(prefork.child.pid(), ids)?;
    }
    let base = Message::of(message::BASE);
    let BodyStreams {
        stdin,
        stdout,
        stderr,
    } = &streams;
    let mut descriptors = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    descriptors.extend(claims);
    let describe = |step, index| describe_base(plan, step, index);
    send_or_read_failure(prefork.link.as_fd(), base, &descriptors, &describe)?;
    drop(streams);
    Ok(Preparing { prefork })
}

impl Preparing {
    /// Waits for the writable space. `plan` is that of `begin`. On failure nothing of the child is
    /// left.
    pub fn finish(self, plan: &BasePlan) -> Result<Prepared, SandboxError> {
        let describe = |step, index| describe_base(plan, step, index);
        let act = "make the writable space";
        let link = self.prefork.link.as_fd();
        let (_, mut received) = expect_message(link, message::SPACE, act, &describe)?;
        let space = received[0].take().ok_or(SandboxError::ChildGone {
            act: "send the writable space",
        })?;
        Ok(Prepared {
            prefork: self.prefork,
            space,
            ready: None,
            overlays_pending: 0,
        })
    }
}

fn id_map(outside: u32) -> String {
    format!("{INSIDE_ID} {outside} 1\n")
}

/// Writes the id maps of the child. Only root may map ids other than its own.
fn write_id_maps(pid: i32, ids: HostIds) -> Result<(), SandboxError> {
    for (name, outside) in [("gid_map", ids.gid), ("uid_map", ids.uid)] {
        let text = id_map(outside);
        let failed = |errno| SandboxError::IdMap {
            map: format!("{name} ({})", text.trim_end()),
            errno,
        };
        let path =
            CString::new(format!("/proc/{pid}/{name}")).map_err(|_nul| failed(Errno::INVAL))?;
        namespace::write_file(&path, text.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

fn copy_plan<'a>(arena: &'a Arena, plan: &BasePlan, claims: usize) -> Result<BaseSteps<'a>, Errno> {
    let id_maps = match plan.identity {
        Identity::Own(ids) => Some(IdMaps {
            uid_map: arena.slice(id_map(ids.uid).as_bytes())?,
            gid_map: arena.slice(id_map(ids.gid).as_bytes())?,
        }),
        Identity::Claimed(_) => None,
    };
    let clocks = if plan.own_clocks {
        Some(copy_clocks(arena)?)
    } else {
        None
    };
    Ok(BaseSteps {
        id_maps,
        inside_id: INSIDE_ID,
        clocks,
        mount_point: arena.c_string(plan.mount_point.as_os_str().as_bytes())?,
        space_size: arena.c_string(plan.space_bytes.to_string().as_bytes())?,
        space_inodes: arena.c_string(plan.space_inodes.to_string().as_bytes())?,
        view: steps::copy_view(arena, &plan.view)?,
        terminal: plan.terminal,
        send_proc: plan.send_proc,
        claims,
    })
}

fn copy_clocks(arena: &Arena) -> Result<ClockSteps<'_>, Errno> {
    let [monotonic, boot] = process::uptimes_s();
    let text = format!("monotonic -{monotonic} 0\nboottime -{boot} 0\n");
    Ok(ClockSteps {
        offsets: arena.slice(text.as_bytes())?,
        monotonic_back_ns: monotonic.saturating_mul(1_000_000_000),
    })
}

/// Sends `message`. If the child has ended, returns the reason that it reported.
pub(super) fn send_or_read_failure(
    link: BorrowedFd<'_>,
    message: Message,
    descriptors: &[BorrowedFd<'_>],
    describe: &dyn Fn(ChildStep, usize) -> String,
) -> Result<(), SandboxError> {
    match link::send(link, message, descriptors) {
        Err(Errno::PIPE | Errno::CONNRESET) => {
            expect_message(link, message::NOTHING, "listen", describe).map(|_nothing| ())
        }
        sent => sent.map_err(SandboxError::supervisor("send to", "the child")),
    }
}

/// Waits for a message of `kind`. A failure that the child reports becomes an error that names the
/// object.
///
/// # Errors
/// [`SandboxError`]: the failure, an unexpected message, or the end of the child.
pub fn expect_message(
    link: BorrowedFd<'_>,
    kind: u32,
    act: &'static str,
    describe: &dyn Fn(ChildStep, usize) -> String,
) -> Result<(Message, Received), SandboxError> {
    let answer = match link::receive(link) {
        // The child ended with an unread message of the supervisor; its own messages follow.
        Err(Errno::CONNRESET) => link::receive(link),
        other => other,
    };
    let answer = answer.map_err(SandboxError::supervisor("receive from", "the child"))?;
    match answer {
        Some((message, received)) if message.kind == kind => Ok((message, received)),
        Some((
            Message {
                kind: message::FAILED,
                values: [number, index, errno],
            },
            _,
        )) => {
            let errno = link::errno_from_peer(errno);
            let (step, act) =
                ChildStep::from_number(number).ok_or(SandboxError::ChildGone { act })?;
            let mut object = usize::try_from(index)
                .map(|index| describe(step, index))
                .unwrap_or_default();
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
        Some((
            Message {
                kind: message::LOST,
                values: [number, _, errno],
            },
            _,
        )) => {
            let errno = link::errno_from_peer(errno);
            let (_, act) = ChildStep::from_number(number).ok_or(SandboxError::ChildGone { act })?;
            Err(SandboxError::Lost { act, errno })
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

pub(super) fn describe_view(step: &ViewStep) -> String {
    let (act, path): (&str, &[u8]) = match step {
        ViewStep::Directory { path, .. } => ("directory ", path),
        ViewStep::File { path, .. } => ("file ", path),
        ViewStep::Symlink { path, .. } => ("link ", path),
        ViewStep::Bind { source, .. } => ("bind of ", source),
        ViewStep::BindFromSpace { target, .. }
        | ViewStep::Attach { target, .. }
        | ViewStep::AttachOverlay { target, .. } => ("mount at ", target),
        ViewStep::SelfBind { path } => ("self-bind of ", path),
        ViewStep::Tmpfs { target, .. } => ("tmpfs ", target),
        ViewStep::Proc => ("mount of ", b"/proc"),
        ViewStep::Devpts => ("mount of ", b"/dev/pts"),
        ViewStep::Mask { path } | ViewStep::MaskDirectory { path } => ("mask of ", path),
    };
    format!("({act}{})", escape(path))
}
