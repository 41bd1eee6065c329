//! Secrets, end to end: where a value comes from, who may have it, and that it appears nowhere else.
//!
//! The value is the canary of the ground, so that invariant I9 looks for it after each case in both
//! streams of the runner and in the report.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

#[path = "secrets/credentials.rs"]
mod credentials;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::processes::{confined_child, confined_children, status};
use support::{Case, Done, Ground, Running, invariants, is_root, needs_root};

const MANIFEST: &str = "id: deploy\nrun: body.sh\nsecrets: {API_KEY: {vault: prod/key}}\n";

/// Writes a file that nobody else may read.
fn private(ground: &Ground, name: &str, contents: &[u8]) -> PathBuf {
    let path = ground.write(name, contents);
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("set");
    path
}

fn script(ground: &Ground, name: &str, text: &str) -> String {
    text_of(&ground.program(name, format!("#!/bin/bash\n{text}\n")))
}

fn text_of(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

/// A bundle as a directory: its manifest and the body that it runs.
fn bundle(ground: &Ground, manifest: &str, body: &str) -> String {
    ground.write("bundle/manifest.yaml", manifest);
    script(ground, "bundle/body.sh", body);
    text_of(&ground.path("bundle"))
}

/// `--policy=FILE` with the directory provider, in which `prod/key` is the canary.
fn policy(ground: &Ground, more: &str) -> String {
    private(
        ground,
        "vault/prod/key",
        format!("{}\n", ground.canary()).as_bytes(),
    );
    stated(ground, "directory", &text_of(&ground.path("vault")), more)
}

fn stated(ground: &Ground, kind: &str, value: &str, more: &str) -> String {
    let text = format!("secrets: {{provider: {{{kind}: {value}}}{more}}}\n");
    format!(
        "--policy={}",
        text_of(&ground.write(&format!("policy-{kind}.yaml"), text))
    )
}

/// The same run with its output in the report, on standard output.
fn captured<'ground>(ground: &'ground Ground, words: &[&str]) -> Case<'ground> {
    let mut words = words.to_vec();
    words.insert(1, "--json");
    ground.command(&words).without("I8")
}

fn report(done: &Done) -> Value {
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:#?}"))
}

/// The output of the body for `text`, in the report.
fn printed(ground: &Ground, flags: &[&str], body: &str) -> Value {
    let bundle = bundle(ground, MANIFEST, body);
    let policy = policy(ground, "");
    let words: Vec<&str> = ["exec", "--grant=secrets", &policy]
        .iter()
        .chain(flags)
        .chain(&[bundle.as_str()])
        .copied()
        .collect();
    let report = report(&captured(ground, &words).done());
    assert_eq!(report["outcome"], "exited", "{report:#}");
    report
}

/// Whether one of the warnings has this code. Leftovers of other test programs may add a warning.
fn has_warning(report: &serde_json::Value, code: &str) -> bool {
    let warnings = report["warnings"].as_array().expect("warnings");
    warnings.iter().any(|warning| warning["code"] == code)
}

/// F-02, F-06.
#[test]
fn a_body_gets_its_secret_and_the_report_names_only_the_source() {
    let ground = Ground::new();
    let manifest = format!("{MANIFEST}inputs: {{type: object}}\n").replace(
        "}}\ninputs",
        "}, REGION: {value: eu-west-1}, GH: {oauth: github}}\ninputs",
    );
    private(&ground, "vault/oauth/github", b"token-of-github");
    let body = "test ${#API_KEY} = $1 && echo \"$REGION ${#GH}\"";
    let bundle = bundle(&ground, &manifest, body);
    let length = ground.canary().len().to_string();
    let policy = policy(&ground, "");
    let done = ground
        .command(&[
            "exec",
            "-v",
            "--grant=secrets",
            &policy,
            &bundle,
            "--",
            &length,
        ])
        .done();
    done.assert_exited(0);
    assert_eq!(done.text(), "eu-west-1 15\n");
    let expected = json!([
        {
            "variable": "API_KEY", "reference": "vault prod/key",
            "provider": "directory", "granted_by": "--grant secrets"
        },
        {
            "variable": "GH", "reference": "oauth github",
            "provider": "directory", "granted_by": "--grant secrets"
        },
    ]);
    assert_eq!(done.report["secrets"], expected);
    let line = "runner: secret API_KEY: vault prod/key, from directory, granted by --grant secrets";
    assert!(done.stderr.contains(line), "{done:#?}");
}

/// F-06, F-07, F-09, E-28: where a value could be while the body runs.
#[test]
fn a_value_lies_in_no_process_but_the_body_and_in_no_record() {
    let ground = Ground::new();
    let bundle = bundle(&ground, MANIFEST, "exec sleep 600");
    let directory = policy(&ground, "");
    let environment = stated(&ground, "environment", "RUNNER_TEST_VAULT_", "");
    // One value outside the runner's variables, and one in them.
    for (policy, own) in [
        (&directory, ground.canary()),
        (&environment, "another-value-7f3a"),
    ] {
        private(&ground, "vault/prod/key", b"value-of-a-file-7f3a");
        let value = if policy == &directory {
            "value-of-a-file-7f3a"
        } else {
            own
        };
        let mut running = ground
            .command(&["exec", "--grant=secrets", policy, &bundle])
            .env("RUNNER_TEST_VAULT_PROD_KEY", own)
            .start();
        look_everywhere(&mut running, &ground, value, policy == &directory);
        running.signal(rustix::process::Signal::TERM);
        running.done().assert_outcome("cancelled", 143);
    }
}

fn look_everywhere(running: &mut Running<'_>, ground: &Ground, value: &str, also_runner: bool) {
    let holds = |path: &str| std::fs::read(path).is_ok_and(|bytes| contains(&bytes, value));
    let marker = ground.marker().to_owned();
    running.until_body_is("sleep");
    let runner = running.pid().to_string();
    let owner = std::fs::metadata(format!("/proc/{runner}/environ")).expect("there");
    assert_eq!(owner.uid(), 0, "a core of the runner could be dumped");
    let mut bodies = 0;
    for entry in std::fs::read_dir("/proc").expect("readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<i32>().is_err() {
            continue;
        }
        assert!(
            !holds(&format!("/proc/{name}/cmdline")),
            "arguments of {name}"
        );
        if !holds(&format!("/proc/{name}/environ")) {
            continue;
        }
        let is_body = invariants::living(&marker)
            .iter()
            .any(|pid| pid.to_string() == name);
        assert!(
            is_body || (name == runner && !also_runner),
            "environment of {name}"
        );
        bodies += usize::from(is_body);
    }
    assert_eq!(bodies, 1, "the body has it");
    let records = files_below(invariants::record_directories());
    assert!(!records.is_empty(), "no record was found");
    for path in records {
        assert!(!holds(&text_of(&path)), "{}", path.display());
    }
}

fn contains(bytes: &[u8], value: &str) -> bool {
    let mut windows = bytes.windows(value.len());
    windows.any(|window| window == value.as_bytes())
}

/// Regular files at `pending` and beneath.
fn files_below(mut pending: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    while let Some(path) = pending.pop() {
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            pending.extend(entries.map(|entry| entry.path()));
        } else if metadata.is_file() {
            files.push(path);
        }
    }
    files
}

/// Files beneath `path` that hold `value`.
fn files_with(value: &str, path: &Path) -> Vec<PathBuf> {
    let mut files = files_below(vec![path.to_owned()]);
    files.retain(|path| contains(&std::fs::read(path).expect("readable"), value));
    files
}

/// Calls `look` with the writable memory of a process, in parts that overlap by 100 bytes.
fn look_at_memory(pid: i32, look: &mut dyn FnMut(&[u8])) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("readable by root");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("readable by root");
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').expect("a range");
        let (from, to) = range.split_once('-').expect("a range");
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).expect("an address"));
        for at in (from..to).step_by(1 << 20) {
            let overlapping = (to - at).min((1 << 20) + 100);
            let mut part = vec![0; usize::try_from(overlapping).expect("small")];
            memory.read_exact_at(&mut part, at).expect("mapped");
            look(&part);
        }
    }
}

/// What lies in the writable memory of a process and starts with `value-of-`.
fn values_in_memory(pid: i32) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    look_at_memory(pid, &mut |part| {
        let mut rest = part;
        while let Some(next) = rest.iter().position(|byte| *byte == b'v') {
            rest = &rest[next..];
            if rest.starts_with(b"value-of-") {
                let is_of_value = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'-';
                let value = rest.iter().take_while(is_of_value).copied().collect();
                found.insert(String::from_utf8(value).expect("ASCII"));
            }
            rest = &rest[1..];
        }
    });
    found
}

/// The children of root's runner that have given up their rights. A filter does not show that: they have
/// that of a runner whose body runs from their start.
fn without_capabilities(runner: i32) -> Vec<i32> {
    let mut children = confined_children(runner);
    children.retain(|pid| status(*pid, "CapPrm").as_deref() == Some("0000000000000000"));
    children
}

/// F-19: whatever the way of a value into the supervisor was.
#[test]
fn a_process_that_may_be_taken_over_has_no_value_in_its_memory() {
    if !is_root() {
        return needs_root("a_process_that_may_be_taken_over_has_no_value_in_its_memory");
    }
    let ground = Ground::new();
    let manifest = "id: deploy\nrun: body.sh\n\
        secrets: {API_KEY: {vault: prod/key}, FLAG: {vault: prod/flag}, FIELD: {vault: connector}}\n";
    let body = "sleep 600; { printf '\"'; head -c 15000000 /dev/zero | tr '\\0' x; printf '\"'; } \
        >\"$RUNNER_OUTPUT\"";
    let bundle = bundle(&ground, manifest, body);
    let inventory = inventory_of(&[
        ("prod/key", OF_DEPLOY),
        ("prod/flag", OF_DEPLOY),
        (
            "connector",
            &format!(
                "kind: oauth, {OF_DEPLOY}, exposures: [{{kind: env, name: FIELD, field: one}}]"
            ),
        ),
    ]);
    let inventory = text_of(&ground.write("SECRETS.md", inventory));
    let policy = policy(&ground, &format!(", inventory: {inventory}"));
    // The allocator overwrites the first sixteen bytes of what it frees.
    let value = |kind: &str| format!("sixteen-and-more-value-of-{kind}.");
    private(&ground, "vault/prod/key", value("provider").as_bytes());
    let structured = json!({"one": value("field"), "other": value("other-field")}).to_string();
    private(&ground, "vault/connector", structured.as_bytes());
    let of_file = private(&ground, "of-file", value("file").as_bytes());
    let of_file = format!("--secret=OF_FILE=file:{}", text_of(&of_file));
    // The variable of the flag, which has the marker otherwise, does not count beside the flag.
    let marker = format!("--env=RUNNER_TEST_MARKER={}", ground.marker());
    let words = [
        "exec",
        "--grant=secrets",
        "--allow-net=example.test:443",
        "--secret=OF_VARIABLE=env:OF_VARIABLE",
        "--env=FLAG",
        &marker,
        &of_file,
        &policy,
        &bundle,
    ];
    let mut running = ground
        .command(&words)
        .env("OF_VARIABLE", &value("variable"))
        .env("FLAG", &value("flag"))
        .without("I8")
        .start();
    running.until_body_is("sleep");
    let runner = running.pid();
    let of_runner = values_in_memory(runner);
    for kind in ["variable", "file", "flag", "provider", "field"] {
        assert!(
            of_runner.contains(&format!("value-of-{kind}")),
            "{of_runner:?}"
        );
    }
    running.until("a resolver and a relay", || {
        without_capabilities(runner).len() == 2
    });
    let network = without_capabilities(runner);
    let of_network: Vec<_> = network.iter().map(|pid| values_in_memory(*pid)).collect();
    assert_eq!(of_network, [BTreeSet::new(), BTreeSet::new()]);
    let sleeping = invariants::living(ground.marker());
    let sleeping = sleeping.into_iter().find(|pid| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm == "sleep\n")
    });
    let send = |pid, signal| {
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("sent");
    };
    send(sleeping.expect("it sleeps"), rustix::process::Signal::TERM);
    let reader = std::cell::Cell::new(None);
    running.until("the reader of the document", || {
        let mut children = without_capabilities(runner).into_iter();
        reader.set(children.find(|pid| !network.contains(pid)));
        reader.get().is_some()
    });
    let reader = reader.get().expect("found");
    send(reader, rustix::process::Signal::STOP);
    let of_reader = values_in_memory(reader);
    send(reader, rustix::process::Signal::CONT);
    assert_eq!(of_reader, BTreeSet::new());
    running.done().assert_outcome("exited", 0);
}

/// F-19: also of a process that starts before it is known whether there are secrets, and of a run without any.
#[test]
fn a_process_that_may_be_taken_over_has_no_variable_of_the_caller() {
    if !is_root() {
        return needs_root("a_process_that_may_be_taken_over_has_no_variable_of_the_caller");
    }
    let ground = Ground::new();
    let command = |words: &[&str]| {
        let case = ground.command(words).without("I8");
        case.env("OF_CALLER", "sixteen-and-more-value-of-caller.")
    };
    let bundle = std::fs::read(ground.script("run: body.sh\n", "exec sleep 600")).expect("read");
    let (start, rest) = bundle.split_at(bundle.len() / 2);
    let (end, mut pipe) = std::io::pipe().expect("a pipe");
    pipe.write_all(start).expect("fits");
    let mut case = command(&["exec", "--allow-net=example.test:443", "-"]);
    case.command.stdin(end);
    let mut running = case.start();
    let unpacker = confined_child(running.pid());
    let of_runner = values_in_memory(running.pid());
    assert!(of_runner.contains("value-of-caller"), "{of_runner:?}");
    assert_eq!(values_in_memory(unpacker), BTreeSet::new());
    pipe.write_all(rest).expect("fits");
    drop(pipe);
    running.until_body_is("sleep");
    let runner = running.pid();
    running.until("a resolver and a relay", || {
        without_capabilities(runner).len() == 2
    });
    let network = without_capabilities(runner);
    let of_network: Vec<_> = network.iter().map(|pid| values_in_memory(*pid)).collect();
    assert_eq!(of_network, [BTreeSet::new(), BTreeSet::new()]);
    running.signal(rustix::process::Signal::TERM);
    running.done().assert_outcome("cancelled", 143);

    // It accepts connections, and does not answer.
    let registry = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = registry.local_addr().expect("bound");
    let image = format!(
        "--image=docker://{address}/team/image@sha256:{}",
        "0".repeat(64)
    );
    let running = command(&["run", "--insecure", &image, "--", "/bin/true"]).start();
    let fetcher = confined_child(running.pid());
    assert_eq!(values_in_memory(fetcher), BTreeSet::new());
    running.signal(rustix::process::Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
}

/// F-05: a value is never in a file: neither in the body's view nor in the leftovers of a killed runner.
#[test]
fn a_killed_runner_leaves_no_file_with_a_value() {
    let ground = Ground::new();
    let look = "printenv API_KEY | grep -rlsF -f - /bundle /scratch /tmp /runner /etc /home /dev/shm\n\
        echo looked; exec sleep 600";
    let bundle = bundle(&ground, MANIFEST, look);
    let policy = policy(&ground, "");
    // The runner writes only below the ground.
    let places = [
        ("RUNNER_OPT_RUNTIME_DIRECTORY", "runtime", 0o711),
        ("RUNNER_OPT_CACHE_DIRECTORY", "cache", 0o700),
        ("TMPDIR", "temporary", 0o711),
    ];
    for (_, name, mode) in places {
        std::fs::create_dir(ground.path(name)).expect("made");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(ground.path(name), mode).expect("set");
    }
    let there = |words: &[&str]| {
        let case = ground.command(words);
        places.iter().fold(case, |case, (variable, name, _)| {
            case.env(variable, &text_of(&ground.path(name)))
        })
    };
    let case = there(&["exec", "--grant=secrets", &policy, &bundle]);
    let mut running = case.without("I4").without("I5").without("I8").start();
    // The body has looked, and its output has been forwarded.
    running.until_body_is("sleep");
    running.until_printed("looked\n".len() as u64);
    let only = [ground.path("vault/prod/key")];
    assert_eq!(files_with(ground.canary(), &ground.path("")), only);
    running.signal(rustix::process::Signal::KILL);
    let done = running.done();
    assert_eq!((done.code, done.text().as_str()), (137, "looked\n"));
    assert_eq!(files_with(ground.canary(), &ground.path("")), only);
    // The next start there removes the groups of the killed one.
    let next = there(&["run", "--", "/bin/true"]).done();
    next.assert_exited(0);
    let is_told = has_warning(&next.report, "leftover_removed");
    assert_eq!(is_told, support::has_cgroup(), "{next:#?}");
}

/// F-03: complete, in pieces, of several lines, in invalid text.
#[test]
fn secret_values_are_masked_in_every_encoding() {
    let ground = Ground::new();
    let body = "printf %s \"${API_KEY:0:5}\"; sleep 0.2; printf '%s.\\n' \"${API_KEY:5}\"\n\
        echo \"<$API_KEY$API_KEY>\" >&2; printf '\\xff%s' \"$API_KEY\" >&2";
    let report = printed(&ground, &[], body);
    assert_eq!(report["stdout"]["text"], "***.\n");
    assert_eq!(report["stdout"]["bytes"], ground.canary().len() + 2);
    assert_eq!(report["stderr"]["text"], "<***>\n\u{fffd}***");
    // Base64 of the masked bytes.
    assert_eq!(report["stderr"]["text_base64"], "PCoqKj4K/yoqKg==");
    // A value that the body has transformed is another text.
    let body = "printf %s \"$API_KEY\" | base64 --wrap=0 | tr -d =; printf %s \"$API_KEY\" | rev";
    let report = printed(&ground, &[], body);
    let said = report["stdout"]["text"].as_str().expect("text");
    let mirrored: String = ground.canary().chars().rev().collect();
    assert!(said.ends_with(&mirrored) && !said.contains('*'), "{said}");
}

#[test]
fn a_value_of_several_lines_is_masked_as_a_whole_and_line_by_line() {
    let ground = Ground::new();
    let value = format!("-----BEGIN KEY\n{}\nend of it", ground.canary());
    private(&ground, "vault/prod/pem", format!("{value}\n").as_bytes());
    let manifest = MANIFEST.replace("prod/key", "prod/pem");
    let body = "echo \"$API_KEY\"; echo \"$API_KEY\" | sed 's/^/  | /'; echo plain";
    let bundle = bundle(&ground, &manifest, body);
    let policy = policy(&ground, "");
    let words = ["exec", "--grant=secrets", &policy, &bundle];
    let report = report(&captured(&ground, &words).done());
    let expected = "***\n  | ***\n  | ***\n  | ***\nplain\n";
    assert_eq!(report["stdout"]["text"], expected);
}

#[test]
fn a_value_that_the_output_limit_cuts_is_masked_as_far_as_it_came() {
    let ground = Ground::new();
    for kept in [1, 5, ground.canary().len() - 1] {
        let limit = format!("--max-output={}", 100 + kept);
        let body = "printf '%100s%s%s' '' \"$API_KEY\" \"$API_KEY\"";
        let report = printed(&ground, &[&limit], body);
        let expected = format!("{}***", " ".repeat(100));
        assert_eq!(report["stdout"]["text"], expected, "{kept}");
    }
}

/// F-04: the output document of the body, and messages about it.
#[test]
fn a_value_in_the_structured_output_is_masked_and_errors_do_not_quote_it() {
    let ground = Ground::new();
    let body = "printf '{\"%s\": [\"a %s\", 1]}' \"$API_KEY\" \"$API_KEY\" >$RUNNER_OUTPUT";
    let report_of = printed(&ground, &[], body);
    assert_eq!(report_of["output"], json!({"***": ["a ***", 1]}));
    let policy = policy(&ground, "");
    for schema in ["{type: integer}", "{enum: [x]}", "{maxLength: 3}"] {
        let manifest = format!("{MANIFEST}outputs: {schema}\n");
        let body = "printf '\"%s\\\\n\"' \"$API_KEY\" >$RUNNER_OUTPUT";
        let bundle = bundle(&ground, &manifest, body);
        let words = ["exec", "--grant=secrets", &policy, &bundle];
        let report = report(&captured(&ground, &words).done());
        assert_eq!(report["error"]["code"], "invalid-output", "{report:#}");
        let message = report["error"]["message"].as_str().expect("a message");
        assert!(message.contains("***"), "{message}");
        // The same with passed-through output: the message is the runner's.
        let done = ground.command(&words).done();
        done.assert_error("failed", "invalid-output");
    }
}

#[test]
fn a_value_of_fewer_than_four_bytes_is_not_masked_and_a_warning_says_so() {
    let ground = Ground::new();
    private(&ground, "vault/prod/pin", b"123\n");
    let manifest = MANIFEST.replace("prod/key", "prod/pin");
    let bundle = bundle(&ground, &manifest, "echo $API_KEY");
    let policy = policy(&ground, "");
    let words = ["exec", "--grant=secrets", &policy, &bundle];
    let report = report(&captured(&ground, &words).done());
    assert_eq!(report["stdout"]["text"], "123\n");
    assert!(has_warning(&report, "secret_not_masked"), "{report:#}");
}

#[test]
fn each_provider_gives_the_value_of_the_slug() {
    let ground = Ground::new();
    let bundle = bundle(&ground, MANIFEST, "echo \"$API_KEY\"");
    let program = script(
        &ground,
        "ask",
        &format!("test \"$2\" = prod/key && echo {}", ground.canary()),
    );
    let command = format!("[{program}, get]");
    for (name, value) in [("environment", "RUNNER_TEST_VAULT_"), ("command", &command)] {
        let policy = stated(&ground, name, value, "");
        let words = ["exec", "--grant=secrets", &policy, &bundle];
        let case = captured(&ground, &words).env("RUNNER_TEST_VAULT_PROD_KEY", ground.canary());
        let report = report(&case.done());
        assert_eq!(report["stdout"]["text"], "***\n", "{report:#}");
        assert_eq!(report["secrets"][0]["provider"], name);
    }
}

/// No provider is asked before the grant, and nothing is launched before there is a value.
#[test]
fn a_secret_that_cannot_be_had_is_refused_before_anything_runs() {
    let ground = Ground::new();
    let bundle = bundle(&ground, MANIFEST, "echo ran");
    let asked = ground.path("asked");
    let fails = format!(
        "touch {}; echo {}; echo {} >&2; exit 3",
        asked.display(),
        ground.canary(),
        ground.canary()
    );
    let program = script(&ground, "ask", &fails);
    let command = stated(&ground, "command", &format!("[{program}]"), "");
    let done = ground.command(&["exec", &command, &bundle]).done();
    done.assert_error("refused", "grant_required");
    assert!(!asked.exists(), "the provider was asked without a grant");
    // What is missing is the grant, and the next run follows the hint.
    let hint = done.report["error"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("--grant secrets"), "{hint}");
    let done = ground
        .command(&["exec", "--grant=secrets", &command, &bundle])
        .done();
    done.assert_error("refused", "secret_unresolved");
    assert!(asked.exists());
    let message = done.report["error"]["message"].as_str().expect("a message");
    for part in ["API_KEY", "prod/key", "ask", "exit code 3"] {
        assert!(message.contains(part), "{message}");
    }
    let directory = stated(&ground, "directory", &text_of(&ground.path("empty")), "");
    let file = ground.path("empty/prod/key");
    std::fs::create_dir_all(file.parent().expect("a parent")).expect("made");
    type Make = fn(&Path);
    let rows: [(&str, Make, &str); 4] = [
        ("nothing there", |_| (), "has no file"),
        (
            "a link",
            |at| std::os::unix::fs::symlink("/etc/passwd", at).expect("linked"),
            "is a link",
        ),
        (
            "a folder",
            |at| std::fs::create_dir(at).expect("made"),
            "not a regular file",
        ),
        (
            "everybody's",
            |at| std::fs::write(at, "x").expect("written"),
            "other users may read",
        ),
    ];
    for (what, make, part) in rows {
        make(&file);
        let done = ground
            .command(&["exec", "--grant=secrets", &directory, &bundle])
            .done();
        done.assert_error("refused", "secret_unresolved");
        let message = done.report["error"]["message"].as_str().expect("a message");
        assert!(
            message.contains(part) && message.contains("API_KEY"),
            "{what}: {message}"
        );
        assert!(done.stdout.is_empty(), "{done:#?}");
        if file.is_dir() {
            std::fs::remove_dir(&file).expect("removed");
        } else if file.symlink_metadata().is_ok() {
            std::fs::remove_file(&file).expect("removed");
        }
    }
    let denied = ground.write("denied.yaml", "deny_grants: [secrets]\n");
    let denied = format!("--policy={}", text_of(&denied));
    let manifest = format!("--manifest={bundle}/manifest.yaml");
    let done = ground
        .command(&["exec", &denied, &manifest, &bundle])
        .done();
    done.assert_error("refused", "grant_forbidden");
}

#[test]
fn values_by_the_caller_precede_the_provider() {
    let ground = Ground::new();
    let bundle = bundle(&ground, MANIFEST, "echo \"$API_KEY\"");
    let policy = policy(&ground, "");
    let own = private(&ground, "own", b"value-of-my-own\n");
    let reference = format!("API_KEY=file:{}", text_of(&own));
    let done = ground
        .command(&["exec", "--secret", &reference, &policy, &bundle])
        .done();
    done.assert_exited(0);
    assert_eq!(done.text(), "value-of-my-own\n");
    let record = &done.report["secrets"][0];
    assert_eq!(record["provider"], "caller");
    assert_eq!(record["reference"], format!("file:{}", text_of(&own)));
    // What the manifest calls a secret is masked, even if the caller passes it openly.
    let words = ["exec", "-e", "API_KEY=value-of-my-own", &policy, &bundle];
    let report = report(&captured(&ground, &words).done());
    assert_eq!(report["stdout"]["text"], "***\n");
    assert_eq!(report["secrets"][0]["granted_by"], "-e");
}

#[test]
fn an_inventory_limits_secrets_to_tools() {
    let ground = Ground::new();
    let inventory = text_of(&ground.write("SECRETS.md", ""));
    let policy = policy(&ground, &format!(", inventory: {inventory}"));
    let entry = |more: &str| {
        let text = format!(
            "---\nsecrets:\n- slug: prod/key\n  name: Key\n  description: A key.\n  {more}\n---\n"
        );
        ground.write("SECRETS.md", text);
    };
    let bundle = bundle(&ground, MANIFEST, "echo ${#API_KEY}");
    for (more, granted) in [
        ("access: {bind: [{role: admin}, {tool: deploy}]}", true),
        ("access: {reveal: [{tool: deploy}]}", true),
        ("tags: []", false),
        ("access: {bind: [], reveal: []}", false),
        (
            "access: {bind: [{tool: other}, {workflow: deploy}, {role: deploy}]}",
            false,
        ),
        ("access: {rotate: [{tool: deploy}]}", false),
    ] {
        entry(more);
        let done = ground
            .command(&["exec", "--grant=secrets", &policy, &bundle])
            .done();
        if granted {
            done.assert_exited(0);
            let word = done.report["secrets"][0]["granted_by"]
                .as_str()
                .expect("a word");
            assert!(word.starts_with("--grant secrets, access."), "{word}");
        } else {
            done.assert_error("refused", "secret_not_granted");
            let message = done.report["error"]["message"].as_str().expect("a message");
            for part in ["API_KEY", "prod/key", "`deploy`", "SECRETS.md:3:3"] {
                assert!(message.contains(part), "{message}");
            }
            let hint = done.report["error"]["hint"].as_str().expect("a hint");
            assert!(
                hint.contains("access: {bind: [{tool: \"deploy\"}]}"),
                "{hint}"
            );
        }
    }
    // Without a statement in the inventory no secret is requested; a slug that it does not have is unknown.
    entry("access: {bind: [{tool: deploy}]}\n- slug: other\n  name: n\n  description: d");
    let unlisted = MANIFEST.replace("prod/key", "prod/unlisted");
    private(&ground, "vault/prod/unlisted", b"value");
    let bundle_of_it = support_bundle(&ground, "unlisted", &unlisted);
    let done = ground
        .command(&["exec", "--grant=secrets", &policy, &bundle_of_it])
        .done();
    done.assert_error("refused", "secret_not_granted");
    // A value in the inventory is refused and not repeated.
    entry(&format!("value: {}", ground.canary()));
    let done = ground
        .command(&["exec", "--grant=secrets", &policy, &bundle])
        .done();
    done.assert_error("refused", "plaintext_credential");
}

fn support_bundle(ground: &Ground, folder: &str, manifest: &str) -> String {
    ground.write(&format!("{folder}/manifest.yaml"), manifest);
    script(ground, &format!("{folder}/body.sh"), "echo ran");
    text_of(&ground.path(folder))
}

#[test]
fn names_of_env_auth_stand_for_slugs_by_the_inventory_and_one_field_is_not_the_whole_value() {
    let ground = Ground::new();
    private(
        &ground,
        "vault/connector",
        format!(
            "{{\"accessToken\": \"{}\", \"refreshToken\": \"never-given\"}}",
            ground.canary()
        )
        .as_bytes(),
    );
    private(&ground, "vault/plain-name", b"plain-value");
    let inventory = "---\nsecrets:\n\
        - slug: connector\n  name: n\n  description: d\n  kind: oauth\n\
        \x20 access: {bind: [{tool: deploy}]}\n\
        \x20 exposures: [{kind: later}, {kind: env, name: GH_TOKEN, field: accessToken}]\n\
        - slug: plain-name\n  name: n\n  description: d\n  access: {bind: [{tool: deploy}]}\n---\n";
    let inventory = text_of(&ground.write("SECRETS.md", inventory));
    let policy = policy(&ground, &format!(", inventory: {inventory}"));
    let manifest = "id: deploy\nrun: body.sh\nsandbox: {provider: local, config: {}, \
        env: {auth: {ref: ./SECRETS.md, state: {env: [GH_TOKEN, PLAIN_NAME]}}}}\n";
    let body = "echo \"$GH_TOKEN $PLAIN_NAME\"; env | grep -c never-given";
    let bundle = bundle(&ground, manifest, body);
    let words = ["exec", "--grant=secrets", &policy, &bundle];
    let report = report(&captured(&ground, &words).done());
    assert_eq!(report["stdout"]["text"], "*** ***\n0\n", "{report:#}");
    assert_eq!(report["secrets"][0]["reference"], "vault connector");
}

#[test]
fn the_callers_own_manifest_names_an_inventory_of_the_workspace() {
    let ground = Ground::new();
    let manifest = format!(
        "{MANIFEST}sandbox: {{provider: local, config: {{}}, env: {{auth: {{ref: ./SECRETS.md}}}}}}\n"
    );
    ground.write("work/tools/manifest.yaml", manifest);
    let bundle = bundle(&ground, "run: body.sh\n", "echo ${#API_KEY}");
    let policy = policy(&ground, "");
    let run = || {
        let words = ["exec", "--manifest=tools/manifest.yaml", &policy, &bundle];
        let mut case = ground.command(&words);
        case.command.current_dir(ground.workspace());
        case.done()
    };
    let done = run();
    done.assert_error("refused", "secret_not_granted");
    let message = done.report["error"]["message"].as_str().expect("a message");
    let looked = "./SECRETS.md (is `tools/SECRETS.md`, which is not there)";
    assert!(message.contains(looked), "{message}");
    let entry = "---\nsecrets: [{slug: prod/key, name: n, description: d, \
        access: {bind: [{tool: deploy}]}}]\n---\n";
    ground.write("work/tools/SECRETS.md", entry);
    let done = run();
    done.assert_exited(0);
    let word = &done.report["secrets"][0]["granted_by"];
    assert_eq!(word, "--manifest, access.bind of tools/SECRETS.md:2:11");
    // Never through a link, which could lead anywhere.
    std::fs::rename(
        ground.path("work/tools/SECRETS.md"),
        ground.path("outside.md"),
    )
    .expect("moved");
    std::os::unix::fs::symlink("../../outside.md", ground.path("work/tools/SECRETS.md"))
        .expect("linked");
    run().assert_error("refused", "secret_not_granted");
}

#[test]
fn a_signal_ends_the_wait_for_a_provider_and_the_provider_with_it() {
    let ground = Ground::new();
    let bundle = bundle(&ground, MANIFEST, "echo ran");
    let asked = ground.path("asked");
    let program = script(
        &ground,
        "ask",
        &format!("echo $$ >{}; exec sleep 600", asked.display()),
    );
    let policy = stated(&ground, "command", &format!("[{program}]"), "");
    let mut running = ground
        .command(&["exec", "--grant=secrets", &policy, &bundle])
        .start();
    running.until("the provider is asked", || {
        std::fs::read_to_string(&asked).is_ok_and(|text| text.ends_with('\n'))
    });
    running.signal(rustix::process::Signal::TERM);
    let done = running.done();
    done.assert_outcome("cancelled", 143);
    assert!(done.stdout.is_empty(), "{done:#?}");
    let pid = std::fs::read_to_string(&asked).expect("written");
    let at = format!("/proc/{}", pid.trim());
    invariants::eventually("the provider lives", || !Path::new(&at).exists());
}

#[test]
fn a_runner_without_secrets_stays_as_it_is() {
    let ground = Ground::new();
    let mut running = ground.command(&["run", "--", "/bin/sleep", "600"]).start();
    let marker = ground.marker().to_owned();
    running.until("the body runs", || !invariants::living(&marker).is_empty());
    let owner = std::fs::metadata(format!("/proc/{}/environ", running.pid())).expect("there");
    // Debuggers and profilers of the caller still work.
    assert_eq!(owner.uid() == 0, is_root());
    running.signal(rustix::process::Signal::TERM);
    let done = running.done();
    done.assert_outcome("cancelled", 143);
    assert_eq!(done.report["secrets"], json!([]));
}

/// F-12, E-28: a process with secrets cannot be read by another process of the same uid, and leaves
/// no core dump when it crashes, whatever the caller allows. After the run no process remains to
/// read: values are overwritten in memory as far as possible.
#[test]
fn the_memory_of_a_runner_with_secrets_is_closed_and_leaves_no_core() {
    let ground = Ground::new();
    let bundle = bundle(&ground, MANIFEST, "exec sleep 600");
    let policy = policy(&ground, "");
    let mut case = ground
        .command(&["exec", "--grant=secrets", &policy, &bundle])
        .without("I4")
        .without("I5")
        .without("I8");
    // A core dump would be in the working directory of the crashed process.
    let crash = ground.path("crash");
    std::fs::create_dir(&crash).expect("made");
    case.command.current_dir(&crash);
    let mut running = case.start();
    let runner = rustix::process::Pid::from_raw(running.pid()).expect("a pid");
    let unlimited = rustix::process::Rlimit {
        current: None,
        maximum: None,
    };
    let marker = ground.marker().to_owned();
    running.until("the body runs", || !invariants::living(&marker).is_empty());
    if is_root() {
        let core = rustix::process::Resource::Core;
        rustix::process::prlimit(Some(runner), core, unlimited).expect("set");
    } else {
        for name in ["mem", "environ", "maps"] {
            let path = format!("/proc/{}/{name}", running.pid());
            let opened = std::fs::File::open(&path);
            let refused = opened.expect_err("it is not dumpable").raw_os_error();
            assert!(
                [Some(libc::EACCES), Some(libc::EPERM)].contains(&refused),
                "{path}"
            );
        }
        let traced = std::process::Command::new("strace")
            .args(["-o/dev/null", "-p", &running.pid().to_string()])
            .output()
            .expect("strace starts");
        let said = String::from_utf8_lossy(&traced.stderr);
        assert!(
            !traced.status.success() && said.contains("not permitted"),
            "{said}"
        );
    }
    running.signal(rustix::process::Signal::SEGV);
    assert_eq!(running.done().code, 139);
    assert_eq!(
        std::fs::read_dir(&crash).expect("readable").count(),
        0,
        "a core"
    );
}

/// An inventory: for each slug the fields of its entry, besides its description.
fn inventory_of(entries: &[(&str, &str)]) -> String {
    let entries = entries
        .iter()
        .map(|(slug, more)| format!("- {{slug: {slug}, name: n, description: d, {more}}}\n"));
    format!("---\nsecrets:\n{}---\n", entries.collect::<String>())
}

const OF_DEPLOY: &str = "access: {bind: [{tool: deploy}]}";
const OF_OTHER: &str = "access: {bind: [{tool: other}, {workflow: deploy}]}";

/// AIP-26's lean form: the inventory states which secrets there are, and their variables.
#[test]
fn a_lean_reference_to_an_inventory_gives_what_it_binds_to_this_tool() {
    let ground = Ground::new();
    let connector = format!(
        "kind: oauth, {OF_DEPLOY}, exposures: [{{kind: env, name: GH, field: accessToken}}]"
    );
    let urls = format!("{OF_DEPLOY}, metadata: {{bindings: {{env: [DATABASE_URL, PG_URL]}}}}");
    let inventory = inventory_of(&[
        ("prod/key", OF_DEPLOY),
        ("other-key", OF_OTHER),
        ("connector", &connector),
        ("urls", &urls),
    ]);
    ground.write("bundle/SECRETS.md", inventory);
    let policy = policy(&ground, "");
    private(&ground, "vault/other-key", b"value-of-other");
    private(&ground, "vault/urls", b"value-of-urls");
    let tokens = br#"{"accessToken": "value-of-access", "refreshToken": "value-of-refresh"}"#;
    private(&ground, "vault/connector", tokens);
    let manifest = "id: deploy\nrun: body.sh\nsecrets: {ref: ./SECRETS.md}\n";
    let body = "echo ${#PROD_KEY} $GH $DATABASE_URL $PG_URL; env | grep -c 'of-other\\|of-refresh'";
    let bundle = bundle(&ground, manifest, body);
    let done = ground.command(&["exec", &policy, &bundle]).done();
    done.assert_error("refused", "grant_required");
    let done = ground
        .command(&["exec", "--grant=secrets", &policy, &bundle])
        .done();
    done.assert_exited(1);
    let length = ground.canary().len();
    let expected = format!("{length} value-of-access value-of-urls value-of-urls\n0\n");
    assert_eq!(done.text(), expected);
    let word = &done.report["secrets"][0]["granted_by"];
    assert_eq!(word, "--grant secrets, access.bind of SECRETS.md:3:3");
    // An inventory with an entry for another tool only denies the secret.
    ground.write("bundle/SECRETS.md", inventory_of(&[("prod/key", OF_OTHER)]));
    let done = ground.command(&["exec", &policy, &bundle]).done();
    assert!(has_warning(&done.report, "secrets_none"), "{done:#?}");
}

/// F-16: an unknown slug and a binding to somebody else are refused before a value is fetched.
#[test]
fn a_slug_that_the_named_inventory_does_not_bind_to_this_tool_is_not_delivered() {
    let ground = Ground::new();
    let asked = ground.path("asked");
    let program = script(
        &ground,
        "ask",
        &format!("touch {}; echo value", asked.display()),
    );
    let policy = stated(&ground, "command", &format!("[{program}]"), "");
    let manifest = "id: deploy\nrun: body.sh\nsandbox: {provider: local, config: {}, \
        env: {auth: {ref: ./SECRETS.md, state: {env: [PROD_KEY]}}}}\n";
    let bundle = bundle(&ground, manifest, "echo ran");
    let run = || {
        ground
            .command(&["exec", "--grant=secrets", &policy, &bundle])
            .done()
    };
    let here = "exposures: [{kind: env, name: PROD_KEY, field: value}]";
    for inventory in [
        None,
        Some(inventory_of(&[("prod-key", OF_OTHER)])),
        Some(inventory_of(&[(
            "prod-key",
            &format!("{OF_OTHER}, {here}"),
        )])),
        Some(inventory_of(&[("another", OF_DEPLOY)])),
    ] {
        if let Some(inventory) = &inventory {
            ground.write("bundle/SECRETS.md", inventory);
        }
        run().assert_error("refused", "secret_not_granted");
        assert!(!asked.exists(), "{inventory:?}");
    }
    ground.write(
        "bundle/SECRETS.md",
        inventory_of(&[("prod-key", OF_DEPLOY)]),
    );
    let done = run();
    done.assert_exited(0);
    assert!(asked.exists());
}

/// F-16: the more trusted inventory decides, the workspace before the bundle; all inventories that
/// list it must agree.
#[test]
fn the_inventory_of_a_workspace_or_a_bundle_is_found_by_itself() {
    let ground = Ground::new();
    let policy = policy(&ground, "");
    let bundle = bundle(&ground, MANIFEST, "echo ${#API_KEY}");
    let workspace = text_of(&ground.workspace().canonicalize().expect("there"));
    let in_workspace = format!("--workspace={workspace}");
    let words = ["exec", "--grant=secrets", &policy];
    let run = |more: &[&str]| {
        let words = [&words[..], more, &[bundle.as_str()]].concat();
        ground.command(&words).done()
    };
    let of = |entry| inventory_of(&[("prod/key", entry)]);
    run(&[&in_workspace]).assert_exited(0);
    ground.write("bundle/.secrets/SECRETS.md", of(OF_OTHER));
    run(&[]).assert_error("refused", "secret_not_granted");
    ground.write("bundle/.secrets/SECRETS.md", of(OF_DEPLOY));
    run(&[]).assert_exited(0);
    // Grants of the bundle's inventory do not count against the workspace, nor vice versa.
    for (of_workspace, of_bundle, granted) in [
        (of(OF_OTHER), of(OF_DEPLOY), false),
        (of(OF_DEPLOY), of(OF_OTHER), false),
        (
            inventory_of(&[("another", OF_DEPLOY)]),
            of(OF_DEPLOY),
            false,
        ),
        (of(OF_DEPLOY), inventory_of(&[("another", OF_DEPLOY)]), true),
        ("no inventory".to_owned(), of(OF_DEPLOY), false),
    ] {
        ground.write("work/.secrets/SECRETS.md", &of_workspace);
        ground.write("bundle/.secrets/SECRETS.md", &of_bundle);
        let done = run(&[&in_workspace]);
        if granted {
            done.assert_exited(0);
        } else {
            done.assert_error("refused", "secret_not_granted");
        }
    }
    // The inventory of its workspace also applies to the caller's own manifest.
    ground.write("work/manifest.yaml", MANIFEST);
    let manifest = format!("--manifest={workspace}/manifest.yaml");
    ground.write("work/.secrets/SECRETS.md", of(OF_OTHER));
    run(&[&in_workspace, &manifest]).assert_error("refused", "secret_not_granted");
    ground.write("work/.secrets/SECRETS.md", of(OF_DEPLOY));
    run(&[&in_workspace, &manifest]).assert_exited(0);
}

/// F-16: a request has the same secret and the same grant in a directory and in the bundle made of it.
#[test]
fn a_secret_is_the_same_before_and_after_bundling() {
    let ground = Ground::new();
    let policy = policy(&ground, "");
    private(&ground, "vault/api-key", b"value-by-name");
    // The inventories are in the bundle only as far as `bundle` resolves them.
    ground.write("bundle/.bundleignore", ".secrets\nSECRETS.md\n");
    let legacy = "runtime: {mode: subprocess, env: [API_KEY]}\n";
    let auth = |reference: &str| {
        format!(
            "sandbox: {{provider: local, config: {{}}, env: {{auth: {{{reference}state: {{env: [API_KEY]}}}}}}}}\n"
        )
    };
    let mapped = |holder: &str| format!("{holder}, metadata: {{bindings: {{env: [API_KEY]}}}}");
    let (mine, of_another) = (mapped(OF_DEPLOY), mapped(OF_OTHER));
    let other_slug = inventory_of(&[("prod/key", &mine)]);
    let two = inventory_of(&[("another-key", &of_another), ("prod/key", &mine)]);
    let denied = inventory_of(&[("prod/key", &of_another)]);
    let by_name = inventory_of(&[("api-key", OF_DEPLOY)]);
    let (plain, named) = (auth(""), auth("ref: ./SECRETS.md, "));
    let (prod, derived) = (Some("vault prod/key"), Some("vault api-key"));
    for (block, inventory, expected) in [
        // AIP-17: the slug is derived from the variable.
        (legacy, &other_slug, None),
        (legacy, &by_name, derived),
        (&plain, &other_slug, prod),
        (&plain, &two, prod),
        (&plain, &denied, None),
        (&plain, &by_name, derived),
        (&named, &other_slug, prod),
        (&named, &two, prod),
        (&named, &denied, None),
        (&named, &by_name, derived),
    ] {
        let manifest = format!("id: deploy\nrun: body.sh\n{block}");
        let directory = bundle(&ground, &manifest, "echo ran");
        let file = match block == named {
            true => "bundle/SECRETS.md",
            false => "bundle/.secrets/SECRETS.md",
        };
        ground.write(file, inventory);
        let made = text_of(&ground.path("made.tar.gz"));
        let output = std::process::Command::new(support::runner())
            .args(["bundle", "-o", &made, &directory])
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{output:?}");
        for form in [&directory, &made] {
            let words = ["exec", "--grant=secrets", &policy, form];
            let done = ground.command(&words).done();
            match expected {
                Some(reference) => {
                    done.assert_exited(0);
                    let found = &done.report["secrets"][0]["reference"];
                    assert_eq!(found, reference, "{form}: {block}{inventory}");
                }
                None => drop(done.assert_error("refused", "secret_not_granted")),
            }
        }
        std::fs::remove_file(ground.path(file)).expect("removed");
    }
}

/// F-16: a bundle contains what the inventories of its workspace state about its secrets.
#[test]
fn a_made_bundle_is_bound_by_the_inventory_that_it_was_made_with() {
    let ground = Ground::new();
    let policy = policy(&ground, "");
    let tokens = br#"{"accessToken": "value-of-access", "refreshToken": "value-of-refresh"}"#;
    private(&ground, "vault/connector", tokens);
    let connector = "kind: oauth, backend: 'vault://topology', access: {bind: [{tool: deploy}]}, \
        exposures: [{kind: env, name: GH, field: accessToken}]";
    let inventory = inventory_of(&[("connector", connector), ("unasked-for", OF_OTHER)]);
    ground.write("work/.secrets/SECRETS.md", inventory);
    ground.write(
        "work/tool/manifest.yaml",
        "id: deploy\nrun: body.sh\ncode: ./shared\n",
    );
    ground.write(
        "work/shared/manifest.yaml",
        "kind: code-workspace\nid: shared\nsecrets: {ref: ../.secrets/SECRETS.md}\n\
         code: {sources: [{inline: {path: body.sh, content: 'env | grep value-of'}}]}\n",
    );
    let made = text_of(&ground.path("made.tar.gz"));
    let workspace = format!("--workspace={}", text_of(&ground.workspace()));
    let tool = text_of(&ground.path("work/tool"));
    let make = || {
        std::process::Command::new(support::runner())
            .args(["bundle", "-o", &made, &workspace, &tool])
            .output()
            .expect("it starts")
    };
    let output = make();
    assert!(output.status.success(), "{output:?}");
    let done = ground
        .command(&["exec", "--grant=secrets", &policy, &made])
        .done();
    done.assert_exited(0);
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    assert!(
        lines.contains(&"GH=value-of-access".to_owned()),
        "{lines:?}"
    );
    assert!(!done.text().contains("value-of-refresh"), "{lines:?}");
    let word = &done.report["secrets"][0]["granted_by"];
    let word = word.as_str().expect("a word");
    assert!(
        word.contains("access.bind of .runner/manifest.json"),
        "{word}"
    );
    let listed = std::process::Command::new("tar")
        .args(["-xzOf", &made, ".runner/manifest.json"])
        .output()
        .expect("tar starts");
    let resolved = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(resolved.contains("accessToken"), "{resolved}");
    assert!(
        !resolved.contains("unasked-for") && !resolved.contains("topology"),
        "{resolved}"
    );
    // What no run would get is reported, and no run gets it.
    let manifest =
        "id: deploy\nrun: body.sh\ncode: ./shared\nsecrets: {GH: {vault: unknown-one}}\n";
    ground.write("work/tool/manifest.yaml", manifest);
    private(&ground, "vault/unknown-one", b"value-of-unknown");
    let output = make();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("unknown-one") && said.contains("secret_not_granted"),
        "{said}"
    );
    let done = ground
        .command(&["exec", "--grant=secrets", &policy, &made])
        .done();
    done.assert_error("refused", "secret_not_granted");
}
