//! The query of a request: names of the API, and values that are any bytes.

use percent_encoding::percent_decode;

use super::error::ApiError;
use spec::path::escape;

/// The parameters, each at most once.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, Vec<u8>)>);

impl Query {
    /// Reads a query that may have these parameters alone.
    ///
    /// # Errors
    /// 400.
    pub(super) fn parse(text: Option<&str>, known: &[&str]) -> Result<Self, ApiError> {
        let mut found: Vec<(String, Vec<u8>)> = Vec::new();
        for part in text
            .unwrap_or_default()
            .split('&')
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let is_double = found.iter().any(|(other, _)| other == name);
            if !known.contains(&name) || is_double {
                let name = escape(name.as_bytes());
                let problem = if is_double {
                    "is there twice"
                } else {
                    "is unknown"
                };
                return Err(ApiError::bad_request(
                    "query",
                    format!("the parameter `{name}` {problem}"),
                )
                .with_hint(format!("known here: {}", known.join(", "))));
            }
            // As forms of HTML write a space.
            let value = value.replace('+', " ");
            found.push((name.to_owned(), percent_decode(value.as_bytes()).collect()));
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| &**value)
    }

    /// Text that is UTF-8.
    ///
    /// # Errors
    /// 400: it is not.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        let text = self
            .get(name)
            .map(|value| String::from_utf8(value.to_vec()));
        text.transpose()
            .map_err(|_bytes| ApiError::bad_request("query", format!("`{name}` is not UTF-8")))
    }

    /// `NAME=true`; false without it.
    ///
    /// # Errors
    /// 400: it is neither `true` nor `false`.
    pub(super) fn is_set(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some(b"false") => Ok(false),
            Some(b"true") => Ok(true),
            Some(_) => Err(ApiError::bad_request(
                "query",
                format!("`{name}` is `true` or `false`"),
            )),
        }
    }

    /// A path from the root of a sandbox, without slashes at its end.
    ///
    /// # Errors
    /// 400.
    pub(super) fn path(&self, name: &str) -> Result<Vec<u8>, ApiError> {
        match self.get(name) {
            Some(path) => check_path(name, path),
            None => refused_path(name, "is missing"),
        }
    }

    /// An octal mode.
    ///
    /// # Errors
    /// 400.
    pub(super) fn mode(&self) -> Result<Option<u32>, ApiError> {
        let Some(value) = self.get("mode") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(value)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let mode = text
            .and_then(|text| u32::from_str_radix(text, 8).ok())
            .filter(|mode| *mode <= 0o777);
        match mode {
            Some(mode) => Ok(Some(mode)),
            None => Err(ApiError::bad_request(
                "query",
                "`mode` is an octal number up to 777",
            )),
        }
    }
}

/// A path from the root of a sandbox, without slashes at its end.
///
/// # Errors
/// 400.
pub(super) fn check_path(name: &str, path: &[u8]) -> Result<Vec<u8>, ApiError> {
    let refused = |problem: &str| refused_path(name, problem);
    if !path.starts_with(b"/") {
        return refused("does not begin with a slash");
    }
    if path.contains(&0) {
        return refused("has a NUL");
    }
    if path.len() > PATH_BYTES_MAX {
        return refused("is longer than 4095 bytes");
    }
    if path.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return refused("has a `..`");
    }
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(1, |last| last + 1);
    Ok(path[..end].to_vec())
}

fn refused_path(name: &str, problem: &str) -> Result<Vec<u8>, ApiError> {
    Err(
        ApiError::bad_request("path", format!("the parameter `{name}` {problem}"))
            .with_hint("it is an absolute path in the sandbox"),
    )
}

/// With its NUL, the limit of the kernel.
const PATH_BYTES_MAX: usize = 4_095;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(query: &str) -> Option<Vec<u8>> {
        Query::parse(Some(query), &["path"])
            .and_then(|query| query.path("path"))
            .ok()
    }

    #[test]
    fn a_path_is_any_bytes_from_the_root() {
        for (query, expected) in [
            ("path=/a", &b"/a"[..]),
            ("path=%2Fa%2fb/", b"/a/b"),
            ("path=//", b"/"),
            ("path=/a+b%2B%20c", b"/a b+ c"),
            ("path=/%ff%26%3d", b"/\xff&="),
            ("path=/a=b..c", b"/a=b..c"),
        ] {
            assert_eq!(path(query).as_deref(), Some(expected), "{query}");
        }
        for query in [
            "",
            "path",
            "path=",
            "path=a",
            "path=/a%00",
            "path=/..",
            "path=/a/../b",
            "path=%2f%2e%2e",
            "path=/a&path=/a",
            "path=/a&other=1",
        ] {
            assert_eq!(path(query), None, "{query}");
        }
        assert_eq!(path(&format!("path=/{}", "a".repeat(PATH_BYTES_MAX))), None);
    }

    #[test]
    fn a_mode_is_octal_permission_bits() {
        let mode = |text| Query::parse(Some(text), &["mode"]).expect("known").mode();
        assert_eq!(mode("mode=0755").expect("a mode"), Some(0o755));
        assert_eq!(mode("").expect("none"), None);
        for bad in [
            "mode=",
            "mode=+7",
            "mode=4755",
            "mode=8",
            "mode=-1",
            "mode=99999999999999",
        ] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
