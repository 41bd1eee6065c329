//! `secrets`: which variables get a value that never stands in the manifest.

use crate::spec::credential;
use crate::spec::document::{Node, Value, excerpt};
use crate::spec::manifest::reader::Reader;
use crate::spec::manifest::{ManifestError, Problem};

/// One variable whose value is a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRequest {
    /// Name of the environment variable.
    pub variable: String,
    /// Where the author expects the value.
    pub reference: SecretReference,
    /// The key that asks: `secrets`, `sandbox.env.auth`, `runtime.env`.
    pub source: String,
}

/// Where the author expects the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretReference {
    /// A name in the caller's vault.
    Vault(String),
    /// A connector that gives out fresh access tokens: `{oauth: …}`.
    OAuth(String),
    /// The value itself: `{value: …}`. It is plain and no secret.
    Literal(String),
}

/// Reads `secrets`: a map of variables to `{vault: NAME}`.
pub(crate) fn read<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<SecretRequest>, ManifestError> {
    let node = reader.block(node, "secrets")?;
    let mut requests = Vec::new();
    for (key, value) in reader.map(node)? {
        if !is_variable_name(&key.name) {
            return Err(reader.key_error(
                node,
                key,
                Problem::WrongType {
                    found: format!("the key `{}`", excerpt(&key.name)),
                    expected: "the name of a variable, such as API_KEY".to_owned(),
                    hint: None,
                },
            ));
        }
        requests.push(SecretRequest {
            variable: key.name.clone(),
            reference: SecretReference::Vault(read_vault(reader, value)?),
            source: "secrets".to_owned(),
        });
    }
    Ok(requests)
}

fn read_vault<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<String, ManifestError> {
    let in_plain_text = |node: &Node, why| reader.error(node, Problem::PlaintextCredential { why });
    if let Value::Text(_) = &node.value {
        return Err(in_plain_text(node, "a secret is `{vault: NAME}`"));
    }
    // Said before "unknown key", which would not say what is wrong with `{value: …}`.
    if let Some(value) = ["value", "plaintext", "ciphertext"]
        .into_iter()
        .find_map(|key| node.get(key))
    {
        return Err(in_plain_text(value, "a secret is `{vault: NAME}`"));
    }
    reader.known_map(node, &["vault"])?;
    let vault = reader.required(node, "vault")?;
    let name = reader.name(vault)?;
    if credential::looks_issued(name) {
        return Err(in_plain_text(vault, "it starts like an issued one"));
    }
    Ok(name.to_owned())
}

/// Whether `text` is a portable name of an environment variable: letters, digits and `_`.
#[must_use]
pub fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
