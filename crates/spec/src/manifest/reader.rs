//! Reads typed values from a tree. Every error has the place, the found value and the expected one.

use std::cell::RefCell;

use crate::did_you_mean::nearest;
use crate::document::{Key, Node, Place, Value, excerpt, pointer_step};
use crate::inventory::Inventory;
use crate::manifest::advice;
use crate::manifest::blocks::{
    BlockDocuments, BlockForm, BlockReference, Lookup, auth_reference, reference_of,
    refuse_path_signs,
};
use crate::manifest::findings::{Findings, Position};
use crate::manifest::problem::{did_you_mean, position};
use crate::manifest::{ManifestError, Problem};
use crate::path::{PathError, RelPath};
use crate::report::WarningReport;

/// Reads a document and the documents of its blocks, and collects warnings and errors.
#[derive(Debug)]
pub(crate) struct Reader<'document> {
    file: &'document str,
    root: &'document Node,
    blocks: &'document BlockDocuments,
    findings: RefCell<Findings>,
    pub(crate) warnings: Vec<WarningReport>,
    pub(crate) ignored: Vec<String>,
    /// Valid requests that this host does not support.
    pub(crate) refusals: Vec<ManifestError>,
    pub(crate) inventories: Vec<Inventory>,
}

/// The keys of a block that is wrapped or in another document.
pub(crate) const FORMS: [&str; 3] = ["inline", "ref", "file"];

pub(crate) type Entries<'document> = &'document [(Key, Node)];

impl<'document> Reader<'document> {
    pub(crate) fn with_blocks(
        file: &'document str,
        root: &'document Node,
        blocks: &'document BlockDocuments,
    ) -> Self {
        Self {
            file,
            root,
            blocks,
            findings: RefCell::new(Findings::default()),
            warnings: Vec::new(),
            ignored: Vec::new(),
            refusals: Vec::new(),
            inventories: Vec::new(),
        }
    }

    pub(crate) const fn root(&self) -> &'document Node {
        self.root
    }

    /// Returns the value, or notes the error and returns `None`: reading goes on.
    pub(crate) fn keep<T>(&self, result: Result<T, ManifestError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.note(error);
                None
            }
        }
    }

    /// Returns both values. If both failed, notes one error and returns the other.
    pub(crate) fn both<A, B>(
        &self,
        one: Result<A, ManifestError>,
        other: Result<B, ManifestError>,
    ) -> Result<(A, B), ManifestError> {
        match (one, other) {
            (Ok(one), Ok(other)) => Ok((one, other)),
            (Err(error), other) => {
                self.keep(other);
                Err(error)
            }
            (Ok(_), Err(error)) => Err(error),
        }
    }

    pub(crate) fn note(&self, error: ManifestError) {
        self.findings.borrow_mut().add(error);
    }

    /// The noted errors, in the order of the text.
    pub(crate) fn errors(&self) -> Vec<ManifestError> {
        let position_of = |error: &ManifestError| {
            // Errors of another document are sorted by the place of its reference.
            let mut references = self.references();
            let reference = references.find(|(_, file)| *file == error.file);
            Position {
                place: reference.map_or(error.place, |(place, _)| Some(place)),
                is_in_other_document: reference.is_some(),
                place_in_other_document: reference.and(error.place),
            }
        };
        self.findings.take().sorted(self.file, position_of)
    }

    fn references(&self) -> impl Iterator<Item = (Place, &'document str)> {
        let blocks = self.blocks;
        crate::manifest::blocks::reference_places(self.root, blocks)
    }

    fn locate(&self, node: &Node) -> (&'document str, String) {
        if let Some(pointer) = self.root.pointer_to(node) {
            return (self.file, pointer);
        }
        self.blocks
            .documents()
            .find_map(|document| Some((document.file.as_str(), document.root.pointer_to(node)?)))
            .unwrap_or_else(|| (self.file, String::new()))
    }

    /// The name of the document of `node`.
    pub(crate) fn file_of(&self, node: &Node) -> &'document str {
        self.locate(node).0
    }

    /// The JSON Pointer of `node` in its own document.
    pub(crate) fn pointer(&self, node: &Node) -> String {
        self.locate(node).1
    }

    pub(crate) fn error(&self, node: &Node, problem: Problem) -> ManifestError {
        let (file, pointer) = self.error_location(node);
        error_at(file, node.place, pointer, problem)
    }

    pub(crate) fn document_error(&self, error: crate::document::DocumentError) -> ManifestError {
        ManifestError::of_document(self.file, error)
    }

    pub(crate) fn key_error(&self, map: &Node, key: &Key, problem: Problem) -> ManifestError {
        let (file, pointer) = self.error_location(map);
        let pointer = pointer.map(|map| format!("{map}/{}", pointer_step(&key.name)));
        error_at(file, key.place, pointer, problem)
    }

    /// The file and pointer of an error. Errors that are only counted get no pointer and no hint:
    /// each pointer costs a search of the document.
    fn error_location(&self, node: &Node) -> (&'document str, Option<String>) {
        if self.findings.borrow().is_full() {
            return (self.file, None);
        }
        let (file, pointer) = self.locate(node);
        (file, Some(pointer))
    }

    pub(crate) fn warn(&mut self, code: &str, node: &Node, message: &str) {
        let (file, pointer) = self.locate(node);
        let position = position(file, Some(node.place), Some(&pointer));
        let text = format!("{position}{message}");
        self.warnings.push(WarningReport::new(code, text));
    }

    pub(crate) fn ignore(&mut self, node: &Node) {
        let (file, pointer) = self.locate(node);
        self.ignored.push(if std::ptr::eq(file, self.file) {
            pointer
        } else {
            format!("{file}#{pointer}")
        });
    }

    pub(crate) fn wrong_type(&self, node: &Node, expected: &str) -> ManifestError {
        let (file, pointer) = self.error_location(node);
        let hint = pointer
            .as_deref()
            .and_then(|pointer| advice::hint_for_type(node, expected, pointer));
        let problem = Problem::WrongType {
            found: describe(node),
            expected: expected.to_owned(),
            hint,
        };
        error_at(file, node.place, pointer, problem)
    }

    pub(crate) fn map(&self, node: &'document Node) -> Result<Entries<'document>, ManifestError> {
        match &node.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.wrong_type(node, "a map")),
        }
    }

    /// The entries of a map. Keys other than `known` are errors.
    pub(crate) fn known_map(
        &self,
        node: &'document Node,
        known: &[&'static str],
    ) -> Result<Entries<'document>, ManifestError> {
        let entries = self.map(node)?;
        for (key, _) in entries {
            if !known.contains(&key.name.as_str()) {
                return Err(self.unknown_key(node, key, known, None));
            }
        }
        Ok(entries)
    }

    pub(crate) fn unknown_key(
        &self,
        map: &Node,
        key: &Key,
        known: &[&'static str],
        advice: Option<&str>,
    ) -> ManifestError {
        let similar = || {
            // Errors that are only counted get no hint.
            if self.findings.borrow().is_full() {
                return None;
            }
            nearest(&key.name, known.iter().copied()).map(did_you_mean)
        };
        let hint = match advice {
            Some(advice) => Some(advice.to_owned()),
            None => advice::block_of(&key.name, known).or_else(similar),
        };
        let problem = Problem::UnknownKey {
            key: excerpt(&key.name),
            known: known.to_vec(),
            hint,
        };
        self.key_error(map, key, problem)
    }

    pub(crate) fn list(&self, node: &'document Node) -> Result<&'document [Node], ManifestError> {
        match &node.value {
            Value::List(items) => Ok(items),
            _ => Err(self.wrong_type(node, "a list")),
        }
    }

    /// Reads text without NUL characters, possibly empty.
    pub(crate) fn text(&self, node: &'document Node) -> Result<&'document str, ManifestError> {
        match &node.value {
            Value::Text(text) if text.contains('\0') => {
                Err(self.wrong_type(node, "text without a NUL character"))
            }
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong_type(node, "text")),
        }
    }

    /// Reads text that is not empty and has no control characters.
    pub(crate) fn name(&self, node: &'document Node) -> Result<&'document str, ManifestError> {
        let text = self.text(node)?;
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            return Err(self.wrong_type(node, "one line of text that is not empty"));
        }
        Ok(text)
    }

    pub(crate) fn boolean(&self, node: &Node) -> Result<bool, ManifestError> {
        match &node.value {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.wrong_type(node, "true or false")),
        }
    }

    /// Reads an integer from 1 to `maximum`, written in plain decimal digits.
    pub(crate) fn whole_number(&self, node: &Node, maximum: u64) -> Result<u64, ManifestError> {
        let Value::Number(text) = &node.value else {
            return Err(self.wrong_type(node, "a whole number"));
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong_type(node, "a whole number in decimal digits"));
        }
        match text.parse::<u64>() {
            Ok(number) if (1..=maximum).contains(&number) => Ok(number),
            _ => Err(self.error(
                node,
                Problem::OutOfRange {
                    found: excerpt(text),
                    minimum: 1,
                    maximum,
                },
            )),
        }
    }

    /// Reads one of several words.
    pub(crate) fn word<T: Copy>(
        &self,
        node: &'document Node,
        words: &[(&'static str, T)],
    ) -> Result<T, ManifestError> {
        let text = self.text(node)?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, meaning)) => Ok(*meaning),
            None => Err(self.error(
                node,
                Problem::UnknownValue {
                    found: excerpt(text),
                    expected: words.iter().map(|(word, _)| *word).collect(),
                    near: nearest(text, words.iter().map(|(word, _)| *word)),
                },
            )),
        }
    }

    /// Reads a path below a folder: see `relative_path`.
    pub(crate) fn path(&self, node: &'document Node) -> Result<RelPath, ManifestError> {
        let text = self.text(node)?;
        relative_path(text).map_err(|reason| self.path_refused(node, text, reason))
    }

    pub(crate) fn path_refused(&self, node: &Node, text: &str, reason: String) -> ManifestError {
        self.error(
            node,
            Problem::PathRefused {
                found: excerpt(text),
                reason,
            },
        )
    }

    /// Returns the value of the required key `name`.
    pub(crate) fn required(
        &self,
        map: &'document Node,
        name: &'static str,
    ) -> Result<&'document Node, ManifestError> {
        map.get(name)
            .ok_or_else(|| self.error(map, Problem::MissingKey { key: name }))
    }

    /// Returns the value of the required key `name`, if it was read.
    pub(crate) fn present<T>(
        &self,
        map: &Node,
        name: &'static str,
        value: Option<T>,
    ) -> Result<T, ManifestError> {
        value.ok_or_else(|| self.error(map, Problem::MissingKey { key: name }))
    }

    /// Returns the known entries of a map. Every other key is noted as an error.
    pub(crate) fn entries(
        &self,
        node: &'document Node,
        known: &[&'static str],
    ) -> Result<Vec<&'document (Key, Node)>, ManifestError> {
        let mut found = Vec::new();
        for entry in self.map(node)? {
            if known.contains(&entry.0.name.as_str()) {
                found.push(entry);
            } else {
                self.note(self.unknown_key(node, &entry.0, known, None));
            }
        }
        Ok(found)
    }

    /// Unwraps a block: `{inline: BLOCK}`, and `{ref: …}` and `{file: …}` if their documents were
    /// read.
    pub(crate) fn block(
        &self,
        node: &'document Node,
        block: &'static str,
    ) -> Result<&'document Node, ManifestError> {
        let entries = self.map(node)?;
        let Some((key, inner)) = entries
            .iter()
            .find(|(key, _)| FORMS.contains(&key.name.as_str()))
        else {
            return Ok(node);
        };
        if let Some((other, _)) = entries.iter().find(|(other, _)| other.name != key.name) {
            let advice = if FORMS.contains(&other.name.as_str()) {
                format!("write either `{}` or `{}`", key.name, other.name)
            } else {
                format!("remove it: `{}` allows no other key", key.name)
            };
            // The forms exclude each other.
            let known: Vec<&'static str> =
                FORMS.into_iter().filter(|form| *form == key.name).collect();
            return Err(self.unknown_key(node, other, &known, Some(&advice)));
        }
        if key.name == "inline" {
            self.map(inner)?;
            return Ok(inner);
        }
        let form = match key.name.as_str() {
            "ref" => BlockForm::Ref,
            _ => BlockForm::File,
        };
        let reference = BlockReference {
            block,
            form,
            text: self.name(inner)?.to_owned(),
        };
        self.referenced(inner, &reference)
    }

    /// Reads the inventory that `env.auth` names, if its document was read.
    pub(crate) fn inventory(
        &self,
        auth: &'document Node,
    ) -> Result<Option<&'document Node>, ManifestError> {
        match auth_reference(auth) {
            Some((reference, node)) if self.blocks.lookup(&reference).is_some() => {
                self.referenced(node, &reference).map(Some)
            }
            // Without the document, slugs are derived from the names of the variables.
            _ => Ok(None),
        }
    }

    fn referenced(
        &self,
        node: &Node,
        reference: &BlockReference,
    ) -> Result<&'document Node, ManifestError> {
        let unresolvable = |tried: Option<String>| {
            let problem = Problem::RefUnresolvable {
                block: reference.block,
                reference: excerpt(&reference.text),
                tried,
            };
            self.error(node, problem)
        };
        match self.blocks.lookup(reference) {
            None => Err(unresolvable(None)),
            Some(Lookup::Missing(tried)) => Err(unresolvable(Some(tried.clone()))),
            Some(Lookup::Invalid(error)) => Err((**error).clone()),
            Some(Lookup::Found(document)) => {
                if reference_of(&document.root, reference.block).is_some() {
                    let file = crate::path::escape(document.file.as_bytes());
                    let tried = format!("leads to {file}, which is itself only a reference");
                    return Err(unresolvable(Some(tried)));
                }
                self.map(&document.root)?;
                Ok(&document.root)
            }
        }
    }

    /// Whether `node` is the root of another document.
    pub(crate) fn is_document(&self, node: &Node) -> bool {
        self.blocks
            .documents()
            .any(|document| std::ptr::eq(&document.root, node))
    }
}

fn error_at(file: &str, place: Place, pointer: Option<String>, problem: Problem) -> ManifestError {
    ManifestError {
        file: file.to_owned(),
        place: Some(place),
        pointer,
        problem: Box::new(problem),
    }
}

/// Parses a path of a manifest: relative, below the folder, with an optional leading `./`.
///
/// Refuses the same as [`RelPath`], and `~`, `$`, backslashes and URLs: other programs replace or
/// resolve them, here they would be literal.
pub(crate) fn relative_path(text: &str) -> Result<RelPath, String> {
    refuse_path_signs(text)?;
    if text.starts_with('~') {
        return Err("starts with `~`, which is not replaced".to_owned());
    }
    if text.starts_with("file:") {
        return Err("is a URL".to_owned());
    }
    let path = text.strip_prefix("./").unwrap_or(text);
    RelPath::parse(path.as_bytes()).map_err(|error: PathError| error.to_string())
}

pub(crate) fn describe(node: &Node) -> String {
    match &node.value {
        Value::Null => "nothing (null)".to_owned(),
        Value::Bool(value) => format!("{value}"),
        Value::Number(text) => format!("the number {}", excerpt(text)),
        Value::Text(text) => format!("the text `{}`", excerpt(text)),
        Value::List(items) if items.is_empty() => "an empty list".to_owned(),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}
