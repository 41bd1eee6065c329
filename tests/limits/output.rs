//! Output: floods, endless lines, invalid text, closed streams.

use crate::back_end::limit;
use support::bodies::c_body;
use support::{Done, Ground};

/// Writes `blocks` blocks of 64 KiB to both streams in turn.
fn flood(ground: &Ground, flags: &[&str], blocks: u64) -> Done {
    let text = include_str!("../bodies/limits/flood.c");
    let program = c_body("flood", text);
    let count = blocks.to_string();
    ground.run(flags, &[program.to_str().expect("plain"), &count])
}

fn stream(done: &Done, name: &str) -> (u64, u64) {
    let number = |key: &str| done.report[name][key].as_u64().expect("a number");
    (number("bytes"), number("dropped_bytes"))
}

/// C-15: invariant 10 checks the memory of the supervisor.
#[test]
fn a_flood_is_counted_and_cut_and_the_body_goes_on() {
    let ground = Ground::new();
    let done = flood(&ground, &["--max-output=1m"], 1024);
    done.assert_exited(0);
    let (all, kept) = (64 << 20, 1 << 20);
    assert_eq!(stream(&done, "stdout"), (all, all - kept));
    assert_eq!(stream(&done, "stderr"), (all, all - kept));
    assert_eq!(done.stdout.len(), 1 << 20);
    assert!(done.stdout.iter().all(|byte| *byte == b'x'));
    // The last lines say that output is missing.
    let words = &done.stderr[1 << 20..];
    assert!(
        words.contains("runner: ") && words.contains("output"),
        "{words}"
    );
    assert_eq!(limit(&done, "output_bytes"), (Some(1 << 20), "flag"));
}

/// C-15: passed through without a limit, all output arrives.
#[test]
fn a_flood_without_a_limit_arrives_whole() {
    let ground = Ground::new();
    let done = flood(&ground, &[], 256);
    done.assert_exited(0);
    assert_eq!((done.stdout.len(), done.stderr.len()), (16 << 20, 16 << 20));
    assert_eq!(stream(&done, "stdout"), (16 << 20, 0));
}

/// C-15
#[test]
fn a_flood_can_be_made_to_end_the_run() {
    let ground = Ground::new();
    let flags = ["--max-output=100k", "--on-output-limit=kill", "--grace=0s"];
    let done = flood(&ground, &flags, 1 << 40);
    done.assert_outcome("output_limit", 125);
    assert_eq!(done.stdout.len(), 100 << 10);
    let (bytes, dropped) = stream(&done, "stdout");
    assert_eq!(bytes - dropped, 100 << 10);
}

/// C-15: captured output must not use up the memory of the host.
#[test]
fn a_captured_flood_is_cut_and_counted_in_the_report() {
    let ground = Ground::new();
    let words = [
        "run",
        "--json",
        "--max-output=2m",
        "--",
        "/bin/sh",
        "-c",
        "head -c 8388608 /dev/zero | tr '\\0' y; head -c 8388608 /dev/zero >&2",
    ];
    // The report is on standard output, not in the file that the invariants check.
    let done = ground.command(&words).without("I8").done();
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("a report");
    assert_eq!(report["outcome"], "exited", "{}", done.stderr);
    for name in ["stdout", "stderr"] {
        assert_eq!(report[name]["bytes"], 8 << 20);
        assert_eq!(report[name]["dropped_bytes"], 6 << 20);
        assert_eq!(report[name]["text"].as_str().expect("text").len(), 2 << 20);
    }
}

/// C-16
#[test]
fn bytes_that_are_no_text_pass_through_as_they_are() {
    let ground = Ground::new();
    let mut bytes: Vec<u8> = (0..1_u32 << 22)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    bytes.extend_from_slice(b"\xff\xfe\0\0\xc3(\x1b[2J");
    let file = ground.write("bytes", &bytes);
    let file = file.to_str().expect("plain");
    let done = ground.run(&[&format!("--ro={file}")], &["/bin/cat", file]);
    done.assert_exited(0);
    assert!(done.stdout == bytes, "{} bytes came", done.stdout.len());
}

/// C-16: captured, invalid text is replaced, and the exact bytes are beside it.
#[test]
fn bytes_that_are_no_text_are_in_the_report_as_base64() {
    let ground = Ground::new();
    let words = ["run", "--json", "--", "/usr/bin/printf", "a\\377\\000b"];
    let done = ground.command(&words).without("I8").done();
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("a report");
    assert_eq!(report["stdout"]["text"], "a\u{fffd}\0b");
    assert_eq!(report["stdout"]["text_base64"], "Yf8AYg==");
}

/// C-16
#[test]
fn an_endless_line_does_not_grow_memory() {
    let ground = Ground::new();
    let done = flood(&ground, &["--max-output=0"], 2048);
    done.assert_exited(0);
    assert_eq!(stream(&done, "stdout"), (128 << 20, 128 << 20));
    assert!(done.stdout.is_empty());
}

/// C-17
#[test]
fn a_body_that_closes_its_streams_or_never_writes_runs_to_its_end() {
    let ground = Ground::new();
    let done = ground.run(
        &[],
        &["/bin/sh", "-c", "exec >&- 2>&- <&-; sleep 0.2; exit 4"],
    );
    done.assert_exited(4);
    assert_eq!((done.stdout.len(), done.stderr.len()), (0, 0));
    ground.run(&[], &["/bin/sleep", "0.1"]).assert_exited(0);
}

/// Everything that was written before the end arrives, however the body ends.
#[test]
fn everything_that_was_written_before_the_end_arrives() {
    let ground = Ground::new();
    for _ in 0..5 {
        let script = "head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; kill -9 $$";
        let done = ground.run(&["-q"], &["/bin/sh", "-c", script]);
        done.assert_outcome("signaled", 137);
        assert_eq!((done.stdout.len(), done.stderr.len()), (60_000, 60_000));
    }
}
