//! `kill`: signals to a command by its id.

use support::has_cgroup;
use support::invariants::eventually;

use crate::host::{Host, Said};

fn kill(host: &Host, words: &[&str]) -> Said {
    host.say(&[&["sandbox", "kill"], words].concat())
}

/// The outcome and the exit of the command that ended last.
fn last_end(host: &Host) -> (String, String) {
    let state = host.list()[0].clone();
    let ended = state["ended"]["latest"].as_array().expect("a list");
    let last = ended.last().expect("one has ended");
    (last["outcome"].to_string(), last["exit"].to_string())
}

#[test]
fn a_signal_goes_to_the_group_of_the_command_and_sigkill_to_its_session() {
    let host = Host::new();
    host.create("one", &[]);
    let first = host.detach(
        "one",
        "trap 'exit 7' INT; echo up; while :; do sleep 0.05; done",
    );
    eventually("it listens", || {
        host.say(&["sandbox", "logs", "one"]).stdout == "up\n"
    });
    let other = host.detach("one", "exec sleep 1000");
    let sent = kill(&host, &["-s", "INT", "one", &first]);
    assert_eq!((sent.code, &*sent.stdout, &*sent.stderr), (0, "", ""));
    eventually("it has ended", || {
        host.list()[0]["commands"].as_array().expect("a list").len() == 1
    });
    let (outcome, exit) = last_end(&host);
    assert_eq!(outcome, "\"exited\"");
    assert!(exit.contains('7'), "{exit}");
    // Another group of the same session, as of a job of an interactive shell.
    let jobs = "set -m; sleep 1001 & wait";
    let third = host.detach("one", jobs);
    let sleeps = || host.shell("one", "pgrep -x sleep | wc -l").stdout;
    eventually("the job runs", || sleeps().trim() == "2");
    assert_eq!(kill(&host, &["one", &third]).code, 0);
    eventually("the job has ended, the other command has not", || {
        sleeps().trim() == "1"
    });
    assert_eq!(host.list()[0]["commands"][0]["id"].to_string(), other);
}

/// no number names a process that is no command.
#[test]
fn only_commands_that_run_get_signals() {
    let host = Host::new();
    host.create("one", &[]);
    assert_eq!(host.shell("one", "true").code, 0);
    let id = host.detach("one", "exec sleep 1000");
    let ended: [&[&str]; 5] = [
        &["one", "1"],
        &["one", "0"],
        &["one", "4294967298"],
        &["one", "18446744073709551615"],
        &["-s", "KILL", "one", "3"],
    ];
    for words in ended {
        let refused = kill(&host, words);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(no_command)"), "{refused:?}");
    }
    let wrong: [&[&str]; 5] = [
        &["one", "-1"],
        &["one"],
        &["-s", "0", "one", &id],
        &["-s", "65", "one", &id],
        &["-s", "NOSUCH", "one", &id],
    ];
    for words in wrong {
        let refused = kill(&host, words);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(usage)"), "{refused:?}");
    }
    assert_eq!(host.list()[0]["commands"][0]["id"].to_string(), id);
    if has_cgroup() {
        assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
        let refused = kill(&host, &["one", &id]);
        assert!(refused.stderr.contains("(sandbox_paused)"), "{refused:?}");
        assert_eq!(host.say(&["sandbox", "resume", "one"]).code, 0);
    }
    assert_eq!(kill(&host, &["one", &id]).code, 0);
    eventually("it has ended", || last_end(&host).0 == "\"signaled\"");
}
