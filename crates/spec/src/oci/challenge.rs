//! Parses `WWW-Authenticate`, with which a registry requests authentication (RFC 9110, 11.6.1; token
//! authentication of the distribution project).

use serde::{Deserialize, Serialize};

use crate::parse_permit::ParsePermit;

const VALUE_BYTES_MAX: usize = 4096;

/// A method of authentication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Whether [`challenges`] can return it, as far as lengths say: it may come from a process that a header
    /// took over.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        match self {
            Self::Basic => true,
            Self::Bearer {
                realm,
                service,
                scope,
            } => {
                let mut values = [Some(realm), service.as_ref(), scope.as_ref()]
                    .into_iter()
                    .flatten();
                values.all(|value| (1..=VALUE_BYTES_MAX).contains(&value.len()))
            }
        }
    }
}

/// Parses the challenges of a header value, in order. Unknown schemes and malformed challenges are
/// skipped. Parsing ends at an unclosed quote and at a byte that is not allowed.
#[must_use]
pub fn challenges(_permit: &ParsePermit, header: &str) -> Vec<Challenge> {
    let mut rest = header;
    let mut found = Vec::new();
    let mut current: Option<PartialChallenge> = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((word, after)) = split_token(rest) else {
            // The rest cannot be parsed.
            if !rest.is_empty() {
                current = None;
            }
            found.extend(current.and_then(PartialChallenge::finish));
            return found;
        };
        match after.trim_start_matches([' ', '\t']).strip_prefix('=') {
            None => {
                found.extend(current.take().and_then(PartialChallenge::finish));
                current = Some(PartialChallenge::new(word));
                rest = after;
            }
            Some(written) => {
                let written = written.trim_start_matches([' ', '\t']);
                if let Some((value, after)) = split_value(written) {
                    if let Some(challenge) = &mut current {
                        challenge.set(word, value);
                    }
                    rest = after;
                } else if written.starts_with('"') {
                    return found;
                } else {
                    // A token68, such as `Negotiate abc==`.
                    current = None;
                    rest = written.split_once(',').map_or("", |(_, after)| after);
                }
            }
        }
    }
}

/// A challenge whose parameters are not complete.
struct PartialChallenge {
    scheme: String,
    realm: Option<String>,
    service: Option<String>,
    scope: Option<String>,
    is_valid: bool,
}

impl PartialChallenge {
    fn new(scheme: &str) -> Self {
        Self {
            scheme: scheme.to_ascii_lowercase(),
            realm: None,
            service: None,
            scope: None,
            is_valid: true,
        }
    }

    fn set(&mut self, name: &str, value: String) {
        let parameter = match name.to_ascii_lowercase().as_str() {
            "realm" => &mut self.realm,
            "service" => &mut self.service,
            "scope" => &mut self.scope,
            _ => return,
        };
        // A duplicate parameter is ambiguous.
        self.is_valid &= parameter.is_none() && value.len() <= VALUE_BYTES_MAX;
        *parameter = Some(value);
    }

    fn finish(self) -> Option<Challenge> {
        if !self.is_valid {
            return None;
        }
        match self.scheme.as_str() {
            "basic" => Some(Challenge::Basic),
            "bearer" => Some(Challenge::Bearer {
                realm: self.realm.filter(|realm| !realm.is_empty())?,
                service: self.service.filter(|service| !service.is_empty()),
                scope: self.scope.filter(|scope| !scope.is_empty()),
            }),
            _ => None,
        }
    }
}

/// Splits a token, or a token68 without its padding, from the rest.
fn split_token(text: &str) -> Option<(&str, &str)> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte);
    let length = text.bytes().take_while(|byte| is_token(*byte)).count();
    (length > 0).then(|| text.split_at(length))
}

/// Splits a token or a quoted string from the rest.
fn split_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        return split_token(text).map(|(value, after)| (value.to_owned(), after));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_permit::PERMIT;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        }
    }

    #[test]
    fn challenges_of_registries_are_parsed() {
        let scope = "repository:a/b:pull,push";
        for (header, expected) in [
            ("Basic realm=\"Registry Realm\"", vec![Challenge::Basic]),
            ("basic", vec![Challenge::Basic]),
            (
                "Bearer realm=\"https://auth.test/token\",service=\"r.test\",\
                 scope=\"repository:a/b:pull,push\"",
                vec![bearer(
                    "https://auth.test/token",
                    Some("r.test"),
                    Some(scope),
                )],
            ),
            (
                "BEARER Realm = \"x\" , Service=y",
                vec![bearer("x", Some("y"), None)],
            ),
            (
                "Bearer realm=\"a\\\"b\\\\\", error=\"invalid_token\"",
                vec![bearer("a\"b\\", None, None)],
            ),
            (
                "Negotiate, Basic realm=\"x\", Bearer realm=\"y\"",
                vec![Challenge::Basic, bearer("y", None, None)],
            ),
            (
                "Negotiate YII/+==, Bearer realm=\"y\"",
                vec![bearer("y", None, None)],
            ),
        ] {
            assert_eq!(challenges(&PERMIT, header), expected, "{header}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_ends_and_each_realm_is_named(
            header in "[\\PC]{0,20}|([a-zB]{1,6}[ =,\"\\\\é]{0,3}){0,30}|(Bearer )?(realm=\"?[a-z,=\\\\ ]{0,9}\"?,?){0,4}",
        ) {
            for challenge in challenges(&PERMIT, &header) {
                if let Challenge::Bearer { realm, .. } = challenge {
                    proptest::prop_assert!(!realm.is_empty() && realm.len() <= VALUE_BYTES_MAX);
                }
            }
        }
    }

    #[test]
    fn malformed_challenges_are_skipped() {
        let long = format!("Bearer realm=\"{}\"", "x".repeat(VALUE_BYTES_MAX + 1));
        for header in [
            "",
            ",,,",
            "=",
            "\"",
            "Bearer",
            "Bearer realm",
            "Bearer realm=",
            "Bearer realm=\"\"",
            "Bearer realm=\"x",
            "Bearer realm=\"x\\",
            "Bearer realm= \"x, Basic",
            "Bearer realm=\"a\",realm=\"b\"",
            "Bearer realm=\"a\",scope=\"b\",scope=\"c\"",
            "Bearer realm=\"a\" \u{7f}",
            "realm=\"x\"",
            "Digest realm=\"x\"",
            long.as_str(),
        ] {
            assert_eq!(challenges(&PERMIT, header), [], "{header}");
        }
    }
}
