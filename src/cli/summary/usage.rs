//! `--stats`: what the run used, in one line at its end.

use spec::limits::Limit;
use spec::report::Report;
use spec::usage_text::{bytes, of_limit, seconds};

pub(super) fn line(report: &Report) -> String {
    let usage = &report.usage;
    let limit = |limit| report.plan.limit(limit).and_then(|found| found.effective);
    let cpu_time_ms = usage.user_time_ms.zip(usage.system_time_ms);
    let cpu_time_ms = cpu_time_ms.map(|(user, system)| user + system);
    let parts = [
        of_limit(
            "memory",
            usage.memory_peak_bytes,
            limit(Limit::Memory),
            bytes,
        ),
        of_limit("CPU time", cpu_time_ms, limit(Limit::CpuTime), seconds),
        of_limit(
            "processes",
            usage.processes_peak,
            limit(Limit::Processes),
            |count| count.to_string(),
        ),
    ];
    let took = seconds(usage.wall_time_ms);
    format!("used in {took}, at most: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::outcome::Outcome;
    use spec::report::LimitReport;

    #[test]
    fn the_line_has_each_amount_with_its_limit() {
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.usage.wall_time_ms = 3_400;
        report.usage.memory_peak_bytes = Some(13_107_200);
        report.usage.user_time_ms = Some(1_000);
        report.usage.system_time_ms = Some(250);
        report.plan.limits.push(LimitReport {
            limit: Limit::Memory,
            requested: None,
            effective: Some(256 << 20),
            enforced_by: "cgroup-v2",
            source: "default".to_owned(),
            sources: Vec::new(),
        });
        assert_eq!(
            line(&report),
            "used in 3.40 s, at most: memory 12.5 MiB of 256.0 MiB, CPU time 1.25 s, processes not \
             measured"
        );
    }
}
