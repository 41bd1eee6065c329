//! `run` and `needs.language` of a manifest.

use serde_json::{Value as Json, json};

use crate::document::{Format, Node, Value, excerpt, parse};
use crate::manifest::reader::{Reader, describe};
use crate::manifest::schema::{described, form, reference};
use crate::manifest::{BlockDocuments, ManifestError, Problem};
use crate::parse_permit::ParsePermit;
use crate::run_form::{Run, RunError, RunForm};
use crate::runner_block::Language;

/// The schema of `run`.
pub(crate) fn schema() -> Json {
    let segments = r"(?:\./)?(?!\.{1,2}(?:/|$))[^/\x00]+(?:/(?!\.{1,2}(?:/|$))[^/\x00]+)*$";
    let path = segments.replace(r"\x00", "");
    let text = json!({
        "description": "The path of a file in the bundle, or a shell command if it has an unquoted \
                        space or one of `| ; > < & $( ${` or a backtick.",
        "allOf": [
            reference("runText"),
            {"pattern": r#"^(?!\s*"[^"]+"\s*$)(?!\s*'[^']+'\s*$)"#},
            {"pattern": format!(r#"[|;><`&\n\r \t\"']|\$[({{]|^{path}"#)},
        ],
    });
    let map = |run_form: RunForm| {
        let (description, value) = match run_form {
            RunForm::File => ("A file.", file_schema(segments)),
            RunForm::Exec => (
                "A program with arguments.",
                described("The program and its arguments.", reference("command")),
            ),
            RunForm::Shell => (
                "A shell command.",
                described("A command for `bash -c`.", reference("runText")),
            ),
        };
        form(run_form.name(), description, value)
    };
    let shapes = [text, reference("command")].into_iter();
    let shapes: Vec<Json> = shapes.chain(RunForm::ALL.map(map)).collect();
    json!({"description": "The program to start.", "oneOf": shapes})
}

fn file_schema(segments: &str) -> Json {
    json!({
        "description": "A file of the bundle, whatever its name looks like.",
        "type": "string",
        "maxLength": 4097,
        "pattern": format!(r"^(?=[^\x00]*\S){segments}"),
    })
}

/// The schema of an argument vector.
pub(crate) fn command_schema() -> Json {
    json!({
        "description": "An argument vector: no shell, no patterns.",
        "type": "array",
        "minItems": 1,
        "prefixItems": [{"allOf": [reference("argument"), {"minLength": 1}]}],
        "items": reference("argument"),
    })
}

impl Run {
    /// Parses the value of `--run`: JSON if it starts with `[` or `{`, else the text itself.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn from_option(permit: &ParsePermit, value: &str) -> Result<Self, RunError> {
        if value.trim_start().starts_with(['[', '{']) {
            Self::from_json(permit, value)
        } else {
            Self::Text(value.to_owned()).checked()
        }
    }

    /// Parses JSON text.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn from_json(permit: &ParsePermit, text: &str) -> Result<Self, RunError> {
        let root =
            parse(permit, text.as_bytes(), Format::Json).map_err(|error| RunError::Part {
                place: error.place,
                problem: Box::new(Problem::Document(error.problem)),
            })?;
        let reader = Reader::with_blocks("--run", &root, BlockDocuments::EMPTY);
        read(&reader, &root).map_err(|error| match *error.problem {
            Problem::Run(refused) => refused,
            problem => RunError::Part {
                place: error.place,
                problem: Box::new(problem),
            },
        })
    }
}

/// Reads `run`: text, a list, or a map with the key of one form.
pub(crate) fn read<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Run, ManifestError> {
    let run = match &node.value {
        Value::Text(text) => Run::Text(text.clone()),
        Value::List(_) => Run::Array(arguments(reader, node)?),
        Value::Map(_) => {
            let entries = reader.known_map(node, &RunForm::ALL.map(RunForm::name))?;
            let [(key, value)] = entries else {
                return Err(shape(reader, node));
            };
            let mut forms = RunForm::ALL.into_iter();
            match forms.find(|form| form.name() == key.name) {
                Some(RunForm::File) => Run::File(text(reader, value)?),
                Some(RunForm::Exec) => Run::Exec(arguments(reader, value)?),
                Some(RunForm::Shell) => Run::Shell(text(reader, value)?),
                None => return Err(shape(reader, node)),
            }
        }
        _ => return Err(shape(reader, node)),
    };
    check(reader, node, run)
}

/// Validates the run.
pub(crate) fn check(reader: &Reader<'_>, node: &Node, run: Run) -> Result<Run, ManifestError> {
    run.checked()
        .map_err(|error| reader.error(node, Problem::Run(error)))
}

fn shape(reader: &Reader<'_>, node: &Node) -> ManifestError {
    let found = match &node.value {
        Value::Map(entries) => format!("a map with {} keys", entries.len()),
        _ => describe(node),
    };
    reader.error(node, Problem::Run(RunError::Shape { found }))
}

fn arguments<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<String>, ManifestError> {
    reader
        .list(node)?
        .iter()
        .map(|item| text(reader, item))
        .collect()
}

/// NUL characters are left to [`Run::checked`], which reports `run_invalid`.
fn text(reader: &Reader<'_>, node: &Node) -> Result<String, ManifestError> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(reader.wrong_type(node, "text")),
    }
}

pub(crate) fn check_language(
    reader: &Reader<'_>,
    node: &Node,
    run: &Run,
    language: Option<Language>,
) -> Result<(), ManifestError> {
    match contradiction(run, language) {
        None => Ok(()),
        Some((language, program)) => {
            let problem = Problem::NeedsContradictRun {
                language,
                decided_by: None,
                program,
            };
            Err(reader.error(node, problem))
        }
    }
}

/// The name of `language` and the program of `run`, if they contradict.
pub(crate) fn contradiction(
    run: &Run,
    language: Option<Language>,
) -> Option<(&'static str, String)> {
    let (Run::File(path) | Run::Text(path)) = run else {
        return None;
    };
    let of_file = run.language()?;
    let named = language.filter(|named| *named != Language::Multi && *named != of_file)?;
    Some((named.name(), excerpt(path)))
}
