//! `packaging/kubernetes/seccomp.json`: what bodies may call by the default policy, and what makes a sandbox.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::golden::assert_golden;
use support::source_path;

use crate::container::{Container, can_make_containers, said};
use crate::manifest::Pod;
use crate::runs::{JOB, static_bundle};

/// Without these calls no run starts.
const NEEDED: [&str; 13] = [
    "clone3",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "mount",
    "mount_setattr",
    "move_mount",
    "openat2",
    "pivot_root",
    "sethostname",
    "setns",
    "umount2",
];
/// Without these a run is weaker or lacks a feature: the root of readers, mounts of directories, the domain
/// name of the node.
const USED: [&str; 3] = ["chroot", "open_tree", "setdomainname"];
/// Flags of clone(2) and unshare(2) for namespaces.
const NAMESPACES: u32 = 0x7e02_0080;
/// Where docs/kubernetes.md has the profile installed, below the directory of kubelet.
const PLACE: &str = "profiles/runner.json";

/// Calls that the default policy allows, at least with some arguments.
fn calls_of_bodies() -> BTreeSet<String> {
    let text = std::fs::read_to_string(source_path("policies/syscalls-default.yaml"));
    let policy: Value = serde_saphyr::from_str(&text.expect("a policy")).expect("YAML");
    let allows = |rule: &&Value| {
        let cases = rule["cases"].as_array().into_iter().flatten();
        rule["action"] == "allow" || cases.into_iter().any(|case| case["then"] == "allow")
    };
    let rules = policy["rules"].as_array().expect("rules").iter();
    let calls = rules
        .filter(allows)
        .filter_map(|rule| rule["calls"].as_array());
    let names = calls.flatten().map(|name| name.as_str().expect("a name"));
    names.map(str::to_owned).collect()
}

/// A profile that allows these calls.
fn profile(calls: &BTreeSet<String>) -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [{"names": calls, "action": "SCMP_ACT_ALLOW"}],
    })
}

fn calls_of_profile() -> BTreeSet<String> {
    let own = [&NEEDED[..], &USED].concat();
    let own = own.into_iter().map(str::to_owned);
    calls_of_bodies().into_iter().chain(own).collect()
}

/// The filter for `securityContext.seccompProfile`.
pub(crate) fn of(stated: &Value) -> Value {
    match stated["type"].as_str() {
        Some("Localhost") => {
            assert_eq!(stated["localhostProfile"], PLACE);
            let text = std::fs::read_to_string(source_path("packaging/kubernetes/seccomp.json"));
            serde_json::from_str(&text.expect("a profile")).expect("JSON")
        }
        Some("RuntimeDefault") => runtime_default(),
        other => panic!("unknown kind of profile: {other:?}"),
    }
}

/// What containerd's default profile refuses to a container without capabilities, of what a run needs.
fn runtime_default() -> Value {
    let mut calls = calls_of_bodies();
    calls.remove("unshare");
    calls.remove("clone");
    let mut profile = profile(&calls);
    let rules = profile["syscalls"].as_array_mut().expect("rules");
    let condition =
        json!({"index": 0, "value": NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"});
    rules.push(json!({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [condition]}));
    rules.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}));
    profile
}

#[test]
fn the_profile_is_the_policy_of_bodies_and_what_makes_a_sandbox() {
    let text = serde_json::to_string_pretty(&profile(&calls_of_profile())).expect("JSON");
    let path = source_path("packaging/kubernetes/seccomp.json");
    assert_golden(&path, &format!("{text}\n"));
    let bodies = calls_of_bodies();
    for name in NEEDED.iter().chain(&USED) {
        assert!(!bodies.contains(*name), "bodies may call {name}");
    }
}

#[test]
fn no_run_starts_without_one_of_the_needed_calls() {
    if !can_make_containers() {
        return;
    }
    let mut container = Container::new(Pod::of(JOB));
    container.put(
        "work",
        "bundle.tar.gz",
        static_bundle("int main(void) { return 0; }"),
    );
    let all = calls_of_profile();
    let optional: BTreeSet<String> = USED.map(str::to_owned).into();
    container.filter = Some(profile(&(&all - &optional)));
    let output = container.run(&[]);
    assert!(output.status.success(), "{}", said(&output));
    for name in NEEDED {
        let one = BTreeSet::from([name.to_owned()]);
        container.filter = Some(profile(&(&all - &one)));
        let output = container.run(&[]);
        assert_eq!(output.status.code(), Some(125), "{name}: {}", said(&output));
    }
}

#[test]
fn a_body_is_shown_a_directory_of_the_pod_by_open_tree() {
    if !can_make_containers() {
        return;
    }
    let mut container = Container::new(Pod::of(JOB));
    let words = ["run", "--ro", "/work", "--", "/usr/bin/runner", "--version"];
    let output = container.run(&words);
    assert!(output.status.success(), "{}", said(&output));
    let mut calls = calls_of_profile();
    calls.remove("open_tree");
    container.filter = Some(profile(&calls));
    let output = container.run(&words);
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
}
