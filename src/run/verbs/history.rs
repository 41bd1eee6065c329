//! Reads the history of this user's runs.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::run::error::RunError;
use crate::run::host::resources::open_records;
use crate::run::recorder::OUTPUT_DIRECTORY;
use spec::base64;
use spec::history::ListedRun;
use spec::report::ErrorReport;
use spec::request::Caller;
use store::read_history;

/// What the history has of one run.
#[derive(Debug, Default)]
struct Recorded {
    started: Option<Value>,
    /// Keys of the report that have lines of their own.
    files: Map<String, Value>,
    report: Option<Value>,
    is_live: bool,
}

/// The runs of one user by their ids, which sort by time.
#[derive(Debug, Default)]
pub(crate) struct RecordedRuns(BTreeMap<String, Recorded>);

impl RecordedRuns {
    /// Reads the history. Lines that are none, as a full file system leaves them, are ignored.
    ///
    /// # Errors
    /// [`RunError::History`], [`RunError::Records`].
    pub(crate) fn read(caller: &Caller) -> Result<Self, RunError> {
        let mut runs = Self::default();
        read_history(&caller.history_directory, |line| runs.add(line))
            .map_err(RunError::History)?;
        let records = open_records(caller)?;
        for (run_id, run) in &mut runs.0 {
            run.is_live = run.report.is_none() && records.is_live(run_id)?;
        }
        Ok(runs)
    }

    fn add(&mut self, line: &[u8]) {
        let Ok(Value::Object(mut line)) = serde_json::from_slice(line) else {
            return;
        };
        for key in ["started", "staged", "synced", "ended"] {
            if let Some(event) = line.remove(key) {
                let run = self.0.entry(text(&event, "run_id")).or_default();
                run.add(key, event);
            }
        }
    }

    /// The runs that go on or, with `all`, every run; the newest first.
    pub(crate) fn list(&self, all: bool) -> Vec<ListedRun> {
        let runs = self.0.iter().rev();
        let listed = runs.filter(|(_, run)| all || run.is_live);
        listed.map(|(run_id, run)| run.listed(run_id)).collect()
    }

    /// The report of the run whose id begins with `wanted`, or of the one that ended last; of a run without
    /// a report, its start and its files.
    ///
    /// # Errors
    /// There is no such run, or more than one.
    pub(crate) fn find(&self, wanted: &str) -> Result<&Value, ErrorReport> {
        let run = self.find_run(wanted)?;
        let found = run.known();
        Ok(found.unwrap_or(&Value::Null))
    }

    /// The report of the run.
    ///
    /// # Errors
    /// As [`Self::find`], and the run has no report.
    pub(crate) fn find_report(&self, wanted: &str) -> Result<&Value, ErrorReport> {
        let run = self.find_run(wanted)?;
        run.report.as_ref().ok_or_else(|| {
            ErrorReport::new(
                "run_without_report",
                match run.is_live {
                    true => format!("the run {wanted} goes on, and has no report yet"),
                    false => format!("the run {wanted} has no report: its runner was killed"),
                },
            )
            .with_hint(format!("`runner inspect {wanted}` prints what is recorded"))
        })
    }

    fn find_run(&self, wanted: &str) -> Result<&Recorded, ErrorReport> {
        let unknown = |message: String| {
            ErrorReport::new("run_unknown", message)
                .with_hint("`runner ps -a` lists the runs of this user")
        };
        if wanted == "last" {
            let mut ended = self.0.values().rev().filter(|run| run.report.is_some());
            let last = ended.next();
            return last.ok_or_else(|| unknown("no run of this user has ended".to_owned()));
        }
        let wanted = wanted.to_ascii_lowercase();
        let mut found = self
            .0
            .iter()
            .filter(|(run_id, _)| run_id.starts_with(&wanted));
        match (found.next(), found.next()) {
            (Some((_, run)), None) => Ok(run),
            (Some(_), Some(_)) => Err(unknown(format!("{wanted} is the start of several run ids"))),
            (None, _) => Err(unknown(format!("no run has the id {wanted}"))),
        }
    }
}

/// What the history has of one output stream of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RecordedStream {
    pub(crate) recorded: Vec<u8>,
    /// What the body wrote in all.
    pub(crate) bytes: u64,
    /// What was not recorded of it.
    pub(crate) dropped_bytes: u64,
}

/// The recorded standard output and standard error of a run; `None`: they were not recorded.
///
/// # Errors
/// [`RunError::History`].
pub(crate) fn read_output(
    caller: &Caller,
    run_id: &str,
) -> Result<Option<[RecordedStream; 2]>, RunError> {
    let directory = caller.history_directory.join(OUTPUT_DIRECTORY);
    let mut found = None;
    // Most lines are of other runs, and may be long.
    let start = format!(r#"{{"output":{{"run_id":"{run_id}""#);
    read_history(&directory, |line| {
        if line.starts_with(start.as_bytes()) {
            found = output_of(line);
        }
    })
    .map_err(RunError::History)?;
    Ok(found)
}

fn output_of(line: &[u8]) -> Option<[RecordedStream; 2]> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let output = &line["output"];
    let stream = |name: &str| {
        let stream = &output[name];
        let exact = stream["text_base64"].as_str();
        let recorded = match exact {
            Some(text) => base64::decode(text.as_bytes())?,
            None => stream["text"].as_str()?.into(),
        };
        Some(RecordedStream {
            recorded,
            bytes: stream["bytes"].as_u64()?,
            dropped_bytes: stream["dropped_bytes"].as_u64()?,
        })
    };
    Some([stream("stdout")?, stream("stderr")?])
}

impl Recorded {
    fn add(&mut self, key: &str, mut event: Value) {
        match key {
            "started" => self.started = Some(event),
            "ended" => self.report = Some(event),
            "staged" => drop(
                self.files
                    .insert("inputs".to_owned(), event["files"].take()),
            ),
            _ => drop(
                self.files
                    .insert("outputs".to_owned(), event["files"].take()),
            ),
        }
        // The lines of a run have one order, but any of them may be missing.
        for known in [&mut self.started, &mut self.report] {
            if let Some(Value::Object(known)) = known {
                known.extend(self.files.clone());
            }
        }
    }

    fn known(&self) -> Option<&Value> {
        self.report.as_ref().or(self.started.as_ref())
    }

    fn listed(&self, run_id: &str) -> ListedRun {
        let none = Value::Null;
        let (started, report) = (self.started.as_ref(), self.report.as_ref());
        let known = started.or(report).unwrap_or(&none);
        let state = match report {
            Some(report) => text(report, "outcome"),
            None if self.is_live => "running".to_owned(),
            None => "killed".to_owned(),
        };
        let words = started.and_then(|started| started["subject"].as_array());
        let words = words.into_iter().flatten().filter_map(Value::as_str);
        ListedRun {
            run_id: run_id.to_owned(),
            started_at: text(known, "started_at"),
            state,
            exit_code: report.and_then(|report| report["exit"]["code"].as_i64()),
            subject: words.map(str::to_owned).collect(),
        }
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(lines: &[&str]) -> RecordedRuns {
        let mut runs = RecordedRuns::default();
        for line in lines {
            runs.add(line.as_bytes());
        }
        runs
    }

    #[test]
    fn a_line_of_output_is_read_as_it_was_written() {
        let stream = |bytes, dropped_bytes, text: &[u8]| spec::report::StreamReport {
            bytes,
            dropped_bytes,
            captured: Some(text.to_vec()),
        };
        let output = spec::history::RecordedOutput {
            run_id: "01a".to_owned(),
            stdout: stream(3, 0, b"a\n\0"),
            stderr: stream(9, 7, b"\xff\xfe"),
        };
        let line = spec::history::HistoryLine::Output(&output);
        let line = serde_json::to_vec(&line).expect("JSON");
        assert!(line.starts_with(br#"{"output":{"run_id":"01a""#));
        let [stdout, stderr] = output_of(&line).expect("output");
        assert_eq!(
            (&*stdout.recorded, stdout.dropped_bytes),
            (&b"a\n\0"[..], 0)
        );
        assert_eq!((&*stderr.recorded, stderr.bytes), (&b"\xff\xfe"[..], 9));
        assert_eq!(output_of(br#"{"output":{"run_id":"01a"}}"#), None);
    }

    #[test]
    fn a_run_is_put_together_from_its_lines_and_what_is_no_line_is_ignored() {
        let runs = runs(&[
            r#"{"started":{"run_id":"01a","started_at":"t1","pid":1,"subject":["true","x"]}}"#,
            r#"{"started":{"run_id":"01b","started_at":"t2","pid":2,"subject":["b.tar.gz"]}}"#,
            r#"{"tor"#,
            "null",
            "",
            r#"{"staged":{"run_id":"01a","at":"t1","files":["in"]}}"#,
            r#"{"staged":{"run_id":"01b","at":"t2","files":["in"]}}"#,
            r#"{"synced":{"run_id":"01a","at":"t1","files":["out"]}}"#,
            r#"{"ended":{"run_id":"01a","started_at":"t1","outcome":"exited","exit":{"code":3},"inputs":[],"outputs":[]}}"#,
            r#"{"ended":{"run_id":"01c","started_at":"t3","outcome":"refused","exit":null}}"#,
        ]);
        let listed = runs.list(true);
        let rows: Vec<_> = listed
            .iter()
            .map(|run| {
                (
                    &*run.run_id,
                    &*run.state,
                    run.exit_code,
                    run.subject.join(" "),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("01c", "refused", None, String::new()),
                ("01b", "killed", None, "b.tar.gz".to_owned()),
                ("01a", "exited", Some(3), "true x".to_owned()),
            ]
        );
        assert_eq!(runs.list(false), []);
        assert_eq!(runs.find("last").expect("found")["run_id"], "01c");
        assert_eq!(runs.find("01A").expect("found")["outcome"], "exited");
        let files = |run: &str| {
            let run = runs.find(run).expect("found");
            [run["inputs"][0].clone(), run["outputs"][0].clone()]
        };
        assert_eq!(files("01a"), ["in", "out"]);
        assert_eq!(files("01b"), [Value::from("in"), Value::Null]);
        assert_eq!(runs.find("01b").expect("found")["pid"], 2);
        assert_eq!(runs.find_report("last").expect("found")["run_id"], "01c");
        let killed = runs.find_report("01b").expect_err("no report");
        assert_eq!(killed.code, "run_without_report");
        for (wanted, message) in [("01", "several"), ("02", "no run has the id")] {
            let refused = runs.find(wanted).expect_err("refused");
            assert!(refused.message.contains(message), "{}", refused.message);
        }
    }
}
