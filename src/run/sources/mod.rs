//! Pulls workspace sources into the cache and mounts them for the body.
//!
//! A read-only source is a mount of the cached tree. A writable source, and one that needs mount
//! points which its snapshot lacks, is an overlayfs with its upper layer in the run's own limited
//! space, or a copy there if the kernel does not support that. The cached tree is never written and
//! stays claimed until the run has ended.

pub(super) mod error;
mod mounting;

pub(super) use mounting::overlay_directory;

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::run::Run;
use crate::run::error::RunError;
use crate::run::fetching::artifacts::{FetchObserver, terms};
use crate::run::fetching::progress::ProgressStep;
use crate::run::image::finding::fetch_result;
use crate::run::launching::launch_plan;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::reporting::WithWarnings;
use crate::run::sources::error::{SourceError, SourceProblem};
use archive::Entry;
use sandbox::mounts;
use sandbox::overlay::SOURCES_MAX;
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
use spec::path::{RelPath, escape, escape_path};
use spec::report::WarningReport;
use spec::request::{Request, ViewEntry};
use spec::workspace_source_report::{SourceFound, WorkspaceSourceReport};
use store::{CacheError, InUse};
use sys::file::{CallError, open_beneath};

const NEAR_MAX: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Cached trees that are mounted directly.
    pub(super) entries: Vec<ViewEntry>,
    pub(super) mounts: Vec<RequestedMount>,
    /// Those that are writable overlayfs.
    pub(super) uppers: Vec<SourceUpper>,
    /// Claims that keep the trees from being removed.
    pub(super) in_use: Vec<InUse>,
}

/// A writable source.
#[derive(Debug)]
pub(super) struct SourceUpper {
    /// Its absolute path in the sandbox.
    pub(super) target: Vec<u8>,
    /// Its upper directory in the writable space.
    pub(super) upper: String,
    /// The cached tree.
    pub(super) lower: PathBuf,
}

#[derive(Debug)]
struct PulledSource<'manifest> {
    source: &'manifest WorkspaceSource,
    digest: Digest,
    found: SourceFound,
    in_use: InUse,
    /// The directory to mount: the tree, or a directory in it.
    root: OwnedFd,
    path: PathBuf,
}

/// The sources of a run, with the report rows up to a failure.
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

/// Pulled sources up to the first failure.
#[derive(Default)]
struct PulledSources<'manifest> {
    pulled: Vec<PulledSource<'manifest>>,
    rows: Vec<WorkspaceSourceReport>,
    warnings: Vec<WarningReport>,
    failed: Option<RunError>,
}

/// One source, pulled or skipped.
struct PulledOrSkipped<'manifest> {
    pulled: Option<PulledSource<'manifest>>,
    row: WorkspaceSourceReport,
    warnings: Vec<WarningReport>,
}

impl Run<'_> {
    /// Pulls and mounts every source of the manifest. At the return, the child has mounted each
    /// overlayfs or refused it.
    pub(super) fn materialize_sources(
        &self,
        resolved: &ResolvedRun,
        prepared: &mut Prepared,
        resources: &Resources,
        signals: BorrowedFd<'_>,
    ) -> Result<MaterializedSources, RunError> {
        let requested = &resolved.manifest.workspace_sources;
        if requested.is_empty() {
            return Ok(MaterializedSources::default());
        }
        let references = parse_references(&resolved.manifest, self.request, self.policy)?;
        let others = launch_plan::distinct_mounts(resolved);
        let others: Vec<RequestedMount> = others
            .iter()
            .map(mounts::inspect)
            .collect::<Result<_, _>>()?;
        let planned = requested.iter().map(placeholder_mount);
        let all: Vec<RequestedMount> = others.iter().cloned().chain(planned).collect();
        view_plan::asked(&all)?;
        let PulledSources {
            pulled,
            mut rows,
            warnings,
            failed,
        } = self.pull_all(requested, &references, signals);
        let mounted = match failed {
            Some(error) => Err(error),
            None => self.mount_sources(pulled, &others, prepared, resources),
        };
        let result = mounted.map(|(sources, views)| {
            let is_pulled = |row: &&mut WorkspaceSourceReport| row.found != SourceFound::Absent;
            for (row, view) in rows.iter_mut().filter(is_pulled).zip(views) {
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
        requested: &'manifest [WorkspaceSource],
        references: &[Reference],
        signals: BorrowedFd<'_>,
    ) -> PulledSources<'manifest> {
        let mut pulled = PulledSources::default();
        for (source, reference) in requested.iter().zip(references) {
            match self.pull(source, reference, signals) {
                Err(error) => {
                    pulled.failed = Some(error);
                    break;
                }
                Ok(one) => {
                    pulled.rows.push(one.row);
                    pulled.warnings.extend(one.warnings);
                    pulled.pulled.extend(one.pulled);
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
    ) -> Result<PulledOrSkipped<'manifest>, RunError> {
        let step = ProgressStep::start(format!("source {}", escape(source.id.as_bytes())));
        let observer = Arc::new(FetchObserver::new(signals, step)?);
        let pulled = self.fetch_source(source, reference, &observer);
        if let Some(signal) = observer.cancelled_by() {
            return Err(RunError::Cancelled { signal });
        }
        let mut row = unpulled_row(source);
        match pulled {
            Ok((pulled, warnings)) => {
                row.digest = Some(pulled.digest);
                row.found = pulled.found;
                Ok(PulledOrSkipped {
                    pulled: Some(pulled),
                    row,
                    warnings,
                })
            }
            Err(problem) => {
                let is_skippable = problem.is_skippable();
                let error = source_error(source)(problem);
                if source.required || self.request.strict || !is_skippable {
                    return Err(error.into());
                }
                let message = spec::report::with_causes(&error);
                let message = format!("{message}; skipped, since it is not required");
                Ok(PulledOrSkipped {
                    pulled: None,
                    row,
                    warnings: vec![WarningReport::new("source_absent", message)],
                })
            }
        }
    }

    fn fetch_source<'manifest>(
        &self,
        source: &'manifest WorkspaceSource,
        reference: &Reference,
        observer: &Arc<FetchObserver>,
    ) -> Result<(PulledSource<'manifest>, Vec<WarningReport>), SourceProblem> {
        let terms = terms(self.request, self.policy, observer);
        let snapshot = pull::snapshot(
            &terms.store()?,
            &terms.registry(reference)?,
            &reference.which(),
            Tags::allowed(allows_tags(self.request, self.policy)),
            &terms.layer_limits(),
            &*terms.observer,
        )?;
        observer.step.succeed(fetch_result(snapshot.cached));
        let in_use = snapshot.tree;
        let subpath = source.subpath.as_ref();
        let root = open_subpath(&in_use, subpath)?;
        let path = match subpath {
            None => in_use.path.clone(),
            Some(subpath) => in_use.path.join(OsStr::from_bytes(subpath.as_bytes())),
        };
        let pulled = PulledSource {
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
        Ok((pulled, snapshot.warnings))
    }
}

/// Parses the references of all sources before any is pulled.
///
/// # Errors
/// [`RunError::Source`] for an invalid reference, a tag that is not allowed, or too many writable
/// sources.
pub(super) fn parse_references(
    manifest: &Manifest,
    request: &Request,
    policy: &HostPolicy,
) -> Result<Vec<Reference>, RunError> {
    let mut writable = manifest
        .workspace_sources
        .iter()
        .filter(|source| source.writable && source.required);
    if let Some(beyond) = writable.nth(SOURCES_MAX).filter(|_| !policy.oci.copy) {
        let problem = SourceProblem::TooMany { most: SOURCES_MAX };
        return Err(source_error(beyond)(problem).into());
    }
    let allows_tags = allows_tags(request, policy);
    let by_host = policy.require_pin;
    let parse = |source: &WorkspaceSource| {
        let reference = Reference::parse(&source.reference).map_err(SourceProblem::from);
        let reference = reference.map_err(source_error(source))?;
        match reference.which() {
            Which::Digest(_) => Ok(reference),
            Which::Tag(_) | Which::Unnamed if allows_tags => Ok(reference),
            Which::Tag(_) | Which::Unnamed => {
                Err(source_error(source)(SourceProblem::Tag { by_host }).into())
            }
        }
    };
    manifest.workspace_sources.iter().map(parse).collect()
}

fn allows_tags(request: &Request, policy: &HostPolicy) -> bool {
    request.oci.allow_tags && !policy.require_pin
}

fn source_error(source: &WorkspaceSource) -> impl FnOnce(SourceProblem) -> SourceError {
    let id = escape(source.id.as_bytes());
    let reference = escape(source.reference.as_bytes());
    move |problem| SourceError {
        id,
        reference,
        problem,
    }
}

/// The row of a source before it is pulled.
fn unpulled_row(source: &WorkspaceSource) -> WorkspaceSourceReport {
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

/// A mount at the target of the source, before the source is pulled.
pub(super) fn placeholder_mount(source: &WorkspaceSource) -> RequestedMount {
    RequestedMount {
        target: source.target.as_str().as_bytes().to_vec(),
        is_directory: true,
        source: MountSource::Overlay {
            overlay: 0,
            access: Access::of(source.writable),
        },
    }
}

/// Opens a cached tree, or its requested directory.
fn open_subpath(in_use: &InUse, subpath: Option<&RelPath>) -> Result<OwnedFd, SourceProblem> {
    let path = subpath.map_or(&b"."[..], RelPath::as_bytes);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = open_beneath(in_use.root.as_fd(), path, flags, Mode::empty());
    opened.map_err(|errno| match (errno, subpath) {
        (Errno::NOENT | Errno::NOTDIR, Some(subpath)) => subpath_error(in_use, subpath),
        _ => {
            let path = escape_path(&in_use.path);
            let error = CacheError::Call(CallError::new("openat2", path, errno));
            OciError::from(error).into()
        }
    })
}

fn subpath_error(in_use: &InUse, subpath: &RelPath) -> SourceProblem {
    let tree = match in_use.tree() {
        Ok(tree) => tree,
        Err(error) => return OciError::from(error).into(),
    };
    let requested = subpath.to_string();
    let mut near: Vec<(usize, String)> = tree
        .iter()
        .filter(|(_, entry)| matches!(entry, Entry::Directory))
        .filter_map(|(path, _)| {
            let path = path.to_string();
            // Suggests similar names, and the same name in another directory.
            let moved = path.ends_with(&format!("/{requested}")).then_some(1);
            Some((difference(&requested, &path).or(moved)?, path))
        })
        .collect();
    near.sort();
    near.truncate(NEAR_MAX);
    SourceProblem::Subpath {
        subpath: requested,
        found: match tree.get(subpath) {
            Some(_) => "a file in",
            None => "missing from",
        },
        near: near.into_iter().map(|(_, path)| path).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::manifest::{self, Format};
    use spec::parse_permit::ParsePermit;
    use spec::request::{Caller, Subject};

    #[test]
    fn too_many_writable_sources_are_refused_before_one_is_pulled() {
        let sources = |count: usize| {
            let digest = "0".repeat(64);
            let lines = (0..count).map(|at| {
                format!(
                    "  - {{id: s{at}, ref: 'r.test/a/b@sha256:{digest}', mountPath: /workspace/{at}, \
                     writable: true}}\n"
                )
            });
            let text = format!("workspaceSources:\n{}", lines.collect::<String>());
            let manifest = manifest::parse(
                &ParsePermit::for_trusted_text(),
                text.as_bytes(),
                Format::Yaml,
                "m",
            )
            .expect("a manifest");
            let request = Request::captured(Subject::Command(Vec::new()), Caller::default());
            parse_references(&manifest, &request, &HostPolicy::default())
        };
        assert_eq!(sources(SOURCES_MAX).expect("accepted").len(), SOURCES_MAX);
        let error = sources(SOURCES_MAX + 1).expect_err("refused").report();
        assert_eq!(error.code, "sources_too_many");
    }
}
