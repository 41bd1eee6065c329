//! Blocks in other documents: references in a manifest, and the documents that were found.
//!
//! Parsing opens no files. The caller gets the needed documents from [`block_references`], reads
//! them, and passes them as [`BlockDocuments`].

use std::collections::BTreeMap;

use crate::document::{Node, Place, Value};
use crate::manifest::ManifestError;
use crate::path::{PATH_BYTES_MAX, RelPath};

/// A `ref` with such an ending is a path, even without a leading `./`.
const FILE_ENDINGS: [&str; 4] = [".md", ".yaml", ".yml", ".json"];

/// The key by which a block names another document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockForm {
    /// `{ref: …}`: a path, or a slug of the host's registry.
    Ref,
    /// `{file: …}`: a path.
    File,
}

/// A reference of a manifest to a block in another document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockReference {
    /// `runner`, `sandbox`, `secrets`, or `env.auth` for the inventory of a sandbox.
    pub block: &'static str,
    pub form: BlockForm,
    pub text: String,
}

/// The target of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferenceTarget {
    File(RelPath),
    /// A name in the host's registry: `refs` of its configuration.
    Slug(String),
}

impl BlockReference {
    /// Resolves the reference. `holder` is the path of its document in the workspace: paths are
    /// relative to the folder of `holder` and stay in the workspace.
    ///
    /// # Errors
    /// Why it has no target: completes "which …".
    pub fn target(&self, holder: &RelPath) -> Result<ReferenceTarget, String> {
        let text = self.text.as_str();
        let is_path = self.form == BlockForm::File
            || text.starts_with("./")
            || text.starts_with("../")
            || (!text.starts_with('@') && FILE_ENDINGS.iter().any(|end| text.ends_with(end)));
        if is_path {
            return resolve_path(holder, text).map(ReferenceTarget::File);
        }
        if is_slug(text) {
            return Ok(ReferenceTarget::Slug(text.to_owned()));
        }
        Err(
            "is neither a path, such as `./RUNNER.md`, nor a slug, such as `@owner/name`"
                .to_owned(),
        )
    }
}

/// Resolves the path `text` in the file `holder`. Both are paths in one workspace.
fn resolve_path(holder: &RelPath, text: &str) -> Result<RelPath, String> {
    if text.len() > PATH_BYTES_MAX {
        return Err("is longer than 4095 bytes".to_owned());
    }
    refuse_path_signs(text)?;
    if text.starts_with('/') {
        return Err("is absolute".to_owned());
    }
    let folder = holder.parent();
    let mut segments: Vec<&[u8]> = folder.iter().flat_map(RelPath::segments).collect();
    for segment in text.split('/') {
        match segment {
            "." => (),
            ".." => {
                if segments.pop().is_none() {
                    return Err("leaves the workspace".to_owned());
                }
            }
            name => segments.push(name.as_bytes()),
        }
    }
    RelPath::parse(&segments.join(&b'/')).map_err(|error| error.to_string())
}

/// Refuses texts that a shell, a URL parser or another system reads as more than a path.
pub(super) fn refuse_path_signs(text: &str) -> Result<(), String> {
    let refused = [
        ("\\", "contains a backslash; folders are separated by `/`"),
        ("://", "is a URL"),
        ("$", "contains `$`; variables are not replaced"),
    ];
    match refused.iter().find(|(sign, _)| text.contains(sign)) {
        Some((_, reason)) => Err((*reason).to_owned()),
        None => Ok(()),
    }
}

/// Whether `text` is `@owner/name` or `@owner/kind/name`: lower case, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_slug(text: &str) -> bool {
    let segment = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && part.bytes().all(|byte| {
                byte.is_ascii_lowercase()
                    || byte.is_ascii_digit()
                    || matches!(byte, b'-' | b'_' | b'.')
            })
    };
    text.strip_prefix('@').is_some_and(|rest| {
        (2..=3).contains(&rest.split('/').count()) && rest.split('/').all(segment)
    })
}

/// A document with one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDocument {
    pub file: String,
    pub root: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lookup {
    Found(BlockDocument),
    /// What was searched and why that failed: completes "which …".
    Missing(String),
    Invalid(Box<ManifestError>),
}

impl Lookup {
    fn file(&self) -> Option<&str> {
        match self {
            Self::Found(document) => Some(&document.file),
            Self::Invalid(error) => Some(&error.file),
            Self::Missing(_) => None,
        }
    }
}

/// The documents of blocks. The caller reads the files before parsing, which does no I/O.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockDocuments(BTreeMap<BlockReference, Lookup>);

impl BlockDocuments {
    /// No lookups.
    pub const EMPTY: &'static Self = &Self(BTreeMap::new());

    /// Adds the document of `reference`.
    pub fn insert(&mut self, reference: BlockReference, document: BlockDocument) {
        self.0.insert(reference, Lookup::Found(document));
    }

    /// Records that `reference` was not found. `tried` is what was searched and why that failed:
    /// completes "which …".
    pub fn insert_missing(&mut self, reference: BlockReference, tried: String) {
        self.0.insert(reference, Lookup::Missing(tried));
    }

    /// Records that the document of the reference was found and is invalid.
    pub fn insert_invalid(&mut self, reference: BlockReference, error: ManifestError) {
        self.0.insert(reference, Lookup::Invalid(Box::new(error)));
    }

    /// Removes the record that `reference` was not found, and returns what was tried.
    pub fn forget_missing(&mut self, reference: &BlockReference) -> Option<String> {
        let Some(Lookup::Missing(tried)) = self.0.get(reference) else {
            return None;
        };
        let tried = tried.clone();
        self.0.remove(reference);
        Some(tried)
    }

    /// Returns the document of `reference`, if it was found.
    #[must_use]
    pub fn get(&self, reference: &BlockReference) -> Option<&BlockDocument> {
        match self.lookup(reference) {
            Some(Lookup::Found(document)) => Some(document),
            _ => None,
        }
    }

    /// Iterates over the documents that were found.
    pub fn documents(&self) -> impl Iterator<Item = &BlockDocument> {
        self.0.values().filter_map(|lookup| match lookup {
            Lookup::Found(document) => Some(document),
            Lookup::Missing(_) | Lookup::Invalid(_) => None,
        })
    }

    pub(crate) fn lookup(&self, reference: &BlockReference) -> Option<&Lookup> {
        self.0.get(reference)
    }
}

/// Lists the references of a manifest, in the order of the text.
///
/// The inventory of a sandbox in another document is not included: call
/// [`block_references_of_sandbox`] on that document.
#[must_use]
pub fn block_references(root: &Node) -> Vec<BlockReference> {
    let Value::Map(entries) = &root.value else {
        return Vec::new();
    };
    let mut references = Vec::new();
    for (key, value) in entries {
        let Some(block) = block_of_key(&key.name) else {
            continue;
        };
        match reference_of(value, block) {
            Some((reference, _)) => references.push(reference),
            None if block == "sandbox" => {
                references.extend(block_references_of_sandbox(value));
            }
            None => (),
        }
    }
    references
}

/// The block that the value of a top-level key is.
fn block_of_key(key: &str) -> Option<&'static str> {
    match key {
        "runner" | "runtime" => Some("runner"),
        "sandbox" => Some("sandbox"),
        "secrets" => Some("secrets"),
        _ => None,
    }
}

/// Returns the inventory that a sandbox block names, inline or in a document of its own.
#[must_use]
pub fn block_references_of_sandbox(block: &Node) -> Option<BlockReference> {
    let block = block.get("inline").unwrap_or(block);
    let auth = block.get("env")?.get("auth")?;
    auth_reference(auth).map(|(reference, _)| reference)
}

pub(crate) fn auth_reference(auth: &Node) -> Option<(BlockReference, &Node)> {
    let node = auth.get("ref")?;
    let Value::Text(text) = &node.value else {
        return None;
    };
    let reference = BlockReference {
        block: "env.auth",
        form: BlockForm::Ref,
        text: text.clone(),
    };
    Some((reference, node))
}

/// A block of only `{ref: …}` or `{file: …}`, and the node of the text.
pub(crate) fn reference_of<'document>(
    node: &'document Node,
    block: &'static str,
) -> Option<(BlockReference, &'document Node)> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let [(key, inner)] = entries.as_slice() else {
        return None;
    };
    let form = match key.name.as_str() {
        "ref" => BlockForm::Ref,
        "file" => BlockForm::File,
        _ => return None,
    };
    let Value::Text(text) = &inner.value else {
        return None;
    };
    let reference = BlockReference {
        block,
        form,
        text: text.clone(),
    };
    Some((reference, inner))
}

/// The places of the references in `root` whose documents were looked up, and the names of the
/// documents. The place of a sandbox's inventory is that of the reference to the sandbox.
pub(super) fn reference_places<'document>(
    root: &'document Node,
    blocks: &'document BlockDocuments,
) -> impl Iterator<Item = (Place, &'document str)> {
    let entries = match &root.value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    entries.iter().flat_map(move |(key, value)| {
        let mut found = Vec::new();
        let Some(block) = block_of_key(&key.name) else {
            return found;
        };
        let named = reference_of(value, block);
        let document = named
            .as_ref()
            .and_then(|(reference, node)| Some((node.place, blocks.lookup(reference)?)));
        if let Some((place, lookup)) = document {
            found.extend(lookup.file().map(|file| (place, file)));
        }
        if block == "sandbox" {
            let place = named.as_ref().map_or(value.place, |(_, node)| node.place);
            let elsewhere = named.and_then(|(reference, _)| blocks.get(&reference));
            let inner = elsewhere.map_or(value, |document| &document.root);
            let inventory = block_references_of_sandbox(inner)
                .and_then(|reference| blocks.lookup(&reference)?.file());
            found.extend(inventory.map(|file| (place, file)));
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};
    use crate::manifest::{Manifest, Parsed, parse_with};
    use crate::parse_permit::PERMIT;
    use crate::runner_block::Engine;

    fn node(text: &str) -> Node {
        document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document")
    }

    fn reference(block: &'static str, form: BlockForm, text: &str) -> BlockReference {
        let text = text.to_owned();
        BlockReference { block, form, text }
    }

    /// The manifest, with the documents of its references in their order; `""` is none.
    fn parsed(text: &str, documents: &[(&str, &str)]) -> Parsed {
        let root = node(text);
        let mut blocks = BlockDocuments::default();
        for (reference, (file, text)) in block_references(&root).into_iter().zip(documents) {
            let file = (*file).to_owned();
            let root = node(text);
            blocks.insert(reference, BlockDocument { file, root });
        }
        parse_with(&root, "m.yaml", &blocks)
    }

    fn described(parsed: &Parsed) -> Vec<String> {
        let written = parsed.errors.iter();
        written
            .map(|error| {
                let place = error
                    .place
                    .map_or_else(String::new, |place| place.to_string());
                let pointer = error.pointer.as_deref().unwrap_or("-");
                format!("{}:{place} {pointer} {}", error.file, error.code())
            })
            .collect()
    }

    #[test]
    fn a_block_is_read_from_another_document_by_ref_or_file() {
        for form in ["ref", "file"] {
            let text = format!(
                "run: x\nrunner: {{{form}: ./RUNNER.md}}\nsandbox: {{{form}: sub/S.md}}\n\
                 secrets: {{{form}: SECRETS.md}}\n"
            );
            let parsed = parsed(
                &text,
                &[
                    (
                        "RUNNER.md",
                        "schema: runner/v1\nengine: sandbox\nlimits: {cpu_ms: 5}\n",
                    ),
                    (
                        "sub/S.md",
                        "schema: sandbox/v1\nid: '@a/b/c-1.2'\nprovider: local\nconfig: {}\n\
                         identity: x\nnetwork: {egress: [a.example]}\n",
                    ),
                    (
                        "SECRETS.md",
                        "secrets: [{slug: a-key, name: A, description: d}]\n",
                    ),
                ],
            );
            assert_eq!(described(&parsed), [""; 0]);
            let manifest: Manifest = parsed.manifest.expect("a manifest");
            assert_eq!(manifest.runner.engine, Engine::Sandbox);
            assert_eq!(manifest.limits[0].source, "runner.limits.cpu_ms");
            assert_eq!(manifest.egress[0].source, "sandbox.network.egress");
            assert_eq!(manifest.ignored, ["sub/S.md#/identity"]);
            assert!(manifest.secrets.is_empty());
        }
    }

    #[test]
    fn an_error_has_the_document_of_the_block_and_the_order_of_its_reference() {
        let parsed = parsed(
            "sandbox: {file: ./S.md}\nrun: ''\nrunner: {ref: ./R.md}\nnme: x\n",
            &[
                (
                    "S.md",
                    "provider: local\nlimits: {cpu_ms: 0}\nread_only: 1\n",
                ),
                ("R.md", "image: 1\n\nengine: vm\ndescription: no\n"),
            ],
        );
        assert_eq!(
            described(&parsed),
            [
                "S.md:2:18 /limits/cpu_ms out_of_range",
                "S.md:3:12 /read_only wrong_type",
                "m.yaml:2:6 /run run_invalid",
                "R.md:1:8 /image wrong_type",
                "R.md:3:9 /engine unknown_value",
                "R.md:4:1 /description unknown_key",
                "m.yaml:4:1 /nme unknown_key",
            ]
        );
        assert_eq!(parsed.manifest, None);
    }

    #[test]
    fn a_warning_about_a_whole_document_has_no_pointer() {
        let documents = [("S.md", "provider: local\n")];
        let parsed = parsed("sandbox: {file: ./S.md}\n", &documents);
        let warnings = parsed.manifest.expect("a manifest").warnings;
        let expected = "S.md:1:1: `config` is missing: `{}` is assumed";
        assert_eq!(warnings[0].message, expected);
    }

    #[test]
    fn the_error_of_an_unresolvable_reference_has_what_was_tried() {
        let root = node("runner: {ref: '@a/b'}\nsandbox: {file: S.md}\nsecrets: {ref: ./x.md}\n");
        let mut blocks = BlockDocuments::default();
        let slug = reference("runner", BlockForm::Ref, "@a/b");
        blocks.insert_missing(slug, "is not among `refs`".to_owned());
        let broken = document::parse(&PERMIT, b"a: [", Format::Yaml).expect_err("broken");
        let sandbox = reference("sandbox", BlockForm::File, "S.md");
        blocks.insert_invalid(sandbox, ManifestError::of_document("S.md", broken));
        let document = BlockDocument {
            file: "x.md".to_owned(),
            root: node("ref: ./y.md\n"),
        };
        blocks.insert(reference("secrets", BlockForm::Ref, "./x.md"), document);
        let errors = parse_with(&root, "m.yaml", &blocks).errors;
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages[0],
            "m.yaml:1:15 at /runner/ref: `runner` refers to `@a/b`, which is not among `refs`"
        );
        assert!(messages[1].starts_with("S.md:"), "{}", messages[1]);
        assert_eq!(
            messages[2],
            "m.yaml:3:16 at /secrets/ref: `secrets` refers to `./x.md`, which leads to x.md, \
             which is itself only a reference"
        );
        let codes: Vec<&str> = errors.iter().map(ManifestError::code).collect();
        assert_eq!(codes[0], "runner_ref_unresolvable");
        assert_eq!(codes[2], "secrets_ref_unresolvable");
        assert!(
            errors
                .iter()
                .all(|error| error.hint().is_some() || error.file == "S.md")
        );
    }

    #[test]
    fn the_slugs_of_variables_come_from_the_inventory_of_the_sandbox() {
        let text = "run: x\nsandbox: {provider: local, config: {}, \
                    env: {auth: {ref: ./S.md, state: {env: [A_KEY, B_KEY]}}}}\n";
        let inventory = "secrets: [{slug: org/a-key, name: A, description: d, \
                         exposures: [{kind: file, path: A_KEY}, \
                         {kind: env, name: A_KEY, field: v}]}]\n";
        let slugs = |documents: &[(&str, &str)]| {
            let parsed = parsed(text, documents);
            assert_eq!(described(&parsed), [""; 0]);
            let secrets = parsed.manifest.expect("a manifest").secrets;
            format!("{:?} {:?}", secrets[0].reference, secrets[1].reference)
        };
        assert_eq!(
            slugs(&[("S.md", inventory)]),
            r#"Vault("org/a-key") Vault("b-key")"#
        );
        assert_eq!(slugs(&[]), r#"Vault("a-key") Vault("b-key")"#);
        let holds_a_value = "secrets: [{slug: ab, value: hunter2hunter2}, {name: b}]\n";
        let parsed = parsed(text, &[("S.md", holds_a_value)]);
        assert_eq!(
            described(&parsed),
            [
                "S.md:1:29 /secrets/0/value plaintext_credential",
                "S.md:1:46 /secrets/1 missing_key"
            ]
        );
        assert!(!format!("{:?}", parsed.errors).contains("hunter2"));
    }

    #[test]
    fn a_reference_is_a_relative_path_or_a_slug() {
        let holder = RelPath::parse(b"code/search/CODE.md").expect("a path");
        let path = |text: &str| {
            let path = RelPath::parse(text.as_bytes()).expect("a path");
            Ok(ReferenceTarget::File(path))
        };
        for (form, text, expected) in [
            (BlockForm::Ref, "./RUNNER.md", path("code/search/RUNNER.md")),
            (BlockForm::Ref, "../RUNNER.md", path("code/RUNNER.md")),
            (BlockForm::Ref, "../../RUNNER", path("RUNNER")),
            (BlockForm::Ref, "a/b.yaml", path("code/search/a/b.yaml")),
            (BlockForm::Ref, "b.json", path("code/search/b.json")),
            (BlockForm::File, "RUNNER", path("code/search/RUNNER")),
            (BlockForm::File, "@a/b", path("code/search/@a/b")),
            (
                BlockForm::Ref,
                "@agentik/runners/python-3.12",
                Ok(ReferenceTarget::Slug(
                    "@agentik/runners/python-3.12".to_owned(),
                )),
            ),
            (
                BlockForm::Ref,
                "@a/b.md",
                Ok(ReferenceTarget::Slug("@a/b.md".to_owned())),
            ),
        ] {
            assert_eq!(
                reference("runner", form, text).target(&holder),
                expected,
                "{text}"
            );
        }
        for (form, text, why) in [
            (BlockForm::Ref, "../../../RUNNER.md", "leaves the workspace"),
            (BlockForm::File, "/etc/RUNNER.md", "is absolute"),
            (BlockForm::File, "https://a/b.md", "is a URL"),
            (BlockForm::File, "a\\b.md", "backslash"),
            (BlockForm::File, "$HOME/b.md", "variables"),
            (BlockForm::File, "a//b.md", "empty"),
            (BlockForm::Ref, "runner", "neither a path"),
            (BlockForm::Ref, "@a", "neither a path"),
            (BlockForm::Ref, "@a/b/c/d", "neither a path"),
            (BlockForm::Ref, "@A/b", "neither a path"),
            (BlockForm::Ref, "@a/../b", "neither a path"),
            (BlockForm::Ref, "operator://current", "neither a path"),
        ] {
            let refused = reference("runner", form, text).target(&holder);
            let reason = refused.expect_err(text);
            assert!(reason.contains(why), "{text}: {reason}");
        }
    }
}
