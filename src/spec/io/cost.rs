//! How much work a JSON Schema is, found before it is compiled.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::spec::document::{excerpt, pointer_step};
use crate::spec::io::contract::ContractError;

/// Deepest nesting of a schema when its references are followed.
const HEIGHT_MAX: usize = 64;
/// Most values of a schema when its references are followed, each as often as it is referred to.
const EXPANDED_VALUES_MAX: u64 = 100_000;
/// How often a validator looks again at the parts of a schema with `unevaluated…`: once to judge
/// them and again to know what they evaluated. Nested, this multiplies.
const UNEVALUATED_FACTOR: u64 = 4;
/// Most patterns of a schema.
const PATTERNS_MAX: usize = 256;

/// How much work a schema is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// Values, each as often as references lead to it.
    pub(super) expanded_values: u64,
    /// Nesting, references followed.
    pub(super) height: usize,
    /// Whether a part of it refers to something around itself.
    pub(super) recursive: bool,
    /// How many references lead to something around themselves.
    back_references: u64,
}

impl Cost {
    /// Whether judging a document that is `depth` deep visits at most `visits_max` parts, when
    /// nothing is remembered between visits.
    pub(super) fn can_be_retold(self, depth: usize, visits_max: u64) -> bool {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        self.back_references
            .checked_pow(depth)
            .is_some_and(|visits| visits <= visits_max)
    }
}

/// How large a document is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) values: u64,
    pub(super) text_bytes: u64,
    pub(super) depth: usize,
}

/// Measures a document, with a list of what is still to be looked at instead of recursion.
pub(super) fn size_of(document: &Value) -> Size {
    let mut size = Size::default();
    let mut pending = vec![(document, 0_usize)];
    while let Some((value, depth)) = pending.pop() {
        size.values += 1;
        match value {
            Value::String(text) => size.text_bytes += length(text),
            Value::Array(items) => {
                pending.extend(items.iter().map(|item| (item, depth + 1)));
                size.depth = size.depth.max(depth + 1);
            }
            Value::Object(entries) => {
                size.text_bytes += entries.keys().map(|key| length(key)).sum::<u64>();
                pending.extend(entries.values().map(|value| (value, depth + 1)));
                size.depth = size.depth.max(depth + 1);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => (),
        }
    }
    size
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// Analyses a schema.
pub(super) fn of(schema: &Value) -> Result<Cost, ContractError> {
    if HEIGHT_MAX < size_of(schema).depth {
        return Err(too_deep());
    }
    let mut analysis = Analysis {
        root: schema,
        anchors: HashMap::new(),
        known: HashMap::new(),
        open: Vec::new(),
        back_references: 0,
        patterns: 0,
        unevaluated: None,
    };
    analysis.collect_anchors(schema);
    let (expanded_values, height) = analysis.part(schema, "")?;
    if EXPANDED_VALUES_MAX < expanded_values {
        return Err(ContractError::TooMuch {
            values_max: EXPANDED_VALUES_MAX,
        });
    }
    if PATTERNS_MAX < analysis.patterns {
        return Err(ContractError::TooManyPatterns {
            patterns: analysis.patterns,
            patterns_max: PATTERNS_MAX,
        });
    }
    // What was evaluated is not remembered between visits, so each level would double the work.
    if let (1.., Some(pointer)) = (analysis.back_references, analysis.unevaluated) {
        return Err(ContractError::RecursiveUnevaluated { pointer });
    }
    Ok(Cost {
        expanded_values,
        height,
        recursive: 0 < analysis.back_references,
        back_references: analysis.back_references.max(1),
    })
}

const fn too_deep() -> ContractError {
    ContractError::TooDeep {
        depth_max: HEIGHT_MAX,
    }
}

struct Analysis<'schema> {
    root: &'schema Value,
    anchors: HashMap<&'schema str, &'schema Value>,
    /// Values and height of what was analysed, by address.
    known: HashMap<*const Value, (u64, usize)>,
    /// What is being analysed, by address.
    open: Vec<*const Value>,
    back_references: u64,
    patterns: usize,
    /// Where the first `unevaluated…` stands.
    unevaluated: Option<String>,
}

impl<'schema> Analysis<'schema> {
    /// Every `$anchor`, wherever it stands; a name in data only makes the analysis stricter.
    fn collect_anchors(&mut self, value: &'schema Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect_anchors(item)),
            Value::Object(entries) => {
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(Value::String(name)) = entries.get(key) {
                        self.anchors.insert(name, value);
                    }
                }
                entries
                    .values()
                    .for_each(|value| self.collect_anchors(value));
            }
            _ => (),
        }
    }

    /// Values and height of one part of the schema. Whatever it is, it is taken for a schema:
    /// data that looks like one is rare, and a reference may lead into data.
    fn part(
        &mut self,
        value: &'schema Value,
        pointer: &str,
    ) -> Result<(u64, usize), ContractError> {
        let address = std::ptr::from_ref(value);
        if self.open.contains(&address) {
            self.back_references = self.back_references.saturating_add(1);
            return Ok((1, 0));
        }
        if let Some(known) = self.known.get(&address) {
            if HEIGHT_MAX < self.open.len() + known.1 {
                return Err(too_deep());
            }
            return Ok(*known);
        }
        if HEIGHT_MAX < self.open.len() {
            return Err(too_deep());
        }
        self.open.push(address);
        let mut total: (u64, usize) = (1, 0);
        let mut add = |part: (u64, usize)| {
            total = (total.0.saturating_add(part.0), total.1.max(part.1 + 1));
        };
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    add(self.part(item, &format!("{pointer}/{index}"))?);
                }
            }
            Value::Object(entries) => {
                self.check_id(entries, pointer)?;
                self.count_patterns(entries);
                for (key, value) in entries {
                    let below = format!("{pointer}/{}", pointer_step(key));
                    add(self.part(value, &below)?);
                    let refers = matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef");
                    if let (true, Value::String(reference)) = (refers, value) {
                        let target = self.resolve(reference, &below)?;
                        add(self.part(target, &below)?);
                    }
                }
            }
            _ => (),
        }
        for key in ["unevaluatedProperties", "unevaluatedItems"] {
            if value.get(key).is_some() {
                total.0 = total.0.saturating_mul(UNEVALUATED_FACTOR);
                self.unevaluated
                    .get_or_insert_with(|| format!("{pointer}/{key}"));
            }
        }
        self.open.pop();
        self.known.insert(address, total);
        Ok(total)
    }

    fn check_id(&self, entries: &Map<String, Value>, pointer: &str) -> Result<(), ContractError> {
        let has_id = matches!(entries.get("$id"), Some(Value::String(_)));
        if has_id && !pointer.is_empty() {
            return Err(ContractError::NestedId {
                pointer: pointer.to_owned(),
            });
        }
        Ok(())
    }

    fn count_patterns(&mut self, entries: &Map<String, Value>) {
        if let Some(Value::String(_)) = entries.get("pattern") {
            self.patterns += 1;
        }
        if let Some(Value::Object(patterns)) = entries.get("patternProperties") {
            self.patterns += patterns.len();
        }
    }

    fn resolve(&self, reference: &str, pointer: &str) -> Result<&'schema Value, ContractError> {
        let target = match reference.strip_prefix('#') {
            Some("") => Some(self.root),
            Some(path) if path.starts_with('/') => self.root.pointer(&percent_decoded(path)),
            Some(name) => self.anchors.get(name).copied(),
            None => None,
        };
        target.ok_or_else(|| ContractError::Reference {
            pointer: pointer.to_owned(),
            reference: excerpt(reference),
        })
    }
}

/// A pointer in a URI fragment may have `%..` in it (RFC 6901, § 6).
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let decoded = match behind {
            [high, low, ..] if *first == b'%' => hexadecimal(*high, *low),
            _ => None,
        };
        match decoded {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hexadecimal(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}
