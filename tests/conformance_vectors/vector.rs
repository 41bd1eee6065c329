//! A vector, as tests/conformance/README.md defines it.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

/// One vector.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    /// A sentence, unique in its file.
    pub(crate) name: String,
    /// Its position in the text.
    pub(crate) spec: String,
    /// The action.
    #[serde(rename = "do")]
    pub(crate) action: Action,
    /// The manifest: its text, or a map that is written as JSON.
    pub(crate) manifest: Option<Value>,
    /// Its path in the workspace.
    pub(crate) manifest_file: Option<String>,
    /// `resolve` and `bundle`: what the caller names instead of the file of the manifest.
    pub(crate) subject: Option<String>,
    /// The files of the workspace, of the directory, or of the bundle.
    #[serde(default)]
    pub(crate) files: Map<String, Value>,
    /// Repositories and their commits.
    #[serde(default)]
    pub(crate) github: Map<String, Value>,
    /// Settings of the host.
    #[serde(default)]
    pub(crate) host: Host,
    /// Settings of the caller.
    #[serde(default)]
    pub(crate) options: Options,
    /// `exec_form`: the value of `run`; absent if nothing states what to run.
    #[serde(default, deserialize_with = "present")]
    pub(crate) run: Option<Value>,
    /// `exec_form`: the programs on the PATH inside.
    #[serde(default)]
    pub(crate) host_programs: HostPrograms,
    /// `exec_form`: the arguments that the caller appends.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// `unpack`: the members of the archive.
    #[serde(default)]
    pub(crate) archive: Vec<Map<String, Value>>,
    /// `unpack`: the damage to the archive.
    #[serde(default)]
    pub(crate) damage: Damage,
    /// `define_…`: the defined block.
    pub(crate) definition: Option<Value>,
    /// `define_runner`: the origin of the manifest.
    pub(crate) origin: Option<String>,
    /// `define_io`: an input to validate.
    #[serde(default, deserialize_with = "present")]
    pub(crate) validate: Option<Value>,
    /// `tokens`: the path.
    pub(crate) path: Option<String>,
    /// `tokens`: the values of the tokens.
    pub(crate) values: Option<Values>,
    /// `define_code`: the sources.
    pub(crate) code: Option<Value>,
    /// The expected outcome.
    pub(crate) expect: Expect,
}

/// The actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Parse,
    Check,
    Resolve,
    Bundle,
    DefineCode,
    DefineRunner,
    DefineIo,
    DefineSandbox,
    ExecForm,
    Unpack,
    Digest,
    Tokens,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Host {
    /// Registry slug, and the text of its file.
    pub(crate) refs: Map<String, Value>,
    pub(crate) images: Vec<Image>,
    pub(crate) caps: Caps,
    pub(crate) require_pin: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) languages: Vec<String>,
    pub(crate) native: Vec<String>,
    pub(crate) cost_tier: u32,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Caps {
    pub(crate) archive_bytes: Option<u64>,
    pub(crate) unpacked_bytes: Option<u64>,
    pub(crate) entries: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Options {
    pub(crate) follow_symlinks: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of independent facts, each with a name"
)]
pub(crate) struct HostPrograms {
    pub(crate) node: Option<String>,
    pub(crate) python: bool,
    pub(crate) python3: bool,
    pub(crate) bash: bool,
    pub(crate) tsx: bool,
    pub(crate) npx: bool,
    pub(crate) npm_registry: bool,
}

impl Default for HostPrograms {
    fn default() -> Self {
        Self {
            node: Some("v22.18.0".to_owned()),
            python: true,
            python3: true,
            bash: true,
            tsx: false,
            npx: true,
            npm_registry: false,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Damage {
    pub(crate) trailing: String,
    pub(crate) twice: bool,
    pub(crate) truncate: usize,
    pub(crate) uncompressed: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Values {
    pub(crate) run_id: String,
    pub(crate) manifest_id: String,
    pub(crate) unix_s: i64,
}

/// The expected outcome. Absent fields are not compared.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) error: Option<String>,
    pub(crate) errors: Option<Vec<ExpectedError>>,
    pub(crate) at: Option<String>,
    pub(crate) names: Vec<String>,
    pub(crate) names_not: Vec<String>,
    pub(crate) warnings: Option<Vec<String>>,
    pub(crate) tree: Option<Map<String, Value>>,
    pub(crate) digest: Option<String>,
    pub(crate) manifest: Option<Value>,
    pub(crate) provenance: Option<Value>,
    pub(crate) absent: Vec<String>,
    pub(crate) asks: Option<Value>,
    pub(crate) handle: Option<Value>,
    pub(crate) resolved: Option<Value>,
    pub(crate) form: Option<String>,
    pub(crate) argv: Option<Vec<String>>,
    pub(crate) path: Option<String>,
    pub(crate) valid: Option<bool>,
}

impl Expect {
    pub(crate) fn says_something(&self) -> bool {
        let told = self.error.is_some() || self.errors.is_some() || self.valid.is_some();
        let made = self.tree.is_some() || self.digest.is_some() || self.manifest.is_some();
        let read = self.asks.is_some() || self.handle.is_some() || self.warnings.is_some();
        told || made || read || self.argv.is_some() || self.path.is_some()
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedError {
    pub(crate) error: String,
    pub(crate) at: String,
}

/// A present value, which may be null.
fn present<'text, D: serde::Deserializer<'text>>(reader: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(reader).map(Some)
}

/// The vectors of a file.
pub(crate) fn read(file: &Path) -> Vec<Vector> {
    let text = std::fs::read_to_string(file).expect("readable");
    // YAML 1.2: `y`, `no` and `on` are strings.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
