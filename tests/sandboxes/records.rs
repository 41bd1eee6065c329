//! What a sandbox says of its commands: while it lives, and in its report.

use crate::host::{Host, said};
use runner::cli::schema::{self, SchemaName};
use serde_json::Value;
use support::invariants::eventually;
use support::tier_includes;

fn report(path: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(path).expect("read");
    serde_json::from_str(&text).expect("a report")
}

#[test]
fn the_list_and_the_report_say_how_each_command_ended() {
    let host = Host::new();
    let path = host.ground.path("report.json");
    host.create("one", &[&format!("--json={}", path.display())]);
    assert_eq!(host.shell("one", "exit 3").code, 3);
    assert_eq!(host.shell("one", "kill -TERM $$").code, 128 + 15);
    assert_eq!(
        host.say(&["sandbox", "exec", "one", "--", "nosuch"]).code,
        127
    );
    let sleep = "sleep 1000; exit";
    let words = [
        "sandbox",
        "exec",
        "-d",
        "one",
        "--",
        "sh",
        "-c",
        sleep,
        "\u{1b}[2J",
    ];
    assert_eq!(host.say(&words).code, 0);
    let state = host.list()[0].clone();
    let running = &state["commands"][0];
    assert_eq!(running["id"], 3, "{state}");
    assert_eq!(running["is_detached"], true);
    assert_eq!(
        (&running["outcome"], &running["ended_at"]),
        (&Value::Null, &Value::Null)
    );
    assert!(!state.to_string().contains('\u{1b}'), "{state}");
    assert_eq!(running["argv"][3], r"\x1b[2J");
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    let report = report(&path);
    let commands = &report["commands"];
    let outcomes: Vec<_> = commands["latest"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|command| (command["id"].as_u64(), command["outcome"].as_str()))
        .collect();
    assert_eq!(
        outcomes,
        [
            (Some(1), Some("exited")),
            (Some(2), Some("signaled")),
            (Some(3), Some("cancelled"))
        ]
    );
    assert_eq!(commands["latest"][0]["exit"]["code"], 3);
    assert_eq!(commands["latest"][1]["exit"]["signal"], 15);
    assert_eq!(commands["latest"][2]["exit"], Value::Null);
    assert_eq!(commands["unlisted"], 0);
    let first = &commands["latest"][0];
    assert!(
        first["started_at"].as_str() <= first["ended_at"].as_str(),
        "{first}"
    );
    assert!(
        first["started_at"].as_str() >= report["started_at"].as_str(),
        "{first}"
    );
}

/// F-03: the words of a command are in the report as its other texts are.
#[test]
fn the_report_has_no_value_of_a_secret_in_the_words_of_a_command() {
    let host = Host::new();
    let path = host.ground.path("report.json");
    let json = format!("--json={}", path.display());
    let words = [
        "sandbox",
        "create",
        "--name",
        "one",
        "--secret",
        "KEY=env:VALUE",
        &json,
    ];
    let created = host.command(&words).env("VALUE", "canary-9d1c").output();
    let created = said(created.expect("started"));
    assert_eq!(created.code, 0, "{created:?}");
    let long = format!("{}canary-9d1c", "x".repeat(1024 - 10));
    for word in ["=canary-9d1c=", &long] {
        assert_eq!(
            host.say(&["sandbox", "exec", "one", "--", "true", word])
                .code,
            0
        );
    }
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    let text = std::fs::read_to_string(&path).expect("read");
    assert!(text.contains("=***="), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

/// E-33: neither memory nor descriptors of the supervisor grow with the number of commands.
#[test]
fn many_detached_commands_leave_no_memory_in_the_supervisor() {
    let host = Host::new();
    let path = host.ground.path("report.json");
    // The variables of each command are copied for its start.
    let large = format!("LARGE={}", "x".repeat(60_000));
    host.create(
        "one",
        &["-e", &large, &format!("--json={}", path.display())],
    );
    let supervisor = host.supervisor().as_raw_nonzero();
    let run = |count: usize| {
        for _ in 0..count {
            let words = [
                "sandbox",
                "exec",
                "-d",
                "one",
                "--",
                "sh",
                "-c",
                "echo out; echo err >&2",
            ];
            assert_eq!(host.say(&words).code, 0);
        }
        eventually("they have ended", || {
            host.list()[0]["commands"] == serde_json::json!([])
        });
    };
    // Of the program's text, its share depends on how many others run.
    let pss_kib = || {
        let text = std::fs::read_to_string(format!("/proc/{supervisor}/smaps_rollup"));
        let text = text.expect("readable");
        let own = text.lines().filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let is_own = matches!(name, "Pss_Anon" | "Pss_Shmem");
            is_own.then(|| rest.trim().split(' ').next()?.parse::<u64>().ok())?
        });
        own.sum::<u64>()
    };
    let descriptors = || {
        let entries = std::fs::read_dir(format!("/proc/{supervisor}/fd"));
        entries.expect("readable").count()
    };
    // More than are listed.
    run(200);
    let before = (pss_kib(), descriptors());
    let more = if tier_includes("long") { 800 } else { 200 };
    run(more);
    let after = (pss_kib(), descriptors());
    assert!(
        before.0 > 0 && after.0 <= before.0 + 256,
        "PSS {before:?} KiB, then {after:?}"
    );
    assert!(after.1 <= before.1, "{before:?}, then {after:?}");
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    let report = report(&path);
    assert_eq!(report["commands"]["unlisted"], 200 + more - 128);
    assert_eq!(report["commands"]["latest"][127]["id"], 200 + more);
}

/// The document of `--json`, and the exit code.
fn result(host: &Host, words: &[&str]) -> (Value, i32) {
    let file = host.ground.path("result.json");
    let flag = format!("--json={}", file.display());
    let said = host.say(&[&["sandbox", "exec", &flag], words].concat());
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::remove_file(&file).expect("removed");
    let result: Value = serde_json::from_str(&text).expect("a document");
    let schema: Value = serde_json::from_str(&schema::text(SchemaName::Command)).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    assert!(validator.is_valid(&result), "{result}");
    (result, said.code)
}

/// The exit code alone tells none of these from a command that exits with it.
#[test]
fn the_result_of_exec_tells_a_command_s_end_from_that_of_the_runner() {
    let host = Host::new();
    host.create("one", &["--grace", "0s"]);
    let shell = |text| ["one", "--", "sh", "-c", text];
    let rows: [(&[&str], i32, Value, Value, Value); 7] = [
        (
            &shell("exit 125"),
            125,
            1.into(),
            "exited".into(),
            Value::Null,
        ),
        (
            &shell("kill -9 $$"),
            137,
            2.into(),
            "signaled".into(),
            Value::Null,
        ),
        (
            &["--timeout=1s", "one", "--", "sleep", "100"],
            124,
            3.into(),
            "timed_out".into(),
            Value::Null,
        ),
        (
            &["one", "--", "nosuch"],
            127,
            Value::Null,
            "failed".into(),
            "program_not_found".into(),
        ),
        (
            &["none", "--", "true"],
            125,
            Value::Null,
            "refused".into(),
            "no_sandbox".into(),
        ),
        (
            &["-d", "one", "--", "sleep", "100"],
            0,
            4.into(),
            Value::Null,
            Value::Null,
        ),
        (
            &["one", "--", "sh", "-c", "kill -TERM $(pgrep -x sleep)"],
            0,
            5.into(),
            "exited".into(),
            Value::Null,
        ),
    ];
    for (words, code, id, outcome, error) in rows {
        let (result, exit) = result(&host, words);
        assert_eq!(exit, code, "{result}");
        assert_eq!(
            (&result["id"], &result["outcome"], &result["error"]["code"]),
            (&id, &outcome, &error),
            "{result}"
        );
    }
    let said = host.say(&["sandbox", "exec", "--json=fd:1", "one", "--", "echo", "ran"]);
    assert_eq!((said.code, &*said.stdout), (125, ""), "{said:?}");
    assert!(said.stderr.contains("is standard output"), "{said:?}");
}
