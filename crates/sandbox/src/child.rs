//! The child between clone and exec, as init of the new pid namespace: its steps in order.
//!
//! No code here allocates or takes a lock. A failed step is reported over the link and ends the
//! process, and with it the pid namespace. Comments explain the order where a step needs an earlier
//! one.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use landlock::{
    CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::CpuSet;

use crate::binds;
use crate::init;
use crate::network;
use crate::overlay;
use crate::rlimits::{self, PENDING_SIGNALS};
use crate::steps::{
    BaseSteps, ChildStep, IdMaps, LaunchSteps, NO_INDEX, RootSteps, RulesetSteps, Step, StepError,
    at, at_index, message, read_plan,
};
use crate::view::{Access, EARLY_STEPS, HOST_NAME, NO_DOMAIN};
use sys::arena::Arena;
use sys::link::{self, Message, Received};
use sys::mount::Attributes;
use sys::namespace::kind;
use sys::{
    affinity, landlock as kernel_landlock, mount, namespace, nofollow, privileges, process, rlimit,
    terminal,
};

/// Runs all steps and then serves as init. Restores the CPU affinity `processors`, which the body
/// inherits, after the supervisor's last change.
pub(super) fn run(
    arena: &Arena,
    link: &OwnedFd,
    processors: Option<&CpuSet>,
    stack: &mut [u8],
) -> ! {
    let link = link.as_fd();
    match run_steps(arena, link, processors, stack) {
        Ok(never) => match never {},
        Err(failed) => exit_with_failure(message::FAILED, link, failed),
    }
}

/// Reports the failed step as [`message::FAILED`] or [`message::LOST`] and exits.
pub(super) fn exit_with_failure(kind: u32, link: BorrowedFd<'_>, failed: StepError) -> ! {
    // An error means that the supervisor is gone.
    let sent = link::send(link, Message::with(kind, failed.to_values()), &[]);
    process::exit_now(if sent.is_ok() { 1 } else { 2 })
}

/// inotify limits of one run (`user.max_inotify_instances`, namespaces(7)).
const INOTIFY_INSTANCES: &[u8] = b"16";
const INOTIFY_WATCHES: &[u8] = b"16384";

fn run_steps(
    arena: &Arena,
    link: BorrowedFd<'_>,
    processors: Option<&CpuSet>,
    stack: &mut [u8],
) -> Result<std::convert::Infallible, StepError> {
    leave_host_namespaces(arena)?;
    let (base, descriptors) = await_base(arena, link)?;
    let base = &base;
    let [Some(stdin), Some(stdout), Some(stderr), claims @ ..] = &descriptors else {
        return Err(at(ChildStep::AwaitBase)(Errno::BADMSG));
    };
    if let Some(all) = processors {
        affinity::restore(all).map_err(at(ChildStep::Processors))?;
    }
    if let Some(clocks) = &base.clocks {
        namespace::set_clocks(clocks.offsets).map_err(at(ChildStep::Clocks))?;
        arena.set_clock_behind(clocks.monotonic_back_ns);
        store_timestamp(arena, ChildStep::Clocks);
    }
    become_body(base)?;
    store_timestamp(arena, ChildStep::BecomeBody);
    let space = make_space(base)?;
    // The directories that the supervisor populates must exist before it gets the writable space.
    let (early, later) = base.view.split_at(EARLY_STEPS.min(base.view.len()));
    apply_base_steps(early, 0)?;
    link::send(link, Message::of(message::SPACE), &[space.as_fd()])
        .map_err(at(ChildStep::WritableSpace))?;
    drop(space);
    store_timestamp(arena, ChildStep::WritableSpace);
    apply_base_steps(later, early.len())?;
    store_timestamp(arena, ChildStep::BaseView);
    let terminal = send_ready(base, link)?;
    let mut overlays = [const { None }; overlay::LAUNCH_OVERLAYS_MAX];
    let (launch, received) = await_launch(arena, link, &mut overlays)?;
    store_timestamp(arena, ChildStep::AwaitLaunch);
    launch.arguments.overwrite(b"init");
    if let Some(steps) = launch.network {
        network::set_up(steps, link)?;
    }
    let ruleset = enter(arena, &launch, &received, &overlays)?;
    init::start_and_serve(&mut init::Start {
        arena,
        launch,
        received,
        ruleset: Cell::new(ruleset),
        terminal,
        streams: [stdin, stdout, stderr].map(AsFd::as_fd),
        claims: claims.get(..base.claims).unwrap_or(&[]),
        link,
        stack,
    })
}

fn leave_host_namespaces(arena: &Arena) -> Result<(), StepError> {
    privileges::die_with_parent().map_err(at(ChildStep::DeathSignal))?;
    store_timestamp(arena, ChildStep::DeathSignal);
    // The caller's umask would restrict the directories created below.
    rustix::process::umask(Mode::empty());
    rustix::thread::set_name(c"init").map_err(at(ChildStep::HostName))?;
    // Descriptors in transit count per uid against RLIMIT_NOFILE, so with a low limit another run of
    // the same user could block this one.
    rlimit::raise(rlimit::resource::OPEN_FILES).map_err(at(ChildStep::OpenFiles))?;
    // inotify use also counts against the caller in all parent user namespaces, where the limit is
    // often 128 per uid.
    for (path, limit) in [
        (c"/proc/sys/user/max_inotify_instances", INOTIFY_INSTANCES),
        (c"/proc/sys/user/max_inotify_watches", INOTIFY_WATCHES),
    ] {
        match namespace::write_file(path, limit) {
            // The kernel has no inotify.
            Ok(()) | Err(Errno::NOENT) => (),
            Err(errno) => return Err(at(ChildStep::KernelObjects)(errno)),
        }
    }
    // Of init too: the kernel counts a signal that the body sends it by init's limit.
    rlimits::part_of_callers(PENDING_SIGNALS)
        .and_then(|limit| rlimit::set(PENDING_SIGNALS.resource, limit))
        .map_err(at(ChildStep::KernelObjects))?;
    // Not 0: with 0 the kernel still starts a `|handler` of core_pattern. Here and not with the other
    // limits, because the filter that init has later ignores this limit.
    rlimit::set(rlimit::resource::CORE, 1).map_err(at(ChildStep::ResourceLimit))?;
    // Not in clone3: creating the network namespace takes longest, and here the supervisor works in
    // parallel.
    namespace::unshare(kind::NETWORK | kind::IPC | kind::UTS).map_err(at(ChildStep::Namespaces))?;
    store_timestamp(arena, ChildStep::Namespaces);
    namespace::loopback_up().map_err(at(ChildStep::Loopback))?;
    store_timestamp(arena, ChildStep::Loopback);
    // The body's servers may listen on low ports such as 80 in this namespace.
    match namespace::write_file(c"/proc/sys/net/ipv4/ip_unprivileged_port_start", b"0") {
        // Old kernel: only root may listen on low ports.
        Ok(()) | Err(Errno::NOENT) => (),
        Err(errno) => return Err(at(ChildStep::Loopback)(errno)),
    }
    rustix::system::sethostname(HOST_NAME.as_bytes()).map_err(at(ChildStep::HostName))?;
    // A service manager's filter may forbid the call, and almost no host has a NIS domain.
    match rustix::system::setdomainname(NO_DOMAIN) {
        Err(Errno::PERM) if rustix::system::uname().domainname().to_bytes() == NO_DOMAIN => (),
        result => result.map_err(at(ChildStep::HostName))?,
    }
    mount::make_private().map_err(at(ChildStep::PrivateMounts))?;
    // The body inherits the empty set; later steps cannot refill it.
    privileges::drop_bounding_set().map_err(at(ChildStep::Capabilities))?;
    store_timestamp(arena, ChildStep::PrivateMounts);
    Ok(())
}

pub(super) fn store_timestamp(arena: &Arena, step: ChildStep) {
    arena.store_timestamp(step as usize, process::monotonic_ns());
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
            descriptors,
        )) => {
            store_timestamp(arena, ChildStep::AwaitBase);
            Ok((read_plan(arena), descriptors))
        }
        Some(_) => Err(failed(Errno::BADMSG)),
        None => Err(failed(Errno::PIPE)),
    }
}

/// Takes the body's ids. Before that, creating a file fails with EOVERFLOW.
fn become_body(base: &BaseSteps<'_>) -> Result<(), StepError> {
    if let Some(maps) = &base.id_maps {
        return namespace::write_id_maps(maps.uid_map, maps.gid_map)
            .map_err(at(ChildStep::WriteIds));
    }
    privileges::become_ids(base.inside_id, base.inside_id).map_err(at(ChildStep::BecomeBody))?;
    // A change of ids clears the death signal (prctl(2)).
    privileges::die_with_parent().map_err(at(ChildStep::DeathSignal))
}

fn make_space(base: &BaseSteps<'_>) -> Result<OwnedFd, StepError> {
    let space = mount::new_tmpfs(base.space_size, base.space_inodes)
        .map_err(at(ChildStep::WritableSpace))?;
    mount::attach(space.as_fd(), base.mount_point).map_err(at(ChildStep::AttachRoot))?;
    rustix::process::chdir(base.mount_point).map_err(at(ChildStep::AttachRoot))?;
    Ok(space)
}

/// Opens proc and a pseudo-terminal if requested and sends them. Returns the body's end of the
/// terminal.
fn send_ready(base: &BaseSteps<'_>, link: BorrowedFd<'_>) -> Result<Option<OwnedFd>, StepError> {
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
        (Some(only), None) | (None, Some(only)) => link::send(link, ready, &[only.as_fd()]),
        (Some(proc), Some(master)) => link::send(link, ready, &[proc.as_fd(), master.as_fd()]),
    };
    sent.map_err(at(ChildStep::AwaitLaunch))?;
    Ok(slave)
}

fn await_launch<'a>(
    arena: &'a Arena,
    link: BorrowedFd<'_>,
    overlays: &mut overlay::LaunchOverlays,
) -> Result<(LaunchSteps<'a>, Received), StepError> {
    let failed = at(ChildStep::AwaitLaunch);
    loop {
        let (message, received) = link::receive(link)
            .map_err(&failed)?
            .ok_or_else(|| failed(Errno::PIPE))?;
        match message.kind {
            message::LAUNCH => return Ok((read_plan(arena), received)),
            message::OVERLAY => {
                overlay::handle_request(arena, link, &received, overlays)
                    .map_err(at(ChildStep::Overlay))?;
            }
            _ => return Err(failed(Errno::BADMSG)),
        }
    }
}

/// Completes the view, enters it, and creates the Landlock ruleset on the final paths.
fn enter(
    arena: &Arena,
    launch: &LaunchSteps<'_>,
    received: &Received,
    overlays: &overlay::LaunchOverlays,
) -> Result<Option<RulesetCreated>, StepError> {
    if let Some((size, inodes)) = launch.resize {
        mount::resize_tmpfs(c".", size, inodes).map_err(at(ChildStep::Resize))?;
    }
    let prepared = PreparedMounts {
        trees: received.get(..launch.trees).unwrap_or(&[]),
        overlays,
    };
    for (index, step) in (0..).zip(launch.view) {
        apply_mount_step(step, &prepared).map_err(at_index(ChildStep::LaunchView, index))?;
    }
    let uses_overlays = |step: &Step<'_>| {
        matches!(
            step,
            Step::AttachOverlay { .. } | Step::BindFromSpace { .. }
        )
    };
    if launch.root.is_some() || launch.view.iter().any(uses_overlays) {
        // After the requested mounts, whose sources it covers.
        overlay::cover_overlays().map_err(at_index(ChildStep::LaunchView, NO_INDEX))?;
    }
    store_timestamp(arena, ChildStep::LaunchView);
    if let Some(root) = &launch.root {
        enter_image(root, overlays)?;
    }
    mount::pivot_into_working_directory().map_err(at(ChildStep::Pivot))?;
    store_timestamp(arena, ChildStep::Pivot);
    if !launch.root.is_some_and(|root| root.writable) {
        // Last, because earlier steps create files. Only the root mount: writable directories are
        // separate mounts.
        mount::restrict(c"/", Attributes::RDONLY, false).map_err(at(ChildStep::ReadOnlyRoot))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(at(ChildStep::NoNewPrivileges))?;
    if let Some(maps) = &launch.inner_id_maps {
        enter_inner_user_namespace(maps).map_err(at(ChildStep::ImageUser))?;
    }
    // Init has the body's uid, so the body could access it through /proc/1 and ptrace.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(ChildStep::NotDumpable))?;
    let ruleset = launch.ruleset.as_ref().map(make_ruleset).transpose()?;
    store_timestamp(arena, ChildStep::Ruleset);
    Ok(ruleset)
}

/// Makes the image the working directory and bind-mounts paths of the writable space over it. Names
/// in the image are untrusted: they are resolved beneath its descriptor and without links.
fn enter_image(root: &RootSteps<'_>, overlays: &overlay::LaunchOverlays) -> Result<(), StepError> {
    let image = get_mount(overlays, root.overlay).map_err(at(ChildStep::ImageRoot))?;
    // The writable space, which the image covers, stays the working directory: `.` does not cross
    // the new mount.
    mount::attach(image, c".").map_err(at(ChildStep::ImageRoot))?;
    for (index, (path, read_only)) in (0..).zip(root.binds) {
        mount::bind_beneath(path, image, path, *read_only)
            .map_err(at_index(ChildStep::BindIntoImage, index))?;
    }
    rustix::process::fchdir(image).map_err(at(ChildStep::ImageRoot))
}

/// Enters a second user namespace with other ids, after all steps that need capabilities in the
/// first.
fn enter_inner_user_namespace(maps: &IdMaps<'_>) -> Result<(), Errno> {
    namespace::unshare(kind::USER)?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    namespace::write_id_maps(maps.uid_map, maps.gid_map)?;
    // A new user namespace has all capabilities and a full bounding set.
    privileges::drop_bounding_set()?;
    // A change of credentials may clear the death signal (prctl(2)).
    privileges::die_with_parent()
}

fn make_ruleset(steps: &RulesetSteps<'_>) -> Result<RulesetCreated, StepError> {
    let mut ruleset = Ruleset::default()
        // The steps contain only what this kernel supports; anything else must fail the run.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(steps.handled)
        .and_then(|ruleset| {
            if steps.scoped.is_empty() {
                Ok(ruleset)
            } else {
                ruleset.scope(steps.scoped)
            }
        })
        .and_then(Ruleset::create)
        .map_err(|error| at(ChildStep::Ruleset)(kernel_landlock::errno_in(&error)))?;
    for (index, (path, allowed)) in (0..).zip(steps.rules) {
        let failed = at_index(ChildStep::Rule, index);
        let found = nofollow::open_without_links(path).map_err(&failed)?;
        // For a file, leaves out the rights that only directories have.
        let rule = PathBeneath::new(found, *allowed).set_compatibility(CompatLevel::BestEffort);
        ruleset = ruleset
            .add_rule(rule)
            .map_err(|error| failed(kernel_landlock::errno_in(&error)))?;
    }
    Ok(ruleset)
}

struct PreparedMounts<'a> {
    trees: &'a [Option<OwnedFd>],
    overlays: &'a [Option<OwnedFd>],
}

/// Applies steps of the base view, whose paths are all trusted. `first` is the index of the first.
fn apply_base_steps(steps: &[Step<'_>], first: usize) -> Result<(), StepError> {
    for (index, step) in (first..).zip(steps) {
        apply_base_step(step).map_err(at_index(
            ChildStep::BaseView,
            i32::try_from(index).unwrap_or(i32::MAX),
        ))?;
    }
    Ok(())
}

fn apply_base_step(step: &Step<'_>) -> Result<(), Errno> {
    match *step {
        Step::Directory { path, mode } => {
            match rustix::fs::mkdirat(rustix::fs::CWD, path, Mode::from_raw_mode(mode)) {
                Err(Errno::EXIST) => Ok(()),
                // An empty path is the root itself.
                Err(Errno::NOENT) if path.is_empty() => Ok(()),
                other => other,
            }
        }
        Step::File { path, contents } => {
            if contents.is_empty() && create_empty(path)? {
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
        // Only in the launch view.
        Step::BindFromSpace { .. } | Step::Attach { .. } | Step::AttachOverlay { .. } => {
            Err(Errno::INVAL)
        }
        // The bind mount keeps nosuid and nodev of its source.
        Step::SelfBind { path } => mount::bind(path, path, false),
        Step::Tmpfs { target, size_bytes } => mount::tmpfs_at(target, size_bytes),
        Step::Proc => mount::proc_at(c"proc"),
        Step::Devpts => mount::devpts_at(c"dev/pts"),
        // The bind mount keeps nosuid and noexec of the new root's null.
        Step::Mask { path } => match mount::bind(c"dev/null", path, false) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        },
        Step::MaskDirectory { path } => match mount::bind(c"dev/pts", path, false) {
            Ok(()) => {
                let attributes = Attributes::RDONLY.and(Attributes::NOEXEC);
                mount::restrict(path, attributes, false)
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        },
    }
}

fn apply_mount_step(step: &Step<'_>, prepared: &PreparedMounts<'_>) -> Result<(), Errno> {
    match *step {
        Step::Directory { path, mode } => binds::make_directory(path, mode),
        Step::File { path, contents: [] } => binds::make_file(path),
        Step::Bind {
            source,
            target,
            access,
        } => binds::bind(source, target, attributes(access), true),
        Step::BindFromSpace {
            source,
            target,
            access,
        } => binds::bind(source, target, attributes(access), false),
        Step::Attach { tree, target, .. } => {
            binds::attach(get_mount(prepared.trees, tree)?, target)
        }
        Step::AttachOverlay {
            overlay, target, ..
        } => binds::attach(get_mount(prepared.overlays, overlay)?, target),
        Step::SelfBind { path } => binds::bind_to_self(path),
        Step::Tmpfs { target, size_bytes } => binds::tmpfs(target, size_bytes),
        // Only in the base view.
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

fn get_mount(mounts: &[Option<OwnedFd>], number: usize) -> Result<BorrowedFd<'_>, Errno> {
    let mount = mounts.get(number).and_then(Option::as_ref);
    Ok(mount.ok_or(Errno::BADF)?.as_fd())
}

/// Creates an empty file with one call. Returns `false` if something exists at `path`.
fn create_empty(path: &CStr) -> Result<bool, Errno> {
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
