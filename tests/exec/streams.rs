//! The report on standard output, with the output of the body inside.

use serde_json::Value;

use support::Ground;
use support::text;

/// Runs `body` with the report on standard output. The report file of the ground stays empty, so
/// this function validates the report.
fn captured(ground: &Ground, manifest: &str, body: &str) -> (i32, Value, String) {
    let bundle = ground.script(manifest, body);
    let done = ground
        .command(&["exec", "--json", text(&bundle)])
        .without("I8")
        .done();
    let report: Value =
        serde_json::from_slice(&done.stdout).expect("standard output is the report");
    assert_eq!(done.text().matches('\n').count(), 1, "one line: {done:#?}");
    let errors = done.own_errors().join("\n");
    (done.code, report, errors)
}

#[test]
fn the_body_s_output_is_inside_the_report() {
    let ground = Ground::new();
    let (code, report, stderr) = captured(
        &ground,
        "run: body.sh\n",
        "echo out; echo err >&2; exit 3\n",
    );
    assert_eq!((code, stderr.as_str()), (3, ""));
    assert_eq!(report["stdout"]["text"], "out\n");
    assert_eq!(report["stderr"]["text"], "err\n");
    assert!(
        report["stdout"]
            .get("text_base64")
            .is_none_or(Value::is_null)
    );
}

#[test]
fn bytes_that_are_no_text_are_there_exactly() {
    let ground = Ground::new();
    let (code, report, _) = captured(&ground, "run: body.sh\n", "printf 'a\\377\\000b'\n");
    assert_eq!(code, 0);
    assert_eq!(report["stdout"]["text"], "a\u{fffd}\0b");
    assert_eq!(report["stdout"]["text_base64"], "Yf8AYg==");
    assert_eq!(report["stdout"]["bytes"], 4);
}

#[test]
fn captured_output_is_bounded_and_the_excess_counted() {
    let ground = Ground::new();
    let (code, report, _) = captured(
        &ground,
        "run: body.sh\n",
        "head -c 20000000 /dev/zero | tr '\\0' 1\n",
    );
    assert_eq!(code, 0);
    let limit = 16 << 20;
    assert_eq!(report["stdout"]["bytes"], 20_000_000);
    assert_eq!(report["stdout"]["dropped_bytes"], 20_000_000 - limit);
    assert_eq!(
        report["stdout"]["text"].as_str().expect("text").len(),
        limit
    );
    assert!(report["output"].is_null(), "a part is not the whole");
}

/// Tests invariant I10: both streams at their limit, in one report.
#[test]
fn two_full_streams_do_not_make_the_supervisor_large() {
    let ground = Ground::new();
    let body =
        "head -c 20000000 /dev/zero | tr '\\0' 1; head -c 20000000 /dev/zero | tr '\\0' 2 >&2\n";
    let (code, report, _) = captured(&ground, "run: body.sh\n", body);
    assert_eq!(code, 0);
    for stream in ["stdout", "stderr"] {
        assert_eq!(report[stream]["dropped_bytes"], 20_000_000 - (16 << 20));
    }
}

#[test]
fn the_structured_output_of_a_captured_body_is_in_the_report() {
    let ground = Ground::new();
    let manifest = "run: body.sh\noutputs: {type: object}\n";
    let (code, report, _) = captured(&ground, manifest, "echo '{\"n\": 1}'\n");
    assert_eq!(code, 0);
    assert_eq!(report["output"], serde_json::json!({"n": 1}));
    let (code, report, stderr) = captured(&ground, manifest, "echo words\n");
    assert_eq!(
        (code, &report["error"]["code"]),
        (125, &"missing-output".into())
    );
    assert!(stderr.starts_with("runner: "), "{stderr}");
}

#[test]
fn the_report_of_a_refusal_is_on_standard_output_too() {
    let ground = Ground::new();
    let (code, report, stderr) = captured(&ground, "run: gone.sh\n", "");
    assert_eq!(code, 125);
    assert_eq!(report["error"]["code"], "run_target_missing");
    assert!(stderr.contains("run_target_missing"), "{stderr}");
}
