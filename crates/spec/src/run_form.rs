//! The `run` field as written: a string, an array, or an object.

use serde::{Serialize, Serializer};

use crate::document::Place;
use crate::manifest::Problem;
use crate::path::{PathError, RelPath, escape};
use crate::runner_block::Language;
use crate::units::limit;

/// Longest single argument, in bytes: MAX_ARG_STRLEN of execve(2) is 131,072 with its NUL.
pub(crate) const ARGUMENT_BYTES_MAX: usize = 131_071;

/// The value of `run` or `--run`. Texts are not empty and have no NUL character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// A file of the bundle or a shell command: see [`text_form`].
    Text(String),
    Array(Vec<String>),
    File(String),
    Exec(Vec<String>),
    Shell(String),
}

/// How the body is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename_all = "snake_case"))]
pub enum RunForm {
    /// An interpreter chosen by the file's extension.
    File,
    /// An argument vector.
    Exec,
    /// `bash -c`.
    Shell,
}

impl RunForm {
    /// In the order of the schemas.
    pub const ALL: [Self; 3] = [Self::File, Self::Exec, Self::Shell];

    /// The key of `run` in a manifest, and the value in plans and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Exec => "exec",
            Self::Shell => "shell",
        }
    }
}

impl Serialize for RunForm {
    fn serialize<Into: Serializer>(&self, into: Into) -> Result<Into::Ok, Into::Error> {
        into.serialize_str(self.name())
    }
}

/// The form of a `run` string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    Path,
    Shell,
}

/// Why a `run` value is invalid with any bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    #[error("`run` {what}")]
    Empty { what: &'static str },
    #[error("`run` contains a NUL character")]
    Nul,
    #[error("an argument of `run` has {bytes} bytes, the kernel takes at most {}", limit(.bytes_max))]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("the path `{path}` in `run` {reason}")]
    Path { path: String, reason: PathError },
    #[error("`{text}` is a path in quotes")]
    QuotedPath { text: String, path: String },
    #[error(
        "found {found}, expected text, a list of texts, or a map with one of {}",
        RunForm::ALL.map(RunForm::name).join(", ")
    )]
    Shape { found: String },
    /// In the JSON value of `--run`.
    #[error("{}{problem}", place.map_or_else(String::new, |place| format!("{place}: ")))]
    Part {
        place: Option<Place>,
        problem: Box<Problem>,
    },
}

impl RunError {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "run_invalid"
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Empty { .. } => Some("name a program, such as `run: main.py`".to_owned()),
            Self::Nul => None,
            Self::TooLong { .. } => Some("put the data into a file".to_owned()),
            Self::Path { .. } => {
                Some("write the path of a file inside the bundle, such as `src/main.py`".to_owned())
            }
            Self::QuotedPath { path, .. } => Some(format!(
                "for a file write `run: {{file: {}}}`",
                serde_json::Value::from(path.as_str())
            )),
            Self::Shape { .. } => Some(
                "write `run: main.py`, `run: [python, -m, main]` or `run: {shell: \"a | b\"}`"
                    .to_owned(),
            ),
            Self::Part { problem, .. } => match **problem {
                Problem::Document(_) => Some(
                    "write JSON, or `{\"shell\": \"…\"}` for a command that starts like it"
                        .to_owned(),
                ),
                _ => problem.hint(),
            },
        }
    }
}

impl Run {
    /// Validates the value.
    ///
    /// # Errors
    /// [`RunError`]: empty, too long, outside the bundle, or with a NUL character.
    pub fn checked(self) -> Result<Self, RunError> {
        match &self {
            Self::Text(text) => {
                check_text(text)?;
                if text_form(text) == TextForm::Path {
                    bundle_path(text)?;
                } else if let Some(path) = quoted_path(text) {
                    return Err(RunError::QuotedPath {
                        text: escape(text.as_bytes()),
                        path: path.to_owned(),
                    });
                }
            }
            Self::Shell(text) => check_text(text)?,
            Self::File(text) => {
                check_text(text)?;
                bundle_path(text)?;
            }
            Self::Array(arguments) | Self::Exec(arguments) => {
                let program = arguments.first().ok_or(RunError::Empty {
                    what: "is an empty list",
                })?;
                if program.is_empty() {
                    return Err(RunError::Empty {
                        what: "has an empty program name",
                    });
                }
                arguments.iter().try_for_each(|text| check_argument(text))?;
            }
        }
        Ok(self)
    }

    /// The language of the program, from its extension or name: `tool.ts`, `[python3, -m, tool]`.
    #[must_use]
    pub fn language(&self) -> Option<Language> {
        let path = match self {
            Self::File(path) => path,
            Self::Text(text) if text_form(text) == TextForm::Path => text,
            Self::Array(words) | Self::Exec(words) => {
                return match words.first().map(String::as_str) {
                    Some("node" | "npm" | "npx" | "tsx") => Some(Language::Node),
                    Some("python" | "python3") => Some(Language::Python),
                    _ => None,
                };
            }
            Self::Text(_) | Self::Shell(_) => return None,
        };
        match path.rsplit_once('.')?.1 {
            "ts" | "tsx" | "mts" | "js" | "mjs" | "cjs" => Some(Language::Node),
            "py" => Some(Language::Python),
            _ => None,
        }
    }
}

/// Decides by its characters whether `text` is a path or a shell command.
///
/// A shell command has `|`, `;`, `>`, `<`, `&`, a backtick, `$(`, `${`, a line break, or a space or
/// a tab outside quotes, or is one quoted string.
#[must_use]
pub fn text_form(text: &str) -> TextForm {
    let shell_signs = text.contains(['|', ';', '>', '<', '`', '&', '\n', '\r'])
        || text.contains("$(")
        || text.contains("${");
    if shell_signs || has_unquoted_space(text) || quoted_path(text).is_some() {
        TextForm::Shell
    } else {
        TextForm::Path
    }
}

/// Parses a path in the bundle. One leading `./` is dropped.
///
/// # Errors
/// [`RunError::Path`].
pub fn bundle_path(text: &str) -> Result<RelPath, RunError> {
    let inside = text.strip_prefix("./").unwrap_or(text);
    RelPath::parse(inside.as_bytes()).map_err(|reason| RunError::Path {
        path: crate::document::excerpt(text),
        reason,
    })
}

/// The content of `text` if it is one quoted string.
fn quoted_path(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| {
        text.trim()
            .strip_prefix(quote)?
            .strip_suffix(quote)
            .filter(|inside| !inside.is_empty() && !inside.contains(quote))
    })
}

fn has_unquoted_space(text: &str) -> bool {
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (None, ' ' | '\t') => return true,
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            // A backslash in single quotes is literal.
            (None | Some('"'), '\\') => {
                characters.next();
            }
            _ => (),
        }
    }
    // A quote that is never closed quotes nothing.
    quote.is_some() && text.contains([' ', '\t'])
}

fn check_text(text: &str) -> Result<(), RunError> {
    if text.trim().is_empty() {
        return Err(RunError::Empty { what: "is empty" });
    }
    check_argument(text)
}

fn check_argument(text: &str) -> Result<(), RunError> {
    if text.contains('\0') {
        return Err(RunError::Nul);
    }
    if ARGUMENT_BYTES_MAX < text.len() {
        return Err(RunError::TooLong {
            bytes: text.len(),
            bytes_max: ARGUMENT_BYTES_MAX,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_permit::PERMIT;

    #[test]
    fn shell_signs_make_a_shell_command() {
        for text in [
            "npm run build && node d.js",
            "a|b",
            "a;b",
            "a>b",
            "a<b",
            "`x`",
            "$(x)",
            "a||b",
            "${X}",
            "a\nb",
            "a&",
            "tail -f /dev/null",
            "tool.ts --flag",
            "my tool.ts",
            "a\tb",
            "'a b' c",
            "a\\ b c",
            "\"a b",
            "'my tool.ts'",
        ] {
            assert_eq!(text_form(text), TextForm::Shell, "{text}");
        }
        for text in [
            "tool.ts",
            "src/a.py",
            "bin/tool",
            "Makefile",
            "a\"b c\"d",
            "a\\ b",
            "$HOME",
        ] {
            assert_eq!(text_form(text), TextForm::Path, "{text}");
        }
    }

    #[test]
    fn the_schema_has_the_name_of_each_form() {
        let schema = schemars::schema_for!(RunForm);
        let variants = schema.get("oneOf").and_then(|list| list.as_array());
        let variants = variants.expect("a list of variants").iter();
        let in_schema: Vec<_> = variants.filter_map(|one| one["const"].as_str()).collect();
        assert_eq!(in_schema, RunForm::ALL.map(RunForm::name));
    }

    #[test]
    fn the_value_of_the_flag_is_text_or_json() {
        assert_eq!(
            Run::from_option(&PERMIT, "main.py"),
            Ok(Run::Text("main.py".to_owned()))
        );
        assert_eq!(
            Run::from_option(&PERMIT, r#"["python","-m","m"]"#),
            Ok(Run::Array(
                ["python", "-m", "m"].map(str::to_owned).to_vec()
            ))
        );
        assert_eq!(
            Run::from_option(&PERMIT, r#" {"shell":"main.py"}"#),
            Ok(Run::Shell("main.py".to_owned()))
        );
        assert_eq!(
            Run::from_option(&PERMIT, r#"{"exec":["a",""]}"#),
            Ok(Run::Exec(vec!["a".to_owned(), String::new()]))
        );
        for text in [
            "",
            " ",
            "[]",
            "[\"\"]",
            "{}",
            r#"{"file":"a","exec":["b"]}"#,
            r#"{"fille":"a"}"#,
            r#"{"file":1}"#,
            "[1]",
            "[\"a\\u0000b\"]",
            "/x.py",
            "../x.py",
            "a/../../x.py",
            r#"{"file":"/x.py"}"#,
            "'my tool.ts'",
            "[\"a\",]",
            r#"{"file":"a","file":"b"}"#,
        ] {
            let error = Run::from_option(&PERMIT, text).expect_err(text);
            assert_eq!(error.code(), "run_invalid", "{text}");
        }
    }

    #[test]
    fn an_error_in_the_json_of_the_flag_has_its_place() {
        for (text, message, hint) in [
            (
                r#"{"fille":"a"}"#,
                "1:2: found the key `fille`, expected one of file, exec, shell",
                "did you mean `file`?",
            ),
            (
                r#"["a",1]"#,
                "1:6: found the number 1, expected text",
                "put it in quotes",
            ),
            (
                r#"{"exec":["a""#,
                "1:13: found the end of the text, expected `,` or `]`",
                "write JSON, or `{\"shell\": \"…\"}` for a command that starts like it",
            ),
        ] {
            let error = Run::from_option(&PERMIT, text).expect_err(text);
            assert_eq!(error.to_string(), message);
            assert_eq!(error.hint().as_deref(), Some(hint), "{text}");
        }
    }

    #[test]
    fn an_argument_that_the_kernel_would_refuse_is_refused_first() {
        let long = "a".repeat(ARGUMENT_BYTES_MAX + 1);
        assert!(matches!(
            Run::Exec(vec!["a".to_owned(), long]).checked(),
            Err(RunError::TooLong { .. })
        ));
    }
}
