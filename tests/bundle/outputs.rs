//! Where the bundle is written: completely or not at all, and never into itself.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::bundling::{Archive, Ended, output_of};
use support::{Ground, is_root, needs_root, runner};

/// A limit for hangs. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(60);

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("listed")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Bytes that do not compress.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(bytes)
    .collect()
}

#[test]
fn an_earlier_bundle_in_the_workspace_is_not_part_of_the_next() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    ground.file("out/keep", "x");
    let mut digests = Vec::new();
    for _ in 0..3 {
        let ended = ground.make(&[".", "-o", "out/b.tar.gz", "--print-digest"]);
        digests.push(ended.assert_done().text());
    }
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[0], digests[2]);
    // Recognized by its contents, not by its name.
    let target = ground.workspace().join("out/b.tar.gz");
    std::fs::hard_link(&target, ground.workspace().join("alias")).expect("linked");
    std::os::unix::fs::symlink("out/b.tar.gz", ground.path("from-outside")).expect("linked");
    std::fs::rename(ground.path("from-outside"), ground.workspace().join("link")).expect("moved");
    let ended = ground.make(&[".", "-o", "link", "--list"]);
    let list = ended.assert_done().text();
    assert!(
        !list.contains("alias") && !list.contains(" - out/b.tar.gz"),
        "{list}"
    );
    // Written elsewhere, it is an ordinary file.
    let other = ground.path("other.tar.gz");
    let list = ground.make(&[".", "-o", other.to_str().expect("a plain path"), "--list"]);
    assert!(list.text().contains("out/b.tar.gz"), "{list:#?}");
}

#[test]
fn a_pipe_gets_the_bundle_and_a_full_one_the_reason() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    let ended = ground.make(&[".", "-o", "-"]);
    ended.assert_done();
    let target = ground.path("from-pipe.tar.gz");
    std::fs::write(&target, &ended.stdout).expect("written");
    assert_eq!(Archive::read(&target).names(), ["manifest.yaml"]);
    assert_eq!(ground.archive(&["."]), Archive::read(&target));
    let ended = ground.make(&[".", "-o", "/dev/full"]);
    assert_failed(&ended, "output_no_space");
    let ended = ground.make(&[".", "-o", "nowhere/out"]);
    assert_failed(&ended, "output_unwritable");
    let ended = ground.make(&[".", "-o", "."]);
    assert_failed(&ended, "output_refused");
    // The hint does not tell to remove a directory.
    assert!(!ended.stderr.contains("remove"), "{ended:#?}");
}

#[track_caller]
fn assert_failed(ended: &Ended, code: &str) {
    let named = ended.stderr.contains(&format!("({code})"));
    assert!(ended.code == 125 && named, "{ended:#?}");
    assert!(ended.stderr.contains("runner: failed: "), "{ended:#?}");
}

#[test]
fn a_file_of_another_kind_is_never_replaced() {
    let ground = Ground::new();
    ground.file("tool/manifest.yaml", "run: [sh, main.sh]\n");
    ground.file("tool/main.sh", "echo hello\n");
    ground.file("notes", "dear diary\n");
    ground.file("empty", "");
    ground.file("old.lock", "<<<<<<< HEAD\n{\n  \"content_digest\": 5\n");
    let read = |name: &str| std::fs::read(ground.workspace().join(name)).expect("read");
    for name in ["tool/manifest.yaml", "tool/main.sh", "notes"] {
        let before = read(name);
        for flag in ["-o", "--lock"] {
            let ended = ground.make(&["tool", flag, name]);
            assert_failed(&ended, "output_refused");
            assert!(ended.stderr.contains(name), "{ended:#?}");
            assert_eq!(read(name), before, "{flag} {name}");
        }
    }
    for words in [
        &["tool", "-o", "x", "--lock", "./x"][..],
        &["tool", "-o", "old.lock", "--lock", "old.lock"],
    ] {
        assert_failed(&ground.make(words), "output_refused");
        assert!(!ground.workspace().join("x").exists());
    }
    ground
        .make(&["tool", "--lock", "-"])
        .assert_refused("usage", &["--lock -"]);
    // Each kind of file replaces its own kind, and an empty file.
    ground
        .make(&["tool", "-o", "empty", "--lock", "old.lock"])
        .assert_done();
    ground
        .make(&["tool", "-o", "empty", "--lock", "old.lock"])
        .assert_done();
    let ended = ground.make(&["tool", "-o", "old.lock", "--lock", "old.lock", "--locked"]);
    assert_failed(&ended, "output_refused");
    assert!(read("old.lock").starts_with(b"{"));
}

#[test]
fn a_reader_that_went_away_is_named() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = ground
        .bundle_command(&[".", "-o", "-"])
        .stdout(writer)
        .output()
        .expect("the runner starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(
        text.contains("`standard output` cannot be written") && text.contains("Broken pipe"),
        "{text}"
    );
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_file() {
    if !is_root() {
        return needs_root("a small file system is mounted by root only");
    }
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    ground.file("noise", noise(3 << 20));
    let small = ground.path("small");
    std::fs::create_dir(&small).expect("made");
    // In its own mount namespace: the mount ends with the shell.
    let script =
        "mount -t tmpfs -o size=1m none \"$2\" && printf '\\037\\213old' >\"$2/out\" || exit 99
        \"$1\" bundle \"$3\" -o \"$2/out\"; code=$?
        ls -A \"$2\"; tail -c 3 \"$2/out\"; exit $code";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(runner()).arg(&small).arg(ground.workspace());
    let ended = output_of(&mut command);
    assert_ne!(ended.code, 99, "{ended:#?}");
    assert_failed(&ended, "output_no_space");
    assert!(
        ended.stderr.contains("No space left on device"),
        "{ended:#?}"
    );
    // Existing files stay.
    assert_eq!(ended.text(), "out\nold");
}

#[test]
fn a_signal_during_bundling_leaves_no_file() {
    for signal in [
        rustix::process::Signal::INT,
        rustix::process::Signal::TERM,
        rustix::process::Signal::KILL,
    ] {
        let ground = Ground::new();
        ground.file("manifest.yaml", "run: [echo]\n");
        let endless = std::fs::File::create(ground.workspace().join("endless")).expect("made");
        endless.set_len(1 << 40).expect("sparse");
        let policy = ground.write("policy.yaml", "unpack: {unpacked: 4096g, archive: 4096g}\n");
        let folder = ground.path("target");
        std::fs::create_dir(&folder).expect("made");
        let target = folder.join("out.tar.gz");
        let mut child = ground
            .bundle_command(&[
                ".",
                "--policy",
                policy.to_str().expect("plain"),
                "-o",
                target.to_str().expect("plain"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let pid = child.id();
        let started = Instant::now();
        let reads = || {
            let opened = std::fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten()
                .flatten();
            opened
                .into_iter()
                .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|file| file.ends_with("endless")))
        };
        while !reads() {
            assert!(started.elapsed() < HANG_AFTER, "it never read the file");
            assert!(child.try_wait().expect("waited").is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid =
            rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("sent");
        let status = child.wait().expect("waited");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
        assert_eq!(names(&folder), [""; 0]);
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_makes_no_bundle() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    let path = ground.workspace().join("large");
    std::fs::File::create(&path)
        .expect("made")
        .set_len(256 << 20)
        .expect("sparse");
    let policy = ground.write("policy.yaml", "unpack: {unpacked: 8g, archive: 8g}\n");
    let target = ground.path("out.tar.gz");
    let mut child = ground
        .bundle_command(&[
            ".",
            "--policy",
            policy.to_str().expect("plain"),
            "-o",
            target.to_str().expect("plain"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // Rewritten repeatedly, from before it is opened until the end: the same size, other bytes.
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("opened");
    let started = Instant::now();
    while child.try_wait().expect("waited").is_none() {
        assert!(started.elapsed() < HANG_AFTER, "no end");
        file.write_all_at(b"torn", 255 << 20).expect("written");
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("waited");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("`large` changed while it was read"),
        "{stderr}"
    );
    assert!(stderr.contains("(source_changed)"), "{stderr}");
    assert!(!target.exists());
}

/// As in /tmp, where others wait with links for names that root uses.
#[test]
fn a_link_of_another_user_does_not_choose_where_the_bundle_is_written() {
    if !is_root() {
        return needs_root("only root can give a link to somebody else");
    }
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    let (shared, victim) = (ground.path("shared"), ground.path("victim"));
    std::fs::create_dir(&shared).expect("made");
    std::fs::create_dir(&victim).expect("made");
    let target = victim.join("target.tar.gz");
    std::fs::write(&target, b"\x1f\x8bold").expect("written");
    for (name, leads_to, output) in [
        ("link.tar.gz", &target, "link.tar.gz"),
        ("link", &victim, "link/new.tar.gz"),
    ] {
        let link = shared.join(name);
        std::os::unix::fs::symlink(leads_to, &link).expect("linked");
        let output = shared.join(output);
        let words = [".", "-o", output.to_str().expect("a plain path")];
        ground.make(&words).assert_done();
        std::fs::write(&target, b"\x1f\x8bold").expect("written");
        std::os::unix::fs::lchown(&link, Some(12_345), None).expect("given");
        let parts = ["behind a symlink of another user"];
        ground.make(&words).assert_refused("output_refused", &parts);
        assert_eq!(std::fs::read(&target).expect("read"), b"\x1f\x8bold");
    }
}
