//! What a bench found: tables, words, marks.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::{Map, Value, json};

use super::marks::{MARKS, Mark};
use super::options::Options;
use super::table::{Table, shown, thousandths};

/// Everything that one run of a bench says.
#[derive(Default)]
pub struct Report {
    pub tables: Vec<Table>,
    /// Markdown that is no table of times: after the tables.
    pub text: String,
    /// What JSON has beside rows and marks.
    pub facts: Map<String, Value>,
    /// Peers that are not measured here, and why.
    absent: Vec<(String, String)>,
    found: Vec<(&'static Mark, Result<f64, String>)>,
}

impl Report {
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a peer is not measured, and why.
    pub fn absent(&mut self, name: &str, why: &str) {
        self.absent.push((name.to_owned(), why.to_owned()));
    }

    /// The value of a mark of `marks::MARKS`.
    pub fn mark(&mut self, name: &str, value: f64) {
        self.found.push((known(name), Ok(value)));
    }

    /// The same where the value is missing if a peer is not measured.
    pub fn mark_if(&mut self, name: &str, value: Option<f64>, why_not: &str) {
        let value = value.ok_or_else(|| why_not.to_owned());
        self.found.push((known(name), value));
    }

    pub(super) fn print(mut self, options: &Options) {
        for mark in MARKS.iter().filter(|mark| mark.bench == options.bench()) {
            if !self.found.iter().any(|(found, _)| found.name == mark.name) {
                let why = "this run did not measure it".to_owned();
                self.found.push((mark, Err(why)));
            }
        }
        let json = format!("{:#}\n", self.json(options));
        if let Some(file) = &options.json_file {
            std::fs::write(file, &json).unwrap();
        }
        let text = if options.json { json } else { self.markdown() };
        std::io::stdout().write_all(text.as_bytes()).unwrap();
    }

    /// The tables and the words, without what only this run says.
    fn tables(&self) -> String {
        let mut text: String = self
            .tables
            .iter()
            .map(|table| format!("{}\n", table.markdown()))
            .collect();
        if !self.text.is_empty() {
            writeln!(text, "{}\n", self.text.trim()).unwrap();
        }
        text
    }

    fn markdown(&self) -> String {
        let mut text = self.tables();
        for (name, why) in &self.absent {
            writeln!(text, "absent | {name} | {why}").unwrap();
        }
        for (mark, found) in &self.found {
            let (limit, unit) = (mark.limit_text(), mark.unit);
            let line = match found {
                Ok(value) if mark.is_met(*value) => format!("{}{unit} | met", shown(*value)),
                Ok(value) => format!("{}{unit} | missed", shown(*value)),
                Err(why) => format!("– | not measured: {why}"),
            };
            writeln!(text, "mark | {} | {limit} | {line}", mark.name).unwrap();
        }
        text
    }

    fn json(&self, options: &Options) -> Value {
        let marks: Vec<Value> = self
            .found
            .iter()
            .map(|(mark, found)| {
                let mut line = json!({"name": mark.name, "limit": mark.limit, "at_least": mark.at_least, "unit": mark.unit.trim()});
                match found {
                    Ok(value) => {
                        line["value"] = json!(thousandths(*value));
                        line["met"] = json!(mark.is_met(*value));
                    }
                    Err(why) => line["not_measured"] = json!(why),
                }
                line
            })
            .collect();
        let absent: Vec<Value> = self
            .absent
            .iter()
            .map(|(name, why)| json!({"name": name, "why": why}))
            .collect();
        let rows: Vec<Value> = self.tables.iter().flat_map(Table::json).collect();
        json!({
            "bench": options.bench(),
            "uid": rustix::process::geteuid().as_raw(),
            "quick": options.quick,
            "rows": rows,
            "absent": absent,
            "facts": self.facts,
            "marks": marks,
            "markdown": self.tables(),
        })
    }
}

fn known(name: &str) -> &'static Mark {
    let found = MARKS.iter().find(|mark| mark.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in benches/support/marks.rs"))
}
