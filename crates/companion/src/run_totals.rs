//! Counts of runs that have ended, for Prometheus. No label has a value that a body chooses.

use std::collections::BTreeMap;

use spec::events::Phase;

use crate::prometheus::family;
use crate::run_state::{RunReport, outcome_name};

/// Upper bounds of the buckets of a histogram, as labels and in seconds.
const BOUNDS: [(&str, f64); 7] = [
    ("0.001", 0.001),
    ("0.01", 0.01),
    ("0.1", 0.1),
    ("1", 1.0),
    ("10", 10.0),
    ("100", 100.0),
    ("1000", 1000.0),
];

/// Kinds of denials in reports.
const KINDS: [&str; 6] = ["exec", "file", "net", "resource", "signal", "syscall"];

/// Wall times of one phase.
#[derive(Debug, Default)]
struct Histogram {
    /// How many were at most as long as each of [`BOUNDS`].
    buckets: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        for (bucket, (_, bound)) in self.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.seconds += seconds;
    }

    fn rows(&self, name: &str, phase: &str) -> String {
        let Self {
            buckets,
            count,
            seconds,
        } = self;
        let bounds = BOUNDS.iter().map(|(label, _)| *label).chain(["+Inf"]);
        let buckets = bounds.zip(buckets.iter().chain([count]));
        let buckets = buckets.map(|(bound, count)| {
            format!("{name}_bucket{{phase=\"{phase}\",le=\"{bound}\"}} {count}\n")
        });
        let buckets: String = buckets.collect();
        format!(
            "{buckets}{name}_sum{{phase=\"{phase}\"}} {seconds}\n{name}_count{{phase=\"{phase}\"}} {count}\n"
        )
    }
}

/// The runs that a program started and saw end.
#[derive(Debug, Default)]
pub struct Totals {
    /// By outcomes; `none`: without a report.
    outcomes: BTreeMap<&'static str, u64>,
    phases: BTreeMap<&'static str, Histogram>,
    denials: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Counts a run that has ended.
    pub fn add(&mut self, report: Option<&RunReport>) {
        let outcome = report.map_or("none", |report| outcome_name(report.outcome));
        *self.outcomes.entry(outcome).or_default() += 1;
        let Some(report) = report else {
            return;
        };
        for name in Phase::ALL.map(Phase::name) {
            if let Some(milliseconds) = report.timings_ms.get(name) {
                let histogram = self.phases.entry(name).or_default();
                histogram.add(milliseconds / 1_000.0);
            }
        }
        for denial in &report.denials {
            if let Some(kind) = KINDS.iter().find(|kind| **kind == denial.kind) {
                let total = self.denials.entry(kind).or_default();
                *total = total.saturating_add(denial.count);
            }
        }
    }

    /// In the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        let outcomes = self.outcomes.iter().map(|(outcome, count)| {
            format!("runner_runs_total{{outcome=\"{outcome}\"}} {count}\n")
        });
        let phases = "runner_run_phase_seconds";
        let histograms = self.phases.iter();
        let histograms = histograms.map(|(phase, times)| times.rows(phases, phase));
        let denials = KINDS.iter().map(|kind| {
            let count = self.denials.get(kind).copied().unwrap_or_default();
            format!("runner_run_denials_total{{kind=\"{kind}\"}} {count}\n")
        });
        [
            family(
                "runner_runs_total",
                "counter",
                "Runs that this server started and that ended.",
                &outcomes.collect::<String>(),
            ),
            family(
                phases,
                "histogram",
                "Wall time of the phases of those runs.",
                &histograms.collect::<String>(),
            ),
            family(
                "runner_run_denials_total",
                "counter",
                "Denied operations of the bodies of those runs, as their reports list them.",
                &denials.collect::<String>(),
            ),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(
        outcome: &str,
        timings_ms: &serde_json::Value,
        denials: &serde_json::Value,
    ) -> RunReport {
        let report = json!({
            "run_id": "x", "started_at": "x", "outcome": outcome, "outputs": [],
            "timings_ms": timings_ms, "denials": denials,
        });
        serde_json::from_value(report).expect("a report")
    }

    #[test]
    fn reports_are_counted_by_outcome_phase_and_kind() {
        let mut totals = Totals::default();
        let denial = |kind: &str, count: u64| json!({ "kind": kind, "count": count });
        let denials = json!([denial("net", 2), denial("file", 1), denial("net", 3)]);
        let times = json!({ "body": 1_000.0, "clean": 0.5, "forged\"": 7.0 });
        totals.add(Some(&report("exited", &times, &denials)));
        let forged = json!([denial("forged\"} 1\n", 1), denial("net", u64::MAX)]);
        totals.add(Some(&report("timed_out", &json!({ "body": 2e6 }), &forged)));
        totals.add(Some(&report("exited", &json!({}), &json!([]))));
        totals.add(None);
        let text = totals.render();
        for line in [
            "runner_runs_total{outcome=\"exited\"} 2",
            "runner_runs_total{outcome=\"timed_out\"} 1",
            "runner_runs_total{outcome=\"none\"} 1",
            "# TYPE runner_run_phase_seconds histogram",
            "runner_run_phase_seconds_bucket{phase=\"body\",le=\"0.1\"} 0",
            "runner_run_phase_seconds_bucket{phase=\"body\",le=\"1\"} 1",
            "runner_run_phase_seconds_bucket{phase=\"body\",le=\"1000\"} 1",
            "runner_run_phase_seconds_bucket{phase=\"body\",le=\"+Inf\"} 2",
            "runner_run_phase_seconds_sum{phase=\"body\"} 2001",
            "runner_run_phase_seconds_count{phase=\"body\"} 2",
            "runner_run_phase_seconds_bucket{phase=\"clean\",le=\"0.001\"} 1",
            "runner_run_denials_total{kind=\"net\"} 18446744073709551615",
            "runner_run_denials_total{kind=\"file\"} 1",
            "runner_run_denials_total{kind=\"exec\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("forged"), "{text}");
    }
}
