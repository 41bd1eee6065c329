//! Who decided what: the rows of a plan that a report does not have.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::environment;
use crate::plan::grants::Origin;
use crate::plan::limits::Limits;
use crate::run::contract::{DeclaredFile, declared_files};
use crate::run::dry_run::{Decided, network};
use crate::run::image::OpenedImage;
use crate::run::inputs::file_roots::{FileRoot, FileRoots};
use crate::run::inputs::loaded_manifest::LoadedManifest;
use crate::run::launching::launch_plan;
use crate::run::launching::predicted_view::interpreter;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::reporting;
use egress::allowlist::{ALLOW_NET, RequestedHost};
use sandbox::view::SCRATCH;
use spec::document::Node;
use spec::host_policy::{HostPolicy, names};
use spec::path::{escape, escape_path};
use spec::plan_report::{
    DEFAULT, FIXED, FLAG, HOST_POLICY, PlanReport, PlannedEngine, PlannedFile, PlannedGrant,
    PlannedHost, PlannedManifest, PlannedProgram, PlannedSecret, PlannedStdin, PlannedVariable,
    RUN_ID,
};
use spec::report::LimitReport;
use spec::request::{EnvironmentEntry, GivenSecret, Request, Subject};
use spec::sandbox_block::Provider;
use spec::sources_policy::SecretsProvider;
use spec::syscall_policy::SyscallPolicyName;

/// Writes the rows. Knows the manifest's origin and the file of each of its values.
pub(super) struct Rows<'plan> {
    pub(in crate::run) request: &'plan Request,
    pub(in crate::run) policy: &'plan HostPolicy,
    origin: Option<Origin>,
    run_by: String,
    engine_key: Option<&'static str>,
    provenance: BTreeMap<String, String>,
}

/// Describes the manifest before any check.
pub(super) fn describe_manifest(loaded: &LoadedManifest) -> PlannedManifest {
    let manifest = &loaded.manifest;
    let escaped = |text: &str| escape(text.as_bytes());
    PlannedManifest {
        file: loaded.file.clone(),
        trust: match loaded.origin {
            Origin::Bundle => "bundle",
            Origin::Caller => "caller",
        },
        token_id: manifest.token_id().map(escaped),
        version: manifest.version.as_deref().map(escaped),
    }
}

impl<'plan> Rows<'plan> {
    /// `manifest` is absent for a command.
    pub(in crate::run) fn new(
        request: &'plan Request,
        policy: &'plan HostPolicy,
        manifest: Option<&LoadedManifest>,
    ) -> Self {
        let mut rows = Self {
            request,
            policy,
            origin: manifest.map(|manifest| manifest.origin),
            run_by: "command line".to_owned(),
            engine_key: None,
            provenance: BTreeMap::new(),
        };
        if let Some(manifest) = manifest {
            let root = manifest.root.as_ref();
            rows.provenance = root.and_then(provenance).unwrap_or_default();
            rows.engine_key = root.and_then(engine_key);
            rows.run_by = match (&request.subject, &request.bundle.run) {
                (Subject::Command(_) | Subject::Sandbox, _) => rows.run_by,
                (Subject::Bundle(_), Some(_)) => "--run".to_owned(),
                (Subject::Bundle(_), None) => rows.key("run"),
            };
        }
        rows
    }

    /// Those of a run whose manifest is not kept: a key is without the file that it was inherited from.
    pub(super) fn of_origin(
        request: &'plan Request,
        policy: &'plan HostPolicy,
        origin: Origin,
    ) -> Self {
        Self {
            origin: Some(origin),
            ..Self::new(request, policy, None)
        }
    }

    pub(super) fn write(
        &self,
        document: &mut PlanReport,
        decided: &Decided,
        file_roots: &FileRoots,
    ) {
        let resolved = &decided.resolved;
        document.grants = self.grants();
        document.program = self.program(decided);
        document.engine = self.engine(resolved);
        document.syscall_policy_by = Some(self.syscall_policy_by(resolved));
        document.view = self.view(resolved, &decided.steps);
        document.environment = self.environment(resolved, decided.limits.as_ref());
        let contract = decided.contract.as_ref();
        document.input_document = contract.is_some_and(|contract| contract.input.is_some());
        document.stdin = if self.request.streams.interactive {
            PlannedStdin::Caller
        } else if document.input_document {
            PlannedStdin::InputDocument
        } else {
            PlannedStdin::Null
        };
        let io = &resolved.manifest.io;
        let options = &self.request.bundle;
        // An unreadable path of a flag has its own refusal.
        if let Ok(declared) = declared_files(&io.input_files, "--in", &options.input_files) {
            document.inputs = self.files(declared, file_roots.input_root(), &decided.input_bytes);
        }
        if let Ok(declared) = declared_files(&io.output_files, "--out", &options.output_files) {
            document.outputs = self.files(declared, file_roots.output_root(), &[]);
        }
        document.workspace_sources = self.workspace_sources(resolved);
        document.egress = self.egress(resolved);
        document.network = network::plan_network(self.request, self.policy, &resolved.egress);
        document.secrets = self.secrets(decided);
        if let Some(limits) = &decided.limits {
            document.grace_ms = u64::try_from(limits.grace.as_millis()).ok();
            document.grace_by = match self.request.limits.grace {
                Some(_) => FLAG,
                None => DEFAULT,
            };
        }
        document.ignored.clone_from(&resolved.manifest.ignored);
    }

    /// Adds to each key the file that it was inherited from.
    pub(super) fn name_files(&self, limits: &mut [LimitReport]) {
        for limit in limits {
            let sources = limit.sources.iter_mut().map(|one| &mut one.source);
            for source in sources.chain([&mut limit.source]) {
                if source.contains('.') || source.starts_with('/') {
                    *source = self.key(source);
                }
            }
        }
    }

    fn syscall_policy_by(&self, resolved: &ResolvedRun) -> &'static str {
        let name = resolved.syscalls;
        let by_host = name != SyscallPolicyName::default() && name == self.policy.syscalls;
        match self.request.syscalls {
            Some(requested) if requested == name => "--syscalls",
            _ if by_host => HOST_POLICY,
            _ => DEFAULT,
        }
    }

    /// A key of the manifest, with the file that it was inherited from.
    pub(in crate::run) fn key(&self, key: &str) -> String {
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

    /// Who grants `grant`, besides flags of its own.
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

    fn program(&self, decided: &Decided) -> Option<PlannedProgram> {
        let resolved = &decided.resolved;
        let name = resolved.argv.first()?;
        let parts = launch_plan::environment_parts(self.request, resolved, 0, RUN_ID);
        let looked_for_in = if resolved.program.is_some() || name.contains(&b'/') {
            Vec::new()
        } else {
            reporting::escape_all(&environment::search_path(&parts))
        };
        let block = resolved.manifest.sandbox.as_ref();
        let has_cwd = block.is_some_and(|block| {
            let by_mount =
                block.provider == Provider::Local && !resolved.manifest.mounts.is_empty();
            block.local.cwd.is_some() || by_mount
        });
        let found = decided.program.as_ref();
        let of_image = resolved.opened_image();
        let of_image = of_image.and_then(OpenedImage::working_directory);
        let is_of_image = of_image.is_some_and(|own| own == resolved.working_directory);
        Some(PlannedProgram {
            decided_by: self.run_by.clone(),
            interpreter: resolved.interpreter.map(interpreter),
            path: found.map(|program| escape(&program.path)),
            host_path: found.and_then(|program| program.host.as_deref().map(escape_path)),
            looked_for_in,
            working_directory: escape(&resolved.working_directory),
            working_directory_by: match (&self.request.workdir, has_cwd) {
                (Some(_), _) => "--workdir".to_owned(),
                (None, true) => self.key("sandbox.config.cwd"),
                (None, false) if is_of_image => "image".to_owned(),
                (None, false) => FIXED.to_owned(),
            },
        })
    }

    fn engine(&self, resolved: &ResolvedRun) -> PlannedEngine {
        let of_caller = self.request.oci.image.is_some();
        let named = resolved.manifest.runner.image.as_ref();
        let picked = resolved
            .runner
            .as_ref()
            .and_then(|runner| runner.image.as_ref());
        // `--image` names no template.
        let image = named.or(picked).filter(|_| !of_caller);
        PlannedEngine {
            decided_by: match self.engine_key {
                _ if of_caller => "--image".to_owned(),
                Some(key) => self.key(key),
                None => DEFAULT.to_owned(),
            },
            image_by: image.map(|_| self.image_by(resolved)),
            provider: match resolved
                .manifest
                .sandbox
                .as_ref()
                .map(|block| block.provider)
            {
                Some(Provider::Local) => Some("local"),
                Some(Provider::NodePermission) => Some("node-permission"),
                Some(Provider::Remote) => Some("remote"),
                None => None,
            },
        }
    }

    /// Names only: a value never leaves this function.
    fn environment(&self, resolved: &ResolvedRun, limits: Option<&Limits>) -> Vec<PlannedVariable> {
        let memory_bytes = limits.map_or(0, Limits::memory_bytes);
        let parts = launch_plan::environment_parts(self.request, resolved, memory_bytes, RUN_ID);
        let manifest = &resolved.manifest;
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

    /// The variables that the caller gives besides secrets. Copies no value: processes are forked afterwards.
    pub(super) fn passed_variables(&self, resolved: &ResolvedRun) -> Vec<PlannedVariable> {
        let given = &self.request.environment;
        let of_caller = &self.request.caller.environment;
        let has = |all: &[EnvironmentEntry], name: &[u8]| all.iter().any(|entry| entry.0 == name);
        let passed = resolved.manifest.env_passthrough.iter();
        let passed = passed.filter(|name| {
            has(of_caller, name.as_bytes()) && self.flag_of(name.as_bytes()).is_none()
        });
        let passed = passed.map(|name| PlannedVariable {
            name: escape(name.as_bytes()),
            given_by: self.key("sandbox.env.passthrough"),
        });
        let names: BTreeSet<&Vec<u8>> = given.iter().map(|(name, _)| name).collect();
        let given = names.into_iter().filter(|name| self.given(name).is_none());
        let given = given.map(|name| PlannedVariable {
            name: escape(name),
            given_by: "-e".to_owned(),
        });
        passed.chain(given).collect()
    }

    fn files(
        &self,
        declared: Vec<DeclaredFile>,
        workspace: Option<&FileRoot>,
        sizes: &[u64],
    ) -> Vec<PlannedFile> {
        let workspace = workspace.map(|(path, _)| escape_path(path));
        let row = |(index, file): (usize, DeclaredFile)| PlannedFile {
            path: format!("{SCRATCH}/{}", escape(file.key.as_bytes())),
            key: escape(file.key.as_bytes()),
            workspace_path: file.path.to_string(),
            workspace: workspace.clone(),
            bytes: sizes.get(index).copied(),
            decided_by: if file.source.starts_with('/') {
                self.key(&file.source)
            } else {
                file.source
            },
        };
        declared.into_iter().enumerate().map(row).collect()
    }

    pub(super) fn egress(&self, resolved: &ResolvedRun) -> Vec<PlannedHost> {
        let manifest = &resolved.manifest.egress;
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
                host_policy_leaves: asked.granted.iter().map(ToString::to_string).collect(),
            }
        };
        resolved.egress.requested.iter().map(row).collect()
    }

    fn secrets(&self, decided: &Decided) -> Vec<PlannedSecret> {
        let resolved = &decided.resolved;
        let mut rows: Vec<PlannedSecret> = Vec::new();
        for secret in &resolved.manifest.secrets {
            let by_flag = self.flag_of(secret.variable.as_bytes()).map(str::to_owned);
            let expected = decided
                .secrets
                .iter()
                .find(|expected| expected.variable == secret.variable);
            let permission = expected.and_then(|expected| expected.permission.clone());
            let granted_by = by_flag.clone().or_else(|| {
                let by = self.granted_by("secrets")?;
                Some(match permission {
                    Some(permission) => format!("{by}, {permission}"),
                    None => by,
                })
            });
            rows.push(PlannedSecret {
                variable: secret.variable.clone(),
                reference: Some(match self.given(secret.variable.as_bytes()) {
                    Some(given) => given.reference.clone(),
                    None => secrets::describe_reference(&secret.reference),
                }),
                asked_by: Some(self.key_at(
                    &secret.source,
                    &format!("/{}/{}", secret.source.replace('.', "/"), secret.variable),
                )),
                granted_by,
                provider: if secret.reference.is_secret() {
                    by_flag.or_else(|| self.provider())
                } else {
                    Some("manifest".to_owned())
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

    fn given(&self, variable: &[u8]) -> Option<&GivenSecret> {
        let mut given = self.request.secrets.iter().rev();
        given.find(|given| given.variable == variable)
    }

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
            SecretsProvider::Directory(path) => format!("directory {}", escape_path(path)),
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
    let inherited = root
        .get("metadata")?
        .get("runner")?
        .get("provenance")?
        .to_json()
        .ok()?;
    let entries = inherited.as_object()?.iter();
    Some(
        entries
            .filter_map(|(pointer, file)| Some((pointer.clone(), file.as_str()?.to_owned())))
            .collect(),
    )
}
