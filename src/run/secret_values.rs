//! Secrets of a run: given by the caller or the provider, with a record of each.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::plan::grants::Origin;
use crate::run::block_documents::inventory_of_workspace;
use crate::run::error::RunError;
use crate::run::inputs::workspace_of;
use crate::run::loaded_manifest::{format_of, read_file};
use crate::run::resolved::ResolvedRun;
use secrets::mask::{Masks, VALUE_BYTES_MIN};
use secrets::{Context, ExpectedSecret, describe_reference, resolve};
use spec::host_policy::HostPolicy;
use spec::inventory::{self, Consumer, Inventories, Inventory};
use spec::manifest::SecretRequest;
use spec::path::escape;
use spec::report::{SecretReport, WarningReport};
use spec::request::Request;
use spec::secret::{Secret, overwrite};

/// The secrets of a run before any value is requested.
pub(super) struct WantedSecrets<'run> {
    request: &'run Request,
    /// Secrets of the provider, and literals.
    of_provider: Vec<SecretRequest>,
    /// Variables that the manifest declares secret and the caller gave with `-e`.
    given_openly: Vec<(SecretRequest, &'run [u8])>,
    inventories: Inventories,
    who: Consumer,
}

/// The secrets that the body gets.
pub(super) struct Revealed {
    pub(super) secrets: Vec<SecretReport>,
    pub(super) warnings: Vec<WarningReport>,
}

impl WantedSecrets<'_> {
    /// Errors of the inventories.
    pub(super) fn warnings(&self) -> Vec<WarningReport> {
        let warnings = self.inventories.iter().flat_map(|known| &known.warnings);
        warnings.cloned().collect()
    }

    /// Gives the body its secrets. Called directly before the launch, so that nothing is revealed
    /// for a run that is refused for another reason.
    ///
    /// `signals` is the descriptor of the signals that cancel a run.
    ///
    /// # Errors
    /// [`RunError::Secret`]: not granted, or without a value; then nothing is launched.
    pub(super) fn reveal(
        &self,
        policy: &HostPolicy,
        resolved: &mut ResolvedRun,
        signals: BorrowedFd<'_>,
        masks: &mut Masks,
    ) -> Result<Revealed, RunError> {
        let request = self.request;
        if self.needs_provider() || !request.secrets.is_empty() {
            // From here on this process writes no core dump and other processes of its uid cannot
            // read it.
            set_dumpable_behavior(DumpableBehavior::NotDumpable)
                .map_err(RunError::host("become non-dumpable"))?;
        }
        let context = Context {
            environment: &request.caller.environment,
            signals: Some(signals),
        };
        let (wanted, known) = (&self.of_provider, &self.inventories);
        let secrets = resolve(wanted, &policy.secrets, known, &self.who, context)?;
        let mut records = Records {
            masks,
            revealed: Revealed {
                secrets: Vec::new(),
                warnings: Vec::new(),
            },
        };
        for (secret, value) in &self.given_openly {
            let name = secret.variable.clone();
            records.note(
                name,
                describe_reference(&secret.reference),
                "caller",
                "-e",
                value,
            );
        }
        for given in &request.secrets {
            let name = escape(&given.variable);
            let value = given.value.bytes();
            records.note(name, given.reference.clone(), "caller", "--secret", value);
            name_variable(resolved, &given.variable, &given.value);
        }
        let word = granted_by(request, resolved.origin);
        for secret in secrets {
            if let Some(source) = secret.source {
                let word = match source.permission {
                    Some(permission) => format!("{word}, {permission}"),
                    None => word.to_owned(),
                };
                let name = secret.variable.clone();
                let value = secret.value.bytes();
                records.note(name, source.reference, source.provider, &word, value);
            }
            name_variable(resolved, secret.variable.as_bytes(), &secret.value);
        }
        Ok(records.revealed)
    }
}

/// The providers of the secrets that the caller does not give: checked like
/// [`WantedSecrets::reveal`], without asking any.
///
/// # Errors
/// [`RunError::Secret`]: not granted, or without a provider.
pub(super) fn expect(
    request: &Request,
    policy: &HostPolicy,
    resolved: &ResolvedRun,
) -> Result<Vec<ExpectedSecret>, RunError> {
    let asked = WantedSecrets::of(request, policy, resolved)?;
    let WantedSecrets {
        of_provider,
        inventories,
        who,
        ..
    } = &asked;
    let expected = secrets::check(of_provider, &policy.secrets, inventories, who)?;
    Ok(expected)
}

impl ResolvedRun {
    /// Names of all secrets that the body would get.
    pub(super) fn name_secrets(&mut self, request: &Request) {
        let given = request.secrets.iter().map(|given| given.variable.clone());
        let mut names: Vec<Vec<u8>> = given.collect();
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

/// Overwrites every value of the body's environment in this process.
pub(super) fn forget(resolved: &mut ResolvedRun, environment: &mut [Vec<u8>]) {
    for (_, value) in &mut resolved.environment {
        overwrite(value);
    }
    environment.iter_mut().for_each(overwrite);
}

impl<'run> WantedSecrets<'run> {
    pub(super) fn of(
        request: &'run Request,
        policy: &'run HostPolicy,
        resolved: &ResolvedRun,
    ) -> Result<Self, RunError> {
        let manifest = &resolved.manifest;
        let mut asked = Self {
            request,
            of_provider: Vec::new(),
            given_openly: Vec::new(),
            inventories: Inventories::default(),
            who: manifest.consumer(),
        };
        for secret in &manifest.secrets {
            asked.sort(secret);
        }
        if !asked.needs_provider() {
            return Ok(asked);
        }
        if policy.deny_grants.secrets {
            return Err(RunError::Argument {
                code: "grant_forbidden",
                what: "the manifest's",
                object: "secrets".to_owned(),
                problem: "are denied by the host policy (deny_grants)".to_owned(),
                hint: Some("ask the administrator of this host".to_owned()),
            });
        }
        asked.inventories = known_inventories(request, policy, resolved)?;
        Ok(asked)
    }

    /// Values of the caller take precedence.
    fn sort(&mut self, secret: &SecretRequest) {
        let wanted = secret.variable.as_bytes();
        let given = self.request.secrets.iter();
        if given.into_iter().any(|given| given.variable == wanted) {
            return;
        }
        let mut open = self.request.environment.iter();
        match open.rfind(|(name, _)| name == wanted) {
            None => self.of_provider.push(secret.clone()),
            Some((_, value)) if secret.reference.is_secret() => {
                self.given_openly.push((secret.clone(), value));
            }
            Some(_) => (),
        }
    }

    fn needs_provider(&self) -> bool {
        let mut asked = self.of_provider.iter();
        asked.any(|secret| secret.reference.is_secret())
    }
}

/// Collects the values to mask, and the records without values.
struct Records<'run> {
    masks: &'run mut Masks,
    revealed: Revealed,
}

impl Records<'_> {
    fn note(
        &mut self,
        variable: String,
        reference: String,
        provider: &str,
        granted_by: &str,
        value: &[u8],
    ) {
        if !self.masks.add(value) && !value.is_empty() {
            let message = format!(
                "the value of {variable} has fewer than {VALUE_BYTES_MIN} bytes: it is not masked \
                 in what the body prints"
            );
            self.revealed
                .warnings
                .push(WarningReport::new("secret_not_masked", message));
        }
        self.revealed.secrets.push(SecretReport {
            variable,
            reference,
            provider: provider.to_owned(),
            granted_by: granted_by.to_owned(),
        });
    }
}

fn name_variable(resolved: &mut ResolvedRun, variable: &[u8], value: &Secret) {
    let entry = (variable.to_vec(), value.bytes().to_vec());
    resolved.environment.push(entry);
}

/// Who grants the body the secrets of its manifest.
fn granted_by(request: &Request, origin: Origin) -> &'static str {
    match origin {
        Origin::Caller => "--manifest",
        Origin::Bundle if request.grants.secrets => "--grant secrets",
        Origin::Bundle => "host policy",
    }
}

/// The host's inventory decides, else that of the workspace with those of the caller's manifest;
/// the bundle's only if there is no other.
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
    let of_workspace = workspace_of(request)
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
    let shown = escape(path.as_os_str().as_bytes());
    let text = read_file(path, &shown, "inventory_unreadable", "inventory")?;
    Ok(inventory::parse(&text, format_of(path), &shown)?)
}
