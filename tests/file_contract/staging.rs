//! Declared inputs, before the body runs.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use runner::staging::{FileLimits, Workspace, check_key, check_outputs, stage};
use spec::digest::Digest;
use spec::path::RelPath;
use spec::report::StagedReport;

use crate::ground::*;

#[test]
fn an_input_is_staged_with_the_digest_of_its_bytes() {
    let ground = Ground::new();
    ground.write("workspace/data/in.csv", b"1,2\n");
    let script = ground.write("workspace/tool", b"#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o4711)).expect("chmod");
    let reports = ground
        .stage(&[input("csv", "data/in.csv"), input("tool", "tool")])
        .expect("staged");
    assert_eq!(
        fs::read(ground.path("scratch/csv")).expect("read"),
        b"1,2\n"
    );
    assert_eq!(mode_of(&ground.path("scratch/csv")), 0o644);
    assert_eq!(mode_of(&ground.path("scratch/tool")), 0o755);
    let expected = StagedReport {
        key: "csv".to_owned(),
        path: "data/in.csv".to_owned(),
        sha256: Digest::of(b"1,2\n"),
        bytes: 4,
    };
    assert_eq!(reports[0], expected);
    ground.assert_canary();
}

/// D-01
#[test]
fn a_path_that_could_leave_the_workspace_is_no_path() {
    let long = "a/".repeat(2_500);
    for path in [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "a/../b",
        "",
        ".",
        "./a",
        "a\0b",
        long.as_str(),
    ] {
        assert!(RelPath::parse(path.as_bytes()).is_err(), "{path:?}");
    }
}

#[test]
fn a_missing_input_stops_the_run() {
    let ground = Ground::new();
    ground.write("workspace/file", b"x");
    for path in ["nothing", "no/such/file", "file/below"] {
        let error = ground.refused_input(path);
        assert_eq!(error.code(), "input_missing", "{error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}

/// D-02
#[test]
fn an_input_behind_a_link_is_refused_and_its_target_never_read() {
    let ground = Ground::new();
    ground.write("workspace/real/file", b"inside");
    let workspace = ground.path("workspace");
    symlink(ground.path("outside/secret"), workspace.join("absolute")).expect("linked");
    symlink("../outside/secret", workspace.join("relative")).expect("linked");
    symlink("../outside", workspace.join("directory")).expect("linked");
    symlink("real/file", workspace.join("harmless")).expect("linked");
    symlink("nowhere", workspace.join("dangling")).expect("linked");
    symlink("real", workspace.join("inner")).expect("linked");
    for path in [
        "absolute",
        "relative",
        "directory/secret",
        "harmless",
        "dangling",
        "inner/file",
    ] {
        let error = ground.refused_input(path);
        assert_eq!(error.code(), "input_escapes", "{path}: {error}");
    }
}

/// D-03
#[test]
fn a_special_file_as_input_is_refused_without_hanging() {
    let ground = Ground::new();
    let workspace = ground.path("workspace");
    make_fifo(&workspace.join("fifo"));
    let _listener = UnixListener::bind(workspace.join("socket")).expect("a socket");
    fs::create_dir(workspace.join("directory")).expect("made");
    let mut names = vec!["fifo", "socket", "directory"];
    if make_device(&workspace.join("device")) {
        names.push("device");
    }
    let ground = guarded(move || {
        for name in names {
            let error = ground.refused_input(name);
            assert_eq!(error.code(), "input_not_regular", "{name}: {error}");
        }
        ground
    });
    ground.assert_canary();
}

/// D-03
#[test]
fn an_empty_input_is_staged_and_an_unreadable_one_refused() {
    let ground = Ground::new();
    ground.write("workspace/empty", b"");
    let closed = ground.write("workspace/closed", b"x");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("chmod");
    let reports = ground.stage(&[input("empty", "empty")]).expect("staged");
    assert_eq!((reports[0].bytes, reports[0].sha256), (0, Digest::of(b"")));
    // Root may read everything: then the caller's permissions count.
    if !is_root() {
        assert_eq!(ground.refused_input("closed").code(), "input_unreadable");
    }
    ground.assert_canary();
}

/// D-03
#[test]
fn an_input_above_the_limits_is_refused_before_a_byte_is_copied() {
    let ground = Ground::new();
    let huge = ground.write("workspace/huge", b"");
    let file = File::options().write(true).open(&huge).expect("opened");
    file.set_len(100 << 30).expect("a hole of 100 GiB");
    let ground = guarded(move || {
        assert_eq!(ground.refused_input("huge").code(), "input_too_large");
        ground
    });
    ground.write("workspace/a", &[0; 60]);
    ground.write("workspace/b", &[0; 41]);
    let limits = FileLimits {
        file_bytes: 60,
        total_bytes: 100,
        files: 2,
        ..FileLimits::default()
    };
    let both = [input("a", "a"), input("b", "b")];
    let error = ground.stage_within(&both, &limits).expect_err("too much");
    assert_eq!(error.code(), "input_too_large");
    assert!(error.to_string().contains("40 of 100"), "{error}");
    let limits = FileLimits { files: 1, ..limits };
    let error = ground.stage_within(&both, &limits).expect_err("too many");
    assert_eq!(error.code(), "too_many_files");
    ground.assert_canary();
}

/// D-03, D-27
#[test]
fn an_input_that_changes_meanwhile_is_refused_or_hashed_as_it_was_staged() {
    let ground = Ground::new();
    let path = ground.write("workspace/log", &vec![b'x'; 400_000]);
    let writer = {
        let path = path.clone();
        let mut round = 0_u8;
        Meanwhile::repeat(move || {
            round = round.wrapping_add(1);
            let size = 300_000 + usize::from(round) * 1_000;
            fs::write(&path, vec![round; size]).expect("written");
        })
    };
    let mut refused = 0;
    // On a busy machine the writer may not run during the first copies.
    for round in 0..20_000 {
        if round >= 200 && refused > 0 {
            break;
        }
        match ground.stage(&[input("log", "log")]) {
            Ok(reports) => {
                let staged = fs::read(ground.path("scratch/log")).expect("read");
                assert_eq!(reports[0].sha256, Digest::of(&staged));
                assert_eq!(reports[0].bytes, staged.len() as u64);
            }
            Err(error) => {
                assert_eq!(error.code(), "input_changed", "{error}");
                refused += 1;
            }
        }
        match fs::remove_file(ground.path("scratch/log")) {
            Ok(()) => (),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
    drop(writer);
    assert!(0 < refused, "the writer never met a copy");
    ground.assert_canary();
}

/// D-04
#[test]
fn a_magic_link_of_proc_is_never_followed() {
    let ground = Ground::new();
    let secret = File::open(ground.path("outside/secret")).expect("opened");
    let number = std::os::fd::AsRawFd::as_raw_fd(&secret);
    symlink(
        format!("/proc/self/fd/{number}"),
        ground.path("workspace/link"),
    )
    .expect("linked");
    assert_eq!(ground.refused_input("link").code(), "input_escapes");
    let proc = Workspace::open(Path::new("/proc/self")).expect("opened");
    for path in [
        format!("fd/{number}"),
        "exe".to_owned(),
        "root/etc/passwd".to_owned(),
    ] {
        let inputs = [input("key", &path)];
        let limits = FileLimits::default();
        let error = stage(&proc, &inputs, ground.scratch().as_fd(), None, &limits)
            .expect_err("a magic link");
        assert_eq!(error.code(), "input_escapes", "{path}: {error}");
    }
    // A file of procfs has size 0 and contents.
    let status = [input("key", "status")];
    let error = stage(
        &proc,
        &status,
        ground.scratch().as_fd(),
        None,
        &FileLimits::default(),
    )
    .expect_err("more than was judged");
    assert_eq!(error.code(), "input_changed", "{error}");
}

/// D-05, D-06
#[test]
fn changes_of_the_staged_copy_never_reach_the_original() {
    let ground = Ground::new();
    let original = ground.write("workspace/in", b"original");
    fs::hard_link(&original, ground.path("workspace/other-name")).expect("linked");
    let before = facts_of(&ground.path("workspace"));
    ground
        .stage(&[input("in", "in")])
        .expect("staged, hard links or not");
    let copy = ground.path("scratch/in");
    assert_eq!(fs::metadata(&copy).expect("there").nlink(), 1);
    fs::write(&copy, b"changed by the body").expect("written");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o777)).expect("chmod");
    assert_eq!(facts_of(&ground.path("workspace")), before);
    ground.assert_canary();
}

#[test]
fn an_input_never_replaces_or_writes_through_an_existing_file() {
    let ground = Ground::new();
    ground.write("workspace/in", b"x");
    symlink(ground.path("outside/secret"), ground.path("scratch/in")).expect("linked");
    let error = ground
        .stage(&[input("in", "in")])
        .expect_err("the key is taken");
    assert_eq!(error.code(), "scratch_unwritable", "{error}");
    ground.assert_canary();
}

/// D-15
#[test]
fn a_key_is_one_plain_file_name() {
    let long = "k".repeat(256);
    for key in [
        "",
        ".",
        "..",
        "a/b",
        "/a",
        "../a",
        "a/",
        "-rf",
        "a\0",
        "a\nb",
        "a\u{1b}[31m",
        long.as_str(),
    ] {
        let error = check_key(key).expect_err("refused");
        assert_eq!(error.code(), "key_refused", "{key:?}");
        assert!(
            !error.to_string().contains(['\n', '\u{1b}', '\0']),
            "{error}"
        );
        let ground = Ground::new();
        ground.write("workspace/in", b"x");
        let refused = ground.stage(&[input(key, "in")]).expect_err("refused");
        assert_eq!(refused.code(), "key_refused");
        assert_eq!(
            code_of(&ground.sync(&[output(key, "out")])[0]),
            "key_refused"
        );
        ground.assert_canary();
    }
    for key in ["a", "report.csv", "héllo", "a b", "A", "...", "a-b"] {
        check_key(key).expect("accepted");
    }
    let twice = [output("k", "a"), output("k", "b")];
    assert_eq!(
        check_outputs(&twice).expect_err("twice").code(),
        "key_twice"
    );
}
