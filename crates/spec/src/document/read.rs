//! Deserializes serde types from a document. Errors have the place and the JSON Pointer of the
//! value.

use std::fmt::{Display, Formatter};

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer as _,
    MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::document::{
    DocumentError, DocumentProblem, Key, Node, Place, Value, excerpt, pointer_step,
};

/// Why a document does not have the expected form, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.written())]
pub struct ReadError {
    pub place: Option<Place>,
    pub pointer: Option<String>,
    pub problem: ReadProblem,
}

/// Why a document does not have the expected form. Texts of the document are escaped and shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadProblem {
    #[error(transparent)]
    Document(DocumentProblem),
    #[error("found the key `{found}`, expected {}", known.join(", "))]
    UnknownKey {
        found: String,
        known: &'static [&'static str],
    },
    #[error("the key `{key}` is missing")]
    Missing { key: &'static str },
    #[error("found `{found}`, expected {}", known.join(", "))]
    UnknownWord {
        found: String,
        known: &'static [&'static str],
    },
    #[error("found {found}, expected {expected}")]
    Wrong { found: String, expected: String },
    #[error("{reason}")]
    Refused { reason: String },
}

impl From<DocumentError> for ReadError {
    fn from(error: DocumentError) -> Self {
        Self {
            place: error.place,
            pointer: None,
            problem: ReadProblem::Document(error.problem),
        }
    }
}

impl ReadError {
    /// An error about `node`, a part of `root`.
    pub(crate) fn at(root: &Node, node: &Node, problem: ReadProblem) -> Self {
        AtNode::new(problem).or_at(node, None).in_document(root)
    }

    /// The value `node` is not as expected.
    pub(crate) fn wrong(root: &Node, node: &Node, expected: &str) -> Self {
        let problem = ReadProblem::Wrong {
            found: describe(node),
            expected: expected.to_owned(),
        };
        Self::at(root, node, problem)
    }

    fn written(&self) -> String {
        let place = self.place.map(|place| format!("{place} "));
        let pointer = self
            .pointer
            .as_deref()
            .filter(|pointer| !pointer.is_empty());
        let pointer = pointer.map(|pointer| format!("at {pointer} "));
        let position = [place, pointer].into_iter().flatten().collect::<String>();
        match position.trim_end() {
            "" => self.problem.to_string(),
            position => format!("{position}: {}", self.problem),
        }
    }
}

pub(crate) fn from_node<T: DeserializeOwned>(root: &Node) -> Result<T, ReadError> {
    T::deserialize(NodeDeserializer(root)).map_err(|error| error.in_document(root))
}

/// Deserializes a text that must be there and may be `null`. Other optional keys must not be `null`.
pub(crate) fn nullable<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_any(NullableText)
}

struct NullableText;

impl Visitor<'_> for NullableText {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("text")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }
}

/// An error with its node by reference: place and pointer are computed at the end.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
struct AtNode<'document> {
    at: Option<(&'document Node, Option<&'document Key>)>,
    problem: ReadProblem,
}

impl<'document> AtNode<'document> {
    const fn new(problem: ReadProblem) -> Self {
        Self { at: None, problem }
    }

    /// Sets the place, if the error has none.
    fn or_at(mut self, node: &'document Node, key: Option<&'document Key>) -> Self {
        if self.at.is_none() {
            self.at = Some((node, key));
            if let ReadProblem::Wrong { found, .. } = &mut self.problem
                && found.is_empty()
            {
                *found = describe(node);
            }
        }
        self
    }

    fn in_document(self, root: &Node) -> ReadError {
        let place = self
            .at
            .map(|(node, key)| key.map_or(node.place, |key| key.place));
        let pointer = self.at.and_then(|(node, key)| {
            let pointer = root.pointer_to(node)?;
            let step = key.map(|key| format!("/{}", pointer_step(&key.name)));
            Some(pointer + step.as_deref().unwrap_or_default())
        });
        ReadError {
            place,
            pointer,
            problem: self.problem,
        }
    }
}

fn describe(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) => excerpt(text),
        Value::Text(text) => format!("`{}`", excerpt(text)),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

impl de::Error for AtNode<'_> {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(ReadProblem::Refused {
            reason: message.to_string(),
        })
    }

    /// The message has the text of [`Unexpected::Other`]; for other variants, the value of the node.
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Other(found) => found.to_owned(),
            _ => String::new(),
        };
        Self::new(ReadProblem::Wrong {
            found,
            expected: expected.to_string(),
        })
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_value(found, expected)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::new(ReadProblem::UnknownWord {
            found: excerpt(word),
            known,
        })
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::new(ReadProblem::UnknownKey {
            found: excerpt(key),
            known,
        })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(ReadProblem::Missing { key })
    }
}

impl Node {
    fn wrong<T>(&self, expected: &str) -> Result<T, AtNode<'_>> {
        let error = AtNode::new(ReadProblem::Wrong {
            found: describe(self),
            expected: expected.to_owned(),
        });
        Err(error.or_at(self, None))
    }
}

struct NodeDeserializer<'document>(&'document Node);

impl<'document> Deserializer<'document> for NodeDeserializer<'document> {
    type Error = AtNode<'document>;

    fn deserialize_any<V: Visitor<'document>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(_) => self.deserialize_u64(visitor),
            Value::Text(_) => self.deserialize_str(visitor),
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'document>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.0.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => self.0.wrong("true or false"),
        }
    }

    fn deserialize_u64<V: Visitor<'document>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let number = match &self.0.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => visitor
                .visit_u64(number)
                .map_err(|error: AtNode| error.or_at(self.0, None)),
            None => self.0.wrong("a whole number from 0 on"),
        }
    }

    fn deserialize_str<V: Visitor<'document>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.0.value {
            Value::Text(text) => visitor
                .visit_borrowed_str(text)
                .map_err(|error: AtNode| error.or_at(self.0, None)),
            _ => self.0.wrong("text"),
        }
    }

    fn deserialize_option<V: Visitor<'document>>(
        self,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'document>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'document>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.0.value {
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            _ => self.0.wrong("a list"),
        }
    }

    fn deserialize_map<V: Visitor<'document>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let Value::Map(entries) = &self.0.value else {
            return self.0.wrong("a map");
        };
        let entries = Entries {
            map: self.0,
            entries: entries.iter(),
            value: None,
        };
        visitor
            .visit_map(entries)
            .map_err(|error: AtNode| error.or_at(self.0, None))
    }

    fn deserialize_struct<V: Visitor<'document>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_map(visitor)
    }

    /// Only enums of words are supported.
    fn deserialize_enum<V: Visitor<'document>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match &self.0.value {
            Value::Text(text) => visitor
                .visit_enum(text.as_str().into_deserializer())
                .map_err(|error: AtNode| error.or_at(self.0, None)),
            _ => self.0.wrong("text"),
        }
    }

    forward_to_deserialize_any! {
        <V: Visitor<'document>>
        unit unit_struct u8 u16 i8 i16 i32 i64 i128 f32 f64 char bytes byte_buf tuple
        tuple_struct
    }

    fn deserialize_ignored_any<V: Visitor<'document>>(
        self,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    fn deserialize_u32<V: Visitor<'document>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_string<V: Visitor<'document>>(
        self,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'document>>(
        self,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_str(visitor)
    }
}

struct Items<'document>(std::slice::Iter<'document, Node>);

impl<'document> SeqAccess<'document> for Items<'document> {
    type Error = AtNode<'document>;

    fn next_element_seed<S: DeserializeSeed<'document>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Self::Error> {
        self.0.next().map(|item| read(seed, item)).transpose()
    }
}

struct Entries<'document> {
    map: &'document Node,
    entries: std::slice::Iter<'document, (Key, Node)>,
    value: Option<&'document Node>,
}

impl<'document> MapAccess<'document> for Entries<'document> {
    type Error = AtNode<'document>;

    fn next_key_seed<S: DeserializeSeed<'document>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Self::Error> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let name: StrDeserializer<'_, Self::Error> = key.name.as_str().into_deserializer();
        let read = seed
            .deserialize(name)
            .map_err(|error| error.or_at(self.map, Some(key)));
        read.map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'document>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, Self::Error> {
        let Some(value) = self.value.take() else {
            return Err(de::Error::custom("a value without a key"));
        };
        read(seed, value)
    }
}

/// Deserializes a value. An error without a place gets that of the value.
fn read<'document, S: DeserializeSeed<'document>>(
    seed: S,
    node: &'document Node,
) -> Result<S::Value, AtNode<'document>> {
    seed.deserialize(NodeDeserializer(node))
        .map_err(|error| error.or_at(node, None))
}
