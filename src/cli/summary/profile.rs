//! `-vv`: the time of each phase of the supervisor and of each step of the child.

use spec::report::Report;

/// Two tables in milliseconds: the supervisor's phases, whose sum is the run, and the child's steps,
/// which run in parallel.
pub(super) fn table(report: &Report) -> String {
    let mut text = String::from("     took    until  phase of the supervisor");
    let mut until_us = 0;
    for timing in &report.timings {
        until_us += timing.duration_us;
        row(&mut text, timing.duration_us, until_us, timing.phase);
    }
    if report.steps.is_empty() {
        return text;
    }
    text.push_str("\n     took    until  step of the child, from its clone on");
    let mut before_us = 0;
    for step in &report.steps {
        let took_us = step.at_us.saturating_sub(before_us);
        row(&mut text, took_us, step.at_us, &step.name);
        before_us = step.at_us;
    }
    text
}

fn row(text: &mut String, took_us: u64, until_us: u64, what: &str) {
    text.push_str(&format!(
        "\n{} {}  {what}",
        milliseconds(took_us),
        milliseconds(until_us)
    ));
}

fn milliseconds(us: u64) -> String {
    format!("{:>4}.{:03}", us / 1_000, us % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::outcome::Outcome;
    use spec::report::{StepEnd, Timing};

    #[test]
    fn phases_add_up_and_steps_follow_each_other() {
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        for (phase, duration_us) in [("prepare", 1_500), ("body", 250)] {
            report.timings.push(Timing { phase, duration_us });
        }
        for (name, at_us) in [("pivot", 900), ("execute", 1_000)] {
            report.steps.push(StepEnd {
                name: name.into(),
                at_us,
            });
        }
        let expected = "     took    until  phase of the supervisor\n   1.500    1.500  prepare\n   \
                        0.250    1.750  body\n     took    until  step of the child, from its \
                        clone on\n   0.900    0.900  pivot\n   0.100    1.000  execute";
        assert_eq!(table(&report), expected);
    }
}
