//! Reports as pages: sentences, escapes, sizes, curves and the tree.

use super::*;
use serde_json::json;
use spec::egress_report::{EgressCapture, HostTraffic};
use spec::limits::Limit;
use spec::outcome::Outcome;
use spec::plan_report::{PlannedEntry, PlannedPath};
use spec::report::{
    Enforcement, EnforcementState, Exit, LimitReport, Report, SecretReport, Timing, WarningReport,
};
use spec::usage_sample::UsageSample;

/// Everything that a page must not contain as it is.
const HOSTILE: &str =
    "<script>alert(1)</script>\"'><img src=x onerror=y>&\u{202e}\u{200b}\u{1b}[31m\0\n";
const ESCAPED: &str = "&#60;script&#62;alert(1)&#60;/script&#62;&#34;&#39;&#62;&#60;img src=x \
                       onerror=y&#62;&#38;\\u{202e}\\u{200b}\\u{1b}[31m\\u{0}\\u{a}";

fn page(report: &Report) -> String {
    render(&serde_json::to_value(report).expect("JSON")).expect("a page")
}

fn report(outcome: Outcome, exit: Option<(Option<i32>, Option<i32>)>) -> Report {
    let mut report = Report::new("01m8bnrun".to_owned(), outcome);
    report.exit = exit.map(|(code, signal)| Exit {
        code,
        signal,
        core_dump: false,
        raw_status: 0,
    });
    if exit.is_some() {
        report.usage.wall_time_ms = 1_200;
    }
    report
}

fn limit(limit: Limit, value: u64, source: &str) -> LimitReport {
    LimitReport {
        limit,
        requested: Some(value),
        effective: Some(value),
        enforced_by: "cgroup-v2",
        source: source.to_owned(),
        sources: Vec::new(),
    }
}

/// A document, because other versions have other fields.
fn denial(kind: &str, object: &str, count: u64) -> Value {
    json!({
        "kind": kind, "object": object, "rule": "network.egress", "reason": null, "port": null,
        "hint": format!("--allow-net {object}"), "count": count, "first_ms": 20,
    })
}

fn with_denials(report: &Report, denials: Vec<Value>) -> Value {
    let mut report = serde_json::to_value(report).expect("JSON");
    report["denials"] = denials.into();
    report
}

/// The headline of a page.
fn sentence(page: &str) -> &str {
    let (_, rest) = page.split_once("<h1>").expect("a headline");
    rest.split_once("</h1>").expect("its end").0
}

fn ended_by_idle_time() -> Report {
    let mut idle = report(Outcome::TimedOut, Some((None, Some(15))));
    idle.plan.limits = vec![limit(Limit::WallTime, 3_600_000, "flag")];
    idle.warnings = vec![WarningReport::new("sandbox_idle", String::new())];
    idle
}

#[test]
fn a_sandbox_that_was_idle_is_not_blamed_on_the_wall_time() {
    let idle = page(&ended_by_idle_time());
    assert!(idle.contains("the idle time was over"), "{idle}");
    assert!(idle.contains("To change the limit: --idle-timeout sets it."));
    assert!(!idle.contains("wall time limit"), "{idle}");
    // The warning alone is not the end: another outcome came first.
    let mut memory = ended_by_idle_time();
    memory.outcome = Outcome::OutOfMemory;
    let memory = page(&memory);
    assert!(
        sentence(&memory).starts_with("The memory limit"),
        "{memory}"
    );
}

#[test]
fn each_outcome_is_one_sentence() {
    let mut timed_out = report(Outcome::TimedOut, Some((None, Some(15))));
    timed_out.plan.limits = vec![limit(Limit::WallTime, 1_000, "flag")];
    let mut not_started = report(Outcome::TimedOut, None);
    not_started.plan.limits = vec![limit(Limit::WallTime, 1_000, "flag")];
    let mut memory = report(Outcome::OutOfMemory, Some((None, Some(9))));
    memory.plan.limits = vec![limit(Limit::Memory, 64 << 20, "runner.limits.memory_mb")];
    // Without a cgroup init is killed with the body, and nobody reports its status.
    let mut without_status = report(Outcome::OutOfMemory, Some((None, Some(9))));
    without_status.exit = None;
    let mut cancelled = report(Outcome::Cancelled, Some((None, Some(15))));
    cancelled.cancelled_by = Some(2);
    for (report, expected) in [
        (
            report(Outcome::Exited, Some((Some(0), None))),
            "The body exited with code 0 after 1.2 s.",
        ),
        (
            report(Outcome::Signaled, Some((None, Some(11)))),
            "SIGSEGV (11) ended the body after 1.2 s.",
        ),
        (
            timed_out,
            "The wall time limit of 1 s (set by a flag) ended the body after 1.2 s.",
        ),
        (
            not_started,
            "The wall time limit of 1 s (set by a flag) ended the run before its body started.",
        ),
        (
            ended_by_idle_time(),
            "The sandbox ended after 1.2 s: no command ran for its --idle-timeout.",
        ),
        (
            report(Outcome::CpuExhausted, Some((None, Some(9)))),
            "The CPU time limit ended the body after 1.2 s.",
        ),
        (
            memory,
            "The memory limit of 64 MiB (set by runner.limits.memory_mb) ended the body after 1.2 s.",
        ),
        (
            report(Outcome::OutputLimit, Some((None, Some(9)))),
            "The output limit ended the body after 1.2 s.",
        ),
        (
            cancelled,
            "SIGINT (2) to the runner cancelled the run after 1.2 s.",
        ),
        (
            report(Outcome::Refused, None),
            "The request was refused, and its body did not run.",
        ),
        (
            report(Outcome::Failed, None),
            "The run failed before its body started.",
        ),
        (
            report(Outcome::Failed, Some((Some(0), None))),
            "The run failed; its body ran for 1.2 s.",
        ),
        (
            without_status,
            "The memory limit ended the body after 1.2 s.",
        ),
    ] {
        let page = page(&report);
        assert_eq!(sentence(&page), expected);
    }
    for (code, expected) in [
        (
            0,
            "The body exited with code 0 after 1.2 s; 1 operation was denied.",
        ),
        (
            3,
            "The body exited with code 3 after 1.2 s; 2 operations were denied.",
        ),
    ] {
        let report = report(Outcome::Exited, Some((Some(code), None)));
        let denials = vec![denial("net", "a", 1), denial("syscall", "b", 1)];
        let page = render(&with_denials(&report, denials)).expect("a page");
        assert_eq!(sentence(&page), expected);
    }
}

/// A report with a hostile text wherever a text can be.
fn hostile() -> Value {
    let mut report = report(Outcome::Failed, Some((Some(1), None)));
    HOSTILE.clone_into(&mut report.run_id);
    HOSTILE.clone_into(&mut report.started_at);
    report.plan.argv = vec![HOSTILE.to_owned()];
    report.plan.limits = vec![limit(Limit::Memory, 1 << 20, HOSTILE)];
    report.plan.enforcement = vec![Enforcement {
        axis: HOSTILE.to_owned(),
        state: EnforcementState::Weaker,
        reason: Some(HOSTILE.to_owned()),
    }];
    report.plan.cgroup_backend = HOSTILE.to_owned();
    report.view = Some(vec![PlannedPath {
        path: HOSTILE.to_owned(),
        what: PlannedEntry::Link,
        from: Some(HOSTILE.to_owned()),
        writable: false,
        size_bytes: None,
        decided_by: HOSTILE.to_owned(),
    }]);
    report.egress.capture = EgressCapture::Tproxy;
    report.egress.allowed = vec![HOSTILE.to_owned()];
    report.egress.hosts = vec![HostTraffic {
        host: HOSTILE.to_owned(),
        ports: vec![443],
        connections: 1,
        sent_bytes: 2,
        received_bytes: 3,
    }];
    report.secrets = vec![SecretReport {
        variable: HOSTILE.to_owned(),
        reference: HOSTILE.to_owned(),
        provider: HOSTILE.to_owned(),
        granted_by: HOSTILE.to_owned(),
    }];
    report.warnings = vec![WarningReport::new(HOSTILE, HOSTILE)];
    report.stdout.captured = Some(HOSTILE.as_bytes().to_vec());
    report.kept = Some(HOSTILE.to_owned());
    let mut report = with_denials(&report, vec![denial(HOSTILE, HOSTILE, 2)]);
    report["error"] = json!({"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE});
    // What other versions may write.
    report["outcome"] = json!(HOSTILE);
    report["schema_version"] = json!(HOSTILE);
    report["denials"][0]["errno"] = json!(HOSTILE);
    report["denials"][0]["reason"] = json!(HOSTILE);
    report["denials"][0][HOSTILE] = json!(HOSTILE);
    report["observation"] = json!({HOSTILE: {"state": HOSTILE, HOSTILE: HOSTILE}});
    report["timings_ms"] = json!({HOSTILE: 3.5});
    report["inputs"] = json!([{"key": HOSTILE, "path": HOSTILE, "sha256": HOSTILE, "bytes": 1}]);
    report["outputs"] = json!([{
        "key": HOSTILE, "path": HOSTILE, "state": HOSTILE, "sha256": null, "bytes": null,
        "error": {"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE},
    }]);
    report["bundle"] = json!({
        "name": HOSTILE, "version": HOSTILE, "content_digest": HOSTILE, "archive_digest": HOSTILE,
    });
    report["image"] = json!({"place": HOSTILE, "digest": HOSTILE, "root": HOSTILE});
    report["workspace_sources"] = json!([{
        "id": HOSTILE, "reference": HOSTILE, "digest": HOSTILE, "mount_path": HOSTILE,
    }]);
    report
}

///
#[test]
fn hostile_texts_appear_and_are_only_text() {
    let page = render(&hostile()).expect("a page");
    assert!(page.matches(ESCAPED).count() > 40, "{page}");
    assert!(
        !page.contains("<script") && !page.contains("<img"),
        "{page}"
    );
    let hidden = page
        .chars()
        .find(|character| spec::path::is_hidden(*character) && *character != '\n');
    assert_eq!(hidden, None);
}

///
#[test]
fn a_page_loads_nothing_and_runs_nothing() {
    let page = render(&hostile()).expect("a page");
    for forbidden in [
        " src=",
        " href=\"http",
        "url(",
        "@import",
        "javascript:",
        " onload",
        " style=",
    ] {
        let found = page.match_indices(forbidden);
        // The hostile text itself is no markup.
        let found = found.filter(|(at, _)| !page[..*at].ends_with("&#60;img"));
        assert_eq!(found.count(), 0, "{forbidden}");
    }
    assert!(page.contains("default-src 'none'"));
}

///
#[test]
fn a_hundred_thousand_denials_stay_below_two_megabytes_and_are_counted() {
    let mut many = report(Outcome::Exited, Some((Some(1), None)));
    let object = format!("{}{}", HOSTILE, "\u{202e}".repeat(2_000));
    let denials = (0..100_000)
        .map(|index| {
            let kind = if index % 2 == 0 { "net" } else { "file" };
            let mut denial = denial(kind, &format!("{index}{object}"), index);
            denial["first_ms"] = json!(index / 100);
            denial
        })
        .collect();
    many.egress.denials_beyond = 7;
    let mut many = with_denials(&many, denials);
    many["observation"] = json!({"files": {"state": "observed", "reason": null, "beyond": 3}});
    let page = render(&many).expect("a page");
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("100,000 operations were denied"));
    assert!(page.contains("Network <small>50,007 denials") && page.contains("and 49,932 more"));
    assert!(page.contains("Files <small>50,003 denials") && page.contains("and 49,928 more"));
}

#[test]
fn denials_are_grouped_by_kind_with_the_most_frequent_first_and_the_hint_beside_them() {
    let denials = vec![
        denial("net", "rare.example:443", 1),
        denial("net", "often.example:443", 12),
        denial("syscall", "ptrace", 2),
    ];
    let report = report(Outcome::Exited, Some((Some(0), None)));
    let mut denied = with_denials(&report, denials);
    denied["denials"][1]["reason"] = json!("name-not-allowed");
    denied["denials"][2]["errno"] = json!("EPERM");
    denied["observation"] = json!({
        "files": {"state": "not_observed", "reason": "without --trace", "beyond": 0},
    });
    let page = render(&denied).expect("a page");
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(place("often.example:443</code>") < place("rare.example:443</code>"));
    assert!(
        place("not in network.egress · rule network.egress · 12 times · first after 20 ms") > 0
    );
    assert!(place("--allow-net often.example:443</code>") < place("rare.example:443</code>"));
    assert!(place("System calls <small>1 denial") > 0 && place("errno EPERM") > 0);
    assert!(place("not observed · without --trace</span>") > 0);
}

#[test]
fn what_is_not_recorded_is_said_and_not_invented() {
    let bare = page(&report(Outcome::Refused, None));
    for text in [
        "The command is not recorded.",
        "The phases are not recorded.",
        "The body did not run.",
        "only a run with --report FILE.html records its view",
        "the run ended before its limits were decided",
    ] {
        assert!(bare.contains(text), "{text}: {bare}");
    }
    let older = render(&json!({"outcome": "exited"})).expect("a page");
    assert!(older.contains("Which kinds were observed is not recorded"));
    let without_cgroup = page(&report(Outcome::Exited, Some((Some(0), None))));
    assert!(without_cgroup.contains("had no cgroup, so nothing was sampled"));
    assert!(without_cgroup.contains("not recorded · no limit"));
    let mut unsampled = report(Outcome::Exited, Some((Some(0), None)));
    unsampled.plan.cgroup_backend = "v2".to_owned();
    unsampled.usage.memory_peak_bytes = Some(16 << 20);
    unsampled.plan.limits = vec![limit(Limit::Memory, 64 << 20, "default")];
    let unsampled = page(&unsampled);
    assert!(unsampled.contains("only a run with --report FILE.html samples its body"));
    assert!(unsampled.contains("Memory over time: peak 16 MiB, limit 64 MiB"));
    assert!(unsampled.contains("width=\"25.00%\""), "{unsampled}");
    // A report of the future, and one that lacks everything.
    assert!(render(&json!({"outcome": "paused", "unknown": [1]})).is_ok());
    let error = render(&json!({"denials": 3})).expect_err("no list");
    assert!(matches!(error, PageError::Document(_)));
}

#[test]
fn curves_are_drawn_to_the_scale_of_a_limit_that_is_near() {
    let mut sampled = report(Outcome::OutOfMemory, Some((None, Some(9))));
    let timing = |phase, duration_us| Timing { phase, duration_us };
    sampled.timings = vec![timing("prepare", 250_000), timing("body", 750_000)];
    sampled.plan.cgroup_backend = "v2".to_owned();
    sampled.usage.wall_time_ms = 1_000;
    sampled.usage.memory_peak_bytes = Some(100);
    sampled.usage.oom_kills = Some(1);
    sampled.plan.limits = vec![
        limit(Limit::Memory, 100, "flag"),
        limit(Limit::Processes, 512, "default"),
    ];
    let sample = |at_ms, memory, cpu_time_us, oom_kills| UsageSample {
        at_ms,
        memory_bytes: Some(memory),
        cpu_time_us: Some(cpu_time_us),
        processes: Some(2),
        oom_kills: Some(oom_kills),
    };
    sampled.samples = Some(vec![
        sample(0, 0, 0, 0),
        sample(250, 27, 125_000, 0),
        sample(500, 55, 250_000, 0),
        sample(1_000, 100, 1_250_000, 1),
    ]);
    let page = page(&sampled);
    // 110 of the unit are the height: 55 is in the middle, and the limit a tenth of it below the top.
    assert!(
        page.contains("d=\"M0.0 100.0L250.0 75.5L500.0 50.0L1000.0 9.1\""),
        "{page}"
    );
    assert!(page.contains("y1=\"9.09%\""), "{page}");
    assert!(page.contains("peak 2 processors"), "{page}");
    // With fewer samples only the peak is shown.
    let mut short = sampled.clone();
    short.samples.as_mut().expect("samples").truncate(3);
    let short = self::page(&short);
    assert!(short.contains("the body ran too short for them"));
    assert!(!short.contains("class=\"curve\"") && short.contains("class=\"meter\""));
    // A limit far above has no line.
    assert_eq!(page.matches("class=\"limit-line\"").count(), 1);
    assert!(page.contains("<span>1 s</span><span>out of memory: 1 process killed</span>"));
    assert!(page.contains("SIGKILL ended the body"));
    assert!(
        page.contains("class=\"bar\" x=\"25.00%\" width=\"75.00%\""),
        "{page}"
    );
}

#[test]
fn the_tree_is_indented_by_what_it_lists_and_says_who_decided() {
    let path = |path: &str, what, writable, decided_by: &str| PlannedPath {
        path: path.to_owned(),
        what,
        from: Some(path.to_owned()),
        writable,
        size_bytes: None,
        decided_by: decided_by.to_owned(),
    };
    let mut seen = report(Outcome::Exited, Some((Some(0), None)));
    seen.view = Some(vec![
        path("/data", PlannedEntry::Host, true, "--rw"),
        path("/data/keys", PlannedEntry::Host, false, "--ro"),
        path("/data-more", PlannedEntry::Tmpfs, true, "--tmpfs"),
        path("/proc/kcore", PlannedEntry::Mask, false, "fixed"),
    ]);
    let page = page(&seen);
    let row = |depth, path: &str, detail: &str, class: &str, access: &str| {
        format!(
            "<li class=\"d{depth}\"><code>{path}</code><span class=\"detail\">{detail}</span>\
             <span class=\"badge {class}\">{access}</span></li>"
        )
    };
    for row in [
        row(0, "/data", "of the host · --rw", "warn", "writable"),
        row(1, "/data/keys", "of the host · --ro", "plain", "read-only"),
        row(
            0,
            "/data-more",
            "in memory, within the disk limit · --tmpfs",
            "good",
            "private",
        ),
    ] {
        assert!(page.contains(&row), "{row}: {page}");
    }
    assert!(page.contains("What every body sees (1 path)"), "{page}");
    assert!(page.contains("hidden</span>"));
}

/// The symbols of the row of events: class, place, lane.
fn marks(page: &str) -> Vec<String> {
    let symbols = page.lines().filter(|line| line.starts_with("<svg x="));
    let of_symbol = |line: &str| {
        let parts: Vec<&str> = line.split('"').collect();
        let class = parts.iter().position(|part| part.ends_with(" class="));
        let class = parts[class.expect("a class") + 1];
        format!("{class} {} {}", parts[1], parts[3])
    };
    symbols.map(of_symbol).collect()
}

#[test]
fn denials_kills_limits_and_signals_are_marked_where_they_happened() {
    let timing = |phase, duration_us| Timing { phase, duration_us };
    let ended = |outcome| {
        let mut ended = report(outcome, Some((None, Some(9))));
        ended.timings = vec![timing("body", 1_000_000)];
        ended.usage.wall_time_ms = 1_000;
        ended
    };
    let mut killed = ended(Outcome::OutOfMemory);
    killed.usage.oom_kills = Some(1);
    let sample = |at_ms, oom_kills| UsageSample {
        at_ms,
        memory_bytes: Some(1),
        cpu_time_us: Some(at_ms),
        processes: Some(2),
        oom_kills: Some(oom_kills),
    };
    killed.samples = Some(vec![
        sample(0, 0),
        sample(250, 0),
        sample(500, 1),
        sample(1_000, 1),
    ]);
    let at = |first_ms: u64| {
        let mut denial = denial("net", &format!("a{first_ms}.com"), 1);
        denial["first_ms"] = first_ms.into();
        denial
    };
    // Two of these are at one place.
    let page = render(&with_denials(&killed, vec![at(751), at(250), at(252)])).expect("a page");
    let expected = [
        "denial 24% 75%",
        "denial 74% 75%",
        "oom 50.00% 25%",
        "signal 100.00% 75%",
    ];
    assert_eq!(marks(&page), expected);
    // In each curve, a line for all but the denials.
    let curves = page.matches("<svg class=\"curve\"").count();
    assert_eq!(curves, 3);
    for at in ["50.00%", "100.00%"] {
        let line = format!("<line class=\"mark-line\" x1=\"{at}\" x2=\"{at}\"");
        assert_eq!(page.matches(&line).count(), curves, "{at}");
    }
    assert!(!page.contains("x1=\"24%\""), "{page}");

    let mut timed_out = ended(Outcome::TimedOut);
    timed_out.plan.limits = vec![limit(Limit::WallTime, 800, "flag")];
    let page = self::page(&timed_out);
    assert_eq!(marks(&page), ["limit 80.00% 25%", "signal 100.00% 75%"]);
    let mut cancelled = ended(Outcome::Cancelled);
    cancelled.cancelled_by = Some(2);
    let page = self::page(&cancelled);
    assert_eq!(marks(&page), ["signal 100.00% 75%", "signal 100.00% 75%"]);
    let mut quiet = ended(Outcome::Exited);
    quiet.exit = Some(Exit::of_wait_status(0));
    assert_eq!(marks(&self::page(&quiet)), Vec::<String>::new());
}
