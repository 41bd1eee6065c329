//! `runner plan`: `exec` and `run` then do what it prints, and it creates nothing.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use support::bundles::pack;
use support::processes::{confined_child, status};
use support::tar::Tar;
use support::{Ground, is_root, random, runner};

/// The output of `runner plan`.
#[derive(Debug)]
struct Told {
    code: i32,
    plan: Value,
    stderr: String,
}

impl Told {
    fn verdict(&self) -> &str {
        self.plan["verdict"].as_str().unwrap_or("none")
    }

    fn error(&self) -> &str {
        self.plan["error"]["code"].as_str().unwrap_or("none")
    }
}

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let text = include_str!("../schemas/plan.schema.json");
    let schema = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is a schema")
});

fn command(ground: &Ground, words: &[&str]) -> Command {
    let mut command = Command::new(runner());
    command
        .args(words)
        .env("RUNNER_TEST_CANARY_SECRET", ground.canary())
        .current_dir(ground.workspace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs `runner plan --json WORDS…` to its end; the document is valid and contains no secret.
fn planned(ground: &Ground, words: &[&str]) -> Told {
    told(
        ground,
        command(ground, &[&["plan", "--json"], words].concat()),
    )
}

fn told(ground: &Ground, mut command: Command) -> Told {
    let output = command.output().expect("the runner starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let plan: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("no plan: {error}: {text}{stderr}");
    });
    let errors: Vec<String> = SCHEMA
        .iter_errors(&plan)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
    assert!(!text.contains(ground.canary()), "the secret was shown");
    let told = Told {
        code: output.status.code().expect("an exit code"),
        plan,
        stderr,
    };
    let expected = i32::from(told.verdict() != "would_start") * 125;
    assert_eq!(told.code, expected, "{told:#?}");
    told
}

/// Any result of `exec`: it depends on the host.
const OF_HOST: &str = "of the host";

/// A manifest, the other files of the bundle, flags, and the error code of `exec`.
struct Case {
    name: &'static str,
    manifest: &'static str,
    files: &'static [(&'static str, &'static str)],
    flags: &'static [&'static str],
    code: &'static str,
}

const SCRIPT: (&str, &str) = ("x.sh", "#!/bin/sh\nexit 0\n");

const fn case(
    name: &'static str,
    manifest: &'static str,
    flags: &'static [&'static str],
    code: &'static str,
) -> Case {
    Case {
        name,
        manifest,
        files: &[SCRIPT],
        flags,
        code,
    }
}

const fn with(
    name: &'static str,
    manifest: &'static str,
    files: &'static [(&'static str, &'static str)],
    code: &'static str,
) -> Case {
    Case {
        name,
        manifest,
        files,
        flags: &[],
        code,
    }
}

const CASES: &[Case] = &[
    case("a good bundle", "run: x.sh\n", &[], "none"),
    case("a shell command", "run: exit 0 || true\n", &[], "none"),
    case("an array", "run: [sh, -c, 'exit 0']\n", &[], "none"),
    case(
        "--run",
        "name: x\n",
        &["--run", r#"{"exec":["./x.sh"]}"#],
        "none",
    ),
    case(
        "ungranted egress",
        "run: x.sh\nnetwork: {egress: [a.example.com]}\n",
        &[],
        "grant_required",
    ),
    case(
        "granted egress",
        "run: x.sh\nnetwork: {egress: [a.example.com]}\n",
        &["--grant", "egress"],
        "none",
    ),
    case(
        "--allow-net",
        "run: x.sh\n",
        &["--allow-net", "a.example.com"],
        "none",
    ),
    case(
        "--allow-net in vain under --strict",
        "run: x.sh\n",
        &["--strict", "--allow-net", "10.1.2.3"],
        "strict_refuses",
    ),
    case(
        "--allow-net with a URL",
        "run: x.sh\n",
        &["--allow-net", "https://a.example.com/x"],
        "usage",
    ),
    case(
        "one host port twice",
        "run: x.sh\n",
        &["--publish", "8080:80,8080:81"],
        "usage",
    ),
    case(
        "an ungranted secret",
        "run: x.sh\nsecrets: {K: {vault: k}}\n",
        &[],
        "grant_required",
    ),
    case(
        "a secret that is given",
        "run: x.sh\nsecrets: {K: {vault: k}}\n",
        &["--secret", "K=env:RUNNER_TEST_CANARY_SECRET"],
        "none",
    ),
    case(
        "a secret that leads nowhere",
        "run: x.sh\nsecrets: {K: {vault: k}}\n",
        &["--secret", "K=env:NOT_SET_ANYWHERE"],
        "secret_unresolved",
    ),
    case(
        "a missing program",
        "run: [nonesuch-7f3a]\n",
        &[],
        "program_not_found",
    ),
    case(
        "a missing path",
        "run: [./nonesuch]\n",
        &[],
        "program_not_found",
    ),
    case(
        "a directory",
        "run: [/usr]\n",
        &[],
        "program_not_executable",
    ),
    case(
        "a file of the system",
        "run: [/etc/passwd]\n",
        &[],
        "program_not_executable",
    ),
    case(
        "a file that is not there",
        "run: gone.sh\n",
        &[],
        "run_target_missing",
    ),
    case("no run", "name: x\n", &[], "run_missing"),
    case(
        "a bad --run",
        "run: x.sh\n",
        &["--run", "[]"],
        "run_invalid",
    ),
    case("an unknown key", "run: x.sh\nrnu: 1\n", &[], "unknown_key"),
    case(
        "read_only",
        "run: x.sh\nsandbox: {provider: local, config: {}, read_only: true}\n",
        &[],
        "sandbox_read_only",
    ),
    case(
        "a remote provider",
        "run: x.sh\nsandbox: {provider: mastra-e2b, config: {}}\n",
        &[],
        "provider_unavailable",
    ),
    case(
        "limits beyond the maxima",
        "run: x.sh\nrunner: {limits: {memory_mb: 99999}}\n",
        &[],
        "none",
    ),
    case(
        "a limit too small",
        "run: x.sh\n",
        &["-m", "1k"],
        "limit_too_small",
    ),
    case(
        "a working directory",
        "run: [/bin/sh, -c, 'exit 0']\nsandbox: {provider: local, config: {cwd: sub}}\n",
        &[],
        "cwd_missing",
    ),
    case(
        "another working directory",
        "run: [/bin/sh, -c, 'exit 0']\n",
        &["-w", "/usr"],
        "none",
    ),
    case(
        "a mount without a source",
        "run: x.sh\n",
        &["--mount", "/nonexistent/x:/data"],
        "mount_source_missing",
    ),
    case(
        "a mount over the system",
        "run: x.sh\n",
        &["--mount", "/usr:/usr/lib"],
        "mount_target_refused",
    ),
    case(
        "a mount over the home",
        "run: x.sh\n",
        &["--mount", "/usr:/home"],
        "mount_target_refused",
    ),
    case(
        "two mounts at one place",
        "run: x.sh\n",
        &["--tmpfs", "/d", "--mount", "/usr:/d:ro"],
        "mount_duplicate",
    ),
    case("a tmpfs", "run: x.sh\n", &["--tmpfs", "/data:1m"], "none"),
    case(
        "files without a workspace",
        "run: x.sh\noutputsFiles: {o: {path: o.txt}}\n",
        &[],
        "grant_required",
    ),
    case(
        "an output",
        "run: x.sh\n",
        &["--workspace", ".", "--out", "o=<runId>/<isoDate>"],
        "none",
    ),
    case(
        "an input",
        "run: x.sh\n",
        &["--workspace", ".", "--in", "k=there.txt"],
        "none",
    ),
    case(
        "a missing input",
        "run: x.sh\n",
        &["--workspace", ".", "--in", "k=gone.txt"],
        "input_missing",
    ),
    case(
        "an obeyed output",
        "run: x.sh\n",
        &["--workspace", ".", "--out", "o=.git/hooks/x"],
        "destination_refused",
    ),
    case(
        "a missing workspace",
        "run: x.sh\n",
        &["--workspace", "/nonexistent"],
        "workspace_unusable",
    ),
    case(
        "a token that is none",
        "run: x.sh\n",
        &["--workspace", ".", "--in", "k=<x>"],
        "token_unknown",
    ),
    case(
        "inputs that do not fit",
        "run: x.sh\ninputs: {type: object, required: [a]}\n",
        &[],
        "invalid-input",
    ),
    case(
        "inputs that fit",
        "run: x.sh\ninputs: {type: object, required: [a]}\n",
        &["--inputs", r#"{"a":1}"#],
        "none",
    ),
    case(
        "a grant that the policy denies",
        "run: x.sh\n",
        &["--policy", "deny.yaml", "--grant", "env"],
        "grant_forbidden",
    ),
    case(
        "a policy that is not there",
        "run: x.sh\n",
        &["--policy", "/nonexistent"],
        "policy_unreadable",
    ),
    case(
        "a manifest of the caller",
        "run: gone.sh\n",
        &["--manifest", "mine.yaml"],
        "none",
    ),
    case(
        "limits that must be held",
        "run: x.sh\n",
        &["--limits", "require"],
        OF_HOST,
    ),
    case(
        "a share of the processors",
        "run: x.sh\n",
        &["--cpus", "1"],
        OF_HOST,
    ),
    case(
        "a secret that is no text",
        "run: x.sh\n",
        &["--secret", "K=file:nul"],
        "env_invalid",
    ),
    case(
        "a secret that is a directory",
        "run: x.sh\n",
        &["--secret", "K=file:/"],
        "env_unreadable",
    ),
    case(
        "a file of ports in no directory",
        "run: x.sh\n",
        &["--publish-file", "nowhere/ports"],
        "publish_file_unwritable",
    ),
    case(
        "a file of ports that is a directory",
        "run: x.sh\n",
        &["--publish-file", "/tmp"],
        "publish_file_unwritable",
    ),
    case(
        "every line of defence",
        "run: x.sh\n",
        &["--strict"],
        OF_HOST,
    ),
    case(
        "a root file system of its own",
        "run: x.sh\nrunner: {engine: sandbox, image: nonesuch}\n",
        &[],
        "image_unknown",
    ),
    with(
        "a script without a first line",
        "run: [./x]\n",
        &[("x", "#!\n")],
        "program_not_executable",
    ),
    with(
        "a script of nobody",
        "run: [./x.sh]\n",
        &[("x.sh", "#!/nonexistent/sh\n")],
        "program_not_found",
    ),
    with(
        "no program at all",
        "run: [./x.sh]\n",
        &[("x.sh", "echo\n")],
        "program_not_executable",
    ),
    with(
        "a file without its mode",
        "run: [./x.txt]\n",
        &[("x.txt", "text")],
        "program_not_executable",
    ),
    with(
        "no manifest",
        "",
        &[("y/manifest.yaml", "run: x.sh\n")],
        "manifest_missing",
    ),
];

#[test]
fn a_plan_matches_the_following_exec() {
    for one in CASES {
        let ground = Ground::new();
        ground.write("work/there.txt", "here");
        ground.write("work/mine.yaml", "run: x.sh\n");
        ground.write("work/nul", "a\0b");
        ground.write("work/deny.yaml", "deny_grants: [env]\n");
        let mut files = one.files.to_vec();
        if !one.manifest.is_empty() {
            files.push(("manifest.yaml", one.manifest));
        }
        let bundle = ground.bundle(&files);
        let bundle = bundle.to_str().expect("a plain path");
        let words = [&["exec"], one.flags, &[bundle]].concat();
        let mut exec = ground.command(&words);
        exec.command.current_dir(ground.workspace());
        let done = exec.done();
        let told = planned(&ground, &[one.flags, &[bundle]].concat());
        let code = match one.code {
            OF_HOST => done.error(),
            code => code,
        };
        assert_eq!(done.error(), code, "{}: {done:#?}", one.name);
        assert_eq!(told.error(), code, "{}: {told:#?}", one.name);
        let verdict = match done.outcome() {
            "exited" => "would_start",
            "refused" => "would_be_refused",
            _ => "would_fail",
        };
        assert_eq!(told.verdict(), verdict, "{}: {told:#?}", one.name);
        assert_eq!(told.plan["error"], done.report["error"], "{}", one.name);
    }
}

#[test]
fn a_plan_matches_the_report_of_the_run() {
    let ground = Ground::new();
    let manifest = "run: x.sh\nrunner: {engine: in-process, limits: {memory_mb: 99999}}\n";
    let bundle = ground.bundle(&[SCRIPT, ("manifest.yaml", manifest)]);
    let bundle = bundle.to_str().expect("a plain path");
    let flags = ["--pids", "40", "--timeout", "50s", bundle];
    let done = ground.command(&[&["exec"], &flags[..]].concat()).done();
    done.assert_exited(0);
    let plan = planned(&ground, &flags).plan;
    for key in [
        "argv",
        "bound_programs",
        "cgroup_backend",
        "enforcement",
        "image",
        "limits",
        "preparation",
        "run_form",
        "runner",
        "syscall_policy",
    ] {
        assert_eq!(plan[key], done.report[key], "{key}");
    }
    assert_eq!(plan["runner"]["downgraded"], true);
    assert_eq!(
        plan["bundle"]["archive_digest"],
        done.report["bundle"]["archive_digest"]
    );
    assert_eq!(plan["bundle"]["bytes"], done.report["bundle"]["bytes"]);
    let limits = plan["limits"].as_object().expect("limits");
    assert!(limits.len() > 8, "{limits:?}");
}

#[test]
fn a_command_is_planned_as_it_is_run() {
    let ground = Ground::new();
    for (words, code) in [
        (&["true"][..], "none"),
        (&["/bin/true"], "none"),
        (&["nonesuch-7f3a"], "program_not_found"),
        (&["/nonexistent/x"], "program_not_found"),
        (&["/etc/passwd"], "program_not_executable"),
    ] {
        let done = ground.run(&[], words);
        let told = planned(&ground, &[&["--"], words].concat());
        assert_eq!((done.error(), told.error()), (code, code), "{words:?}");
    }
    let nothing = command(&ground, &["plan"]).output().expect("runs");
    assert_eq!(nothing.status.code(), Some(125));
}

#[test]
fn a_provider_of_secrets_is_named_and_not_asked() {
    let ground = Ground::new();
    let directory = ground.path("vault");
    std::fs::create_dir(&directory).expect("made");
    let asked = ground.path("asked");
    let program = ground.write(
        "provider",
        format!("#!/bin/sh\ntouch {}\n", asked.display()),
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("set");
    let manifest = "run: x.sh\nsecrets: {K: {vault: my-key}, L: {value: plain}}\n";
    let bundle = ground.bundle(&[SCRIPT, ("manifest.yaml", manifest)]);
    let bundle = bundle.to_str().expect("a plain path");
    for (provider, name) in [
        (format!("directory: {}", directory.display()), "directory "),
        (format!("command: [{}, a]", program.display()), "command "),
    ] {
        let text = format!("secrets: {{provider: {{{provider}}}}}\ngrants: [secrets]\n");
        let policy = ground.write("work/policy.yaml", text);
        let policy = policy.to_str().expect("plain");
        let told = planned(&ground, &["--policy", policy, bundle]);
        assert_eq!(told.verdict(), "would_start", "{told:#?}");
        let secret = &told.plan["secrets"][0];
        assert_eq!(secret["variable"], "K");
        assert_eq!(secret["reference"], "vault my-key");
        assert_eq!(secret["granted_by"], "host-policy");
        let provider = secret["provider"].as_str().expect("named");
        assert!(provider.starts_with(name), "{provider}");
        let names = told.plan["environment"].to_string();
        assert!(
            names.contains("\"K\"") && names.contains("\"L\""),
            "{names}"
        );
        assert!(!told.plan.to_string().contains("plain"), "{told:#?}");
        assert!(
            told.plan["unchecked"]
                .to_string()
                .contains("no provider was asked")
        );
        assert!(!asked.exists(), "the provider was asked");
    }
    let told = planned(&ground, &["--grant", "secrets", bundle]);
    let done = ground.exec(&["--grant", "secrets"], Path::new(bundle));
    assert_eq!(
        (told.error(), done.error()),
        ("secret_unresolved", "secret_unresolved")
    );
}

#[test]
fn the_same_request_gives_the_same_bytes() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[SCRIPT, ("manifest.yaml", "run: x.sh\n")]);
    let bundle = bundle.to_str().expect("a plain path");
    let once = || {
        let words = [
            "plan",
            "--json",
            "--workspace",
            ".",
            "--out",
            "o=<runId>",
            bundle,
        ];
        let output = command(&ground, &words)
            .output()
            .expect("the runner starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let first = once();
    assert!(first.contains("<runId>"), "{first}");
    assert_eq!(first, once());
}

#[test]
fn a_bundle_on_standard_input_and_a_directory_are_planned_alike() {
    let ground = Ground::new();
    let folder = ground.path("folder");
    ground.write("folder/manifest.yaml", "run: [sh, -c, 'exit 0']\n");
    ground.write("folder/deep/er/file", "text");
    let archive = pack(&folder);
    let of_directory = planned(&ground, &[folder.to_str().expect("plain")]);
    let mut child = command(&ground, &["plan", "--json", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the runner starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    let bytes = std::fs::read(archive).expect("read");
    pipe.write_all(&bytes).expect("written");
    drop(pipe);
    let output = child.wait_with_output().expect("waited");
    let of_stdin: Value = serde_json::from_slice(&output.stdout).expect("a plan");
    assert_eq!(of_directory.code, 0);
    for key in ["program", "view", "limits"] {
        assert_eq!(of_stdin[key], of_directory.plan[key], "{key}");
    }
    assert_eq!(
        of_stdin["bundle"]["bytes"],
        of_directory.plan["bundle"]["bytes"]
    );
}

#[test]
fn a_manifest_alone_is_planned_and_lists_unchecked_parts() {
    let ground = Ground::new();
    let text = "run: main.py\ncode: {sources: [{local: {path: ./src}}]}\n";
    let manifest = ground.write("work/CODE.yaml", text);
    let told = planned(&ground, &[manifest.to_str().expect("plain")]);
    assert_eq!(told.plan["bundle"], Value::Null);
    assert_eq!(told.plan["argv"][1], "main.py", "{told:#?}");
    let unchecked = told.plan["unchecked"].to_string();
    assert!(
        unchecked.contains("a manifest without a bundle"),
        "{unchecked}"
    );
    // Whether the bundle has programs of its own is not known; those of the host are.
    let manifest = ground.write("work/sh.yaml", "run: [sh, main.sh]\n");
    let sh = planned(&ground, &[manifest.to_str().expect("plain")]);
    assert!(sh.plan["program"]["host_path"].is_string(), "{sh:#?}");
    assert!(unchecked.contains("runner bundle"), "{unchecked}");
    assert_eq!(told.verdict(), "would_start", "{told:#?}");
}

#[test]
fn a_manifest_alone_is_planned_with_its_blocks_and_with_what_it_inherits() {
    let ground = Ground::new();
    let text = "run: main.py\ncode: ./w\nrunner: {file: ./RUNNER.md}\n";
    ground.write("work/tools/CODE.yaml", text);
    ground.write(
        "work/tools/RUNNER.md",
        "---\nlimits: {timeout_ms: 5000}\n---\n",
    );
    let words = ["tools/CODE.yaml"];
    let refused = planned(&ground, &words);
    assert_eq!(refused.error(), "source_missing", "{refused:#?}");
    let workspace = "kind: code-workspace\ncode: {sources: [{local: src}]}\n\
                     runner: {limits: {timeout_ms: 9000, memory_mb: 100}}\n";
    ground.write("work/w/manifest.yaml", workspace);
    let told = planned(&ground, &words);
    assert_eq!(told.verdict(), "would_start", "{told:#?}");
    let limit = |name: &str| told.plan["limits"][name].to_string();
    let wall_time = limit("wall_time_ms");
    assert!(wall_time.contains("5000"), "{wall_time}");
    assert!(wall_time.contains("(from CODE.yaml)"), "{wall_time}");
    let memory = limit("memory_bytes");
    assert!(memory.contains("104857600"), "{memory}");
    assert!(memory.contains("(from w/manifest.yaml)"), "{memory}");
    let unchecked = told.plan["unchecked"].to_string();
    assert!(unchecked.contains("1 source of `code`"), "{unchecked}");
}

#[test]
fn an_ungranted_bundle_is_explained_with_the_flags_to_paste() {
    let ground = Ground::new();
    let manifest = "run: x.sh\nsecrets: {K: {vault: k}}\nnetwork: {egress: [a.example.com]}\n";
    let bundle = ground.bundle(&[SCRIPT, ("manifest.yaml", manifest)]);
    let bundle = bundle.to_str().expect("a plain path");
    let told = planned(&ground, &[bundle]);
    let flags: Vec<&str> = told.plan["missing_grants"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|missing| missing["flag"].as_str())
        .collect();
    assert_eq!(flags, ["--allow-net a.example.com", "--secret K=env:K"]);
    assert!(
        told.plan["view"]
            .as_array()
            .is_some_and(|view| 10 < view.len())
    );
    let output = command(&ground, &["plan", bundle]).output().expect("runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("\nwould be refused: "), "{text}");
    assert!(text.contains("\n  --secret K=env:K\n"), "{text}");
}

#[test]
fn no_line_is_wider_than_a_terminal_and_no_control_byte_reaches_it() {
    let ground = Ground::new();
    let manifest = "run: [sh, -c, \"echo \\u001b[31m\"]\nnetwork: {egress: [a.example.com]}\n";
    let bundle = ground.bundle(&[("manifest.yaml", manifest)]);
    let bundle = bundle.to_str().expect("a plain path");
    for flags in [&["-v"][..], &[], &["-m", "2t", "--cpus", "1"]] {
        let words = [&["plan"], flags, &[bundle]].concat();
        let output = command(&ground, &words).output().expect("runs");
        let text = String::from_utf8(output.stdout).expect("text");
        for line in text.lines() {
            // A path is never wrapped, so that it can be copied.
            let is_one_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= 80 || is_one_word, "{line}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn the_files_that_decided_the_host_policy_are_named() {
    let ground = Ground::new();
    let policy = ground.write("work/policy.yaml", "maxima: {memory: 1g}\ngrants: [env]\n");
    let policy = policy.to_str().expect("plain");
    let told = planned(&ground, &["--policy", policy, "-m", "512m", "--", "true"]);
    let values = told.plan["host_policy"].as_array().expect("a list");
    let found = values
        .iter()
        .find(|value| value["key"] == "maxima.memory")
        .expect("told");
    assert_eq!(found["value"], (1_u64 << 30).to_string());
    assert_eq!(found["decided_by"][0], policy);
    let memory = &told.plan["limits"]["memory_bytes"];
    assert_eq!(memory["source"], "flag");
    assert_eq!(memory["sources"][0]["source"], "flag");
    assert_eq!(memory["sources"][2]["source"], "host-policy");
    let refused = planned(&ground, &["--policy", policy, "-m", "2g", "--", "true"]);
    assert_eq!(refused.verdict(), "would_be_refused");
    assert_eq!(told.plan["grants"][0]["granted_by"], "host-policy");
}

/// As `exec` does.
#[test]
fn warnings_of_an_inventory_are_planned() {
    let ground = Ground::new();
    ground.write(
        "work/.secrets/SECRETS.md",
        "---\nsecrets:\n- {slug: key, name: n, description: d, backend: 'vault://x', access: {bind: \
         [{tool: deploy}]}, exposures: [{kind: env, name: KEY}]}\n---\n",
    );
    let manifest = "id: deploy\nrun: [sh, -c, 'true']\nsecrets: {KEY: {vault: key}}\n";
    let manifest = ground.write("work/manifest.yaml", manifest);
    let manifest = manifest.to_str().expect("plain");
    ground.write("work/bundle/main.sh", "");
    let told = planned(
        &ground,
        &["--manifest", manifest, "--workspace=.", "bundle"],
    );
    let warnings = told.plan["warnings"].as_array().expect("a list");
    assert!(
        warnings.iter().any(|row| row["code"] == "backend_ignored"),
        "{told:#?}"
    );
}

#[test]
fn a_verb_after_plan_gets_a_hint() {
    let ground = Ground::new();
    let told = planned(&ground, &["run", "--", "true"]);
    assert_eq!(told.plan["error"]["code"], "bundle_unopened", "{told:#?}");
    let hint = told.plan["error"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("runner plan -- CMD"), "{hint}");
}

#[test]
fn a_plan_names_a_system_call_policy_only_where_it_came_to_one() {
    let ground = Ground::new();
    let policy = ground.write("work/policy.yaml", "syscalls: strict\n");
    let policy = policy.to_str().expect("plain");
    let told = planned(&ground, &["--policy", policy, "--", "true"]);
    assert_eq!(told.plan["syscall_policy"], "strict", "{told:#?}");
    assert_eq!(told.plan["syscall_policy_by"], "host-policy");
    let looser = ["--policy", policy, "--syscalls=default", "--", "true"];
    for (words, code) in [
        (&looser[..], "syscalls_forbidden"),
        (
            &["--policy", policy, "nonesuch-7f3a.tar.gz"],
            "bundle_unopened",
        ),
        (
            &["--policy", "/nonexistent", "--", "true"],
            "policy_unreadable",
        ),
    ] {
        let told = planned(&ground, words);
        assert_eq!(told.error(), code, "{told:#?}");
        assert!(told.plan["syscall_policy"].is_null(), "{told:#?}");
        assert!(told.plan["syscall_policy_by"].is_null(), "{told:#?}");
    }
}

/// Everything in a directory that would show a change.
fn entries(path: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![path.to_path_buf()];
    while let Some(path) = pending.pop() {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        if let (true, Ok(list)) = (metadata.is_dir(), std::fs::read_dir(&path)) {
            pending.extend(list.filter_map(Result::ok).map(|entry| entry.path()));
        }
        found.insert(
            path,
            (metadata.ino(), metadata.mtime(), metadata.mtime_nsec()),
        );
    }
    found
}

/// The directories of the host that a run would change: those that the runner was given.
struct Places {
    temporary: PathBuf,
    runtime: PathBuf,
}

impl Places {
    fn new(ground: &Ground) -> Self {
        let places = Self {
            temporary: ground.path("tmp"),
            runtime: ground.path("runtime"),
        };
        std::fs::create_dir(&places.temporary).expect("made");
        places
    }

    fn lend(&self, command: &mut Command) {
        command
            .env("TMPDIR", &self.temporary)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", &self.runtime);
    }
}

#[test]
fn planning_changes_nothing_on_the_host() {
    let ground = Ground::new();
    let places = Places::new(&ground);
    let manifest = "run: x.sh\noutputsFiles: {o: {path: o.txt}}\n";
    let bundle = ground.bundle(&[SCRIPT, ("manifest.yaml", manifest)]);
    let bundle = bundle.to_str().expect("a plain path");
    let groups = Groups::new();
    let before = entries(&ground.path("."));
    let mut plan = command(
        &ground,
        &["plan", "--json", "--workspace", ".", "--keep", bundle],
    );
    places.lend(&mut plan);
    if let Some(groups) = &groups {
        plan.env("RUNNER_OPT_CGROUP_PARENT", &groups.name);
    }
    let told = told(&ground, plan);
    assert_eq!(told.verdict(), "would_start", "{told:#?}");
    assert_eq!(before, entries(&ground.path(".")));
    assert!(!places.runtime.exists(), "a record was made");
    if let Some(groups) = groups {
        assert_eq!(groups.below(), Vec::<PathBuf>::new());
    }
    assert_eq!(told.stderr, "");
}

#[test]
fn a_plan_refuses_the_runtime_directory_that_exec_refuses() {
    let ground = Ground::new();
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    let file = ground.write("file", "");
    let open = ground.path("open");
    std::fs::create_dir_all(open.join("below")).expect("made");
    set(&open, 0o777);
    let part = ground.write("part/runs", "");
    set(part.parent().expect("a parent"), 0o755);
    let missing = ground.path("missing/runner");
    for path in [
        &file,
        &open,
        &open.join("below"),
        part.parent().expect("a parent"),
        &missing,
    ] {
        let path = path.to_str().expect("UTF-8");
        let variable = "RUNNER_OPT_RUNTIME_DIRECTORY";
        let done = ground
            .command(&["run", "--", "true"])
            .env(variable, path)
            .done();
        let mut plan = command(&ground, &["plan", "--json", "--", "true"]);
        plan.env(variable, path);
        let told = told(&ground, plan);
        assert_eq!(told.error(), "runtime_directory_unusable", "{told:#?}");
        assert_eq!(told.plan["error"], done.report["error"]);
    }
    assert!(!missing.exists());
}

/// A separate group in each hierarchy: everything below it was created by the case.
struct Groups {
    name: String,
    made: Vec<PathBuf>,
}

impl Groups {
    fn new() -> Option<Self> {
        let parent = std::env::var("RUNNER_OPT_CGROUP_PARENT").ok()?;
        let name = format!("{parent}/plan-{}", random());
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").ok()?;
        let made = hierarchies
            .filter_map(|entry| {
                let path = entry.ok()?.path().join(name.trim_start_matches('/'));
                std::fs::create_dir(&path).ok().map(|()| path)
            })
            .collect();
        Some(Self { name, made })
    }

    fn below(&self) -> Vec<PathBuf> {
        let entries = self.made.iter().flat_map(std::fs::read_dir).flatten();
        let directories = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.map(|entry| entry.path()).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.made {
            let removed = std::fs::remove_dir(group);
            assert!(
                removed.is_ok() || std::thread::panicking(),
                "{}",
                group.display()
            );
        }
    }
}

#[test]
fn a_hostile_archive_is_refused_by_the_caps_of_exec_and_leaves_nothing() {
    let ground = Ground::new();
    let places = Places::new(&ground);
    let policy = ground.write("work/policy.yaml", "unpack: {unpacked: 1m, entries: 50}\n");
    let policy = policy.to_str().expect("plain");
    let big = "x".repeat(2 << 20);
    let many: Vec<(String, &str)> = (0..60).map(|n| (format!("f{n}"), "x")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, x)| (name.as_str(), *x)).collect();
    let broken = ground.write("broken.tar.gz", b"\x1f\x8b no gzip");
    for bundle in [
        ground.bundle(&[("big", big.as_str())]),
        ground.bundle(&many),
        broken,
    ] {
        let bundle = bundle.to_str().expect("a plain path");
        let done = ground.command(&["exec", "--policy", policy, bundle]).done();
        let before = entries(&places.temporary);
        let mut plan = command(&ground, &["plan", "--json", "--policy", policy, bundle]);
        places.lend(&mut plan);
        let told = told(&ground, plan);
        assert_eq!(told.error(), done.error(), "{told:#?}");
        assert_eq!(before, entries(&places.temporary));
    }
}

/// A-61.
#[test]
fn a_bundle_is_read_by_a_process_without_rights() {
    let ground = Ground::new();
    let archive = Tar::new()
        .file("manifest.yaml", b"run: body.sh\n")
        .file("body.sh", b"echo ran\n")
        .gz();
    let mut plan = command(&ground, &["plan", "--json", "-"]);
    let mut child = plan.stdin(Stdio::piped()).spawn().expect("started");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&archive[..20]).expect("written");
    let reader = confined_child(i32::try_from(child.id()).expect("a pid"));
    for (key, expected) in [
        ("NoNewPrivs", "1"),
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapInh", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
    ] {
        assert_eq!(status(reader, key).as_deref(), Some(expected), "{key}");
    }
    if is_root() {
        for key in ["Uid", "Gid"] {
            let nobody = "65534 65534 65534 65534";
            assert_eq!(status(reader, key).as_deref(), Some(nobody), "{key}");
        }
        // Standard streams, the archive's pipe, the answer's pipe.
        let open = std::fs::read_dir(format!("/proc/{reader}/fd")).expect("listed");
        assert_eq!(open.count(), 5);
    }
    pipe.write_all(&archive[20..]).expect("written");
    drop(pipe);
    let output = child.wait_with_output().expect("ended");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("a plan");
    assert_eq!(plan["bundle"]["entries"], 2, "{plan:#}");
    assert_eq!(plan["manifest"]["file"], "manifest.yaml", "{plan:#}");
}

#[test]
fn a_signal_while_reading_the_bundle_ends_planning_and_cleans_up() {
    for signal in [Signal::INT, Signal::TERM] {
        let ground = Ground::new();
        let places = Places::new(&ground);
        let mut plan = command(&ground, &["plan", "--json", "-"]);
        places.lend(&mut plan);
        let mut child = plan.stdin(Stdio::piped()).spawn().expect("started");
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(b"\x1f\x8b").expect("written");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("sent");
        let status = child.wait().expect("waited");
        let ended = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(ended, Some(signal.as_raw()));
        assert_eq!(entries(&places.temporary).len(), 1);
        assert!(!places.runtime.exists());
    }
}

#[test]
fn a_file_takes_the_document_and_the_text_stays_on_standard_output() {
    let ground = Ground::new();
    let file = ground.path(&format!("plan-{}.json", random()));
    let flag = format!("--json={}", file.display());
    let output = command(&ground, &["plan", &flag, "--", "true"])
        .output()
        .expect("runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.ends_with("\nwould start\n"), "{text}");
    let plan: Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("written")).expect("JSON");
    assert_eq!(plan["verdict"], "would_start");
}

/// Keys, inheritance, flags and the host policy all decide something in it.
#[test]
fn every_host_is_planned_with_its_origin_and_the_verdict_of_the_host_policy() {
    let ground = Ground::new();
    ground.write(
        "work/tools/CODE.yaml",
        "run: main.py\ncode: ./w\nnetwork: {egress: [own.example]}\n\
         sandbox: {provider: local, config: {}, network: {egress: [s.example, 'own.example']}}\n",
    );
    ground.write(
        "work/w/manifest.yaml",
        "kind: code-workspace\ncode: {sources: [{inline: {path: main.py, content: ''}}]}\n\
         network: {egress: ['*.theirs.example:443']}\n",
    );
    let policy = ground.write(
        "policy.yaml",
        "egress: {allow: [own.example, '*.x.theirs.example', flag.example], \
         private_ranges: [10.0.0.0/8], refuse_ech: true}\n",
    );
    let policy = policy.to_str().expect("a plain path");
    let told = planned(
        &ground,
        &[
            "--policy",
            policy,
            "--grant",
            "egress",
            "--allow-net",
            "flag.example:8443",
            "--add-host",
            "flag.example:10.1.2.3",
            "--publish",
            "8080:80",
            "tools/CODE.yaml",
        ],
    );
    assert_eq!(told.verdict(), "would_start", "{told:#?}");
    let row = |host: &str| {
        let rows = told.plan["egress"].as_array().expect("a list");
        let found = rows.iter().find(|row| row["host"] == host);
        found.expect("a row").clone()
    };
    let own = row("own.example");
    let asked = own["asked_by"].to_string();
    assert!(asked.contains("network.egress"), "{asked}");
    assert!(asked.contains("sandbox.network.egress"), "{asked}");
    assert_eq!(own["granted_by"], "--grant egress");
    assert_eq!(row("flag.example:8443")["granted_by"], "--allow-net");
    assert_eq!(
        row("s.example")["host_policy_leaves"],
        serde_json::json!([])
    );
    let theirs = row("*.theirs.example:443");
    let asked = theirs["asked_by"].to_string();
    assert!(asked.contains("(from w/manifest.yaml)"), "{asked}");
    let network = &told.plan["network"];
    assert_eq!(
        network["allowed"],
        serde_json::json!(["*.x.theirs.example:443", "own.example", "flag.example:8443"])
    );
    assert_eq!(network["capture"], "auto");
    assert_eq!(network["refuse_ech_by"], "host-policy");
    assert_eq!(network["published"][0]["host_port"], 8080);
    assert_eq!(network["added_hosts"][0]["address"], "10.1.2.3");
    let warnings = told.plan["warnings"].to_string();
    assert!(warnings.contains("egress_policy_forbids"), "{warnings}");
    assert!(warnings.contains("s.example"), "{warnings}");
}

#[test]
fn a_plan_names_a_word_that_is_a_file_which_the_command_would_not_see() {
    let ground = Ground::new();
    let script = ground.write("here/script.sh", "true\n");
    let script = script.to_str().expect("UTF-8");
    let told = planned(&ground, &["--", "sh", script]);
    let warnings = told.plan["warnings"].to_string();
    assert!(
        warnings.contains(&format!("add --ro {script}")),
        "{warnings}"
    );
    let told = planned(&ground, &["--ro", script, "--", "sh", script]);
    assert!(
        !told.plan["warnings"]
            .to_string()
            .contains("argument_not_visible")
    );
}

#[test]
fn a_plan_names_the_flag_that_lends_a_socket() {
    let ground = Ground::new();
    let socket = ground.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let file = ground.write("file", "x");
    let [socket, file] = [&socket, &file].map(|path| path.to_str().expect("UTF-8"));
    let told = planned(&ground, &["--socket", socket, "--ro", file, "--", "true"]);
    let view = told.plan["view"].as_array().expect("a list");
    for (path, flag) in [(socket, "--socket"), (file, "--ro")] {
        let mut entries = view.iter();
        let entry = entries.find(|entry| entry["path"] == path).expect(path);
        assert_eq!(entry["decided_by"], flag, "{entry}");
    }
}
