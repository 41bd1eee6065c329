//! Parses manifests.
//!
//! [`crate::document`] parses the text to a tree with the place of every value. The blocks of the
//! specifications are then read from the tree, each with its own rules. Unknown keys are refused. A
//! manifest only *requests*: other modules grant.

mod advice;
mod blocks;
pub mod commits;
mod cross_checks;
pub(crate) mod fields;
mod findings;
mod inherit;
mod io_document;
pub(crate) mod legacy;
pub(crate) mod network;
mod of_command;
mod problem;
pub(crate) mod reader;
mod references;
mod resolved;
pub(crate) mod run;
pub mod schema;
pub(crate) mod secrets;
mod top_level;
mod workspace_sources;

pub use crate::document::Format;
pub use blocks::{
    BlockDocument, BlockDocuments, BlockForm, BlockReference, ReferenceTarget, block_references,
    block_references_of_sandbox, is_slug,
};
pub use commits::SourceCommit;
pub(crate) use cross_checks::IO_KEYS;
pub use findings::ERRORS_MAX;
pub use inherit::{Inherited, Level, inherit};
pub use io_document::parse_io;
pub use network::EgressRequest;
pub use of_command::check_for_command;
pub(crate) use problem::PLAINTEXT_CREDENTIAL;
pub(crate) use problem::did_you_mean;
pub use problem::{ManifestError, Problem};
pub use references::{
    CodeReference, GitHubReference, SourceNode, code_references, github_references, source_nodes,
};
pub use resolved::resolved;
pub(crate) use secrets::is_variable_name;
pub(crate) use secrets::slug_of_variable;
pub use secrets::{SecretReference, SecretRequest};
pub use workspace_sources::WorkspaceSource;

use crate::code_block::CodeSource;
use crate::document::{self, Node};
use crate::inventory::{Consumer, Inventory};
use crate::io::IoBlocks;
use crate::limits::Limit;
use crate::parse_permit::ParsePermit;
use crate::report::WarningReport;
use crate::run_form::Run;
use crate::runner_block::RunnerBlock;
use crate::sandbox_block::{MountRequest, SANDBOX_AUTH, SandboxBlock};

/// Warnings that `--strict` turns into refusals.
pub const STRICT_REFUSES: [&str; 2] = ["config_missing", "unspecified_key"];

/// The kind of a manifest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Tool,
    Workflow,
    CodeWorkspace,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Tool, Self::Workflow, Self::CodeWorkspace];

    /// The value of the key `kind`.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Workflow => "workflow",
            Self::CodeWorkspace => "code-workspace",
        }
    }
}

/// A limit of one key. The strictest of several wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedLimit {
    pub limit: Limit,
    /// In the unit of the limit's name; at least 1.
    pub value: u64,
    pub source: String,
}

/// A restriction on who may run this. It needs a grant and is never ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restriction {
    pub source: &'static str,
    pub value: Option<String>,
}

/// A parsed manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifest {
    pub kind: Kind,
    pub id: Option<String>,
    /// `name`. The caller may set the folder name if there is none.
    pub name: Option<String>,
    pub version: Option<String>,
    pub description: Option<String>,
    /// `run`, or the older `entry`.
    pub run: Option<Run>,
    /// `code`, or the lean `source`: files to fetch.
    pub code: Vec<CodeSource>,
    /// `runner`, or `runtime`, its alias.
    pub runner: RunnerBlock,
    pub limits: Vec<StatedLimit>,
    pub egress: Vec<EgressRequest>,
    pub secrets: Vec<SecretRequest>,
    /// The named inventories. A resolved manifest carries their contents.
    pub inventories: Vec<Inventory>,
    pub env_passthrough: Vec<String>,
    /// Mounts of the workspace, parents first.
    pub mounts: Vec<MountRequest>,
    /// Its presence sets the default time limit of 30 s.
    pub sandbox: Option<SandboxBlock>,
    pub io: IoBlocks,
    pub workspace_sources: Vec<WorkspaceSource>,
    pub commits: Vec<SourceCommit>,
    pub restrictions: Vec<Restriction>,
    pub warnings: Vec<WarningReport>,
    /// JSON Pointers of valid values that have no effect.
    pub ignored: Vec<String>,
    /// Valid requests that this program does not support. The first one refuses the run.
    pub refusals: Vec<ManifestError>,
}

/// A manifest, or its errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub manifest: Option<Manifest>,
    /// Those of the manifest, also if it has errors.
    pub warnings: Vec<WarningReport>,
    /// In the order of the text: at most [`ERRORS_MAX`], and one more that counts the rest.
    pub errors: Vec<ManifestError>,
}

/// Reads a manifest, with blocks from other documents. `file_name` is the name of the manifest in
/// errors.
#[must_use]
pub fn parse_with(root: &Node, file_name: &str, blocks: &BlockDocuments) -> Parsed {
    let mut reader = reader::Reader::with_blocks(file_name, root, blocks);
    let manifest = top_level::read(&mut reader);
    parsed(manifest, &reader)
}

fn parsed(manifest: Manifest, reader: &reader::Reader<'_>) -> Parsed {
    let errors = reader.errors();
    Parsed {
        warnings: manifest.warnings.clone(),
        manifest: errors.is_empty().then_some(manifest),
        errors,
    }
}

/// Parses a manifest without external blocks. `file_name` is used in errors.
///
/// # Errors
/// [`ManifestError`]: the first error and its place.
pub fn parse(
    permit: &ParsePermit,
    text: &[u8],
    format: Format,
    file_name: &str,
) -> Result<Manifest, ManifestError> {
    let root = document::parse(permit, text, format)
        .map_err(|error| ManifestError::of_document(file_name, error))?;
    let mut reader = reader::Reader::with_blocks(file_name, &root, BlockDocuments::EMPTY);
    let manifest = top_level::read(&mut reader);
    reader.errors().into_iter().next().map_or(Ok(manifest), Err)
}

/// The default manifest, for bundles without one.
#[must_use]
pub fn empty() -> Manifest {
    Manifest::default()
}

impl Manifest {
    /// The consumer that requests the secrets of this manifest.
    #[must_use]
    pub fn consumer(&self) -> Consumer {
        Consumer {
            kind: self.kind,
            id: self.id.clone(),
            name: self.name.clone(),
        }
    }

    /// The same manifest, with the requests of `secrets: {ref: …}` and of `sandbox.env.auth` made as `who`.
    #[must_use]
    pub fn requesting_as(&self, who: &Consumer) -> Self {
        let mut manifest = self.clone();
        manifest.look_up_variables(who);
        if self.inventories.iter().any(|one| one.is_requested) {
            manifest
                .secrets
                .retain(|request| request.source != "secrets");
            manifest.request_from_inventories(who);
        }
        manifest
    }

    /// Sets the slugs of the variables of `sandbox.env.auth` for `who`.
    pub(crate) fn look_up_variables(&mut self, who: &Consumer) {
        for request in &mut self.secrets {
            let mut inventories = self.inventories.iter();
            let entry = inventories.find_map(|one| one.entry_of_variable(&request.variable, who));
            if let Some(entry) = entry.filter(|_| request.source == SANDBOX_AUTH) {
                request.reference = SecretReference::Vault(entry.slug.clone());
            }
        }
    }

    /// Adds the requests of `secrets: {ref: …}`, made as `who`. A variable of the sandbox keeps its
    /// own source. Returns whether an inventory grants any secret to `who`.
    pub(crate) fn request_from_inventories(&mut self, who: &Consumer) -> bool {
        let requests = secrets::of_inventories(&self.inventories, who);
        let has_requests = !requests.is_empty();
        for request in requests {
            let name = &request.variable;
            let is_of_sandbox = |known: &SecretRequest| {
                known.variable == *name && known.source.starts_with("sandbox.")
            };
            let has_source =
                self.secrets.iter().any(is_of_sandbox) || self.env_passthrough.contains(name);
            if !has_source && !self.secrets.contains(&request) {
                self.secrets.push(request);
            }
        }
        has_requests
    }

    /// The value of `<toolId>` and `<workflowId>`: `id`, else `name`.
    #[must_use]
    pub fn token_id(&self) -> Option<&str> {
        self.id.as_deref().or(self.name.as_deref())
    }

    /// Checks that this program can execute the manifest as it is: files are local, the provider is
    /// this program, the sandbox is writable.
    ///
    /// # Errors
    /// The first of [`Manifest::refusals`].
    pub fn check_executable(&self) -> Result<(), ManifestError> {
        self.refusals.first().cloned().map_or(Ok(()), Err)
    }
}
