//! What of the body's network the supervisor holds, and for how long.

mod support;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Ground, runner, skip};

/// More than a pipe holds: the runner stands still while it writes the report that has it.
const LONG: &str = "readlink /proc/self/ns/net; head -c 300000 /dev/zero | tr '\\0' x";

/// What `/proc/PID/fd` leads to.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours");
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}

/// Processes that are in the network namespace with this name.
fn inside(namespace: &str) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").expect("proc is mounted");
    let paths = processes.filter_map(|entry| Some(entry.ok()?.path().join("ns/net")));
    paths
        .filter(|path| std::fs::read_link(path).is_ok_and(|it| it == Path::new(namespace)))
        .collect()
}

/// One descriptor left open would keep the whole namespace (H of the list of threats).
#[test]
fn when_the_report_is_written_nothing_of_the_namespace_is_held() {
    if !Path::new("/proc/self/ns/net").exists() {
        skip("a kernel without network namespaces");
        return;
    }
    for capture in ["tproxy", "anyip"] {
        let ground = Ground::new();
        let mut child = Command::new(runner())
            .args(["run", "--json", "--allow-net", "a.example"])
            .args(["--egress-capture", capture, "--", "/bin/sh", "-c", LONG])
            .env("HOME", ground.path("work"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the runner starts");
        let mut stdout = child.stdout.take().expect("piped");
        let mut report = vec![0];
        if stdout.read_exact(&mut report).is_err() {
            let mut stderr = String::new();
            let mut from = child.stderr.take().expect("piped");
            from.read_to_string(&mut stderr).expect("text");
            panic!("{capture}: no report: {stderr}");
        }
        let held = descriptors(child.id());
        stdout.read_to_end(&mut report).expect("read");
        assert!(child.wait().expect("waited").success(), "{capture}");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        assert_eq!(report["egress"]["capture"], capture);
        let text = report["stdout"]["text"].as_str().expect("text");
        let namespace = text.lines().next().expect("a line");
        assert!(namespace.starts_with("net:["), "{namespace}");
        assert_eq!(inside(namespace), Vec::<PathBuf>::new());
        let of_network =
            |target: &&String| target.starts_with("socket:") || target.contains("eventpoll");
        let left: Vec<&String> = held.iter().filter(of_network).collect();
        assert!(left.is_empty(), "{capture}: {left:?} of {held:?}");
        assert!(!held.is_empty());
    }
}
