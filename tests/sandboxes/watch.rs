//! `runner sandbox watch`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::host::{Host, Running};
use support::invariants::eventually;

/// A watch that has begun.
struct Watching(Running);

impl Watching {
    fn start(host: &Host, words: &[&str]) -> Self {
        let mut watching = Self(host.spawn(&[&["sandbox", "watch"], words].concat()));
        assert_eq!(watching.event(), Some(json!({ "type": "started" })));
        watching
    }

    /// `None` at the end.
    fn event(&mut self) -> Option<Value> {
        let line = self.0.lines.next()?.expect("a line of text");
        // What a terminal would show.
        assert!(!line.chars().any(spec::path::is_hidden), "{line:?}");
        Some(serde_json::from_str(&line).expect("a document"))
    }

    /// Types and paths until this path is created.
    fn until(&mut self, last: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        loop {
            let event = self.event().expect("no end");
            let text = |name: &str| event[name].as_str().map(str::to_owned);
            let path = text("path").or_else(|| text("path_base64"));
            let kind = text("type").expect("a type");
            if kind == "create" && path.as_deref() == Some(last) {
                return found;
            }
            found.push((kind, path.unwrap_or_default()));
        }
    }

    /// Exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        while self.event().is_some() {}
        self.0.end()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.child.id())
            .ok()
            .and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("sent");
    }
}

fn one(text: &str) -> Host {
    let host = Host::new();
    host.create("one", &[]);
    shell(&host, text);
    host
}

#[track_caller]
fn shell(host: &Host, text: &str) {
    let said = host.shell("one", text);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{said:?}");
}

fn has_no_command(host: &Host) -> bool {
    host.list()[0]["commands"] == json!([])
}

#[test]
fn each_change_in_a_directory_is_an_event() {
    let host = one("mkdir -p /tmp/d/sub; echo x > /tmp/d/sub/c");
    let mut watching = Watching::start(&host, &["one", "/tmp/d"]);
    shell(
        &host,
        "cd /tmp/d; echo x > a; chmod 600 a; mv a b; rm b; mkdir e; echo y > e/f; echo y > sub/c; : > end",
    );
    let expected = [
        ("create", "a"),
        ("write", "a"),
        ("chmod", "a"),
        ("rename", "a"),
        ("create", "b"),
        ("remove", "b"),
        ("create", "e"),
    ];
    let expected = expected.map(|(kind, path)| (kind.to_owned(), path.to_owned()));
    assert_eq!(watching.until("end"), expected);
    watching.signal(Signal::INT);
    assert_eq!(watching.end(), (Some(130), String::new()));
    eventually("its process has ended", || has_no_command(&host));
    // One that is killed leaves no process, either.
    let watching = Watching::start(&host, &["one", "/tmp/d"]);
    watching.signal(Signal::KILL);
    assert_eq!(watching.end().0, None);
    eventually("its process has ended", || has_no_command(&host));
}

#[test]
fn directories_below_are_watched_wherever_they_are_moved() {
    let host = one("mkdir -p /tmp/d/old/deep /tmp/other/sub; echo x > /tmp/other/sub/file");
    let mut watching = Watching::start(&host, &["-r", "one", "/tmp/d"]);
    shell(
        &host,
        "cd /tmp/d; echo x > old/deep/a; mkdir -p n/m; echo x > n/m/f; mv /tmp/other o; : > end",
    );
    let found = watching.until("end");
    let has = |kind: &str, path: &str| {
        let wanted = (kind.to_owned(), path.to_owned());
        assert!(found.contains(&wanted), "{wanted:?} in {found:?}");
    };
    has("write", "old/deep/a");
    for path in ["n", "n/m", "n/m/f", "o", "o/sub", "o/sub/file"] {
        has("create", path);
    }
    shell(
        &host,
        "cd /tmp/d; mv n k; echo x >> k/m/f; mv o ../away; echo x >> ../away/sub/file; rm -r old; : > end2",
    );
    let found = watching.until("end2");
    let has = |kind: &str, path: &str| {
        let wanted = (kind.to_owned(), path.to_owned());
        assert!(found.contains(&wanted), "{wanted:?} in {found:?}");
    };
    has("rename", "n");
    has("rename", "o");
    for path in ["k", "k/m", "k/m/f"] {
        has("create", path);
    }
    has("remove", "old");
    has("remove", "old/deep/a");
    let is_stale = |(_, path): &(String, String)| path.starts_with("n/") || path.contains("away");
    assert!(!found.iter().any(is_stale), "{found:?}");
    shell(&host, "cd /tmp/d; echo x >> k/m/f; : > end3");
    let write = ("write".to_owned(), "k/m/f".to_owned());
    assert_eq!(watching.until("end3"), [write]);
    watching.signal(Signal::TERM);
    assert_eq!(watching.end().0, Some(143));
}

/// A-81: Names of a body are data, whatever is in them.
#[test]
fn names_do_not_reach_a_terminal_and_pass_for_no_event() {
    let host = one("mkdir /tmp/d");
    let mut watching = Watching::start(&host, &["one", "/tmp/d"]);
    shell(
        &host,
        r#"cd /tmp/d
        : > "$(printf 'a\nb\033[31m')"
        : > "$(printf '{"type":"overflow"}\n{"type":"overflow"}')"
        : > "$(printf 'r\342\200\256l')"
        : > "$(printf 'bytes\377')"
        : > end"#,
    );
    let create = |path: &str| ("create".to_owned(), path.to_owned());
    let expected = [
        create("a\nb\u{1b}[31m"),
        create("{\"type\":\"overflow\"}\n{\"type\":\"overflow\"}"),
        create("r\u{202e}l"),
        // In Base64.
        create("Ynl0ZXP/"),
    ];
    assert_eq!(watching.until("end"), expected);
}

/// A-81: The directory, one below it or one above it is exchanged for a link.
#[test]
fn a_link_in_the_place_of_a_directory_is_not_followed() {
    let host = one("mkdir -p /tmp/d/s /tmp/elsewhere/deep");
    let mut watching = Watching::start(&host, &["-r", "one", "/tmp/d"]);
    shell(
        &host,
        "cd /tmp/d; rmdir s; ln -s /tmp/elsewhere s; : > /tmp/elsewhere/x; : > /tmp/elsewhere/deep/x
        for n in 1 2 3 4 5 6 7 8 9; do
            mkdir l; mv l gone$n; ln -s /tmp/elsewhere l; : > /tmp/elsewhere/x$n; rm l
        done
        : > end",
    );
    let found = watching.until("end");
    let is_through = |(_, path): &(String, String)| path.contains('x');
    assert!(!found.iter().any(is_through), "{found:?}");
    shell(
        &host,
        "mv /tmp/d /tmp/moved; ln -s /tmp/elsewhere /tmp/d; : > /tmp/d/x",
    );
    let (code, stderr) = watching.end();
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.contains("`/tmp/d` was removed, moved"), "{stderr}");
    // And one of the host, which the sandbox does not see.
    let secret = host.ground.path("secret");
    std::fs::create_dir(&secret).expect("made");
    shell(&host, &format!("ln -s {} /tmp/link", secret.display()));
    for (path, message) in [
        ("/tmp/link", "No such file or directory"),
        ("/tmp/none", "No such file or directory"),
        ("/etc/passwd", "Not a directory"),
    ] {
        let said = host.say(&["sandbox", "watch", "one", path]);
        assert_eq!(said.code, 125, "{said:?}");
        assert!(said.stderr.contains(message), "{said:?}");
        assert!(said.stderr.contains("(watch_failed)"), "{said:?}");
    }
    eventually("no process is left", || has_no_command(&host));
}

/// A-81: More events than anybody reads: the kernel's queue is the largest that is kept.
#[test]
fn a_flood_ends_with_a_mark_and_the_watch_goes_on() {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
    let limit: usize = limit.expect("read").trim().parse().expect("a number");
    let host = one("mkdir /tmp/d");
    let mut watching = Watching::start(&host, &["one", "/tmp/d"]);
    // Equal events in a row are one, so there are two files. Between the queue and this reader is room for less
    // than 128 Ki.
    let text = format!(
        "cd /tmp/d; i=0; while test $i -lt {}; do i=$((i+1)); echo > f; echo > g; done",
        limit + (64 << 10)
    );
    shell(&host, &text);
    loop {
        if watching.event().expect("no end")["type"] == "overflow" {
            break;
        }
    }
    shell(&host, ": > /tmp/d/end");
    watching.until("end");
}

/// A-81: A body or a client that uses up what a sandbox may watch.
#[test]
fn watches_end_at_the_limits_of_the_sandbox() {
    let host = one("mkdir /tmp/d");
    let mut all = Vec::new();
    let refused = loop {
        assert!(all.len() <= 16, "no limit");
        let mut child = host
            .command(&["sandbox", "watch", "one", "/tmp/d"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut line).expect("read");
        if line.is_empty() {
            break child.wait_with_output().expect("waited");
        }
        all.push((child, stdout));
    };
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("as much as it may"), "{stderr}");
    shell(&host, "true");
    for (mut child, _stdout) in all {
        child.kill().expect("killed");
        child.wait().expect("waited");
    }
    eventually("they have ended", || has_no_command(&host));
}
