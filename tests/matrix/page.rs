//! What was found as a table: docs/matrix.md.

use std::fmt::Write as _;

use crate::cases::{CASES, Case};
use crate::source::source_path;
use crate::tools::Tool;
use crate::{Column, Verdict, support};

const PATH: &str = "docs/matrix.md";

pub struct Page<'found> {
    pub columns: &'found [Column],
    /// Who takes no part, and why.
    pub absent: &'found [(Tool, String)],
    /// Whether each case tells anything on this host, for this user.
    pub shown: &'found [bool],
}

impl Page<'_> {
    fn runner(&self) -> &Column {
        let found = self.columns.iter().find(|one| one.tool == Tool::Runner);
        found.expect("the runner takes part")
    }

    fn others(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|one| one.tool != Tool::Runner)
    }

    /// Cases that tell something: the case, its place.
    fn telling(&self) -> impl Iterator<Item = (usize, &'static Case)> {
        let cases = CASES.iter().enumerate();
        cases.filter(|(place, _)| self.shown[*place])
    }

    /// What must not be: the runner did not start a body, or let one through that another held.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (place, case) in CASES.iter().enumerate() {
            if let Verdict::NotStarted(why) = &self.runner().verdicts[place] {
                faults.push(format!("{}: never started by runner: {why}", case.name));
            }
        }
        for (place, case) in self.telling() {
            let Verdict::Through(what) = &self.runner().verdicts[place] else {
                continue;
            };
            for other in self.others() {
                if let Verdict::Held(why) = &other.verdicts[place] {
                    let (name, tool) = (case.name, other.tool.name());
                    faults.push(format!(
                        "{name}: {tool} holds it ({why}), runner not: {what}"
                    ));
                }
            }
        }
        faults
    }

    /// One line for scripts/prove.
    pub fn summary(&self) -> String {
        let cases = self.telling().count();
        let of = |column: &Column| {
            let held = self
                .telling()
                .filter(|(place, _)| matches!(column.verdicts[*place], Verdict::Held(_)));
            format!("{} holds {}", column.tool.name(), held.count())
        };
        let counts: Vec<String> = self.columns.iter().map(of).collect();
        let who = if support::is_root() { "root" } else { "a user" };
        format!("matrix: of {cases} bodies as {who}, {}", counts.join(", "))
    }

    fn table(&self) -> String {
        let mut text = String::from("| what is tried | rows |");
        for column in self.columns {
            write!(text, " {} |", column.tool.name()).expect("written");
        }
        text += "\n| --- | --- |";
        text += &" --- |".repeat(self.columns.len());
        text.push('\n');
        for (place, case) in CASES.iter().enumerate() {
            write!(text, "| {} | {} |", case.what, case.rows).expect("written");
            for column in self.columns {
                let cell = if self.shown[place] {
                    cell(&column.verdicts[place])
                } else {
                    not_shown(case)
                };
                write!(text, " {cell} |").expect("written");
            }
            text.push('\n');
        }
        text
    }

    fn tools(&self) -> String {
        let mut text = String::from("| tool | version | started as |\n| --- | --- | --- |\n");
        for column in self.columns {
            let tool = column.tool;
            writeln!(
                text,
                "| {} | {} | {} |",
                tool.name(),
                tool.version(),
                tool.shown()
            )
            .expect("written");
        }
        for (tool, why) in self.absent {
            writeln!(text, "| {} | {why} | |", tool.name()).expect("written");
        }
        text
    }

    /// Compares the runner's column with the document, or writes the half of this user.
    pub fn compare_or_write(&self, is_whole: bool) {
        let path = source_path(PATH);
        let text = std::fs::read_to_string(&path).expect("the document");
        let who = if support::is_root() { "root" } else { "user" };
        let marks = [
            format!("<!-- as {who} -->\n"),
            format!("<!-- /as {who} -->"),
        ];
        let (before, rest) = text.split_once(&marks[0]).expect("the marks");
        let (old, after) = rest.split_once(&marks[1]).expect("the marks");
        if std::env::var_os("RUNNER_UPDATE_GOLDEN").is_some_and(|value| value == "1") {
            assert!(
                is_whole,
                "the table is of all tools: RUNNER_TESTS_TIER=long"
            );
            let new = format!("\n{}\n{}\n", self.table(), self.tools());
            let text = [before, &marks[0], &new, &marks[1], after].concat();
            std::fs::write(path, text).expect("written");
            return;
        }
        for (place, case) in self.telling() {
            let now = cell(&self.runner().verdicts[place]);
            let row = format!("| {} | {} | ", case.what, case.rows);
            let kept = old.lines().find_map(|line| line.strip_prefix(&row));
            let kept = kept.unwrap_or_else(|| panic!("{PATH} has no row `{}`", case.what));
            // What another host could not show says nothing against what is found here.
            let kept = kept.split(" |").next().unwrap_or_default();
            assert!(
                kept == now || kept == not_shown(case),
                "{PATH} says {kept} of `{}`, and now it is {now}",
                case.what
            );
        }
    }
}

fn cell(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Held(_) => "held",
        Verdict::Through(_) => "**through**",
        Verdict::NotTried | Verdict::NotStarted(_) => "?",
    }
}

/// Why a case tells nothing: a letter that the document explains.
fn not_shown(case: &Case) -> &'static str {
    if case.root_only && !support::is_root() {
        "r"
    } else {
        "–"
    }
}
