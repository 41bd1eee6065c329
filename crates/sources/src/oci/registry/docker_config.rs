//! Credentials and credential helpers in Docker's `config.json`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use spec::base64::{self, decode};
use spec::percent::{COMPONENT, percent_encoded};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(alias = "identityToken")]
    identitytoken: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Password {
        /// Secret, like the password.
        user: String,
        password: String,
    },
    /// Identity token, exchanged for an access token.
    Identity(String),
}

impl Login {
    pub(super) fn secret(&self) -> &[u8] {
        match self {
            Self::Password { password, .. } => password.as_bytes(),
            Self::Identity(token) => token.as_bytes(),
        }
    }

    /// Returns the form that requests contain: `user:password` in Base64, or a percent-encoded
    /// token.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Password { user, password } => {
                let pair = format!("{user}:{password}");
                base64::encode(pair.as_bytes())
            }
            Self::Identity(token) => percent_encoded(token, COMPONENT),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Password { .. } => "Password",
            Self::Identity(_) => "Identity",
        })
    }
}

const HELPER_BYTES_MAX: usize = 100;

/// Key of Docker's client for a registry with an index, such as Docker Hub.
fn index_key(registry: &str) -> String {
    format!("https://index.{registry}/v1/")
}

impl DockerConfig {
    /// Parses the file. Errors quote none of its content.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| {
            format!(
                "is not valid: line {}, column {}",
                error.line(),
                error.column()
            )
        })
    }

    pub(super) fn helper(&self, registry: &str) -> Option<Helper<'_>> {
        let index = index_key(registry);
        let own = self.cred_helpers.get_key_value(registry);
        let own = own.or_else(|| self.cred_helpers.get_key_value(&index));
        if let Some((server, name)) = own {
            return Some(Helper {
                name,
                server: server.clone(),
                is_own: true,
            });
        }
        let name = self.creds_store.as_ref().filter(|name| !name.is_empty())?;
        // Docker's client leaves an empty entry under the key that it gave to the helper.
        let is_index = !self.auths.contains_key(registry) && self.auths.contains_key(&index);
        Some(Helper {
            name,
            server: if is_index { index } else { registry.to_owned() },
            is_own: false,
        })
    }

    /// Finds the login in the file: under the longest key that is a prefix of the repository, else
    /// under the registry, as a name or as a URL, else under its index. The error quotes nothing of
    /// the entry.
    pub(super) fn login(&self, registry: &str, repository: &str) -> Result<Option<Login>, String> {
        let wanted = format!("{registry}/{repository}/");
        let index = index_key(registry);
        let mut keys: Vec<(&str, &Entry)> = self
            .auths
            .iter()
            .filter(|(key, _)| {
                let name = registry_name(key);
                **key == index || name == registry || wanted.starts_with(&format!("{name}/"))
            })
            .map(|(key, entry)| (key.as_str(), entry))
            .collect();
        keys.sort_by_key(|(key, _)| (*key != index, registry_name(key).len(), *key == registry));
        for (_, entry) in keys.into_iter().rev() {
            if let Some(login) = entry.login()? {
                return Ok(Some(login));
            }
        }
        Ok(None)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Helper<'config> {
    pub(super) name: &'config str,
    pub(super) server: String,
    /// Configured for this registry alone. No other source is used.
    pub(super) is_own: bool,
}

impl Helper<'_> {
    /// Whether the name is valid in a program name and contains no path.
    pub(super) fn has_valid_name(&self) -> bool {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !self.name.is_empty()
            && self.name.len() <= HELPER_BYTES_MAX
            && self.name.bytes().all(is_plain)
    }
}

/// Strips the scheme, and a trailing `/`, `/v1/` or `/v2/`.
fn registry_name(key: &str) -> &str {
    let key = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key)
        .trim_end_matches('/');
    ["/v1", "/v2"]
        .iter()
        .find_map(|version| key.strip_suffix(version))
        .unwrap_or(key)
}

impl Entry {
    fn login(&self) -> Result<Option<Login>, String> {
        let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = non_empty(&self.identitytoken) {
            return Ok(Some(Login::Identity(token)));
        }
        if let Some(auth) = non_empty(&self.auth) {
            let invalid = || "has an `auth` that is not base64 of USER:PASSWORD".to_owned();
            let text = decode(auth.as_bytes()).ok_or_else(invalid)?;
            let text = String::from_utf8(text).map_err(|_bytes| invalid())?;
            let (user, password) = text.split_once(':').ok_or_else(invalid)?;
            return Ok(Some(Login::Password {
                user: user.to_owned(),
                // Some programs append a NUL byte.
                password: password.trim_end_matches('\0').to_owned(),
            }));
        }
        Ok(
            match (non_empty(&self.username), non_empty(&self.password)) {
                (Some(user), Some(password)) => Some(Login::Password { user, password }),
                _ => None,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(auths: &str, registry: &str, repository: &str) -> Result<Option<String>, String> {
        let text = format!("{{\"auths\":{auths}}}");
        let config = DockerConfig::parse(text.as_bytes()).expect("parsed");
        Ok(config
            .login(registry, repository)?
            .map(|login| match login {
                Login::Password { user, password } => format!("{user}:{password}"),
                Login::Identity(token) => format!("<{token}>"),
            }))
    }

    #[test]
    fn a_registry_is_found_under_the_keys_that_dockers_client_writes() {
        // dTpw is u:p.
        let entry = "{\"auth\":\"dTpw\"}";
        for key in [
            "r.test:5000",
            "http://r.test:5000",
            "https://r.test:5000",
            "https://r.test:5000/",
            "https://r.test:5000/v1/",
            "https://r.test:5000/v2/",
            "r.test:5000/a",
            "r.test:5000/a/b",
        ] {
            let found = login(&format!("{{\"{key}\":{entry}}}"), "r.test:5000", "a/b");
            assert_eq!(found, Ok(Some("u:p".to_owned())), "{key}");
        }
        for key in [
            "r.test",
            "r.test:500",
            "r.test:50000",
            "xr.test:5000",
            "ftp://r.test:5000",
            "r.test:5000/a/b/c",
            "r.test:5000/ab",
            "r.test:5000.evil",
            "",
        ] {
            let found = login(&format!("{{\"{key}\":{entry}}}"), "r.test:5000", "a/b");
            assert_eq!(found, Ok(None), "{key}");
        }
    }

    #[test]
    fn the_key_of_an_index_is_used_if_the_registry_has_no_entry() {
        let index = "\"https://index.r.test/v1/\":{\"auth\":\"dTpw\"}";
        let alone = format!("{{{index}}}");
        assert_eq!(login(&alone, "r.test", "a"), Ok(Some("u:p".to_owned())));
        for other in ["test", "index.r.test:5000", "xr.test", "r.test:5000"] {
            assert_eq!(login(&alone, other, "a"), Ok(None), "{other}");
        }
        let both = format!("{{{index},\"r.test\":{{\"username\":\"x\",\"password\":\"y\"}}}}");
        assert_eq!(login(&both, "r.test", "a"), Ok(Some("x:y".to_owned())));
        let parsed = |text: &str| {
            let config = DockerConfig::parse(text.as_bytes()).expect("parsed");
            let helper = config.helper("r.test").expect("a program");
            (helper.server, helper.is_own)
        };
        let of_index = "https://index.r.test/v1/".to_owned();
        assert_eq!(
            parsed("{\"credsStore\":\"x\",\"auths\":{\"https://index.r.test/v1/\":{}}}"),
            (of_index.clone(), false)
        );
        assert_eq!(
            parsed("{\"credHelpers\":{\"https://index.r.test/v1/\":\"x\"}}"),
            (of_index, true)
        );
        assert_eq!(
            parsed("{\"credsStore\":\"x\"}"),
            ("r.test".to_owned(), false)
        );
    }

    #[test]
    fn the_longest_key_decides_and_an_empty_entry_is_ignored() {
        let auths = "{\"r.test\":{\"auth\":\"dTpw\"},\"r.test/a\":{\"username\":\"x\",\
                     \"password\":\"y\"},\"r.test/a/b\":{}}";
        assert_eq!(login(auths, "r.test", "a/b"), Ok(Some("x:y".to_owned())));
        assert_eq!(login(auths, "r.test", "c"), Ok(Some("u:p".to_owned())));
        let token = "{\"r.test\":{\"auth\":\"dTpw\",\"identitytoken\":\"t\"}}";
        assert_eq!(login(token, "r.test", "c"), Ok(Some("<t>".to_owned())));
    }

    #[test]
    fn an_unreadable_file_is_reported_without_its_content() {
        for entry in ["{\"auth\":\"canary\"}", "{\"auth\":\"Y2FuYXJ5\"}"] {
            let error = login(&format!("{{\"r.test\":{entry}}}"), "r.test", "c");
            assert!(
                error.is_err_and(|error| !error.contains("anary")),
                "{entry}"
            );
        }
        for text in [
            "",
            "[\"canary\"]",
            "{\"auths\":{\"r\":{\"auth\":[\"canary\"]}}}",
        ] {
            let error = DockerConfig::parse(text.as_bytes()).err().expect("refused");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn the_helper_of_one_registry_has_priority() {
        let text = "{\"credsStore\":\"all\",\"credHelpers\":{\"r.test\":\"own\"}}";
        let config = DockerConfig::parse(text.as_bytes()).expect("parsed");
        let named = |registry| {
            config
                .helper(registry)
                .map(|helper| (helper.name, helper.is_own))
        };
        assert_eq!(named("r.test"), Some(("own", true)));
        assert_eq!(named("s.test"), Some(("all", false)));
        for (name, is_valid) in [
            ("pass", true),
            ("ecr-login", true),
            ("", false),
            ("../x", false),
            ("a/b", false),
            ("a b", false),
        ] {
            let helper = Helper {
                name,
                server: String::new(),
                is_own: true,
            };
            assert_eq!(helper.has_valid_name(), is_valid, "{name}");
        }
    }
}
