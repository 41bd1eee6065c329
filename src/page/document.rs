//! What a page reads of a report.
//!
//! The report may be of the history, from another version of this program: what it does not have is
//! as good as `null`, and what this version does not know is left out.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::page::text::{LongText, Text};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Document {
    pub(super) schema_version: Text,
    pub(super) run_id: Text,
    pub(super) runner_version: Text,
    pub(super) started_at: Text,
    pub(super) outcome: String,
    pub(super) exit: Option<Exit>,
    pub(super) cancelled_by: Option<i32>,
    pub(super) error: Option<Problem>,
    #[serde(deserialize_with = "in_order")]
    pub(super) timings_ms: Vec<(Text, f64)>,
    pub(super) usage: Usage,
    pub(super) samples: Option<Vec<Sample>>,
    #[serde(deserialize_with = "in_order")]
    pub(super) limits: Vec<(Text, LimitRow)>,
    #[serde(deserialize_with = "in_order")]
    pub(super) enforcement: Vec<(Text, Enforcement)>,
    pub(super) cgroup_backend: Text,
    pub(super) syscall_policy: Option<Text>,
    pub(super) argv: Vec<Text>,
    pub(super) view: Option<Vec<ViewRow>>,
    pub(super) image: Option<Image>,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
    pub(super) inputs: Vec<File>,
    pub(super) outputs: Vec<File>,
    pub(super) denials: Vec<Denial>,
    /// Which kinds of denials were observed.
    pub(super) observation: Map<String, Value>,
    pub(super) egress: Egress,
    pub(super) bundle: Option<Bundle>,
    pub(super) workspace_sources: Vec<Source>,
    pub(super) secrets: Vec<Secret>,
    pub(super) warnings: Vec<Warning>,
    pub(super) kept: Option<Text>,
}

impl Document {
    /// Whether a sandbox ended because no command ran in it: the outcome is that of the wall time limit.
    pub(super) fn is_ended_by_idle_time(&self) -> bool {
        let mut warnings = self.warnings.iter();
        self.outcome == "timed_out"
            && warnings.any(|warning| warning.code.as_str() == "sandbox_idle")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Exit {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) core_dump: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    pub(super) code: Text,
    pub(super) message: LongText,
    pub(super) hint: Option<LongText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) wall_time_ms: u64,
    pub(super) user_time_ms: Option<u64>,
    pub(super) system_time_ms: Option<u64>,
    pub(super) memory_peak_bytes: Option<u64>,
    pub(super) processes_peak: Option<u64>,
    pub(super) written_bytes: Option<u64>,
    pub(super) oom_kills: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sample {
    pub(super) at_ms: u64,
    pub(super) memory_bytes: Option<u64>,
    pub(super) cpu_time_us: Option<u64>,
    pub(super) processes: Option<u64>,
    pub(super) oom_kills: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitRow {
    pub(super) requested: Option<u64>,
    pub(super) effective: Option<u64>,
    pub(super) enforced_by: Text,
    pub(super) source: Text,
    pub(super) sources: Vec<LimitSource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitSource {
    pub(super) source: Text,
    pub(super) value: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Enforcement {
    pub(super) state: Text,
    pub(super) reason: Option<LongText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ViewRow {
    pub(super) path: Text,
    pub(super) what: String,
    pub(super) from: Option<Text>,
    pub(super) writable: bool,
    pub(super) size_bytes: Option<u64>,
    pub(super) decided_by: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Image {
    pub(super) place: Text,
    pub(super) digest: Option<Text>,
    pub(super) root: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Stream {
    pub(super) bytes: u64,
    pub(super) dropped_bytes: u64,
    pub(super) text: Option<String>,
}

/// An input or an output; only an output has a state.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) key: Text,
    pub(super) path: Text,
    pub(super) state: Option<Text>,
    pub(super) sha256: Option<Text>,
    pub(super) bytes: Option<u64>,
    pub(super) error: Option<Problem>,
}

/// A denial of any kind. Fields that only some kinds have are in `rest`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Denial {
    pub(super) kind: Text,
    pub(super) object: Option<Text>,
    pub(super) rule: Option<Text>,
    pub(super) reason: Option<Text>,
    pub(super) hint: Option<Text>,
    pub(super) count: u64,
    pub(super) first_ms: Option<u64>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Egress {
    pub(super) capture: Text,
    pub(super) allowed: Vec<Text>,
    pub(super) hosts: Vec<Host>,
    pub(super) unreachable: Vec<Unreachable>,
    pub(super) unreachable_beyond: u64,
    pub(super) denials_beyond: u64,
    pub(super) lost_questions: u64,
    pub(super) lost_datagrams: u64,
    pub(super) published: Vec<Published>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Host {
    pub(super) host: Text,
    pub(super) connections: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Unreachable {
    pub(super) host: Text,
    pub(super) port: u16,
    pub(super) cause: Text,
    pub(super) count: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Published {
    pub(super) host_port: u16,
    pub(super) body_port: u16,
    pub(super) connections: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Bundle {
    pub(super) name: Option<Text>,
    pub(super) version: Option<Text>,
    pub(super) content_digest: Text,
    pub(super) archive_digest: Option<Text>,
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Source {
    pub(super) id: Text,
    pub(super) reference: Text,
    pub(super) digest: Option<Text>,
    pub(super) mount_path: Text,
    pub(super) writable: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Secret {
    pub(super) variable: Text,
    pub(super) reference: Text,
    pub(super) provider: Text,
    pub(super) granted_by: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Warning {
    pub(super) code: Text,
    pub(super) message: LongText,
}

/// The values of an object with their names, in the order of the document.
fn in_order<'de, From, Row>(from: From) -> Result<Vec<(Text, Row)>, From::Error>
where
    From: Deserializer<'de>,
    Row: serde::de::DeserializeOwned,
{
    let object = Map::deserialize(from)?;
    object
        .into_iter()
        .map(|(name, value)| {
            let row = Row::deserialize(value).map_err(serde::de::Error::custom)?;
            Ok((Text::from(name.as_str()), row))
        })
        .collect()
}
