//! An inventory of secrets (`SECRETS.md`, AIP-19) as far as a manifest needs it: that it holds no
//! value, and which slug a variable stands for.

use crate::spec::document::{Node, Value};
use crate::spec::manifest::reader::Reader;

/// Notes what an inventory must not say.
pub(crate) fn check<'document>(reader: &Reader<'document>, inventory: &'document Node) {
    crate::spec::inventory::read(reader, inventory);
}

/// The slug whose `exposures` name `variable`.
pub(crate) fn slug_of(inventory: &Node, variable: &str) -> Option<String> {
    let Some(Value::List(items)) = inventory.get("secrets").map(|list| &list.value) else {
        return None;
    };
    items.iter().find_map(|item| {
        let Some(Value::List(exposures)) = item.get("exposures").map(|list| &list.value) else {
            return None;
        };
        let exposed = exposures
            .iter()
            .any(|one| is_text(one.get("kind"), "env") && is_text(one.get("name"), variable));
        match item.get("slug").map(|slug| &slug.value) {
            Some(Value::Text(slug)) if exposed => Some(slug.clone()),
            _ => None,
        }
    })
}

fn is_text(node: Option<&Node>, expected: &str) -> bool {
    matches!(node.map(|node| &node.value), Some(Value::Text(text)) if text == expected)
}
