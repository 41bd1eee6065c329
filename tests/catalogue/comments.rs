//! Reads from the comment of a test which rows it proves.
//!
//! A comment states rows if its first sentence, up to the first `. ` or `: ` or the end, begins
//! with the id of a row; `Case 9, ` and the like may precede it. Every id of that sentence counts,
//! and `A-07 … A-09` are three. An id in any other comment, and a malformed id in such a sentence,
//! are errors, so no id is ignored.

use std::collections::BTreeSet;

/// How many rows each section has.
pub(crate) const SECTIONS: &[(char, u32)] = &[
    ('A', 91),
    ('B', 76),
    ('C', 43),
    ('D', 29),
    ('E', 37),
    ('F', 19),
    ('G', 25),
    ('H', 20),
];

/// The macro that makes two tests of each of its functions: `name::tproxy`, `name::anyip`.
const TWO_TESTS: (&str, [&str; 2]) = ("on_both_captures! {", ["tproxy", "anyip"]);

/// A row's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) section: char,
    pub(crate) number: u32,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:02}", self.section, self.number)
    }
}

/// A test, and the rows that it claims to prove.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) rows: BTreeSet<Id>,
    /// `program::module::function`, or `tests/guest/run: function` for a script.
    pub(crate) name: String,
    /// The name for the test command, if different.
    pub(crate) variants: Vec<String>,
}

/// The statements of the comments of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) proofs: Vec<Proof>,
    /// The errors, each with its line.
    pub(crate) errors: Vec<String>,
}

/// An id is the letter of a section, a hyphen and two digits, and not a part of a longer word.
pub(crate) fn parse_id(word: &str) -> Option<Id> {
    let mut letters = word.chars();
    let section = letters.next()?;
    let number = letters.as_str().strip_prefix('-')?;
    let two_digits = number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit());
    if !two_digits || !SECTIONS.iter().any(|(letter, _)| *letter == section) {
        return None;
    }
    let number = number.parse().ok()?;
    Some(Id { section, number })
}

/// Text that may be meant as an id: `A7`, `a-07`, `A–07`, `A-7`, `A-007`.
fn looks_like_an_id(word: &str) -> bool {
    let mut letters = word.chars();
    let is_section = letters.next().is_some_and(|letter| {
        let letter = letter.to_ascii_uppercase();
        SECTIONS.iter().any(|(section, _)| *section == letter)
    });
    let number = letters
        .as_str()
        .trim_start_matches(['-', '–', '—', '_', '.']);
    is_section
        && (1..=3).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Letters, digits and separators of ids.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && !"-–—_".contains(letter))
        .filter(|word| !word.is_empty())
}

fn names_a_row(text: &str) -> bool {
    words(text).any(|word| parse_id(word).is_some())
}

/// The first sentence, and the rest.
fn first_sentence(text: &str) -> (&str, &str) {
    let end = [". ", ": "]
        .iter()
        .filter_map(|end| text.find(end))
        .min()
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Whether the text before the first id is a number of another list: `Cases 2 and 8, `.
fn is_another_list(before: &str) -> bool {
    let mut words = words(before);
    before.trim().is_empty()
        || (matches!(words.next(), Some("Case" | "Cases"))
            && words.all(|word| matches!(word, "and" | "to") || word.parse::<u32>().is_ok()))
}

/// The rows that a comment states.
///
/// # Errors Malformed ids, and ids where they do not count.
pub(crate) fn rows_of(text: &str) -> Result<BTreeSet<Id>, String> {
    let (sentence, rest) = first_sentence(text);
    let mut rows = BTreeSet::new();
    let mut last: Option<(Id, usize)> = None;
    for word in words(sentence) {
        let from = word.as_ptr().addr() - sentence.as_ptr().addr();
        let Some(id) = parse_id(word) else {
            continue;
        };
        let before = &sentence[last.map_or(0, |(_, end)| end)..from];
        match last {
            None if !is_another_list(before) => {
                return Err(format!("{id} does not stand at the beginning"));
            }
            Some((first, _)) if before.trim() == "…" => {
                if first.section != id.section || id.number <= first.number {
                    return Err(format!("{first} … {id} is not a range"));
                }
                rows.extend((first.number..id.number).map(|number| Id { number, ..id }));
            }
            _ => (),
        }
        rows.insert(id);
        last = Some((id, from + word.len()));
    }
    let strange = words(sentence)
        .find(|word| looks_like_an_id(word) && parse_id(word).is_none())
        // In a comment without ids, a word such as `C11` is not an id.
        .filter(|word| !rows.is_empty() || text.starts_with(word));
    if let Some(word) = strange {
        return Err(format!("`{word}` looks like a row and is none"));
    }
    if names_a_row(rest) {
        return Err("a row is named after the first sentence".to_owned());
    }
    Ok(rows)
}

/// The doc comment and the attributes of the current item.
#[derive(Default)]
struct Head {
    text: String,
    is_test: bool,
    is_in_attribute: bool,
}

/// The tests of one Rust file: its text, and its module path.
pub(crate) fn tests_of(text: &str, path: &str) -> Found {
    let mut found = Found::default();
    let mut modules: Vec<(&str, usize)> = Vec::new();
    let mut two_tests: Option<usize> = None;
    let mut head = Head::default();
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code == "}" {
            modules.retain(|(_, opened)| *opened < indent);
            two_tests = two_tests.filter(|opened| *opened < indent);
        }
        if let Some(comment) = code.strip_prefix("///") {
            head.text.push_str(comment.trim());
            head.text.push(' ');
        } else if head.is_in_attribute || code.starts_with("#[") {
            head.is_test |= code == "#[test]";
            head.is_in_attribute = !code.ends_with(']');
        } else {
            if other_comment(code).is_some_and(names_a_row) {
                found.errors.push(format!(
                    "{number}: a row is named in a comment that is not right above a test"
                ));
            }
            if let Some(module) = block_name(code) {
                modules.push((module, indent));
            } else if code == TWO_TESTS.0 {
                two_tests = Some(indent);
            }
            let item = std::mem::take(&mut head);
            let function = function_name(code)
                .filter(|_| item.is_test || two_tests.is_some_and(|opened| opened + 4 == indent));
            let path = [path]
                .into_iter()
                .chain(modules.iter().map(|(name, _)| *name))
                .chain(function)
                .collect::<Vec<_>>()
                .join("::");
            let variants = match item.is_test {
                true => Vec::new(),
                false => TWO_TESTS.1.map(|kind| format!("{path}::{kind}")).to_vec(),
            };
            let proof = (path, variants);
            found.note(number, &item.text, function.map(|_| proof));
        }
    }
    found
}

impl Found {
    /// Adds one comment and the test below it: its name, and its other name.
    fn note(&mut self, line: usize, text: &str, test: Option<(String, Vec<String>)>) {
        match (rows_of(text.trim()), test) {
            (Ok(rows), _) if rows.is_empty() => (),
            (Ok(rows), Some((name, variants))) => self.proofs.push(Proof {
                rows,
                name,
                variants,
            }),
            (Ok(_), None) => self.errors.push(format!(
                "{line}: the comment above names rows, and this is no test"
            )),
            (Err(error), Some((name, _))) => self.errors.push(format!("{line}: {name}: {error}")),
            // Comments of items that are not tests may mention C11.
            (Err(error), None) if names_a_row(text) => {
                self.errors
                    .push(format!("{line}: the comment above: {error}"));
            }
            (Err(_), None) => (),
        }
    }
}

/// The functions of one script whose comments name rows. `path` is the script's own.
pub(crate) fn checks_of(text: &str, path: &str) -> Found {
    let mut found = Found::default();
    let mut function = None;
    let mut comment = String::new();
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        if let Some(text) = line.trim_start().strip_prefix("# ") {
            comment.push_str(text);
            comment.push(' ');
            continue;
        }
        let name = match function {
            Some(function) => format!("{path}: {function}"),
            None => path.to_owned(),
        };
        found.note(
            number,
            &std::mem::take(&mut comment),
            Some((name, Vec::new())),
        );
        if let Some((name, _)) = line.split_once("() {") {
            function = (!name.starts_with(' ')).then_some(name);
        } else if line == "}" {
            function = None;
        }
    }
    found
}

/// A comment that documents no item.
fn other_comment(code: &str) -> Option<&str> {
    code.strip_prefix("//")
        .or_else(|| code.split_once(" // ").map(|(_, comment)| comment))
}

fn block_name(code: &str) -> Option<&str> {
    let code = code.strip_prefix("pub(crate) ").unwrap_or(code);
    code.strip_prefix("mod ")?.strip_suffix(" {")
}

fn function_name(code: &str) -> Option<&str> {
    let (_, rest) = code.split_once("fn ")?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
    Some(&rest[..end])
}
