//! Descriptors of the body's network in the supervisor, and how long it holds them.
#![expect(
    clippy::expect_used,
    reason = "a test that cannot look at its own processes has nothing to say"
)]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Ground, runner, skip};

/// Waits for input, then prints more than a pipe holds: the runner blocks while it writes the
/// report with this output.
const LONG: &str = "read word; readlink /proc/self/ns/net; head -c 300000 /dev/zero | tr '\\0' x";

/// The targets of `/proc/PID/fd`.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours");
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}

/// Its children: init, the resolver and the relay.
fn children(pid: u32) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("a process of ours");
    children.split_whitespace().map(str::to_owned).collect()
}

/// What only a network needs: sockets, the epoll instance, and the processes that have more of them.
/// The link to init is a socket too, and is closed before the report.
fn of_network(pid: u32) -> Vec<String> {
    let mut found = descriptors(pid);
    found.retain(|target| target.starts_with("socket:") || target.contains("eventpoll"));
    found.extend(children(pid));
    found
}

/// Processes in the network namespace with this name.
fn inside(namespace: &str) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").expect("proc is mounted");
    let paths = processes.filter_map(|entry| Some(entry.ok()?.path().join("ns/net")));
    paths
        .filter(|path| std::fs::read_link(path).is_ok_and(|it| it == Path::new(namespace)))
        .collect()
}

/// One open descriptor would keep the whole namespace (H of the list of threats).
#[test]
fn the_network_namespace_is_released_before_the_report_is_written() {
    if !Path::new("/proc/self/ns/net").exists() {
        skip("a kernel without network namespaces");
        return;
    }
    for capture in ["tproxy", "anyip"] {
        let ground = Ground::new();
        let mut child = Command::new(runner())
            .args(["run", "-i", "--json", "--allow-net", "a.example"])
            .args(["--egress-capture", capture, "--", "/bin/sh", "-c", LONG])
            .env("HOME", ground.path("work"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the runner starts");
        let mut stdin = child.stdin.take().expect("piped");
        let hangs_at = Instant::now() + Duration::from_secs(60);
        while children(child.id()).len() < 3 {
            assert!(Instant::now() < hangs_at, "{:?}", children(child.id()));
            std::thread::sleep(Duration::from_millis(5));
        }
        stdin.write_all(b"go\n").expect("written");
        drop(stdin);
        let mut stdout = child.stdout.take().expect("piped");
        let mut report = vec![0];
        if stdout.read_exact(&mut report).is_err() {
            let mut stderr = String::new();
            let mut from = child.stderr.take().expect("piped");
            from.read_to_string(&mut stderr).expect("text");
            panic!("{capture}: no report: {stderr}");
        }
        let held = of_network(child.id());
        stdout.read_to_end(&mut report).expect("read");
        assert!(child.wait().expect("waited").success(), "{capture}");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        assert_eq!(report["egress"]["capture"], capture);
        let text = report["stdout"]["text"].as_str().expect("text");
        let namespace = text.lines().next().expect("a line");
        assert!(namespace.starts_with("net:["), "{namespace}");
        assert_eq!(inside(namespace), Vec::<PathBuf>::new());
        assert!(held.is_empty(), "{capture}: {held:?}");
    }
}
