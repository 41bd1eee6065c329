//! Lists whose entries have names of their own, as JSON has them: an object, a key for each name.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

/// Something that has a name which nothing else in its list has.
pub trait Named {
    fn name(&self) -> &str;
}

/// A list as an object, in the list's order. What is written of an entry is all but its name.
///
/// # Errors
/// The serializer's.
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
