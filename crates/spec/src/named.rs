//! Serializes lists of named entries as JSON objects, with the names as keys.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

/// An entry with a name that is unique in its list.
pub trait Named {
    fn name(&self) -> &str;
}

/// Serializes a list as an object, in the order of the list.
///
/// # Errors
/// The error of the serializer.
pub fn by_name<Entry, Into>(list: &[Entry], into: Into) -> Result<Into::Ok, Into::Error>
where
    Entry: Named + Serialize,
    Into: Serializer,
{
    let mut object = into.serialize_map(Some(list.len()))?;
    for entry in list {
        object.serialize_entry(entry.name(), entry)?;
    }
    object.end()
}
