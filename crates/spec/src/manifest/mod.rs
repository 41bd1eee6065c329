//! What a person writes: the manifest, parsed with the place of every value.
//!
//! Reading is in two steps. [`crate::document`] makes a tree of the text; the blocks of the
//! specifications are then read out of it, each with its own rules, and every key that nothing
//! reads is refused. The manifest only *asks*: who grants what it asks for is decided elsewhere.
#![forbid(unsafe_code)]

mod advice;
mod blocks;
pub mod commits;
mod findings;
mod inherit;
pub mod legacy;
pub mod network;
mod problem;
pub mod reader;
mod references;
mod resolved;
pub mod run;
pub mod secrets;
mod together;
mod top_level;
mod workspace_sources;

pub use crate::document::Format;
pub use blocks::{
    BlockDocument, BlockDocuments, BlockForm, BlockReference, ReferenceTarget, beside,
    block_references, block_references_of_sandbox, is_slug,
};
pub use commits::SourceCommit;
pub use findings::ERRORS_MAX;
pub use inherit::{Inherited, Level, inherit};
pub use network::EgressRequest;
pub use problem::{ManifestError, Problem};
pub use references::{CodeReference, GitHubReference, code_references, github_references};
pub use resolved::resolved;
pub(crate) use secrets::slug_of_variable;
pub use secrets::{SecretReference, SecretRequest, is_variable_name};
pub use workspace_sources::WorkspaceSource;

use crate::code_block::CodeSource;
use crate::document::{self, Key, Node, Value};
use crate::inventory::{Consumer, Inventory};
use crate::io::IoBlocks;
use crate::report::WarningReport;
use crate::run_form::Run;
use crate::runner_block::RunnerBlock;
use crate::sandbox_block::{MountRequest, SandboxBlock};

/// Warnings that are refusals under `--strict`.
pub const STRICT_REFUSES: [&str; 2] = ["config_missing", "unspecified_key"];

/// What a manifest is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// `tool`.
    #[default]
    Tool,
    /// `workflow`.
    Workflow,
    /// `code-workspace`: files that others use.
    CodeWorkspace,
}

/// A limit as one key states it. Where several speak, the strictest wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedLimit {
    /// `memory_bytes`, `wall_time_ms` or `cpu_time_ms`.
    pub name: &'static str,
    /// In the unit that the name ends in; at least 1.
    pub value: u64,
    /// The key: `runner.limits.timeout_ms`.
    pub source: String,
}

/// Something that restricts who may run this; refused unless granted, never ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restriction {
    /// The key: `approval` or `sandbox.policy`.
    pub source: &'static str,
    /// Its value, where it is one word, escaped.
    pub value: Option<String>,
}

/// A manifest: what it asks for, whoever gave it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifest {
    /// What it is about; `tool` where it does not say.
    pub kind: Kind,
    /// `id`.
    pub id: Option<String>,
    /// `name`; where there is none, the caller may put the name of the folder here.
    pub name: Option<String>,
    /// `version`.
    pub version: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `run`, or the older `entry`.
    pub run: Option<Run>,
    /// `code`, or the lean `source`: where files come from that are not here yet.
    pub code: Vec<CodeSource>,
    /// `runner`, or the `runtime` that stands for it.
    pub runner: RunnerBlock,
    /// All limits of all blocks.
    pub limits: Vec<StatedLimit>,
    /// All hosts that any block asks for.
    pub egress: Vec<EgressRequest>,
    /// All variables whose values are secrets.
    pub secrets: Vec<SecretRequest>,
    /// The inventories of secrets that it names, and what one that was resolved carries of them.
    pub inventories: Vec<Inventory>,
    /// Variables of the caller that should pass.
    pub env_passthrough: Vec<String>,
    /// Mounts of the workspace, parents first.
    pub mounts: Vec<MountRequest>,
    /// The block itself. Without a stated time its presence makes the default 30 s.
    pub sandbox: Option<SandboxBlock>,
    /// What flows in and out.
    pub io: IoBlocks,
    pub workspace_sources: Vec<WorkspaceSource>,
    /// Which commits its files are of, as `runner bundle` wrote it.
    pub commits: Vec<SourceCommit>,
    /// What restricts who may run this.
    pub restrictions: Vec<Restriction>,
    /// What a person should know.
    pub warnings: Vec<WarningReport>,
    /// JSON Pointers of what is valid and not acted on.
    pub ignored: Vec<String>,
    /// Valid wishes that this program does not fulfil; the first one refuses the run.
    pub refusals: Vec<ManifestError>,
}

/// What reading a manifest came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The manifest; `None` where there are errors.
    pub manifest: Option<Manifest>,
    /// Everything that is not accepted, in the order of the text: at most [`ERRORS_MAX`], and one
    /// more that counts the rest.
    pub errors: Vec<ManifestError>,
}

/// Reads a manifest, and its blocks that lie in other documents. `file_name` is repeated in every
/// error about the manifest itself.
#[must_use]
pub fn parse_with(root: &Node, file_name: &str, blocks: &BlockDocuments) -> Parsed {
    let (manifest, errors) = read(root, file_name, blocks);
    Parsed {
        manifest: errors.is_empty().then_some(manifest),
        errors,
    }
}

/// What an IO.md may hold: the four blocks of AIP-16, and what says which document it is.
const IO_KEYS: [&str; 9] = [
    "inputs",
    "outputs",
    "inputsFiles",
    "outputsFiles",
    "schema",
    "id",
    "version",
    "name",
    "description",
];

/// Reads the blocks of AIP-16 where they are a document of their own. `file_name` is repeated in every
/// error.
#[must_use]
pub fn parse_io(root: &Node, file_name: &str) -> Parsed {
    let Value::Map(entries) = &root.value else {
        return parse_with(root, file_name, BlockDocuments::EMPTY);
    };
    let is_known = |entry: &&(Key, Node)| IO_KEYS.contains(&entry.0.name.as_str());
    let mut blocks = root.clone();
    blocks.value = Value::Map(entries.iter().filter(is_known).cloned().collect());
    let mut parsed = parse_with(&blocks, file_name, BlockDocuments::EMPTY);
    let reader = reader::Reader::with_blocks(file_name, root, BlockDocuments::EMPTY);
    let unknown = entries.iter().filter(|entry| !is_known(entry));
    let unknown = unknown.map(|(key, _)| reader.unknown_key(root, key, &IO_KEYS, None));
    parsed.errors.splice(0..0, unknown);
    if !parsed.errors.is_empty() {
        parsed.manifest = None;
    }
    parsed
}

/// Reads a manifest whose blocks all stand in it. `file_name` is repeated in every error.
///
/// # Errors
/// [`ManifestError`]: the first thing that is not accepted, and where it stands.
pub fn parse(text: &[u8], format: Format, file_name: &str) -> Result<Manifest, ManifestError> {
    let root = document::parse(text, format)
        .map_err(|error| ManifestError::of_document(file_name, error))?;
    let (manifest, errors) = read(&root, file_name, BlockDocuments::EMPTY);
    match errors.into_iter().next() {
        Some(first) => Err(first),
        None => Ok(manifest),
    }
}

/// The manifest as far as it can be read, and what is wrong with it.
fn read(root: &Node, file: &str, blocks: &BlockDocuments) -> (Manifest, Vec<ManifestError>) {
    let mut reader = reader::Reader::with_blocks(file, root, blocks);
    let manifest = top_level::read(&mut reader);
    (manifest, reader.errors())
}

/// The manifest of a bundle that has none: everything by default.
#[must_use]
pub fn empty() -> Manifest {
    Manifest::default()
}

impl Manifest {
    /// Who asks for its secrets.
    #[must_use]
    pub fn consumer(&self) -> Consumer {
        Consumer {
            kind: self.kind,
            id: self.id.clone(),
            name: self.name.clone(),
        }
    }

    /// The same, asking in the name of `who` for what a lean `secrets: {ref: …}` lets it have.
    #[must_use]
    pub fn asking_for(&self, who: &Consumer) -> Self {
        let mut asking = self.clone();
        if self.inventories.iter().any(|one| one.is_requested) {
            asking.secrets.retain(|request| request.source != "secrets");
            asking.request_of_inventories(who);
        }
        asking
    }

    /// Asks, in the name of `who`, for what a lean `secrets: {ref: …}` lets it have; whether there
    /// is any of it.
    pub(crate) fn request_of_inventories(&mut self, who: &Consumer) -> bool {
        let wanted = secrets::of_inventories(&self.inventories, who);
        let mut any = false;
        for request in wanted {
            any = true;
            let name = &request.variable;
            let in_sandbox = |known: &SecretRequest| {
                known.variable == *name && known.source.starts_with("sandbox.")
            };
            let named = self.secrets.iter().any(in_sandbox) || self.env_passthrough.contains(name);
            if !named && !self.secrets.contains(&request) {
                self.secrets.push(request);
            }
        }
        any
    }

    /// What `<toolId>` and `<workflowId>` stand for: `id`, else `name`.
    #[must_use]
    pub fn token_id(&self) -> Option<&str> {
        self.id.as_deref().or(self.name.as_deref())
    }

    /// Whether this manifest can be executed as it is: its files are here, its provider is this
    /// program, its sandbox is not read-only.
    ///
    /// # Errors
    /// The first of [`Manifest::refusals`].
    pub fn check_executable(&self) -> Result<(), ManifestError> {
        match self.refusals.first() {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(()),
        }
    }
}
