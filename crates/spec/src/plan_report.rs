//! The plan: the JSON document about a run that was not started. Its schema is
//! `schemas/plan.schema.json`.
//!
//! Every value names its source: `fixed` (this program), `default`, a flag, a manifest key or a
//! host policy key. The document is deterministic: the same request on the same host gives the same
//! text. It has no run id, no clock, and no value of a variable or a secret.

use serde::Serialize;

use crate::digest::Digest;
use crate::report::{ErrorReport, Plan, WarningReport};
use crate::tokens::Token;

/// Version of the document format. The number before the dot changes with incompatible changes.
pub const SCHEMA_VERSION: &str = "3.0";
/// Placeholder for the run id.
pub const RUN_ID: &str = Token::RunId.written();
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

/// A run that was not started.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:plan")))]
pub struct PlanReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// Whether the run would be started.
    pub verdict: PlanVerdict,
    /// The part that the report of the run has too.
    #[serde(flatten)]
    pub plan: Plan,
    /// The first reason why the run would not be started; a run would report the same code.
    pub error: Option<ErrorReport>,
    /// All further reasons, in the order of the checks of a run.
    pub further_errors: Vec<ErrorReport>,
    /// What the bundle's manifest asks for without a grant.
    pub missing_grants: Vec<MissingGrant>,
    /// Grants and their sources.
    pub grants: Vec<PlannedGrant>,
    /// What only a run can check.
    pub unchecked: Vec<String>,
    /// The bundle; `null` for a command and for a manifest without a bundle.
    pub bundle: Option<PlannedBundle>,
    /// The manifest; `null` for a command.
    pub manifest: Option<PlannedManifest>,
    /// The program; `null`: it could not be determined.
    pub program: Option<PlannedProgram>,
    /// The engine.
    pub engine: PlannedEngine,
    /// The paths that the body would see, parents first.
    pub view: Vec<PlannedPath>,
    /// The body's variables, in order, without their values.
    pub environment: Vec<PlannedVariable>,
    /// The standard input of the body.
    pub stdin: PlannedStdin,
    /// Whether the structured input would be at `/runner/input.json`.
    pub input_document: bool,
    /// Workspace sources, in the order of the manifest.
    pub workspace_sources: Vec<PlannedSource>,
    /// Files that would be staged.
    pub inputs: Vec<PlannedFile>,
    /// Files that would be synced.
    pub outputs: Vec<PlannedFile>,
    /// Requested hosts.
    pub egress: Vec<PlannedHost>,
    /// The network of the body.
    pub network: PlannedNetwork,
    /// Variables whose values are secrets.
    pub secrets: Vec<PlannedSecret>,
    /// Time between the stop signal and SIGKILL, in milliseconds; `null`: the limits are refused.
    pub grace_ms: Option<u64>,
    /// Source of `grace_ms`: `default` or `flag`.
    pub grace_by: &'static str,
    /// Source of the system call policy: `default`, `--syscalls` or `host-policy`; `null`: it was
    /// not decided.
    pub syscall_policy_by: Option<&'static str>,
    /// JSON Pointers of valid values of the manifest that have no effect.
    pub ignored: Vec<String>,
    /// Warnings.
    pub warnings: Vec<WarningReport>,
    /// Each value of the host policy, and the files that decided it.
    pub host_policy: Vec<PolicyValue>,
}

/// Whether a run would be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlanVerdict {
    /// It would be started. Exit code 0.
    WouldStart,
    /// The request would be refused. Exit code 125.
    WouldBeRefused,
    /// The start would fail, because of a missing program or of the host. Exit code 125.
    WouldFail,
}

/// A missing grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingGrant {
    /// What the manifest asks for, with the key.
    pub what: String,
    /// The flag that grants it.
    pub flag: String,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedGrant {
    /// The name in `--grant`.
    pub grant: String,
    /// Its source: `--grant` or `host-policy`.
    pub granted_by: String,
}

/// The bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedBundle {
    /// SHA-256 of the canonical tar; `null`: only unpacking determines it.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub content_digest: Option<Digest>,
    /// SHA-256 of the archive; `null`: the bundle is a directory.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub archive_digest: Option<Digest>,
    /// Size of all files.
    pub bytes: u64,
    /// Number of files, directories and links.
    pub entries: u64,
}

/// The manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedManifest {
    /// Its path in the bundle or on the host; empty: there is none, and `--run` replaces it.
    pub file: String,
    /// `caller`: it grants what it asks for; `bundle`: it only asks.
    pub trust: &'static str,
    /// The value of `<toolId>` and `<workflowId>`.
    pub token_id: Option<String>,
    /// `version` of the manifest.
    pub version: Option<String>,
}

/// The program that would be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedProgram {
    /// Source: `run` of the manifest, `--run`, or the command line.
    pub decided_by: String,
    /// Interpreter of the file: `node`, `python` …
    pub interpreter: Option<String>,
    /// Path inside; `null`: it is not found.
    pub path: Option<String>,
    /// Path on the host; `null`: it is a program of the bundle or of the image.
    pub host_path: Option<String>,
    /// Directories inside that are searched, in order; empty: `argv` has a path.
    pub looked_for_in: Vec<String>,
    /// Working directory inside.
    pub working_directory: String,
    /// Source of the working directory: `fixed`, `--workdir`, `image`, or the key.
    pub working_directory_by: String,
}

/// The source of the engine and of its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedEngine {
    /// Source of the engine: `default`, `--image`, or the key.
    pub decided_by: String,
    /// Source of the template: the key, or `picked`; `null`: there is no template.
    pub image_by: Option<String>,
    /// `local`, `node-permission` …; `null`: there is no `sandbox` block.
    pub provider: Option<&'static str>,
}

/// A path that the body would see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedPath {
    /// Path inside.
    pub path: String,
    /// Type of the entry.
    pub what: PlannedEntry,
    /// The path on the host, or the target of a link.
    pub from: Option<String>,
    /// Whether the body may write there.
    pub writable: bool,
    /// Size of a separate tmpfs; other writable directories share the disk limit.
    pub size_bytes: Option<u64>,
    /// Source: `fixed`, the flag, the key, or `program`.
    pub decided_by: String,
}

/// Type of a path that the body sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlannedEntry {
    /// A path of the host.
    Host,
    /// The root of an image.
    Image,
    /// A device node of the host.
    Device,
    /// A workspace source.
    Source,
    /// An empty private directory.
    Tmpfs,
    /// A file that the runner writes.
    File,
    /// A symbolic link.
    Link,
    /// proc of the body's pid namespace.
    Proc,
    /// Pseudo-terminals of the body.
    Devpts,
    /// A masked path of proc.
    Mask,
}

/// A variable of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedVariable {
    /// Name.
    pub name: String,
    /// Source: `fixed`, `-e`, `--secret`, `sandbox.env.passthrough`, or the key of a secret.
    pub given_by: String,
}

/// The standard input of the body.
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

/// A workspace source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedSource {
    /// Id in the manifest.
    pub id: String,
    /// Reference in the manifest.
    pub reference: String,
    /// Mount point inside.
    pub mount_path: String,
    /// Mounted directory of the source; `null`: the whole source.
    pub subpath: Option<String>,
    /// Whether the body could write there.
    pub writable: bool,
    /// Whether the run fails without it.
    pub required: bool,
    /// Whether it is in the store, so that no request is sent; `null`: the reference has no
    /// digest, and only the registry can resolve it.
    pub is_kept: Option<bool>,
    /// JSON Pointer of the entry.
    pub asked_by: String,
    /// What grants it; `null`: nothing.
    pub granted_by: Option<String>,
}

/// A file that would be staged or synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedFile {
    /// Key.
    pub key: String,
    /// Path inside.
    pub path: String,
    /// Path in the workspace, with tokens not replaced.
    pub workspace_path: String,
    /// The workspace; `null`: it is unknown.
    pub workspace: Option<String>,
    /// Current size; `null`: it is an output, or a missing input.
    pub bytes: Option<u64>,
    /// Source: JSON Pointer of the entry, or the flag.
    pub decided_by: String,
}

/// A requested host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedHost {
    /// The entry of the allowlist.
    pub host: String,
    /// The keys that ask for it, with the file that a key is inherited from, and `--allow-net`.
    pub asked_by: Vec<String>,
    /// What grants it; `null`: nothing.
    pub granted_by: Option<String>,
    /// The part of it that the list of the host policy allows.
    pub host_policy_leaves: Vec<String>,
}

/// The network of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedNetwork {
    /// The effective egress list: manifest and `--allow-net`, limited by the host policy.
    pub allowed: Vec<String>,
    /// `none`: no network is set up; else `auto`, `tproxy` or `anyip`.
    pub capture: String,
    /// Source of `capture`: `default`, `--egress-capture`, `--report-denials`.
    pub capture_by: String,
    /// Ports of `--publish`.
    pub published: Vec<PlannedPort>,
    /// Addresses of `--add-host`.
    pub added_hosts: Vec<PlannedAddress>,
    /// Private addresses that names may resolve to: `egress.private_ranges`.
    pub private_ranges: Vec<String>,
    /// Whether TLS with Encrypted Client Hello is refused.
    pub refuse_ech: bool,
    /// Source of `refuse_ech`: `default`, `--strict` or `host-policy`.
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

/// A published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedPort {
    /// Port on 127.0.0.1 of the host; 0: any free port.
    pub host_port: u16,
    /// Port on the body's loopback.
    pub body_port: u16,
}

/// The fixed address of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedAddress {
    /// The name.
    pub host: String,
    /// Its address.
    pub address: String,
}

/// A variable whose value is a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlannedSecret {
    /// Name of the variable.
    pub variable: String,
    /// Reference in the manifest, or of `--secret`.
    pub reference: Option<String>,
    /// The key that asks for it; `null`: only the caller sets it.
    pub asked_by: Option<String>,
    /// What grants it; `null`: nothing.
    pub granted_by: Option<String>,
    /// Source of the value; `null`: there is none.
    pub provider: Option<String>,
}

/// A value of the host policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyValue {
    /// The key in configuration files.
    pub key: String,
    /// The value, shortened.
    pub value: String,
    /// The files that decided it, earliest first; `default`: none of them.
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
