//! Applies the manifest's `sandbox` block: shell, working directory, provider.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::plan::node_permission::{self, NodePermissionError};
use crate::plan::resolved_form as form;
use crate::run::error::RunError;
use crate::run::inputs::find_workspace;
use crate::run::planning::programs::lookup;
use crate::run::planning::programs::node_version::NodeVersions;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::unpacking::bundle_files::BundleFiles;
use archive::Entry;
use sandbox::view::BUNDLE;
use spec::detection::{ProgramLookup, ResolvedForm};
use spec::host_policy::HostPolicy;
use spec::manifest::{Manifest, Problem};
use spec::path::{escape, escape_path};
use spec::request::{Request, ViewEntry};
use spec::run_form::Run;
use spec::sandbox_block::{LocalConfig, Provider, Shell};

/// The run with the shell of `sandbox.config` and with the bundle's file named relative to the
/// working directory.
pub(super) fn placed(
    manifest: &Manifest,
    run: &Run,
    resolved_form: ResolvedForm,
    directory: &[u8],
) -> ResolvedForm {
    let resolved_form = match shell(manifest) {
        Some(shell) => form::with_shell(resolved_form, shell),
        None => resolved_form,
    };
    form::with_directory(resolved_form, run, directory)
}

fn local(manifest: &Manifest) -> Option<&LocalConfig> {
    let block = manifest.sandbox.as_ref()?;
    (block.provider == Provider::Local).then_some(&block.local)
}

/// The shell of the block, for commands that are text; `None` without a block.
pub(in crate::run) fn shell(manifest: &Manifest) -> Option<Shell> {
    local(manifest).map(|config| config.shell.unwrap_or_default())
}

/// The working directory of `sandbox.config`: the workspace mount nearest to `/`, else the bundle;
/// `cwd` is relative to it.
pub(super) fn directory(manifest: &Manifest) -> Vec<u8> {
    let config = local(manifest);
    let mount = config.and_then(|_| manifest.mounts.first());
    let base = mount.map_or(BUNDLE, |mount| mount.target.as_str());
    match config.and_then(|config| config.cwd.as_ref()) {
        Some(below) => [base.as_bytes(), b"/", below.as_bytes()].concat(),
        None => base.into(),
    }
}

/// As [`directory`], for a command; `None` if the block names no directory. Without a mount of the
/// workspace `cwd` is below the workspace, which must be visible at its own path: `is_visible`.
///
/// # Errors
/// [`RunError::Argument`]: it is not visible.
pub(super) fn directory_of_command(
    request: &Request,
    manifest: &Manifest,
    is_visible: &dyn Fn(&Path) -> bool,
) -> Result<Option<PathBuf>, RunError> {
    let Some(config) = local(manifest) else {
        return Ok(None);
    };
    if !manifest.mounts.is_empty() {
        return Ok(Some(OsString::from_vec(directory(manifest)).into()));
    }
    let Some(below) = &config.cwd else {
        return Ok(None);
    };
    let workspace = find_workspace(request);
    let path = workspace.map(|root| root.join(OsStr::from_bytes(below.as_bytes())));
    match path.filter(|path| is_visible(path)) {
        Some(path) => Ok(Some(path)),
        None => Err(RunError::Argument {
            code: "cwd_missing",
            what: "sandbox.config.cwd",
            object: escape(below.as_bytes()),
            problem: "is in the workspace, which the command does not see".to_owned(),
            hint: Some(
                "add `mounts: [{source: workspace, at: /workspace}]` to the block, or --rw . (or \
                 --ro .)"
                    .to_owned(),
            ),
        }),
    }
}

/// Checks that `sandbox.config.cwd` is a directory of the workspace or of the bundle; a command has no
/// bundle.
///
/// # Errors
/// [`RunError::Argument`] if it would be missing.
pub(super) fn check_directory(
    request: &Request,
    manifest: &Manifest,
    bundle: Option<&dyn BundleFiles>,
) -> Result<(), RunError> {
    let Some(directory) = local(manifest).and_then(|config| config.cwd.as_ref()) else {
        return Ok(());
    };
    let (problem, root) = if let Some(bundle) = bundle.filter(|_| manifest.mounts.is_empty()) {
        let problem = match bundle.tree().get(directory) {
            // The kernel resolves links.
            Some(Entry::Directory | Entry::Symlink { .. }) => return Ok(()),
            Some(Entry::File { .. }) => "is a file of the bundle",
            None => "is not in the bundle",
        };
        (problem, "bundle")
    } else {
        // Without a workspace the mount is refused elsewhere.
        let path =
            find_workspace(request).map(|root| root.join(OsStr::from_bytes(directory.as_bytes())));
        let problem = match path.map(|path| path.metadata()) {
            None => return Ok(()),
            Some(Ok(found)) if found.is_dir() => return Ok(()),
            Some(Ok(_)) => "is a file of the workspace",
            Some(Err(_)) => "is not in the workspace",
        };
        (problem, "workspace")
    };
    Err(RunError::Argument {
        code: "cwd_missing",
        what: "sandbox.config.cwd",
        object: escape(directory.as_bytes()),
        problem: format!("{problem}, expected a directory"),
        hint: Some(format!("name a directory of the {root}, or omit `cwd`")),
    })
}

/// The caller's view. A caller's mount at the path of a manifest's storage provides that storage; it
/// is writable only if the manifest asks for that.
pub(super) fn provide_storage(request: &Request, manifest: &mut Manifest) -> Vec<ViewEntry> {
    let mut view = request.view.clone();
    manifest.refusals.retain(|refusal| {
        let Problem::StorageUnsupported { at, mode } = refusal.problem.as_ref() else {
            return true;
        };
        let mut is_given = false;
        for entry in &mut view {
            if let ViewEntry::Bind {
                target, writable, ..
            } = entry
                && *target == Path::new(at)
            {
                *writable &= mode.is_writable();
                is_given = true;
            }
        }
        !is_given
    });
    view
}

impl ResolvedRun {
    /// For `node-permission`: adds Node's permission flags for the view. Call it when the view is
    /// complete except for the program itself, which the body must not read.
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
                problem: "sets options of the host's Node, but the image has its own Node"
                    .to_owned(),
                hint: Some("use the provider `local`: the image is a sandbox".to_owned()),
            });
        }
        let name = OsStr::new("node");
        let path = lookup::locate(name, &request.caller, &policy.interpreters)
            .ok_or(NodePermissionError::NoNode)?;
        // Executes this file and not a `node` in the bundle.
        let path = path.canonicalize().unwrap_or(path);
        let shown = escape_path(&path);
        if lookup::is_script(&path) {
            return Err(NodePermissionError::Script { path: shown }.into());
        }
        let version = versions
            .get(&path)
            .map_err(|problem| NodePermissionError::NoVersion {
                path: shown.clone(),
                problem,
            })?;
        let resolved_form = ResolvedForm {
            form,
            argv: std::mem::take(&mut self.argv),
            lookup: ProgramLookup::Path,
            interpreter: self.interpreter,
            warnings: Vec::new(),
        };
        let resolved_form = node_permission::restrict(resolved_form, &shown, version, &self.view)?;
        self.argv = resolved_form.argv;
        self.interpreter = resolved_form.interpreter;
        self.program = Some(path.as_os_str().as_bytes().to_vec());
        Ok(())
    }
}
