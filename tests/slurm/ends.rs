//! Jobs that Slurm ends.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::jobs::script;
use support::invariants::living;

/// Says when it was asked to end.
const BODY: &str = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done";

/// Queues a job and waits until its body has said that it is up; returns its number.
fn queued(cluster: &Cluster, job: &str) -> String {
    // That of an earlier job.
    cluster.ground.write("work/job.log", "");
    let job = cluster.submit(&["--output=job.log"], job);
    cluster.until("the body", || log(cluster).contains("up\n"));
    job
}

fn log(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.ground.path("work/job.log")).unwrap_or_default()
}

/// The report of a job that is cancelled while its body runs.
fn cancelled(cluster: &Cluster, job: &str) -> Value {
    let job = queued(cluster, job);
    cluster.printed(&["scancel", &job]);
    cluster.until_ended(&job);
    assert_eq!(cluster.field(&job, "JobState"), "CANCELLED");
    let report = cluster.report("report.json");
    cluster.assert_nothing_left(report["run_id"].as_str().expect("a name"));
    report
}

/// Asserts that one SIGTERM cancelled it: the body ended by itself.
#[track_caller]
fn assert_cancelled(report: &Value) {
    assert_eq!(report["outcome"], "cancelled", "{report:#}");
    assert_eq!(report["cancelled_by"], 15);
    assert_eq!(report["exit"]["code"], 3, "{report:#}");
}

#[test]
fn a_cancelled_job_ends_its_run_and_leaves_a_report() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let bundle = script(&cluster, BODY);
    let job = format!("#!/bin/sh\nexec runner exec --json=report.json {bundle}\n");
    assert_cancelled(&cancelled(&cluster, &job));
    let log = log(&cluster);
    assert!(log.contains("asked\n"), "{log}");
    assert!(log.contains("runner: cancelled by SIGTERM\n"), "{log}");

    // srun is signalled too, and signals the step once more: without a grace.
    std::fs::remove_file(cluster.ground.path("work/report.json")).expect("removed");
    let job = format!("#!/bin/sh\nsrun runner exec --json=report.json {bundle}\n");
    let report = cancelled(&cluster, &job);
    assert_eq!(report["outcome"], "cancelled", "{report:#}");
    assert_eq!(report["cancelled_by"], 15);
}

/// The body gets the signal from Slurm too, before the runner does.
#[test]
fn a_job_whose_processes_are_all_signalled_ends_its_run() {
    let Some(cluster) = Cluster::start("linuxproc") else {
        return;
    };
    let bundle = script(&cluster, BODY);
    let job = format!("#!/bin/sh\nexec runner exec --json=report.json {bundle}\n");
    let report = cancelled(&cluster, &job);
    assert_eq!(report["exit"]["code"], 3, "{report:#}");
    // The body may have ended before the runner is sent its signal.
    let outcome = report["outcome"].as_str().unwrap_or_default();
    assert!(["cancelled", "exited"].contains(&outcome), "{report:#}");
}

/// After `KillWait`.
#[test]
fn a_killed_job_takes_its_body_along_and_the_next_run_removes_what_it_left() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let bundle = script(&cluster, "trap '' TERM HUP; echo up; sleep 600");
    let job = "#!/bin/sh\nexec runner exec --grace=5m --json=report.json ";
    let job = queued(&cluster, &format!("{job}{bundle}\n"));
    let runs = cluster.records();
    assert_eq!(runs.len(), 1, "{runs:?}");
    cluster.printed(&["scancel", &job]);
    cluster.until_ended(&job);
    cluster.assert_no_process_left();
    assert_eq!(living(cluster.ground.marker()), Vec::<i32>::new());
    assert!(!cluster.ground.path("work/report.json").exists());
    assert_eq!(cluster.records(), runs, "it could not remove its record");

    let next = script(&cluster, "echo next");
    cluster.printed(&["srun", "runner", "exec", &next]);
    cluster.assert_nothing_left(&runs[0]);
}

/// One whose `--timeout` is computed as the document says, and one that Slurm ends: up to 30 s after its minute.
#[test]
fn at_its_limit_of_time_a_job_has_timed_out_or_was_cancelled() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let bundle = script(&cluster, BODY);
    let document = include_str!("../../docs/slurm.md");
    let start = document.find("end=").expect("how the end is found");
    let end = document[start..].find("exec runner").expect("the run") + start;
    let found = &document[start..end];
    let job = |name: &str, timeout: &str| {
        let text =
            format!("#!/bin/bash\n{found}exec runner exec {timeout} --json={name}.json {bundle}\n");
        let log = format!("--output={name}.log");
        cluster.submit(&["--time=1", "--ntasks=1", &log], &text)
    };
    let early = job("early", "--timeout $((end - $(date +%s) - 50))s");
    let late = job("late", "--timeout none");
    cluster.until_ended(&early);
    let report = cluster.report("early.json");
    assert_eq!(report["outcome"], "timed_out", "{report:#}");
    assert_eq!(cluster.field(&early, "ExitCode"), "124:0");
    let limit = report["limits"]["wall_time_ms"]["effective"].as_u64();
    assert!(limit.is_some_and(|limit| limit <= 10_000), "{limit:?}");
    assert_eq!(cluster.field(&late, "JobState"), "RUNNING");

    cluster.until_ended(&late);
    assert_eq!(cluster.field(&late, "JobState"), "TIMEOUT");
    let report = cluster.report("late.json");
    assert_cancelled(&report);
    let lived = Duration::from_millis(report["usage"]["wall_time_ms"].as_u64().expect("a time"));
    assert!(Duration::from_secs(55) < lived, "{lived:?}");
    cluster.assert_nothing_left(report["run_id"].as_str().expect("a name"));
}

#[test]
fn other_signals_reach_the_body() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let bundle = script(&cluster, &BODY.replace("TERM", "USR1"));
    let job = format!("#!/bin/sh\nexec runner exec --json=report.json {bundle}\n");
    let job = queued(&cluster, &job);
    cluster.printed(&["scancel", "--batch", "--signal=USR1", &job]);
    cluster.until_ended(&job);
    assert_eq!(cluster.field(&job, "ExitCode"), "3:0");
    assert_eq!(cluster.report("report.json")["outcome"], "exited");
}
