//! The child between clone and exec, as init of the new pid namespace: its steps in order.
//!
//! Nothing here allocates or takes a lock. A failed step is reported over the link and ends the
//! process, and with it the namespace. Comments explain the order where a step needs an earlier
//! one.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use landlock::{
    CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::CpuSet;

use crate::binds;
use crate::init;
use crate::network;
use crate::overlay;
use crate::steps::{
    BaseSteps, ChildStep, LaunchSteps, NO_PLACE, OwnMaps, RootSteps, RulesetSteps, Step, StepError,
    at, at_index, message, published,
};
use crate::view::{Access, FILLED_BY_SUPERVISOR, HOST_NAME};
use sys::arena::Arena;
use sys::link::{self, Message, Received};
use sys::mount::Attributes;
use sys::namespace::kind;
use sys::{affinity, mount, namespace, place, privileges, process, rlimit, terminal};

/// Runs all steps and then serves as init. Restores the CPU affinity `processors`, and so the
/// body's, after the supervisor's last change.
pub(super) fn run(
    arena: &Arena,
    link: &OwnedFd,
    processors: Option<&CpuSet>,
    stack: &mut [u8],
) -> ! {
    let link = link.as_fd();
    let failed = match follow(arena, link, processors, stack) {
        Ok(never) => match never {},
        Err(failed) => failed,
    };
    give_up(link, failed)
}

pub(super) fn give_up(link: BorrowedFd<'_>, failed: StepError) -> ! {
    give_up_as(message::FAILED, link, failed)
}

/// [`give_up`] with [`message::FAILED`] or [`message::LOST`].
pub(super) fn give_up_as(kind: u32, link: BorrowedFd<'_>, failed: StepError) -> ! {
    let values = [
        failed.step as i32,
        failed.index,
        failed.errno.raw_os_error(),
    ];
    // Ignore the error: the supervisor is gone.
    let sent = link::send(link, Message { kind, values }, &[]);
    process::exit_now(if sent.is_ok() { 1 } else { 2 })
}

/// inotify limits of one run (`user.max_inotify_instances`, namespaces(7)).
const INOTIFY_INSTANCES: &[u8] = b"16";
const INOTIFY_WATCHES: &[u8] = b"16384";

fn follow(
    arena: &Arena,
    link: BorrowedFd<'_>,
    processors: Option<&CpuSet>,
    stack: &mut [u8],
) -> Result<std::convert::Infallible, StepError> {
    leave_the_host(arena)?;
    let (base, handed) = await_base(arena, link)?;
    let base = &base;
    let [Some(stdin), Some(stdout), Some(stderr), claims @ ..] = &handed else {
        return Err(at(ChildStep::AwaitBase)(Errno::BADMSG));
    };
    if let Some(all) = processors {
        affinity::release(all).map_err(at(ChildStep::Processors))?;
    }
    if let Some(clocks) = &base.clocks {
        namespace::set_clocks(clocks.offsets).map_err(at(ChildStep::Clocks))?;
        arena.set_clock_behind(clocks.monotonic_back_ns);
        note(arena, ChildStep::Clocks);
    }
    take_ids(base)?;
    note(arena, ChildStep::BecomeBody);
    let space = make_space(base)?;
    let shared = [space.as_fd()];
    // The directories that the supervisor fills must exist before it gets the space.
    let cut = FILLED_BY_SUPERVISOR.min(base.view.len());
    let (first, rest) = base.view.split_at(cut);
    assemble(first, 0)?;
    link::send(link, Message::of(message::SPACE), &shared).map_err(at(ChildStep::WritableSpace))?;
    drop(space);
    note(arena, ChildStep::WritableSpace);
    assemble(rest, cut)?;
    note(arena, ChildStep::BaseView);
    let slave = announce(base, link)?;
    let mut kept = [const { None }; overlay::KEPT_MAX];
    let (launch, received) = await_launch(arena, link, &mut kept)?;
    note(arena, ChildStep::AwaitLaunch);
    launch.arguments.overwrite(b"init");
    if let Some(steps) = launch.network {
        network::set_up(steps, link)?;
    }
    let ruleset = enter(arena, &launch, &received, &kept)?;
    init::start_and_serve(&mut init::Start {
        arena,
        launch,
        received,
        ruleset: Cell::new(ruleset),
        terminal: slave,
        streams: [stdin, stdout, stderr].map(AsFd::as_fd),
        claims: claims.get(..base.claims).unwrap_or(&[]),
        link,
        stack,
    })
}

fn leave_the_host(arena: &Arena) -> Result<(), StepError> {
    privileges::die_with_parent().map_err(at(ChildStep::DeathSignal))?;
    note(arena, ChildStep::DeathSignal);
    // The caller's mask would restrict the directories created below.
    rustix::process::umask(Mode::empty());
    rustix::thread::set_name(c"init").map_err(at(ChildStep::HostName))?;
    // Descriptors in transit count per uid against RLIMIT_NOFILE: another run of the same user with
    // a low limit could block this one.
    rlimit::raise(rlimit::resource::OPEN_FILES).map_err(at(ChildStep::OpenFiles))?;
    // inotify use also counts against the caller in all parent user namespaces, where the limit is
    // often 128 per uid.
    for (path, most) in [
        (c"/proc/sys/user/max_inotify_instances", INOTIFY_INSTANCES),
        (c"/proc/sys/user/max_inotify_watches", INOTIFY_WATCHES),
    ] {
        match namespace::write_file(path, most) {
            // The kernel has no inotify.
            Ok(()) | Err(Errno::NOENT) => (),
            Err(errno) => return Err(at(ChildStep::KernelObjects)(errno)),
        }
    }
    // If the host runs out of memory, the body must die before the supervisor, which reports it.
    // Raising the value needs no privilege (proc_pid_oom_score_adj(5)).
    namespace::write_file(c"/proc/self/oom_score_adj", b"300").map_err(at(ChildStep::OomScore))?;
    // Not with clone3: the network namespace takes the longest, and the supervisor works in
    // parallel.
    namespace::leave(kind::NETWORK | kind::IPC | kind::UTS).map_err(at(ChildStep::Namespaces))?;
    note(arena, ChildStep::Namespaces);
    namespace::loopback_up().map_err(at(ChildStep::Loopback))?;
    note(arena, ChildStep::Loopback);
    // The body's servers may listen on low ports such as 80 in this namespace.
    match namespace::write_file(c"/proc/sys/net/ipv4/ip_unprivileged_port_start", b"0") {
        // Old kernel: only root may listen there.
        Ok(()) | Err(Errno::NOENT) => (),
        Err(errno) => return Err(at(ChildStep::Loopback)(errno)),
    }
    rustix::system::sethostname(HOST_NAME.as_bytes()).map_err(at(ChildStep::HostName))?;
    mount::make_private().map_err(at(ChildStep::PrivateMounts))?;
    // Inherited by the body; later steps cannot refill it.
    privileges::drop_bounding_set().map_err(at(ChildStep::Capabilities))?;
    note(arena, ChildStep::PrivateMounts);
    Ok(())
}

pub(super) fn note(arena: &Arena, step: ChildStep) {
    arena.note(step as usize, process::monotonic_ns());
}

fn await_base<'a>(
    arena: &'a Arena,
    link: BorrowedFd<'_>,
) -> Result<(BaseSteps<'a>, Received), StepError> {
    let failed = at(ChildStep::AwaitBase);
    match link::receive(link).map_err(&failed)? {
        Some((
            Message {
                kind: message::BASE,
                ..
            },
            handed,
        )) => {
            note(arena, ChildStep::AwaitBase);
            Ok((published(arena), handed))
        }
        Some(_) => Err(failed(Errno::BADMSG)),
        None => Err(failed(Errno::PIPE)),
    }
}

/// Takes the body's ids. Creating files before fails with EOVERFLOW.
fn take_ids(base: &BaseSteps<'_>) -> Result<(), StepError> {
    if let Some(maps) = &base.own_maps {
        return write_own_maps(maps).map_err(at(ChildStep::WriteIds));
    }
    privileges::become_ids(base.inside_id, base.inside_id).map_err(at(ChildStep::BecomeBody))?;
    // A change of ids clears the death signal (prctl(2)).
    privileges::die_with_parent().map_err(at(ChildStep::DeathSignal))
}

fn write_own_maps(maps: &OwnMaps<'_>) -> Result<(), Errno> {
    // Required for writing gid_map without capabilities outside.
    namespace::write_file(c"/proc/self/setgroups", b"deny")?;
    namespace::write_file(c"/proc/self/uid_map", maps.uid_map)?;
    namespace::write_file(c"/proc/self/gid_map", maps.gid_map)
}

fn make_space(base: &BaseSteps<'_>) -> Result<OwnedFd, StepError> {
    let space = mount::new_tmpfs(base.space_size, base.space_inodes)
        .map_err(at(ChildStep::WritableSpace))?;
    mount::attach(space.as_fd(), base.mount_point).map_err(at(ChildStep::AttachRoot))?;
    rustix::process::chdir(base.mount_point).map_err(at(ChildStep::AttachRoot))?;
    Ok(space)
}

fn announce(base: &BaseSteps<'_>, link: BorrowedFd<'_>) -> Result<Option<OwnedFd>, StepError> {
    let mut master = None;
    let mut slave = None;
    let mut proc = None;
    if base.terminal {
        let pair = terminal::open_pair(c"dev/pts/ptmx").map_err(at(ChildStep::Terminal))?;
        (master, slave) = (Some(pair.0), Some(pair.1));
    }
    if base.send_proc {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(rustix::fs::CWD, c"proc", flags, Mode::empty());
        proc = Some(opened.map_err(at(ChildStep::ProcDescriptor))?);
    }
    let values = [i32::from(proc.is_some()), i32::from(master.is_some()), 0];
    let ready = Message::with(message::READY, values);
    let sent = match (&proc, &master) {
        (None, None) => link::send(link, ready, &[]),
        (Some(one), None) | (None, Some(one)) => link::send(link, ready, &[one.as_fd()]),
        (Some(proc), Some(master)) => link::send(link, ready, &[proc.as_fd(), master.as_fd()]),
    };
    sent.map_err(at(ChildStep::AwaitLaunch))?;
    Ok(slave)
}

fn await_launch<'a>(
    arena: &'a Arena,
    link: BorrowedFd<'_>,
    kept: &mut overlay::Kept,
) -> Result<(LaunchSteps<'a>, Received), StepError> {
    let failed = at(ChildStep::AwaitLaunch);
    loop {
        let (word, received) = link::receive(link)
            .map_err(&failed)?
            .ok_or_else(|| failed(Errno::PIPE))?;
        match word.kind {
            message::LAUNCH => return Ok((published(arena), received)),
            message::OVERLAY => {
                overlay::answer(arena, link, &received, kept).map_err(at(ChildStep::Overlay))?;
            }
            _ => return Err(failed(Errno::BADMSG)),
        }
    }
}

/// Finishes and enters the view, and creates the ruleset on the final paths.
fn enter(
    arena: &Arena,
    launch: &LaunchSteps<'_>,
    received: &Received,
    overlays: &overlay::Kept,
) -> Result<Option<RulesetCreated>, StepError> {
    if let Some((size, inodes)) = launch.resize {
        mount::resize_tmpfs(c".", size, inodes).map_err(at(ChildStep::Resize))?;
    }
    let shown = Shown {
        trees: received.get(..launch.trees).unwrap_or(&[]),
        overlays,
    };
    for (index, step) in (0..).zip(launch.view) {
        assemble_asked(step, &shown).map_err(at_index(ChildStep::LaunchView, index))?;
    }
    let lies_in_places =
        |step: &Step<'_>| matches!(step, Step::AttachOverlay { .. } | Step::BindOwn { .. });
    if launch.root.is_some() || launch.view.iter().any(lies_in_places) {
        // Before the requested mounts: it covers their sources.
        overlay::cover_places().map_err(at_index(ChildStep::LaunchView, NO_PLACE))?;
    }
    note(arena, ChildStep::LaunchView);
    if let Some(root) = &launch.root {
        enter_image(root, overlays)?;
    }
    mount::pivot_into_working_directory().map_err(at(ChildStep::Pivot))?;
    note(arena, ChildStep::Pivot);
    if !launch.root.is_some_and(|root| root.writable) {
        // Last, because earlier steps create files. Only the root mount: writable directories are
        // mounts of their own.
        mount::restrict(c"/", Attributes::RDONLY, false).map_err(at(ChildStep::ReadOnlyRoot))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(at(ChildStep::NoNewPrivileges))?;
    if let Some(maps) = &launch.other_ids {
        take_other_ids(maps).map_err(at(ChildStep::ImageUser))?;
    }
    // Init has the body's uid: otherwise the body could access it through /proc/1 and ptrace.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(ChildStep::NotDumpable))?;
    let ruleset = launch.ruleset.as_ref().map(make_ruleset).transpose()?;
    note(arena, ChildStep::Ruleset);
    Ok(ruleset)
}

/// Makes the image the working directory and bind-mounts parts of the space over it. Names in the
/// image are untrusted: they are resolved beneath its descriptor and never through a link.
fn enter_image(root: &RootSteps<'_>, overlays: &overlay::Kept) -> Result<(), StepError> {
    let overlay = overlays.get(root.overlay).and_then(Option::as_ref);
    let image = overlay.ok_or_else(|| at(ChildStep::ImageRoot)(Errno::BADF))?;
    // Over the space, which is still the working directory: `.` does not cross the new mount.
    mount::attach(image.as_fd(), c".").map_err(at(ChildStep::ImageRoot))?;
    for (index, (path, read_only)) in (0..).zip(root.grafts) {
        mount::graft(path, image.as_fd(), path, *read_only)
            .map_err(at_index(ChildStep::Graft, index))?;
    }
    rustix::process::fchdir(image).map_err(at(ChildStep::ImageRoot))
}

/// Enters a second user namespace with other ids, after all steps that need capabilities in the
/// first.
fn take_other_ids(maps: &OwnMaps<'_>) -> Result<(), Errno> {
    namespace::leave(kind::USER)?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    write_own_maps(maps)?;
    // A new user namespace has all capabilities and a full bounding set.
    privileges::drop_bounding_set()?;
    // A change of credentials may clear it (prctl(2)).
    privileges::die_with_parent()
}

fn make_ruleset(steps: &RulesetSteps<'_>) -> Result<RulesetCreated, StepError> {
    let mut ruleset = Ruleset::default()
        // The steps contain only what this kernel supports. A failed step fails the run.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(steps.handled)
        .and_then(|ruleset| match steps.scoped.is_empty() {
            true => Ok(ruleset),
            false => ruleset.scope(steps.scoped),
        })
        .and_then(Ruleset::create)
        .map_err(|error| at(ChildStep::Ruleset)(landlock_errno(&error)))?;
    for (index, (path, allowed)) in (0..).zip(steps.rules) {
        let failed = at_index(ChildStep::Rule, index);
        let found = place::open_without_links(path).map_err(&failed)?;
        // Leaves out what only directories have, where a file is found.
        let rule = PathBeneath::new(found, *allowed).set_compatibility(CompatLevel::BestEffort);
        ruleset = ruleset
            .add_rule(rule)
            .map_err(|error| failed(landlock_errno(&error)))?;
    }
    Ok(ruleset)
}

/// The errno of a failed call; EINVAL if the package refused before it.
pub(super) fn landlock_errno(error: &RulesetError) -> Errno {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(errno) = error
            .downcast_ref::<std::io::Error>()
            .and_then(Errno::from_io_error)
        {
            return errno;
        }
        cause = error.source();
    }
    Errno::INVAL
}

/// Sources that were made before.
#[derive(Default)]
struct Shown<'a> {
    trees: &'a [Option<OwnedFd>],
    overlays: &'a [Option<OwnedFd>],
}

/// Steps of the base view: only trusted paths.
fn assemble(steps: &[Step<'_>], first: usize) -> Result<(), StepError> {
    for (index, step) in (first..).zip(steps) {
        assemble_one(step).map_err(at_index(
            ChildStep::BaseView,
            i32::try_from(index).unwrap_or(i32::MAX),
        ))?;
    }
    Ok(())
}

fn assemble_one(step: &Step<'_>) -> Result<(), Errno> {
    match *step {
        Step::Directory { path, mode } => {
            match rustix::fs::mkdirat(rustix::fs::CWD, path, Mode::from_raw_mode(mode)) {
                // An empty path is the root itself.
                Err(Errno::EXIST) => Ok(()),
                Err(Errno::NOENT) if path.is_empty() => Ok(()),
                other => other,
            }
        }
        Step::File { path, contents } => {
            if contents.is_empty() && make_empty(path)? {
                return Ok(());
            }
            write_new(path, contents)
        }
        Step::Symlink { path, target } => rustix::fs::symlinkat(target, rustix::fs::CWD, path),
        Step::Bind {
            source,
            target,
            access,
        } => {
            mount::bind(source, target, true)?;
            mount::restrict(target, attributes(access), true)
        }
        // Requested mounts, in the launch view only.
        Step::BindOwn { .. } | Step::Attach { .. } | Step::AttachOverlay { .. } => {
            Err(Errno::INVAL)
        }
        // A bind keeps nosuid and nodev of its source.
        Step::OwnMount { path } => mount::bind(path, path, false),
        Step::Tmpfs { target, size_bytes } => mount::tmpfs_at(target, size_bytes),
        Step::Proc => mount::proc_at(c"proc"),
        Step::Devpts => mount::devpts_at(c"dev/pts"),
        // The new root's null is already nosuid and noexec, and a bind keeps that.
        Step::Mask { path } => unless_absent(mount::bind(c"dev/null", path, false)).map(|_| ()),
        Step::MaskDirectory { path } => {
            match unless_absent(mount::bind(c"dev/pts", path, false))? {
                true => {
                    let attributes = Attributes::RDONLY.and(Attributes::NOEXEC);
                    mount::restrict(path, attributes, false)
                }
                false => Ok(()),
            }
        }
    }
}

fn assemble_asked(step: &Step<'_>, shown: &Shown<'_>) -> Result<(), Errno> {
    match *step {
        Step::Directory { path, mode } => binds::make_directory(path, mode),
        Step::File { path, contents: [] } => binds::make_file(path),
        Step::Bind {
            source,
            target,
            access,
        } => binds::bind(source, target, attributes(access), true),
        Step::BindOwn {
            source,
            target,
            access,
        } => binds::bind(source, target, attributes(access), false),
        Step::Attach { tree, target, .. } => binds::attach(one_of(shown.trees, tree)?, target),
        Step::AttachOverlay {
            overlay, target, ..
        } => binds::attach(one_of(shown.overlays, overlay)?, target),
        Step::OwnMount { path } => binds::own_mount(path),
        Step::Tmpfs { target, size_bytes } => binds::tmpfs(target, size_bytes),
        // Not used for requested mounts.
        Step::File { .. }
        | Step::Symlink { .. }
        | Step::Proc
        | Step::Devpts
        | Step::Mask { .. }
        | Step::MaskDirectory { .. } => Err(Errno::INVAL),
    }
}

fn attributes(access: Access) -> Attributes {
    let nosuid = Attributes::NOSUID;
    match access {
        Access::ReadOnly => nosuid.and(Attributes::NODEV).and(Attributes::RDONLY),
        Access::Writable => nosuid.and(Attributes::NODEV),
        Access::Device => nosuid.and(Attributes::NOEXEC),
    }
}

fn one_of(mounts: &[Option<OwnedFd>], number: usize) -> Result<BorrowedFd<'_>, Errno> {
    let mount = mounts.get(number).and_then(Option::as_ref);
    Ok(mount.ok_or(Errno::BADF)?.as_fd())
}

/// Missing files need no mask: `false`.
fn unless_absent(bound: Result<(), Errno>) -> Result<bool, Errno> {
    match bound {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// One call if nothing exists: `true`. An existing object is checked by opening it without
/// following links.
fn make_empty(path: &CStr) -> Result<bool, Errno> {
    let (kind, mode) = (FileType::RegularFile, Mode::from_raw_mode(0o644));
    match rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn write_new(path: &CStr, contents: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(0o644);
    let file = rustix::fs::openat(rustix::fs::CWD, path, flags, mode)?;
    let mut rest = contents;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = rest.get(count..).ok_or(Errno::IO)?;
    }
    Ok(())
}
