//! Programs that cannot be started: each message says why, and following its hint works.

#![allow(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use support::bodies::copy_program;
use support::{Done, Ground};

/// Runs `runner run` in the directory `here` of the ground.
fn run(ground: &Ground, words: &[&str]) -> Done {
    let mut case = ground.command(&[&["run"], words].concat());
    case.command.current_dir(ground.path("here"));
    case.done()
}

/// The output of `runner plan` with the same arguments.
fn planned(ground: &Ground, words: &[&str]) -> serde_json::Value {
    let mut command = std::process::Command::new(support::runner());
    command.args([&["plan", "--json"], words].concat());
    let output = command.current_dir(ground.path("here")).output();
    serde_json::from_slice(&output.expect("runs").stdout).expect("a plan")
}

fn told(done: &Done) -> (String, String) {
    let text = |key: &str| {
        done.report["error"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("message"), text("hint"))
}

/// The text between the first pair of backticks, or after the last `: `.
fn named(hint: &str) -> &str {
    let quoted = hint.split('`').nth(1);
    quoted.unwrap_or_else(|| hint.rsplit(": ").next().expect("one"))
}

fn shell(directory: &Path, command: &str) {
    let status = std::process::Command::new("sh")
        .args(["-c", command])
        .current_dir(directory)
        .status();
    assert!(status.expect("runs").success(), "{command}");
}

#[test]
fn a_misspelt_program_gets_a_suggestion() {
    let ground = Ground::new();
    ground.program("here/tool.sh", "#!/bin/sh\nexit 7\n");
    ground.write("here/tool.sl", "no program\n");
    for (words, meant, code) in [
        (&["--", "basename-", "x/y"][..], "basename", 0),
        (&["--", "./tool.sj"], "./tool.sh", 7),
        (&["--ro", ".", "--", "./tol.sh"], "./tool.sh", 7),
    ] {
        let done = run(&ground, words);
        done.assert_error("failed", "program_not_found");
        let (_, hint) = told(&done);
        assert_eq!(named(&hint), meant, "{hint}");
        assert_eq!(planned(&ground, words)["error"]["hint"], hint.as_str());
        let place = words.iter().position(|word| *word == "--").expect("there") + 1;
        let mut words = words.to_vec();
        words[place] = named(&hint);
        run(&ground, &words).assert_exited(code);
    }
}

#[test]
fn a_program_in_the_callers_directory_gets_a_hint_with_its_path() {
    let ground = Ground::new();
    ground.program("here/only-here-7f3a", "#!/bin/sh\nexit 7\n");
    std::fs::create_dir(ground.path("lent")).expect("made");
    let done = run(&ground, &["only-here-7f3a"]);
    done.assert_error("failed", "program_not_found");
    let (message, hint) = told(&done);
    assert!(message.contains("without a slash"), "{message}");
    let name = hint.rsplit(' ').next().expect("a word");
    run(&ground, &[name]).assert_exited(7);

    let lent = ground.path("lent");
    let mount = format!("{}:/data:ro", lent.display());
    let words = ["--mount", &mount, "-w", "/data", "--", "./only-here-7f3a"];
    let done = run(&ground, &words);
    let (message, hint) = told(&done);
    assert!(message.contains("looked up in /data"), "{message}");
    run(&ground, &[&words[..5], &[named(&hint)]].concat()).assert_exited(7);
}

#[test]
fn a_missing_interpreter_gets_a_hint_with_flags_or_an_alternative() {
    let ground = Ground::new();
    ground.program("opt/bin/interpret", "");
    copy_program("/bin/sh", &ground.path("opt/bin/interpret"));
    let interpreter = ground.path("opt/bin/interpret");
    let script = format!("#!{}\nexit 7\n", interpreter.display());
    ground.program("here/script", &script);
    let done = run(&ground, &["./script"]);
    done.assert_error("failed", "program_not_found");
    let (message, hint) = told(&done);
    assert!(
        message.contains("names the interpreter") && message.contains("opt/bin/interpret"),
        "{message}"
    );
    let flags: Vec<&str> = named(&hint).split(' ').collect();
    run(&ground, &[&flags[..], &["./script"]].concat()).assert_exited(7);

    ground.program("here/script", "#!/nonexistent/bin/sh\nexit 7\n");
    let done = run(&ground, &["./script"]);
    let (message, hint) = told(&done);
    assert!(message.contains("`/nonexistent/bin/sh`"), "{message}");
    let line = hint.split("such as ").nth(1).expect("a line");
    ground.program("here/script", format!("{line}\nexit 7\n"));
    run(&ground, &["./script"]).assert_exited(7);
}

#[test]
fn a_script_with_windows_line_endings_gets_a_hint() {
    let ground = Ground::new();
    ground.program("here/script", "#!/bin/sh\r\nexit 7\r\n");
    let done = run(&ground, &["./script"]);
    done.assert_error("failed", "program_not_found");
    let (message, hint) = told(&done);
    assert!(message.contains("carriage return"), "{message}");
    assert_eq!(
        planned(&ground, &["--", "./script"])["error"]["message"],
        message.as_str()
    );
    shell(&ground.path("here"), named(&hint));
    run(&ground, &["./script"]).assert_exited(7);

    // In a bundle the file is named by its path there.
    let files = [
        ("tool", "#!/bin/sh\r\nexit 7\r\n"),
        ("manifest.yaml", "run: [./tool]\n"),
    ];
    let done = ground.exec(&[], &ground.bundle(&files));
    done.assert_error("failed", "program_not_found");
    let (_, hint) = told(&done);
    assert!(hint.ends_with("sed -i 's/\\r$//' tool"), "{hint}");
}

#[test]
fn a_file_without_execute_permission_gets_a_hint() {
    let ground = Ground::new();
    ground.write("here/script", "#!/bin/sh\nexit 7\n");
    ground.program("here/plain", "exit 7\n");
    for (name, why) in [
        ("./script", "no execute permission"),
        ("./plain", "not a binary"),
    ] {
        let done = run(&ground, &[name]);
        done.assert_error("failed", "program_not_executable");
        let (message, hint) = told(&done);
        assert!(message.contains(why), "{message}");
        shell(&ground.path("here"), named(&hint));
        run(&ground, &[name]).assert_exited(7);
    }
    let done = run(&ground, &["/usr/bin"]);
    done.assert_error("failed", "program_not_executable");
    assert!(told(&done).0.ends_with("it is a directory"), "{done:#?}");
}

#[test]
fn a_missing_loader_is_distinguished_from_a_missing_program() {
    let ground = Ground::new();
    let source = ground.write("here/body.c", "int main(void) { return 7; }\n");
    let build = |flags: &str| {
        let source = source.display();
        shell(
            &ground.path("here"),
            &format!("cc {flags} -o body {source}"),
        );
    };
    build("-Wl,--dynamic-linker=/nonexistent/ld.so");
    let done = run(&ground, &["./body"]);
    done.assert_error("failed", "program_not_found");
    let (message, hint) = told(&done);
    assert!(
        message.contains("the loader that it names does not"),
        "{message}"
    );
    assert!(hint.starts_with("link it statically"), "{hint}");
    build("-static");
    run(&ground, &["./body"]).assert_exited(7);
}

#[test]
fn a_program_that_only_the_host_has_gets_a_hint_with_the_flags() {
    let ground = Ground::new();
    ground.program("opt/bin/tool", "");
    copy_program("/bin/sh", &ground.path("opt/bin/tool"));
    let tool = ground.path("opt/bin/tool");
    let manifest = format!("run: [{}, -c, exit 7]\n", tool.display());
    let bundle = ground.bundle(&[("manifest.yaml", &manifest)]);
    let done = ground.exec(&[], &bundle);
    done.assert_error("failed", "program_not_found");
    let (message, hint) = told(&done);
    assert!(
        message.contains("on this host, but is not mounted inside"),
        "{message}"
    );
    let flags: Vec<&str> = named(&hint).split(' ').collect();
    ground.exec(&flags, &bundle).assert_exited(7);

    let manifest = "run: [./tol.sh]\n";
    let bundle = ground.bundle(&[
        ("manifest.yaml", manifest),
        ("tool.sh", "#!/bin/sh\nexit 7\n"),
    ]);
    let done = ground.exec(&[], &bundle);
    let (_, hint) = told(&done);
    assert_eq!(named(&hint), "./tool.sh", "{hint}");
    let run = format!("[\"{}\"]", named(&hint));
    ground.exec(&["--run", &run], &bundle).assert_exited(7);
}

#[test]
fn a_command_in_a_hint_takes_every_name_as_one_word() {
    let ground = Ground::new();
    for name in ["a b", "a;touch touched", "it's", "$(touch touched)"] {
        ground.program(&format!("here/{name}"), "#!/bin/sh\r\nexit 7\r\n");
        let program = format!("./{name}");
        let (_, hint) = told(&run(&ground, &[&program]));
        shell(&ground.path("here"), named(&hint));
        run(&ground, &[&program]).assert_exited(7);
    }
    assert!(!ground.path("here/touched").exists());
    // A name that a person cannot read is not put into a command.
    ground.program("here/a\nb", "#!/bin/sh\r\nexit 7\r\n");
    let (_, hint) = told(&run(&ground, &["./a\nb"]));
    assert!(!hint.contains("sed"), "{hint}");

    let files = [
        ("-n", "#!/bin/sh\r\nexit 7\r\n"),
        ("manifest.yaml", "run: {exec: [./-n]}\n"),
    ];
    let (_, hint) = told(&ground.exec(&[], &ground.bundle(&files)));
    assert!(hint.ends_with(" ./-n"), "{hint}");
}

#[test]
fn a_bundle_cannot_choose_host_paths_in_hints() {
    let ground = Ground::new();
    ground.write("lent/secret", "#!/bin/sh\r\nsecret\n");
    let secret = ground.path("lent/secret").display().to_string();
    let lent = ground.path("lent").display().to_string();
    let script = format!("#!{secret}\n");
    for (run, tool) in [
        (format!("[{secret}]"), ""),
        ("[./tool]".to_owned(), &script[..]),
    ] {
        let manifest = format!("run: {{exec: {run}}}\n");
        let files = [("tool", tool), ("manifest.yaml", &manifest)];
        for mode in [0o600, 0o755] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(ground.path("lent/secret"), mode).expect("set");
            let done = ground.exec(&["--ro", &lent], &ground.bundle(&files));
            assert_eq!(done.report["outcome"], "failed", "{done:#?}");
            let (_, hint) = told(&done);
            assert!(!hint.is_empty() && !hint.contains("secret"), "{hint}");
        }
    }
    // A path out of the bundle and in again ends in the bundle.
    let files = [
        ("tool", "#!/bin/sh\r\n"),
        ("manifest.yaml", "run: {exec: [/bundle/../bundle/tool]}\n"),
    ];
    let (_, hint) = told(&ground.exec(&[], &ground.bundle(&files)));
    assert!(hint.ends_with("$//' tool"), "{hint}");
}

#[test]
fn a_file_of_another_format_is_reported_as_not_executable() {
    let ground = Ground::new();
    ground.program("here/empty", "");
    ground.program("here/zip", "PK\0\0");
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    let fifo = ground.path("here/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    for (name, why) in [
        ("./empty", "is empty"),
        ("./zip", "neither a script nor a Linux binary"),
        ("./fifo", "is not a regular file"),
    ] {
        let done = run(&ground, &[name]);
        done.assert_error("failed", "program_not_executable");
        let (message, hint) = told(&done);
        assert!(message.contains(why), "{message}");
        assert!(!hint.contains("chmod") && !hint.contains("sed"), "{hint}");
        assert_eq!(
            planned(&ground, &["--", name])["error"]["hint"],
            hint.as_str()
        );
    }

    ground.program("here/marked", "\u{feff}#!/bin/sh\nexit 7\n");
    let (message, hint) = told(&run(&ground, &["./marked"]));
    assert!(message.contains("byte order mark"), "{message}");
    shell(&ground.path("here"), named(&hint));
    run(&ground, &["./marked"]).assert_exited(7);

    ground.program("here/script", "#!/usr\nexit 7\n");
    let done = run(&ground, &["./script"]);
    done.assert_error("failed", "program_not_executable");
    let (message, hint) = told(&done);
    assert!(
        message.ends_with("`/usr`, which cannot be executed"),
        "{message}"
    );
    let line = hint.split("such as ").nth(1).expect("a line");
    ground.program("here/script", format!("{line}\nexit 7\n"));
    run(&ground, &["./script"]).assert_exited(7);
}

#[test]
fn an_interpreter_that_is_named_by_a_relative_path_is_that_of_the_working_directory() {
    let ground = Ground::new();
    ground.program("here/own-sh", "");
    copy_program("/bin/sh", &ground.path("here/own-sh"));
    for (line, outcome) in [
        ("./own-sh", "would_start"),
        ("usr/bin/env sh", "would_fail"),
    ] {
        ground.program("here/script", format!("#!{line}\nexit 7\n"));
        let words = ["--ro", ".", "--", "./script"];
        assert_eq!(planned(&ground, &words)["verdict"], outcome, "{line}");
        let done = run(&ground, &words);
        match outcome {
            "would_start" => done.assert_exited(7),
            _ => done.assert_error("failed", "program_not_found"),
        };
    }
}

#[test]
fn a_missing_working_directory_gets_a_hint_where_the_host_has_it() {
    let ground = Ground::new();
    ground.program("here/in it/tool", "#!/bin/sh\nexit 7\n");
    let bundle = ground.bundle(&[("manifest.yaml", "run: {exec: [/bin/pwd]}\n")]);
    let directory = ground.path("here/in it").display().to_string();
    for directory in [&directory[..], "/nonexistent-7f3a"] {
        let words = ["-w", directory, "--", "/bin/pwd"];
        let ran = run(&ground, &words);
        let executed = ground.exec(&words[..2], &bundle);
        for done in [&ran, &executed] {
            done.assert_error("failed", "sandbox_step_failed");
            let (_, hint) = told(done);
            assert!(hint.starts_with("-w names a directory inside"), "{hint}");
            assert_eq!(planned(&ground, &words)["error"]["hint"], hint.as_str());
            assert_eq!(
                hint.contains("--ro"),
                directory != "/nonexistent-7f3a",
                "{hint}"
            );
        }
    }
    let (_, hint) = told(&run(&ground, &["-w", &directory, "--", "/bin/pwd"]));
    let lent = named(&hint).strip_prefix("--ro ").expect("a flag");
    let lent = lent.trim_matches('\'');
    run(&ground, &["--ro", lent, "-w", &directory, "--", "/bin/pwd"]).assert_exited(0);
    ground
        .exec(&["--ro", lent, "-w", &directory], &bundle)
        .assert_exited(0);
}

#[test]
fn a_program_on_a_noexec_mount_gets_no_hint_about_permissions() {
    let ground = Ground::new();
    ground.program("here/tool", "#!/bin/sh\nexit 7\n");
    ground.write("mounted/empty", "");
    // In its own mount namespace, and in a user namespace if that is needed.
    let flags = match rustix::process::geteuid().is_root() {
        true => &["--mount"][..],
        false => &["--user", "--map-root-user", "--mount"],
    };
    let within = |words: &[&str]| {
        let script = "mount -t tmpfs -o noexec,mode=755 none ../mounted && cp -p tool ../mounted \
                      && cd ../mounted && exec \"$@\"";
        let mut command = std::process::Command::new("unshare");
        command.args(flags).args(["sh", "-c", script, "sh"]);
        command.arg(support::runner()).args(words);
        command.env("RUNNER_OPT_RUNTIME_DIRECTORY", ground.path("runtime"));
        let output = command.current_dir(ground.path("here")).output();
        output.expect("runs")
    };
    let planned = within(&["plan", "--json", "--", "./tool"]).stdout;
    let planned: serde_json::Value = serde_json::from_slice(&planned).expect("a plan");
    assert_eq!(planned["verdict"], "would_fail", "{planned:#}");
    let ran = within(&["run", "--", "./tool"]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(126), "{said}");
    let why = "is mounted noexec";
    assert!(
        planned["error"]["message"]
            .as_str()
            .is_some_and(|told| told.ends_with(why))
    );
    assert!(said.contains(why) && !said.contains("chmod"), "{said}");
    run(&ground, &["./tool"]).assert_exited(7);
}

#[test]
fn env_that_does_not_find_a_name_with_a_carriage_return_is_explained() {
    let ground = Ground::new();
    let windows = "#!/usr/bin/env sh\r\nexit 7\r\n";
    ground.program("here/script", windows);
    let bundle = ground.bundle(&[("tool", windows), ("manifest.yaml", "run: [./tool]\n")]);
    let words = ["--", "./script"];
    for done in [run(&ground, &words), ground.exec(&[], &bundle)] {
        done.assert_exited(127);
        let warnings = done.report["warnings"].to_string();
        assert!(warnings.contains("script_line_ends"), "{warnings}");
        assert!(done.stderr.contains("looks for `sh\\r`"), "{done:#?}");
    }
    let warnings = planned(&ground, &words)["warnings"].to_string();
    assert!(warnings.contains("script_line_ends"), "{warnings}");
    shell(&ground.path("here"), r"sed -i 's/\r$//' script");
    let done = run(&ground, &words);
    done.assert_exited(7);
    assert!(
        !done.report["warnings"]
            .to_string()
            .contains("script_line_ends")
    );
}
