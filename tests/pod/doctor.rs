//! `runner doctor` in pods: what is weaker, and what the manifest has to allow.

use serde_json::{Value, json};

use crate::container::{Container, can_make_containers, said};
use crate::manifest::Pod;
use crate::runs::JOB;

/// The diagnosis in the pod of the job after a change.
fn diagnosis(change: impl FnOnce(&mut Pod)) -> Value {
    let mut pod = Pod::of(JOB);
    change(&mut pod);
    let output = Container::new(pod).run(&["doctor", "--json"]);
    let document = serde_json::from_slice(&output.stdout);
    document.unwrap_or_else(|error| panic!("{error}: {}", said(&output)))
}

#[track_caller]
fn text<'value>(diagnosis: &'value Value, id: &str, key: &str) -> &'value str {
    let items = diagnosis["items"].as_array().expect("items").iter();
    let found = items.into_iter().find(|item| item["id"] == id);
    found.expect("the item")[key].as_str().unwrap_or_default()
}

fn default_proc_and_filter(pod: &mut Pod) {
    pod.0["hostUsers"] = json!(true);
    pod.0["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
    pod.container()["securityContext"]["procMount"] = json!("Default");
}

#[test]
fn in_the_pod_of_the_job_limits_alone_are_weaker() {
    if !can_make_containers() {
        return;
    }
    let found = diagnosis(|_| ());
    assert_eq!(
        found["summary"],
        "runner can run here: isolation is complete, enforcement of limits is weaker (no cgroup, weaker \
         memory limit, weaker process limit, no CPU share, weaker CPU time limit)"
    );
    // The image has no /bin/true.
    let run = text(&found, "sandbox", "effect");
    assert_eq!(run, "a test run of /usr/bin/runner succeeded");
    let mend = text(&found, "cgroup", "mend");
    assert!(
        mend.starts_with("set resources.limits of the container"),
        "{mend}"
    );
}

#[test]
fn under_the_defaults_one_line_says_all_that_the_manifest_has_to_allow() {
    if !can_make_containers() {
        return;
    }
    let found = diagnosis(default_proc_and_filter);
    assert_eq!(
        found["summary"],
        "runner cannot run here: a seccomp filter of the kubernetes container refuses clone3(2) and \
         unshare(2)"
    );
    assert_eq!(
        text(&found, "user_namespace", "mend"),
        "set securityContext.seccompProfile.type of the container to Localhost, with a profile that \
         allows clone3(2) and unshare(2) (packaging/kubernetes/seccomp.json), or to Unconfined; set \
         hostUsers of the pod to false and securityContext.procMount of the container to Unmasked"
    );
}

#[test]
fn a_masked_proc_is_named_with_the_two_fields_that_unmask_it() {
    if !can_make_containers() {
        return;
    }
    let found = diagnosis(|pod| pod.container()["securityContext"]["procMount"] = json!("Default"));
    assert_eq!(
        found["summary"],
        "runner cannot run here: parts of /proc of the kubernetes container are masked, so that a run \
         cannot mount its own"
    );
    assert_eq!(
        text(&found, "sandbox", "mend"),
        "set hostUsers of the pod to false and securityContext.procMount of the container to Unmasked"
    );
}
