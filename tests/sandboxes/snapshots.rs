//! `diff`, `snapshot` and `restore`: the files that belong to a sandbox alone.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use support::has_cgroup;
use support::invariants::eventually;

use crate::host::{Host, Said};

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[track_caller]
fn diff(host: &Host, name: &str) -> Vec<String> {
    let said = host.say(&["sandbox", "diff", name]);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{said:?}");
    said.stdout.lines().map(str::to_owned).collect()
}

#[track_caller]
fn snapshot(host: &Host, name: &str) -> PathBuf {
    let file = host.ground.path("snapshot.tar");
    let said = host.say(&["sandbox", "snapshot", name, text(&file)]);
    assert_eq!(said.code, 0, "{said:?}");
    file
}

#[track_caller]
fn assert_refused(host: &Host, said: &Said, part: &str) {
    assert_eq!((said.code, &*said.stdout), (125, ""), "{said:?}");
    assert!(said.stderr.contains(part), "{said:?}");
    assert_eq!(host.list(), [serde_json::Value::Null; 0]);
}

/// A tar of files with these names and contents.
fn archive(host: &Host, members: &[(&str, &[u8])]) -> PathBuf {
    let path = host.ground.path("made.tar");
    let mut tar = tar::Builder::new(fs::File::create(&path).expect("made"));
    for (name, contents) in members {
        let mut header = tar::Header::new_gnu();
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_mode(0o644);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        tar.append(&header, *contents).expect("written");
    }
    tar.finish().expect("written");
    path
}

#[test]
fn a_snapshot_has_the_files_of_the_sandbox_and_a_new_one_gets_them() {
    let host = Host::new();
    let lent = host.ground.workspace();
    let lent = text(&lent);
    let mount = format!("{lent}:/tmp/lent");
    host.create("one", &["--mount", &mount]);
    assert_eq!(diff(&host, "one"), [""; 0]);
    let script = "umask 022; mkdir -p /tmp/d/e; echo one > /tmp/d/file; chmod 750 /tmp/d/file; \
        ln -s /etc/shadow /tmp/d/link; touch -d @1000000000 /tmp/d/e; echo two > ~/.hidden; \
        printf x > \"/scratch/$(printf 'a\\nb\\033')\"; echo lent > /tmp/lent/made";
    let said = host.shell("one", script);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let changes = [
        "A /home/runner/.hidden",
        r"A /scratch/a\x0ab\x1b",
        "A /tmp/d",
        "A /tmp/d/e",
        "A /tmp/d/file",
        "A /tmp/d/link",
    ];
    assert_eq!(diff(&host, "one"), changes);
    let file = snapshot(&host, "one");
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    // What the caller lent is no part of it.
    fs::remove_file(Path::new(lent).join("made")).expect("removed");
    let said = host.say(&["sandbox", "restore", text(&file), "--name", "two"]);
    assert_eq!((said.code, &*said.stdout, &*said.stderr), (0, "two\n", ""));
    assert_eq!(diff(&host, "two"), changes);
    let said = host.shell(
        "two",
        "cat /tmp/d/file ~/.hidden; stat -c %a /tmp/d/file; stat -c %Y /tmp/d/e; \
         readlink /tmp/d/link; ls /tmp",
    );
    assert_eq!(said.stdout, "one\ntwo\n750\n1000000000\n/etc/shadow\nd\n");
}

#[test]
fn what_a_tar_cannot_have_is_skipped_with_a_warning() {
    let host = Host::new();
    host.create("one", &[]);
    let script = "mkfifo /tmp/fifo; echo x > /tmp/.wh.name; echo y > /tmp/kept";
    assert_eq!(host.shell("one", script).code, 0);
    let file = host.ground.path("snapshot.tar");
    let said = host.say(&["sandbox", "snapshot", "one", text(&file)]);
    assert_eq!(said.code, 0);
    for part in ["skipped `/tmp/fifo`", "skipped `/tmp/.wh.name`"] {
        assert!(said.stderr.contains(part), "{said:?}");
    }
    let said = host.say(&["sandbox", "restore", text(&file), "--name", "two"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(diff(&host, "two"), ["A /tmp/kept"]);
}

/// A-72: names that lead out, to a mount of the new sandbox, or to a file of the host.
#[test]
fn a_hostile_snapshot_changes_nothing_but_the_new_sandbox_which_is_removed() {
    let host = Host::new();
    let lent = host.ground.workspace();
    fs::write(lent.join("canary"), "alive").expect("written");
    let mount = format!("{}:/tmp/lent", text(&lent));
    type Members = &'static [(&'static str, &'static [u8])];
    let cases: [(Members, &str); 8] = [
        (&[("tmp/../../etc/x", b"x")], "`..` segment"),
        (&[("etc/passwd", b"x")], "no private directory"),
        (&[("usr/.wh.bin", b"")], "no private directory"),
        (&[("tmp/lent/canary", b"x")], "is mounted there"),
        (&[("tmp/lent/new/x", b"x")], "is mounted there"),
        (&[("tmp/.wh.lent", b"")], "is mounted there"),
        (&[("tmp/lent/.wh.canary", b"")], "is mounted there"),
        (
            &[("tmp/.wh..wh..opq", b""), ("tmp/x", b"x")],
            "empties a private directory",
        ),
    ];
    for (members, part) in cases {
        let file = archive(&host, members);
        let said = host.say(&["sandbox", "restore", text(&file), "--mount", &mount]);
        assert_refused(&host, &said, part);
        assert_eq!(fs::read(lent.join("canary")).expect("there"), b"alive");
        assert!(!lent.join("new").exists());
    }
    for bytes in [&b""[..], b"x", &[0x1f, 0x8b, 8, 0], &[b'a'; 2000]] {
        let file = host.ground.path("bad.tar");
        fs::write(&file, bytes).expect("written");
        let said = host.say(&["sandbox", "restore", text(&file)]);
        assert_refused(&host, &said, "(snapshot_failed)");
    }
    let said = host.say(&["sandbox", "restore", text(&host.ground.path("none"))]);
    assert_refused(&host, &said, "(snapshot_unreadable)");
    let file = archive(&host, &[("tmp/large", &vec![b'x'; 8 << 20])]);
    let said = host.say(&["sandbox", "restore", text(&file), "--disk", "4m"]);
    assert_refused(&host, &said, "free in the sandbox");
    host.assert_empty();
}

/// A-72: the host reads the tree of a body.
#[test]
fn a_tree_that_is_hostile_to_its_reader_leads_nowhere() {
    let host = Host::new();
    host.create("one", &[]);
    let secret = host.ground.write("secret", "canary-7531");
    let script = format!(
        "ln -s {secret} /tmp/link; ln -s / /tmp/root; mkdir -p /tmp/away; \
         cd /tmp/away; for n in $(seq 140); do mkdir d; cd d; done",
        secret = text(&secret)
    );
    assert_eq!(host.shell("one", &script).code, 0);
    let file = host.ground.path("snapshot.tar");
    for words in [
        &["sandbox", "diff", "one"][..],
        &["sandbox", "snapshot", "one", text(&file)],
    ] {
        let refused = host.say(words);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(
            refused.stderr.contains("128 directories deep"),
            "{refused:?}"
        );
    }
    assert!(!file.exists(), "a part of a snapshot");
    assert_eq!(host.shell("one", "rm -rf /tmp/away").code, 0);
    let file = snapshot(&host, "one");
    let bytes = fs::read(file).expect("there");
    assert!(!bytes.windows(11).any(|part| part == b"canary-7531"));
    assert_eq!(diff(&host, "one"), ["A /tmp/link", "A /tmp/root"]);
}

#[test]
fn the_file_is_written_whole_or_not_at_all_and_no_link_is_followed() {
    let host = Host::new();
    host.create("one", &[]);
    assert_eq!(host.shell("one", "echo x > /tmp/x").code, 0);
    let other = host.ground.write("other", "kept");
    let link = host.ground.path("link");
    symlink(&other, &link).expect("made");
    let missing = host.ground.path("none/snapshot.tar");
    for target in [&link, &missing] {
        let refused = host.say(&["sandbox", "snapshot", "one", text(target)]);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("(snapshot_failed)"), "{refused:?}");
    }
    assert_eq!(fs::read(&other).expect("there"), b"kept");
    // The old one stays until the new one is whole.
    let old = host.ground.write("old.tar", "old");
    let refused = host.say(&["sandbox", "snapshot", "two", text(&old)]);
    assert_eq!(refused.code, 125);
    assert_eq!(fs::read(&old).expect("there"), b"old");
    let said = host.say(&["sandbox", "snapshot", "one", text(&old)]);
    assert_eq!(said.code, 0, "{said:?}");
    let words = ["sandbox", "snapshot", "one", "-"];
    let stdout = host.command(&words).output().expect("started").stdout;
    assert_eq!(stdout, fs::read(&old).expect("there"));
    let mut child = host
        .command(&["sandbox", "restore", "-", "--name", "two"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&stdout).expect("written");
    drop(stdin);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert_eq!(diff(&host, "two"), ["A /tmp/x"]);
}

/// E-35: the sandbox stands still while it is read, and goes on when its reader is killed.
#[test]
fn a_reader_that_is_killed_leaves_the_sandbox_running() {
    if !has_cgroup() {
        return support::skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    host.create("one", &[]);
    let large = host.shell("one", "head -c 16m /dev/zero > /tmp/large");
    assert_eq!(large.code, 0);
    for signal in [Signal::KILL, Signal::INT] {
        // Nobody reads it, so it stays in the middle.
        let mut child = host
            .command(&["sandbox", "snapshot", "one", "-"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        eventually("it is paused", || host.list()[0]["is_paused"] == true);
        let refused = host.shell("one", "true");
        assert!(refused.stderr.contains("(sandbox_paused)"), "{refused:?}");
        kill_process(Pid::from_child(&child), signal).expect("sent");
        child.wait().expect("ended");
        eventually("it goes on", || host.list()[0]["is_paused"] == false);
        assert_eq!(host.shell("one", "true").code, 0);
    }
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    snapshot(&host, "one");
    assert_eq!(host.list()[0]["is_paused"], true, "its owner has paused it");
}
