//! The results as a table: docs/matrix.md.

use std::fmt::Write as _;

use crate::cases::{CASES, Case, OnPurpose};
use crate::tools::Tool;
use crate::{Column, Verdict};
use support::source_path;

const PATH: &str = "docs/matrix.md";
/// Marks an allowed attack whose reason is below the table.
const MARK: &str = "†";

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
        let on_purpose = self.on_purpose().count();
        format!(
            "matrix: of {cases} bodies as {who}, {}; allowed by runner on purpose: {on_purpose}",
            counts.join(", ")
        )
    }

    /// Cases that the runner allows for a reason.
    fn on_purpose(&self) -> impl Iterator<Item = (&'static Case, OnPurpose)> {
        let through = self
            .telling()
            .filter(|(place, _)| matches!(self.runner().verdicts[*place], Verdict::Through(_)));
        through.filter_map(|(_, case)| Some((case, case.allowed_on_purpose?)))
    }

    /// The reasons below the table.
    fn reasons(&self) -> String {
        self.on_purpose()
            .map(|(case, how)| {
                let flags = how.held_with.join(" ");
                let OnPurpose { reason, .. } = how;
                format!(
                    "\n{MARK} {}: allowed on purpose, since {reason}. `{flags}` holds it.\n",
                    case.what
                )
            })
            .collect()
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
                    cell(case, column.tool, &column.verdicts[place])
                } else {
                    not_shown(case).to_owned()
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
            let new = format!("\n{}{}\n{}\n", self.table(), self.reasons(), self.tools());
            let text = [before, &marks[0], &new, &marks[1], after].concat();
            std::fs::write(path, text).expect("written");
            return;
        }
        for (place, case) in self.telling() {
            let now = cell(case, Tool::Runner, &self.runner().verdicts[place]);
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

/// The rule: an attack that another tool prevents and the runner does not is a fault, unless the
/// case has a reason.
fn held_by_others_only<'verdict>(
    case: &Case,
    ours: &Verdict,
    theirs: impl Iterator<Item = (Tool, &'verdict Verdict)>,
) -> Vec<String> {
    let (Verdict::Through(what), None) = (ours, case.allowed_on_purpose) else {
        return Vec::new();
    };
    let held = theirs.filter_map(|(tool, verdict)| match verdict {
        Verdict::Held(why) => Some((tool.name(), why)),
        _ => None,
    });
    held.map(|(tool, why)| format!("{}: {tool} holds it ({why}), runner not: {what}", case.name))
        .collect()
}

fn cell(case: &Case, tool: Tool, verdict: &Verdict) -> String {
    let is_on_purpose = tool == Tool::Runner && case.allowed_on_purpose.is_some();
    match verdict {
        Verdict::Held(_) => "held".to_owned(),
        Verdict::Through(_) if is_on_purpose => format!("**through** {MARK}"),
        Verdict::Through(_) => "**through**".to_owned(),
        Verdict::NotTried | Verdict::NotStarted(_) => "?".to_owned(),
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
fn an_attack_that_only_another_tool_stops_fails_unless_a_reason_is_recorded() {
    let through = Verdict::Through("it answered 0".to_owned());
    let held = Verdict::Held("EPERM".to_owned());
    let with_reason = CASES
        .iter()
        .find(|case| case.allowed_on_purpose.is_some())
        .expect("a case with a reason");
    let without = Case {
        allowed_on_purpose: None,
        ..*with_reason
    };
    let faults = |case: &Case, ours: &Verdict, theirs: &Verdict| {
        let theirs = [(Tool::Bwrap, &through), (Tool::Firejail, theirs)];
        held_by_others_only(case, ours, theirs.into_iter())
    };
    assert_eq!(faults(with_reason, &through, &held), [""; 0]);
    let found = faults(&without, &through, &held);
    let said = format!(
        "{}: firejail holds it (EPERM), runner not: it answered 0",
        without.name
    );
    assert_eq!(found, [said]);
    assert_eq!(faults(&without, &held, &held), [""; 0]);
    assert_eq!(faults(&without, &through, &through), [""; 0]);
}

/// The rule itself, and a whole table in which the runner prevents nothing and another tool everything.
#[test]
fn of_a_whole_table_only_the_cases_with_a_reason_are_no_faults() {
    let column = |tool, verdict: Verdict| Column {
        tool,
        verdicts: vec![verdict; CASES.len()],
    };
    let columns = [
        column(Tool::Runner, Verdict::Through(String::new())),
        column(Tool::Firejail, Verdict::Held(String::new())),
    ];
    let page = Page {
        columns: &columns,
        absent: &[],
        shown: &[true; CASES.len()],
    };
    let faults = page.faults();
    for case in CASES {
        let is_fault = faults
            .iter()
            .any(|fault| fault.starts_with(&format!("{}: ", case.name)));
        assert_eq!(is_fault, case.allowed_on_purpose.is_none(), "{}", case.name);
    }
    // The mark and the reason occur together.
    let marked = page.table().matches(MARK).count();
    assert_eq!(page.reasons().matches(MARK).count(), marked);
    assert!(0 < marked);
}
