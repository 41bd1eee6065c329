//! The documents of `/v1/runs`.

use std::collections::BTreeMap;

use companion::run_state::{RunError, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::serve::types::ErrorBody;

/// Lower-case ULIDs.
pub(in crate::serve) const RUN_ID: &str = "^[0-9a-hjkmnp-tv-z]{26}$";

/// The run to start.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateRun {
    /// What is run. Not with a part `bundle` of a form.
    #[serde(default)]
    pub(super) bundle: Option<BundleReference>,
    /// The name of a template of the server (`--run-templates`). Needed over TCP.
    #[serde(default)]
    pub(super) template: Option<String>,
    /// Flags of `runner exec`, one word each. On the unix socket only; they follow those of the template.
    /// Relative paths begin at the directory in which the server was started.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// The structured input.
    #[serde(default)]
    pub(super) inputs: Option<Value>,
    /// Input files by their keys: the body finds them at `/scratch/KEY`. Larger ones are parts `file.KEY` of a
    /// form.
    #[serde(default)]
    pub(super) files: BTreeMap<String, FileContent>,
    /// Appended to the arguments of the body.
    #[serde(default)]
    pub(super) args: Vec<String>,
}

/// A bundle: one of both.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum BundleReference {
    /// A file or a directory of the host of the server. On the unix socket only.
    Path(String),
    /// That of a bundle that was uploaded, `sha256:` and 64 digits.
    Digest(String),
}

/// The content of a file: one of both.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileContent {
    Text(String),
    Base64(String),
}

/// The runs that the client may see, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunList {
    pub(super) runs: Vec<Run>,
}

/// A run.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Run {
    /// Its id for this API.
    #[schemars(regex(pattern = RUN_ID))]
    pub(super) id: String,
    pub(super) state: State,
    /// Why it failed or was cancelled; `null`: it did neither.
    pub(super) error: Option<RunError>,
    /// UTC, RFC 3339, to the millisecond.
    pub(super) created_at: String,
    /// As `created_at`; `null`: it has not started.
    pub(super) started_at: Option<String>,
    /// As `created_at`; `null`: it goes on, or its end is not known.
    pub(super) ended_at: Option<String>,
    /// The id by which `runner ps` and `runner inspect` find it on the host; `null`: it has not started.
    pub(super) run_id: Option<String>,
    /// The path of the bundle, or its digest.
    pub(super) bundle: String,
    pub(super) template: Option<String>,
    /// As in the report of `runner exec`; `null`: it has none.
    pub(super) outcome: Option<String>,
    /// The exit code of the body; `null`: it has none.
    pub(super) exit_code: Option<i32>,
    /// The structured output of the body; `null`: it has none. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Value>,
    /// The output files that the bundle or a flag declares, once the run has ended.
    pub(super) artifacts: Vec<Artifact>,
}

/// A declared output file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Artifact {
    pub(super) key: String,
    /// `synced`: it can be fetched; else `missing`, `failed` or `skipped`.
    pub(super) state: String,
    /// `null`: it is not `synced`.
    pub(super) bytes: Option<u64>,
    /// `null`: it is not `synced`.
    pub(super) sha256: Option<String>,
}

/// One event of a run: a line of `runner exec --events` (`runner schema events`), or of this server as the last
/// one, if the run has no end.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve) struct RunEvent {
    /// 0 for the first event of a run, then one more each. Events whose numbers are missing were lost.
    pub(super) seq: u64,
    /// What happened: `started`, `phase_started` and others; `ended` is the last one. `error`: there is no `ended`.
    pub(super) event: &'static str,
    #[serde(flatten)]
    pub(super) error: Option<ErrorBody>,
}
