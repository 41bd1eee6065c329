//! The token for the service; only the client's requests use it.

use std::fmt;

use ureq::http::HeaderValue;

use crate::github::error::GitHubError;
use crate::http::authorization;

/// A token and its source. [`fmt::Debug`] shows the source only.
#[derive(Clone)]
pub struct Token {
    header: HeaderValue,
    origin: String,
}

impl Token {
    /// Creates a token from `value`. `origin` is its source, such as `env:NAME`.
    ///
    /// # Errors
    /// [`GitHubError::Setting`]: empty, or not visible ASCII.
    pub fn new(value: &[u8], origin: impl Into<String>) -> Result<Self, GitHubError> {
        let origin = origin.into();
        let refused = |cause: &str| GitHubError::Setting {
            setting: "github.token",
            problem: format!("the token of `{origin}` {cause}"),
        };
        if value.is_empty() {
            return Err(refused("is empty"));
        }
        if !value.iter().all(u8::is_ascii_graphic) {
            return Err(refused("has white space, control or non-ASCII characters"));
        }
        let header =
            authorization("Bearer", value).ok_or_else(|| refused("is not valid in a header"))?;
        Ok(Self { header, origin })
    }

    /// Returns the source of the token.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token(of `{}`)", self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_debug_texts_nor_errors_contain_the_token() {
        let token = Token::new(b"canary-token", "env:T").expect("a token");
        assert_eq!(format!("{token:?}"), "Token(of `env:T`)");
        assert!(!format!("{:?}", token.header()).contains("canary"));
        for value in [&b""[..], b"canary token", b"canary\n", b"canary\xff"] {
            let error = Token::new(value, "env:T").expect_err("refused");
            assert!(
                error
                    .to_string()
                    .starts_with("github.token: the token of `env:T`")
            );
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }
}
