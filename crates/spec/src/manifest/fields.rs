//! Tables of the keys of a map. Reading, the published schema, the resolved manifest and inheritance
//! use the same table.

use serde_json::{Map, Value as Json, json};

use crate::document::Node;
use crate::limits::Limit;
use crate::manifest::reader::Reader;
use crate::manifest::{ManifestError, Problem, StatedLimit, is_variable_name, schema};
use crate::path::RelPath;
use crate::runner_block::read_limit;

/// A row of a table: a key of a map that is read into a `T`.
pub(crate) struct Field<T> {
    pub(crate) key: &'static str,
    description: &'static str,
    pub(crate) kind: Kind<T>,
    is_required: bool,
    is_deprecated: bool,
    resolution: Resolution,
    inheritance: Inheritance,
}

/// The value of a key in a resolved manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The value as it is written. The default: a new key is not lost.
    Copied,
    /// A value made from the parsed manifest by [`crate::manifest::resolved()`].
    Rewritten,
    Dropped,
}

/// The effect of a key of a code-workspace on the manifests that refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inheritance {
    /// Not inherited, with a warning. The default: a new key is not lost silently.
    Warned,
    Merged,
    /// Not inherited: it describes the workspace itself, or has no effect.
    Own,
}

/// How the value of a key is read, and its schema.
pub(crate) enum Kind<T> {
    Text(&'static Text, fn(&mut T, String)),
    Texts(&'static Text, fn(&mut T, Vec<String>)),
    /// A flag and its default.
    Flag(Option<bool>, fn(&mut T, bool)),
    /// A path below a folder.
    Path(fn(&mut T, RelPath)),
    /// A limit, and its name in reports.
    Limit(Limit, &'static str, fn(&mut T, StatedLimit)),
    /// A key of a specification that has no effect here.
    Ignored,
    /// A key of other programs that no specification has: ignored with a warning.
    Unspecified,
    /// A key that only identifies a document of its own. Elsewhere it is unknown.
    OfDocument(Read<T>),
    Other(fn() -> Json, Read<T>),
    /// A map: its keys, its schema and how it is read.
    Map(fn() -> Vec<&'static str>, fn() -> Json, Read<T>),
}

/// A text, and its schema.
pub(crate) struct Text {
    pub(crate) schema: fn() -> Json,
    pub(crate) read:
        for<'document> fn(&Reader<'document>, &'document Node) -> Result<String, ManifestError>,
}

/// One line of text that is not empty.
pub(crate) static LINE: Text = Text {
    schema: || schema::reference("line"),
    read: |reader, node| reader.name(node).map(str::to_owned),
};

/// Text without NUL characters.
pub(crate) static FREE_TEXT: Text = Text {
    schema: || schema::reference("text"),
    read: |reader, node| reader.text(node).map(str::to_owned),
};

pub(crate) static VARIABLE: Text = Text {
    schema: || schema::reference("variable"),
    read: |reader, node| {
        let name = reader.text(node)?;
        if is_variable_name(name) {
            Ok(name.to_owned())
        } else {
            Err(reader.wrong_type(node, "the name of a variable, such as API_KEY"))
        }
    },
};

pub(crate) type Read<T> =
    for<'document> fn(&mut Reader<'document>, &'document Node, &mut T) -> Result<(), ManifestError>;

impl<T> Field<T> {
    pub(crate) const fn new(key: &'static str, description: &'static str, kind: Kind<T>) -> Self {
        Self {
            key,
            description,
            kind,
            is_required: false,
            is_deprecated: false,
            resolution: Resolution::Copied,
            inheritance: Inheritance::Warned,
        }
    }

    pub(crate) const fn resolved(self, resolution: Resolution) -> Self {
        Self { resolution, ..self }
    }

    pub(crate) const fn inherited(self, inheritance: Inheritance) -> Self {
        Self {
            inheritance,
            ..self
        }
    }

    /// A key of other programs that no specification has.
    pub(crate) const fn unspecified(key: &'static str) -> Self {
        let description = "Not part of the specification; ignored with a warning.";
        Self::new(key, description, Kind::Unspecified)
    }

    pub(crate) const fn required(
        key: &'static str,
        description: &'static str,
        kind: Kind<T>,
    ) -> Self {
        Self {
            is_required: true,
            ..Self::new(key, description, kind)
        }
    }

    /// A key that is read but not listed in messages.
    pub(crate) const fn deprecated(
        key: &'static str,
        description: &'static str,
        kind: Kind<T>,
    ) -> Self {
        Self {
            is_deprecated: true,
            ..Self::new(key, description, kind)
        }
    }

    const fn is_listed(&self) -> bool {
        !self.is_deprecated && !matches!(self.kind, Kind::Unspecified)
    }

    const fn is_of_document(&self) -> bool {
        matches!(self.kind, Kind::OfDocument(_))
    }

    pub(crate) const fn resolution(&self) -> Resolution {
        match self.kind {
            Kind::OfDocument(_) | Kind::Unspecified => Resolution::Dropped,
            _ => self.resolution,
        }
    }

    pub(crate) const fn inheritance(&self) -> Inheritance {
        match self.kind {
            Kind::Ignored => Inheritance::Own,
            _ => self.inheritance,
        }
    }

    /// The path of the key, or for a map the paths of its keys.
    pub(crate) fn paths(&self) -> Vec<Vec<&'static str>> {
        match self.kind {
            Kind::Map(keys, _, _) => keys().into_iter().map(|key| vec![self.key, key]).collect(),
            _ => vec![vec![self.key]],
        }
    }

    fn read<'document>(
        &self,
        reader: &mut Reader<'document>,
        node: &'document Node,
        into: &mut T,
    ) -> Result<(), ManifestError> {
        match self.kind {
            Kind::Text(text, set) => set(into, (text.read)(reader, node)?),
            Kind::Texts(text, set) => set(into, reader.texts(node, text)?),
            Kind::Flag(_, set) => set(into, reader.boolean(node)?),
            Kind::Path(set) => set(into, reader.path(node)?),
            Kind::Limit(limit, source, set) => {
                set(into, read_limit(reader, node, limit, source.to_owned())?);
            }
            Kind::Ignored => reader.ignore(node),
            Kind::Unspecified => {
                reader.warn(
                    "unspecified_key",
                    node,
                    "this key is not part of the specification and has no effect here",
                );
                reader.ignore(node);
            }
            Kind::OfDocument(read) | Kind::Other(_, read) | Kind::Map(_, _, read) => {
                read(reader, node, into)?;
            }
        }
        Ok(())
    }

    fn schema(&self) -> Json {
        let value = match self.kind {
            Kind::Text(text, _) => (text.schema)(),
            Kind::Texts(text, _) => {
                json!({"type": "array", "items": (text.schema)(), "default": []})
            }
            Kind::Path(_) => schema::reference("path"),
            Kind::Flag(None, _) => json!({"type": "boolean"}),
            Kind::Flag(Some(default), _) => json!({"type": "boolean", "default": default}),
            Kind::Limit(limit, _, _) => schema::limit(limit),
            Kind::Ignored | Kind::Unspecified | Kind::OfDocument(_) => json!({}),
            Kind::Other(schema, _) | Kind::Map(_, schema, _) => schema(),
        };
        let mut schema = schema::described(self.description, value);
        if self.is_deprecated {
            schema["deprecated"] = json!(true);
        }
        schema
    }
}

pub(crate) fn keys<T>(fields: &[Field<T>]) -> Vec<&'static str> {
    fields.iter().map(|field| field.key).collect()
}

/// The schema of a map with these keys and no others.
pub(crate) fn object<T>(description: &str, fields: &[Field<T>]) -> Json {
    let embedded = fields.iter().filter(|field| !field.is_of_document());
    let properties: Map<String, Json> = embedded
        .map(|field| (field.key.to_owned(), field.schema()))
        .collect();
    let required = fields.iter().filter(|field| field.is_required);
    let required: Vec<&str> = required.map(|field| field.key).collect();
    let mut schema = json!({
        "description": description,
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

impl<'document> Reader<'document> {
    /// Reads the entries of a map into `into`. Unknown keys are noted as errors; of the other
    /// errors one is returned and the rest noted.
    pub(crate) fn fields<T>(
        &mut self,
        node: &'document Node,
        fields: &[Field<T>],
        into: &mut T,
    ) -> Result<(), ManifestError> {
        let is_document = self.is_document(node);
        let fields: Vec<&Field<T>> = fields
            .iter()
            .filter(|field| is_document || !field.is_of_document())
            .collect();
        let mut failed = Ok(());
        for (key, value) in self.map(node)? {
            let read = match fields.iter().find(|field| field.key == key.name) {
                Some(field) => field.read(self, value, into),
                None => {
                    let listed = fields.iter().filter(|field| field.is_listed());
                    let known: Vec<&'static str> = listed.map(|field| field.key).collect();
                    self.note(self.unknown_key(node, key, &known, None));
                    Ok(())
                }
            };
            failed = self.both(failed, read).map(|_| ());
        }
        for field in fields.into_iter().filter(|field| field.is_required) {
            if node.get(field.key).is_none() {
                let missing = self.error(node, Problem::MissingKey { key: field.key });
                failed = self.both(failed, Err::<(), _>(missing)).map(|_| ());
            }
        }
        failed
    }

    /// Reads a list. Errors of its items are noted.
    pub(crate) fn texts(
        &self,
        node: &'document Node,
        text: &Text,
    ) -> Result<Vec<String>, ManifestError> {
        let items = self.list(node)?.iter();
        Ok(items
            .filter_map(|item| self.keep((text.read)(self, item)))
            .collect())
    }
}
