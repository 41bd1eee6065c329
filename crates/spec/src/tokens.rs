//! Tokens in the paths of `inputsFiles` and `outputsFiles`. They are replaced once; values are not
//! parsed again.

use crate::did_you_mean::nearest;
use crate::path::{PathError, RelPath, escape};

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    RunId,
    WorkflowId,
    ToolId,
    /// The day in UTC: `2026-05-03`.
    IsoDate,
}

impl Token {
    const ALL: [Self; 4] = [Self::RunId, Self::WorkflowId, Self::ToolId, Self::IsoDate];

    /// The token in a path.
    #[must_use]
    pub const fn written(self) -> &'static str {
        match self {
            Self::RunId => "<runId>",
            Self::WorkflowId => "<workflowId>",
            Self::ToolId => "<toolId>",
            Self::IsoDate => "<isoDate>",
        }
    }
}

/// Why a path with tokens is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("found the token `{found}`, expected <runId>, <workflowId>, <toolId> or <isoDate>")]
    Unknown {
        found: String,
        near: Option<&'static str>,
    },
    #[error("found `<` without `>`")]
    Unclosed,
    #[error("`{token}` is `{value}`, which is not one path segment")]
    Value { token: &'static str, value: String },
    /// `path`: with its tokens as written, escaped.
    #[error("the path `{path}` {reason}")]
    Path { path: String, reason: PathError },
}

impl TokenError {
    /// Stable error code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::Unclosed => "token_unknown",
            Self::Value { .. } => "token_id_invalid",
            Self::Path { .. } => "path_refused",
        }
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown {
                near: Some(near), ..
            } => Some(format!("did you mean `{near}`?")),
            Self::Unknown { near: None, .. } => Some("remove `<` and `>`".to_owned()),
            Self::Unclosed => Some("add `>`, or remove `<`".to_owned()),
            Self::Value { .. } => Some(
                "set `id` to a single path segment: no `/`, not `.` or `..`, at most 255 bytes"
                    .to_owned(),
            ),
            Self::Path { .. } => None,
        }
    }
}

/// A path with tokens, parsed into parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPath {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Token(Token),
}

/// The values of the tokens in one run, fixed when the run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenValues<'run> {
    pub run_id: &'run str,
    /// The manifest's id, else its name.
    pub manifest_id: &'run str,
    /// Start of the run, in seconds since 1970-01-01 00:00 UTC.
    pub start_unix_s: i64,
}

impl TokenPath {
    /// Parses a path with tokens. One leading `./` is dropped.
    ///
    /// # Errors
    /// [`TokenError::Unknown`] and [`TokenError::Unclosed`]; [`TokenError::Path`] if the path is
    /// invalid with any values.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let mut parts = Vec::new();
        let mut rest = text.strip_prefix("./").unwrap_or(text);
        while let Some(start) = rest.find('<') {
            if start > 0 {
                parts.push(Part::Text(rest[..start].to_owned()));
            }
            let end = rest[start..].find('>').ok_or(TokenError::Unclosed)? + start + 1;
            let written = &rest[start..end];
            let token = Token::ALL
                .into_iter()
                .find(|token| token.written() == written);
            parts.push(Part::Token(token.ok_or_else(|| unknown(written))?));
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        let path = Self { parts };
        path.fill(|_| "x")?;
        Ok(path)
    }

    /// The tokens of the path.
    pub fn tokens(&self) -> impl Iterator<Item = Token> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Token(token) => Some(*token),
        })
    }

    /// The path for documents: [`TokenPath::parse`] reads it. It is not escaped for messages.
    #[must_use]
    pub fn written(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Token(token) => token.written(),
        });
        parts.collect()
    }

    /// Replaces each token once. The values are not searched for tokens.
    ///
    /// # Errors
    /// [`TokenError::Value`]: a value is not one path segment. [`TokenError::Path`]: the result is
    /// not a valid path.
    pub fn resolve(&self, values: TokenValues<'_>) -> Result<RelPath, TokenError> {
        let date = iso_date(values.start_unix_s);
        self.fill(|token| match token {
            Token::RunId => values.run_id,
            Token::WorkflowId | Token::ToolId => values.manifest_id,
            Token::IsoDate => &date,
        })
    }

    fn fill<'value>(&self, value_of: impl Fn(Token) -> &'value str) -> Result<RelPath, TokenError> {
        let mut path = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Token(token) => {
                    let value = value_of(*token);
                    if !is_segment(value) {
                        return Err(TokenError::Value {
                            token: token.written(),
                            value: escape(value.as_bytes()),
                        });
                    }
                    path.push_str(value);
                }
            }
        }
        RelPath::parse(path.as_bytes()).map_err(|reason| TokenError::Path {
            path: self.to_string(),
            reason,
        })
    }
}

impl std::fmt::Display for TokenPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => formatter.write_str(&escape(text.as_bytes())),
            Part::Token(token) => formatter.write_str(token.written()),
        })
    }
}

/// Whether `text` is a valid path segment.
#[must_use]
pub fn is_segment(text: &str) -> bool {
    !text.contains('/') && RelPath::parse(text.as_bytes()).is_ok()
}

fn unknown(written: &str) -> TokenError {
    let word: String = written.chars().take(60).collect();
    TokenError::Unknown {
        found: escape(word.as_bytes()),
        near: nearest(written, Token::ALL.map(Token::written)),
    }
}

/// The day of `unix_s` in UTC as `YYYY-MM-DD`, in the Gregorian calendar.
#[must_use]
pub fn iso_date(unix_s: i64) -> String {
    const SECONDS_PER_DAY: i64 = 86_400;
    // Days are counted from 0000-03-01, so that the leap day is the last of the year. 400 years
    // have 146,097 days.
    const DAYS_BEFORE_1970: i64 = 719_468;
    const DAYS_PER_ERA: i64 = 146_097;
    let days = unix_s.div_euclid(SECONDS_PER_DAY) + DAYS_BEFORE_1970;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_gregorian_calendar() {
        for (unix_s, date) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (86_400, "1970-01-02"),
            (-1, "1969-12-31"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (4_107_542_400, "2100-03-01"),
            (1_777_766_400, "2026-05-03"),
            (253_402_300_799, "9999-12-31"),
        ] {
            assert_eq!(iso_date(unix_s), date, "{unix_s}");
        }
    }

    #[test]
    fn the_values_of_tokens_are_not_parsed_again() {
        let path = TokenPath::parse("out/<isoDate>/<toolId>-<runId>.csv").expect("a path");
        let values = TokenValues {
            run_id: "<toolId>",
            manifest_id: "report",
            start_unix_s: 0,
        };
        assert_eq!(
            path.resolve(values).expect("contained").to_string(),
            "out/1970-01-01/report-<toolId>.csv"
        );
    }

    #[test]
    fn an_id_is_one_path_segment() {
        let path = TokenPath::parse("out/<workflowId>/x").expect("a path");
        for id in ["..", ".", "", "a/b", "/", "a\0b"] {
            let values = TokenValues {
                run_id: "r",
                manifest_id: id,
                start_unix_s: 0,
            };
            assert!(
                matches!(path.resolve(values), Err(TokenError::Value { .. })),
                "{id}"
            );
        }
    }

    #[test]
    fn unknown_tokens_and_invalid_paths_are_refused_by_the_parser() {
        assert!(matches!(
            TokenPath::parse("<runid>.txt"),
            Err(TokenError::Unknown {
                near: Some("<runId>"),
                ..
            })
        ));
        assert_eq!(TokenPath::parse("a<b"), Err(TokenError::Unclosed));
        for path in ["../<runId>", "/<runId>", "<runId>/../..", "", "a//<runId>"] {
            assert!(
                matches!(TokenPath::parse(path), Err(TokenError::Path { .. })),
                "{path}"
            );
        }
        assert!(TokenPath::parse("./a/<runId>").is_ok());
    }

    #[test]
    fn an_invalid_path_is_shown_as_written() {
        let error = TokenPath::parse("../<runId>").expect_err("outside");
        assert!(error.to_string().contains("`../<runId>`"), "{error}");
    }

    #[test]
    fn the_hint_for_an_unclosed_token_does_not_name_a_bracket_that_is_missing() {
        let hint = TokenPath::parse("a<b").expect_err("unclosed").hint();
        assert_eq!(hint.as_deref(), Some("add `>`, or remove `<`"));
    }
}
