//! Gives the body its secrets, from the caller or the provider, and records each.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::plan::grants::Origin;
use crate::run::error::RunError;
use crate::run::inputs::block_documents::inventory_of_workspace;
use crate::run::inputs::find_workspace;
use crate::run::inputs::loaded_manifest::read_file;
use crate::run::launching::secret_decisions::{
    denied_by_host, describe_consumer, failed, granted, slug_of,
};
use crate::run::planning::resolved::ResolvedRun;
use bundler::manifests;
use secrets::mask::{Masks, VALUE_BYTES_MIN};
use secrets::{Context, ExpectedSecret, describe_reference, resolve};
use spec::history::SecretDecision;
use spec::host_policy::HostPolicy;
use spec::inventory::{Consumer, Inventories, Inventory};
use spec::manifest::SecretRequest;
use spec::path::{escape, escape_path};
use spec::report::{SecretReport, WarningReport};
use spec::request::Request;
use spec::secret::{Secret, overwrite};

/// The secrets of a run before any value is requested.
pub(in crate::run) struct RequestedSecrets<'run> {
    request: &'run Request,
    /// Requests that the provider answers, and literals.
    from_provider: Vec<SecretRequest>,
    /// Variables that the manifest declares secret and the caller sets with `-e`.
    from_flag: Vec<(SecretRequest, &'run [u8])>,
    inventories: Inventories,
    consumer: Consumer,
    /// The host policy denies secrets to manifests, and this one asks for some.
    is_denied: bool,
}

/// Records decisions. Returns why it cannot; an error ends the run.
pub(in crate::run) type RecordDecisions<'run> =
    &'run dyn Fn(&[SecretDecision]) -> Result<Option<WarningReport>, RunError>;

/// What the body got.
#[derive(Default)]
pub(in crate::run) struct Revealed {
    pub(in crate::run) secrets: Vec<SecretReport>,
    decisions: Vec<SecretDecision>,
    pub(in crate::run) warnings: Vec<WarningReport>,
}

impl RequestedSecrets<'_> {
    pub(in crate::run) fn warnings(&self) -> Vec<WarningReport> {
        let warnings = self.inventories.iter().flat_map(|found| &found.warnings);
        warnings.cloned().collect()
    }

    /// The providers of the secrets that the caller does not give. Checks them like [`Self::reveal`],
    /// but asks none.
    ///
    /// # Errors
    /// [`RunError::Secret`]: not granted, or without a provider.
    pub(in crate::run) fn check(
        &self,
        policy: &HostPolicy,
    ) -> Result<Vec<ExpectedSecret>, RunError> {
        self.check_denied()?;
        let (requests, known) = (&self.from_provider, &self.inventories);
        Ok(secrets::check(
            requests,
            &policy.secrets,
            known,
            &self.consumer,
        )?)
    }

    /// Closes the memory of this process, if there are secrets, to all that must not find their values:
    /// it writes no core dump, and no other process of its uid can read it.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of prctl(2).
    pub(in crate::run) fn close_memory(&self) -> Result<(), RunError> {
        let of_flags = !self.request.secrets.is_empty() || !self.from_flag.is_empty();
        if !of_flags && !self.needs_provider() {
            return Ok(());
        }
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(RunError::host("become non-dumpable"))
    }

    /// Gives the body its secrets. Call it after [`Self::close_memory`], directly before the launch, so
    /// that a run that is refused for another reason reveals nothing.
    ///
    /// `signals` is the descriptor of the signals that cancel a run. `record` gets each decision, also
    /// that which refuses the run; its error ends the run before the body has a value.
    ///
    /// # Errors
    /// [`RunError::Secret`]: not granted, or without a value; then nothing is launched. Those of `record`.
    pub(in crate::run) fn reveal(
        &self,
        policy: &HostPolicy,
        resolved: &mut ResolvedRun,
        signals: BorrowedFd<'_>,
        masks: &mut Masks,
        record: RecordDecisions<'_>,
    ) -> Result<Revealed, RunError> {
        let request = self.request;
        let consumer = &describe_consumer(request, &self.consumer);
        if let Err(error) = self.check_denied() {
            record(&denied_by_host(&self.from_provider, consumer))?;
            return Err(error);
        }
        let context = Context {
            environment: &request.caller.environment,
            signals: Some(signals),
        };
        let (requests, known) = (&self.from_provider, &self.inventories);
        let secrets = match resolve(requests, &policy.secrets, known, &self.consumer, context) {
            Ok(secrets) => secrets,
            Err(error) => {
                if let Some(decision) = failed(&error, consumer) {
                    record(&[decision])?;
                }
                return Err(error.into());
            }
        };
        let mut revealed = Revealed::default();
        for (secret, value) in &self.from_flag {
            let report = SecretReport {
                variable: secret.variable.clone(),
                reference: describe_reference(&secret.reference),
                provider: "caller".to_owned(),
                granted_by: "-e".to_owned(),
            };
            let slug = slug_of(&secret.reference);
            revealed.add(report, slug, consumer, value, masks);
        }
        for secret in &request.secrets {
            let report = SecretReport {
                variable: escape(&secret.variable),
                reference: secret.reference.clone(),
                provider: "caller".to_owned(),
                granted_by: "--secret".to_owned(),
            };
            revealed.add(report, None, consumer, secret.value.bytes(), masks);
            add_variable(resolved, &secret.variable, &secret.value);
        }
        let granted_by = granted_by(request, resolved.origin);
        for secret in secrets {
            if let Some(source) = secret.source {
                let granted_by = match source.permission {
                    Some(permission) => format!("{granted_by}, {permission}"),
                    None => granted_by.to_owned(),
                };
                let report = SecretReport {
                    variable: secret.variable.clone(),
                    reference: source.reference,
                    provider: source.provider.to_owned(),
                    granted_by,
                };
                let slug = Some(source.slug);
                revealed.add(report, slug, consumer, secret.value.bytes(), masks);
            }
            add_variable(resolved, secret.variable.as_bytes(), &secret.value);
        }
        revealed.warnings.extend(record(&revealed.decisions)?);
        Ok(revealed)
    }
}

impl Revealed {
    /// Masks `value` in all captured output, and adds the report of its secret.
    fn add(
        &mut self,
        report: SecretReport,
        slug: Option<String>,
        consumer: &str,
        value: &[u8],
        masks: &mut Masks,
    ) {
        if !masks.add(value) && !value.is_empty() {
            let message = format!(
                "the value of {} has fewer than {VALUE_BYTES_MIN} bytes: it is not masked in the \
                 body's output",
                report.variable
            );
            self.warnings
                .push(WarningReport::new("secret_not_masked", message));
        }
        self.decisions.push(granted(&report, slug, consumer));
        self.secrets.push(report);
    }
}

impl ResolvedRun {
    /// Adds the names of all secrets that the body would get, without values.
    pub(in crate::run) fn add_secret_names(&mut self, request: &Request) {
        let of_flags = request.secrets.iter();
        let mut names: Vec<Vec<u8>> = of_flags.map(|secret| secret.variable.clone()).collect();
        for secret in &self.manifest.secrets {
            let name = secret.variable.as_bytes();
            if self.environment.iter().all(|(known, _)| known != name) {
                names.push(name.to_vec());
            }
        }
        let nameless = names.into_iter().map(|name| (name, Vec::new()));
        self.environment.extend(nameless);
    }
}

pub(in crate::run) fn overwrite_values(resolved: &mut ResolvedRun, environment: &mut [Vec<u8>]) {
    for (_, value) in &mut resolved.environment {
        overwrite(value);
    }
    environment.iter_mut().for_each(overwrite);
}

impl<'run> RequestedSecrets<'run> {
    pub(in crate::run) fn collect(
        request: &'run Request,
        policy: &'run HostPolicy,
        resolved: &ResolvedRun,
    ) -> Result<Self, RunError> {
        let manifest = &resolved.manifest;
        let mut requested = Self {
            request,
            from_provider: Vec::new(),
            from_flag: Vec::new(),
            inventories: Inventories::default(),
            consumer: manifest.consumer(),
            is_denied: false,
        };
        for secret in &manifest.secrets {
            requested.classify(secret);
        }
        if !requested.needs_provider() {
            return Ok(requested);
        }
        requested.is_denied = policy.deny_grants.secrets;
        if !requested.is_denied {
            requested.inventories = known_inventories(request, policy, resolved)?;
        }
        Ok(requested)
    }

    fn check_denied(&self) -> Result<(), RunError> {
        if !self.is_denied {
            return Ok(());
        }
        Err(RunError::Argument {
            code: "grant_forbidden",
            what: "the manifest's",
            object: "secrets".to_owned(),
            problem: "are denied by the host policy (deny_grants)".to_owned(),
            hint: Some("ask the administrator of this host".to_owned()),
        })
    }

    /// The caller's value takes precedence over the provider's.
    fn classify(&mut self, secret: &SecretRequest) {
        let name = secret.variable.as_bytes();
        let mut of_flags = self.request.secrets.iter();
        if of_flags.any(|secret| secret.variable == name) {
            return;
        }
        let mut variables = self.request.environment.iter();
        match variables.rfind(|(variable, _)| variable == name) {
            None => self.from_provider.push(secret.clone()),
            Some((_, value)) if secret.reference.is_secret() => {
                self.from_flag.push((secret.clone(), value));
            }
            Some(_) => (),
        }
    }

    fn needs_provider(&self) -> bool {
        let mut requested = self.from_provider.iter();
        requested.any(|secret| secret.reference.is_secret())
    }
}

fn add_variable(resolved: &mut ResolvedRun, variable: &[u8], value: &Secret) {
    let entry = (variable.to_vec(), value.bytes().to_vec());
    resolved.environment.push(entry);
}

/// What grants the body the secrets of its manifest.
fn granted_by(request: &Request, origin: Origin) -> &'static str {
    match origin {
        Origin::Caller => "--manifest",
        Origin::Bundle if request.grants.secrets => "--grant secrets",
        Origin::Bundle => "host policy",
    }
}

/// The host's inventory decides; without it, the workspace's with those of the caller's manifest. The
/// bundle's decide only if there is no other.
fn known_inventories(
    request: &Request,
    policy: &HostPolicy,
    resolved: &ResolvedRun,
) -> Result<Inventories, RunError> {
    let of_manifest = resolved
        .inventories
        .iter()
        .chain(&resolved.manifest.inventories);
    let mut of_manifest: Vec<Inventory> = of_manifest.cloned().collect();
    let of_workspace = find_workspace(request)
        .as_deref()
        .and_then(inventory_of_workspace);
    let mut levels = Vec::new();
    if let Some(path) = &policy.secrets.inventory {
        // A missing inventory cannot withhold what the host's inventory grants.
        of_manifest.retain(|inventory| !inventory.entries.is_empty());
        levels.push(vec![read_inventory(path)?]);
    }
    match resolved.origin {
        Origin::Caller => {
            of_manifest.extend(of_workspace);
            levels.push(of_manifest);
        }
        Origin::Bundle => levels.extend([of_workspace.into_iter().collect(), of_manifest]),
    }
    levels.retain(|level| !level.is_empty());
    let mut levels = levels.into_iter();
    Ok(Inventories {
        deciding: levels.next().unwrap_or_default(),
        others: levels.flatten().collect(),
    })
}

fn read_inventory(path: &Path) -> Result<Inventory, RunError> {
    let shown = escape_path(path);
    let text = read_file(path, &shown, "inventory_unreadable", "inventory")?;
    Ok(manifests::parse_inventory(
        &text,
        path.as_os_str().as_bytes(),
        &shown,
    )?)
}
