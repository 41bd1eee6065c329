//! `logs`: what commands wrote that nobody waits for.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use crate::host::{Host, said};
use rustix::process::{Signal, kill_process};
use support::invariants::eventually;

#[test]
fn both_streams_of_a_detached_command_are_printed_unchanged_and_by_its_id() {
    let host = Host::new();
    host.create("one", &[]);
    host.detach("one", r"printf 'out\033[2J\n'; echo err >&2");
    eventually("it has ended", || {
        host.list()[0]["commands"] == serde_json::json!([])
    });
    host.detach("one", "echo second; exec sleep 1000");
    // As `run` passes it on.
    let first = host.say(&["sandbox", "logs", "one", "1"]);
    assert_eq!(
        (first.code, &*first.stdout, &*first.stderr),
        (0, "out\u{1b}[2J\n", "err\n")
    );
    eventually("the last one is the default", || {
        host.say(&["sandbox", "logs", "one"]).stdout == "second\n"
    });
    // The third is none of those.
    assert_eq!(host.shell("one", "echo attached").code, 0);
    for id in ["3", "4", "0", "18446744073709551615"] {
        let refused = host.say(&["sandbox", "logs", "one", id]);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(no_log)"), "{refused:?}");
    }
    for words in [
        &["one", "x"][..],
        &["one", "-1"],
        &["one", "18446744073709551616"],
        &[],
    ] {
        let refused = host.say(&[&["sandbox", "logs"], words].concat());
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(usage)"), "{refused:?}");
    }
}

/// A-70: a flood is cut, and holds up nobody.
#[test]
fn a_command_that_floods_its_output_loses_the_start_and_the_sandbox_answers() {
    let host = Host::new();
    host.create("one", &[]);
    host.detach("one", "yes 0123456789 & yes abcdefghi >&2 & wait");
    let cut = || {
        host.say(&["sandbox", "logs", "one"])
            .stderr
            .contains("(output_cut)")
    };
    eventually("more was written than is kept", cut);
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    let log = host.say(&["sandbox", "logs", "one"]);
    assert_eq!(log.code, 0);
    assert_eq!(log.stdout.len(), 128 << 10);
    assert!(log.stdout.contains("0123456789\n0123456789\n"));
    assert!(log.stderr.contains("bytes of standard output are not kept"));
    // A follower that does not read holds up nobody either.
    let mut follower = host
        .command(&["sandbox", "logs", "-f", "one"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut stdout = follower.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 1]).expect("read");
    assert_eq!(host.shell("one", "pkill yes; echo on").stdout, "on\n");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("read");
    assert!(rest.ends_with(b"0123456789\n") || rest.len() > 128 << 10);
    assert_eq!(follower.wait().expect("ended").code(), Some(0));
}

#[test]
fn a_follower_gets_what_is_new_until_the_command_ends() {
    let host = Host::new();
    host.create("one", &[]);
    host.detach(
        "one",
        "echo first; until test -e /tmp/go; do sleep 0.05; done; echo last; exit 3",
    );
    let mut follower = host
        .command(&["sandbox", "logs", "-f", "one"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "first");
    assert!(follower.try_wait().expect("asked").is_none());
    assert_eq!(host.shell("one", ": > /tmp/go").code, 0);
    assert_eq!(lines.next().expect("a line").expect("read"), "last");
    assert!(lines.next().is_none());
    assert_eq!(follower.wait().expect("ended").code(), Some(0));
}

/// A-70.
#[test]
fn followers_end_with_the_sandbox_and_a_killed_one_changes_nothing() {
    let host = Host::new();
    host.create("one", &[]);
    host.detach("one", "echo up; exec sleep 1000");
    let follow = || {
        let mut child = host
            .command(&["sandbox", "logs", "-f", "one"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), "up");
        child
    };
    let mut killed = follow();
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    let mut left = [follow(), follow()];
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    kill_process(host.supervisor(), Signal::KILL).expect("sent");
    for follower in &mut left {
        assert_eq!(follower.wait().expect("ended").code(), Some(0));
    }
    let gone = host.say(&["sandbox", "logs", "one"]);
    assert!(gone.stderr.contains("(no_sandbox)"), "{gone:?}");
}

/// F-03: as in what `run --record-output` keeps.
#[test]
fn the_values_of_secrets_are_masked_also_where_a_write_cuts_them() {
    let host = Host::new();
    let words = [
        "sandbox",
        "create",
        "--name",
        "one",
        "--secret",
        "KEY=env:VALUE",
    ];
    let created = host.command(&words).env("VALUE", "canary-9d1c").output();
    let created = said(created.expect("started"));
    assert_eq!(created.code, 0, "{created:?}");
    host.detach("one", "echo $KEY; echo err $KEY >&2; printf 'x%.7s' $KEY; sleep 0.2; printf '%s\\n' ${KEY#canary-}; \
         printf '%.7s' $KEY",
    );
    eventually("it has ended", || {
        host.list()[0]["commands"] == serde_json::json!([])
    });
    let log = host.say(&["sandbox", "logs", "one"]);
    assert_eq!(
        (&*log.stdout, &*log.stderr),
        ("***\nx***\ncanary-", "err ***\n")
    );
}

/// The end of the streams may be later than that of the command.
#[test]
fn what_a_command_leaves_running_goes_on_to_write_to_its_log() {
    let host = Host::new();
    host.create("one", &[]);
    host.detach(
        "one",
        "(until test -e /tmp/go; do sleep 0.05; done; echo late) & echo early",
    );
    eventually("it has ended", || {
        host.list()[0]["commands"] == serde_json::json!([])
    });
    assert_eq!(
        host.say(&["sandbox", "logs", "-f", "one"]).stdout,
        "early\n"
    );
    assert_eq!(host.shell("one", ": > /tmp/go").code, 0);
    eventually("it has written", || {
        host.say(&["sandbox", "logs", "one", "1"]).stdout == "early\nlate\n"
    });
}

/// A-70: neither memory nor descriptors follow the number of commands that write.
#[test]
fn the_output_of_more_than_64_commands_at_once_is_not_kept_and_they_run() {
    let host = Host::new();
    host.create("one", &[]);
    for _ in 0..65 {
        host.detach("one", "echo up; exec sleep 1000");
    }
    assert_eq!(
        host.list()[0]["commands"].as_array().expect("a list").len(),
        65
    );
    assert_eq!(host.say(&["sandbox", "logs", "one", "64"]).stdout, "up\n");
    let refused = host.say(&["sandbox", "logs", "one", "65"]);
    assert!(refused.stderr.contains("(no_log)"), "{refused:?}");
    assert_eq!(host.shell("one", "pkill sleep").code, 0);
    eventually("they have ended", || {
        host.list()[0]["commands"] == serde_json::json!([])
    });
    host.detach("one", "echo new");
    eventually("it is kept", || {
        host.say(&["sandbox", "logs", "one"]).stdout == "new\n"
    });
}
