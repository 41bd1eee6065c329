//! Resolves a run: from request, manifest and bundle to an argument vector.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::plan::grants::{Granted, Origin, ungranted};
use crate::run::error::RunError;
use crate::run::image::finding::Access;
use crate::run::image::{self, OpenedImage, SelectedImage};
use crate::run::inputs::loaded_manifest::{self, LoadedManifest};
use crate::run::planning::command::resolve_command;
use crate::run::planning::programs::interpreters;
use crate::run::planning::programs::line_ends::StartedProgram;
use crate::run::planning::programs::node_version::NodeVersions;
use crate::run::planning::{hosts, needs, provider};
use crate::run::preparation::{self, PreparedPackages};
use crate::run::refusals::Refusals;
use crate::run::unpacking::bundle_files::BundleFiles;
use bundler::runnable::View;
use egress::allowlist::EgressPlan;
use spec::detection::{self, Interpreter, ResolvedForm};
use spec::host_policy::HostPolicy;
use spec::inventory::Inventory;
use spec::manifest::{Manifest, STRICT_REFUSES};
use spec::path::escape;
use spec::report::{RunnerReport, WarningReport};
use spec::request::{BundleArgument, EnvironmentEntry, Grants, Request, Subject, ViewEntry};
use spec::run_form::RunForm;
use spec::syscall_policy::SyscallPolicyName;
use sys::allocator::keep_from_children;

/// A run that is resolved from request, manifest, bundle and host.
#[derive(Debug)]
pub(in crate::run) struct ResolvedRun {
    /// The manifest; the default one for a command without `--manifest`.
    pub(in crate::run) manifest: Manifest,
    /// The interpreter of the bundle's file, if it needs one.
    pub(in crate::run) interpreter: Option<Interpreter>,
    /// Engine, image and needs; `None` for `runner run`.
    pub(in crate::run) runner: Option<RunnerReport>,
    /// The image that becomes the root; `None` to use the host's programs.
    pub(in crate::run) image: Option<SelectedImage>,
    pub(in crate::run) packages: PreparedPackages,
    /// The run form; `None` for `runner run`.
    pub(in crate::run) form: Option<RunForm>,
    pub(in crate::run) argv: Vec<Vec<u8>>,
    pub(in crate::run) working_directory: Vec<u8>,
    /// Mounts besides the base view.
    pub(in crate::run) view: Vec<ViewEntry>,
    /// Directories to add to the PATH inside.
    pub(in crate::run) program_directories: Vec<Vec<u8>>,
    /// Path of the program, if the first argument is a path.
    pub(in crate::run) program: Option<Vec<u8>>,
    /// The program of the bundle, or that which the caller named by its path.
    pub(in crate::run) started: Option<StartedProgram>,
    /// Paths that were mounted for the program.
    pub(in crate::run) bound: Vec<String>,
    pub(in crate::run) environment: Vec<EnvironmentEntry>,
    pub(in crate::run) egress: EgressPlan,
    /// Grants of flags and host policy together.
    pub(in crate::run) grants: Grants,
    pub(in crate::run) origin: Origin,
    /// Secret inventories that were not read with the manifest.
    pub(in crate::run) inventories: Vec<Inventory>,
    pub(in crate::run) syscalls: SyscallPolicyName,
    pub(in crate::run) warnings: Vec<WarningReport>,
}

pub(in crate::run) fn check_stdin(request: &Request) -> Result<(), RunError> {
    if request.streams.interactive && request.subject == Subject::Bundle(BundleArgument::Stdin) {
        return Err(RunError::Argument {
            code: "stdin_taken",
            what: "the",
            object: "standard input".to_owned(),
            problem: "is the bundle, and -i passes it to the body".to_owned(),
            hint: Some("pass the bundle as a file, or omit -i".to_owned()),
        });
    }
    Ok(())
}

/// The manifest of the run: the caller's, else the bundle's.
pub(in crate::run) fn load_manifest(
    request: &Request,
    policy: &HostPolicy,
    of_caller: Option<LoadedManifest>,
    bundle: &dyn BundleFiles,
) -> Result<LoadedManifest, RunError> {
    match of_caller {
        Some(manifest) => Ok(manifest),
        None => {
            let has_run = request.bundle.run.is_some();
            let directory = match &request.subject {
                Subject::Bundle(BundleArgument::Path(path)) if path.is_dir() => {
                    Some(path.as_path())
                }
                Subject::Bundle(_) | Subject::Command(_) | Subject::Sandbox => None,
            };
            loaded_manifest::load_from_bundle(bundle, directory, has_run, &policy.refs)
        }
    }
}

/// Resolves a command, or a bundle whose files can be read.
///
/// # Errors
/// [`RunError`], unless `refusals` collects it.
pub(in crate::run) fn resolve(
    request: &Request,
    policy: &HostPolicy,
    bundle: Option<&dyn BundleFiles>,
    of_caller: Option<LoadedManifest>,
    access: Access<'_>,
    refusals: &mut Refusals,
) -> Result<ResolvedRun, RunError> {
    match (&request.subject, bundle) {
        (Subject::Command(argv), _) => {
            resolve_command(request, policy, argv, of_caller, access, refusals)
        }
        (Subject::Sandbox, _) => resolve_command(request, policy, &[], of_caller, access, refusals),
        (Subject::Bundle(_), Some(bundle)) => {
            let manifest = load_manifest(request, policy, of_caller, bundle)?;
            resolve_bundle(request, policy, manifest, access, bundle, refusals)
        }
        (Subject::Bundle(_), None) => Err(RunError::host("find the bundle")(Errno::NOENT)),
    }
}

/// Refuses what the manifest requests and this version does not support or nobody granted.
///
/// # Errors
/// [`RunError`], unless `refusals` collects it.
pub(super) fn check_permissions(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    origin: Origin,
    refusals: &mut Refusals,
) -> Result<(), RunError> {
    refusals.check(manifest.check_executable().map_err(RunError::from))?;
    refusals.check(check_strict(request, manifest))?;
    let grants = granted(request, policy);
    refusals.check(check_grants(request, policy, manifest, origin, grants))?;
    refusals.check(hosts::check_grant(policy, manifest))?;
    refusals.check(check_sources_grant(policy, manifest))?;
    refusals.check(check_denied(policy, manifest))?;
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
            what: "--strict",
            object: "refuses the manifest:".to_owned(),
            problem: warning.message.clone(),
            hint: Some("fix the manifest, or omit --strict".to_owned()),
        }),
        _ => Ok(()),
    }
}

/// The caller's own manifest grants its requests itself, but the host policy may deny them.
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

/// As [`check_sources_grant`]: mounts of the workspace, variables of the caller, and what restricts who
/// may run this.
fn check_denied(policy: &HostPolicy, manifest: &Manifest) -> Result<(), RunError> {
    let denied = policy.deny_grants;
    let mount = manifest.mounts.first().filter(|_| denied.mounts);
    let variable = manifest.env_passthrough.first().filter(|_| denied.env);
    let restriction = manifest.restrictions.first().filter(|_| denied.policy);
    let (what, object, source) = match (mount, variable, restriction) {
        (Some(mount), _, _) => {
            let target = escape(mount.target.as_str().as_bytes());
            (
                "the manifest's mount of the workspace at",
                target,
                mount.source.as_str(),
            )
        }
        (_, Some(name), _) => (
            "the manifest's variable",
            escape(name.as_bytes()),
            "sandbox.env.passthrough",
        ),
        (_, _, Some(restriction)) => (
            "the manifest's restriction",
            restriction.value.clone().unwrap_or_default(),
            restriction.source,
        ),
        (None, None, None) => return Ok(()),
    };
    Err(RunError::Argument {
        code: "grant_forbidden",
        what,
        object,
        problem: format!("({source}) is denied by the host policy (deny_grants)"),
        hint: Some("ask the administrator of this host".to_owned()),
    })
}

/// The stricter of the caller's and the host policy's setting.
pub(super) fn syscalls(request: &Request, policy: &HostPolicy) -> SyscallPolicyName {
    request.syscalls.unwrap_or_default().max(policy.syscalls)
}

/// The union of the grants of flags and host policy.
pub(super) fn granted(request: &Request, policy: &HostPolicy) -> Grants {
    spec::host_policy::union(request.grants, policy.grants)
}

fn resolve_run(
    request: &Request,
    policy: &HostPolicy,
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
        None => interpreters::find(request, policy, &run, versions, registry),
        Some(image) => image.interpreters(&run, registry)?,
    };
    let arguments = &request.bundle.arguments;
    let resolved_form = detection::resolve(&run, &files, &found, arguments)?;
    let directory = working_directory_of_bundle(request, manifest);
    Ok(provider::placed(manifest, &run, resolved_form, &directory))
}

#[derive(Default)]
struct Runtime {
    /// Engine, image and needs; `None` if the image is missing.
    runner: Option<RunnerReport>,
    image: Option<SelectedImage>,
    packages: PreparedPackages,
}

fn resolve_runtime(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    access: Access<'_>,
    bundle: &dyn BundleFiles,
    refusals: &mut Refusals,
) -> Result<Runtime, RunError> {
    let opened = needs::select_template(request, policy, manifest).and_then(|picked| {
        let requested = image::requested(request, picked.as_ref(), policy)?;
        let image = requested.map(|requested| image::open(requested, access, request, policy));
        Ok((picked, image.transpose()?))
    });
    let Some((picked, mut image)) = refusals.check(opened)? else {
        return Ok(Runtime::default());
    };
    let report = |image: Option<&SelectedImage>| {
        needs::runner_report(request, policy, manifest, bundle, picked.as_ref(), image)
    };
    let mut runner = report(image.as_ref())?;
    let mut packages = PreparedPackages::default();
    if let Some(image) = &mut image {
        packages = preparation::prepare_packages(
            request,
            policy,
            image,
            access,
            bundle,
            &mut runner,
            refusals,
        )?;
    }
    if !packages.rows.is_empty() {
        // An installed package may be a runtime.
        let now = report(image.as_ref())?.needs_unsatisfied;
        runner.needs_unsatisfied.retain(|need| now.contains(need));
    }
    refusals.check(needs::check_needs(&runner, image.as_ref()))?;
    Ok(Runtime {
        runner: Some(runner),
        image,
        packages,
    })
}

/// Resolves a bundle by its manifest.
///
/// # Errors
/// [`RunError`], unless `refusals` collects it: a missing grant, or the run form.
fn resolve_bundle(
    request: &Request,
    policy: &HostPolicy,
    loaded: LoadedManifest,
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
    } = loaded;
    let view = provider::provide_storage(request, &mut manifest);
    check_permissions(request, policy, &manifest, origin, refusals)?;
    let Runtime {
        runner,
        image,
        packages,
    } = resolve_runtime(request, policy, &manifest, access, bundle, refusals)?;
    refusals.check(provider::check_directory(request, &manifest, Some(bundle)))?;
    let versions = NodeVersions::default();
    let egress = hosts::resolve(request, policy, &manifest, &mut warnings, refusals)?;
    let resolved_form = resolve_run(
        request,
        policy,
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
    warnings.extend(runner.as_ref().and_then(needs::warn_of_unmet));
    warnings.extend(image.iter().flat_map(SelectedImage::warnings));
    warnings.extend(packages.warnings.iter().cloned());
    let program = resolved_form.as_ref().and_then(|run| run.argv.first());
    let started = program.and_then(|program| StartedProgram::of_bundle(bundle, program));
    let mut resolved = ResolvedRun {
        runner,
        image,
        program_directories: packages.program_directories(),
        environment: packages.environment(),
        packages,
        working_directory: working_directory_of_bundle(request, &manifest),
        form: resolved_form.as_ref().map(|run| run.form),
        interpreter: resolved_form.as_ref().and_then(|run| run.interpreter),
        argv: resolved_form.map(|run| run.argv).unwrap_or_default(),
        view,
        program: None,
        started,
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
    resolved.add_variables(request);
    refusals.check(resolved.restrict_node(request, policy, &versions))?;
    refusals.check(resolved.find_program(request, policy, bundle))?;
    Ok(resolved)
}

impl ResolvedRun {
    /// The image of the root, if it is in the store.
    #[must_use]
    pub(in crate::run) fn opened_image(&self) -> Option<&OpenedImage> {
        self.image.as_ref()?.opened.as_ref()
    }

    pub(super) fn add_workspace_mounts(
        &mut self,
        request: &Request,
        origin: Origin,
    ) -> Result<(), RunError> {
        // Paths of the caller's own manifest are relative to the caller's directory.
        let caller_directory = match origin {
            Origin::Caller => request.caller.working_directory.as_ref(),
            Origin::Bundle => None,
        };
        for mount in &self.manifest.mounts {
            let Some(workspace) = request.bundle.workspace.as_ref().or(caller_directory) else {
                return Err(RunError::Argument {
                    code: "workspace_missing",
                    what: "mount at",
                    object: mount.target.as_str().to_owned(),
                    problem: "needs a workspace, and none is given".to_owned(),
                    hint: Some("add --workspace DIR".to_owned()),
                });
            };
            self.view.push(ViewEntry::Bind {
                source: workspace.clone(),
                target: PathBuf::from(mount.target.as_str()),
                writable: mount.mode.is_writable(),
            });
        }
        Ok(())
    }

    /// Adds the granted variables of the caller, and `-e`. Secrets are added last, by
    /// [`RequestedSecrets::reveal`](crate::run::launching::secret_values::RequestedSecrets::reveal).
    pub(super) fn add_variables(&mut self, request: &Request) {
        for name in &self.manifest.env_passthrough {
            let variable = name.as_bytes();
            let is_named = |entry: &&EnvironmentEntry| entry.0 == variable;
            if let Some(entry) = request.caller.environment.iter().find(is_named) {
                self.environment.push(keep_from_children(|| entry.clone()));
            } else if !request.environment.iter().any(|entry| is_named(&entry)) {
                self.warnings.push(WarningReport::new(
                    "variable_unset",
                    format!("`sandbox.env.passthrough` names {name}, which is not set here"),
                ));
            }
        }
        let set = keep_from_children(|| request.environment.clone());
        self.environment.extend(set);
    }
}

fn check_grants(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    origin: Origin,
    grants: Grants,
) -> Result<(), RunError> {
    let variables = request.environment.iter().map(|(name, _)| name);
    let secrets = request.secrets.iter().map(|secret| &secret.variable);
    let mut hosts = request.network.allow.clone();
    hosts.extend(hosts::asked_while_learning(
        request.network.learning,
        manifest,
    ));
    let granted = Granted {
        grants,
        hosts: &hosts,
        has_secrets_provider: policy.secrets.provider.is_some(),
        variables: variables.chain(secrets).map(Vec::as_slice).collect(),
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
        return path_bytes(directory);
    }
    provider::directory(manifest)
}

/// Whether a mount of the view has this host path at the same path inside.
pub(super) fn is_mounted_in_place(view: &[ViewEntry], path: &Path) -> bool {
    view.iter().any(|entry| match entry {
        ViewEntry::Bind { source, target, .. } => source == target && path.starts_with(target),
        ViewEntry::Tmpfs { .. } => false,
    })
}

/// Whether a mount covers `path` inside, which hides the host's file of that path.
pub(super) fn is_covered(view: &[ViewEntry], path: &Path) -> bool {
    view.iter()
        .any(|entry| matches!(entry, ViewEntry::Bind { target, .. } if path.starts_with(target)))
}

pub(super) fn path_bytes(path: &Path) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}
