//! YAML 1.2 (core schema), composed from the parser's events with an explicit stack.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{
    ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag,
};

use crate::document::budget::{Budget, check_depth};
use crate::document::json::{is_digits, is_number};
use crate::document::mistake::{other_space, recognise};
use crate::document::{
    DEPTH_MAX, DocumentError, DocumentProblem, Key, Node, Place, Value, excerpt,
};

pub(super) fn parse(text: &str, lines_before: u32) -> Result<Node, DocumentError> {
    let options = serde_saphyr::granit_parser::options! {
        disallow_directives: true,
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut composer = Composer {
        lines_before,
        budget: Budget::new(),
        stack: Vec::new(),
        anchors: HashMap::new(),
        documents: 0,
        root: None,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| composer.scan_error(&error, text))?;
        composer.add_event(event, span)?;
    }
    composer.root.ok_or_else(|| {
        DocumentError::new(
            Some(Place {
                line: lines_before.saturating_add(1),
                column: 1,
            }),
            DocumentProblem::Empty,
        )
    })
}

struct Composer {
    lines_before: u32,
    budget: Budget,
    stack: Vec<OpenNode>,
    /// Finished values with an anchor. Open ones are absent.
    anchors: HashMap<usize, Anchored>,
    documents: usize,
    root: Option<Node>,
}

struct OpenNode {
    place: Place,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<(Key, Node)>,
        seen: HashMap<String, Place>,
        key: Option<Key>,
    },
}

struct Anchored {
    node: Node,
    size: Size,
}

#[derive(Clone, Copy)]
struct Size {
    values: usize,
    bytes: usize,
    height: usize,
}

impl Composer {
    fn place(&self, marker: &Marker) -> Place {
        let line = u32::try_from(marker.line()).unwrap_or(u32::MAX);
        let column = u32::try_from(marker.col()).unwrap_or(u32::MAX);
        Place {
            line: line.saturating_add(self.lines_before),
            column: column.saturating_add(1),
        }
    }

    fn scan_error(&self, error: &ScanError, text: &str) -> DocumentError {
        let place = self.place(error.marker());
        let in_text = Place {
            line: place.line.saturating_sub(self.lines_before),
            ..place
        };
        if let Some((found, problem)) = recognise(error.kind(), text, in_text) {
            let place = Place {
                line: found.line.saturating_add(self.lines_before),
                ..found
            };
            return DocumentError::new(Some(place), problem);
        }
        let problem = match error.kind() {
            ErrorKind::RecursionLimitExceeded => DocumentProblem::TooDeep {
                depth_max: DEPTH_MAX,
            },
            kind => DocumentProblem::Syntax {
                reason: escape_message(&kind.to_string()),
            },
        };
        DocumentError::new(Some(place), problem)
    }

    fn add_event(&mut self, event: Event<'_>, span: Span) -> Result<(), DocumentError> {
        let place = self.place(&span.start);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(DocumentError::new(
                        Some(place),
                        DocumentProblem::SecondDocument,
                    ));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(span, tag.as_deref())?;
                self.scalar(place, &text, style, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(span, tag.as_deref())?;
                self.open(place, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(span, tag.as_deref())?;
                let content = Content::Map {
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                };
                self.open(place, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(place, anchor),
            // Stream events and document ends have no content. Comments, anchors and unresolved
            // aliases are not emitted with these options.
            _ => Ok(()),
        }
    }

    fn refuse_tag(&self, span: Span, tag: Option<&Tag>) -> Result<(), DocumentError> {
        let Some(tag) = tag else {
            return Ok(());
        };
        let written = span.tag_span().unwrap_or(span);
        Err(DocumentError::new(
            Some(self.place(&written.start)),
            DocumentProblem::Tag {
                tag: excerpt(&tag.to_string()),
            },
        ))
    }

    /// Whether the next value is the key of a map.
    fn is_at_key(&self) -> bool {
        matches!(
            self.stack.last(),
            Some(OpenNode {
                content: Content::Map { key: None, .. },
                ..
            })
        )
    }

    fn open(&mut self, place: Place, anchor: usize, content: Content) -> Result<(), DocumentError> {
        if self.is_at_key() {
            let found = match content {
                Content::List(_) => "a list",
                Content::Map { .. } => "a map",
            };
            return Err(key_not_text(place, found.to_owned()));
        }
        check_depth(place, self.stack.len() + 1)?;
        self.budget.charge(place, 1, 0)?;
        self.stack.push(OpenNode {
            place,
            anchor,
            content,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), DocumentError> {
        let Some(open) = self.stack.pop() else {
            return Ok(());
        };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        let node = Node {
            place: open.place,
            value,
        };
        self.store_anchor(open.anchor, &node)?;
        self.put(node);
        Ok(())
    }

    fn scalar(
        &mut self,
        place: Place,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
    ) -> Result<(), DocumentError> {
        let is_plain = style == ScalarStyle::Plain;
        if self.is_at_key() {
            self.key(place, text, is_plain)?;
            let value = Value::Text(text.to_owned());
            return self.store_anchor(anchor, &Node { place, value });
        }
        self.budget.charge(place, 1, text.len())?;
        if let Some(problem) = other_space(text, false).filter(|_| is_plain) {
            return Err(DocumentError::new(Some(place), problem));
        }
        let value = if is_plain {
            resolve_plain(text).map_err(|problem| DocumentError::new(Some(place), problem))?
        } else {
            Value::Text(text.to_owned())
        };
        let node = Node { place, value };
        self.store_anchor(anchor, &node)?;
        self.put(node);
        Ok(())
    }

    fn key(&mut self, place: Place, text: &str, is_plain: bool) -> Result<(), DocumentError> {
        if is_plain {
            if let Some(problem) = other_space(text, true) {
                return Err(DocumentError::new(Some(place), problem));
            }
            if text == "<<" {
                return Err(DocumentError::new(Some(place), DocumentProblem::MergeKey));
            }
            match resolve_plain(text) {
                Ok(Value::Text(_)) => (),
                Ok(Value::Null) if text.is_empty() => {
                    return Err(key_not_text(place, "nothing".to_owned()));
                }
                _ => return Err(key_not_text(place, format!("`{}`", excerpt(text)))),
            }
        }
        self.budget.charge(place, 0, text.len())?;
        let Some(OpenNode {
            content: Content::Map { seen, key, .. },
            ..
        }) = self.stack.last_mut()
        else {
            return Ok(());
        };
        if let Some(first) = seen.insert(text.to_owned(), place) {
            return Err(DocumentError::new(
                Some(place),
                DocumentProblem::DuplicateKey {
                    name: excerpt(text),
                    first,
                },
            ));
        }
        *key = Some(Key {
            name: text.to_owned(),
            place,
        });
        Ok(())
    }

    fn alias(&mut self, place: Place, anchor: usize) -> Result<(), DocumentError> {
        if self.is_at_key() {
            return Err(key_not_text(place, "an alias".to_owned()));
        }
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(DocumentError::new(Some(place), DocumentProblem::AliasCycle));
        };
        self.budget
            .charge(place, anchored.size.values, anchored.size.bytes)?;
        check_depth(place, self.stack.len() + anchored.size.height)?;
        let mut node = anchored.node.clone();
        node.place = place;
        self.put(node);
        Ok(())
    }

    /// Stores a copy of an anchored value. The copy is charged too: nested anchors multiply.
    fn store_anchor(&mut self, anchor: usize, node: &Node) -> Result<(), DocumentError> {
        if anchor == 0 {
            return Ok(());
        }
        let size = size(node);
        self.budget.charge(node.place, size.values, size.bytes)?;
        self.anchors.insert(
            anchor,
            Anchored {
                node: node.clone(),
                size,
            },
        );
        Ok(())
    }

    fn put(&mut self, node: Node) {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(open) => match &mut open.content {
                Content::List(items) => items.push(node),
                Content::Map { entries, key, .. } => {
                    if let Some(key) = key.take() {
                        entries.push((key, node));
                    }
                }
            },
        }
    }
}

fn key_not_text(place: Place, found: String) -> DocumentError {
    DocumentError::new(Some(place), DocumentProblem::KeyNotText { found })
}

/// Escapes the parser's message. It has characters of the text, some of them already escaped.
fn escape_message(text: &str) -> String {
    crate::path::escape(text.as_bytes()).replace("\\\\", "\\")
}

fn size(node: &Node) -> Size {
    let mut total = Size {
        values: 1,
        bytes: 0,
        height: 0,
    };
    let mut add = |bytes: usize, child: &Node| {
        let size = size(child);
        total.values += size.values;
        total.bytes += size.bytes + bytes;
        total.height = total.height.max(size.height);
    };
    match &node.value {
        Value::List(items) => {
            items.iter().for_each(|item| add(0, item));
            total.height += 1;
        }
        Value::Map(entries) => {
            for (key, child) in entries {
                add(key.name.len(), child);
            }
            total.height += 1;
        }
        Value::Text(text) | Value::Number(text) => total.bytes = text.len(),
        Value::Null | Value::Bool(_) => (),
    }
    total
}

/// Resolves a plain scalar by the core schema of YAML 1.2, § 10.3.2.
fn resolve_plain(text: &str) -> Result<Value, DocumentProblem> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => (),
    }
    if is_number(text) {
        return Ok(Value::Number(text.to_owned()));
    }
    if is_core_number(text) {
        return Err(DocumentProblem::AmbiguousNumber {
            found: excerpt(text),
        });
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(DocumentProblem::NotFinite {
            found: text.to_owned(),
        });
    }
    Ok(Value::Text(text.to_owned()))
}

fn is_core_number(text: &str) -> bool {
    if let Some(digits) = text.strip_prefix("0o") {
        return !digits.is_empty() && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits_or_empty = |part: &str| part.is_empty() || is_digits(part);
    let exponent = exponent.map(|digits| digits.strip_prefix(['+', '-']).unwrap_or(digits));
    is_digits_or_empty(whole)
        && is_digits_or_empty(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_has_the_value_of_a_key_or_of_a_finished_value() {
        for (text, expected) in [
            ("&k name: x\nid: *k\n", r#"{"name":"x","id":"name"}"#),
            ("name: &v x\nid: *v\n", r#"{"name":"x","id":"x"}"#),
        ] {
            let root = parse(text, 0).expect("a document");
            assert_eq!(root.to_json().expect("JSON").to_string(), expected);
        }
        let cycle = parse("a: &a [*a]\n", 0).expect_err("a cycle");
        assert_eq!(cycle.problem, DocumentProblem::AliasCycle);
    }
}
