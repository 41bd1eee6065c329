//! The tables of docs/threats.md: parses and checks them, and writes their last column.

use std::collections::{BTreeMap, BTreeSet};

use super::comments::{Id, Proof, SECTIONS, parse_id};

const NOT_APPLICABLE: &str = "not applicable: because ";
const TIERS: &[&str] = &["P", "U", "R", "V", "long", "soak"];
/// Maximum number of named tests of a row; further ones are counted.
const NAMED_MAX: usize = 3;
/// The text for a row without tests.
const NONE: &str = "–";

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: Id,
    /// The columns tier, attack, must, tests as written.
    cells: [String; 4],
    line: usize,
}

impl Row {
    pub(crate) fn is_applicable(&self) -> bool {
        !self.cells[2].starts_with(NOT_APPLICABLE)
    }
}

/// The valid rows of the document, and the errors: lines that look like rows and are not, and
/// duplicate or missing ids.
pub(crate) fn rows(document: &str) -> (Vec<Row>, Vec<String>) {
    let mut rows = Vec::new();
    let mut errors = Vec::new();
    let mut section = None;
    for (number, line) in (1..).zip(document.lines()) {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.chars().next();
        }
        if !line.starts_with("| ") || line.starts_with("| ---") || line.starts_with("| id |") {
            continue;
        }
        if section.is_none() {
            continue;
        }
        match row(line, number, section) {
            Ok(row) => rows.push(row),
            Err(error) => errors.push(format!("line {number}: {error}")),
        }
    }
    errors.extend(wrong_numbers(&rows));
    (rows, errors)
}

fn row(line: &str, number: usize, section: Option<char>) -> Result<Row, String> {
    let cells = cells(line);
    let Ok([first, rest @ ..]) = <[String; 5]>::try_from(cells) else {
        return Err("a row has five cells, and `\\|` for a bar in one".to_owned());
    };
    let id = parse_id(&first).ok_or_else(|| format!("`{first}` is not an id"))?;
    if Some(id.section) != section {
        return Err(format!("{id} stands in another section"));
    }
    let strange = rest[0].split(' ').find(|word| !TIERS.contains(word));
    if let Some(word) = strange {
        return Err(format!("{id}: `{word}` is no tier"));
    }
    let empty = ["tier", "what is tried", "must", "tests"]
        .iter()
        .zip(&rest)
        .find(|(_, cell)| cell.is_empty());
    if let Some((name, _)) = empty {
        return Err(format!("{id}: nothing below `{name}`"));
    }
    // `0x40 | nr`, without a backslash before the bar.
    if rest.iter().any(|cell| cell.matches('`').count() % 2 == 1) {
        return Err(format!("{id}: a cell has half a pair of backquotes"));
    }
    if rest[2].starts_with("not applicable") && rest[2].len() <= NOT_APPLICABLE.len() {
        return Err(format!("{id}: not applicable, and no reason"));
    }
    Ok(Row {
        id,
        cells: rest,
        line: number,
    })
}

/// The text between the bars; `\|` does not separate.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_escaped = false;
    for letter in line.chars() {
        match letter {
            '|' if !is_escaped => cells.push(String::new()),
            _ => cells.last_mut().expect("one at least").push(letter),
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    let inside = cells.len().saturating_sub(2);
    let inside = cells.into_iter().skip(1).take(inside);
    inside.map(|cell| cell.trim().to_owned()).collect()
}

fn wrong_numbers(rows: &[Row]) -> Vec<String> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        if !seen.insert(row.id) {
            errors.push(format!("line {}: {} is there twice", row.line, row.id));
        }
    }
    for (section, count) in SECTIONS {
        let expected = (1..=*count).map(|number| Id {
            section: *section,
            number,
        });
        let missing = expected.clone().filter(|id| !seen.contains(id));
        errors.extend(missing.map(|id| format!("{id} is missing")));
        let stray = seen
            .iter()
            .filter(|id| id.section == *section && *count < id.number || id.number == 0);
        errors
            .extend(stray.map(|id| format!("{id} is one too many: section {section} has {count}")));
    }
    errors
}

/// The tests of each row, by name.
pub(crate) fn by_row(proofs: &[Proof]) -> BTreeMap<Id, Vec<&Proof>> {
    let mut tests: BTreeMap<Id, Vec<&Proof>> = BTreeMap::new();
    for proof in proofs {
        for id in &proof.rows {
            tests.entry(*id).or_default().push(proof);
        }
    }
    for proofs in tests.values_mut() {
        proofs.sort_by(|one, other| one.name.cmp(&other.name));
    }
    tests
}

/// Disagreements between rows and tests.
pub(crate) fn disagreements(rows: &[Row], tests: &BTreeMap<Id, Vec<&Proof>>) -> Vec<String> {
    let mut errors = Vec::new();
    for row in rows {
        match tests.get(&row.id) {
            None if row.is_applicable() => {
                errors.push(format!("{} has no test", row.id));
            }
            Some(tests) if !row.is_applicable() => errors.push(format!(
                "{} is not applicable, and {} says that it proves it",
                row.id, tests[0].name
            )),
            _ => (),
        }
    }
    for (id, tests) in tests {
        if !rows.iter().any(|row| row.id == *id) {
            errors.push(format!(
                "{} names {id}, and there is no such row",
                tests[0].name
            ));
        }
    }
    errors
}

/// The document with the last column generated from the tests.
pub(crate) fn generated(document: &str, rows: &[Row], tests: &BTreeMap<Id, Vec<&Proof>>) -> String {
    let mut lines: Vec<String> = document.lines().map(str::to_owned).collect();
    for row in rows {
        let [tier, tried, must, _] = &row.cells;
        let tests = tests.get(&row.id).map(Vec::as_slice).unwrap_or_default();
        let named = column(tests);
        lines[row.line - 1] = format!("| {} | {tier} | {tried} | {must} | {named} |", row.id);
    }
    lines.join("\n") + "\n"
}

fn column(tests: &[&Proof]) -> String {
    let named = tests.iter().take(NAMED_MAX);
    let mut lines: Vec<String> = named.map(|proof| format!("`{}`", proof.name)).collect();
    if NAMED_MAX < tests.len() {
        lines.push(format!("and {} more", tests.len() - NAMED_MAX));
    }
    match lines.is_empty() {
        true => NONE.to_owned(),
        false => lines.join("<br>"),
    }
}

/// For `scripts/threats`: each row with the names of its tests for the test command.
pub(crate) fn told(tests: &BTreeMap<Id, Vec<&Proof>>) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, tests) in tests {
        for proof in tests {
            let names = match proof.variants.as_slice() {
                [] => std::slice::from_ref(&proof.name),
                variants => variants,
            };
            lines.extend(names.iter().map(|name| format!("row {id} {name}")));
        }
    }
    lines
}
