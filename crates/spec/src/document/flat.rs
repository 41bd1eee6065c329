//! A document as a list without nesting, for a message between processes: each list and map states the
//! number of its values, which follow it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::document::budget::{Budget, check_depth};
use crate::document::json::is_number;
use crate::document::{Key, Node, Place, Value};

/// A value without the values in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlatNode(Place, FlatValue);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum FlatValue {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(usize),
    Map(Vec<(String, Place)>),
}

/// Lists the values of `root`, each before those in it.
#[must_use]
pub fn flatten(root: &Node) -> Vec<FlatNode> {
    let mut list = Vec::new();
    put(root, &mut list);
    list
}

fn put(node: &Node, list: &mut Vec<FlatNode>) {
    let mut push = |value| list.push(FlatNode(node.place, value));
    match &node.value {
        Value::Null => push(FlatValue::Null),
        Value::Bool(value) => push(FlatValue::Bool(*value)),
        Value::Number(text) => push(FlatValue::Number(text.clone())),
        Value::Text(text) => push(FlatValue::Text(text.clone())),
        Value::List(values) => {
            push(FlatValue::List(values.len()));
            values.iter().for_each(|value| put(value, list));
        }
        Value::Map(entries) => {
            let keys = entries.iter().map(|(key, _)| (key.name.clone(), key.place));
            push(FlatValue::Map(keys.collect()));
            entries.iter().for_each(|(_, value)| put(value, list));
        }
    }
}

/// Restores the document. `None` if no text within the limits has these values.
#[must_use]
pub fn restore(list: Vec<FlatNode>) -> Option<Node> {
    let mut list = list.into_iter();
    let root = take(&mut list, &mut Budget::new(), 0)?;
    list.next().is_none().then_some(root)
}

fn take(
    list: &mut impl Iterator<Item = FlatNode>,
    budget: &mut Budget,
    depth: usize,
) -> Option<Node> {
    let FlatNode(place, value) = list.next()?;
    let bytes = match &value {
        FlatValue::Number(text) | FlatValue::Text(text) => text.len(),
        FlatValue::Map(keys) => keys.iter().map(|(name, _)| name.len()).sum(),
        FlatValue::Null | FlatValue::Bool(_) | FlatValue::List(_) => 0,
    };
    budget.charge(place, 1, bytes).ok()?;
    let value = match value {
        FlatValue::Null => Value::Null,
        FlatValue::Bool(value) => Value::Bool(value),
        FlatValue::Number(text) => Value::Number(is_number(&text).then_some(text)?),
        FlatValue::Text(text) => Value::Text(text),
        FlatValue::List(count) => {
            check_depth(place, depth + 1).ok()?;
            let mut values = Vec::new();
            for _ in 0..count {
                values.push(take(list, budget, depth + 1)?);
            }
            Value::List(values)
        }
        FlatValue::Map(keys) => {
            check_depth(place, depth + 1).ok()?;
            let mut names = BTreeSet::new();
            let mut entries = Vec::new();
            for (name, place) in keys {
                if !names.insert(name.clone()) {
                    return None;
                }
                entries.push((Key { name, place }, take(list, budget, depth + 1)?));
            }
            Value::Map(entries)
        }
    };
    Some(Node { place, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{DEPTH_MAX, Format, VALUES_MAX, parse};
    use crate::parse_permit::PERMIT;

    #[test]
    fn a_document_is_restored_as_it_was() {
        for text in [
            "a: 1\nb: [true, null, {c: -1.5e3, d: \"x\"}]\ne: {}\nf: []\n",
            "just text",
        ] {
            let root = parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document");
            let sent = serde_json::to_string(&flatten(&root)).expect("JSON");
            let list = serde_json::from_str(&sent).expect("JSON");
            assert_eq!(restore(list), Some(root));
        }
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        let root = parse(&PERMIT, deep.as_bytes(), Format::Yaml).expect("a document");
        assert_eq!(restore(flatten(&root)), Some(root));
    }

    #[test]
    fn a_list_that_no_document_has_is_refused() {
        let node = |value| FlatNode(Place::START, value);
        let key = |name: &str| (name.to_owned(), Place::START);
        let deep = |levels| {
            let lists = std::iter::repeat_n(node(FlatValue::List(1)), levels);
            lists.chain([node(FlatValue::Null)]).collect()
        };
        assert!(restore(deep(DEPTH_MAX)).is_some());
        for bad in [
            vec![],
            vec![node(FlatValue::Null), node(FlatValue::Null)],
            vec![node(FlatValue::List(2)), node(FlatValue::Null)],
            vec![node(FlatValue::List(usize::MAX))],
            vec![node(FlatValue::Number("0x10".to_owned()))],
            vec![
                node(FlatValue::Map(vec![key("a"), key("a")])),
                node(FlatValue::Null),
                node(FlatValue::Null),
            ],
            deep(DEPTH_MAX + 1),
            std::iter::once(node(FlatValue::List(VALUES_MAX)))
                .chain(std::iter::repeat_n(node(FlatValue::Null), VALUES_MAX))
                .collect(),
        ] {
            assert_eq!(restore(bad.clone()), None, "{:?}", bad.first());
        }
    }
}
