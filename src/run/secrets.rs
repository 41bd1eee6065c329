//! Secrets of one run: what the caller gave, what the provider knows, and the record of each.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::kernel::privileges;
use crate::plan::grants::Origin;
use crate::run::chosen::Chosen;
use crate::run::error::RunError;
use crate::run::subject::{format_of, read_file};
use crate::secrets::mask::{Masks, VALUE_BYTES_MIN};
use crate::secrets::{self, Around, Expected, resolve, shown};
use crate::spec::host_policy::HostPolicy;
use crate::spec::inventory::{self, Consumer, Inventory};
use crate::spec::manifest::{Manifest, SecretRequest};
use crate::spec::path::escape;
use crate::spec::report::{Report, SecretReport, WarningReport};
use crate::spec::request::Request;
use crate::spec::secret::overwrite;

/// Gives the body its secrets: the last thing before the launch, so that nothing is revealed for
/// a run that is refused for something else.
///
/// `signals` is the descriptor of the signals that cancel a run.
///
/// # Errors
/// [`RunError::Secret`]: not granted, or without a value here; then nothing is launched.
pub(super) fn reveal(
    request: &Request,
    policy: &HostPolicy,
    chosen: &mut Chosen,
    signals: BorrowedFd<'_>,
    masks: &mut Masks,
    report: &mut Report,
) -> Result<(), RunError> {
    let mut asked = Vec::new();
    let mut values = Values {
        chosen,
        masks,
        report,
    };
    for secret in &values.chosen.manifest.secrets.clone() {
        if is_given(request, secret) {
            continue;
        }
        match of_environment(request, secret) {
            Some(value) => values.note_given(secret, value),
            None => asked.push(secret.clone()),
        }
    }
    let needs_provider = asked.iter().any(|secret| secret.reference.is_secret());
    if needs_provider || !request.secrets.is_empty() {
        // From here on no core of this process is dumped, and nobody of its uid looks into it.
        privileges::not_dumpable().map_err(RunError::host("become non-dumpable"))?;
    }
    for given in &request.secrets {
        let name = escape(&given.variable);
        let reference = given.reference.clone();
        values.note(
            name,
            reference,
            "caller",
            "--secret".to_owned(),
            given.value.bytes(),
        );
        let entry = (given.variable.clone(), given.value.bytes().to_vec());
        values.chosen.environment.push(entry);
    }
    check_denied(policy, needs_provider)?;
    values.resolve(request, policy, &asked, needs_provider, signals)
}

/// Who would be asked for the secrets that the caller does not give: judged as [`reveal`] judges,
/// and nobody is asked.
///
/// # Errors
/// [`RunError::Secret`]: not granted, or nobody here to ask.
pub(super) fn expect(
    request: &Request,
    policy: &HostPolicy,
    chosen: &mut Chosen,
) -> Result<Vec<Expected>, RunError> {
    let asked: Vec<SecretRequest> = chosen
        .manifest
        .secrets
        .iter()
        .filter(|secret| !is_given(request, secret) && of_environment(request, secret).is_none())
        .cloned()
        .collect();
    let needs_provider = asked.iter().any(|secret| secret.reference.is_secret());
    check_denied(policy, needs_provider)?;
    let inventory = inventory_of(policy, chosen.inventory.take(), needs_provider)?;
    let who = consumer(&chosen.manifest);
    Ok(secrets::expect(
        &asked,
        &policy.secrets,
        inventory.as_ref(),
        &who,
    )?)
}

impl Chosen {
    /// The names of all secrets that the body would get, without values.
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

fn check_denied(policy: &HostPolicy, needs_provider: bool) -> Result<(), RunError> {
    if !needs_provider || !policy.deny_grants.secrets {
        return Ok(());
    }
    Err(RunError::Argument {
        code: "grant_forbidden",
        what: "the manifest's",
        object: "secrets".to_owned(),
        problem: "are denied by the host policy (deny_grants)".to_owned(),
        hint: Some("ask whoever keeps the host's configuration".to_owned()),
    })
}

/// The host's inventory before the one that the caller's manifest names.
fn inventory_of(
    policy: &HostPolicy,
    of_manifest: Option<Inventory>,
    needs_provider: bool,
) -> Result<Option<Inventory>, RunError> {
    let of_host = match &policy.secrets.inventory {
        Some(path) if needs_provider => Some(read_inventory(path)?),
        _ => None,
    };
    Ok(of_host.or(of_manifest))
}

fn consumer(manifest: &Manifest) -> Consumer {
    Consumer {
        kind: manifest.kind,
        id: manifest.id.clone(),
        name: manifest.name.clone(),
    }
}

/// Overwrites every value of the body's environment that is still held here.
pub(super) fn forget(chosen: &mut Chosen, environment: &mut [Vec<u8>]) {
    for (_, value) in &mut chosen.environment {
        overwrite(value);
    }
    environment.iter_mut().for_each(overwrite);
}

struct Values<'run> {
    chosen: &'run mut Chosen,
    masks: &'run mut Masks,
    report: &'run mut Report,
}

impl Values<'_> {
    fn resolve(
        &mut self,
        request: &Request,
        policy: &HostPolicy,
        asked: &[SecretRequest],
        needs_provider: bool,
        signals: BorrowedFd<'_>,
    ) -> Result<(), RunError> {
        let of_manifest = self.chosen.inventory.take();
        let inventory = inventory_of(policy, of_manifest, needs_provider)?;
        for warning in inventory.iter().flat_map(|known| &known.warnings) {
            self.report.warnings.push(warning.clone());
        }
        let who = consumer(&self.chosen.manifest);
        let around = Around {
            environment: &request.caller.environment,
            signals: Some(signals),
        };
        let word = granted_by(request, self.chosen.origin);
        for resolved in resolve(asked, &policy.secrets, inventory.as_ref(), &who, around)? {
            let value = resolved.value.bytes();
            if let Some(reveal) = resolved.reveal {
                let word = match reveal.permission {
                    Some(permission) => format!("{word}, {permission}"),
                    None => word.to_owned(),
                };
                let name = resolved.variable.clone();
                self.note(name, reveal.reference, reveal.provider, word, value);
            }
            let entry = (resolved.variable.into_bytes(), value.to_vec());
            self.chosen.environment.push(entry);
        }
        Ok(())
    }

    /// A variable that the manifest calls a secret and the caller gave openly.
    fn note_given(&mut self, secret: &SecretRequest, value: &[u8]) {
        if secret.reference.is_secret() {
            let name = secret.variable.clone();
            let reference = shown(&secret.reference);
            self.note(name, reference, "caller", "-e".to_owned(), value);
        }
    }

    fn note(
        &mut self,
        variable: String,
        reference: String,
        provider: &str,
        granted_by: String,
        value: &[u8],
    ) {
        if !self.masks.add(value) && !value.is_empty() {
            let message = format!(
                "the value of {variable} has fewer than {VALUE_BYTES_MIN} bytes: it is not masked \
                 in what the body prints"
            );
            self.report
                .warnings
                .push(WarningReport::new("secret_not_masked", message));
        }
        self.report.secrets.push(SecretReport {
            variable,
            reference,
            provider: provider.to_owned(),
            granted_by,
        });
    }
}

fn is_given(request: &Request, secret: &SecretRequest) -> bool {
    let wanted = secret.variable.as_bytes();
    request.secrets.iter().any(|given| given.variable == wanted)
}

fn of_environment<'run>(request: &'run Request, secret: &SecretRequest) -> Option<&'run [u8]> {
    let wanted = secret.variable.as_bytes();
    let mut named = request.environment.iter().rev();
    let (_, value) = named.find(|(name, _)| name == wanted)?;
    Some(value)
}

/// Whose word lets the body have what its manifest asks for.
fn granted_by(request: &Request, origin: Origin) -> &'static str {
    match origin {
        Origin::Caller => "--manifest",
        Origin::Bundle if request.grants.secrets => "--grant secrets",
        Origin::Bundle => "host policy",
    }
}

fn read_inventory(path: &Path) -> Result<Inventory, RunError> {
    let shown = escape(path.as_os_str().as_bytes());
    let text = read_file(path, &shown, "inventory_unreadable", "inventory")?;
    Ok(inventory::parse(&text, format_of(path), &shown)?)
}
