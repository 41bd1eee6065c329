//! The command line: usage errors, help, documents, and where output goes.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot start the program has nothing to say"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program without our environment, except for what a process needs, and without configuration.
fn runner(words: &[&str]) -> Command {
    let mut command = Command::new(support::runner());
    command
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("RUNNER_OPT_NO_RECORD", "yes")
        .stdin(Stdio::null());
    // Run records are in the same directory as those of all tests.
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
        command.env("XDG_RUNTIME_DIR", runtime);
    }
    command
}

fn output(words: &[&str]) -> Output {
    runner(words).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Started by a shell, which alone can close standard descriptors.
fn by_shell(script: &str, directory: &Path) -> Output {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .arg(support::runner())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("RUNNER_OPT_NO_RECORD", "yes")
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", directory.join("runtime"))
        .current_dir(directory);
    command.output().expect("the shell starts")
}

fn assert_valid_report(text: &str) -> serde_json::Value {
    let report: serde_json::Value = serde_json::from_str(text)
        .unwrap_or_else(|error| panic!("not one JSON text: {error}: {text:?}"));
    let schema = serde_json::from_str(&stdout(&output(&["schema", "report"]))).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let errors: Vec<String> = validator
        .iter_errors(&report)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    report
}

#[test]
fn a_wrong_word_is_a_usage_error_with_a_suggestion() {
    for (words, says) in [
        (&["run", "--memroy", "5m", "true"][..], "--memory"),
        (&["run", "--grant", "egres", "true"], "egress"),
        (&["exce", "bundle.tar.gz"], "exec"),
        (&["exec", "--limits=requier", "x"], "require"),
        (&["schema", "reprot"], "report"),
        (&["run", "--memory", "lots", "true"], "a size such as 512k"),
        (&["run"], "CMD"),
        (&["exec"], "BUNDLE"),
        (&[], "Usage"),
        (&["publish", "."], "unrecognized subcommand"),
    ] {
        let output = output(words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {text}");
        assert!(text.contains(says), "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let is_prefixed = text.lines().all(|line| line.starts_with("runner: "));
        assert!(is_prefixed || words.is_empty(), "{words:?}: {text}");
    }
}

#[test]
fn a_wrong_word_beside_json_is_reported_too() {
    for words in [
        &["run", "--json", "--memroy", "5m", "--", "true"][..],
        &["exec", "--json"],
        &["exec", "--limits=requier", "x", "--json=fd:1"],
        &["run", "--json", "-v", "/a:/data", "true"],
        &["run", "--json", "r.json", "--", "true"],
    ] {
        let output = output(words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {text}");
        assert!(text.contains("(usage)"), "{words:?}: {text}");
        let report = assert_valid_report(&stdout(&output));
        assert_eq!(report["outcome"], "refused", "{words:?}");
        assert_eq!(report["error"]["code"], "usage", "{words:?}");
    }
    let output = output(&["plan", "--json", "--memroy", "5m", "--", "true"]);
    let plan: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("a plan");
    assert_eq!(plan["verdict"], "would_be_refused");
    assert_eq!(plan["error"]["code"], "usage");
}

#[test]
fn a_report_file_taken_for_the_command_gets_a_hint() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("r.json");
    let file = file.to_str().expect("a plain path");
    for words in [
        &["run", "--json", file, "--", "true"][..],
        &["run", "--json", file, "true"],
        &["exec", "--json", file, "bundle.tar.gz"],
    ] {
        let output = output(words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {text}");
        let hint = format!("--json={file}");
        assert!(text.contains(&hint), "{words:?}: {text}");
        // The hint works: the report is at the path that it names.
        let followed = output_of_hint(&hint);
        let report = assert_valid_report(&std::fs::read_to_string(file).expect("a report"));
        assert_eq!(report["argv"], serde_json::json!(["true"]), "{followed:?}");
    }
}

fn output_of_hint(flag: &str) -> Output {
    output(&["run", flag, "--", "true"])
}

#[test]
fn a_docker_volume_flag_gets_a_hint_with_mount() {
    for words in [
        &["run", "-v", "./data:/data", "--", "true"][..],
        &["run", "-m", "64m", "-v", "/a:/data:ro", "true"],
        &["run", "-v/a:/data", "true"],
        &["run", "-v=/a:/data", "true"],
        &["exec", "-v", "/a:/data", "bundle.tar.gz"],
        &["exec", "-v", "/a:/data"],
    ] {
        let output = output(words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {text}");
        assert!(text.contains("(usage)"), "{words:?}: {text}");
        let volume = words.iter().find_map(|word| {
            let value = word.trim_start_matches("-v").trim_start_matches('=');
            value.contains(":/").then_some(value)
        });
        let hint = format!("--mount {}", volume.expect("a volume"));
        assert!(text.contains(&hint), "{words:?}: {text}");
    }
}

/// The verbs in a help text.
fn verbs(help: &str) -> Vec<&str> {
    let (_, list) = help.split_once("Commands:\n").unwrap_or_default();
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[test]
fn each_verb_s_help_has_examples_and_is_what_help_prints() {
    let top = stdout(&output(&["help"]));
    assert_eq!(top, stdout(&output(&["--help"])));
    let mut asked: Vec<Vec<&str>> = verbs(&top).into_iter().map(|verb| vec![verb]).collect();
    assert!(10 <= asked.len(), "{top}");
    while let Some(verb) = asked.pop() {
        let help = stdout(&output(&[&["help"][..], &verb].concat()));
        assert_eq!(help, stdout(&output(&[&verb[..], &["--help"]].concat())));
        let inner = verbs(&help);
        if !inner.is_empty() {
            let below = |inner: &'static str| [&verb[..], &[inner]].concat();
            asked.extend(
                inner
                    .into_iter()
                    .map(|inner| below(String::from(inner).leak())),
            );
            continue;
        }
        assert!(
            help.contains(
                "Examples:
  runner "
            ),
            "{verb:?}: {help}"
        );
    }
}

#[test]
fn the_version_has_a_verb_and_what_is_hidden_is_not_suggested() {
    assert_eq!(
        stdout(&output(&["version"])),
        stdout(&output(&["--version"]))
    );
    for words in [&["residnet"][..], &["help", "residnet"]] {
        let told = stderr(&output(words));
        assert!(
            told.contains("(usage)") && !told.contains("'resident'"),
            "{told}"
        );
    }
    let told = stderr(&output(&["help", "bundel"]));
    assert!(told.contains("'bundle'"), "{told}");
}

#[test]
fn a_quiet_doctor_prints_nothing_on_a_working_host() {
    let (loud, quiet) = (output(&["doctor"]), output(&["doctor", "-q"]));
    assert_eq!(loud.status.code(), quiet.status.code());
    assert!(!stdout(&loud).is_empty());
    if quiet.status.code() != Some(2) {
        assert_eq!(stdout(&quiet), "");
    }
}

#[test]
fn the_help_is_enough_for_a_first_bundle() {
    let help = stdout(&output(&["bundle", "--help"]));
    let (_, example) = help.split_once("main.sh:\n\n").expect("an example");
    let (example, _) = example.split_once("\nWithout").expect("its end");
    let ground = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(ground.path().join("src")).expect("made");
    std::fs::write(ground.path().join("src/main.sh"), "echo hello\n").expect("written");
    let manifest: Vec<&str> = example
        .lines()
        .map(|line| line.strip_prefix("  ").unwrap_or(line))
        .collect();
    std::fs::write(ground.path().join("manifest.yaml"), manifest.join("\n")).expect("written");
    for verb in ["check .", "bundle . -o hello.tar.gz", "plan hello.tar.gz"] {
        let done = by_shell(&format!("\"$1\" {verb}"), ground.path());
        let text = format!("{}{}", stdout(&done), stderr(&done));
        assert_eq!(done.status.code(), Some(0), "{verb}: {text}");
    }
}

#[test]
fn a_wrong_variable_is_refused_like_a_wrong_flag() {
    let output = runner(&["run", "true"])
        .env("RUNNER_OPT_MEMORY", "1.5g")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert!(text.contains("--memory"), "{text}");
    assert!(
        text.contains("the variable RUNNER_OPT_MEMORY is set here"),
        "{text}"
    );
}

#[test]
fn a_variable_has_the_effect_of_its_flag() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report.json");
    let mut command = runner(&["run", "-e", "=x", "--", "true"]);
    command
        .env("RUNNER_OPT_JSON", &file)
        .env("RUNNER_OPT_COLOR", "always")
        .env("RUNNER_OPT_STRICT", "1")
        .env("RUNNER_OPT_VERBOSE", "no");
    let output = command.output().expect("the program starts");
    assert!(
        stderr(&output).contains("(env_invalid)"),
        "{}",
        stderr(&output)
    );
    assert!(output.stderr.contains(&0x1b));
    let text = std::fs::read_to_string(&file).expect("a report");
    assert_eq!(assert_valid_report(&text)["outcome"], "refused");
    let wrong = command.env("RUNNER_OPT_STRICT", "maybe").output();
    let wrong = wrong.expect("the program starts");
    assert_eq!(wrong.status.code(), Some(125));
    assert!(stderr(&wrong).contains("--strict"), "{}", stderr(&wrong));
}

#[test]
fn help_and_version_are_documents_and_no_errors() {
    for (words, says) in [
        (&["--help"][..], "doctor"),
        (&["exec", "--help"], "RUNNER_OPT_"),
        (&["run", "--help"], "Exit codes"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = output(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(stdout(&output).contains(says), "{words:?}");
        assert!(output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn the_schema_of_the_report_is_json() {
    let output = output(&["schema", "report"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(schema["title"], "Report");
}

/// F-10: arguments that cannot be passed are refused before anything is started.
#[test]
fn a_refusal_is_one_prefixed_line_with_a_code_and_a_valid_report() {
    let words = ["run", "--json", "-e", "=x", "--", "true"];
    let output = output(&words);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).starts_with("runner: refused: --env:"),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("(env_invalid)"));
    let report = assert_valid_report(&stdout(&output));
    assert_eq!(report["outcome"], "refused");
    assert_eq!(report["error"]["code"], "env_invalid");
    assert_eq!(report["run_id"].as_str().map(str::len), Some(26));
}

#[test]
fn a_report_that_cannot_be_written_is_refused() {
    for target in ["--json=/nonexistent/r.json", "--json=fd:77", "--json=fd:x"] {
        let output = output(&["run", target, "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{target}");
        assert!(
            stderr(&output).contains("(report_unwritable)"),
            "{target}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn an_error_in_the_configuration_names_file_line_column_and_the_nearest_word() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "maxima:\n  memroy: 1g\n").expect("written");
    let policy = policy.to_str().expect("UTF-8");
    for verb in [
        &["run", "--policy", policy, "true"][..],
        &["doctor", "--policy", policy],
        &["gc", "--policy", policy],
        &["demo", "--policy", policy],
    ] {
        let output = output(verb);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{verb:?}: {text}");
        assert!(text.contains("policy.yaml:2:3: "), "{verb:?}: {text}");
        assert!(text.contains("did you mean `memory`?"), "{verb:?}: {text}");
    }
}

/// E-09.
#[test]
fn with_standard_descriptors_closed_a_report_file_holds_the_report_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report.json");
    for closed in ["<&- >&- 2>&-", ">&- 2>&-", "2>&-", ">&-"] {
        let script = format!("\"$1\" run -v --json=report.json -e =x -- true {closed}");
        let output = by_shell(&script, directory.path());
        assert_eq!(output.status.code(), Some(125), "{closed}");
        let text = std::fs::read_to_string(&file).expect("a report");
        let report = assert_valid_report(&text);
        assert_eq!(report["error"]["code"], "env_invalid", "{closed}");
    }
}

/// E-08, E-09.
#[test]
fn a_closed_standard_output_is_not_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let closed = by_shell("\"$1\" schema report >&-", directory.path());
    assert_eq!(closed.status.code(), Some(0), "{}", stderr(&closed));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = runner(&["exec", "--help"]);
    let output = command
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
        .wait_with_output()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).is_empty(), "{}", stderr(&output));
}

#[test]
fn a_full_disk_under_standard_output_is_an_error() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("opened");
    let output = runner(&["schema", "report"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
        .wait_with_output()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).starts_with("runner: failed:"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_error_of_a_standard_stream_names_the_stream() {
    let directory = tempfile::tempdir().expect("a directory");
    for (script, stream) in [
        ("\"$1\" run -- echo x >/dev/full", "standard output"),
        ("\"$1\" run -i -- cat </", "standard input"),
    ] {
        let output = by_shell(script, directory.path());
        assert_eq!(output.status.code(), Some(125));
        let start = format!("runner: failed: cannot pass on the {stream}: ");
        assert!(stderr(&output).starts_with(&start), "{}", stderr(&output));
    }
}

#[test]
fn a_descriptor_that_the_caller_opened_gets_the_report() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = "\"$1\" run --json=fd:5 -e =x -- true 5>report.json";
    let output = by_shell(script, directory.path());
    assert_eq!(output.status.code(), Some(125));
    let text = std::fs::read_to_string(directory.path().join("report.json")).expect("a report");
    assert_eq!(assert_valid_report(&text)["outcome"], "refused");
    assert!(output.stdout.is_empty());
}

/// F-06.
#[test]
fn a_secret_is_in_no_message_and_in_no_report() {
    let canary = "canary-51d0";
    let words = [
        "run",
        "--json",
        "-v",
        "--secret",
        "KEY=env:TOKEN",
        "-e",
        "TOKEN",
        "-e",
        "=x",
        "--",
        "true",
    ];
    let output = runner(&words)
        .env("TOKEN", canary)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(125));
    assert!(!stdout(&output).contains(canary));
    assert!(!stderr(&output).contains(canary));
}

#[test]
fn colours_are_for_terminals_unless_asked_for() {
    let plain = output(&["run", "-e", "=x", "--", "true"]);
    assert!(!plain.stderr.contains(&0x1b));
    let coloured = output(&["run", "--color=always", "-e", "=x", "--", "true"]);
    assert!(coloured.stderr.contains(&0x1b));
}

#[test]
fn a_log_in_json_names_each_phase_and_nothing_of_the_body() {
    let run = ["run", "--log-format", "json", "--", "echo", "the body"];
    let done = output(&run);
    assert_eq!(stdout(&done), "the body\n");
    let lines: Vec<serde_json::Value> = stderr(&done)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let phases: Vec<&str> = lines
        .iter()
        .filter(|line| line["message"] == "close")
        .filter_map(|line| line["span"]["name"].as_str())
        .collect();
    let expected = [
        "prepare", "unpack", "plan", "stage", "launch", "body", "sync", "clean", "run",
    ];
    assert_eq!(phases, expected);
    assert!(
        lines.iter().all(|line| line["level"] == "DEBUG"),
        "{lines:?}"
    );
}

#[test]
fn a_log_is_written_only_where_one_is_asked_for() {
    // Other tests leave killed runs in the directory of all, which the next run removes and reports.
    let own = tempfile::tempdir().expect("a directory");
    let run = || {
        let mut run = runner(&["run", "--", "true"]);
        run.env("RUNNER_OPT_RUNTIME_DIRECTORY", own.path());
        run
    };
    let said = |run: &mut Command| stderr(&run.output().expect("the program starts"));
    assert_eq!(said(&mut run()), "");
    let with_levels = |levels: &str| said(run().env("RUNNER_LOG", levels));
    assert!(
        with_levels("debug").contains(":body: "),
        "{}",
        with_levels("debug")
    );
    assert_eq!(with_levels("info"), "");
    assert_eq!(with_levels("off"), "");
    let refused = with_levels("runner=loud");
    assert!(
        refused.contains("RUNNER_LOG: `runner=loud` is not a level"),
        "{refused}"
    );
}

/// F-18: `secrets.provider` of such a file would be started with the caller's rights.
#[test]
fn a_configuration_that_others_can_change_is_refused_with_the_command_that_helps() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let home = tempfile::tempdir().expect("a directory");
    let directory = home.path().join("runner");
    std::fs::create_dir(&directory).expect("made");
    let file = directory.join("config.yaml");
    std::fs::write(&file, "require_pin: true\n").expect("written");
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    let is_root = support::is_root();
    let plan = || {
        let mut command = runner(&["plan"]);
        command.env("XDG_CONFIG_HOME", home.path());
        // The user's file is not read for root.
        if is_root {
            command.arg("--policy").arg(&file);
        }
        let output = command
            .args(["--", "true"])
            .output()
            .expect("the program starts");
        stdout(&output) + &stderr(&output)
    };
    for (of_directory, of_file, is_accepted) in [
        (0o755, 0o644, true),
        (0o1777, 0o644, true),
        (0o755, 0o664, false),
        (0o755, 0o646, false),
        (0o775, 0o644, false),
        (0o777, 0o600, false),
    ] {
        set(&directory, of_directory);
        set(&file, of_file);
        let text = plan();
        assert_eq!(
            !text.contains("policy_untrusted"),
            is_accepted,
            "{of_file:o} {text}"
        );
        if is_accepted {
            continue;
        }
        let command = text.split_once("hint: ").expect("a hint").1;
        let command = command.lines().next().expect("a line").trim();
        let status = Command::new("sh").args(["-c", command]).status();
        assert!(status.expect("sh runs").success(), "{command}");
        assert!(!plan().contains("policy_untrusted"), "{command}");
    }
    if is_root {
        for path in [&file, &directory] {
            chown(path, Some(65534), None).expect("changed");
            let words: Vec<String> = plan().split_whitespace().map(str::to_owned).collect();
            let text = words.join(" ");
            assert!(text.contains("belongs to uid 65534"), "{text}");
            chown(path, Some(0), None).expect("changed");
        }
    }
}

#[test]
fn a_fifo_is_refused_where_a_pipe_of_the_caller_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = r#"mkfifo fifo
        for flag in --env-file=fifo --secret=B=file:fifo --policy=fifo; do
            "$1" run "$flag" -- true; echo $?; "$1" plan "$flag" -- true >&2; echo $?
        done
        echo A=1 | "$1" run --env-file /dev/stdin -- sh -c 'echo $A'
        echo secret-7f3a | "$1" run --secret B=file:/dev/stdin -- sh -c 'echo $B'
        echo 'grants: [env]' | "$1" run --policy /dev/stdin -- echo ran"#;
    let output = by_shell(script, directory.path());
    let text = stdout(&output).replace('\n', " ");
    assert_eq!(
        text, "125 125 125 125 125 125 1 secret-7f3a ran ",
        "{output:?}"
    );
    assert_eq!(
        stderr(&output).matches("it is a fifo").count(),
        6,
        "{output:?}"
    );
}

#[test]
fn a_variable_with_a_value_of_another_kind_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for value in ["1", "true", "No"] {
        let mut command = runner(&["run", "--", "true"]);
        command
            .current_dir(directory.path())
            .env("RUNNER_OPT_JSON", value);
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let text = stderr(&output);
        assert!(text.contains("expected -, fd:N or a file"), "{text}");
        assert!(!directory.path().join(value).exists(), "{text}");
        let file = format!("./{value}");
        assert!(text.contains(&file), "{text}");
        let mut command = runner(&["run", "--", "true"]);
        command
            .current_dir(directory.path())
            .env("RUNNER_OPT_JSON", file);
        assert!(command.status().expect("the program starts").success());
        assert!(directory.path().join(value).exists());
    }
    for name in ["CACHE", "OCI", "RUNTIME"] {
        let name = format!("RUNNER_OPT_{name}_DIRECTORY");
        for words in [&["run", "--", "true"][..], &["cache", "ls"]] {
            let mut command = runner(words);
            command.current_dir(directory.path()).env(&name, "below/it");
            let output = command.output().expect("the program starts");
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            let text = stderr(&output);
            let message = format!("the variable {name} is `below/it`, expected an absolute path");
            assert!(text.contains(&message), "{text}");
        }
    }
}
