//! Resolves `runner run` and `runner sandbox create`: the command and the part of the host that it sees.

use std::path::{Path, PathBuf};

use crate::plan::grants::Origin;
use crate::run::error::RunError;
use crate::run::image::finding::Access;
use crate::run::image::{self, OpenedImage, SelectedImage};
use crate::run::inputs::loaded_manifest::LoadedManifest;
use crate::run::planning::programs::heads::Head;
use crate::run::planning::programs::line_ends::StartedProgram;
use crate::run::planning::programs::lookup::{self, is_executable, is_in_base_view};
use crate::run::planning::programs::{callers_program, invisible_arguments};
use crate::run::planning::resolved::{
    ResolvedRun, check_permissions, granted, is_covered, is_mounted_in_place, path_bytes, syscalls,
};
use crate::run::planning::{hosts, provider};
use crate::run::preparation::PreparedPackages;
use crate::run::refusals::Refusals;
use sandbox::view::{HOME, check_target};
use spec::host_policy::HostPolicy;
use spec::path::escape;
use spec::request::{Request, ViewEntry};

/// Resolves the command of `runner run`, or, with an empty `argv`, a sandbox whose commands come later.
/// `of_caller`: the manifest of `--manifest`.
///
/// # Errors
/// [`RunError`], unless `refusals` collects it: what the manifest asks for is not supported or denied; a
/// script on the caller's PATH.
pub(super) fn resolve_command(
    request: &Request,
    policy: &HostPolicy,
    argv: &[Vec<u8>],
    of_caller: Option<LoadedManifest>,
    access: Access<'_>,
    refusals: &mut Refusals,
) -> Result<ResolvedRun, RunError> {
    let (mut manifest, inventories, mut warnings) = match of_caller {
        Some(loaded) => (loaded.manifest, loaded.inventories, loaded.warnings),
        None => Default::default(),
    };
    let view = provider::provide_storage(request, &mut manifest);
    check_permissions(request, policy, &manifest, Origin::Caller, refusals)?;
    refusals.check(provider::check_directory(request, &manifest, None))?;
    warnings.extend(manifest.warnings.iter().cloned());
    let image = match image::requested(request, None, policy)? {
        Some(requested) => Some(image::open(requested, access, request, policy)?),
        None => None,
    };
    warnings.extend(image.iter().flat_map(SelectedImage::warnings));
    let egress = hosts::resolve(request, policy, &manifest, &mut warnings, refusals)?;
    let shell = provider::shell(&manifest);
    let mut resolved = ResolvedRun {
        manifest,
        runner: None,
        image,
        packages: PreparedPackages::default(),
        form: None,
        interpreter: None,
        argv: shell.map_or_else(|| argv.to_vec(), |shell| shell.words(argv)),
        working_directory: Vec::new(),
        view,
        program_directories: Vec::new(),
        program: None,
        started: None,
        bound: Vec::new(),
        environment: Vec::new(),
        egress,
        grants: granted(request, policy),
        origin: Origin::Caller,
        inventories,
        syscalls: syscalls(request, policy),
        warnings,
    };
    refusals.check(resolved.add_workspace_mounts(request, Origin::Caller))?;
    resolved.add_variables(request);
    let stated = refusals
        .check(resolved.stated_directory(request))?
        .flatten();
    let caller_directory = request.caller.working_directory.as_deref();
    if let Some(image) = &resolved.image {
        // Paths refer to the image; no host file is mounted for them.
        let directory = stated.as_deref().map(path_bytes);
        let of_image = image
            .opened
            .as_ref()
            .and_then(OpenedImage::working_directory);
        resolved.working_directory = directory.or(of_image).unwrap_or_else(|| HOME.into());
        resolved.warn_of_invisible_arguments(request, stated.is_some());
        return Ok(resolved);
    }
    if let Some(name) = resolved.argv.first().cloned() {
        // A relative path starts at the working directory inside, not at the host's.
        let start = stated.as_deref().or(caller_directory);
        match lookup::path_of_command(&name, start) {
            Some(path) => resolved.mount_program(&name, path),
            None => {
                refusals.check(resolved.mount_callers_program(request, policy))?;
            }
        }
    }
    resolved.working_directory = match (&stated, caller_directory) {
        (Some(directory), _) => path_bytes(directory),
        (None, Some(directory))
            if is_in_base_view(directory)
                || is_mounted_in_place(&resolved.view, directory)
                || invisible_arguments::mounts_part_of(directory, &request.view) =>
        {
            path_bytes(directory)
        }
        _ => HOME.into(),
    };
    resolved.warn_of_invisible_arguments(request, stated.is_some());
    Ok(resolved)
}

impl ResolvedRun {
    /// The working directory of `-w`, else of the manifest's block.
    fn stated_directory(&self, request: &Request) -> Result<Option<PathBuf>, RunError> {
        if request.workdir.is_some() {
            return Ok(request.workdir.clone());
        }
        let is_visible = |path: &Path| {
            self.image.is_none() && is_in_base_view(path) || is_mounted_in_place(&self.view, path)
        };
        provider::directory_of_command(request, &self.manifest, &is_visible)
    }

    /// Mounts the program that the command names by its path.
    fn mount_program(&mut self, name: &[u8], path: PathBuf) {
        self.program = Some(path_bytes(&path));
        let is_covered = is_covered(&self.view, &path);
        let is_visible = !is_covered || is_mounted_in_place(&self.view, &path);
        let is_read = is_visible && path.is_file();
        let head = is_read.then(|| Head::read(&path, false)).flatten();
        self.started = head.map(|head| StartedProgram::new(name, head));
        // What is not executable at such a path is refused as a program, not as a mount.
        let can_be_mounted = check_target(&path_bytes(&path)).is_ok() || is_executable(&path);
        if !is_in_base_view(&path) && !is_covered && path.exists() && can_be_mounted {
            self.bound.push(escape(&path_bytes(&path)));
            self.view.push(ViewEntry::Bind {
                source: path.clone(),
                target: path,
                writable: false,
            });
        }
    }

    /// Mounts the program that the caller's shell would start.
    fn mount_callers_program(
        &mut self,
        request: &Request,
        policy: &HostPolicy,
    ) -> Result<(), RunError> {
        // A PATH that the caller sets for the command is used as it is.
        if self.environment.iter().any(|(name, _)| name == b"PATH") {
            return Ok(());
        }
        let is_mounted = |path: &Path| is_mounted_in_place(&self.view, path);
        let found = callers_program::find(
            &self.argv,
            &request.caller,
            &policy.interpreters,
            &is_mounted,
        )?;
        let Some(found) = found else {
            return Ok(());
        };
        for source in found.needs {
            if !is_mounted_in_place(&self.view, &source) {
                self.bound.push(escape(&path_bytes(&source)));
                self.view.push(ViewEntry::Bind {
                    target: source.clone(),
                    source,
                    writable: false,
                });
            }
        }
        self.program = Some(path_bytes(&found.program));
        self.program_directories.extend(found.directory);
        Ok(())
    }

    /// `is_elsewhere`: the command starts in another directory than the caller's.
    fn warn_of_invisible_arguments(&mut self, request: &Request, is_elsewhere: bool) {
        let directory = match is_elsewhere {
            true => None,
            false => request.caller.working_directory.as_deref(),
        };
        let caller = invisible_arguments::Caller {
            directory,
            is_image: self.image.is_some(),
            is_home: directory.is_some_and(|path| lookup::is_home(path, &request.caller)),
            is_visible: &|path| is_covered(&self.view, path),
        };
        let warning = invisible_arguments::warning(&self.argv, &caller);
        self.warnings.extend(warning);
    }
}
