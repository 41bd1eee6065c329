//! A manifest without a bundle, as its bundle would hold it: with the documents of its blocks and
//! what it inherits from code-workspaces. Reads no byte of a source.

use std::path::Path;

use crate::plan::grants::Origin;
use crate::run::dry_run::{Files, ReadInputs};
use crate::run::error::RunError;
use crate::run::inputs::file_roots::FileRoots;
use crate::run::inputs::find_workspace;
use crate::run::inputs::loaded_manifest::{self, LoadedManifest, refuse};
use crate::run::planning::resolved;
use crate::run::refusals::Refusals;
use archive::Tree;
use bundler::locate::{Located, locate};
use bundler::manifests::text_of;
use bundler::{BundleError, ResolveRequest, SourceKind, resolve};
use spec::document::{self, Format};
use spec::host_policy::HostPolicy;
use spec::manifest::{BlockDocuments, ManifestError};
use spec::parse_permit::ParsePermit;
use spec::path::escape_path;
use spec::request::Request;
use spec::run_form::{Run, bundle_path};

/// Opens a manifest without a bundle, as its bundle would hold it.
///
/// # Errors
/// [`RunError`], as from `runner bundle` before it reads the files.
pub(super) fn open(
    path: &Path,
    request: &Request,
    policy: &HostPolicy,
    refusals: &mut Refusals,
) -> Result<ReadInputs, RunError> {
    refusals.check(resolved::check_stdin(request))?;
    let workspace = find_workspace(request);
    let of_caller = loaded_manifest::load_from_caller(request, workspace.as_deref(), &policy.refs)?;
    let (mut manifest, sources) = match of_caller {
        Some(manifest) => {
            let sources = manifest.manifest.code.len();
            (manifest, sources)
        }
        None => read(path, request, policy)?,
    };
    // `runner bundle` resolves the code.
    let found = &mut manifest.manifest.refusals;
    found.retain(|refusal| refusal.code() != "code_unresolved");
    let run = loaded_manifest::run_value(&request.bundle, &manifest.manifest)?;
    let program = match &run {
        Some(Run::Text(text) | Run::File(text)) => bundle_path(text).ok(),
        _ => None,
    };
    Ok(ReadInputs {
        manifest: Some(manifest),
        files: Files::ManifestAlone {
            tree: program.map(Tree::with_program).unwrap_or_default(),
            sources,
        },
        file_roots: FileRoots::open(request, workspace, refusals)?,
    })
}

/// The manifest at `path`, and its number of sources. The workspace is that of the request if it
/// contains the manifest, else found as by `runner bundle`.
///
/// # Errors
/// [`RunError`], as from `runner bundle` before it reads the files.
fn read(
    path: &Path,
    request: &Request,
    policy: &HostPolicy,
) -> Result<(LoadedManifest, usize), RunError> {
    let stated = request.bundle.workspace.as_deref();
    let working_directory = request.caller.working_directory.as_deref();
    let located = match locate(path, stated, working_directory) {
        Err(BundleError::ManifestOutside { .. }) => locate(path, None, working_directory),
        located => located,
    };
    let Located {
        files,
        manifest: place,
        warnings,
        ..
    } = located.map_err(|error| refuse(error, &|_| None))?;
    let asked = ResolveRequest {
        manifest: &place,
        registry: &policy.refs,
        require_pin: policy.require_pin,
    };
    let resolution =
        resolve(asked, &files).map_err(|error| refuse(error, &|file| text_of(&files, file)))?;
    let text = resolution.manifest.to_string();
    let file = escape_path(path);
    let sources = resolution.layers.iter();
    let sources = sources.filter(|layer| layer.origin.kind != SourceKind::Folder);
    // Written by this process.
    let permit = ParsePermit::for_trusted_text();
    let root = document::parse(&permit, text.as_bytes(), Format::Json)
        .map_err(|error| ManifestError::of_document(&file, error))?;
    let subject = LoadedManifest {
        manifest: loaded_manifest::parse_manifest(
            &root,
            &file,
            &BlockDocuments::default(),
            &|_| None,
        )?,
        file,
        root: Some(root),
        origin: Origin::Bundle,
        inventories: Vec::new(),
        warnings: warnings.into_iter().chain(resolution.warnings).collect(),
    };
    Ok((subject, sources.count()))
}
