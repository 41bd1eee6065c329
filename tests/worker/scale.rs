//! What `scripts/scale --measure` measures, with few runs and workers.

use std::process::Command;

use serde_json::Value;
use support::{belongs_to_tier, is_root, needs_root, source_path};

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// The connections that stand for many workers cost what workers cost, and the results that are kept are as large as
/// those of runs.
#[test]
fn what_is_measured_for_the_page_about_scale_is_what_workers_do() {
    if !belongs_to_tier("long") {
        return;
    }
    if !is_root() {
        return needs_root("containers of crun and runc");
    }
    let output = Command::new(source_path("scripts/scale"))
        .arg("--once")
        .env("RUNNER_BIN", support::runner())
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");

    let idle = found["idle"].as_array().expect("rows");
    let (worker, simulated) = (&idle[0], &idle[1]);
    assert_eq!(worker["simulated"], false);
    assert_eq!(simulated["simulated"], true);
    let workers = number(&worker["workers"]);
    assert_eq!(number(&simulated["workers"]), workers);
    for (name, each) in [("in_msgs_s", 0.2), ("out_msgs_s", 0.4)] {
        // One more or less at an end of the ten seconds.
        for row in [worker, simulated] {
            let difference = number(&row[name]) - workers * each;
            assert!(difference.abs() <= workers * 0.1, "{name}: {row}");
        }
    }
    let near = |left: f64, right: f64| (left / right - 1.0).abs() < 0.1;
    let run = &found["run"];
    let stored = number(&run["stored_bytes"]);
    assert!(
        near(number(&found["kept"]["stored_bytes"]), stored),
        "{run}"
    );
    // A request, its result, its report and the acknowledgement, each with an answer.
    for direction in ["in_msgs", "out_msgs"] {
        assert!(number(&run[direction]) > 4.0, "{run}");
    }
    let (cached, fetched) = (&found["cached"], &found["fetched"]);
    let moved = number(&fetched["out_bytes"]) - number(&cached["out_bytes"]);
    assert!(near(moved, number(&fetched["bundle_bytes"])), "{fetched}");
    for container in ["crun", "runc", "runner exec"] {
        assert!(number(&found["launches_us"][container]) > 0.0, "{found}");
    }
}
