//! Many denials of each kind: how long they take, how many are counted, and what the supervisor
//! needs.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{Ground, HOST, JUDGED_HOST, PRIVATE_HOST, value};

/// One kind on one way of capturing.
pub(crate) struct Denied {
    pub(crate) capture: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) took_ms: f64,
    /// What the body saw refused.
    pub(crate) refused: f64,
    /// Counts of the report by reason.
    pub(crate) counted: Vec<(String, u64)>,
    /// What the report says was lost.
    pub(crate) lost: u64,
    /// VmHWM of the supervisor, in KiB.
    pub(crate) peak_kib: u64,
}

/// Kinds as the body knows them, a host and a port for each.
const KINDS: [(&str, &str, &str); 9] = [
    ("name", "evil.example", "0"),
    ("address", "93.184.216.34", "443"),
    ("port", HOST, "81"),
    ("private", PRIVATE_HOST, "443"),
    ("other-sni", JUDGED_HOST, "443"),
    ("no-sni", JUDGED_HOST, "443"),
    ("no-tls", JUDGED_HOST, "443"),
    ("other-host", JUDGED_HOST, "80"),
    ("datagram", "8.8.8.8", "443"),
];

pub(crate) fn measure(ground: &Ground, denials: usize) -> Vec<Denied> {
    let mut all = Vec::new();
    if denials == 0 {
        return all;
    }
    for capture in ["tproxy", "anyip"] {
        // What a run needs that denies nothing.
        all.push(one(ground, capture, ("nothing", HOST, "81"), 0));
        for kind in KINDS {
            all.push(one(ground, capture, kind, denials));
        }
    }
    all
}

fn one(
    ground: &Ground,
    capture: &'static str,
    (kind, host, port): (&'static str, &str, &str),
    count: usize,
) -> Denied {
    let report = ground.path("report.json");
    let mut command = ground.runner(capture);
    let mut argument = std::ffi::OsString::from("--json=");
    argument.push(&report);
    command.arg(argument).arg("--").arg(&ground.body);
    // A private host is looked at when somebody speaks TLS to it.
    let kind_of_bytes = if kind == "private" { "own-sni" } else { kind };
    command.args(["to", HOST, "deny", kind_of_bytes, host, port]);
    command.arg(count.to_string());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let peak_kib = watch(&mut child);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{kind}: {}", ended.status);
    let printed = String::from_utf8(ended.stdout).unwrap();
    let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let denials = report["denials"].as_array().unwrap();
    let counted = denials
        .iter()
        .filter(|denial| denial["kind"] == "net")
        .map(|denial| {
            let reason = denial["reason"].as_str().unwrap_or_default().to_owned();
            (reason, denial["count"].as_u64().unwrap())
        })
        .collect();
    let number = |name: &str| report["egress"][name].as_u64().unwrap_or(0);
    Denied {
        capture,
        kind,
        took_ms: value(&printed, "deny_ms"),
        refused: value(&printed, "refused"),
        counted,
        lost: number("lost_questions") + number("lost_datagrams"),
        peak_kib,
    }
}

/// The peak of the supervisor's memory, while it runs.
fn watch(child: &mut Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(10));
    }
    peak
}
