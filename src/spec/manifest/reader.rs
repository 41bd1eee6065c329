//! Typed reading of a tree: every refusal names the place, what was found and what was expected.

use crate::spec::did_you_mean::nearest;
use crate::spec::document::{Key, Node, Place, Value, excerpt, pointer_step};
use crate::spec::manifest::problem::did_you_mean;
use crate::spec::manifest::{ManifestError, Problem};
use crate::spec::path::{PathError, RelPath};
use crate::spec::report::WarningReport;

/// Reads one document and collects what is worth saying about it.
#[derive(Debug)]
pub(crate) struct Reader<'document> {
    file: &'document str,
    root: &'document Node,
    /// What a person should know.
    pub(crate) warnings: Vec<WarningReport>,
    /// JSON Pointers of what is kept and not acted on.
    pub(crate) ignored: Vec<String>,
    /// Valid wishes that this host does not fulfil.
    pub(crate) refusals: Vec<ManifestError>,
}

/// The entries of a map.
pub(crate) type Entries<'document> = &'document [(Key, Node)];

impl<'document> Reader<'document> {
    pub(crate) const fn new(file: &'document str, root: &'document Node) -> Self {
        Self {
            file,
            root,
            warnings: Vec::new(),
            ignored: Vec::new(),
            refusals: Vec::new(),
        }
    }

    pub(crate) const fn root(&self) -> &'document Node {
        self.root
    }

    pub(crate) fn pointer(&self, node: &Node) -> String {
        self.root.pointer_to(node).unwrap_or_default()
    }

    pub(crate) fn error(&self, node: &Node, problem: Problem) -> ManifestError {
        self.error_at(node.place, self.pointer(node), problem)
    }

    pub(crate) fn document_error(
        &self,
        error: crate::spec::document::DocumentError,
    ) -> ManifestError {
        ManifestError::of_document(self.file, error)
    }

    /// An error about the name of an entry of `map`.
    pub(crate) fn key_error(&self, map: &Node, key: &Key, problem: Problem) -> ManifestError {
        let pointer = format!("{}/{}", self.pointer(map), pointer_step(&key.name));
        self.error_at(key.place, pointer, problem)
    }

    fn error_at(&self, place: Place, pointer: String, problem: Problem) -> ManifestError {
        ManifestError {
            file: self.file.to_owned(),
            place: Some(place),
            pointer: Some(pointer),
            problem: Box::new(problem),
        }
    }

    pub(crate) fn warn(&mut self, code: &str, node: &Node, message: &str) {
        let pointer = self.pointer(node);
        let text = format!("{}:{} at {pointer}: {message}", self.file, node.place);
        self.warnings.push(WarningReport::new(code, text));
    }

    pub(crate) fn ignore(&mut self, node: &Node) {
        let pointer = self.pointer(node);
        self.ignored.push(pointer);
    }

    pub(crate) fn wrong_type(&self, node: &Node, expected: &str) -> ManifestError {
        let hint = match &node.value {
            Value::Number(_) if expected.contains("text") => Some("put it in quotes"),
            Value::Null => Some("write a value, or remove the key"),
            Value::Text(text) if expected.starts_with("true") && is_yaml_1_1_boolean(text) => {
                Some("booleans of YAML 1.2 are `true` and `false`")
            }
            Value::Text(text) if expected.contains("whole") && text.parse::<u64>().is_ok() => {
                Some("remove the quotes")
            }
            _ => None,
        };
        self.error(
            node,
            Problem::WrongType {
                found: describe(node),
                expected: expected.to_owned(),
                hint,
            },
        )
    }

    pub(crate) fn map(&self, node: &'document Node) -> Result<Entries<'document>, ManifestError> {
        match &node.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.wrong_type(node, "a map")),
        }
    }

    /// The entries of a map that has no other keys than `known`.
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
        let near = advice
            .map(str::to_owned)
            .or_else(|| nearest(&key.name, known.iter().copied()).map(did_you_mean));
        let problem = Problem::UnknownKey {
            key: excerpt(&key.name),
            known: known.to_vec(),
            near,
        };
        self.key_error(map, key, problem)
    }

    pub(crate) fn list(&self, node: &'document Node) -> Result<&'document [Node], ManifestError> {
        match &node.value {
            Value::List(items) => Ok(items),
            _ => Err(self.wrong_type(node, "a list")),
        }
    }

    /// Text without a NUL character, possibly empty.
    pub(crate) fn text(&self, node: &'document Node) -> Result<&'document str, ManifestError> {
        match &node.value {
            Value::Text(text) if text.contains('\0') => {
                Err(self.wrong_type(node, "text without a NUL character"))
            }
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong_type(node, "text")),
        }
    }

    /// Text that is neither empty nor has control characters.
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

    /// A whole number from 1 to `maximum`, written as plain decimal digits.
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

    /// One of a few words.
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
                    near: nearest(text, words.iter().map(|(word, _)| *word))
                        .and_then(|near| words.iter().find(|(word, _)| *word == near))
                        .map(|(word, _)| *word),
                },
            )),
        }
    }

    /// A path below some folder, as people write it: see [`relative_path`].
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

    /// The value of `name`, which must be there.
    pub(crate) fn required(
        &self,
        map: &'document Node,
        name: &'static str,
    ) -> Result<&'document Node, ManifestError> {
        map.get(name)
            .ok_or_else(|| self.error(map, Problem::MissingKey { key: name }))
    }

    /// Unwraps `{inline: BLOCK}`; `{ref: …}` and `{file: …}` are not looked up by this program.
    pub(crate) fn block(
        &self,
        node: &'document Node,
        block: &'static str,
    ) -> Result<&'document Node, ManifestError> {
        const FORMS: [&str; 3] = ["inline", "ref", "file"];
        let entries = self.map(node)?;
        let Some((key, inner)) = entries
            .iter()
            .find(|(key, _)| FORMS.contains(&key.name.as_str()))
        else {
            return Ok(node);
        };
        if let Some((other, _)) = entries.iter().find(|(other, _)| other.name != key.name) {
            let advice = format!("`{}` stands alone", key.name);
            return Err(self.unknown_key(node, other, &FORMS, Some(&advice)));
        }
        if key.name == "inline" {
            self.map(inner)?;
            return Ok(inner);
        }
        let reference = excerpt(self.name(inner)?);
        Err(self.error(inner, Problem::RefUnresolvable { block, reference }))
    }
}

/// A path as people write it in a manifest: relative, below the folder, one leading `./` allowed.
///
/// Refused besides what [`RelPath`] refuses: `~`, `$`, backslashes and URLs, which stand for
/// something else elsewhere and would be taken literally here.
pub(crate) fn relative_path(text: &str) -> Result<RelPath, String> {
    for (sign, reason) in [
        ("\\", "contains a backslash; folders are separated by `/`"),
        ("://", "is a URL"),
        ("$", "contains `$`; variables are not replaced"),
    ] {
        if text.contains(sign) {
            return Err(reason.to_owned());
        }
    }
    if text.starts_with('~') {
        return Err("starts with `~`, which is not replaced".to_owned());
    }
    if text.starts_with("file:") {
        return Err("is a URL".to_owned());
    }
    let path = text.strip_prefix("./").unwrap_or(text);
    RelPath::parse(path.as_bytes()).map_err(|error: PathError| error.to_string())
}

/// What a value is, for a message.
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

fn is_yaml_1_1_boolean(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "y" | "yes" | "on" | "n" | "no" | "off"
    )
}
