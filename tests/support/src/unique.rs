//! Parses JSON and refuses duplicate keys, of which serde_json silently keeps the last one.

use std::fmt::{Formatter, Result as Written};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

pub(crate) struct Unique(pub(crate) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<From: Deserializer<'de>>(from: From) -> Result<Self, From::Error> {
        from.deserialize_any(Visit).map(Self)
    }
}

struct Visit;

impl<'de> Visitor<'de> for Visit {
    type Value = Value;

    fn expecting(&self, into: &mut Formatter<'_>) -> Written {
        into.write_str("JSON without a key that stands twice")
    }

    fn visit_bool<Fault: Error>(self, value: bool) -> Result<Value, Fault> {
        Ok(value.into())
    }

    fn visit_i64<Fault: Error>(self, value: i64) -> Result<Value, Fault> {
        Ok(value.into())
    }

    fn visit_u64<Fault: Error>(self, value: u64) -> Result<Value, Fault> {
        Ok(value.into())
    }

    fn visit_f64<Fault: Error>(self, value: f64) -> Result<Value, Fault> {
        Ok(value.into())
    }

    fn visit_str<Fault: Error>(self, value: &str) -> Result<Value, Fault> {
        Ok(value.into())
    }

    fn visit_unit<Fault: Error>(self) -> Result<Value, Fault> {
        Ok(Value::Null)
    }

    fn visit_seq<List: SeqAccess<'de>>(self, mut list: List) -> Result<Value, List::Error> {
        let mut found = Vec::new();
        while let Some(Unique(value)) = list.next_element()? {
            found.push(value);
        }
        Ok(found.into())
    }

    fn visit_map<Object: MapAccess<'de>>(self, mut object: Object) -> Result<Value, Object::Error> {
        let mut found = Map::new();
        while let Some((key, Unique(value))) = object.next_entry::<String, _>()? {
            if found.contains_key(&key) {
                return Err(Object::Error::custom(format!("`{key}` stands twice")));
            }
            found.insert(key, value);
        }
        Ok(found.into())
    }
}
