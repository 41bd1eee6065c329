//! Resolves a run: from request, manifest and bundle to an argument vector.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::plan::grants::{Granted, Origin, ungranted};
use crate::run::command::of_command;
use crate::run::error::RunError;
use crate::run::image::{self, Access, OpenedImage, SelectedImage};
use crate::run::loaded_manifest::{self, BundleFiles, LoadedManifest, View};
use crate::run::node::NodeVersions;
use crate::run::preparation::{self, Provided};
use crate::run::program;
use crate::run::refusals::Refusals;
use crate::run::{interpreters, line_ends, needs, provider};
use egress::address::is_public;
use egress::allowlist::{self, EgressPlan};
use spec::detection::{self, Interpreter, ResolvedForm};
use spec::host_policy::HostPolicy;
use spec::inventory::Inventory;
use spec::manifest::{Manifest, STRICT_REFUSES};
use spec::path::escape;
use spec::report::{RunForm, RunnerReport, WarningReport};
use spec::request::{BundleArgument, EnvironmentEntry, Grants, Request, Subject, ViewEntry};
use spec::syscall_policy::SyscallPolicyName;

/// A run that is resolved from request, manifest, bundle and host.
#[derive(Debug)]
pub struct ResolvedRun {
    /// The manifest; the default one for `runner run`.
    pub manifest: Manifest,
    /// The interpreter of the bundle's file, if it needs one.
    pub interpreter: Option<Interpreter>,
    /// Engine, image and needs; `None` for `runner run`.
    pub runner: Option<RunnerReport>,
    /// The image that becomes the root; `None` to use the host's programs.
    pub image: Option<SelectedImage>,
    /// Packages installed over the image.
    pub provided: Provided,
    /// The run form; `None` for `runner run`.
    pub form: Option<RunForm>,
    pub argv: Vec<Vec<u8>>,
    /// The working directory inside.
    pub working_directory: Vec<u8>,
    /// Mounts besides the base view.
    pub view: Vec<ViewEntry>,
    /// Directories to add to the PATH inside.
    pub program_directories: Vec<Vec<u8>>,
    /// Path of the program, if the first argument is a path.
    pub program: Option<Vec<u8>>,
    /// Paths that were mounted for the program.
    pub bound: Vec<String>,
    pub environment: Vec<EnvironmentEntry>,
    /// The hosts that the body may reach.
    pub egress: EgressPlan,
    /// Grants of flags and host policy together.
    pub grants: Grants,
    /// Where the manifest comes from.
    pub origin: Origin,
    /// Secret inventories that were not read with the manifest.
    pub inventories: Vec<Inventory>,
    pub syscalls: SyscallPolicyName,
    pub warnings: Vec<WarningReport>,
}

/// Refuses what this version does not support, before anything is created.
///
/// # Errors
/// [`RunError::Unsupported`].
pub(crate) fn refuse_unsupported(request: &Request) -> Result<(), RunError> {
    if request.streams.interactive && request.subject == Subject::Bundle(BundleArgument::Stdin) {
        return Err(RunError::Argument {
            code: "stdin_taken",
            what: "standard input",
            object: String::new(),
            problem: "is the bundle, and -i passes it to the body".to_owned(),
            hint: Some("give the bundle as a file, or leave -i off".to_owned()),
        });
    }
    Ok(())
}

/// The manifest of the run: the caller's, else the bundle's.
///
/// # Errors
/// [`RunError::NoManifest`], [`RunError::Manifest`].
pub(crate) fn manifest_of(
    request: &Request,
    policy: &HostPolicy,
    of_caller: Option<LoadedManifest>,
    bundle: &dyn BundleFiles,
) -> Result<LoadedManifest, RunError> {
    match of_caller {
        Some(subject) => Ok(subject),
        None => loaded_manifest::of_bundle(bundle, request.bundle.run.is_some(), &policy.refs),
    }
}

/// Resolves a command, or a bundle whose files can be read.
///
/// # Errors
/// [`RunError`], unless `refusals` collects it.
pub(super) fn choose(
    request: &Request,
    policy: &HostPolicy,
    bundle: Option<&dyn BundleFiles>,
    of_caller: Option<LoadedManifest>,
    access: Access<'_>,
    refusals: &mut Refusals,
) -> Result<ResolvedRun, RunError> {
    match (&request.subject, bundle) {
        (Subject::Command(argv), _) => of_command(request, policy, argv, access, refusals),
        (Subject::Bundle(_), Some(bundle)) => {
            let manifest = manifest_of(request, policy, of_caller, bundle)?;
            of_bundle(request, policy, manifest, access, bundle, refusals)
        }
        (Subject::Bundle(_), None) => Err(RunError::host("find the bundle")(Errno::NOENT)),
    }
}

/// Refuses unsupported and ungranted requests of a manifest.
///
/// # Errors
/// [`RunError`], unless `refusals` collects it.
fn permit(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    origin: Origin,
    refusals: &mut Refusals,
) -> Result<(), RunError> {
    refusals.check(manifest.check_executable().map_err(RunError::from))?;
    refusals.check(check_strict(request, manifest))?;
    let grants = granted(request, policy);
    refusals.check(check_grants(request, manifest, origin, grants))?;
    refusals.check(check_egress_grant(policy, manifest))?;
    refusals.check(check_sources_grant(policy, manifest))?;
    Ok(())
}

fn check_strict(request: &Request, manifest: &Manifest) -> Result<(), RunError> {
    let refused = manifest
        .warnings
        .iter()
        .find(|warning| STRICT_REFUSES.contains(&warning.code.as_str()));
    match refused {
        Some(warning) if request.strict => Err(RunError::Argument {
            code: "strict_refuses",
            what: "manifest",
            object: String::new(),
            problem: warning.message.clone(),
            hint: Some("mend it, or leave --strict off".to_owned()),
        }),
        _ => Ok(()),
    }
}

/// The caller's own manifest grants what it requests, within the host policy.
fn check_egress_grant(policy: &HostPolicy, manifest: &Manifest) -> Result<(), RunError> {
    match manifest.egress.first() {
        Some(first) if policy.deny_grants.egress => Err(RunError::Argument {
            code: "grant_forbidden",
            what: "the manifest's egress to",
            object: first.rule.to_string(),
            problem: format!(
                "({}) is denied by the host policy (deny_grants)",
                first.source
            ),
            hint: Some("ask the administrator of this host".to_owned()),
        }),
        _ => Ok(()),
    }
}

/// The same for workspace sources.
fn check_sources_grant(policy: &HostPolicy, manifest: &Manifest) -> Result<(), RunError> {
    match manifest.workspace_sources.first() {
        Some(first) if policy.deny_grants.sources => Err(RunError::Argument {
            code: "grant_forbidden",
            what: "the manifest's workspace source",
            object: escape(first.id.as_bytes()),
            problem: format!(
                "({}) is denied by the host policy (deny_grants)",
                first.source
            ),
            hint: Some("ask the administrator of this host".to_owned()),
        }),
        _ => Ok(()),
    }
}

/// Resolves the egress list, with a warning for each entry without effect.
///
/// # Errors
/// The error of such an entry under `--strict`, unless `refusals` collects it.
pub(super) fn resolve_egress(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    warnings: &mut Vec<WarningReport>,
    refusals: &mut Refusals,
) -> Result<EgressPlan, RunError> {
    let mut plan = allowlist::settle(&manifest.egress, &request.network.allow, &policy.egress);
    plan.refuse_ech |= request.strict;
    let added = &request.network.added_hosts;
    let of_flag = plan.vain_hosts(added, &policy.egress, &is_public);
    let vain = plan.vain(&manifest.egress, &policy.egress, &is_public);
    for warning in vain.into_iter().chain(of_flag) {
        if request.strict {
            refusals.refuse(RunError::Argument {
                code: "strict_refuses",
                what: "the egress list",
                object: "has entries without effect:".to_owned(),
                problem: warning.message.clone(),
                hint: Some("take it out, or leave --strict off".to_owned()),
            })?;
        }
        warnings.push(warning);
    }
    Ok(plan)
}

/// The stricter of the caller's and the host policy's setting.
pub fn syscalls(request: &Request, policy: &HostPolicy) -> SyscallPolicyName {
    request.syscalls.unwrap_or_default().max(policy.syscalls)
}

/// The union of the grants of flags and host policy.
pub fn granted(request: &Request, policy: &HostPolicy) -> Grants {
    spec::host_policy::union(request.grants, policy.grants)
}

fn resolve_run(
    request: &Request,
    manifest: &Manifest,
    bundle: &dyn BundleFiles,
    versions: &NodeVersions,
    egress: &EgressPlan,
    image: Option<&SelectedImage>,
) -> Result<ResolvedForm, RunError> {
    let run = loaded_manifest::run_value(&request.bundle, manifest)?;
    let files = View(bundle.tree());
    let Some(run) = run else {
        return Err(detection::missing(&files).into());
    };
    let registry = egress.npm_registry(&request.environment);
    let found = match image {
        None => interpreters::find(&request.caller, &run, versions, registry),
        Some(image) => image.interpreters(&run, registry)?,
    };
    let arguments = &request.bundle.arguments;
    let mut resolved_form = detection::resolve(&run, &files, &found, arguments)?;
    let program = resolved_form.argv.first();
    let warning = program.and_then(|program| line_ends::of_bundle(bundle, program));
    resolved_form.warnings.extend(warning);
    let directory = working_directory_of_bundle(request, manifest);
    Ok(provider::placed(manifest, &run, resolved_form, &directory))
}

/// The environment that the program runs in.
#[derive(Default)]
struct Runtime {
    /// Engine, image and needs; `None` if the image is missing.
    runner: Option<RunnerReport>,
    image: Option<SelectedImage>,
    /// Packages installed for the needs.
    provided: Provided,
}

/// Opens the image and installs missing needs.
fn resolve_runtime(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    access: Access<'_>,
    bundle: &dyn BundleFiles,
    refusals: &mut Refusals,
) -> Result<Runtime, RunError> {
    let had = needs::picked(request, policy, manifest).and_then(|picked| {
        let wanted = image::wanted(request, picked.as_ref(), policy)?;
        let image = wanted.map(|wanted| image::open(wanted, access, request, policy));
        Ok((picked, image.transpose()?))
    });
    let Some((picked, mut image)) = refusals.check(had)? else {
        return Ok(Runtime::default());
    };
    let report = |image: Option<&SelectedImage>| {
        needs::runner_report(request, policy, manifest, bundle, picked.as_ref(), image)
    };
    let mut runner = report(image.as_ref())?;
    let mut provided = Provided::default();
    if let Some(image) = &mut image {
        provided = preparation::provide(
            request,
            policy,
            image,
            access,
            bundle,
            &mut runner,
            refusals,
        )?;
    }
    if !provided.rows.is_empty() {
        // An installed package may be a runtime.
        let now = report(image.as_ref())?.needs_unsatisfied;
        runner.needs_unsatisfied.retain(|need| now.contains(need));
    }
    refusals.check(needs::check_needs(&runner))?;
    Ok(Runtime {
        runner: Some(runner),
        image,
        provided,
    })
}

/// Resolves a bundle by its manifest.
///
/// # Errors
/// [`RunError`], unless `refusals` collects it: a missing grant, or the run form.
fn of_bundle(
    request: &Request,
    policy: &HostPolicy,
    subject: LoadedManifest,
    access: Access<'_>,
    bundle: &dyn BundleFiles,
    refusals: &mut Refusals,
) -> Result<ResolvedRun, RunError> {
    let LoadedManifest {
        mut manifest,
        origin,
        inventories,
        mut warnings,
        ..
    } = subject;
    let view = provider::give_storage(request, &mut manifest);
    permit(request, policy, &manifest, origin, refusals)?;
    let Runtime {
        runner,
        image,
        provided,
    } = resolve_runtime(request, policy, &manifest, access, bundle, refusals)?;
    refusals.check(provider::check_directory(request, &manifest, bundle))?;
    let versions = NodeVersions::default();
    let egress = resolve_egress(request, policy, &manifest, &mut warnings, refusals)?;
    let resolved_form = resolve_run(
        request,
        &manifest,
        bundle,
        &versions,
        &egress,
        image.as_ref(),
    );
    let resolved_form = refusals.check(resolved_form)?;
    warnings.extend(manifest.warnings.iter().cloned());
    warnings.extend(
        resolved_form
            .iter()
            .flat_map(|run| run.warnings.iter().cloned()),
    );
    warnings.extend(runner.as_ref().and_then(needs::warning));
    warnings.extend(image.iter().flat_map(SelectedImage::warnings));
    warnings.extend(provided.warnings.iter().cloned());
    let mut resolved = ResolvedRun {
        runner,
        image,
        program_directories: provided.program_directories(),
        environment: provided.environment(),
        provided,
        working_directory: working_directory_of_bundle(request, &manifest),
        form: resolved_form.as_ref().map(|run| run.form),
        interpreter: resolved_form.as_ref().and_then(|run| run.interpreter),
        argv: resolved_form.map(|run| run.argv).unwrap_or_default(),
        view,
        program: None,
        bound: Vec::new(),
        egress,
        grants: granted(request, policy),
        origin,
        inventories,
        syscalls: syscalls(request, policy),
        warnings,
        manifest,
    };
    refusals.check(resolved.add_workspace_mounts(request, origin))?;
    resolved.name_variables(request);
    refusals.check(resolved.restrict_node(request, policy, &versions))?;
    let workspace = request.bundle.workspace.as_deref();
    refusals.check(resolved.find_program(request, workspace, policy))?;
    Ok(resolved)
}

impl ResolvedRun {
    /// The image of the root, if it is in the store.
    #[must_use]
    pub(crate) fn opened_image(&self) -> Option<&OpenedImage> {
        self.image.as_ref()?.opened.as_ref()
    }

    /// Mounts programs of the host; never into an image.
    pub(super) fn find_program(
        &mut self,
        request: &Request,
        workspace: Option<&Path>,
        policy: &HostPolicy,
    ) -> Result<(), RunError> {
        let (Some(name), None) = (self.argv.first(), &self.image) else {
            return Ok(());
        };
        let found = program::find(
            name,
            &request.caller,
            workspace,
            &policy.interpreters,
            &|path| shows(&self.view, path),
        )?;
        if let Some(bind) = found.bind {
            let ViewEntry::Bind { source, .. } = &bind else {
                return Ok(());
            };
            if !shows(&self.view, source) {
                self.bound.push(escape(&bytes_of(source)));
                self.view.push(bind);
            }
        }
        self.program_directories.extend(found.directory);
        Ok(())
    }

    fn add_workspace_mounts(&mut self, request: &Request, origin: Origin) -> Result<(), RunError> {
        // Paths of the caller's own manifest are relative to the caller's directory.
        let here = match origin {
            Origin::Caller => request.caller.working_directory.as_ref(),
            Origin::Bundle => None,
        };
        for mount in &self.manifest.mounts {
            let Some(workspace) = request.bundle.workspace.as_ref().or(here) else {
                return Err(RunError::Argument {
                    code: "workspace_missing",
                    what: "mount at",
                    object: mount.target.as_str().to_owned(),
                    problem: "shows the workspace, and none was given".to_owned(),
                    hint: Some("add --workspace DIR".to_owned()),
                });
            };
            self.view.push(ViewEntry::Bind {
                source: workspace.clone(),
                target: PathBuf::from(mount.target.as_str()),
                writable: mount.writable,
            });
        }
        Ok(())
    }

    /// Adds the granted variables of the caller and `-e`. Secrets are added last: see
    /// [`crate::run::secret_values`].
    pub(super) fn name_variables(&mut self, request: &Request) {
        for name in &self.manifest.env_passthrough {
            let wanted = name.as_bytes();
            let value = request
                .caller
                .environment
                .iter()
                .find(|(known, _)| known == wanted);
            match value {
                Some(entry) => self.environment.push(entry.clone()),
                // The caller gave a value.
                None if request.environment.iter().any(|(known, _)| known == wanted) => (),
                None => self.warnings.push(WarningReport::new(
                    "variable_unset",
                    format!("{name} is to be passed on, and is not set here"),
                )),
            }
        }
        self.environment.extend(request.environment.iter().cloned());
    }
}

fn check_grants(
    request: &Request,
    manifest: &Manifest,
    origin: Origin,
    grants: Grants,
) -> Result<(), RunError> {
    let named = request.environment.iter().map(|(name, _)| name);
    let secrets = request.secrets.iter().map(|secret| &secret.variable);
    let granted = Granted {
        grants,
        hosts: &request.network.allow,
        variables: named.chain(secrets).map(Vec::as_slice).collect(),
        workspace: request.bundle.workspace.is_some(),
        output_directory: request.bundle.output_directory.is_some(),
    };
    let missing = ungranted(manifest, origin, &granted);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(RunError::Ungranted(missing))
    }
}

fn working_directory_of_bundle(request: &Request, manifest: &Manifest) -> Vec<u8> {
    if let Some(directory) = &request.workdir {
        return bytes_of(directory);
    }
    provider::directory(manifest)
}

/// Whether the view shows this host path at the same place.
pub(super) fn shows(view: &[ViewEntry], path: &Path) -> bool {
    view.iter().any(|entry| match entry {
        ViewEntry::Bind { source, target, .. } => source == target && path.starts_with(target),
        ViewEntry::Tmpfs { .. } => false,
    })
}

/// Whether a mount of the caller covers `path` inside: the host's file of that path is hidden.
pub(super) fn covers(view: &[ViewEntry], path: &Path) -> bool {
    view.iter()
        .any(|entry| matches!(entry, ViewEntry::Bind { target, .. } if path.starts_with(target)))
}

pub(super) fn bytes_of(path: &Path) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}
