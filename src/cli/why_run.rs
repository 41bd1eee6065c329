//! `runner why last`: why a run of the history ended as it did, and what it was denied.

use serde_json::Value;

use crate::cli::print::{columns, escape_hidden};
use crate::page;
use spec::why_report::{ExplainedDenial, ExplainedRun, Unseen};

const LABEL_COLUMNS: usize = 10;
/// Warnings about limits that did not end the body.
const OF_LIMITS: [&str; 3] = ["disk_full", "memory_kills", "memory_was_files"];
/// Denials that are shown; one more line counts the rest.
const DENIALS_SHOWN: usize = 5;

/// Explains a `report` of the history.
pub(super) fn explain(report: &Value) -> ExplainedRun {
    let words = report["argv"].as_array().into_iter().flatten();
    let (ended, change) = ended(report);
    // Nothing could be denied before the body's start.
    let has_started = report["exit"].is_object();
    ExplainedRun {
        run_id: word(report, "run_id").to_owned(),
        argv: words.filter_map(Value::as_str).map(str::to_owned).collect(),
        ended,
        change,
        limits: limits(report),
        denied: denied(report),
        unseen: if has_started {
            unseen(report)
        } else {
            Vec::new()
        },
    }
}

/// The lines about a run. Their text may come from the body.
pub(super) fn text(run: &ExplainedRun) -> String {
    let words = [&run.run_id].into_iter().chain(&run.argv);
    let words: Vec<&str> = words.map(String::as_str).collect();
    let change = |change: &Option<String>| change.clone().map(|change| ("change", change));
    let mut rows = vec![("run", words.join(" ")), ("ended", run.ended.clone())];
    rows.extend(change(&run.change));
    rows.extend(run.limits.iter().map(|limit| ("limit", limit.clone())));
    for denial in run.denied.iter().take(DENIALS_SHOWN) {
        let errno = denial.errno.as_ref().map(|errno| format!(", {errno}"));
        let denied = format!(
            "{}{}, {} × ({})",
            denial.what,
            errno.unwrap_or_default(),
            denial.count,
            denial.rule,
        );
        rows.push(("denied", denied));
        rows.extend(change(&denial.change));
    }
    if let more @ 1.. = run.denied.len().saturating_sub(DENIALS_SHOWN) {
        let shown = format!("{more} more: runner inspect {}", run.run_id);
        rows.push(("denied", shown));
    }
    let unseen = run.unseen.iter();
    rows.extend(unseen.map(|Unseen { kind, reason }| ("unseen", format!("{kind}: {reason}"))));
    let line = |(label, value): (&str, String)| {
        format!(
            "{}{}\n",
            columns(label, LABEL_COLUMNS),
            escape_hidden(&value)
        )
    };
    rows.into_iter().map(line).collect()
}

fn word<'report>(value: &'report Value, key: &str) -> &'report str {
    value[key].as_str().unwrap_or_default()
}

/// How it ended, and what changes that.
fn ended(report: &Value) -> (String, Option<String>) {
    let error = &report["error"];
    match (error["message"].as_str(), page::verdict(report)) {
        (Some(message), _) => {
            let outcome = word(report, "outcome");
            let how = format!("{outcome}: {message} ({})", word(error, "code"));
            (how, error["hint"].as_str().map(str::to_owned))
        }
        (None, Ok(verdict)) => (verdict.sentence, verdict.change),
        // The record of another version.
        (None, Err(_)) => (word(report, "outcome").to_owned(), None),
    }
}

/// What is said of limits that did not end the body.
fn limits(report: &Value) -> Vec<String> {
    let warnings = report["warnings"].as_array().into_iter().flatten();
    warnings
        .filter(|warning| OF_LIMITS.contains(&word(warning, "code")))
        .map(|warning| word(warning, "message").to_owned())
        .collect()
}

fn denied(report: &Value) -> Vec<ExplainedDenial> {
    let denials = report["denials"].as_array().into_iter().flatten();
    let explained = denials.map(|denial| {
        let text = |key: &str| denial[key].as_str().map(str::to_owned);
        let what = ["kind", "operation", "object"].map(|key| word(denial, key));
        let what: Vec<&str> = what.into_iter().filter(|word| !word.is_empty()).collect();
        ExplainedDenial {
            what: what.join(" "),
            errno: text("errno"),
            count: denial["count"].as_u64().unwrap_or(0),
            rule: text("reason").or_else(|| text("rule")).unwrap_or_default(),
            change: text("hint"),
        }
    });
    let mut denied: Vec<_> = explained.collect();
    denied.sort_by_key(|denial| std::cmp::Reverse(denial.count));
    denied
}

/// What the run did not observe: nothing is known about denials of these kinds.
fn unseen(report: &Value) -> Vec<Unseen> {
    let kinds = report["observation"].as_object().into_iter().flatten();
    kinds
        .filter(|(_, kind)| word(kind, "state") != "observed")
        .map(|(name, kind)| Unseen {
            kind: name.clone(),
            reason: word(kind, "reason").to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_is_explained_by_its_end_its_denials_and_what_it_did_not_observe() {
        let denial = |object: &str, count: u64| {
            json!({
                "kind": "syscall", "object": object, "rule": "mounts", "errno": "EPERM",
                "reason": null, "hint": format!("no flag allows {object}"), "count": count,
            })
        };
        let mut denials: Vec<Value> = (0..6).map(|at| denial(&format!("call{at}"), 1)).collect();
        denials.push(denial("mount\u{1b}[2J", 7));
        denials.push(json!({
            "kind": "net", "object": "a.com:443", "rule": "network.egress", "errno": null,
            "reason": "name-not-allowed", "hint": "--allow-net a.com", "count": 5,
        }));
        denials.push(json!({
            "kind": "file", "operation": "read", "object": "/a", "rule": "not-in-view",
            "errno": "ENOENT", "reason": null, "hint": "--ro /a", "count": 3,
        }));
        let report = json!({
            "run_id": "01a", "argv": ["python3", "x.py"], "outcome": "exited",
            "exit": {"code": 3, "signal": null}, "error": null, "denials": denials,
            "observation": {
                "files": {"state": "not_observed", "reason": "ask why"},
                "network": {"state": "observed", "reason": null},
            },
        });
        let shown = text(&explain(&report));
        let head: Vec<&str> = shown.lines().take(8).collect();
        let expected = [
            "run       01a python3 x.py",
            "ended     The body exited with code 3; 9 operations were denied.",
            "denied    syscall mount\\u{1b}[2J, EPERM, 7 × (mounts)",
            "change    no flag allows mount\\u{1b}[2J",
            "denied    net a.com:443, 5 × (name-not-allowed)",
            "change    --allow-net a.com",
            "denied    file read /a, ENOENT, 3 × (not-in-view)",
            "change    --ro /a",
        ];
        assert_eq!(head, expected);
        let tail: Vec<&str> = shown.lines().skip(12).collect();
        assert_eq!(
            tail,
            [
                "denied    4 more: runner inspect 01a",
                "unseen    files: ask why"
            ]
        );
    }

    #[test]
    fn a_limit_that_ended_a_run_is_named_with_its_flag() {
        let report = json!({
            "run_id": "01a", "argv": ["python3"], "outcome": "out_of_memory",
            "exit": {"code": null, "signal": 9}, "error": null, "denials": [],
            "timings_ms": {"body": 1200}, "limits": {"memory_bytes": {"effective": 64 << 20, "source": "flag"}},
            "observation": {},
        });
        let expected = "run       01a python3\n\
                        ended     The memory limit of 64 MiB (set by a flag) ended the body after 1.2 s.\n\
                        change    --memory sets it\n";
        assert_eq!(text(&explain(&report)), expected);
    }

    #[test]
    fn a_limit_that_did_not_end_the_body_is_named_too() {
        let report = json!({
            "run_id": "01a", "argv": ["tar"], "outcome": "exited", "exit": {"code": 2, "signal": null},
            "error": null, "denials": [], "timings_ms": {"body": 1200}, "limits": {}, "observation": {},
            "warnings": [
                {"code": "egress_unused", "message": "of no limit"},
                {"code": "disk_full", "message": "the disk limit of 1 MiB was reached"},
            ],
        });
        let expected = "run       01a tar\n\
                        ended     The body exited with code 2 after 1.2 s.\n\
                        limit     the disk limit of 1 MiB was reached\n";
        assert_eq!(text(&explain(&report)), expected);
    }

    #[test]
    fn a_sandbox_that_was_idle_is_not_explained_by_another_limit() {
        let report = json!({
            "run_id": "01a", "argv": [], "outcome": "timed_out", "exit": {"code": null, "signal": 15},
            "error": null, "denials": [], "timings_ms": {"body": 1000}, "observation": {},
            "limits": {"timeout_ms": {"effective": null, "source": "flag"}},
            "warnings": [{"code": "sandbox_idle", "message": "no command ran for its --idle-timeout"}],
        });
        let expected = "run       01a\n\
                        ended     The sandbox ended after 1 s: no command ran for its --idle-timeout.\n\
                        change    --idle-timeout sets it\n";
        assert_eq!(text(&explain(&report)), expected);
    }

    #[test]
    fn a_refused_run_is_explained_by_its_error() {
        let report = json!({
            "run_id": "01a", "argv": [], "outcome": "refused", "exit": null, "denials": [],
            "error": {"code": "mount_missing", "message": "/x is missing", "hint": "make it"},
        });
        let expected =
            "run       01a\nended     refused: /x is missing (mount_missing)\nchange    make it\n";
        assert_eq!(text(&explain(&report)), expected);
    }
}
