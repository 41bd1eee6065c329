//! Creates a bundle: locate, resolve, pin, gather, write. Start reading here.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::BundleError;
use crate::gather::{GatherOptions, Gathered, gather};
use crate::hosting::client;
use crate::locate::locate;
use crate::outputs::Outputs;
use crate::pinned::{LockUse, Pinned};
use crate::resolve::{ResolveRequest, resolve};
use crate::write::{WrittenBundle, content_digest, write};
use spec::digest::Digest;
use spec::host_policy::HostPolicy;
use spec::report::WarningReport;

/// Request for one bundle.
#[derive(Debug)]
pub struct BundleRequest<'call> {
    /// A manifest, a folder with one, or the name of a code-workspace.
    pub subject: &'call Path,
    pub workspace: Option<&'call Path>,
    /// Output file; `-` is standard output.
    pub output: Option<&'call Path>,
    pub lock: LockUse<'call>,
    /// Refuses references to branches and tags.
    pub require_pin: bool,
    /// Copies the targets of links instead of the links.
    pub follow_symlinks: bool,
    /// Computes the digest also without an output.
    pub wants_digest: bool,
}

/// Settings of the host.
#[derive(Clone, Copy)]
pub struct BundleHost<'call> {
    pub policy: &'call HostPolicy,
    pub working_directory: Option<&'call Path>,
    /// Used if the policy names no directory.
    pub cache_directory: &'call Path,
    /// Returns an environment variable.
    pub variable: &'call dyn Fn(&str) -> Option<&'call OsStr>,
}

impl std::fmt::Debug for BundleHost<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("BundleHost")
            .field("policy", &self.policy)
            .field("working_directory", &self.working_directory)
            .finish_non_exhaustive()
    }
}

impl BundleHost<'_> {
    pub(crate) fn cache_directory(&self) -> PathBuf {
        let configured = self.policy.cache.directory.as_deref();
        configured.unwrap_or(self.cache_directory).to_owned()
    }
}

/// A finished bundle.
#[derive(Debug)]
pub struct Bundle {
    pub contents: Gathered,
    /// `None` without an output.
    pub written: Option<WrittenBundle>,
    /// `None` if it was not computed.
    pub digest: Option<Digest>,
}

/// Creates a bundle. The bundle and its lock file are renamed last, after all checks.
/// Calls `warn` with the warnings of each stage as it ends.
///
/// # Errors
/// [`BundleError`].
pub fn bundle(
    request: &BundleRequest<'_>,
    host: &BundleHost<'_>,
    warn: &dyn Fn(&[WarningReport]),
) -> Result<Bundle, BundleError> {
    let located = locate(request.subject, request.workspace, host.working_directory)?;
    warn(&located.warnings);
    let manifest = ResolveRequest {
        manifest: &located.manifest,
        registry: &host.policy.refs,
        require_pin: request.require_pin,
    };
    let resolution = resolve(manifest, &located.files)?;
    warn(&resolution.warnings);
    let pinned = Pinned::new(resolution, host.policy, request.lock, request.require_pin)?;

    let github = client(host, &pinned.resolution.layers)?;
    let mut outputs = Outputs::create(request.output, request.lock)?;
    let options = GatherOptions {
        caps: host.policy.unpack,
        follow_symlinks: request.follow_symlinks,
        workspace: Some(&located.workspace),
        exclude: outputs.identities(request.lock)?,
        lock: pinned.lock(),
    };
    let contents = gather(
        &pinned.resolution.layers,
        Some(&pinned.resolution.manifest),
        &located.files,
        Some(&github),
        &options,
    )?;
    warn(&contents.warnings);
    pinned.check_run(&contents)?;

    if outputs.is_stream() && pinned.lock().is_some() {
        // The reader of a stream gets the bundle before the exit code, so the lock is checked first.
        pinned.lock_of(&contents, content_digest(&contents, &located.files)?)?;
    }
    let written = match &mut outputs.bundle {
        Some(file) => {
            let written = write(&contents, &located.files, file);
            Some(written.map_err(|error| error.in_file(&file.shown))?)
        }
        None => None,
    };
    let digest = match written {
        Some(written) => Some(written.content_digest),
        None if request.wants_digest || pinned.has_lock => {
            Some(content_digest(&contents, &located.files)?)
        }
        None => None,
    };
    let lock = match digest {
        Some(digest) if pinned.has_lock => Some(pinned.lock_of(&contents, digest)?),
        _ => None,
    };
    outputs.commit(lock.as_ref())?;
    Ok(Bundle {
        contents,
        written,
        digest,
    })
}
