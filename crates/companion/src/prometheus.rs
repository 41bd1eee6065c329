//! The text format of Prometheus.

/// One number that goes up and down.
#[must_use]
pub fn gauge(name: &str, help: &str, value: usize) -> String {
    family(name, "gauge", help, &format!("{name} {value}\n"))
}

/// All that there is of one metric.
#[must_use]
pub fn family(name: &str, kind: &str, help: &str, rows: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{rows}")
}
