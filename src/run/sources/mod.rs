//! Workspace sources: pulled once, cached, and mounted for the body.
//!
//! A read-only source is a mount of the cached tree. A writable source, and one that needs mount
//! points which its snapshot lacks, is an overlayfs with its upper layer in the run's own limited
//! space, or a copy there if the kernel does not support that. The cached tree is never written and
//! stays claimed until the run has ended.

pub mod error;
mod showing;

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::run::Run;
use crate::run::artifacts::{UntilSignal, terms};
use crate::run::error::RunError;
use crate::run::image::how;
use crate::run::planning;
use crate::run::progress::Act;
use crate::run::reporting::WithWarnings;
use crate::run::resolved::ResolvedRun;
use crate::run::sources::error::{SourceError, SourceProblem};
use archive::Entry;
use sandbox::mounts;
use sandbox::prepare::Prepared;
use sandbox::resources::Resources;
use sandbox::view::{self as view_plan, Access, MountSource, RequestedMount};
use sources::oci::error::OciError;
use sources::oci::pull::{self, Tags};
use spec::did_you_mean::difference;
use spec::digest::Digest;
use spec::host_policy::HostPolicy;
use spec::manifest::{Manifest, WorkspaceSource};
use spec::oci::reference::{Reference, Which};
use spec::path::{RelPath, escape};
use spec::report::WarningReport;
use spec::request::{Request, ViewEntry};
use spec::workspace_source_report::{SourceFound, WorkspaceSourceReport};
use store::{CacheError, InUse};
use sys::file::{CallError, open_beneath};

/// Maximum number of directories in a hint.
const NEAR_MAX: usize = 3;

/// The sources as the body sees them.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Cached trees that are mounted directly.
    pub(super) entries: Vec<ViewEntry>,
    pub(super) mounts: Vec<RequestedMount>,
    /// Claims that keep the trees from being removed.
    pub(super) in_use: Vec<InUse>,
}

/// A source whose tree is available.
#[derive(Debug)]
struct Had<'manifest> {
    source: &'manifest WorkspaceSource,
    digest: Digest,
    found: SourceFound,
    in_use: InUse,
    /// The directory to mount: the tree, or a directory in it.
    root: OwnedFd,
    path: PathBuf,
}

/// The sources of a run with their report rows, also after a failure.
pub(super) struct MaterializedSources {
    /// A row for each available or skipped source.
    pub(super) rows: Vec<WorkspaceSourceReport>,
    pub(super) sources: WithWarnings<Sources>,
}

impl Default for MaterializedSources {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            sources: WithWarnings::ok(Sources::default(), Vec::new()),
        }
    }
}

/// Available sources up to the first failure.
#[derive(Default)]
struct Pulled<'manifest> {
    had: Vec<Had<'manifest>>,
    rows: Vec<WorkspaceSourceReport>,
    warnings: Vec<WarningReport>,
    failed: Option<RunError>,
}

/// One source; without a tree if it was skipped.
struct PulledOne<'manifest> {
    had: Option<Had<'manifest>>,
    row: WorkspaceSourceReport,
    warnings: Vec<WarningReport>,
}

impl Run<'_> {
    /// Materializes every source of the manifest. The child was asked for the overlayfs and has
    /// answered.
    pub(super) fn materialize_sources(
        &self,
        resolved: &ResolvedRun,
        prepared: &mut Prepared,
        resources: &Resources,
        signals: BorrowedFd<'_>,
    ) -> Result<MaterializedSources, RunError> {
        let wanted = &resolved.manifest.workspace_sources;
        if wanted.is_empty() {
            return Ok(MaterializedSources::default());
        }
        let references = check(&resolved.manifest, self.request, self.policy)?;
        let others = planning::distinct(resolved);
        let others: Vec<RequestedMount> = others
            .iter()
            .map(mounts::inspect)
            .collect::<Result<_, _>>()?;
        let planned = wanted.iter().map(placeholder);
        let all: Vec<RequestedMount> = others.iter().cloned().chain(planned).collect();
        view_plan::asked(&all)?;
        let Pulled {
            had,
            mut rows,
            warnings,
            failed,
        } = self.pull_all(wanted, &references, signals);
        let shown = match failed {
            Some(error) => Err(error),
            None => self.show(had, &others, prepared, resources),
        };
        let result = shown.map(|(sources, views)| {
            let is_there = |row: &&mut WorkspaceSourceReport| row.found != SourceFound::Absent;
            for (row, view) in rows.iter_mut().filter(is_there).zip(views) {
                row.view = Some(view);
            }
            sources
        });
        Ok(MaterializedSources {
            rows,
            sources: WithWarnings { warnings, result },
        })
    }

    fn pull_all<'manifest>(
        &self,
        wanted: &'manifest [WorkspaceSource],
        references: &[Reference],
        signals: BorrowedFd<'_>,
    ) -> Pulled<'manifest> {
        let mut pulled = Pulled::default();
        for (source, reference) in wanted.iter().zip(references) {
            match self.pull(source, reference, signals) {
                Err(error) => {
                    pulled.failed = Some(error);
                    break;
                }
                Ok(one) => {
                    pulled.rows.push(one.row);
                    pulled.warnings.extend(one.warnings);
                    pulled.had.extend(one.had);
                }
            }
        }
        pulled
    }

    fn pull<'manifest>(
        &self,
        source: &'manifest WorkspaceSource,
        reference: &Reference,
        signals: BorrowedFd<'_>,
    ) -> Result<PulledOne<'manifest>, RunError> {
        let act = Act::begin(format!("source {}", escape(source.id.as_bytes())));
        let until = Arc::new(UntilSignal::new(signals, act)?);
        let had = self.have_source(source, reference, &until);
        if let Some(signal) = until.cancelled_by() {
            return Err(RunError::Cancelled { signal });
        }
        let mut row = row_of(source);
        match had {
            Ok((had, warnings)) => {
                row.digest = Some(had.digest);
                row.found = had.found;
                Ok(PulledOne {
                    had: Some(had),
                    row,
                    warnings,
                })
            }
            Err(problem) => {
                let left_out = problem.may_be_left_out();
                let error = of_source(source)(problem);
                if source.required || self.request.strict || !left_out {
                    return Err(error.into());
                }
                let message = spec::report::with_causes(&error);
                let message = format!("{message}; it is not required and left out");
                Ok(PulledOne {
                    had: None,
                    row,
                    warnings: vec![WarningReport::new("source_absent", message)],
                })
            }
        }
    }

    fn have_source<'manifest>(
        &self,
        source: &'manifest WorkspaceSource,
        reference: &Reference,
        until: &Arc<UntilSignal>,
    ) -> Result<(Had<'manifest>, Vec<WarningReport>), SourceProblem> {
        let terms = terms(self.request, self.policy, until);
        let snapshot = pull::snapshot(
            &terms.store()?,
            &terms.registry(reference)?,
            &reference.which(),
            Tags::allowed(takes_tags(self.request, self.policy)),
            &terms.layer_limits(),
            &*terms.observer,
        )?;
        until.act.succeeded(how(snapshot.cached));
        let in_use = snapshot.tree;
        let subpath = source.subpath.as_ref();
        let root = open_part(&in_use, subpath)?;
        let path = match subpath {
            None => in_use.path.clone(),
            Some(subpath) => in_use.path.join(OsStr::from_bytes(subpath.as_bytes())),
        };
        let had = Had {
            source,
            digest: snapshot.digest,
            found: if snapshot.cached {
                SourceFound::Store
            } else {
                SourceFound::Pulled
            },
            in_use,
            root,
            path,
        };
        Ok((had, snapshot.warnings))
    }
}

/// Parses the references of all sources before any is pulled.
///
/// # Errors
/// [`RunError::Source`] for an invalid reference or a tag that is not allowed.
pub(super) fn check(
    manifest: &Manifest,
    request: &Request,
    policy: &HostPolicy,
) -> Result<Vec<Reference>, RunError> {
    let takes_tags = takes_tags(request, policy);
    let by_host = policy.require_pin;
    let one = |source: &WorkspaceSource| {
        let reference = Reference::parse(&source.reference).map_err(SourceProblem::from);
        let reference = reference.map_err(of_source(source))?;
        match reference.which() {
            Which::Digest(_) => Ok(reference),
            Which::Tag(_) | Which::Unnamed if takes_tags => Ok(reference),
            Which::Tag(_) | Which::Unnamed => {
                Err(of_source(source)(SourceProblem::Tag { by_host }).into())
            }
        }
    };
    manifest.workspace_sources.iter().map(one).collect()
}

fn takes_tags(request: &Request, policy: &HostPolicy) -> bool {
    request.oci.allow_tags && !policy.require_pin
}

fn of_source(source: &WorkspaceSource) -> impl FnOnce(SourceProblem) -> SourceError {
    let id = escape(source.id.as_bytes());
    let reference = escape(source.reference.as_bytes());
    move |problem| SourceError {
        id,
        reference,
        problem,
    }
}

/// The row of a source before it is pulled.
fn row_of(source: &WorkspaceSource) -> WorkspaceSourceReport {
    let subpath = source.subpath.as_ref();
    WorkspaceSourceReport {
        id: escape(source.id.as_bytes()),
        reference: escape(source.reference.as_bytes()),
        digest: None,
        mount_path: source.target.to_string(),
        subpath: subpath.map(|path| escape(path.as_bytes())),
        writable: source.writable,
        view: None,
        found: SourceFound::Absent,
    }
}

/// A placeholder that only has a target.
pub(super) fn placeholder(source: &WorkspaceSource) -> RequestedMount {
    RequestedMount {
        target: source.target.as_str().as_bytes().to_vec(),
        is_directory: true,
        source: MountSource::Overlay {
            overlay: 0,
            access: Access::of(source.writable),
        },
    }
}

/// Opens the requested directory of a cached tree.
fn open_part(in_use: &InUse, subpath: Option<&RelPath>) -> Result<OwnedFd, SourceProblem> {
    let path = subpath.map_or(&b"."[..], RelPath::as_bytes);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = open_beneath(in_use.root.as_fd(), path, flags, Mode::empty());
    opened.map_err(|errno| match (errno, subpath) {
        (Errno::NOENT | Errno::NOTDIR, Some(subpath)) => no_directory(in_use, subpath),
        _ => {
            let path = escape(in_use.path.as_os_str().as_bytes());
            let error = CacheError::Call(CallError::new("openat2", path, errno));
            OciError::from(error).into()
        }
    })
}

fn no_directory(in_use: &InUse, subpath: &RelPath) -> SourceProblem {
    let tree = match in_use.tree() {
        Ok(tree) => tree,
        Err(error) => return OciError::from(error).into(),
    };
    let wanted = subpath.to_string();
    let mut near: Vec<(usize, String)> = tree
        .iter()
        .filter(|(_, entry)| matches!(entry, Entry::Directory))
        .filter_map(|(path, _)| {
            let path = path.to_string();
            // Suggests a directory of that name elsewhere as well as similar names.
            let moved = path.ends_with(&format!("/{wanted}")).then_some(1);
            Some((difference(&wanted, &path).or(moved)?, path))
        })
        .collect();
    near.sort();
    near.truncate(NEAR_MAX);
    SourceProblem::Subpath {
        subpath: wanted,
        found: match tree.get(subpath) {
            Some(_) => "a file",
            None => "nothing",
        },
        near: near.into_iter().map(|(_, path)| path).collect(),
    }
}
