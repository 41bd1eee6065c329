//! `runner doctor`, `runner demo`, `runner gc`: the verbs that start no run of the user.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;

use support::invariants::{eventually, groups_of, living, record_directories};
use support::{Ground, Running, runner, skip};

/// Runs the program to its end, with a secret in its environment.
fn told(ground: &Ground, words: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(runner())
        .args(words)
        .env("RUNNER_TEST_CANARY_SECRET", ground.canary())
        .current_dir(ground.workspace())
        .output()
        .expect("the runner starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let code = status.code().expect("an exit code");
    (code, text(stdout), text(stderr))
}

fn schema_of_the_diagnosis(ground: &Ground) -> jsonschema::Validator {
    let (code, text, _) = told(ground, &["schema", "doctor"]);
    assert_eq!(code, 0);
    let schema = serde_json::from_str(&text).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is a schema")
}

#[test]
fn the_diagnosis_is_valid_and_its_verdict_is_the_one_of_its_items() {
    let ground = Ground::new();
    let (code, text, stderr) = told(&ground, &["doctor", "--json"]);
    let diagnosis: Value = serde_json::from_str(&text).expect("JSON");
    let schema = schema_of_the_diagnosis(&ground);
    let errors: Vec<String> = schema
        .iter_errors(&diagnosis)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
    let items = diagnosis["items"].as_array().expect("items");
    let unmet = |need: &str| {
        items
            .iter()
            .any(|item| item["needed_for"] == need && item["state"] != "enforced")
    };
    let expected = match (unmet("running"), unmet("strength")) {
        (true, _) => ("cannot_run", 2),
        (false, true) => ("degraded", 1),
        (false, false) => ("full", 0),
    };
    let verdict = diagnosis["verdict"].as_str().expect("a verdict");
    assert_eq!((verdict, code), expected, "{text}{stderr}");
    for item in items {
        let mended = item["state"] == "enforced" || item["mend"].is_string();
        assert!(mended, "no command: {item}");
        assert!(!item["effect"].as_str().expect("an effect").is_empty());
    }
    // Every other end-to-end test runs bodies here.
    assert!(code < 2, "{text}");
}

#[test]
fn doctor_and_a_run_agree_on_limits() {
    let ground = Ground::new();
    let (_, text, _) = told(&ground, &["doctor", "--json"]);
    let diagnosis: Value = serde_json::from_str(&text).expect("JSON");
    let done = ground.run(
        &["--limits=best-effort", "--cpus=1", "--cpu-time=9s"],
        &["true"],
    );
    done.assert_exited(0);
    for axis in ["memory", "processes", "cpu_share", "cpu_time"] {
        let item = find(&diagnosis["items"], "id", &format!("limit_{axis}"));
        let of_run = &done.report["enforcement"][axis];
        assert_eq!(item["state"], of_run["state"], "{axis}");
    }
    let landlock = find(&diagnosis["items"], "id", "landlock");
    let of_run = &done.report["enforcement"]["landlock"];
    assert_eq!(landlock["state"], of_run["state"]);
}

fn find<'value>(list: &'value Value, key: &str, wanted: &str) -> &'value Value {
    let list = list.as_array().expect("a list");
    list.iter()
        .find(|item| item[key] == wanted)
        .unwrap_or_else(|| panic!("no {wanted} in {list:#?}"))
}

#[test]
fn the_table_of_the_diagnosis_has_a_line_for_each_item_and_no_colour_in_a_pipe() {
    let ground = Ground::new();
    let (code, text, stderr) = told(&ground, &["doctor"]);
    let (code_of_json, json, _) = told(&ground, &["doctor", "--json"]);
    assert_eq!((code, stderr.as_str()), (code_of_json, ""));
    let diagnosis: Value = serde_json::from_str(&json).expect("JSON");
    for item in diagnosis["items"].as_array().expect("items") {
        let id = item["id"].as_str().expect("an id");
        assert!(
            text.lines().any(|line| line.starts_with(id)),
            "{id}\n{text}"
        );
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let (_, coloured, _) = told(&ground, &["doctor", "--color=always"]);
    assert!(coloured.contains('\u{1b}'), "{coloured}");
}

#[test]
fn a_host_where_no_record_can_be_written_cannot_run_and_the_diagnosis_says_so() {
    let ground = Ground::new();
    let file = ground.write("file", "no directory");
    let output = Command::new(runner())
        .args(["doctor", "--json"])
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", file.join("beneath"))
        .output()
        .expect("the runner starts");
    assert_eq!(output.status.code(), Some(2));
    let diagnosis: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for id in ["runtime_directory", "sandbox"] {
        let item = find(&diagnosis["items"], "id", id);
        assert_eq!(item["state"], "absent", "{item}");
        assert!(item["mend"].is_string(), "{item}");
    }
}

#[test]
fn where_user_namespaces_are_forbidden_no_body_can_be_run_and_the_command_is_named() {
    let ground = Ground::new();
    // A separate user namespace, in which no further one may be created.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\" doctor --json";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script])
        .arg(runner())
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("records"))
        .output()
        .expect("unshare runs");
    let Ok(diagnosis) = serde_json::from_slice::<Value>(&output.stdout) else {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return skip(&format!("no user namespace for a test: {why}"));
    };
    assert_eq!(output.status.code(), Some(2), "{diagnosis:#}");
    assert_eq!(diagnosis["verdict"], "cannot_run");
    for id in ["sandbox", "user_namespace", "network_namespace"] {
        let item = find(&diagnosis["items"], "id", id);
        assert_eq!(item["state"], "absent", "{item}");
        let mend = item["mend"].as_str().expect("a command");
        assert!(mend.contains("max_user_namespaces"), "{item}");
    }
    // Features that do not depend on them are still reported.
    let seccomp = find(&diagnosis["items"], "id", "seccomp");
    assert_eq!(seccomp["state"], "enforced", "{seccomp}");
}

/// E-12
#[test]
fn where_apparmor_restricts_user_namespaces_a_run_and_the_diagnosis_name_the_profile() {
    let ground = Ground::new();
    // Settings are mounted over the host's. A partly covered proc cannot be mounted in a further
    // user namespace: it is refused there, as AppArmor refuses it.
    let script = "mount -t tmpfs none /proc/sys/kernel &&
        echo 1 >/proc/sys/kernel/apparmor_restrict_unprivileged_userns && exec \"$0\" \"$@\"";
    let told = |words: &[&str]| {
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(runner())
            .args(words)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("records"))
            .output()
            .expect("unshare runs");
        let document = serde_json::from_slice::<Value>(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        document.unwrap_or_else(|_| panic!("no user namespace for a test: {why}"))
    };
    let report = told(&["run", "--json", "--", "/bin/true"]);
    assert_eq!(report["outcome"], "failed", "{report:#}");
    let diagnosis = told(&["doctor", "--json"]);
    let item = find(&diagnosis["items"], "id", "user_namespace");
    assert_eq!(item["state"], "absent", "{item}");
    for command in [&report["error"]["hint"], &item["mend"]] {
        let command = command.as_str().expect("a command");
        assert!(
            command.ends_with("apparmor_parser -r /etc/apparmor.d/runner # from the sources"),
            "{command}"
        );
    }
}

#[test]
fn the_example_of_the_readme_works_as_it_is_written() {
    let ground = Ground::new();
    let readme = include_str!("../README.md");
    let (_, from) = readme.split_once("```sh\n").expect("the example");
    let (script, from) = from.split_once("```").expect("its end");
    let (_, from) = from.split_once("```text\n").expect("what it prints");
    let (printed, _) = from.split_once("```").expect("its end");
    let programs = ground.path("programs");
    std::fs::create_dir(&programs).expect("made");
    std::os::unix::fs::symlink(runner(), programs.join("runner")).expect("linked");
    let path = std::env::var("PATH").expect("a path");
    let example = ground.path("example");
    std::fs::create_dir(&example).expect("made");
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .env("PATH", format!("{}:{path}", programs.display()))
        .current_dir(&example)
        .output()
        .expect("sh runs");
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    // Any run on this machine may find what another test's killed run left.
    lines.retain(|line| !line.contains("(leftover_removed)"));
    // Two streams into one: their order is undefined.
    lines.sort();
    let mut expected: Vec<&str> = printed.lines().collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert_eq!(output.status.code(), Some(1));
    let loud = std::fs::read_to_string(example.join("work/loud.txt")).expect("synced");
    assert_eq!(loud, "A FEW NOTES\n");
    assert!(example.join("report.json").exists());
}

#[test]
fn a_signal_ends_the_demo_and_it_is_cleaned_up() {
    let ground = Ground::new();
    let temporary = ground.path("temporary");
    std::fs::create_dir(&temporary).expect("made");
    let mut demo = Command::new(runner())
        .arg("demo")
        .env("TMPDIR", &temporary)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the runner starts");
    eventually("the demonstration writes its bundle", || {
        std::fs::read_dir(&temporary).is_ok_and(|mut entries| {
            entries.any(|entry| entry.is_ok_and(|entry| entry.path().join("attempts.sh").exists()))
        })
    });
    // From here on it handles signals, or will in a moment.
    let pid = i32::try_from(demo.id()).expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", demo.id()));
        let blocked = status.unwrap_or_default();
        let blocked = blocked
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:"));
        // SIGINT is signal 2, so bit 1.
        blocked
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & 2 != 0)
    };
    eventually("the demonstration listens for signals", listens);
    rustix::process::kill_process(pid, Signal::INT).expect("sent");
    let code = demo.wait().expect("waited").code();
    assert_eq!(code, Some(130));
    let left = std::fs::read_dir(&temporary).expect("readable").count();
    assert_eq!(left, 0, "the bundle of the demonstration stays");
}

#[test]
fn the_demo_shows_what_it_promises_and_is_cleaned_up() {
    let ground = Ground::new();
    let temporary = ground.path("temporary");
    std::fs::create_dir(&temporary).expect("made");
    let output = Command::new(runner())
        .arg("demo")
        .env("RUNNER_TEST_CANARY_SECRET", ground.canary())
        .env("TMPDIR", &temporary)
        .env("HOME", ground.path("canary"))
        .output()
        .expect("the runner starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{text}{stderr}");
    assert_eq!(stderr, "");
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| {
            ["  ok ", "  held ", "  FAIL ", "  - "]
                .iter()
                .any(|mark| line.starts_with(mark))
        })
        .collect();
    assert_eq!(rows.len(), 33, "{text}");
    assert!(!text.contains("FAIL"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let document = include_str!("../docs/security.md");
    for row in &rows {
        let tried: String = row.chars().skip(8).take(27).collect();
        assert!(
            document.contains(&tried),
            "not in docs/security.md: {tried}"
        );
    }
    if text.contains("not tried") {
        skip("attempts of the demonstration that need perl");
    }
    assert!(!text.contains(ground.canary()), "{text}");
    let left = std::fs::read_dir(&temporary).expect("readable").count();
    assert_eq!(left, 0, "the bundle of the demonstration stays");
}

#[test]
fn a_demo_that_cannot_run_fails_with_a_reason() {
    let ground = Ground::new();
    let file = ground.write("file", "no directory");
    let output = Command::new(runner())
        .arg("demo")
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", file.join("beneath"))
        .output()
        .expect("the runner starts");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("runtime_directory_unusable"), "{stderr}");
    assert!(stderr.contains("runner doctor"), "{stderr}");
}

#[test]
fn leftovers_of_a_killed_supervisor_are_removed_and_named() {
    let (ground, other) = (Ground::new(), Ground::new());
    // A separate directory of records: the starts of other runs would clean up before.
    let records = ground.path("records");
    let records = records.to_str().expect("a plain path");
    let gc = |flags: &[&str]| {
        let output = Command::new(runner())
            .arg("gc")
            .args(flags)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", records)
            .output()
            .expect("the runner starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text, stderr)
    };
    // Sequentially: the start of a run cleans up too.
    let (dead, id_of_dead) = start_and_wait(&ground, records);
    let (alive, id_of_alive) = start_and_wait(&other, records);
    let record = |id: &str| Path::new(records).join("runs").join(id);
    dead.signal(Signal::KILL);
    let done = dead.done();
    assert_eq!(done.code, 128 + 9);
    assert!(record(&id_of_dead).exists(), "nothing to clean up");

    let (code, text, stderr) = gc(&[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{text}");
    assert!(!record(&id_of_dead).exists(), "{text}");
    assert!(record(&id_of_alive).exists(), "{text}");
    eventually("a cgroup of the dead run stays", || {
        groups_of(&id_of_dead).is_empty()
    });
    if support::has_cgroup() {
        assert!(text.contains(&id_of_dead), "{text}");
        assert!(!groups_of(&id_of_alive).is_empty());
    }
    assert!(!text.contains(&id_of_alive), "{text}");
    assert!(
        !living(other.marker()).is_empty(),
        "the living run was ended"
    );

    alive.signal(Signal::TERM);
    let done = alive.done();
    assert_eq!(done.outcome(), "cancelled", "{done:#?}");
    assert_eq!(
        gc(&[]),
        (Some(0), "nothing to remove\n".to_owned(), String::new())
    );
    assert_eq!(gc(&["-q"]), (Some(0), String::new(), String::new()));
}

/// A body that waits, and the id of its run.
fn start_and_wait<'ground>(ground: &'ground Ground, records: &str) -> (Running<'ground>, String) {
    let ready = ground.path("ready");
    std::fs::create_dir(&ready).expect("made");
    open_to_all(&ready);
    let mount = format!("{}:/ready", ready.display());
    let body = "echo $RUNNER_RUN_ID >/ready/id; exec sleep 300";
    let case = ground
        .command(&["run", "--mount", &mount, "--", "sh", "-c", body])
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", records);
    let mut running = case.without("I4").without("I8").start();
    let said = ready.join("id");
    let written = || std::fs::read_to_string(&said).is_ok_and(|id| id.ends_with('\n'));
    running.until("the body is there", written);
    let id = std::fs::read_to_string(&said).expect("readable");
    (running, id.trim().to_owned())
}

/// For root the body has its own uid, but the mount shows it as the owner; the mode is for hosts
/// that cannot map owners.
fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory, open).expect("set");
}

#[test]
fn records_lie_where_the_diagnosis_says() {
    let ground = Ground::new();
    let (_, text, _) = told(&ground, &["doctor", "--json"]);
    let diagnosis: Value = serde_json::from_str(&text).expect("JSON");
    let item = find(&diagnosis["items"], "id", "runtime_directory");
    let effect = item["effect"].as_str().expect("an effect");
    let known = record_directories();
    let named = known
        .iter()
        .any(|directory| effect.ends_with(&directory.display().to_string()));
    assert!(named, "{effect} names none of {known:?}");
}
