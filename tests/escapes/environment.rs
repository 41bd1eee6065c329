//! The environment: what it contains, the host's name, and secrets.

use super::attempts::{attempt, shell};
use support::Ground;

const HOSTILE: [(&str, &str); 14] = [
    ("AWS_SECRET_ACCESS_KEY", "host"),
    ("GITHUB_TOKEN", "host"),
    ("SSH_AUTH_SOCK", "/tmp/agent"),
    ("LD_PRELOAD", ""),
    ("LD_LIBRARY_PATH", "/nowhere"),
    ("BASH_ENV", "/nowhere"),
    ("ENV", "/nowhere"),
    ("PYTHONPATH", "/nowhere"),
    ("NODE_OPTIONS", "--title=host"),
    ("JAVA_TOOL_OPTIONS", "-Dhost=1"),
    ("BASH_FUNC_x%%", "() { echo host; }"),
    ("IFS", "x"),
    ("XDG_SESSION_ID", "1"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere"),
];

const PRINT: &str = include_str!("../bodies/escapes/environment_print.c");

fn entries(done: &support::Done) -> Vec<String> {
    let mut entries: Vec<String> = done
        .text()
        .split_terminator('\0')
        .map(str::to_owned)
        .collect();
    entries.sort();
    entries
}

/// F-01: no variable of the host arrives; those that arrive are the documented list.
#[test]
fn the_environment_is_exactly_the_documented_list() {
    let ground = Ground::new();
    let print = super::attempts::program("print-environment", PRINT);
    let mut started = super::attempts::case(&ground, &["-m", "256m"], &print, &[]);
    for (name, value) in HOSTILE {
        started = started.env(name, value);
    }
    let done = started.done();
    done.assert_exited(0);
    let run_id = done.report["run_id"].as_str().expect("an id");
    let mut expected = vec![
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        "HOME=/home/runner".to_owned(),
        "TMPDIR=/tmp".to_owned(),
        "LANG=C.UTF-8".to_owned(),
        format!("RUNNER_RUN_ID={run_id}"),
        "RUNNER_INPUT=/runner/input.json".to_owned(),
        "RUNNER_OUTPUT=/runner/out/output.json".to_owned(),
        // The two variables derived from the memory limit.
        "NODE_OPTIONS=--max-old-space-size=192".to_owned(),
        "JAVA_TOOL_OPTIONS=-XX:MaxRAM=256m".to_owned(),
        // Set by the test itself.
        format!("RUNNER_TEST_MARKER={}", ground.marker()),
    ];
    expected.sort();
    assert_eq!(entries(&done), expected);
}

/// F-06: a granted secret is in the body's environment and in nothing that is written.
#[test]
fn a_granted_secret_reaches_the_body_and_no_report_or_message() {
    let ground = Ground::new();
    let text = "test -n \"$TOKEN\" && test \"$TOKEN\" = \"$ALSO\" && echo same";
    let file = ground.write("token", ground.canary());
    let reference = format!("ALSO=file:{}", file.display());
    let done = ground
        .command(&[
            "run",
            "-v",
            "--secret",
            "TOKEN=env:RUNNER_TEST_CANARY_SECRET",
            "--secret",
            &reference,
            "--",
            "/bin/sh",
            "-c",
            text,
        ])
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
        .done();
    done.assert_exited(0);
    // I9 has checked the report and both streams.
    assert_eq!(done.text(), "same\n");
}

/// F-02, F-06, F-07: nor in the arguments of any process, nor in init's environment.
#[test]
fn a_granted_secret_is_in_no_command_line() {
    let ground = Ground::new();
    let mut running = ground
        .command(&[
            "run",
            "--secret",
            "TOKEN=env:RUNNER_TEST_CANARY_SECRET",
            "--",
            "/bin/sh",
            "-c",
            "cat /proc/*/cmdline; cat /proc/1/environ; sleep 60",
        ])
        .start();
    // Its output has arrived by then.
    running.until_body_is("sleep");
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc").expect("readable").flatten() {
        if let Ok(line) = std::fs::read(entry.path().join("cmdline")) {
            seen += 1;
            let line = String::from_utf8_lossy(&line);
            assert!(!line.contains(ground.canary()), "{line}");
        }
    }
    running.signal(rustix::process::Signal::TERM);
    // I9 has checked the output of the body.
    let done = running.done();
    done.assert_outcome("cancelled", 143);
    let lines = done.text();
    assert!(lines.contains("cat /proc/1/environ"), "{done:#?}");
    assert!(1 < seen);
}

/// F-10.
#[test]
fn values_pass_unchanged_and_invalid_names_are_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let ground = Ground::new();
    let odd = "PRINTED=first\nsecond=third\t\u{1b}[31m\"'$(id)`id`";
    let print = super::attempts::program("print-environment", PRINT);
    let mut started = super::attempts::case(&ground, &["-e", odd], &print, &[]);
    // After the first flags: the value is not valid text.
    let words: Vec<_> = started.command.get_args().map(OsStr::to_owned).collect();
    let mut again = std::process::Command::new(started.command.get_program());
    again
        .args(&words[..2])
        .arg("-e")
        .arg(OsStr::from_bytes(b"BYTES=\xff\xfe"));
    again.args(&words[2..]);
    for (name, value) in started.command.get_envs() {
        again.env(name, value.expect("set"));
    }
    again
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    started.command = again;
    let done = started.done();
    done.assert_exited(0);
    let has = |wanted: &[u8]| {
        let mut entries = done.stdout.split(|byte| *byte == 0);
        entries.any(|entry| entry == wanted)
    };
    assert!(has(odd.as_bytes()) && has(b"BYTES=\xff\xfe"), "{done:#?}");
    let done = ground.run(&["-e", odd], &["/usr/bin/printenv", "PRINTED"]);
    done.assert_exited(0);
    assert_eq!(done.text(), format!("{}\n", &odd["PRINTED=".len()..]));
    for name in ["=x", "=", ""] {
        let done = ground.run(&["-e", name], &["/bin/true"]);
        assert_eq!(done.code, 125, "{name:?} {done:#?}");
    }
    let huge = format!("HUGE={}", "x".repeat(100_000));
    let done = ground.run(&["-e", &huge], &["/bin/sh", "-c", "echo ${#HUGE}"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "100000\n");
    let file = ground.write("env", format!("HUGE={}\n", "x".repeat(2 << 20)));
    let file = file.to_str().expect("a plain path");
    let done = ground.run(&["--env-file", file], &["/bin/true"]);
    assert!(matches!(done.code, 125 | 126), "{done:#?}");
}

/// F-11.
#[test]
fn the_host_s_name_and_the_caller_s_name_are_not_shown() {
    let ground = Ground::new();
    let lines = shell(
        &ground,
        &[],
        "uname -n; id -un; id -gn; cat /proc/sys/kernel/hostname /proc/sys/kernel/domainname; \
         cat /etc/machine-id 2>/dev/null; wc -l </etc/passwd",
    );
    let of_the_run = ["runner", "runner", "runner", "runner", "(none)", "2"];
    assert_eq!(lines, of_the_run);
}

/// F-08: the environment of the supervisor.
#[test]
fn the_supervisor_s_environment_cannot_be_read() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_supervisor_s_environment_cannot_be_read.c");
    let done = attempt(&ground, "all-environments", text);
    // I9 has checked for the canary, which is in the supervisor's environment.
    assert!(
        !done.text().contains("RUNNER_TEST_CANARY_SECRET"),
        "{done:#?}"
    );
    assert!(done.text().contains("RUNNER_RUN_ID="), "{done:#?}");
}
