//! docs/hosts.md, followed by a reader: its programs with scripts in the place of models.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use support::bodies::write_program;
use support::packages::{has, npm_packages, python_package};
use support::{runner, skip, source_path};

use crate::documentation::{Example, examples};
use crate::place::{Place, shown};
use crate::python::installed;

const DOCUMENT: &str = include_str!("../../docs/hosts.md");

/// The files of the document and the models, in the working directory. `runner` on the PATH uses the
/// directories of this place also if a client passes no variable on.
fn reader() -> Place {
    let place = Place::new();
    let directory = place.host.ground.workspace();
    for language in ["python", "ini", "js"] {
        for Example { code, .. } in examples(DOCUMENT, language) {
            let (name, _) = code.split_once('\n').expect("a first line");
            let name = name.trim_start_matches(['#', '/', ' ']);
            fs::write(directory.join(name), &code).expect("written");
        }
    }
    for name in ["model.py", "model.mjs"] {
        let model = source_path("tests/clients/hosts").join(name);
        fs::copy(model, directory.join(name)).expect("copied");
    }
    fs::write(directory.join("notes.txt"), "one\ntwo\n").expect("written");
    let variables = place.host.command(&[""; 0]);
    let variables = variables.get_envs().map(|(name, value)| {
        let value = value.expect("a value").to_str().expect("text");
        format!("{}='{value}' ", name.to_str().expect("text"))
    });
    let variables: String = variables.collect();
    let program = runner();
    let program = program.to_str().expect("a plain path");
    let program = format!("#!/bin/sh\n{variables}exec '{program}' \"$@\"\n");
    fs::create_dir(place.path("bin")).expect("made");
    write_program(&place.path("bin/runner"), &program);
    place
}

/// A command of the reader.
fn command(place: &Place, program: &str) -> Command {
    let mut command = place.command(Command::new(program));
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        place.path("bin").display()
    );
    command.env("PATH", path);
    command
}

/// What the document says that the program in this file prints.
fn output_of(language: &str, file: &str) -> String {
    let example = examples(DOCUMENT, language).into_iter().find(|example| {
        example
            .code
            .lines()
            .next()
            .is_some_and(|line| line.ends_with(file))
    });
    let output = example.and_then(|example| example.output);
    output.unwrap_or_else(|| panic!("no output of {file}"))
}

#[test]
fn an_agent_loop_writes_a_program_and_mends_it_in_the_sandbox() {
    let (true, Some(mcp)) = (has("python3"), python_package("mcp", "2.3.0")) else {
        return;
    };
    let place = reader();
    let mut python = command(&place, "python3");
    python.arg("agent.py").env("PYTHONPATH", mcp);
    assert_eq!(place.succeed(python), output_of("python", "agent.py"));
    let written = fs::read_to_string(place.host.ground.workspace().join("work/primes.py"));
    assert!(written.expect("written").contains("range(2, n)"));
}

#[test]
fn a_suite_of_pytest_rates_hostile_programs() {
    let place = reader();
    let Some(packages) = installed(&place) else {
        return;
    };
    let (answers, _) = shell_examples();
    let mut bash = command(&place, "bash");
    bash.args(["-c", &answers.code]);
    place.succeed(bash);
    let mut pytest = command(&place, "python3");
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]);
    pytest.arg(format!("--basetemp={}", place.path("pytest").display()));
    pytest.env("PYTHONPATH", packages);
    let output = place.output(pytest);
    let printed = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let mut rest = &*printed;
    for line in output_of("python", "test_answers.py").lines() {
        let Some((_, after)) = rest.split_once(line) else {
            panic!("`{line}` is missing in:\n{printed}");
        };
        rest = after;
    }
}

#[test]
fn an_agent_of_mastra_uses_the_sandbox() {
    if !has("node") || !has("npm") {
        return;
    }
    let packages = ["@mastra/mcp@0.14.5", "@mastra/core@0.24.9"];
    for package in packages {
        assert!(DOCUMENT.contains(package), "{package} is not documented");
    }
    let Some(modules) = npm_packages("mastra-1", &packages) else {
        return;
    };
    let place = reader();
    // Node looks for packages beside the program.
    let linked = place.host.ground.workspace().join("node_modules");
    symlink(modules.join("node_modules"), linked).expect("linked");
    let mut node = command(&place, "node");
    node.arg("agent.mjs");
    assert_eq!(place.succeed(node), output_of("js", "agent.mjs"));
}

/// The programs that are rated; the server, and its calls.
fn shell_examples() -> (Example, (Example, Example)) {
    let examples: [Example; 3] = examples(DOCUMENT, "sh").try_into().expect("three blocks");
    let [answers, server, calls] = examples;
    (answers, (server, calls))
}

#[test]
fn a_service_is_started_by_its_first_connection() {
    if !has("systemd-socket-activate") || !has("curl") {
        return;
    }
    let place = reader();
    let (_, (server, calls)) = shell_examples();
    let script = format!(
        "set -e\n{}exec 2>&1\nuntil test -S api.sock; do sleep 0.05; done\n{}wait %1 || test $? = 143\n",
        server.code.replace(" &\n", " 2>log &\n"),
        calls.code
    );
    let mut bash = command(&place, "bash");
    bash.args(["-c", &script]);
    assert_eq!(Some(place.succeed(bash)), calls.output);
    let log = place.host.ground.workspace().join("log");
    let log = fs::read_to_string(log).expect("written");
    assert!(log.contains("listening on the socket of systemd"), "{log}");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units_of_a_user() {
    let place = reader();
    let directory = place.host.ground.workspace();
    let service = directory.join("runner-api.service");
    let text = fs::read_to_string(&service).expect("written");
    // It is there only where it was installed: any program replaces it.
    let started = "ExecStart=%h/.local/bin/runner serve";
    assert!(text.contains(started), "{text}");
    fs::write(&service, text.replace(started, "ExecStart=/bin/true")).expect("written");
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        return skip("there is no systemd-analyze (package systemd)");
    }
    let mut analyze = command(&place, "systemd-analyze");
    analyze.args(["--user", "verify", "--man=no"]);
    analyze.args(["./runner-api.service", "./runner-api.socket"]);
    analyze.env("XDG_RUNTIME_DIR", place.path("tmp"));
    let output = place.output(analyze);
    let printed = shown(&output);
    assert!(output.status.success(), "{printed}");
    assert!(output.stderr.is_empty(), "{printed}");
}
