//! Commands in a sandbox: streams, exit codes, what they share.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use crate::host::{Host, RIGHTS, said};
use support::invariants::eventually;
use support::rights::{
    Rights, assert_uid_of_body, children, init_of, kinds, of_body, of_supervisor, rights,
};

#[test]
fn a_command_has_its_exit_code_streams_variables_and_directory() {
    let host = Host::new();
    host.create("one", &["-e", "OF_SANDBOX=1", "-e", "BOTH=sandbox"]);
    let done = host.shell("one", "echo out; echo err >&2; exit 7");
    assert_eq!(
        (done.code, &*done.stdout, &*done.stderr),
        (7, "out\n", "err\n")
    );
    assert_eq!(host.shell("one", "kill -TERM $$").code, 128 + 15);
    let words = [
        "sandbox",
        "exec",
        "-e",
        "BOTH=command",
        "-e",
        "OWN=a b",
        "-w",
        "/tmp",
        "one",
        "--",
        "sh",
        "-c",
        "echo $OF_SANDBOX-$BOTH-$OWN-$PWD",
    ];
    assert_eq!(host.say(&words).stdout, "1-command-a b-/tmp\n");
    // Without -i there is no input.
    assert_eq!(host.shell("one", "wc -c").stdout, "0\n");
    let mut cat = host
        .command(&["sandbox", "exec", "-i", "one", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let text = vec![b'x'; 300_000];
    let mut stdin = cat.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&text).expect("written"));
    let done = cat.wait_with_output().expect("ended");
    writer.join().expect("written");
    assert_eq!((done.status.code(), done.stdout.len()), (Some(0), 300_000));
}

#[test]
fn a_command_that_cannot_be_started_has_the_codes_of_run_and_the_sandbox_stays() {
    let host = Host::new();
    host.create("one", &[]);
    for (words, code, error) in [
        (&["nosuch"][..], 127, "program_not_found"),
        (&["/nosuch/program"], 127, "program_not_found"),
        (&["/etc/passwd"], 126, "program_not_executable"),
        (&["/usr"], 126, "program_not_executable"),
    ] {
        let done = host.say(&[&["sandbox", "exec", "one", "--"], words].concat());
        assert_eq!(done.code, code, "{done:?}");
        assert!(done.stderr.contains(error), "{done:?}");
    }
    let done = host.say(&["sandbox", "exec", "-w", "/nowhere", "one", "--", "true"]);
    assert_eq!(done.code, 125);
    assert!(
        done.stderr.contains("cannot enter the working directory"),
        "{done:?}"
    );
    assert_eq!(host.shell("one", "true").code, 0);
    let states = host.list();
    assert_eq!(states[0]["commands"], serde_json::json!([]));
}

#[test]
fn files_and_processes_outlive_the_command_that_made_them() {
    let host = Host::new();
    host.create("one", &[]);
    assert_eq!(host.shell("one", "echo kept > /tmp/file; echo $$").code, 0);
    assert_eq!(host.shell("one", "cat /tmp/file").stdout, "kept\n");
    host.detach("one", "echo $$ > /tmp/pid; exec sleep 1000");
    eventually("the pid is written", || {
        host.shell("one", "test -s /tmp/pid").code == 0
    });
    let states = host.list();
    assert_eq!(states[0]["commands"][0]["argv"][0], "sh");
    // As in a container, one command may end another.
    assert_eq!(host.shell("one", "kill $(cat /tmp/pid)").code, 0);
    eventually("it has ended", || {
        host.list()[0]["commands"] == serde_json::json!([])
    });
}

#[test]
fn many_commands_run_at_once_and_one_after_the_other() {
    let host = Host::new();
    host.create("one", &[]);
    let children: Vec<_> = (0..40)
        .map(|number| {
            (
                number,
                host.start("one", &format!("sleep 0.2; echo {number}")),
            )
        })
        .collect();
    for (number, child) in children {
        let done = said(child.wait_with_output().expect("ended"));
        assert_eq!((done.code, done.stdout), (0, format!("{number}\n")));
    }
    for number in 0..60 {
        let done = host.shell("one", &format!("exit {number}"));
        assert_eq!(done.code, number);
    }
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    host.assert_empty();
}

#[test]
fn a_signal_reaches_the_command_and_a_second_one_kills_it() {
    let host = Host::new();
    host.create("one", &[]);
    for (text, times, code) in [
        (
            "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done",
            1,
            9,
        ),
        (
            "trap '' TERM; echo up; while :; do sleep 0.05; done",
            2,
            137,
        ),
    ] {
        let mut child = host.start("one", text);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), "up");
        let pid = rustix::process::Pid::from_child(&child);
        for _ in 0..times {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
            // Two pending signals of one number are one.
            eventually("the signal is taken", || {
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
                let pending = |line: &&str| line.starts_with("ShdPnd:");
                status.is_ok_and(|text| {
                    text.lines()
                        .find(pending)
                        .is_none_or(|line| line.ends_with("0000000000000000"))
                })
            });
        }
        assert_eq!(child.wait().expect("ended").code(), Some(code), "{text}");
    }
    assert_eq!(host.shell("one", "true").code, 0);
}

#[test]
fn a_sandbox_is_removed_with_what_runs_only_by_force_and_leaves_nothing() {
    let host = Host::new();
    host.create("one", &[]);
    host.create("two", &[]);
    let again = host.say(&["sandbox", "create", "--name", "one"]);
    assert_eq!(again.code, 125);
    assert!(again.stderr.contains("(sandbox_exists)"), "{again:?}");
    let mut child = host.start("one", "echo up; exec sleep 1000");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    let refused = host.say(&["sandbox", "rm", "one", "two"]);
    assert_eq!((refused.code, &*refused.stdout), (125, "two\n"));
    assert!(refused.stderr.contains("(sandbox_busy)"), "{refused:?}");
    assert_eq!(host.shell("one", "true").code, 0);
    let removed = host.say(&["sandbox", "rm", "-f", "one"]);
    assert_eq!(
        (removed.code, &*removed.stdout),
        (0, "one\n"),
        "{removed:?}"
    );
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    host.assert_empty();
    for words in [&["rm", "one"][..], &["exec", "one", "--", "true"]] {
        let gone = host.say(&[&["sandbox"], words].concat());
        assert_eq!(gone.code, 125);
        assert!(gone.stderr.contains("(no_sandbox)"), "{gone:?}");
    }
    assert_eq!(host.list(), Vec::<serde_json::Value>::new());
}

#[test]
fn the_error_about_an_unknown_sandbox_names_a_similar_one() {
    let host = Host::new();
    host.create("build", &[]);
    for words in [
        &["exec", "biuld", "--", "true"][..],
        &["logs", "Build"],
        &["rm", "buil"],
        &["pause", "build2"],
    ] {
        let refused = host.say(&[&["sandbox"], words].concat());
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(
            refused.stderr.contains("did you mean build?"),
            "{refused:?}"
        );
    }
    let refused = host.say(&["sandbox", "rm", "other"]);
    assert!(refused.stderr.contains("runner sandbox ls"), "{refused:?}");
}

#[test]
fn a_name_that_is_a_path_and_flags_of_one_command_are_refused() {
    let host = Host::new();
    for words in [
        &["create", "--name", "../x"][..],
        &["create", "--name", "a/b"],
        &["exec", "../x", "--", "true"],
        &["rm", "/etc/passwd"],
    ] {
        let refused = host.say(&[&["sandbox"], words].concat());
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(sandbox_name)"), "{refused:?}");
    }
    for flag in [
        "--tty",
        "--interactive",
        "--stats",
        "--record-output",
        "--json",
    ] {
        let refused = host.say(&["sandbox", "create", flag]);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(usage)"), "{refused:?}");
    }
    host.assert_empty();
}

/// B-72: besides each attempt of `escapes`, which this program makes again: as an ordinary user, and with
/// `scripts/test --long` as root, for whom `serve` makes them through the API.
#[test]
fn a_later_command_has_the_rights_of_the_command_of_a_run() {
    let host = Host::new();
    host.create("one", &[]);
    assert_eq!(host.shell("one", "true").code, 0);
    host.assert_rights_of_a_run(&host.shell("one", RIGHTS).stdout);
}

/// B-69: init has one filter, since commands inherit it.
#[test]
fn the_supervisor_and_init_of_a_sandbox_have_no_more_than_they_need() {
    let host = Host::new();
    host.create("one", &[]);
    let pid = host.supervisor().as_raw_nonzero().get();
    assert_eq!(rights(pid), of_supervisor());
    let init = init_of(pid).expect("the sandbox runs");
    assert_eq!(children(pid), [init]);
    host.detach("one", "exec sleep 600");
    let [command] = children(init)[..] else {
        panic!("one command");
    };
    let found = rights(init);
    assert_uid_of_body(found.uid);
    let of_init = Rights {
        filters: 1,
        ..of_body(found.uid, support::is_root().then(kinds))
    };
    assert_eq!(found, of_init);
    assert_eq!(rights(command), of_body(found.uid, Some(kinds())));
    assert_eq!(rights(pid), of_supervisor());
}

#[test]
fn the_directory_in_which_a_sandbox_was_created_is_not_busy() {
    let host = Host::new();
    let directory = host.ground.path("left");
    std::fs::create_dir(&directory).expect("made");
    let created = host.say_in(&directory, &["sandbox", "create", "--name", "one"]);
    let pid = host.supervisor().as_raw_nonzero();
    assert_eq!(created.code, 0, "{created:?}");
    let found = std::fs::read_link(format!("/proc/{pid}/cwd")).expect("readable");
    assert_eq!(found, Path::new("/"));
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("readable");
    for link in open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()) {
        assert!(!link.starts_with(&directory), "{}", link.display());
    }
    assert_eq!(host.shell("one", "true").code, 0);
    // A report at a relative path is where the caller named it.
    std::fs::create_dir_all(directory.join("reports")).expect("made");
    let words = [
        "sandbox",
        "create",
        "--name",
        "two",
        "--json=reports/two.json",
    ];
    assert_eq!(host.say_in(&directory, &words).code, 0);
    let removed = host.say(&["sandbox", "rm", "two"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    let report = std::fs::read_to_string(directory.join("reports/two.json")).expect("a report");
    assert!(report.contains("\"run_id\""));
}
