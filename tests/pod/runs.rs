//! Runs in the pod of the job.

use serde_json::Value;
use support::bodies::c_body;
use support::bundles::pack;

use crate::container::{Container, can_make_containers, said};
use crate::manifest::Pod;

pub(crate) const JOB: &str = "job.yaml";
const HOSTILE: &str = include_str!("../bodies/pod/hostile.c");
const GREEDY: &str = include_str!("../bodies/pod/greedy.c");

/// A bundle with one static program.
pub(crate) fn static_bundle(text: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join("bundle");
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("manifest.yaml"), "name: pod\nrun: body\n").expect("written");
    std::fs::copy(c_body("body", text), folder.join("body")).expect("copied");
    std::fs::read(pack(&folder)).expect("a bundle")
}

fn job_with(body: &str) -> Option<Container> {
    can_make_containers().then(|| {
        let container = Container::new(Pod::of(JOB));
        container.put("work", "bundle.tar.gz", static_bundle(body));
        container
    })
}

fn report(container: &Container) -> Value {
    let text = std::fs::read_to_string(container.volume("work").join("report.json"));
    serde_json::from_str(&text.expect("a report")).expect("JSON")
}

#[test]
fn a_bundle_runs_as_the_job_and_its_report_is_in_the_volume() {
    let Some(container) =
        job_with("#include <stdio.h>\nint main(void) { return puts(\"done\") < 0; }")
    else {
        return;
    };
    let output = container.run(&[]);
    assert_eq!(output.stdout, b"done\n", "{}", said(&output));
    let report = report(&container);
    assert_eq!(report["outcome"], "exited", "{report:#}");
    assert_eq!(report["exit"]["code"], 0, "{report:#}");
    // Nothing but that the limits are weaker, and why.
    let warnings = report["warnings"].as_array().expect("a list").iter();
    let codes: Vec<&Value> = warnings.map(|warning| &warning["code"]).collect();
    assert_eq!(codes, ["limit_weaker"], "{report:#}");
}

/// The pod may use 1 GiB, its run 512 MiB.
#[test]
fn a_run_of_the_job_ends_at_its_limit_of_memory_and_not_at_that_of_the_pod() {
    let Some(container) = job_with(GREEDY) else {
        return;
    };
    let output = container.run(&[]);
    let report = report(&container);
    assert_eq!(report["outcome"], "out_of_memory", "{report:#}");
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
}

#[test]
fn a_run_of_the_job_ends_at_its_limit_of_time() {
    let Some(container) = job_with("#include <unistd.h>\nint main(void) { return pause(); }")
    else {
        return;
    };
    let output = container.run(&[
        "exec",
        "--json=/work/report.json",
        "--timeout=1s",
        "/work/bundle.tar.gz",
    ]);
    assert_eq!(
        report(&container)["outcome"],
        "timed_out",
        "{}",
        said(&output)
    );
    assert_eq!(output.status.code(), Some(124), "{}", said(&output));
}

#[test]
fn a_hostile_body_of_the_job_reaches_nothing_of_the_pod() {
    let Some(container) = job_with(HOSTILE) else {
        return;
    };
    let output = container.run(&[]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "27 attempts\n", "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    let report = report(&container);
    let denials = report["denials"].as_array().expect("a list");
    let has_rule = |rule: &str| denials.iter().any(|denial| denial["rule"] == rule);
    for rule in ["mounts", "unshare"] {
        assert!(has_rule(rule), "{rule}: {report:#}");
    }
    // The profile of the pod refuses it before the policy can report it.
    assert!(!has_rule("keyrings"), "{report:#}");
}
