//! What was denied and which hosts did not answer, in a few lines.

use crate::cli::print::Tone;
use spec::egress_report::UnreachableHost;
use spec::outcome::Outcome;
use spec::report::{Denial, Report};

/// Lines about denials; one more counts the rest.
const DENIALS_SHOWN: usize = 5;

/// The most frequent denials first.
pub(super) fn lines(report: &Report) -> Vec<(Tone, String)> {
    let mut lines = Vec::new();
    let succeeded =
        report.outcome == Outcome::Exited && report.exit.is_some_and(|exit| exit.code == Some(0));
    // Programs try calls and go on without: that matters only if they fail.
    let is_shown = |denial: &&Denial| denial.kind != "syscall" || !succeeded;
    let mut denials: Vec<&Denial> = report.denials.iter().filter(is_shown).collect();
    // Stable: equally frequent denials stay in the order of their first attempt.
    denials.sort_by_key(|denial| std::cmp::Reverse(denial.count));
    for denial in denials.iter().take(DENIALS_SHOWN) {
        lines.push((Tone::Warning, denied(denial)));
        if let Some(hint) = &denial.hint {
            lines.push((Tone::Detail, format!("hint: {hint}")));
        }
    }
    let beyond = report.egress.denials_beyond;
    let more = denials.len().saturating_sub(DENIALS_SHOWN);
    let more = u64::try_from(more)
        .unwrap_or(u64::MAX)
        .saturating_add(beyond);
    if more > 0 {
        lines.push((Tone::Warning, format!("… {more} more: see --json")));
    }
    lines.extend(lost(report).map(|text| (Tone::Warning, text)));
    if !succeeded {
        lines.extend(unreachable(report).map(|text| (Tone::Warning, text)));
    }
    lines
}

fn denied(denial: &Denial) -> String {
    let times = times(denial.count);
    match &denial.reason {
        Some(reason) if denial.kind == "net" => format!(
            "denied egress to {} ({}{times})",
            denial.object,
            reason.row().words
        ),
        _ => {
            let operation = denial
                .operation
                .map(|operation| format!("{} ", operation.name()));
            format!(
                "denied {} {}{} ({}{times})",
                denial.kind,
                operation.unwrap_or_default(),
                denial.object,
                denial.rule
            )
        }
    }
}

fn times(count: u64) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(", {count} times"),
    }
}

/// Denials that were too many to be reported one by one.
fn lost(report: &Report) -> Option<String> {
    let questions = report.egress.lost_questions;
    let datagrams = report.egress.lost_datagrams;
    let what = match (questions, datagrams) {
        (0, 0) => return None,
        (_, 0) => format!("{questions} questions for names were"),
        (0, _) => format!("{datagrams} denied packets were"),
        (_, _) => format!("{questions} questions for names and {datagrams} denied packets were"),
    };
    Some(format!(
        "warning: {what} not reported one by one, since they were too many; nothing of them was sent"
    ))
}

fn unreachable(report: &Report) -> Option<String> {
    let (first, rest) = report.egress.unreachable.split_first()?;
    let UnreachableHost {
        host,
        port,
        cause,
        count,
    } = first;
    let beyond = report.egress.unreachable_beyond;
    let rest = u64::try_from(rest.len())
        .unwrap_or(u64::MAX)
        .saturating_add(beyond);
    let more = match rest {
        0 => String::new(),
        rest => format!("; and {rest} more: see --json"),
    };
    Some(format!(
        "warning: allowed host did not answer: {host}:{port} ({}{}){more}",
        cause.in_words(),
        times(*count)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::denial_reason::DenialReason;
    use spec::egress_report::UnreachableCause;
    use spec::report::Exit;

    fn denial(object: &str, reason: DenialReason, count: u64) -> Denial {
        Denial {
            kind: "net".to_owned(),
            object: object.to_owned(),
            operation: None,
            rule: "network.egress".to_owned(),
            errno: None,
            reason: Some(reason),
            protocol: Some("tcp".to_owned()),
            host: None,
            ip: None,
            port: None,
            hint: Some("--allow-net it".to_owned()),
            certainty: None,
            count,
            first_ms: Some(0),
        }
    }

    fn report(denials: Vec<Denial>, code: i32) -> Report {
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.denials = denials;
        report.exit = Some(Exit {
            code: Some(code),
            signal: None,
            core_dump: false,
            raw_status: code << 8,
        });
        report
    }

    fn warnings(report: &Report) -> Vec<String> {
        let warning = |(tone, text): (Tone, String)| (tone == Tone::Warning).then_some(text);
        lines(report).into_iter().filter_map(warning).collect()
    }

    #[test]
    fn a_denial_is_one_line_and_its_hint_is_a_detail() {
        let report = report(
            vec![denial("evil.com:443", DenialReason::NameNotAllowed, 1)],
            0,
        );
        assert_eq!(
            lines(&report),
            [
                (
                    Tone::Warning,
                    "denied egress to evil.com:443 (not in network.egress)".to_owned()
                ),
                (Tone::Detail, "hint: --allow-net it".to_owned()),
            ]
        );
    }

    #[test]
    fn the_most_frequent_five_are_shown_and_the_rest_is_counted() {
        let denials = [1, 1, 9, 1, 3, 1, 1]
            .iter()
            .zip('a'..)
            .map(|(count, name)| denial(&name.to_string(), DenialReason::Limit, *count));
        let mut report = report(denials.collect(), 0);
        assert_eq!(
            warnings(&report),
            [
                "denied egress to c (a limit of the relay, 9 times)",
                "denied egress to e (a limit of the relay, 3 times)",
                "denied egress to a (a limit of the relay)",
                "denied egress to b (a limit of the relay)",
                "denied egress to d (a limit of the relay)",
                "… 2 more: see --json",
            ]
        );
        report.egress.denials_beyond = 40;
        let last = warnings(&report).pop();
        assert_eq!(last.as_deref(), Some("… 42 more: see --json"));
    }

    #[test]
    fn nothing_is_said_where_nothing_was_denied_or_lost() {
        let mut quiet = report(Vec::new(), 0);
        assert_eq!(lines(&quiet), []);
        quiet.egress.lost_datagrams = 3;
        assert_eq!(
            warnings(&quiet),
            [
                "warning: 3 denied packets were not reported one by one, since they were too many; \
                 nothing of them was sent"
            ]
        );
    }

    #[test]
    fn who_did_not_answer_is_told_only_where_the_body_failed() {
        let unreachable = |code| {
            let mut report = report(Vec::new(), code);
            for host in ["a.com", "b.com"] {
                report.egress.unreachable.push(UnreachableHost {
                    host: host.to_owned(),
                    port: 443,
                    cause: UnreachableCause::NoNameServer,
                    count: 3,
                });
            }
            warnings(&report)
        };
        assert!(unreachable(0).is_empty());
        assert_eq!(
            unreachable(1),
            [
                "warning: allowed host did not answer: a.com:443 (no name server gave an answer, 3 \
                 times); and 1 more: see --json"
            ]
        );
    }
}
