//! Parses inventories. Errors have the place but never a value.

use crate::credential;
use crate::document::{Node, Value};
use crate::inventory::{
    Access, Audit, Exposure, Holder, Inventory, InventoryEntry, SecretKind, is_plain_name, is_slug,
};
use crate::manifest::reader::Reader;
use crate::manifest::{BlockDocuments, ManifestError, Problem, is_variable_name};

const NAME_CHARACTERS_MAX: usize = 80;
const DESCRIPTION_CHARACTERS_MAX: usize = 2_000;
/// Keys of an entry that authors use for the value by mistake.
const VALUE_KEYS: [&str; 7] = [
    "value",
    "plaintext",
    "ciphertext",
    "secret",
    "data",
    "key",
    "token",
];
const ENTRY_KEYS: [&str; 10] = [
    "slug",
    "name",
    "description",
    "kind",
    "backend",
    "access",
    "audit",
    "tags",
    "metadata",
    "exposures",
];

#[cfg(test)]
pub(super) fn parse(
    text: &[u8],
    format: crate::document::Format,
    file_name: &str,
) -> Result<Inventory, ManifestError> {
    let root = crate::document::parse(&crate::parse_permit::PERMIT, text, format)
        .map_err(|error| ManifestError::of_document(file_name, error))?;
    of_document(&root, file_name)
}

/// Reads an inventory from a parsed document. `file_name` is used in errors.
///
/// # Errors
/// [`ManifestError`]: the first error and its place. Values are never repeated.
pub fn of_document(root: &Node, file_name: &str) -> Result<Inventory, ManifestError> {
    let reader = Reader::with_blocks(file_name, root, BlockDocuments::EMPTY);
    let entries = read(&reader, root);
    if let Some(first) = reader.errors().into_iter().next() {
        return Err(first);
    }
    Ok(Inventory::new(file_name, entries))
}

/// Reads the inventory at `root`, in any document of the reader, and notes errors.
pub(crate) fn read<'document>(
    reader: &Reader<'document>,
    root: &'document Node,
) -> Vec<InventoryEntry> {
    let list = reader
        .keep(reader.entries(root, &["secrets"]))
        .and_then(|_known| reader.keep(reader.required(root, "secrets")));
    let Some(list) = list else {
        return Vec::new();
    };
    let items = reader.keep(reader.list(list)).unwrap_or_default();
    if items.is_empty() {
        reader.note(reader.wrong_type(list, "a list of at least one secret"));
    }
    let mut entries: Vec<InventoryEntry> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(entry) = reader.keep(read_entry(reader, item)) else {
            continue;
        };
        // Invalid entries count too: messages have the index of the list.
        let has_slug = |item: &Node| text_of(item) == Some(entry.slug.as_str());
        if let Some(earlier) = items[..index].iter().position(has_slug) {
            reader.note(reader.error(
                item.get("slug").unwrap_or(item),
                Problem::Duplicate {
                    found: entry.slug,
                    first: format!("/secrets/{earlier}/slug"),
                },
            ));
            continue;
        }
        entries.push(entry);
    }
    entries
}

/// Reads `metadata.runner.inventory` of a resolved manifest: the authors' entries for the requested
/// secrets, written by `runner bundle`.
pub(crate) fn read_carried<'document>(
    reader: &Reader<'document>,
    root: &'document Node,
) -> Option<Inventory> {
    let runner = root.get("metadata").and_then(|node| node.get("runner"));
    let carried = runner.and_then(|node| node.get("inventory"))?;
    let secrets = carried.get("secrets");
    // A carried inventory may be empty: it grants nothing.
    let is_empty = secrets.is_some_and(|list| list.value == Value::List(Vec::new()));
    let entries = if is_empty {
        Vec::new()
    } else {
        read(reader, carried)
    };
    Some(Inventory::new(reader.file_of(root), entries))
}

fn text_of(item: &Node) -> Option<&str> {
    match item.get("slug").map(|slug| &slug.value) {
        Some(Value::Text(slug)) => Some(slug),
        _ => None,
    }
}

fn read_entry<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<InventoryEntry, ManifestError> {
    refuse_values(reader, node)?;
    let entries = reader.known_map(node, &ENTRY_KEYS)?;
    let slug_node = reader.required(node, "slug")?;
    let slug = reader.text(slug_node)?;
    if !is_slug(slug) {
        return Err(reader.wrong_type(
            slug_node,
            "a slug such as `openai-api-key` or `prod/db-password`: 2 to 80 lower-case letters, \
             digits and dashes",
        ));
    }
    let mut entry = InventoryEntry {
        slug: slug.to_owned(),
        name: bounded(reader, reader.required(node, "name")?, NAME_CHARACTERS_MAX)?,
        description: bounded(
            reader,
            reader.required(node, "description")?,
            DESCRIPTION_CHARACTERS_MAX,
        )?,
        kind: SecretKind::default(),
        backend: None,
        access: Access::default(),
        audit: Audit::default(),
        tags: Vec::new(),
        metadata: serde_json::Value::Object(serde_json::Map::new()),
        bindings: Vec::new(),
        exposures: Vec::new(),
        written: node
            .to_json()
            .map_err(|error| reader.document_error(error))?,
        place: node.place,
    };
    for (key, value) in entries {
        match key.name.as_str() {
            "kind" => entry.kind = reader.word(value, &KINDS)?,
            "backend" => entry.backend = Some(read_backend(reader, value)?),
            "access" => entry.access = read_access(reader, value)?,
            "audit" => entry.audit = read_audit(reader, value)?,
            "tags" => entry.tags = read_tags(reader, value)?,
            "metadata" => {
                reader.map(value)?;
                entry.metadata = value
                    .to_json()
                    .map_err(|error| reader.document_error(error))?;
                entry.bindings = read_bindings(reader, value)?;
            }
            "exposures" => entry.exposures = read_exposures(reader, value)?,
            _ => (),
        }
    }
    Ok(entry)
}

const KINDS: [(&str, SecretKind); 4] = [
    ("opaque", SecretKind::Opaque),
    ("oauth", SecretKind::OAuth),
    ("keypair", SecretKind::KeyPair),
    ("json", SecretKind::Json),
];

/// Checked first: an unknown-key error would not name the problem.
fn refuse_values(reader: &Reader<'_>, node: &Node) -> Result<(), ManifestError> {
    let found = VALUE_KEYS
        .iter()
        .find_map(|key| node.get(key))
        .map(|value| {
            (
                value,
                "an inventory holds no values, only who may have them",
            )
        })
        .or_else(|| credential::find_issued(node))
        .or_else(|| node.get("metadata").and_then(credential::find));
    match found {
        Some((value, why)) => Err(reader.error(value, Problem::PlaintextCredential { why })),
        None => Ok(()),
    }
}

fn bounded<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    maximum: usize,
) -> Result<String, ManifestError> {
    let text = reader.text(node)?;
    let count = text.chars().count();
    if count == 0 || count > maximum {
        return Err(reader.wrong_type(node, &format!("text of 1 to {maximum} characters")));
    }
    Ok(text.to_owned())
}

fn read_backend<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<String, ManifestError> {
    let text = reader.text(node)?;
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    if !is_plain_name(scheme) {
        return Err(reader.wrong_type(node, "the address of a vault, such as `vault://prod`"));
    }
    Ok(text.to_owned())
}

fn read_access<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Access, ManifestError> {
    let mut access = Access::default();
    for (key, value) in reader.known_map(node, &["reveal", "bind", "rotate"])? {
        let holders = reader
            .list(value)?
            .iter()
            .map(|item| read_holder(reader, item))
            .collect::<Result<Vec<_>, _>>()?;
        match key.name.as_str() {
            "reveal" => access.reveal = holders,
            "bind" => access.bind = holders,
            _ => access.rotate = holders,
        }
    }
    Ok(access)
}

fn read_holder<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Holder, ManifestError> {
    const KNOWN: [&str; 5] = ["role", "userId", "cap", "tool", "workflow"];
    let entries = reader.known_map(node, &KNOWN)?;
    let [(key, value)] = entries else {
        return Err(reader.wrong_type(
            node,
            "exactly one of role, userId, cap, tool, workflow, such as `{tool: deploy}`",
        ));
    };
    let text = not_empty(reader, value)?;
    Ok(match key.name.as_str() {
        "role" => Holder::Role(text),
        "userId" => Holder::UserId(text),
        "tool" => Holder::Tool(text),
        "workflow" => Holder::Workflow(text),
        _ if text.starts_with("cap://") => Holder::Capability(text),
        _ => return Err(reader.wrong_type(value, "a capability, `cap://…`")),
    })
}

fn read_audit<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Audit, ManifestError> {
    let mut audit = Audit::default();
    for (key, value) in reader.known_map(node, &["retention", "pii", "classification"])? {
        match key.name.as_str() {
            "retention" => {
                let text = reader.text(value)?;
                if !is_retention(text) {
                    return Err(reader.wrong_type(value, "a duration such as `P7Y`, `7y` or `90d`"));
                }
                audit.retention = Some(text.to_owned());
            }
            "pii" => audit.pii = reader.boolean(value)?,
            _ => audit.classification = read_words(reader, value)?,
        }
    }
    Ok(audit)
}

/// `^(P[0-9]+[YMWD]|[0-9]+(y|m|w|d|h))$`
fn is_retention(text: &str) -> bool {
    let (digits, units) = match text.strip_prefix('P') {
        Some(rest) => (rest, "YMWD"),
        None => (text, "ymwdh"),
    };
    let mut digits = digits.chars();
    let has_unit = digits.next_back().is_some_and(|unit| units.contains(unit));
    let digits = digits.as_str();
    has_unit && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn read_words<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<String>, ManifestError> {
    let items = reader.list(node)?.iter();
    items.map(|item| not_empty(reader, item)).collect()
}

fn read_bindings<'document>(
    reader: &Reader<'document>,
    metadata: &'document Node,
) -> Result<Vec<String>, ManifestError> {
    let env = metadata.get("bindings").and_then(|node| node.get("env"));
    let Some(env) = env else {
        return Ok(Vec::new());
    };
    let names = reader.list(env)?.iter();
    names.map(|name| upper_name(reader, name)).collect()
}

fn read_tags<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<String>, ManifestError> {
    reader
        .list(node)?
        .iter()
        .map(|item| {
            let text = reader.text(item)?;
            if is_plain_name(text) {
                Ok(text.to_owned())
            } else {
                Err(reader.wrong_type(item, "a tag of lower-case letters, digits and dashes"))
            }
        })
        .collect()
}

fn read_exposures<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<Exposure>, ManifestError> {
    let mut exposures = Vec::new();
    for item in reader.list(node)? {
        let kind = reader.text(reader.required(item, "kind")?)?;
        match kind {
            "env" => exposures.push(read_environment(reader, item)?),
            "file" => exposures.push(read_file(reader, item)?),
            "egress-substitute" => exposures.push(read_substitute(reader, item)?),
            // Later versions of the specification may add kinds.
            _ => (),
        }
    }
    Ok(exposures)
}

fn read_environment<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Exposure, ManifestError> {
    reader.known_map(node, &["kind", "name", "field"])?;
    Ok(Exposure::Environment {
        name: upper_name(reader, reader.required(node, "name")?)?,
        field: node
            .get("field")
            .map(|field| not_empty(reader, field))
            .transpose()?,
    })
}

fn read_file<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Exposure, ManifestError> {
    const MODE_DEFAULT: u32 = 0o600;
    const MODE_MAX: u32 = 0o777;
    reader.known_map(node, &["kind", "path", "field", "mode"])?;
    let mode = match node.get("mode") {
        None => MODE_DEFAULT,
        Some(mode) => match &mode.value {
            Value::Number(digits) => digits.parse().ok().filter(|mode| *mode <= MODE_MAX),
            _ => None,
        }
        .ok_or_else(|| reader.wrong_type(mode, "a whole number from 0 to 511 (0o777)"))?,
    };
    Ok(Exposure::File {
        path: not_empty(reader, reader.required(node, "path")?)?,
        field: node
            .get("field")
            .map(|field| not_empty(reader, field))
            .transpose()?,
        mode,
    })
}

fn read_substitute<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Exposure, ManifestError> {
    const KNOWN: [&str; 4] = [
        "kind",
        "placeholderName",
        "allowedByDefault",
        "intendedProviders",
    ];
    reader.known_map(node, &KNOWN)?;
    Ok(Exposure::EgressSubstitute {
        placeholder: upper_name(reader, reader.required(node, "placeholderName")?)?,
        allowed_by_default: reader.boolean(reader.required(node, "allowedByDefault")?)?,
        intended_providers: match node.get("intendedProviders") {
            Some(list) => read_words(reader, list)?,
            None => Vec::new(),
        },
    })
}

fn not_empty<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<String, ManifestError> {
    match reader.text(node)? {
        "" => Err(reader.wrong_type(node, "text that is not empty")),
        text => Ok(text.to_owned()),
    }
}

/// `^[A-Z_][A-Z0-9_]*$`
fn upper_name<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<String, ManifestError> {
    let text = reader.text(node)?;
    if is_variable_name(text) && !text.contains(|letter: char| letter.is_ascii_lowercase()) {
        Ok(text.to_owned())
    } else {
        Err(reader.wrong_type(node, "a name of upper-case letters, digits and `_`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Inventory, ManifestError> {
        parse(
            text.as_bytes(),
            crate::document::Format::Yaml,
            "SECRETS.yaml",
        )
    }

    fn entry(more: &str) -> String {
        format!("secrets:\n- slug: the-key\n  name: Key\n  description: A key.\n  {more}\n")
    }

    #[test]
    fn every_field_is_read() {
        let text = entry(
            "kind: keypair\n  backend: vault://prod/keys\n  tags: [prod, eu-1]\n  \
             audit: {retention: P7Y, pii: true, classification: [gdpr]}\n  \
             access: {rotate: [{userId: u1}], bind: [{cap: 'cap://x'}, {role: r}]}\n  \
             metadata: {owner: team, nested: {deep: [1]}}\n  \
             exposures:\n  - {kind: file, path: ~/.netrc}\n  \
             - {kind: egress-substitute, placeholderName: KEY, allowedByDefault: false}\n  \
             - {kind: env, name: KEY, field: private}\n  - {kind: later, anything: [1]}",
        );
        let inventory = read(&text).expect("an inventory");
        let entry = &inventory.entries[0];
        assert_eq!(
            (entry.slug.as_str(), entry.kind),
            ("the-key", SecretKind::KeyPair)
        );
        assert_eq!(entry.backend.as_deref(), Some("vault://prod/keys"));
        assert_eq!(entry.tags, ["prod", "eu-1"]);
        assert_eq!(entry.audit.retention.as_deref(), Some("P7Y"));
        assert!(entry.audit.pii);
        assert_eq!(entry.access.rotate, [Holder::UserId("u1".to_owned())]);
        assert_eq!(entry.metadata["nested"]["deep"][0], 1);
        let file = Exposure::File {
            path: "~/.netrc".to_owned(),
            field: None,
            mode: 0o600,
        };
        assert_eq!((entry.exposures.len(), &entry.exposures[0]), (3, &file));
        assert_eq!(entry.field_of_variable("KEY"), Some("private"));
        assert_eq!(inventory.warnings[0].code, "backend_ignored");
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_pointer() {
        for (more, code, pointer) in [
            ("slugs: x", "unknown_key", "/secrets/0/slugs"),
            ("kind: string", "unknown_value", "/secrets/0/kind"),
            ("backend: prod", "wrong_type", "/secrets/0/backend"),
            (
                "access: {bindd: []}",
                "unknown_key",
                "/secrets/0/access/bindd",
            ),
            (
                "access: {bind: [{}]}",
                "wrong_type",
                "/secrets/0/access/bind/0",
            ),
            (
                "access: {bind: [{tool: a, role: b}]}",
                "wrong_type",
                "/secrets/0/access/bind/0",
            ),
            (
                "access: {bind: [{tool: ''}]}",
                "wrong_type",
                "/secrets/0/access/bind/0/tool",
            ),
            (
                "access: {bind: [{cap: x}]}",
                "wrong_type",
                "/secrets/0/access/bind/0/cap",
            ),
            (
                "access: {bind: {tool: a}}",
                "wrong_type",
                "/secrets/0/access/bind",
            ),
            (
                "audit: {retention: soon}",
                "wrong_type",
                "/secrets/0/audit/retention",
            ),
            (
                "audit: {retention: P}",
                "wrong_type",
                "/secrets/0/audit/retention",
            ),
            ("audit: {pii: yes}", "wrong_type", "/secrets/0/audit/pii"),
            ("tags: [Prod]", "wrong_type", "/secrets/0/tags/0"),
            ("metadata: []", "wrong_type", "/secrets/0/metadata"),
            (
                "exposures: [{name: X}]",
                "missing_key",
                "/secrets/0/exposures/0",
            ),
            (
                "exposures: [{kind: env, name: x, field: f}]",
                "wrong_type",
                "/secrets/0/exposures/0/name",
            ),
            (
                "exposures: [{kind: file, path: /x, mode: 512}]",
                "wrong_type",
                "/secrets/0/exposures/0/mode",
            ),
        ] {
            let error = read(&entry(more)).expect_err(more);
            assert_eq!(
                (error.code(), error.pointer.as_deref()),
                (code, Some(pointer)),
                "{error}"
            );
            assert!(error.to_string().starts_with("SECRETS.yaml:"), "{error}");
        }
    }

    #[test]
    fn an_inventory_has_complete_entries_with_unique_slugs() {
        for (text, code) in [
            ("secrets: []", "wrong_type"),
            ("secret: []", "unknown_key"),
            ("{}", "missing_key"),
            ("secrets: [{slug: ab, name: n}]", "missing_key"),
            (
                "secrets: [{slug: A, name: n, description: d}]",
                "wrong_type",
            ),
            (
                "secrets: [{slug: ab, name: '', description: d}]",
                "wrong_type",
            ),
        ] {
            assert_eq!(read(text).expect_err(text).code(), code, "{text}");
        }
        let twice = format!(
            "{}- {{slug: the-key, name: n, description: d}}\n",
            entry("")
        );
        let error = read(&twice).expect_err("twice");
        assert_eq!(error.code(), "duplicate_claim");
        assert!(error.to_string().contains("/secrets/0/slug"), "{error}");
        let hint = read("secrtes: []").expect_err("unknown").hint();
        assert_eq!(hint.as_deref(), Some("did you mean `secrets`?"));
    }

    /// F-04: what somebody wrote in plain text is refused, and its text is not repeated.
    #[test]
    fn a_value_in_an_inventory_is_refused_and_never_repeated() {
        for more in [
            "value: canary-7f3a",
            "plaintext: canary-7f3a",
            "ciphertext: canary-7f3a",
            "secret: canary-7f3a",
            "data: {x: canary-7f3a}",
            "key: canary-7f3a",
            "token: canary-7f3a",
            "metadata: {deep: [{api_key: canary-7f3a}]}",
            "metadata: {note: sk-live-canary-7f3a}",
            "tags: [ghp_canary-7f3a00]",
        ] {
            let error = read(&entry(more)).expect_err(more);
            assert_eq!(error.code(), "plaintext_credential", "{error}");
            let message = format!("{error} {:?}", error.hint());
            assert!(!message.contains("canary"), "{message}");
        }
    }
}
