//! `secrets`: variables with secret values and their sources.

use serde_json::{Map, Value as Json, json};

use crate::credential;
use crate::document::{Node, Value, excerpt};
use crate::inventory::{self, Consumer, Inventory, find_permission};
use crate::manifest::reader::{FORMS, Reader};
use crate::manifest::schema::{described, reference};
use crate::manifest::{ManifestError, Problem};

/// A variable with a secret value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRequest {
    pub variable: String,
    pub reference: SecretReference,
    pub source: String,
}

/// The source of a variable's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretReference {
    /// A slug of the vault: `{vault: …}`, or derived from a name of `env.auth`.
    Vault(String),
    /// A connector that issues access tokens: `{oauth: …}`.
    OAuth(String),
    /// The value itself: `{value: …}`. Not a secret.
    Literal(String),
}

impl SecretReference {
    /// Whether the value is a secret.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        !matches!(self, Self::Literal(_))
    }
}

/// Reads `secrets`: a map of variables to `{vault: NAME}`, `{oauth: NAME}` or `{value: TEXT}`, or
/// an inventory: see `of_inventories`.
pub(crate) fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<SecretRequest>, ManifestError> {
    let block = reader.block(node, "secrets")?;
    if reader.is_document(block) {
        let entries = inventory::read(reader, block);
        let mut inventory = Inventory::new(reader.file_of(block), entries);
        inventory.is_requested = true;
        reader.inventories.push(inventory);
        return Ok(Vec::new());
    }
    let mut requests = Vec::new();
    for (key, value) in reader.map(block)? {
        if !is_variable_name(&key.name) {
            reader.note(reader.key_error(
                block,
                key,
                Problem::WrongType {
                    found: format!("the key `{}`", excerpt(&key.name)),
                    expected: "the name of a variable, such as API_KEY".to_owned(),
                    hint: None,
                },
            ));
        }
        if let Some(reference) = reader.keep(read_reference(reader, value)) {
            requests.push(SecretRequest {
                variable: key.name.clone(),
                reference,
                source: "secrets".to_owned(),
            });
        }
    }
    Ok(requests)
}

/// The requests of `who` by `secrets: {ref: …}`: each secret that an inventory grants to it, for
/// each variable that the secret is exposed as.
pub(crate) fn of_inventories(inventories: &[Inventory], who: &Consumer) -> Vec<SecretRequest> {
    let requested = inventories.iter().filter(|one| one.is_requested);
    let entries = requested.flat_map(|one| &one.entries);
    entries
        .filter(|entry| find_permission(entry, who).is_some())
        .flat_map(|entry| {
            let variables = entry.variables().into_iter();
            variables.map(|variable| SecretRequest {
                variable,
                reference: SecretReference::Vault(entry.slug.clone()),
                source: "secrets".to_owned(),
            })
        })
        .collect()
}

const REFERENCES: [&str; 3] = ["vault", "oauth", "value"];

pub(crate) fn schema() -> Json {
    let kinds = [
        ("vault", "line", "A slug of the host's vault."),
        ("oauth", "line", "A connector that issues access tokens."),
        (
            "value",
            "text",
            "The value itself: not a secret. What looks like an issued credential is refused.",
        ),
    ];
    let kinds: Map<String, Json> = kinds
        .into_iter()
        .map(|(key, text, description)| (key.to_owned(), described(description, reference(text))))
        .collect();
    json!({
        "description": "Variables, each with the source of its value. The value of a secret is \
                        never written here.",
        "type": "object",
        "propertyNames": reference("variable"),
        "not": {"anyOf": FORMS.map(|form| json!({"required": [form]}))},
        "additionalProperties": {
            "description": "The source of one value: exactly one of the three.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
            "properties": kinds,
        },
    })
}

fn read_reference<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<SecretReference, ManifestError> {
    let in_plain_text = |node: &Node, why| reader.error(node, Problem::PlaintextCredential { why });
    if let Value::Text(_) = &node.value {
        return Err(in_plain_text(node, "a secret is `{vault: NAME}`"));
    }
    // Checked first: an unknown-key error would not name the problem of `{plaintext: …}`.
    if let Some(value) = ["plaintext", "ciphertext"]
        .into_iter()
        .find_map(|key| node.get(key))
    {
        return Err(in_plain_text(value, "a secret is `{vault: NAME}`"));
    }
    let entries = reader.entries(node, &REFERENCES)?;
    let (key, value) = match entries.as_slice() {
        // Unknown keys have been reported.
        [] if node.value != Value::Map(Vec::new()) => {
            return Err(reader.error(node, Problem::MissingKey { key: "vault" }));
        }
        [] => {
            let key = "vault`, `oauth` or `value";
            return Err(reader.error(node, Problem::MissingKey { key }));
        }
        [(key, value)] => (key.name.as_str(), value),
        [(one, _), (other, value), ..] => {
            let word = |name: &str| REFERENCES.into_iter().find(|known| *known == name);
            let (one, other) = (word(&one.name), word(&other.name));
            let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
            return Err(reader.error(value, Problem::Conflict { one, other }));
        }
    };
    let text = match key {
        "value" => reader.text(value)?,
        _ => reader.name(value)?,
    };
    if credential::looks_issued(text) {
        return Err(in_plain_text(value, "it starts like an issued one"));
    }
    let text = text.to_owned();
    Ok(match key {
        "vault" => SecretReference::Vault(text),
        "oauth" => SecretReference::OAuth(text),
        _ => SecretReference::Literal(text),
    })
}

/// The slug that is derived from a variable by default: `STRIPE_API_KEY` is `stripe-api-key`
/// (AIP-17).
#[must_use]
pub(crate) fn slug_of_variable(variable: &str) -> String {
    variable.to_lowercase().replace('_', "-")
}

/// Whether `text` is a portable name of an environment variable: letters, digits and `_`.
#[must_use]
pub(crate) fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
