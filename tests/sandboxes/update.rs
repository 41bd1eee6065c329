//! `update`: the end of a sandbox is moved.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use sys::link::{self, Message};

use crate::authority::{MALFORMED, VERSION, answer, as_another_user, connect, document};
use crate::host::{Host, Said};
use support::invariants::eventually;
use support::{has_cgroup, is_root, needs_root, skip};

fn update(host: &Host, flags: &[&str]) -> Said {
    host.say(&[&["sandbox", "update"], flags, &["one"]].concat())
}

#[track_caller]
fn updated(host: &Host, flags: &[&str]) {
    let said = update(host, flags);
    assert_eq!((said.code, &*said.stdout), (0, "one\n"), "{said:?}");
}

/// A field of the only sandbox.
#[track_caller]
fn field(host: &Host, name: &str) -> Value {
    let states = host.list();
    let [state] = &states[..] else {
        panic!("not one sandbox: {states:?}");
    };
    state[name].clone()
}

/// Creates a sandbox that ends after so short a time that it may be over before the sandbox has started.
#[track_caller]
fn is_created(host: &Host, first_ms: u64) -> bool {
    let timeout = format!("--timeout={first_ms}ms");
    let words = [
        "sandbox", "create", "--name", "one", "--grace", "0s", &timeout,
    ];
    let said = host.say(&words);
    assert!(
        said.code == 0 || said.stderr.contains("timed out"),
        "{said:?}"
    );
    said.code == 0
}

/// Creates a sandbox whose report is at the path.
fn create(host: &Host, flags: &[&str]) -> PathBuf {
    let report = host.ground.path("report.json");
    let json = format!("--json={}", report.display());
    host.create("one", &[&["--grace", "0s", &json], flags].concat());
    report
}

#[track_caller]
fn assert_timed_out(host: &Host, report: &std::path::Path) -> Value {
    eventually("nothing is left", || {
        host.files("sandboxes").is_empty() && host.files("runs").is_empty()
    });
    eventually("the report is written", || report.exists());
    let text = std::fs::read_to_string(report).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("a report");
    assert_eq!(report["outcome"], "timed_out", "{report}");
    report
}

#[test]
fn an_end_that_is_moved_to_an_earlier_time_comes_then() {
    for first in ["none", "1h"] {
        let host = Host::new();
        let report = create(&host, &["--timeout", first]);
        let left = field(&host, "ends_in_ms");
        match first {
            "none" => assert_eq!(left, Value::Null),
            _ => assert!((3_500_000..=3_600_000).contains(&left.as_u64().expect("a time"))),
        }
        updated(&host, &["--timeout", "300ms"]);
        assert_timed_out(&host, &report);
    }
}

#[test]
fn a_sandbox_lives_on_after_its_first_end_if_that_was_moved() {
    // On a slow machine it may end before it is moved.
    let mut first_ms = 2_000;
    let host = loop {
        let host = Host::new();
        if is_created(&host, first_ms) && update(&host, &["--timeout", "1h"]).code == 0 {
            break host;
        }
        first_ms *= 4;
    };
    eventually("its first end is over", || {
        field(&host, "run_time_ms").as_u64() > Some(first_ms + 500)
    });
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    let left = field(&host, "ends_in_ms").as_u64().expect("a time");
    assert!(left > 1_800_000 && left < 3_600_000, "{left}");
    let listed = host.say(&["sandbox", "ls"]);
    assert!(listed.stdout.contains(", ends in "), "{listed:?}");
    updated(&host, &["--timeout", "none"]);
    assert_eq!(field(&host, "ends_in_ms"), Value::Null);
}

#[test]
fn the_end_of_a_paused_sandbox_is_moved_and_stands_still() {
    if !has_cgroup() {
        return skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    let report = create(&host, &["--timeout", "1h"]);
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    updated(&host, &["--timeout", "1s"]);
    let begin = Instant::now();
    eventually("more than its time has passed", || {
        assert_eq!(field(&host, "ends_in_ms"), 1_000);
        begin.elapsed() > Duration::from_secs(2)
    });
    assert_eq!(field(&host, "is_paused"), true);
    assert_eq!(host.say(&["sandbox", "resume", "one"]).code, 0);
    assert_timed_out(&host, &report);
}

#[test]
fn an_idle_time_is_changed_and_begins_again() {
    let host = Host::new();
    let report = create(&host, &["--idle-timeout", "1h"]);
    assert_eq!(field(&host, "idle_timeout_ms"), 3_600_000);
    updated(&host, &["--idle-timeout", "300ms"]);
    let report = assert_timed_out(&host, &report);
    assert_eq!(report["warnings"][0]["code"], "sandbox_idle", "{report}");
    if !has_cgroup() {
        return;
    }
    let host = Host::new();
    host.create("one", &["--pause-after-idle", "1h"]);
    let refused = update(&host, &["--idle-timeout", "2h", "--timeout", "1h"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(
        refused.stderr.contains("(sandbox_lifecycle)"),
        "{refused:?}"
    );
    assert_eq!(field(&host, "ends_in_ms"), Value::Null);
    updated(&host, &["--idle-timeout", "1h"]);
}

/// A-78: What `create` would have refused, a later update gets neither at once nor in parts.
#[test]
fn no_end_is_later_than_the_configuration_allows() {
    let host = Host::new();
    let policy = host
        .ground
        .write("policy.yaml", "maxima:\n  timeout: 10m\n");
    let policy = policy.to_str().expect("a plain path");
    let of_policy = ["--policy", policy];
    let words = [&["sandbox", "create", "--timeout", "11m"], &of_policy[..]].concat();
    assert_eq!(host.say(&words).code, 125);
    create(&host, &[&["--timeout", "5m"], &of_policy[..]].concat());
    for (timeout, shown) in [
        ("11m", "11 min"),
        ("9223372036854ms", "ms"),
        ("none", "none"),
    ] {
        // The caller cannot name another policy either.
        let refused = update(&host, &["--timeout", timeout]);
        assert_eq!(refused.code, 125, "{refused:?}");
        for word in ["(limit_above_maximum)", "10 min", "policy.yaml:2", shown] {
            assert!(refused.stderr.contains(word), "{word}: {refused:?}");
        }
        let left = field(&host, "ends_in_ms").as_u64().expect("a time");
        assert!(left <= 300_000, "{left}");
    }
    // As long as create allows, but later than that would have ended.
    let refused = update(&host, &["--timeout", "10m"]);
    assert!(
        refused.stderr.contains("(limit_above_maximum)"),
        "{refused:?}"
    );
    for _part in 0..3 {
        updated(&host, &["--timeout", "5m"]);
        let state = host.list()[0].clone();
        let time = |name: &str| state[name].as_u64().expect("a time");
        assert!(
            time("run_time_ms") + time("ends_in_ms") <= 600_000,
            "{state}"
        );
    }
}

/// A-78: Another user moves no end.
#[test]
fn another_user_moves_no_end_even_with_an_open_way_to_the_socket() {
    if !is_root() {
        return needs_root("only root can become another user");
    }
    let host = Host::new();
    host.create("one", &["--timeout", "1h"]);
    let script = "
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
f = os.memfd_create('x')
os.write(f, b'{\"timeout_ms\":1,\"idle_timeout_ms\":1}')
words = (10).to_bytes(4, 'little') + (1).to_bytes(4, 'little') + bytes(8)
try:
    socket.send_fds(s, [words], [f])
except (BrokenPipeError, ConnectionResetError):
    pass
try:
    print(s.recv(16))
except ConnectionResetError:
    print(b'')
";
    assert_eq!(as_another_user(&host, script), "b''\n");
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    assert!(field(&host, "ends_in_ms").as_u64() > Some(1_800_000));
    assert_eq!(field(&host, "idle_timeout_ms"), Value::Null);
}

/// A-78: Who is told that the end was moved has a sandbox that lives; who is not has none.
#[test]
fn an_update_at_the_moment_of_the_end_is_done_or_refused() {
    for (number, first_ms) in (0..24).map(|number| (number, 10 + number * 6)) {
        let host = Host::new();
        if !is_created(&host, first_ms) {
            continue;
        }
        let said = update(&host, &["--timeout", "1h"]);
        match said.code {
            0 => {
                let said = host.shell("one", "echo on");
                assert_eq!(said.stdout, "on\n", "{number}: {said:?}");
                assert!(field(&host, "ends_in_ms").as_u64() > Some(1_800_000));
                assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
            }
            _ => {
                let is_known = ["(no_sandbox)", "(sandbox_ending)"];
                let is_known = is_known.iter().any(|code| said.stderr.contains(code));
                assert!(is_known, "{number}: {said:?}");
                eventually("it has ended", || host.list().is_empty());
            }
        }
        eventually("nothing is left", || host.files("runs").is_empty());
    }
}

/// A-78.
#[test]
fn nonsense_instead_of_a_time_changes_nothing() {
    let host = Host::new();
    host.create("one", &["--timeout", "1h"]);
    let ask = |text: &[u8]| {
        let (link, document) = (connect(&host), document(text));
        let message = Message::with(10, [VERSION, 0, 0]);
        link::send(link.as_fd(), message, &[document.as_fd()]).expect("sent");
        answer(&link)
    };
    let texts: [&[u8]; 6] = [
        b"",
        b"{",
        b"[]",
        br#"{"timeout_ms":-1,"idle_timeout_ms":null}"#,
        br#"{"timeout_ms":"1","idle_timeout_ms":null}"#,
        br#"{"timeout_ms":1,"idle_timeout_ms":null,"x":1}"#,
    ];
    for text in texts {
        assert_eq!(ask(text), MALFORMED);
    }
    let link = connect(&host);
    link::send(link.as_fd(), Message::with(10, [VERSION, 0, 0]), &[]).expect("sent");
    assert_eq!(answer(&link), MALFORMED);
    assert!(field(&host, "ends_in_ms").as_u64() > Some(1_800_000));
    // Beyond every clock is never.
    let longest = br#"{"timeout_ms":18446744073709551614,"idle_timeout_ms":18446744073709551615}"#;
    assert_eq!(ask(longest), Some((19, 0)));
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    for words in [
        &["sandbox", "update", "one"][..],
        &["sandbox", "update", "--timeout", "1h"],
        &["sandbox", "update", "--timeout", "0", "one"],
        &["sandbox", "update", "--timeout", "-1s", "one"],
        &["sandbox", "update", "--idle-timeout", "none", "one"],
    ] {
        let refused = host.say(words);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(usage)"), "{refused:?}");
    }
    let refused = host.say(&["sandbox", "update", "--timeout", "1h", "two"]);
    assert!(refused.stderr.contains("(no_sandbox)"), "{refused:?}");
}
