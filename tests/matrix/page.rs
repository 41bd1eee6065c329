//! The results as a table: docs/matrix.md.

use std::fmt::Write as _;

use crate::cases::{CASES, Case};
use crate::tools::Tool;
use crate::{Column, Verdict};
use support::source_path;

const PATH: &str = "docs/matrix.md";

pub struct Page<'found> {
    pub columns: &'found [Column],
    /// Tools that are not tested, and why.
    pub absent: &'found [(Tool, String)],
    /// Whether each case shows anything on this host, for this user.
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

    /// Cases that show something: the case and its index.
    fn telling(&self) -> impl Iterator<Item = (usize, &'static Case)> {
        let cases = CASES.iter().enumerate();
        cases.filter(|(place, _)| self.shown[*place])
    }

    /// Failures: the runner did not start a body, or allowed an attack that another tool prevented.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (place, case) in CASES.iter().enumerate() {
            if let Verdict::NotStarted(why) = &self.runner().verdicts[place] {
                faults.push(format!("{}: never started by runner: {why}", case.name));
            }
        }
        for (place, case) in self.telling() {
            let ours = &self.runner().verdicts[place];
            let of_others = self.others();
            let theirs = of_others.map(|other| (other.tool, &other.verdicts[place]));
            faults.extend(held_by_others_only(case, ours, theirs));
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
            // A mark for another host's missing feature does not contradict a result here.
            let kept = kept.split(" |").next().unwrap_or_default();
            assert!(
                kept == now || kept == not_shown(case),
                "{PATH} says {kept} of `{}`, and now it is {now}",
                case.what
            );
        }
    }
}

/// The rule: an attack that another tool prevents and the runner does not is a fault.
fn held_by_others_only<'verdict>(
    case: &Case,
    ours: &Verdict,
    theirs: impl Iterator<Item = (Tool, &'verdict Verdict)>,
) -> Vec<String> {
    let Verdict::Through(what) = ours else {
        return Vec::new();
    };
    let held = theirs.filter_map(|(tool, verdict)| match verdict {
        Verdict::Held(why) => Some((tool.name(), why)),
        _ => None,
    });
    held.map(|(tool, why)| format!("{}: {tool} holds it ({why}), runner not: {what}", case.name))
        .collect()
}

fn cell(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Held(_) => "held",
        Verdict::Through(_) => "**through**",
        Verdict::NotTried | Verdict::NotStarted(_) => "?",
    }
}

/// Why a case shows nothing: a letter that the document explains.
fn not_shown(case: &Case) -> &'static str {
    if case.root_only && !support::is_root() {
        "r"
    } else {
        "–"
    }
}

#[test]
fn an_attack_that_only_another_tool_stops_is_a_fault() {
    let through = Verdict::Through("it answered 0".to_owned());
    let held = Verdict::Held("EPERM".to_owned());
    let case = &CASES[0];
    let faults = |ours: &Verdict, theirs: &Verdict| {
        let theirs = [(Tool::Bwrap, &through), (Tool::Firejail, theirs)];
        held_by_others_only(case, ours, theirs.into_iter())
    };
    let expected = format!(
        "{}: firejail holds it (EPERM), runner not: it answered 0",
        case.name
    );
    assert_eq!(faults(&through, &held), [expected]);
    assert_eq!(faults(&held, &held), [""; 0]);
    assert_eq!(faults(&through, &through), [""; 0]);
}
