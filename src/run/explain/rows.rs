//! The rows of a plan: what was settled, put beside who decided it.

use std::collections::BTreeMap;

use crate::plan::environment;
use crate::plan::grants::Origin;
use crate::plan::limits::Limits;
use crate::run::chosen::Chosen;
use crate::run::contract::{DeclaredFile, declared_files};
use crate::run::explain::Settling;
use crate::run::explain::paths;
use crate::run::image::OpenedImage;
use crate::run::inside::{interpreter, shown};
use crate::run::places::{Place, Places};
use crate::run::planning;
use crate::run::reporting;
use crate::run::subject::Subject as ManifestSubject;
use egress::allowlist::{ALLOW_NET, RequestedHost};
use sandbox::view::SCRATCH;
use spec::document::{self, Node};
use spec::host_policy::{HostPolicy, names};
use spec::image_report::ImageReport;
use spec::path::escape;
use spec::plan_report::{
    DEFAULT, FIXED, HOST_POLICY, PlanReport, PlannedEngine, PlannedFile, PlannedGrant, PlannedHost,
    PlannedManifest, PlannedProgram, PlannedSecret, PlannedStdin, PlannedSyscallPolicy,
    PlannedVariable, RUN_ID,
};
use spec::request::{GivenSecret, Request};
use spec::runner_block::Engine;
use spec::sandbox_block::Provider;
use spec::sources_policy::SecretsProvider;
use spec::syscall_policy::SyscallPolicyName;

/// Writes the rows; knows whose word the manifest is, and which file each of its values is from.
pub(super) struct Rows<'plan> {
    pub(super) request: &'plan Request,
    pub(super) policy: &'plan HostPolicy,
    origin: Option<Origin>,
    run_by: String,
    engine_key: Option<&'static str>,
    provenance: BTreeMap<String, String>,
}

impl<'plan> Rows<'plan> {
    pub(super) fn new(request: &'plan Request, policy: &'plan HostPolicy) -> Self {
        Self {
            request,
            policy,
            origin: None,
            run_by: "command line".to_owned(),
            engine_key: None,
            provenance: BTreeMap::new(),
        }
    }

    fn syscall_policy(&self, chosen: &Chosen) -> PlannedSyscallPolicy {
        let name = chosen.syscalls;
        let by_host = name != SyscallPolicyName::default() && name == self.policy.syscalls;
        let decided_by = match self.request.syscalls {
            Some(asked) if asked == name => "--syscalls",
            _ if by_host => HOST_POLICY,
            _ => DEFAULT,
        };
        PlannedSyscallPolicy {
            name,
            decided_by: decided_by.to_owned(),
        }
    }

    /// The manifest, before it is judged.
    pub(super) fn tell_manifest(&mut self, plan: &mut PlanReport, subject: &ManifestSubject) {
        let (text, format) = &subject.text;
        let root = document::parse(text, *format).ok();
        self.provenance = root.as_ref().and_then(provenance).unwrap_or_default();
        self.engine_key = root.as_ref().and_then(engine_key);
        self.origin = Some(subject.origin);
        self.run_by = match self.request.bundle.run {
            Some(_) => "--run".to_owned(),
            None => self.key("run"),
        };
        let manifest = &subject.manifest;
        plan.manifest = Some(PlannedManifest {
            file: subject.file.clone(),
            word_of: match subject.origin {
                Origin::Bundle => "bundle".to_owned(),
                Origin::Caller => "caller".to_owned(),
            },
            token_id: manifest.token_id().map(|id| escape(id.as_bytes())),
            version: manifest
                .version
                .as_ref()
                .map(|version| escape(version.as_bytes())),
        });
    }

    pub(super) fn tell(&self, plan: &mut PlanReport, settling: &Settling, places: &Places) {
        let chosen = &settling.chosen;
        plan.grants = self.grants();
        plan.program = self.program(settling);
        plan.engine = self.engine(chosen);
        plan.syscall_policy = Some(self.syscall_policy(chosen));
        plan.image = chosen.image.as_ref().map(|image| ImageReport {
            root: self.root_kind(),
            ..image.report()
        });
        plan.view = self.view(settling);
        plan.environment = self.environment(chosen, settling.limits.as_ref());
        plan.input_document = settling
            .settled
            .as_ref()
            .is_some_and(|settled| settled.input.is_some());
        plan.stdin = match (self.request.streams.interactive, plan.input_document) {
            (true, _) => PlannedStdin::Caller,
            (false, true) => PlannedStdin::InputDocument,
            (false, false) => PlannedStdin::Null,
        };
        let io = &chosen.manifest.io;
        let options = &self.request.bundle;
        let files = |declared: Vec<DeclaredFile>, place: Option<&Place>, bytes: &[u64]| {
            let place = place.map(|(path, _)| shown(path));
            let sizes = bytes
                .iter()
                .copied()
                .map(Some)
                .chain(std::iter::repeat(None));
            declared
                .into_iter()
                .zip(sizes)
                .map(|(file, bytes)| self.file(file, place.clone(), bytes))
                .collect()
        };
        // A path of a flag that cannot be read is among the errors already.
        if let Ok(declared) = declared_files(&io.input_files, "--in", &options.input_files) {
            plan.inputs = files(declared, places.of_inputs(), &settling.input_bytes);
        }
        if let Ok(declared) = declared_files(&io.output_files, "--out", &options.output_files) {
            plan.outputs = files(declared, places.of_outputs(), &[]);
        }
        plan.workspace_sources = self.workspace_sources(chosen);
        plan.preparation = paths::preparation(chosen);
        plan.egress = self.egress(chosen);
        plan.secrets = self.secrets(settling);
        if let Some(limits) = &settling.limits {
            plan.limits = self.limits(limits, &plan.enforcement);
        }
        plan.ignored.clone_from(&chosen.manifest.ignored);
    }

    /// A key of the manifest, with the file that it was inherited from.
    pub(super) fn key(&self, key: &str) -> String {
        let pointer = match key.strip_prefix('/') {
            Some(_) => key.to_owned(),
            None => format!("/{}", key.replace('.', "/")),
        };
        self.key_at(key, &pointer)
    }

    /// `key`, with the file that decided what stands at `pointer` or above it.
    fn key_at(&self, key: &str, pointer: &str) -> String {
        let mut at = Some(pointer);
        while let Some(here) = at.filter(|here| !here.is_empty()) {
            if let Some(file) = self.provenance.get(here) {
                return format!("{key} (from {})", escape(file.as_bytes()));
            }
            at = here.rfind('/').map(|end| &here[..end]);
        }
        key.to_owned()
    }

    fn grants(&self) -> Vec<PlannedGrant> {
        let of_flag = names(self.request.grants).map(|grant| (grant, "--grant"));
        let of_host = names(self.policy.grants).map(|grant| (grant, HOST_POLICY));
        let row = |(grant, granted_by): (&str, &str)| PlannedGrant {
            grant: grant.to_owned(),
            granted_by: granted_by.to_owned(),
        };
        of_flag.chain(of_host).map(row).collect()
    }

    /// Who grants what `grant` names, beside flags of its own.
    pub(super) fn granted_by(&self, grant: &str) -> Option<String> {
        if self.origin == Some(Origin::Caller) {
            return Some("--manifest".to_owned());
        }
        let found = self.grants().into_iter().find(|row| row.grant == grant)?;
        Some(match found.granted_by.as_str() {
            HOST_POLICY => HOST_POLICY.to_owned(),
            flag => format!("{flag} {grant}"),
        })
    }

    fn program(&self, settling: &Settling) -> Option<PlannedProgram> {
        let chosen = &settling.chosen;
        let name = chosen.argv.first()?;
        let parts = planning::parts(self.request, chosen, 0, RUN_ID);
        let looked_for_in = match (chosen.program.is_some(), name.contains(&b'/')) {
            (false, false) => reporting::shown(&environment::search_path(&parts)),
            _ => Vec::new(),
        };
        let block = chosen.manifest.sandbox.as_ref();
        let has_cwd = block.is_some_and(|block| {
            let by_mount = block.provider == Provider::Local && !chosen.manifest.mounts.is_empty();
            block.local.cwd.is_some() || by_mount
        });
        let found = settling.program.as_ref();
        let of_image = chosen.opened_image();
        let of_image = of_image.and_then(OpenedImage::working_directory);
        let is_of_image = of_image.is_some_and(|own| own == chosen.working_directory);
        Some(PlannedProgram {
            run_form: chosen.form,
            decided_by: self.run_by.clone(),
            argv: reporting::shown(&chosen.argv),
            interpreter: chosen.interpreter.map(interpreter),
            path: found.map(|program| escape(&program.path)),
            host_path: found.and_then(|program| program.host.as_deref().map(shown)),
            looked_for_in,
            working_directory: escape(&chosen.working_directory),
            working_directory_by: match (&self.request.workdir, has_cwd) {
                (Some(_), _) => "--workdir".to_owned(),
                (None, true) => self.key("sandbox.config.cwd"),
                (None, false) if is_of_image => "image".to_owned(),
                (None, false) => FIXED.to_owned(),
            },
            bound_programs: chosen.bound.clone(),
        })
    }

    fn engine(&self, chosen: &Chosen) -> PlannedEngine {
        let runner = &chosen.manifest.runner;
        let engine = match (runner.engine, &chosen.image) {
            (Engine::Subprocess, None) => "subprocess",
            (Engine::Subprocess, Some(_)) | (Engine::Sandbox, _) => "sandbox",
        };
        let told = chosen.runner.as_ref();
        let picked = told.and_then(|told| told.image.clone());
        let named = runner.image.clone().or(picked);
        // `--image` is not a template.
        let image = named.filter(|_| self.request.oci.image.is_none());
        let image_by = image.as_ref().map(|_| self.image_by(chosen));
        let provider = chosen.manifest.sandbox.as_ref();
        PlannedEngine {
            engine: engine.to_owned(),
            decided_by: match self.engine_key {
                _ if self.request.oci.image.is_some() => "--image".to_owned(),
                Some(key) => self.key(key),
                None => DEFAULT.to_owned(),
            },
            downgraded: runner.downgraded,
            image,
            image_by,
            needs_unsatisfied: told.map_or_else(Vec::new, |told| told.needs_unsatisfied.clone()),
            provider: provider.map(|block| {
                match block.provider {
                    Provider::Local => "local",
                    Provider::NodePermission => "node-permission",
                    Provider::Remote => "remote",
                }
                .to_owned()
            }),
        }
    }

    /// Names only: a value never leaves this function.
    fn environment(&self, chosen: &Chosen, limits: Option<&Limits>) -> Vec<PlannedVariable> {
        let memory_bytes = limits.map_or(0, Limits::memory_bytes);
        let parts = planning::parts(self.request, chosen, memory_bytes, RUN_ID);
        let manifest = &chosen.manifest;
        environment::environment(&parts)
            .iter()
            .map(|entry| {
                let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
                let secret = manifest
                    .secrets
                    .iter()
                    .find(|secret| secret.variable.as_bytes() == name);
                let passed = manifest
                    .env_passthrough
                    .iter()
                    .any(|passed| passed.as_bytes() == name);
                let given_by = if let Some(flag) = self.flag_of(name) {
                    flag.to_owned()
                } else if let Some(secret) = secret {
                    self.key(&secret.source)
                } else if passed {
                    self.key("sandbox.env.passthrough")
                } else {
                    FIXED.to_owned()
                };
                PlannedVariable {
                    name: escape(name),
                    given_by,
                }
            })
            .collect()
    }

    fn file(
        &self,
        file: DeclaredFile,
        workspace: Option<String>,
        bytes: Option<u64>,
    ) -> PlannedFile {
        PlannedFile {
            path: format!("{SCRATCH}/{}", escape(file.key.as_bytes())),
            key: escape(file.key.as_bytes()),
            workspace_path: file.path.to_string(),
            workspace,
            bytes,
            decided_by: match file.source.starts_with('/') {
                true => self.key(&file.source),
                false => file.source,
            },
        }
    }

    fn egress(&self, chosen: &Chosen) -> Vec<PlannedHost> {
        let manifest = &chosen.manifest.egress;
        let row = |asked: &RequestedHost| {
            let keys = asked.entries.iter().filter_map(|index| {
                let entry = manifest.get(*index)?;
                let before = manifest[..*index].iter();
                let place = before.filter(|other| other.source == entry.source).count();
                let pointer = format!("/{}/{place}", entry.source.replace('.', "/"));
                Some(self.key_at(&entry.source, &pointer))
            });
            let of_flag = asked.by_flag.then(|| ALLOW_NET.to_owned());
            let mut flags = self.request.network.allow.iter();
            let granted_by = match flags.find(|rule| rule.covers(&asked.rule)) {
                Some(rule) if *rule == asked.rule => Some(ALLOW_NET.to_owned()),
                Some(rule) => Some(format!("{ALLOW_NET} {rule}")),
                None => self.granted_by("egress"),
            };
            PlannedHost {
                host: asked.rule.to_string(),
                asked_by: keys.chain(of_flag).collect(),
                granted_by,
                host_policy_leaves: asked.left.iter().map(ToString::to_string).collect(),
            }
        };
        chosen.egress.asked.iter().map(row).collect()
    }

    fn secrets(&self, settling: &Settling) -> Vec<PlannedSecret> {
        let chosen = &settling.chosen;
        let mut rows: Vec<PlannedSecret> = Vec::new();
        for secret in &chosen.manifest.secrets {
            let by_flag = self.flag_of(secret.variable.as_bytes()).map(str::to_owned);
            let expected = settling
                .secrets
                .iter()
                .find(|expected| expected.variable == secret.variable);
            let permission = expected.and_then(|expected| expected.permission.clone());
            let granted_by = by_flag.clone().or_else(|| {
                let word = self.granted_by("secrets")?;
                Some(match permission {
                    Some(permission) => format!("{word}, {permission}"),
                    None => word,
                })
            });
            rows.push(PlannedSecret {
                variable: secret.variable.clone(),
                reference: Some(match self.given(secret.variable.as_bytes()) {
                    Some(given) => given.reference.clone(),
                    None => secrets::shown(&secret.reference),
                }),
                asked_by: Some(self.key_at(
                    &secret.source,
                    &format!("/{}/{}", secret.source.replace('.', "/"), secret.variable),
                )),
                granted_by,
                provider: match secret.reference.is_secret() {
                    true => by_flag.or_else(|| self.provider()),
                    false => Some("manifest".to_owned()),
                },
            });
        }
        for given in &self.request.secrets {
            let variable = escape(&given.variable);
            if rows.iter().all(|row| row.variable != variable) {
                rows.push(PlannedSecret {
                    variable,
                    reference: Some(given.reference.clone()),
                    asked_by: None,
                    granted_by: Some("--secret".to_owned()),
                    provider: Some("--secret".to_owned()),
                });
            }
        }
        rows
    }

    /// The caller's own word for a secret.
    fn given(&self, variable: &[u8]) -> Option<&GivenSecret> {
        let mut given = self.request.secrets.iter().rev();
        given.find(|given| given.variable == variable)
    }

    /// The flag that gives a variable its value.
    fn flag_of(&self, variable: &[u8]) -> Option<&'static str> {
        if self.given(variable).is_some() {
            return Some("--secret");
        }
        let mut named = self.request.environment.iter();
        named
            .any(|(name, _)| name.as_slice() == variable)
            .then_some("-e")
    }

    fn provider(&self) -> Option<String> {
        Some(match self.policy.secrets.provider.as_ref()? {
            SecretsProvider::Directory(path) => format!("directory {}", shown(path)),
            SecretsProvider::Environment { prefix } => {
                format!("variables {}…", escape(prefix.as_bytes()))
            }
            SecretsProvider::Command(words) => {
                let name = words.first().map_or("", String::as_str);
                format!("command {}", escape(name.as_bytes()))
            }
        })
    }
}

/// The key that states the engine.
fn engine_key(root: &Node) -> Option<&'static str> {
    let states = |block: &str, key| root.get(block).and_then(|block| block.get(key)).is_some();
    let keys = [
        ("runner", "engine", "runner.engine"),
        ("runtime", "engine", "runtime.engine"),
        ("runtime", "mode", "runtime.mode"),
    ];
    keys.into_iter()
        .find(|(block, key, _)| states(block, key))
        .map(|(_, _, whole)| whole)
}

/// `metadata.runner.provenance` of a manifest that a bundle was made with.
fn provenance(root: &Node) -> Option<BTreeMap<String, String>> {
    let told = root
        .get("metadata")?
        .get("runner")?
        .get("provenance")?
        .to_json()
        .ok()?;
    let entries = told.as_object()?.iter();
    Some(
        entries
            .filter_map(|(pointer, file)| Some((pointer.clone(), file.as_str()?.to_owned())))
            .collect(),
    )
}
