//! How the manifest's `sandbox` block starts what was chosen: shell, directory, provider.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::bundle::Entry;
use crate::plan::node_permission::{self, NodePermissionError};
use crate::plan::run_form::{ProgramLookup, ResolvedRun};
use crate::plan::run_place;
use crate::plan::view::BUNDLE;
use crate::run::chosen::Chosen;
use crate::run::error::RunError;
use crate::run::node::NodeVersions;
use crate::run::program;
use crate::run::subject::BundleFiles;
use crate::spec::host_policy::HostPolicy;
use crate::spec::manifest::Manifest;
use crate::spec::path::escape;
use crate::spec::request::Request;
use crate::spec::run_form::Run;
use crate::spec::sandbox_block::Provider;

/// The run with the shell that `sandbox.config` names, and with the bundle's file named so that
/// it is found from the working directory.
pub(super) fn placed(
    manifest: &Manifest,
    run: &Run,
    resolved: ResolvedRun,
    directory: &[u8],
) -> ResolvedRun {
    let shell = manifest
        .sandbox
        .as_ref()
        .and_then(|block| block.local.shell);
    let resolved = match shell {
        Some(shell) => run_place::with_shell(resolved, shell),
        None => resolved,
    };
    run_place::started_in(resolved, run, directory)
}

/// `sandbox.config.cwd` is a directory of the bundle, or a mount makes it one.
///
/// # Errors
/// [`RunError::Argument`] where it would not be there.
pub(super) fn check_directory(
    manifest: &Manifest,
    bundle: &dyn BundleFiles,
) -> Result<(), RunError> {
    let block = manifest.sandbox.as_ref();
    let Some(directory) = block.and_then(|block| block.local.cwd.as_ref()) else {
        return Ok(());
    };
    let inside = format!("{BUNDLE}/{directory}");
    let mounted = manifest.mounts.iter().any(|mount| {
        inside
            .strip_prefix(mount.target.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let problem = match bundle.tree().get(directory) {
        _ if mounted => return Ok(()),
        // The kernel says where a link leads.
        Some(Entry::Directory | Entry::Symlink { .. }) => return Ok(()),
        Some(Entry::File { .. }) => "is a file of the bundle",
        None => "is not in the bundle",
    };
    Err(RunError::Argument {
        code: "cwd_missing",
        what: "sandbox.config.cwd",
        object: escape(directory.as_bytes()),
        problem: format!("{problem}, expected a directory"),
        hint: Some("name a directory of the bundle, or leave `cwd` out".to_owned()),
    })
}

impl Chosen {
    /// Under `node-permission`: the Node that will run, with its permission flags for what the
    /// view gives. To be called when the view is complete but for the program itself, which the
    /// body has no business to read.
    ///
    /// # Errors
    /// [`RunError::NodePermission`].
    pub(super) fn restrict_node(
        &mut self,
        request: &Request,
        policy: &HostPolicy,
        versions: &NodeVersions,
    ) -> Result<(), RunError> {
        let provider = self.manifest.sandbox.as_ref().map(|block| block.provider);
        let (Some(Provider::NodePermission), Some(form)) = (provider, self.form) else {
            return Ok(());
        };
        if self.image.is_some() {
            return Err(RunError::Argument {
                code: "provider_unavailable",
                what: "sandbox.provider:",
                object: "`node-permission`".to_owned(),
                problem: "sets the options that the host's Node knows, and an image has its own"
                    .to_owned(),
                hint: Some("use the provider `local`: the image is a sandbox".to_owned()),
            });
        }
        let name = OsStr::new("node");
        let path = program::locate(name, &request.caller, &policy.interpreters)
            .ok_or(NodePermissionError::NoNode)?;
        // Not what the bundle brings under the name `node`: this very file is executed.
        let path = path.canonicalize().unwrap_or(path);
        let shown = escape(path.as_os_str().as_bytes());
        if program::is_script(&path) {
            return Err(NodePermissionError::Script { path: shown }.into());
        }
        let version = versions
            .of(&path)
            .map_err(|problem| NodePermissionError::NoVersion {
                path: shown.clone(),
                problem,
            })?;
        let resolved = ResolvedRun {
            form,
            argv: std::mem::take(&mut self.argv),
            lookup: ProgramLookup::Path,
            interpreter: self.interpreter,
            warnings: Vec::new(),
        };
        let resolved = node_permission::restrict(resolved, &shown, version, &self.view)?;
        self.argv = resolved.argv;
        self.interpreter = resolved.interpreter;
        self.program = Some(path.as_os_str().as_bytes().to_vec());
        Ok(())
    }
}
