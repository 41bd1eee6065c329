//! Denials by kind, the most frequent first, each with its hint.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::page::document::{Denial, Document};
use crate::page::text::{Text, as_f64, beyond, count, duration, spaced};
use spec::denial_reason::DenialReason;

/// Rows of all groups together: a body can cause as many denials as it likes.
const ROWS_MAX: usize = 150;
/// Fields that the report of some kinds has: those shown of each denial.
const DETAILS_MAX: usize = 4;
/// Parts of the object, which names them together.
const PARTS_OF_OBJECT: [&str; 3] = ["host", "ip", "port"];

#[derive(Debug)]
pub(super) struct Group {
    pub(super) title: String,
    pub(super) total: String,
    pub(super) rows: Vec<DenialRow>,
    pub(super) beyond: Option<String>,
}

#[derive(Debug)]
pub(super) struct DenialRow {
    pub(super) object: Text,
    /// Why, by which rule, how often and when.
    pub(super) why: String,
    pub(super) hint: Option<Text>,
}

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) kind: Text,
    pub(super) text: Text,
}

pub(super) fn groups(report: &Document) -> Vec<Group> {
    let mut kinds: BTreeMap<&Text, Vec<&Denial>> = BTreeMap::new();
    for denial in &report.denials {
        kinds.entry(&denial.kind).or_default().push(denial);
    }
    let mut left = ROWS_MAX;
    let mut remaining = kinds.len();
    let group = |(kind, mut denials): (&Text, Vec<&Denial>)| {
        denials.sort_by_key(|denial| std::cmp::Reverse(denial.count));
        // What a kind does not need is left to the kinds after it.
        let shown = (left / remaining).min(denials.len());
        left -= shown;
        remaining -= 1;
        let counted = counted(report, kind.as_str());
        let distinct = u64::try_from(denials.len()).unwrap_or(u64::MAX);
        Group {
            title: title(kind.as_str()),
            total: count(distinct.saturating_add(counted), "denial"),
            beyond: beyond(denials.len(), shown, counted),
            rows: denials
                .iter()
                .take(shown)
                .map(|denial| row(denial))
                .collect(),
        }
    };
    kinds.into_iter().map(group).collect()
}

/// Denials of a kind that the report counts and does not list.
fn counted(report: &Document, kind: &str) -> u64 {
    let (key, elsewhere) = match kind {
        "net" => ("network", report.egress.denials_beyond),
        "file" => ("files", 0),
        "syscall" => ("syscalls", 0),
        "resource" => ("resources", 0),
        other => (other, 0),
    };
    let observed = report.observation.get(key);
    let beyond = observed.and_then(|observed| observed["beyond"].as_u64());
    beyond.unwrap_or_default().max(elsewhere)
}

/// The title of a kind of denials, or of what was observed.
fn title(kind: &str) -> String {
    match kind {
        "net" | "network" => "Network".to_owned(),
        "file" | "files" => "Files".to_owned(),
        "syscall" | "syscalls" => "System calls".to_owned(),
        "exec" => "Programs".to_owned(),
        "signal" => "Signals".to_owned(),
        "resource" | "resources" => "Resources".to_owned(),
        other => spaced(other),
    }
}

fn row(denial: &Denial) -> DenialRow {
    let reason = denial.reason.as_ref().map(|reason| {
        let mut reasons = DenialReason::ALL.into_iter().map(DenialReason::row);
        let known = reasons.find(|row| row.code == reason.as_str());
        known.map_or_else(|| reason.to_string(), |row| row.words.to_owned())
    });
    let rule = denial.rule.as_ref().filter(|rule| !rule.is_empty());
    let rule = rule.map(|rule| format!("rule {rule}"));
    let times = (denial.count > 1).then(|| count(denial.count, "time"));
    let first = denial.first_ms.map(as_f64).map(duration);
    let first = first.map(|first| match times {
        Some(_) => format!("first after {first}"),
        None => format!("after {first}"),
    });
    let parts = [reason, rule, details(&denial.rest), times, first];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    DenialRow {
        object: denial.object.clone().unwrap_or_else(|| "unknown".into()),
        why: parts.join(" · "),
        hint: denial.hint.clone(),
    }
}

/// Fields that are no list and no object, by their names.
fn details(rest: &Map<String, Value>) -> Option<String> {
    let shown = rest.iter().filter_map(|(name, value)| {
        if PARTS_OF_OBJECT.contains(&name.as_str()) {
            return None;
        }
        let value = scalar(value)?;
        let (name, value) = (Text::from(name.as_str()), Text::from(value.as_str()));
        Some(format!("{} {value}", spaced(name.as_str())))
    });
    let shown: Vec<String> = shown.take(DETAILS_MAX).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Which kinds of denials the run observed, as the report says it.
pub(super) fn observed(report: &Document) -> Vec<Observed> {
    let row = |(kind, value): (&String, &Value)| {
        let text = match value {
            Value::Object(fields) => {
                let mut texts = fields.iter().filter_map(|(name, value)| {
                    let value = scalar(value)?;
                    match name.as_str() {
                        "state" => Some(spaced(&value)),
                        "why" | "reason" => Some(value),
                        // Its group says it.
                        "beyond" => None,
                        name => Some(format!("{} {value}", spaced(name))),
                    }
                });
                let texts: Vec<String> = texts.by_ref().take(DETAILS_MAX).collect();
                texts.join(" · ")
            }
            other => scalar(other)?,
        };
        Some(Observed {
            kind: title(kind).as_str().into(),
            text: text.as_str().into(),
        })
    };
    let rows = report.observation.iter().take(ROWS_MAX);
    rows.filter_map(row).collect()
}
