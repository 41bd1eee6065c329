//! `runner run`: a command without a bundle.

use support::Ground;
use support::bodies::{c_body, copy_program};

#[test]
fn a_command_runs_and_its_exit_code_passes_through() {
    let ground = Ground::new();
    ground.run(&[], &["/bin/true"]).assert_exited(0);
    ground
        .run(&[], &["/bin/sh", "-c", "exit 42"])
        .assert_exited(42);
}

#[test]
fn a_program_given_by_its_path_is_shown_as_a_single_file_and_runs() {
    let ground = Ground::new();
    let own = ground.path("ends-with-7");
    copy_program(c_body("ends-with-7", "int main(void) { return 7; }"), &own);
    let body = own.to_str().expect("UTF-8");
    ground.run(&[], &[body]).assert_exited(7);
    ground.run(&["--rw", body], &[body]).assert_exited(7);
    // Only its owner may read it: for root it must be visible as the body's own.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(body, mode).expect("set");
    ground.run(&[], &[body]).assert_exited(7);
}

#[test]
fn a_relative_program_is_that_of_the_directory_it_starts_in_and_not_the_host_s() {
    let ground = Ground::new();
    let mode: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let tool = |directory: &str, name: &str, code: u8| {
        let path = ground.write(
            &format!("{directory}/{name}"),
            format!("#!/bin/sh\nexit {code}\n"),
        );
        std::fs::set_permissions(path, mode.clone()).expect("set");
        ground.path(directory).to_str().expect("UTF-8").to_owned()
    };
    let here = tool("here", "tool", 1);
    tool("here", "of-the-host", 1);
    let lent = tool("lent", "tool", 7);
    let run = |words: &[&str]| {
        let mut case = ground.command(&[&["run"], words].concat());
        case.command.current_dir(&here);
        case.done()
    };
    let mount = format!("{lent}:/data:ro");
    let words = ["--mount", &mount, "-w", "/data", "--"];
    run(&[&words[..], &["./tool"]].concat()).assert_exited(7);
    let missing = run(&[&words[..], &["./of-the-host"]].concat());
    missing.assert_error("failed", "program_not_found");
    // The host has a file at the mount target: the mounted one is meant.
    let mount = format!("{lent}:{here}:ro");
    run(&["--mount", &mount, "--", &format!("{here}/tool")]).assert_exited(7);
}

#[test]
fn a_program_that_is_not_there_is_127_and_one_that_cannot_be_executed_126() {
    let ground = Ground::new();
    let done = ground.run(&[], &["no-such-program-7f3a"]);
    done.assert_error("failed", "program_not_found");
    let done = ground.run(&[], &["/usr/bin"]);
    done.assert_error("failed", "program_not_executable");
}

#[test]
fn the_output_of_the_body_is_its_own_and_nothing_is_added() {
    let ground = Ground::new();
    let done = ground.run(&[], &["/bin/sh", "-c", "echo out; echo err >&2"]);
    done.assert_exited(0);
    assert_eq!(
        (done.text().as_str(), done.stderr.as_str()),
        ("out\n", "err\n")
    );
}

#[test]
fn a_report_says_when_which_program_and_which_bundle() {
    let ground = Ground::new();
    let since_1970 = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_ms = now.expect("a clock").as_millis();
        u64::try_from(now_ms).expect("fits")
    };
    let manifest = "id: named\nversion: 1.2.3\nrun: x.sh\n";
    let bundle = ground.bundle(&[("manifest.yaml", manifest), ("x.sh", "true\n")]);
    let before = spec::utc::text_of_milliseconds(since_1970());
    let done = ground.exec(&[], &bundle);
    let after = spec::utc::text_of_milliseconds(since_1970());
    done.assert_exited(0);
    let started = done.report["started_at"].as_str().expect("a time");
    // Times of equal length sort chronologically.
    assert!(*before <= *started && *started <= *after, "{started}");
    assert_eq!(done.report["runner_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(done.report["bundle"]["name"], "named");
    assert_eq!(done.report["bundle"]["version"], "1.2.3");
    let took = done.report["timings_ms"].as_object().expect("an object");
    let sum: f64 = took.values().filter_map(serde_json::Value::as_f64).sum();
    assert!(took.contains_key("body") && 0.0 < sum, "{took:?}");
}

#[test]
fn an_argument_naming_an_invisible_file_gets_a_hint_with_the_flag() {
    let ground = Ground::new();
    ground.write("here/script.sh", "cat beside\n");
    ground.write("here/beside", "beside\n");
    ground.write("other/file", "other\n");
    let here = ground.path("here");
    let run = |words: &[&str]| {
        let mut case = ground.command(&[&["run"], words].concat());
        case.command.current_dir(&here);
        case.done()
    };
    let warns = |done: &support::Done| {
        let warnings = done.report["warnings"].to_string();
        warnings.contains("argument_not_visible")
    };
    let done = run(&["--", "sh", "script.sh"]);
    assert_ne!(done.code, 0, "{done:#?}");
    assert!(warns(&done), "{done:#?}");
    let hint = "`script.sh` is in this directory, which the command does not see; add --ro .";
    assert!(done.stderr.contains(hint), "{done:#?}");
    let done = run(&["--ro", ".", "--", "sh", "script.sh"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "beside\n");
    // A single mounted file is named by its path here.
    let done = run(&["--ro", "beside", "--", "cat", "beside"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "beside\n");
    let done = run(&["--ro", "beside", "--", "sh", "script.sh"]);
    assert!(warns(&done), "{done:#?}");
    // Otherwise by its whole path.
    let other = ground.path("other/file");
    let other = other.to_str().expect("UTF-8");
    let done = run(&["--", "cat", "../other/file"]);
    assert!(
        done.stderr
            .contains(&format!("add --ro {other} and name it")),
        "{done:#?}"
    );
    run(&["--ro", other, "--", "cat", other]).assert_exited(0);
    // A file only by chance, or none: no message.
    let done = run(&["--", "echo", "script.sh"]);
    done.assert_exited(0);
    assert!(!warns(&done), "{done:#?}");
    let done = run(&[
        "--",
        "sh",
        "-c",
        "exit 3",
        "nothing",
        "/etc/passwd",
        "/usr/bin",
    ]);
    done.assert_exited(3);
    assert!(!warns(&done), "{done:#?}");
}

#[test]
fn the_current_directory_as_working_directory_gets_a_hint_to_mount_it() {
    let ground = Ground::new();
    ground.write("here/file", "");
    let here = ground.path("here");
    let run = |words: &[&str]| {
        let mut case = ground.command(&[&["run"], words].concat());
        case.command.current_dir(&here);
        case.done()
    };
    let done = run(&["-w", ".", "--", "ls"]);
    done.assert_error("failed", "sandbox_step_failed");
    let flag = format!("--ro {}", here.display());
    assert!(done.stderr.contains(&flag), "{done:#?}");
    let words: Vec<&str> = flag.split(' ').collect();
    let done = run(&[&["-w", "."], &words[..], &["--", "ls"]].concat());
    done.assert_exited(0);
    assert_eq!(done.text(), "file\n");
}

#[test]
fn a_file_or_directory_of_the_sandbox_is_refused_as_a_program_and_not_as_a_mount() {
    let ground = Ground::new();
    for (path, why) in [
        ("/etc/passwd", "/etc/passwd has no execute permission"),
        ("/etc", "it is a directory"),
        ("/tmp", "it is a directory"),
    ] {
        ground
            .run(&[], &[path])
            .assert_error("failed", "program_not_executable")
            .assert_message(why)
            .assert_hint("name a program");
    }
}
