//! Builds the launch plan from the resolved run: view, environment, ruleset, filter, resource limits.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use crate::plan::environment::{self, OfImage, Parts};
use crate::plan::limits::Limits;
use crate::run::error::RunError;
use crate::run::planning::limits::unix_sockets_of;
use crate::run::planning::programs::lookup::is_in_base_view;
use crate::run::planning::provider;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::sources::Sources;
use sandbox::image_root::without_host_programs;
use sandbox::launch::{AuditRecords, CommandPlan, ImageRoot, LaunchPlan};
use sandbox::mounts::{self, MountError};
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::rlimits;
use sandbox::ruleset::{self, Ruleset};
use sandbox::seccomp;
use sandbox::view::{self as view_plan, ViewStep};
use spec::host::HostSupport;
use spec::limits::Limit;
use spec::request::{Request, Subject, ViewEntry};
use sys::allocator::keep_from_children;

pub(in crate::run) struct LaunchInputs<'run> {
    pub(in crate::run) request: &'run Request,
    pub(in crate::run) resources: &'run Resources,
    pub(in crate::run) resolved: &'run ResolvedRun,
    pub(in crate::run) sources: &'run Sources,
    pub(in crate::run) limits: &'run Limits,
    pub(in crate::run) space_in_use: SpaceInUse,
    pub(in crate::run) root: Option<ImageRoot>,
    pub(in crate::run) run_id: &'run str,
}

/// Space that the supervisor's files take in the writable space.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct SpaceInUse {
    pub(in crate::run) bytes: u64,
    inodes: u64,
}

/// Builds the plan, and the cloned mounts that its view attaches.
///
/// # Errors
/// [`RunError::View`], [`RunError::Argument`] for an impossible mount.
pub(in crate::run) fn launch_plan(
    inputs: LaunchInputs<'_>,
) -> Result<(LaunchPlan<'static>, Vec<OwnedFd>), RunError> {
    let LaunchInputs {
        request,
        resources,
        resolved,
        sources,
        limits,
        space_in_use,
        root,
        run_id,
    } = inputs;
    let mut entries = distinct_mounts(resolved);
    // `keep_stores_apart` checked the caller's mounts, not these.
    let is_read_only = |entry: &ViewEntry| !matches!(entry, ViewEntry::Bind { writable: true, .. });
    debug_assert!(sources.entries.iter().all(is_read_only), "cached trees");
    entries.extend(sources.entries.iter().cloned());
    let (mut mounts, trees) = mounts::open(&entries, resources.body_ids())?;
    mounts.extend(sources.mounts.iter().cloned());
    let steps = view_plan::asked(&mounts)?;
    let image = resolved.opened_image();
    let parts = environment_parts(request, resolved, limits.memory_bytes(), run_id);
    let space_bytes = space_in_use
        .bytes
        .saturating_add(limits.values.get(Limit::Disk).unwrap_or_default());
    let disk_inodes = limits.values.get(Limit::DiskInodes).unwrap_or_default();
    let file_bytes = (!writes_elsewhere(&entries)).then_some(space_bytes);
    let sockets = unix_sockets_of(request, resolved, &resources.host);
    let plan = LaunchPlan {
        network: None,
        ruleset: sockets.ruleset(
            ruleset_of(resources, &steps, resolved, root.as_ref()),
            &request.sockets,
        ),
        root,
        inside: image
            .filter(|image| !image.user.is_plain())
            .map(|image| (image.user.uid, image.user.gid)),
        base_view: resources.base.view.clone(),
        view: steps,
        resize: Some((space_bytes, space_in_use.inodes.saturating_add(disk_inodes))),
        filter: seccomp::programs(resolved.syscalls),
        is_traced: request.is_traced,
        records: AuditRecords::nothing(resources.host.landlock_abi),
        command: CommandPlan {
            second_filter: sockets.filter(),
            limits: rlimits::of(&resources.coverage(), &limits.values, file_bytes)?,
            working_directory: resolved.working_directory.clone(),
            programs: program_candidates(resolved, &parts),
            argv: resolved.argv.clone(),
            environment: keep_from_children(|| environment::environment(&parts)),
            shell: provider::shell(&resolved.manifest),
            null_stdin: false,
        },
        stays: matches!(request.subject, Subject::Sandbox),
        caller_terminal: caller_terminal(request),
    };
    Ok((plan, trees))
}

/// All steps of the view that do not need a run: the base view and the `requested` steps.
pub(in crate::run) fn view_steps(
    host: &HostSupport,
    is_image: bool,
    requested: Vec<ViewStep>,
) -> Vec<ViewStep> {
    let base = view_plan::base(host);
    let mut steps = if is_image {
        without_host_programs(&base)
    } else {
        base
    };
    steps.extend(requested);
    steps
}

/// The steps of the requested mounts and sources. Clones no mount.
///
/// # Errors
/// [`RunError::View`], [`RunError::Argument`] for an impossible mount.
pub(in crate::run) fn requested_steps(
    resolved: &ResolvedRun,
    sources: &Sources,
) -> Result<Vec<ViewStep>, RunError> {
    let entries = distinct_mounts(resolved);
    let inspected = entries.iter().chain(&sources.entries).map(mounts::inspect);
    let mut mounts = inspected.collect::<Result<Vec<_>, MountError>>()?;
    mounts.extend(sources.mounts.iter().cloned());
    Ok(view_plan::asked(&mounts)?)
}

fn ruleset_of(
    resources: &Resources,
    requested: &[ViewStep],
    resolved: &ResolvedRun,
    root: Option<&ImageRoot>,
) -> Option<Ruleset> {
    let (abi, base) = (resources.host.landlock_abi, &resources.base.view);
    match (resolved.opened_image(), root) {
        (Some(image), Some(root)) => {
            ruleset::of_image(abi, base, requested, &image.top, root.writable)
        }
        _ => {
            let all: Vec<ViewStep> = base.iter().chain(requested).cloned().collect();
            ruleset::ruleset(abi, &all)
        }
    }
}

pub(in crate::run) fn environment_parts<'run>(
    request: &'run Request,
    resolved: &'run ResolvedRun,
    memory_bytes: u64,
    run_id: &'run str,
) -> Parts<'run> {
    Parts {
        run_id,
        has_bundle: matches!(request.subject, Subject::Bundle(_)),
        program_directories: &resolved.program_directories,
        memory_bytes,
        terminal: request.streams.terminal.then(|| terminal_type(request)),
        image: resolved.opened_image().map(|opened| OfImage {
            variables: &opened.image.config.environment,
            home: &opened.user.home,
        }),
        named: &resolved.environment,
    }
}

/// The mounts of the view without duplicates and without those that the base view has.
pub(in crate::run) fn distinct_mounts(resolved: &ResolvedRun) -> Vec<ViewEntry> {
    let mut entries: Vec<ViewEntry> = Vec::with_capacity(resolved.view.len());
    for entry in &resolved.view {
        let is_redundant = match entry {
            ViewEntry::Bind {
                source,
                target,
                writable: false,
            } => {
                let of_host = resolved.image.is_none();
                of_host && is_in_base_view(target) && is_at(source, target)
            }
            _ => false,
        };
        if !is_redundant && !entries.contains(entry) {
            entries.push(entry.clone());
        }
    }
    entries
}

/// Whether `target` on the host resolves to `source`, which contains no links.
pub(in crate::run) fn is_at(source: &Path, target: &Path) -> bool {
    source == target || target.canonicalize().is_ok_and(|real| real == source)
}

fn caller_terminal(request: &Request) -> Option<BorrowedFd<'static>> {
    let stdin = rustix::stdio::stdin();
    let is_terminal = request.streams.terminal && rustix::termios::isatty(stdin);
    is_terminal.then_some(stdin)
}

fn writes_elsewhere(view: &[ViewEntry]) -> bool {
    view.iter()
        .any(|entry| matches!(entry, ViewEntry::Bind { writable: true, .. }))
}

fn terminal_type(request: &Request) -> &[u8] {
    let known = request
        .caller
        .environment
        .iter()
        .find(|(name, _)| name == b"TERM");
    known.map_or(b"xterm", |(_, value)| value)
}

/// The paths to try in order.
pub(in crate::run) fn program_candidates(
    resolved: &ResolvedRun,
    parts: &Parts<'_>,
) -> Vec<Vec<u8>> {
    if let Some(program) = &resolved.program {
        return vec![program.clone()];
    }
    let Some(name) = resolved.argv.first() else {
        return Vec::new();
    };
    let directories = environment::search_path(parts);
    sandbox::launch::program_candidates(name, directories.iter().map(|path| &path[..]))
}

/// Measures the used part of the writable space.
///
/// # Errors
/// [`RunError::Host`] with the errno of fstatfs(2).
pub(in crate::run) fn space_in_use(prepared: &Prepared) -> Result<SpaceInUse, RunError> {
    let found = rustix::fs::fstatvfs(prepared.space())
        .map_err(RunError::host("inspect the writable space"))?;
    let blocks = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(SpaceInUse {
        bytes: blocks.saturating_mul(found.f_frsize),
        inodes: found.f_files.saturating_sub(found.f_ffree),
    })
}
