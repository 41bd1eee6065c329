//! The plan: the JSON document about a run that was not started. Its schema is
//! `schemas/plan.schema.json`.
//!
//! Every value names its source: `fixed` (this program), `default`, a flag, a manifest key or a
//! host policy key. The document is deterministic: the same request on the same host gives the same
//! text. It has no run id, no clock, and no value of a variable or a secret.

use serde::Serialize;

use crate::digest::Digest;
use crate::report::{ErrorReport, Plan, WarningReport};

/// Version of the document's shape. The number before the dot changes with incompatible changes.
pub const SCHEMA_VERSION: &str = "3.0";
/// Placeholder for the run id.
pub const RUN_ID: &str = "<runId>";
/// Source of values that this program fixes.
pub const FIXED: &str = "fixed";
/// Source of default values.
pub const DEFAULT: &str = "default";
/// Source of values that the host policy sets.
pub const HOST_POLICY: &str = "host-policy";
/// Source of this program's own maximum for a bundle's manifest.
pub const BUILT_IN_MAXIMUM: &str = "built-in-maximum";
/// Source of values from a flag of the caller, or its variable.
pub const FLAG: &str = "flag";

/// What a run would be.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:plan")))]
pub struct PlanReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// Whether the run would be started.
    pub verdict: PlanVerdict,
    /// What the report of the run would say too.
    #[serde(flatten)]
    pub plan: Plan,
    /// The first reason why it would not: `exec` or `run` would report the same code.
    pub error: Option<ErrorReport>,
    /// All further reasons, in the order in which they would come up.
    pub further_errors: Vec<ErrorReport>,
    /// What the bundle's manifest asks for and nobody granted.
    pub missing_grants: Vec<MissingGrant>,
    /// What was granted, and by whom.
    pub grants: Vec<PlannedGrant>,
    /// What could not be looked at here, so that only a run tells.
    pub unchecked: Vec<String>,
    /// The bundle; absent for a command and for a manifest that is in no bundle yet.
    pub bundle: Option<PlannedBundle>,
    /// The manifest; absent for a command.
    pub manifest: Option<PlannedManifest>,
    /// What would be started; absent where that could not be found out.
    pub program: Option<PlannedProgram>,
    /// Where it would run.
    pub engine: PlannedEngine,
    /// What the body would see, parents first.
    pub view: Vec<PlannedPath>,
    /// The body's variables, in order, without their values.
    pub environment: Vec<PlannedVariable>,
    /// What the body would read on its standard input.
    pub stdin: PlannedStdin,
    /// Whether the structured input would be there, at `/runner/input.json`.
    pub input_document: bool,
    /// Workspace sources that the manifest names, in its order.
    pub workspace_sources: Vec<PlannedSource>,
    /// Files that would be staged.
    pub inputs: Vec<PlannedFile>,
    /// Files that would be synced.
    pub outputs: Vec<PlannedFile>,
    /// Hosts that the body could reach, or that somebody asks for.
    pub egress: Vec<PlannedHost>,
    /// How the body would be connected to them, and what else there would be of a network.
    pub network: PlannedNetwork,
    /// Variables whose values are secrets.
    pub secrets: Vec<PlannedSecret>,
    /// Time between the stop signal and SIGKILL, milliseconds; absent where the limits are refused.
    pub grace_ms: Option<u64>,
    /// `default` or `flag`.
    pub grace_by: &'static str,
    /// `default`, `--syscalls` or `host-policy`; absent where the policy was not decided.
    pub syscall_policy_by: Option<&'static str>,
    /// JSON Pointers of what the manifest says and nothing acts on.
    pub ignored: Vec<String>,
    /// What a person should know.
    pub warnings: Vec<WarningReport>,
    /// Each value of the host policy, and the file that decided it.
    pub host_policy: Vec<PolicyValue>,
}

/// Whether a run would be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlanVerdict {
    /// It would. Exit code 0.
    WouldStart,
    /// The request would be refused. Exit code 125.
    WouldBeRefused,
    /// It would be tried and not come to a start: the program is not there, the host cannot. Exit
    /// code 125.
    WouldFail,
}

/// One thing that nobody granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingGrant {
    /// What, with the key that asks.
    pub what: String,
    /// The flag that would grant it.
    pub flag: String,
}

/// One thing that was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedGrant {
    /// As `--grant` names it.
    pub grant: String,
    /// `--grant` or `host-policy`.
    pub granted_by: String,
}

/// The bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedBundle {
    /// SHA-256 of the canonical tar; absent where only unpacking tells.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub content_digest: Option<Digest>,
    /// SHA-256 of the archive's bytes; absent for a directory.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub archive_digest: Option<Digest>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

/// The manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedManifest {
    /// Where it lies: a path of the bundle or of the host; empty where there is none and `--run`
    /// stands for it.
    pub file: String,
    /// `caller` where it grants what it says, `bundle` where it only asks.
    pub trust: &'static str,
    /// What `<toolId>` and `<workflowId>` stand for.
    pub token_id: Option<String>,
    /// Its `version`.
    pub version: Option<String>,
}

/// What would be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedProgram {
    /// `run` of the manifest, `--run`, or the command line.
    pub decided_by: String,
    /// Who runs the file: `node`, `python` …
    pub interpreter: Option<String>,
    /// The program inside; absent where it is not found.
    pub path: Option<String>,
    /// The same on the host; absent for a program of the bundle.
    pub host_path: Option<String>,
    /// The directories inside in which it is looked for, in order; empty where `argv` has a path.
    pub looked_for_in: Vec<String>,
    /// Where it starts, inside.
    pub working_directory: String,
    /// `fixed`, `--workdir`, or the key.
    pub working_directory_by: String,
}

/// Who decided where the body would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedEngine {
    /// `default`, `--image`, or the key.
    pub decided_by: String,
    /// The key that names the template, or `picked`; absent where none is needed.
    pub image_by: Option<String>,
    /// `local`, `node-permission` …; absent without a `sandbox` block.
    pub provider: Option<&'static str>,
}

/// One path that the body would see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedPath {
    /// Inside.
    pub path: String,
    /// What it is.
    pub what: PlannedEntry,
    /// The path of the host that is shown, or what a link says.
    pub from: Option<String>,
    /// Whether the body may write there.
    pub writable: bool,
    /// The size of a tmpfs of its own; other writable directories share the disk limit.
    pub size_bytes: Option<u64>,
    /// `fixed`, the flag, the key, or `program`.
    pub decided_by: String,
}

/// What a path of the view is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlannedEntry {
    /// A path of the host.
    Host,
    /// The root of an image, of this run's own.
    Image,
    /// A device node of the host.
    Device,
    /// A workspace source.
    Source,
    /// An empty private directory.
    Tmpfs,
    /// A file of this program's own.
    File,
    /// A symbolic link.
    Link,
    /// proc of the body's own pid namespace.
    Proc,
    /// Terminals of the body's own.
    Devpts,
    /// Something of proc that is covered.
    Mask,
}

/// One variable of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedVariable {
    /// Its name.
    pub name: String,
    /// `fixed`, `-e`, `--secret`, `sandbox.env.passthrough`, or the key that asks for a secret.
    pub given_by: String,
}

/// What the body would read on its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlannedStdin {
    /// Nothing: /dev/null.
    Null,
    /// The structured input.
    InputDocument,
    /// The caller's standard input (`-i`).
    Caller,
}

/// One workspace source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedSource {
    /// As the manifest calls it.
    pub id: String,
    /// As the manifest names it.
    pub reference: String,
    /// Where it would appear inside.
    pub mount_path: String,
    /// The directory of it that would appear there; absent: all of it.
    pub subpath: Option<String>,
    /// Whether the body could write there.
    pub writable: bool,
    /// Whether there would be no run without it.
    pub required: bool,
    /// Whether it is kept, so that nobody would be asked for it; absent where only a registry knows
    /// what a tag points to.
    pub is_kept: Option<bool>,
    /// JSON Pointer of the entry.
    pub asked_by: String,
    /// Who grants it; absent where nobody does.
    pub granted_by: Option<String>,
}

/// One file that would be staged or synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedFile {
    /// Its key.
    pub key: String,
    /// Inside.
    pub path: String,
    /// In the workspace, tokens as they are written.
    pub workspace_path: String,
    /// The workspace; absent where none is known.
    pub workspace: Option<String>,
    /// Its size now; only of an input that is there.
    pub bytes: Option<u64>,
    /// JSON Pointer of the entry, or the flag.
    pub decided_by: String,
}

/// One host that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedHost {
    /// As the allowlist has it.
    pub host: String,
    /// The keys that ask, with the file that a key was inherited from, and `--allow-net`.
    pub asked_by: Vec<String>,
    /// Who grants it; absent where nobody does.
    pub granted_by: Option<String>,
    /// What the host policy's own list leaves of it.
    pub host_policy_leaves: Vec<String>,
}

/// The network of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedNetwork {
    /// The list that counts: what is asked for, as the host policy leaves it.
    pub allowed: Vec<String>,
    /// `none` where nothing is laid out, else `auto`, `tproxy` or `anyip`.
    pub capture: String,
    /// `default`, `--egress-capture`, `--report-denials`.
    pub capture_by: String,
    /// `--publish`.
    pub published: Vec<PlannedPort>,
    /// `--add-host`.
    pub added_hosts: Vec<PlannedAddress>,
    /// Addresses that are not public and may nevertheless be dialled: `egress.private_ranges`.
    pub private_ranges: Vec<String>,
    /// Whether a TLS hello that hides another one inside is refused.
    pub refuse_ech: bool,
    /// `default`, `--strict` or `host-policy`.
    pub refuse_ech_by: String,
}

impl Default for PlannedNetwork {
    fn default() -> Self {
        Self {
            allowed: Vec::new(),
            capture: "none".to_owned(),
            capture_by: DEFAULT.to_owned(),
            published: Vec::new(),
            added_hosts: Vec::new(),
            private_ranges: Vec::new(),
            refuse_ech: false,
            refuse_ech_by: DEFAULT.to_owned(),
        }
    }
}

/// A port of the host that would lead to one of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedPort {
    /// On 127.0.0.1 of the host; 0 for one that the run chooses.
    pub host_port: u16,
    /// On the body's loopback.
    pub body_port: u16,
}

/// Where a name would be dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedAddress {
    /// The name.
    pub host: String,
    /// Its address.
    pub address: String,
}

/// One variable whose value is a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedSecret {
    /// Name of the variable.
    pub variable: String,
    /// What the manifest names.
    pub reference: Option<String>,
    /// The key that asks; absent where only the caller gives it.
    pub asked_by: Option<String>,
    /// Who grants it; absent where nobody does.
    pub granted_by: Option<String>,
    /// Who would be asked for the value; absent where nobody knows one.
    pub provider: Option<String>,
}

/// One value of the host policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyValue {
    /// As configuration files name it.
    pub key: String,
    /// In short.
    pub value: String,
    /// The files that decided it, earliest first; `default` where none did.
    pub decided_by: Vec<String>,
}

impl PlanReport {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            verdict: PlanVerdict::WouldStart,
            plan: Plan::default(),
            error: None,
            further_errors: Vec::new(),
            missing_grants: Vec::new(),
            grants: Vec::new(),
            unchecked: Vec::new(),
            bundle: None,
            manifest: None,
            program: None,
            engine: PlannedEngine {
                decided_by: DEFAULT.to_owned(),
                image_by: None,
                provider: None,
            },
            view: Vec::new(),
            environment: Vec::new(),
            stdin: PlannedStdin::Null,
            input_document: false,
            workspace_sources: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            egress: Vec::new(),
            network: PlannedNetwork::default(),
            secrets: Vec::new(),
            grace_ms: None,
            grace_by: DEFAULT,
            syscall_policy_by: None,
            ignored: Vec::new(),
            warnings: Vec::new(),
            host_policy: Vec::new(),
        }
    }

    /// The plan of a request that is refused before planning.
    #[must_use]
    pub fn refused(error: ErrorReport) -> Self {
        Self {
            verdict: PlanVerdict::WouldBeRefused,
            error: Some(error),
            ..Self::new()
        }
    }
}

impl Default for PlanReport {
    fn default() -> Self {
        Self::new()
    }
}
