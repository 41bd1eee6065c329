//! `runner why`: what it says about paths is what happens to a body that tries them.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

use support::bodies::c_body;
use support::bundles::pack;
use support::network::PYTHON;
use support::{Ground, is_root, needs_root, runner, text};

const TRY: &str = include_str!("bodies/why/try.sh");
const CALLS: &str = include_str!("bodies/why/calls.c");
const OPERATIONS: [&str; 3] = ["read", "write", "exec"];

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let text = include_str!("../schemas/why.schema.json");
    let schema = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is a schema")
});

fn why(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(runner());
    command
        .arg("why")
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

/// The answer of `runner why --json WORDS…`, whose exit code is that of its verdict.
fn answer(directory: &Path, words: &[&str]) -> Value {
    let output = why(directory, &[&["--json"], words].concat())
        .output()
        .expect("the runner starts");
    let shown = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert!(SCHEMA.is_valid(&report), "{report:#}");
    let answer = report["answer"].clone();
    let code = match answer["verdict"].as_str() {
        Some("allowed") => 0,
        Some("denied") => 1,
        Some("depends") => 2,
        _ => 125,
    };
    assert_eq!(
        output.status.code(),
        Some(code),
        "{words:?}: {report:#} {shown}"
    );
    answer
}

fn field<'answer>(answer: &'answer Value, key: &str) -> &'answer str {
    answer[key].as_str().unwrap_or("none")
}

fn write(ground: &Ground, name: &str, mode: u32) -> String {
    let path = ground.write(name, "#!/bin/sh\nexit 0\n");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
    text(&path).to_owned()
}

/// Compares `why` with the body of a command.
fn compare(ground: &Ground, flags: &[&str], cases: &[(&str, &str, &str)]) {
    let run = [&["run"], flags, &["--", "sh", "-c", TRY, "try"]].concat();
    compare_with(ground, &[flags, &["--", "sh"]].concat(), &run, cases);
}

/// Compares `why WORDS` with a body for each path, its expected operations (letters) and its state. `run`
/// gets what to try as arguments.
fn compare_with(ground: &Ground, words: &[&str], run: &[&str], cases: &[(&str, &str, &str)]) {
    let directory = ground.workspace();
    let mut tried = Vec::new();
    let mut answers = Vec::new();
    for (path, allowed, state) in cases {
        for operation in OPERATIONS {
            tried.extend([operation, path]);
            let question = ["--path", path, "--op", operation];
            let answer = answer(&directory, &[&question, words].concat());
            let verdict = field(&answer, "verdict") == "allowed";
            assert_ne!(field(&answer, "verdict"), "depends", "{answer:#}");
            assert_eq!(verdict, allowed.contains(&operation[..1]), "{answer:#}");
            if operation == "read" {
                assert_eq!(field(&answer, "state"), *state, "{answer:#}");
            }
            answers.push((verdict, answer));
        }
    }
    let enter = ["-C", text(&directory)];
    let words = [run, &tried].concat();
    let done = ground.command(&words).through("env", &enter).done();
    done.assert_exited(0);
    let happened = done.text();
    assert_eq!(happened.lines().count(), answers.len());
    for (happened, (verdict, answer)) in happened.lines().zip(&answers) {
        assert_eq!(happened == "yes", *verdict, "{answer:#}");
    }
}

#[test]
fn a_body_can_do_with_a_path_what_the_answer_says() {
    let ground = Ground::new();
    let key = write(&ground, "home/.ssh/id_rsa", 0o600);
    let [read, tool, private] = [("data", 0o644), ("tool", 0o755), ("private", 0o600)]
        .map(|(name, mode)| write(&ground, &format!("ro/{name}"), mode));
    let written = write(&ground, "rw/data", 0o644);
    let written_tool = write(&ground, "rw/tool", 0o755);
    let locked = write(&ground, "rw/locked", 0o444);
    write(&ground, "work/table.csv", 0o644);
    write(&ground, "elsewhere/file", 0o644);
    let (read_only, writable) = (ground.path("ro"), ground.path("rw"));
    symlink(ground.path("home/.ssh"), ground.path("ro/link")).expect("made");
    symlink("/usr/bin/true", ground.path("ro/true")).expect("made");
    let through_link = ground.path("ro/link/id_rsa");
    let (link, absent, new) = (
        ground.path("ro/true"),
        ground.path("ro/absent"),
        ground.path("rw/new"),
    );
    let elsewhere = format!("{}:/data:ro", text(&ground.path("elsewhere")));
    let of_memory = if Path::new("/dev/mem").exists() {
        "hidden"
    } else {
        "absent"
    };
    let flags = [
        "--ro",
        text(&read_only),
        "--rw",
        text(&writable),
        "--mount",
        &elsewhere,
    ];
    compare(
        &ground,
        &flags,
        &[
            ("/etc/passwd", "r", "read_only"),
            ("/etc/shadow", "", "hidden"),
            ("/usr/bin/true", "re", "read_only"),
            ("/usr/bin/no-such-program", "", "absent"),
            ("/usr", "r", "read_only"),
            ("/", "r", "read_only"),
            ("/no-such-directory/file", "", "absent"),
            (&key, "", "private"),
            (".", "rw", "private"),
            ("table.csv", "w", "private"),
            ("/tmp", "rw", "private"),
            ("/tmp/new", "w", "private"),
            ("/tmp/no-such-directory/file", "", "private"),
            (text(&read_only), "r", "read_only"),
            (&read, "r", "read_only"),
            (&tool, "re", "read_only"),
            (&private, "r", "read_only"),
            (text(&absent), "", "absent"),
            (text(&through_link), "", "private"),
            (text(&link), "re", "read_only"),
            (text(&writable), "rw", "read_write"),
            (&written, "rw", "read_write"),
            (&written_tool, "rwe", "read_write"),
            (&locked, "r", "read_write"),
            (text(&new), "w", "absent"),
            ("/data/file", "r", "read_only"),
            ("/data", "r", "read_only"),
            ("/dev/null", "rw", "device"),
            ("/dev", "r", "read_only"),
            ("/dev/mem", "", of_memory),
            ("/proc/1/mem", "", "proc"),
            ("/proc/1/environ", "", "proc"),
            ("/proc/cpuinfo", "r", "proc"),
            ("/proc/sysrq-trigger", "", "proc"),
        ],
    );
    let flags = ["--ro", text(&read_only), "-w", text(&read_only)];
    compare(
        &ground,
        &flags,
        &[
            (".", "r", "read_only"),
            ("data", "r", "read_only"),
            ("./tool", "re", "read_only"),
            ("../rw/data", "", "private"),
            ("link/id_rsa", "", "private"),
        ],
    );
}

/// A directory and an archive: each time, the body has a copy of its own.
#[test]
fn a_body_can_do_with_a_file_of_its_bundle_what_the_answer_says() {
    let ground = Ground::new();
    let files = [
        ("manifest.yaml", "run: [sh, main.sh]\n"),
        ("main.sh", TRY),
        ("tool", "#!/bin/sh\nexit 0\n"),
        ("data/table.csv", "1,2\n"),
    ];
    let folder = ground.folder(&files);
    symlink("../tool", folder.join("data/link")).expect("made");
    let archive = pack(&folder);
    let read_only = write(&ground, "ro/data", 0o644);
    for bundle in [&folder, &archive] {
        let flags = ["--ro", &read_only, text(bundle)];
        let run = [&["exec"], &flags[..], &["--"]].concat();
        compare_with(
            &ground,
            &flags,
            &run,
            &[
                ("/bundle", "rw", "private"),
                ("/bundle/tool", "rwe", "private"),
                ("/bundle/main.sh", "rwe", "private"),
                ("/bundle/data", "rw", "private"),
                ("/bundle/data/table.csv", "rw", "private"),
                ("/bundle/data/link", "rwe", "private"),
                ("/bundle/data/absent", "w", "private"),
                ("/bundle/absent/file", "", "private"),
                ("/bundle/tool/file", "", "absent"),
                ("/scratch", "rw", "private"),
                ("/tmp/new", "w", "private"),
                (&read_only, "r", "read_only"),
                ("/etc/shadow", "", "hidden"),
            ],
        );
        let found = |path: &str| {
            let answer = answer(&ground.workspace(), &["--path", path, text(bundle)]);
            ["found", "rule", "change"].map(|key| field(&answer, key).to_owned())
        };
        let [tool, ..] = found("/bundle/tool");
        assert_eq!(tool, "the run's own copy of the bundle");
        let [link, ..] = found("/bundle/data/link");
        assert_eq!(link, format!("{tool}; it leads to /bundle/tool"));
        let [_, rule, change] = found("/bundle/absent");
        assert_eq!((&*rule, &*change), ("the bundle has no such file", "none"));
        let [scratch, ..] = found("/scratch");
        assert!(
            scratch.ends_with("with the input files at the start"),
            "{scratch}"
        );
        let [private, ..] = found("/tmp");
        assert!(private.ends_with("empty at the start"), "{private}");
    }
    let command = answer(&ground.workspace(), &["--path", "/bundle", "--", "sh"]);
    assert!(
        field(&command, "found").ends_with("empty at the start"),
        "{command:#}"
    );
}

/// A body with its own uid has the rights of the owner of the mounted directory.
#[test]
fn the_owner_of_a_mount_is_the_body_and_no_other_owner_is() {
    if !is_root() {
        return needs_root("an ordinary user has one uid");
    }
    let ground = Ground::new();
    let writable = ground.path("rw");
    let [open, closed, below] = [
        ("open", 0o666),
        ("closed", 0o600),
        ("closed-directory/f", 0o666),
    ]
    .map(|(name, mode)| write(&ground, &format!("rw/{name}"), mode));
    let directory = ground.path("rw/closed-directory");
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("set");
    for path in [Path::new(&open), Path::new(&closed), &directory] {
        chown(path, Some(12_345), Some(12_345)).expect("root may");
    }
    compare(
        &ground,
        &["--rw", text(&writable)],
        &[
            (&open, "r", "read_write"),
            (&closed, "", "read_write"),
            (text(&directory), "", "read_write"),
            (&below, "", "read_write"),
        ],
    );
}

#[test]
fn the_flag_in_the_answer_changes_the_verdict() {
    let ground = Ground::new();
    let directory = ground.workspace();
    let key = write(&ground, "home/.ssh/id_rsa", 0o600);
    let table = write(&ground, "work/table.csv", 0o644);
    let spaced = write(&ground, "work/two words", 0o644);
    let plain = write(&ground, "work/plain", 0o644);
    let quoted = format!("'{spaced}'");
    for (path, operation, flag, value) in [
        (key.as_str(), "read", "--ro", key.as_str()),
        (&key, "write", "--rw", &key),
        ("table.csv", "read", "--ro", &table),
        (&spaced, "read", "--ro", &quoted),
        ("/etc/hostname", "read", "--ro", "/etc/hostname"),
    ] {
        if !Path::new(path).exists() && path.starts_with('/') {
            continue;
        }
        let question = ["--path", path, "--op", operation];
        let denied = answer(&directory, &question);
        assert_eq!(field(&denied, "verdict"), "denied", "{denied:#}");
        assert_eq!(field(&denied, "change"), format!("{flag} {value}"));
        let changed = [&question[..], &[flag, value.trim_matches('\'')]].concat();
        let allowed = answer(&directory, &changed);
        assert_eq!(field(&allowed, "verdict"), "allowed", "{allowed:#}");
        assert_eq!(field(&allowed, "decided_by"), flag, "{allowed:#}");
    }
    let mounted = format!("{}:/data", text(&directory));
    for (words, change) in [
        (
            &["--path", &table, "--op", "write", "--ro", &table][..],
            format!("--rw {table} instead of --ro {table}"),
        ),
        (
            &["--path", &table, "--mount", &mounted],
            "the body finds it at /data/table.csv".to_owned(),
        ),
        (
            &["--path", &plain, "--op", "exec", "--ro", &plain],
            format!("on the host: chmod +x {plain}"),
        ),
        (
            &["--path", "/usr/bin/true", "--op", "write"],
            "none".to_owned(),
        ),
        (&["--path", "/dev/mem"], "none".to_owned()),
    ] {
        let denied = answer(&directory, words);
        assert_eq!(field(&denied, "verdict"), "denied", "{denied:#}");
        assert_eq!(field(&denied, "change"), change, "{denied:#}");
    }
}

/// Compares verdict, state and source for each question.
fn check_hosts(directory: &Path, cases: &[(&[&str], [&str; 3])]) {
    for (words, expected) in cases {
        let answer = answer(directory, words);
        let found = ["verdict", "state", "decided_by"].map(|key| field(&answer, key));
        assert_eq!(found, *expected, "{words:?}: {answer:#}");
        let is_denied = expected[0] == "denied";
        assert_eq!(answer["change"].is_string(), is_denied, "{answer:#}");
    }
}

#[test]
fn a_host_is_allowed_by_the_list() {
    let ground = Ground::new();
    let directory = ground.workspace();
    let only = ground.write("only.yaml", "egress: {allow: [other.org]}\n");
    let only = text(&only);
    let allowed = ["allowed", "listed", "--allow-net"];
    let unlisted = ["denied", "not_listed", "default"];
    let list = "--allow-net";
    check_hosts(
        &directory,
        &[
            (&["--host", "a.com"], ["denied", "closed", "default"]),
            (&["--host", "a.com", list, "a.com"], allowed),
            (&["--host", "x.a.com:80", list, "*.a.com"], allowed),
            (&["--host", "a.com", list, "*.a.com"], unlisted),
            (&["--host", "a.com:22", list, "a.com:443"], unlisted),
            (&["--host", "8.8.8.8", list, "dns.google"], unlisted),
            (
                &["--host", "a.com", list, "a.com", "--policy", only],
                ["denied", "closed", "host-policy"],
            ),
        ],
    );
    let denied = answer(&directory, &["--host", "a.com"]);
    let change = field(&denied, "change");
    assert!(change.starts_with("--allow-net a.com:443"), "{change}");
}

#[test]
fn an_allowed_host_needs_a_public_address_and_a_captured_port() {
    let ground = Ground::new();
    let directory = ground.workspace();
    let opened = ground.write("opened.yaml", "egress: {private_ranges: [10.1.2.3/32]}\n");
    let opened = text(&opened);
    let private = ["denied", "not_public", "default"];
    let (list, add) = ("--allow-net", "--add-host");
    check_hosts(
        &directory,
        &[
            (&["--host", "10.1.2.3", list, "10.1.2.3"], private),
            (
                &["--host", "10.1.2.3", list, "10.1.2.3", "--policy", opened],
                ["allowed", "listed", "--allow-net"],
            ),
            (
                &["--host", "db.it", list, "db.it", add, "db.it:10.1.2.4"],
                private,
            ),
            (
                &["--host", "localhost:5432"],
                ["denied", "loopback", "fixed"],
            ),
            (
                &[
                    "--host",
                    "a.com:22",
                    list,
                    "a.com",
                    "--egress-capture",
                    "anyip",
                ],
                ["denied", "not_captured", "--egress-capture"],
            ),
        ],
    );
}

#[test]
fn a_system_call_is_explained_by_the_policy_of_the_run() {
    let ground = Ground::new();
    let directory = ground.workspace();
    for (words, verdict, errno, state) in [
        (&["--syscall", "read"][..], "allowed", "none", "callable"),
        (&["--syscall", "setns"], "denied", "EPERM", "refused"),
        (&["--syscall", "unshare"], "depends", "none", "by_arguments"),
        (&["--syscall", "splice"], "allowed", "none", "callable"),
        (
            &["--syscall", "splice", "--syscalls", "strict"],
            "denied",
            "EINVAL",
            "refused",
        ),
        (&["--syscall", "clone"], "depends", "none", "by_arguments"),
        (&["--syscall", "socket"], "depends", "none", "by_arguments"),
    ] {
        let answer = answer(&directory, words);
        let found = [
            field(&answer, "verdict"),
            field(&answer, "errno"),
            field(&answer, "state"),
        ];
        assert_eq!(found, [verdict, errno, state], "{words:?}: {answer:#}");
    }
    let strict = answer(&directory, &["--syscall", "splice", "--syscalls", "strict"]);
    assert_eq!(field(&strict, "decided_by"), "strict policy, --syscalls");
    assert_eq!(field(&strict, "change"), "--syscalls default");
}

/// Where the answer is no, the body gets its errno; where it is yes, the filter has refused no such call.
#[test]
fn a_body_gets_from_a_system_call_what_the_answer_says() {
    let ground = Ground::new();
    let directory = ground.workspace();
    let program = c_body("why-calls", CALLS);
    let program = text(&program);
    for flags in [&[][..], &["--syscalls=strict"]] {
        let done = ground.run(&[flags, &["--ro", program]].concat(), &[program]);
        done.assert_exited(0);
        let denials = done.report["denials"].as_array().expect("a list").iter();
        let refused: Vec<&str> = denials
            .filter_map(|denial| denial["object"].as_str()?.split('(').next())
            .collect();
        let (mut allowed, mut denied) = (Vec::new(), Vec::new());
        for line in done.text().lines() {
            let (name, result) = line.split_once(' ').expect("a name and a result");
            let answer = answer(&directory, &[flags, &["--syscall", name]].concat());
            match field(&answer, "verdict") {
                "allowed" => {
                    assert!(!refused.contains(&name), "{line}: {answer:#}");
                    allowed.push(name.to_owned());
                }
                "denied" => {
                    assert_eq!(field(&answer, "errno"), result, "{line}: {answer:#}");
                    denied.push(name.to_owned());
                }
                // These arguments decide nothing about others.
                _ => (),
            }
        }
        assert!(allowed.len() >= 15, "{allowed:?}");
        assert!(denied.len() >= 25, "{denied:?}");
        let is_strict = !flags.is_empty();
        assert_eq!(denied.iter().any(|name| name == "splice"), is_strict);
    }
    // It depends: once it is refused, once not.
    let words = ["--syscall", "socket"];
    assert_eq!(field(&answer(&directory, &words), "verdict"), "depends");
    for (family, code) in [("AF_INET", 0), ("AF_VSOCK", 1)] {
        let script = format!("import socket; socket.socket(socket.{family})");
        let done = ground.run(&[], &[PYTHON, "-c", &script]);
        done.assert_exited(code);
    }
}

/// Runs, and compares what `runner why last` prints about it: all lines but those of what is not observed, which
/// differ between hosts; RUN is the id, and T a time.
fn explain(ground: &Ground, words: &[&str], expected: &str) {
    let state = ground.path("state");
    let state = text(&state);
    let done = ground
        .command(words)
        .env("RUNNER_OPT_STATE_DIRECTORY", state)
        .done();
    let last = why(&ground.workspace(), &["last"])
        .env("RUNNER_OPT_STATE_DIRECTORY", state)
        .output()
        .expect("the runner starts");
    assert_eq!(last.status.code(), Some(0));
    let shown = String::from_utf8(last.stdout).expect("text");
    let run_id = done.report["run_id"].as_str().expect("an id");
    let (unseen, told): (Vec<&str>, Vec<&str>) =
        shown.lines().partition(|line| line.starts_with("unseen"));
    let timed = |line: &&str| match line.split_once(" after ") {
        Some((before, rest)) => {
            let rest: Vec<&str> = rest.splitn(2, "s").collect();
            format!("{before} after T{}", rest[1])
        }
        None => line.replace(run_id, "RUN"),
    };
    let told: Vec<String> = told.iter().map(timed).collect();
    assert_eq!(told.join("\n"), expected, "{:#}", done.report);
    let kinds = done.report["observation"].as_object().expect("kinds");
    let kinds = kinds
        .iter()
        .filter(|(_, kind)| kind["state"] != "observed" && done.report["exit"].is_object());
    let reason = |kind: &Value| kind["reason"].as_str().expect("a reason").to_owned();
    let expected: Vec<String> = kinds
        .map(|(name, kind)| format!("unseen    {name}: {}", reason(kind)))
        .collect();
    assert_eq!(unseen, expected);
}

#[test]
fn the_last_run_is_explained_by_its_end_its_limits_and_its_denials() {
    let ground = Ground::new();
    explain(
        &ground,
        &["run", "--", "unshare", "-m", "true"],
        "run       RUN unshare -m true\n\
         ended     The body exited with code 1 after T; 1 operation was denied.\n\
         denied    syscall unshare(0x20000), EPERM, 1 × (unshare)\n\
         change    no flag allows it: a new user namespace opens privileged kernel code; the namespaces are \
         what confines the body",
    );
    explain(
        &ground,
        &["run", "--timeout=300ms", "--", "sleep", "60"],
        "run       RUN sleep 60\n\
         ended     The wall time limit of 300 ms (set by a flag) ended the body after T.\n\
         change    --timeout sets it",
    );
    // Without a cgroup, the allocation fails, and the program says so itself.
    let limits = &ground.run(&[], &["true"]).report["limits"];
    if limits["memory_bytes"]["enforced_by"]
        .as_str()
        .is_some_and(|by| by.starts_with("cgroup"))
    {
        explain(
            &ground,
            &["run", "--memory=40m", "--", "tail", "/dev/zero"],
            "run       RUN tail /dev/zero\n\
             ended     The memory limit of 40 MiB (set by a flag) ended the body after T.\n\
             change    --memory sets it",
        );
    }
    explain(
        &ground,
        &[
            "run",
            "--disk=1m",
            "--",
            "dd",
            "if=/dev/zero",
            "of=/tmp/x",
            "status=none",
        ],
        "run       RUN dd if=/dev/zero of=/tmp/x status=none\n\
         ended     The body exited with code 1 after T.\n\
         limit     the disk limit of 1 MiB was reached: the writable directories were full when the body \
         ended; --disk sets it",
    );
    explain(
        &ground,
        &["run", "--ro", "/no/such/path", "--", "true"],
        "run       RUN\n\
         ended     refused: mount source /no/such/path cannot be opened: No such file or directory (os error \
         2) (mount_source_missing)\n\
         change    name a path that exists on the host and that you may access",
    );
    explain(
        &ground,
        &["run", "--", "true"],
        "run       RUN true\n\
         ended     The body exited with code 0 after T.",
    );
}

#[test]
fn an_answer_is_five_lines_at_most_and_names_a_run_that_would_not_start() {
    let ground = Ground::new();
    let directory = ground.workspace();
    let told = |words: &[&str]| {
        let output = why(&directory, words).output().expect("the runner starts");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, shown, messages) = told(&["--path", "/usr/bin/true", "--op", "write"]);
    let expected = "asked     write /usr/bin/true\n\
                    answer    denied, EROFS\n\
                    found     visible, read-only\n\
                    rule      the mount is read-only (fixed)\n\
                    change    no flag changes it\n";
    assert_eq!(
        (code, shown.as_str(), messages.as_str()),
        (Some(1), expected, "")
    );
    let (code, shown, messages) = told(&["--path", "/usr", "--", "no-such-program"]);
    assert_eq!((code, shown.lines().count()), (Some(0), 4), "{shown}");
    assert!(messages.contains("would not start"), "{messages}");
    let missing = told(&["--path", "/usr", "no-such-bundle.tar.gz"]);
    assert_eq!((missing.0, missing.1.as_str()), (Some(125), ""));
    let (code, _, messages) = told(&["--syscall", "ptrase"]);
    assert_eq!(code, Some(125));
    assert!(messages.contains("did you mean `ptrace`?"), "{messages}");
}

#[test]
fn a_run_of_the_history_is_explained_as_json_too() {
    let ground = Ground::new();
    let state = ground.path("state");
    let say = |words: &[&str]| {
        let mut command = Command::new(runner());
        command
            .args(words)
            .env("RUNNER_OPT_STATE_DIRECTORY", &state);
        command
            .stdin(Stdio::null())
            .output()
            .expect("the runner starts")
    };
    let body = ["run", "--report-denials", "--", "unshare", "-U", "true"];
    assert!(!say(&body).status.success());
    let text = String::from_utf8(say(&["why", "last"]).stdout).expect("text");
    let printed = say(&["why", "last", "--json"]);
    assert_eq!(
        (printed.status.code(), &*printed.stderr),
        (Some(0), &b""[..])
    );
    let report: Value = serde_json::from_slice(&printed.stdout).expect("a document");
    assert!(SCHEMA.is_valid(&report), "{report:#}");
    let run = &report["run"];
    let line = |label: &str, value: &Value| {
        let value = value.as_str().expect("text");
        let line = format!("{label:<10}{value}");
        assert!(
            text.lines().any(|shown| shown.starts_with(&line)),
            "{line}: {text}"
        );
    };
    line("run", &run["run_id"]);
    line("ended", &run["ended"]);
    line("denied", &run["denied"][0]["what"]);
    line("change", &run["denied"][0]["change"]);
    line("unseen", &run["unseen"][0]["kind"]);
    assert_eq!(run["argv"], serde_json::json!(["unshare", "-U", "true"]));

    // A file, beside the text; a run that is not there.
    let file = ground.path("why.json");
    let flag = format!("--json={}", file.display());
    assert_eq!(say(&["why", "last", &flag]).stdout, text.as_bytes());
    let written: Value =
        serde_json::from_slice(&fs::read(&file).expect("read")).expect("a document");
    assert_eq!(written, report);
    let missing = say(&["why", "zz", "--json"]);
    let report: Value = serde_json::from_slice(&missing.stdout).expect("a document");
    assert!(SCHEMA.is_valid(&report), "{report:#}");
    assert_eq!(
        (missing.status.code(), &report["run"]),
        (Some(125), &Value::Null)
    );
    assert!(report["error"]["code"].is_string(), "{report}");
}
