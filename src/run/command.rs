//! Resolves `runner run`: the command and the part of the host that it sees.

use std::path::Path;

use crate::plan::grants::Origin;
use crate::run::error::RunError;
use crate::run::image::{self, Access, OpenedImage, SelectedImage};
use crate::run::preparation::Provided;
use crate::run::program::{self, is_visible_anyway};
use crate::run::refusals::Refusals;
use crate::run::resolved::{ResolvedRun, bytes_of, covers, resolve_egress, shows, syscalls};
use crate::run::shebang::head_of;
use crate::run::{callers_program, invisible_arguments, line_ends};
use sandbox::view::HOME;
use spec::host_policy::HostPolicy;
use spec::manifest::Manifest;
use spec::path::escape;
use spec::request::{Request, ViewEntry};

/// Resolves the command of `runner run`.
///
/// # Errors
/// [`RunError::Argument`] for a script on the caller's PATH, unless `refusals` collects it.
pub(super) fn of_command(
    request: &Request,
    policy: &HostPolicy,
    argv: &[Vec<u8>],
    access: Access<'_>,
    refusals: &mut Refusals,
) -> Result<ResolvedRun, RunError> {
    let manifest = Manifest::default();
    let mut warnings = Vec::new();
    let image = match image::wanted(request, None, policy)? {
        Some(wanted) => Some(image::open(wanted, access, request, policy)?),
        None => None,
    };
    warnings.extend(image.iter().flat_map(SelectedImage::warnings));
    let egress = resolve_egress(request, policy, &manifest, &mut warnings, refusals)?;
    let mut resolved = ResolvedRun {
        manifest,
        runner: None,
        image,
        provided: Provided::default(),
        form: None,
        interpreter: None,
        argv: argv.to_vec(),
        working_directory: Vec::new(),
        view: request.view.clone(),
        program_directories: Vec::new(),
        program: None,
        bound: Vec::new(),
        environment: Vec::new(),
        egress,
        grants: request.grants,
        origin: Origin::Caller,
        inventories: Vec::new(),
        syscalls: syscalls(request, policy),
        warnings,
    };
    resolved.name_variables(request);
    let name = argv.first().map_or(&b""[..], Vec::as_slice);
    let here = request.caller.working_directory.as_deref();
    if let Some(image) = &resolved.image {
        // Paths are those of the image; no host file is mounted for them.
        let stated = request.workdir.as_deref().map(bytes_of);
        let of_image = image
            .opened
            .as_ref()
            .and_then(OpenedImage::working_directory);
        resolved.working_directory = stated.or(of_image).unwrap_or_else(|| HOME.into());
        resolved.warn_of_invisible_arguments(request);
        return Ok(resolved);
    }
    // A relative program is looked up in the working directory inside, not in the host's.
    let start = request.workdir.as_deref().or(here);
    if let Some(path) = program::of_path(name, start) {
        resolved.program = Some(bytes_of(&path));
        let head = path.is_file().then(|| head_of(&path, false)).flatten();
        let warning = head.and_then(|head| line_ends::warning(&head, name));
        resolved.warnings.extend(warning);
        if !is_visible_anyway(&path) && !covers(&resolved.view, &path) && path.exists() {
            resolved.bound.push(escape(&bytes_of(&path)));
            resolved.view.push(ViewEntry::Bind {
                source: path.clone(),
                target: path,
                writable: false,
            });
        }
    } else {
        refusals.check(resolved.find_of_caller(request, policy))?;
    }
    resolved.working_directory = match (&request.workdir, here) {
        (Some(directory), _) => bytes_of(directory),
        (None, Some(here))
            if is_visible_anyway(here)
                || shows(&resolved.view, here)
                || invisible_arguments::lends_part_of(here, &request.view) =>
        {
            bytes_of(here)
        }
        _ => HOME.into(),
    };
    resolved.warn_of_invisible_arguments(request);
    Ok(resolved)
}

impl ResolvedRun {
    /// Mounts the program that the caller's shell would start.
    fn find_of_caller(&mut self, request: &Request, policy: &HostPolicy) -> Result<(), RunError> {
        // A PATH that the caller sets for the command is used as it is.
        if request.environment.iter().any(|(name, _)| name == b"PATH") {
            return Ok(());
        }
        let shown = |path: &Path| shows(&self.view, path);
        let found =
            callers_program::find(&self.argv, &request.caller, &policy.interpreters, &shown)?;
        let Some(found) = found else {
            return Ok(());
        };
        for source in found.needs {
            if !shows(&self.view, &source) {
                self.bound.push(escape(&bytes_of(&source)));
                self.view.push(ViewEntry::Bind {
                    target: source.clone(),
                    source,
                    writable: false,
                });
            }
        }
        self.program = Some(bytes_of(&found.program));
        self.program_directories.extend(found.directory);
        Ok(())
    }

    fn warn_of_invisible_arguments(&mut self, request: &Request) {
        let here = match request.workdir {
            Some(_) => None,
            None => request.caller.working_directory.as_deref(),
        };
        let caller = invisible_arguments::Caller {
            here,
            is_image: self.image.is_some(),
            home: request.caller.home.as_deref(),
            is_seen: &|path| covers(&self.view, path),
        };
        let warning = invisible_arguments::warning(&self.argv, &caller);
        self.warnings.extend(warning);
    }
}
