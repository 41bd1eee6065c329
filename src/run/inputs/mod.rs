//! Opens the inputs. Consumes the request, returns the caller's manifest, bundle and workspace, before
//! anything on the host is created.

pub(super) mod block_documents;
pub(super) mod file_roots;
pub(super) mod loaded_manifest;

use std::fs::File;
use std::path::PathBuf;

use crate::run::Run;
use crate::run::error::RunError;
use crate::run::inputs::file_roots::FileRoots;
use crate::run::inputs::loaded_manifest::LoadedManifest;
use crate::run::planning::resolved;
use crate::run::refusals::Refusals;
use crate::run::supervision::published_ports;
use archive::OpenedArchive;
use egress::relay::Published;
use spec::host_policy::HostPolicy;
use spec::request::{BundleArgument, Request, Subject};

pub(super) struct Inputs {
    pub(super) manifest: Option<LoadedManifest>,
    pub(super) archive: Option<OpenedArchive>,
    pub(super) file_roots: FileRoots,
    pub(super) published: Vec<Published>,
}

/// Opens all inputs.
///
/// # Errors
/// [`RunError`]; errors that do not prevent opening the rest go to `refusals`.
pub(super) fn open_inputs(
    request: &Request,
    policy: &HostPolicy,
    refusals: &mut Refusals,
) -> Result<Inputs, RunError> {
    refusals.check(resolved::check_stdin(request))?;
    let path = find_workspace(request);
    let manifest = loaded_manifest::load_from_caller(request, path.as_deref(), &policy.refs)?;
    let archive = match &request.subject {
        Subject::Command(_) | Subject::Sandbox => None,
        Subject::Bundle(BundleArgument::Path(path)) => Some(archive::open_archive(path)?),
        Subject::Bundle(BundleArgument::Stdin) => {
            let stdin = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
                .map_err(RunError::host("read the bundle from standard input"))?;
            Some(OpenedArchive::File(File::from(stdin)))
        }
    };
    Ok(Inputs {
        manifest,
        archive,
        file_roots: FileRoots::open(request, path, refusals)?,
        published: Vec::new(),
    })
}

/// The workspace of the flag; for the caller's own manifest, the current directory by default.
pub(super) fn find_workspace(request: &Request) -> Option<PathBuf> {
    let of_flag = request.bundle.workspace.clone();
    of_flag.or_else(|| match &request.bundle.manifest {
        Some(_) => request.caller.working_directory.clone(),
        None => None,
    })
}

impl Run<'_> {
    /// Opens the inputs and listens at the published ports.
    ///
    /// # Errors
    /// [`RunError`]: the first that is missing or not allowed.
    pub(super) fn open_inputs(&self) -> Result<Inputs, RunError> {
        let mut inputs = open_inputs(self.request, self.policy, &mut Refusals::fail())?;
        inputs.published = published_ports::publish(&self.request.network.publish)?;
        Ok(inputs)
    }
}
