//! Declared outputs, after the end of the body.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use runner::staging::{
    FileLimits, Journal, OUTPUTS_MAX, OutputFile, TemporaryName, check_destination, check_outputs,
    remove_temporary, stage, sync,
};
use rustix::fs::{CWD, RenameFlags, XattrFlags};
use spec::digest::Digest;
use spec::report::{SyncState, SyncedReport};
use sys::credentials::HostIds;

use crate::ground::*;

#[test]
fn an_output_is_synced_and_its_parent_directories_made() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    ground.write("workspace/report", b"old");
    let twice = [output("key", "a/b/c/result"), output("other", "report")];
    ground.write("scratch/other", b"new");
    let reports = ground.sync(&twice);
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
    assert_eq!(reports[0].sha256, Some(Digest::of(b"result")));
    assert_eq!(reports[0].bytes, Some(6));
    assert_eq!(
        fs::read(ground.path("workspace/a/b/c/result")).expect("read"),
        b"result"
    );
    assert_eq!(
        fs::read(ground.path("workspace/report")).expect("read"),
        b"new"
    );
    for directory in ["a", "a/b", "a/b/c"] {
        assert_eq!(mode_of(&ground.path("workspace").join(directory)), 0o755);
    }
    ground.assert_canary();
}

/// D-09
#[test]
fn a_missing_output_is_reported_and_the_others_are_synced() {
    let ground = Ground::new();
    ground.write("workspace/a", b"old");
    ground.write("scratch/b", b"new");
    let reports = ground.sync(&[output("a", "a"), output("b", "b")]);
    assert_eq!(reports[0].state, SyncState::Missing);
    assert_eq!(reports[0].error, None);
    assert_eq!(reports[1].state, SyncState::Synced);
    assert_eq!(fs::read(ground.path("workspace/a")).expect("read"), b"old");
    ground.assert_canary();
}

/// D-07
#[test]
fn an_output_that_is_a_link_is_refused_and_nothing_is_copied() {
    for target in [
        "../outside/secret",
        "/proc/self/environ",
        "nowhere",
        "other",
        ".",
    ] {
        let ground = Ground::new();
        ground.write("scratch/other", b"another file");
        symlink(target, ground.path("scratch/key")).expect("linked");
        assert_eq!(ground.refused_output("out"), "output_is_link", "{target}");
        assert!(!ground.path("workspace/out").exists());
    }
    let ground = Ground::new();
    symlink(ground.path("outside/secret"), ground.path("scratch/key")).expect("linked");
    assert_eq!(ground.refused_output("out"), "output_is_link");
}

/// D-08
#[test]
fn a_destination_below_a_link_is_refused() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    ground.write("workspace/real/file", b"x");
    let workspace = ground.path("workspace");
    symlink("../outside", workspace.join("out")).expect("linked");
    symlink(ground.path("outside"), workspace.join("absolute")).expect("linked");
    symlink("real", workspace.join("inner")).expect("linked");
    symlink("nowhere", workspace.join("dangling")).expect("linked");
    for path in [
        "out/result",
        "absolute/result",
        "out/deep/result",
        "inner/file",
        "inner/new/file",
        "dangling/file",
        "real/file/below",
    ] {
        assert_eq!(ground.refused_output(path), "destination_escapes", "{path}");
    }
    assert!(!ground.path("nowhere").exists());
    assert_eq!(
        fs::read(ground.path("workspace/real/file")).expect("read"),
        b"x"
    );
}

/// D-09
#[test]
fn an_output_that_is_no_regular_file_fails_alone_and_cannot_hang_us() {
    let ground = Ground::new();
    let scratch = ground.path("scratch");
    make_fifo(&scratch.join("fifo"));
    let _listener = UnixListener::bind(scratch.join("socket")).expect("a socket");
    fs::create_dir(scratch.join("directory")).expect("made");
    ground.write("scratch/file", b"x");
    fs::hard_link(scratch.join("file"), scratch.join("linked")).expect("linked");
    let closed = ground.write("scratch/closed", b"x");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("chmod");
    ground.write("scratch/good", b"good");
    let mut expected = vec![
        ("fifo", "output_not_regular"),
        ("socket", "output_not_regular"),
        ("directory", "output_not_regular"),
        ("linked", "output_hard_linked"),
        ("closed", "output_unreadable"),
        ("good", ""),
    ];
    if make_device(&scratch.join("device")) {
        expected.push(("device", "output_not_regular"));
    }
    let ground = guarded(move || {
        let outputs: Vec<OutputFile> = expected.iter().map(|(key, _)| output(key, key)).collect();
        for (report, (key, code)) in ground.sync(&outputs).iter().zip(&expected) {
            assert_eq!(code_of(report), *code, "{report:?}");
            assert_eq!(ground.path("workspace").join(key).exists(), code.is_empty());
        }
        ground
    });
    assert_eq!(
        fs::read(ground.path("workspace/good")).expect("read"),
        b"good"
    );
    ground.assert_canary();
}

/// D-11
#[test]
fn a_directory_swapped_for_a_link_meanwhile_never_leads_out() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    fs::create_dir(ground.path("workspace/deep")).expect("made");
    symlink("../outside/deep", ground.path("workspace/swap")).expect("linked");
    let directory = ground.path("workspace");
    let swapper = Meanwhile::repeat(move || {
        let (one, other) = (directory.join("deep"), directory.join("swap"));
        rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("swapped");
    });
    let mut states = BTreeMap::new();
    let has_met_both = |states: &BTreeMap<String, u32>| {
        ["", "destination_escapes"]
            .iter()
            .all(|code| states.contains_key(*code))
    };
    for round in 0..50_000 {
        // On a busy host the other thread may not run for many rounds.
        if round >= 1_000 && has_met_both(&states) {
            break;
        }
        let mut journal = Memory::default();
        let reports = sync(
            &ground.workspace(),
            &[output("key", "deep/result")],
            ground.scratch().as_fd(),
            None,
            RUN_ID,
            &FileLimits::default(),
            &mut journal,
        );
        *states.entry(code_of(&reports[0]).to_owned()).or_insert(0) += 1;
    }
    drop(swapper);
    ground.assert_canary();
    assert!(states.contains_key(""), "never written: {states:?}");
    assert!(
        states.contains_key("destination_escapes"),
        "never met the link: {states:?}"
    );
}

/// D-11
#[test]
fn a_workspace_swapped_for_a_link_after_the_start_is_the_one_that_was_opened() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    let workspace = ground.workspace();
    fs::rename(ground.path("workspace"), ground.path("moved")).expect("moved");
    symlink("outside", ground.path("workspace")).expect("linked");
    let mut journal = Memory::default();
    let reports = sync(
        &workspace,
        &[output("key", "deep/result")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut journal,
    );
    assert_eq!(reports[0].state, SyncState::Synced);
    assert_eq!(
        fs::read(ground.path("moved/deep/result")).expect("read"),
        b"result"
    );
    ground.assert_canary();
}

/// D-12
#[test]
fn a_file_at_the_destination_is_replaced_and_never_written_through() {
    let ground = Ground::new();
    let workspace = ground.path("workspace");
    symlink(ground.path("outside/secret"), workspace.join("link")).expect("linked");
    symlink("nowhere", workspace.join("dangling")).expect("linked");
    make_fifo(&workspace.join("fifo"));
    let read_only = ground.write("workspace/read-only", b"old");
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o444)).expect("chmod");
    ground.write("workspace/other", b"other");
    fs::hard_link(workspace.join("other"), workspace.join("linked")).expect("linked");
    let mut names = vec!["link", "dangling", "fifo", "read-only", "linked"];
    if make_device(&workspace.join("device")) {
        names.push("device");
    }
    let ground = guarded(move || {
        for name in names {
            ground.write("scratch/key", name.as_bytes());
            let reports = ground.sync(&[output("key", name)]);
            assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
            let path = ground.path("workspace").join(name);
            assert!(
                fs::symlink_metadata(&path).expect("there").is_file(),
                "{name}"
            );
            assert_eq!(fs::read(&path).expect("read"), name.as_bytes());
            assert_eq!(mode_of(&path), 0o644);
            ground.assert_canary();
        }
        ground
    });
    assert_eq!(
        fs::read(ground.path("workspace/other")).expect("read"),
        b"other"
    );
    assert!(!ground.path("workspace/nowhere").exists());
}

/// D-12
#[test]
fn a_directory_at_the_destination_is_an_error() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    ground.write("workspace/full/file", b"x");
    fs::create_dir(ground.path("workspace/empty")).expect("made");
    for path in ["full", "empty"] {
        assert_eq!(ground.refused_output(path), "destination_is_directory");
    }
    assert_eq!(
        fs::read(ground.path("workspace/full/file")).expect("read"),
        b"x"
    );
}

/// D-13
#[test]
fn an_output_has_a_plain_mode_and_none_of_its_attributes() {
    let ground = Ground::new();
    for (key, mode, expected) in [
        ("set-id", 0o6755, 0o755),
        ("open", 0o777, 0o755),
        ("plain", 0o666, 0o644),
        ("sticky", 0o1600, 0o644),
        ("group", 0o670, 0o644),
    ] {
        let path = ground.write(&format!("scratch/{key}"), b"x");
        // Best effort: if the file system has no attributes, none are copied.
        let attributed =
            rustix::fs::setxattr(&path, c"user.canary", b"no", XattrFlags::empty()).is_ok();
        // Only root may set one; this is CAP_NET_RAW, version 2.
        let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let name = c"security.capability";
        let given = rustix::fs::setxattr(&path, name, capability, XattrFlags::empty()).is_ok();
        assert!(given || !is_root() || !attributed, "{key}");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        let reports = ground.sync(&[output(key, key)]);
        assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
        let path = ground.path("workspace").join(key);
        assert_eq!(mode_of(&path), expected, "{key}");
        assert!(!attributed || attribute_of(&path).is_none(), "{key}");
        let mut value = [0; 32];
        assert!(
            rustix::fs::lgetxattr(&path, name, &mut value).is_err(),
            "{key}"
        );
    }
    ground.assert_canary();
}

/// D-13, D-06
#[test]
fn root_touches_the_scratch_directory_as_the_body_and_gives_outputs_to_the_workspace_owner() {
    let ground = Ground::new();
    if !is_root() {
        // Files cannot be given to another user: the caller keeps what is created.
        assert_eq!(ground.workspace().owner(), None);
        ground.write("scratch/out", b"out");
        assert_eq!(
            ground.sync(&[output("out", "out")])[0].state,
            SyncState::Synced
        );
        let made = fs::metadata(ground.path("workspace/out")).expect("there");
        assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
        return;
    }
    fs::set_permissions(ground.home.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let body = HostIds {
        uid: 1_879_048_199,
        gid: 1_879_048_199,
    };
    let chown = |name: &str, uid, gid| {
        std::os::unix::fs::chown(ground.path(name), Some(uid), Some(gid)).expect("chown");
    };
    chown("workspace", 12_345, 23_456);
    chown("scratch", body.uid, body.gid);
    fs::set_permissions(ground.path("scratch"), fs::Permissions::from_mode(0o700)).expect("chmod");
    ground.write("workspace/in", b"in");
    let limits = FileLimits::default();
    let scratch = ground.scratch();
    let inputs = [input("in", "in")];
    stage(
        &ground.workspace(),
        &inputs,
        scratch.as_fd(),
        Some(body),
        &limits,
    )
    .expect("staged");
    let owner = |path: &str| {
        let data = fs::symlink_metadata(ground.path(path)).expect("there");
        (data.uid(), data.gid())
    };
    assert_eq!(owner("scratch/in"), (body.uid, body.gid));
    ground.write("scratch/out", b"out");
    chown("scratch/out", body.uid, body.gid);
    // Root could read this one; the body could not, so it is not read on its behalf.
    ground.write("scratch/foreign", b"root's");
    fs::set_permissions(
        ground.path("scratch/foreign"),
        fs::Permissions::from_mode(0o600),
    )
    .expect("chmod");
    let outputs = [output("out", "new/below/out"), output("foreign", "foreign")];
    let mut journal = Memory::default();
    let workspace = ground.workspace();
    let reports = sync(
        &workspace,
        &outputs,
        scratch.as_fd(),
        Some(body),
        RUN_ID,
        &limits,
        &mut journal,
    );
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
    assert_eq!(code_of(&reports[1]), "output_unreadable");
    for path in ["new", "new/below", "new/below/out"] {
        assert_eq!(
            owner(&format!("workspace/{path}")),
            (12_345, 23_456),
            "{path}"
        );
    }
    assert_eq!(owner("workspace/in"), (0, 0));
    ground.assert_canary();
}

/// D-14
#[test]
fn an_output_above_the_limits_is_refused_before_a_byte_is_copied() {
    let ground = Ground::new();
    let sparse = ground.write("scratch/sparse", b"");
    let file = File::options().write(true).open(&sparse).expect("opened");
    file.set_len(1 << 40).expect("a hole of 1 TiB");
    ground.write("scratch/a", &[1; 60]);
    ground.write("scratch/b", &[2; 41]);
    ground.write("scratch/c", &[3; 40]);
    let limits = FileLimits {
        file_bytes: 60,
        total_bytes: 100,
        ..FileLimits::default()
    };
    let outputs = ["sparse", "a", "b", "c"].map(|key| output(key, key));
    // A safeguard: if the limit fails, zeros would fill a disk.
    let (ground, outputs, reports, recorded) = guarded(move || {
        let mut journal = Memory::default();
        let reports = sync(
            &ground.workspace(),
            &outputs,
            ground.scratch().as_fd(),
            None,
            RUN_ID,
            &limits,
            &mut journal,
        );
        (ground, outputs, reports, journal.recorded)
    });
    let codes: Vec<&str> = reports.iter().map(code_of).collect();
    assert_eq!(codes, ["output_too_large", "", "output_too_large", ""]);
    assert_eq!(recorded, 2, "no file was made for what is too large");
    let limits = FileLimits {
        files: 1,
        ..FileLimits::default()
    };
    let reports = ground.sync_within(&outputs[1..], &limits);
    let codes: Vec<&str> = reports.iter().map(code_of).collect();
    assert_eq!(codes, ["", "too_many_files", "too_many_files"]);
    ground.assert_canary();
}

/// D-18
#[test]
fn two_syncs_at_once_give_one_of_the_two_files_and_never_a_mix() {
    let ground = Arc::new(Ground::new());
    let contents: Vec<Vec<u8>> = (1..=2_u8).map(|byte| vec![byte; 700_000]).collect();
    for (index, content) in contents.iter().enumerate() {
        ground.write(&format!("scratch{index}/key"), content);
    }
    // One workspace, opened once for both: the lock is not per descriptor.
    let workspace = Arc::new(ground.workspace());
    let threads: Vec<_> = (0..contents.len())
        .map(|index| {
            let (ground, workspace) = (Arc::clone(&ground), Arc::clone(&workspace));
            std::thread::spawn(move || {
                let scratch = open_directory(&ground.path(format!("scratch{index}")));
                for _round in 0..10 {
                    let reports = sync(
                        &workspace,
                        &[output("key", "same")],
                        scratch.as_fd(),
                        None,
                        // Also the same names: the lock serves this case.
                        RUN_ID,
                        &FileLimits::default(),
                        &mut Memory::default(),
                    );
                    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
                    let seen = fs::read(ground.path("workspace/same")).expect("read");
                    assert_eq!(seen.len(), 700_000);
                    assert!(seen.iter().all(|byte| *byte == seen[0]), "a mix");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("joined");
    }
    ground.assert_no_temporary_file_is_left();
    ground.assert_canary();
}

/// D-18
#[test]
fn a_lock_that_another_run_keeps_fails_every_output_in_the_end() {
    /// While its own sync holds the lock, another one tries to get it.
    struct Holding<'ground> {
        ground: &'ground Ground,
        other: Vec<SyncedReport>,
    }
    impl Journal for Holding<'_> {
        fn locks(&mut self) -> Result<OwnedFd, std::io::Error> {
            locks()
        }
        fn record(&mut self, _temporary: &TemporaryName) -> Result<(), std::io::Error> {
            let limits = FileLimits {
                lock_wait: Duration::from_millis(50),
                ..FileLimits::default()
            };
            let outputs = [output("key", "other"), output("missing", "missing")];
            self.other = self.ground.sync_within(&outputs, &limits);
            Ok(())
        }
        fn forget(&mut self, _temporary: &TemporaryName) {}
    }
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    let mut holding = Holding {
        ground: &ground,
        other: Vec::new(),
    };
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut holding,
    );
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
    assert_eq!(holding.other.len(), 2);
    for report in &holding.other {
        assert_eq!(code_of(report), "workspace_busy");
    }
    assert!(!ground.path("workspace/other").exists());
    assert_eq!(
        ground.sync(&[output("key", "other")])[0].state,
        SyncState::Synced
    );
}

/// D-18
#[test]
fn a_lock_on_the_workspace_itself_holds_up_nobody() {
    let ground = Ground::new();
    ground.write("scratch/key", b"result");
    let held = open_directory(&ground.path("workspace"));
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let limits = FileLimits {
        lock_wait: Duration::ZERO,
        ..FileLimits::default()
    };
    let reports = ground.sync_within(&[output("key", "out")], &limits);
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
}

/// D-19
#[test]
fn outputs_that_would_replace_each_other_are_refused_before_the_run() {
    for (one, other) in [
        ("a", "a"),
        ("a", "A"),
        ("a/b", "a"),
        ("Dir", "dir/file"),
        ("a/b/c", "a/b"),
    ] {
        // Names that sort between a directory and its entries.
        let outputs = [
            output("1", one),
            output("2", "a-b"),
            output("3", "a.b/c"),
            output("4", other),
        ];
        let error = check_outputs(&outputs).expect_err("refused");
        assert_eq!(error.code(), "outputs_overlap", "{one} {other}: {error}");
        let ground = Ground::new();
        ground.write("scratch/1", b"x");
        let reports = ground.sync(&outputs);
        assert!(
            reports
                .iter()
                .all(|report| code_of(report) == "outputs_overlap")
        );
    }
    let distinct = ["a", "a-b", "a.b/c", "ab", "b/a"].map(|path| output(path_key(path), path));
    check_outputs(&distinct).expect("accepted");
}

fn path_key(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// D-24
#[test]
fn ten_thousand_outputs_are_synced_and_one_more_is_refused() {
    let ground = Ground::new();
    let outputs: Vec<OutputFile> = (0..=OUTPUTS_MAX)
        .map(|number| output(&format!("k{number}"), &format!("d{}/f{number}", number % 7)))
        .collect();
    for number in (0..OUTPUTS_MAX).step_by(20) {
        ground.write(&format!("scratch/k{number}"), b"x");
    }
    let reports = ground.sync(&outputs[..OUTPUTS_MAX]);
    let count = |state| {
        reports
            .iter()
            .filter(|report| report.state == state)
            .count()
    };
    assert_eq!(count(SyncState::Synced), OUTPUTS_MAX / 20);
    assert_eq!(count(SyncState::Missing), OUTPUTS_MAX - OUTPUTS_MAX / 20);
    let error = check_outputs(&outputs).expect_err("one too many");
    assert_eq!(error.code(), "too_many_files");
    ground.assert_canary();
}

/// D-25
#[test]
fn destinations_that_run_later_are_refused_unless_granted() {
    for path in [
        ".git/hooks/pre-commit",
        ".git/config",
        "sub/.git/config",
        ".GIT/config",
        ".git /config",
        ".git./config",
        "git~1/config",
        ".hg/hgrc",
        ".svn/x",
        ".github/workflows/ci.yml",
        ".vscode/tasks.json",
        ".idea/x",
        ".ssh/authorized_keys",
        ".runner/manifest.json",
        ".git",
        ".bashrc",
        "home/.Profile",
        ".bash_profile",
        ".bash_login",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".zlogin",
        ".login",
        ".cshrc",
        ".tcshrc",
        ".kshrc",
        ".envrc",
        ".config/fish/config.fish",
        ".secrets/SECRETS.md",
        ".code/tool/manifest.yaml",
        ".code-workspaces/tool/manifest.yaml",
        "a/.config/runner/config.yaml",
        ".Config/systemd/user/x.service",
        ".local/bin/ls",
        ".venv/bin/python",
        "pyvenv.cfg",
        ".npmrc",
    ] {
        let error = check_destination(&relative(path)).expect_err("refused");
        assert_eq!(error.code(), "destination_refused", "{path}");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("--grant outputs"))
        );
        let ground = Ground::new();
        ground.write("scratch/key", b"x");
        assert_eq!(
            code_of(&ground.sync(&[output("key", path)])[0]),
            "destination_refused"
        );
        assert_eq!(
            fs::read_dir(ground.path("workspace"))
                .expect("listed")
                .count(),
            0
        );
        let granted = OutputFile {
            granted: true,
            ..output("key", path)
        };
        assert_eq!(
            ground.sync(&[granted])[0].state,
            SyncState::Synced,
            "{path}"
        );
    }
    for path in [
        "git/x",
        ".gitignore",
        "bashrc",
        "profile",
        "a.git/x",
        ".sshx/y",
        ".config/x",
        ".config/x/runner",
        ".local/share/bin",
        "bin/x",
    ] {
        check_destination(&relative(path)).expect("accepted");
    }
    // A name that a later start would remove is refused, whatever was granted.
    let ours = OutputFile {
        granted: true,
        ..output("key", "dir/.runner-abc-1.tmp")
    };
    let error = check_outputs(&[ours]).expect_err("refused");
    assert_eq!(error.code(), "destination_refused");
}

#[test]
fn a_name_that_cannot_be_recorded_is_never_made() {
    struct Broken;
    impl Journal for Broken {
        fn locks(&mut self) -> Result<OwnedFd, std::io::Error> {
            locks()
        }
        fn record(&mut self, _temporary: &TemporaryName) -> Result<(), std::io::Error> {
            Err(std::io::Error::other("the disk is full"))
        }
        fn forget(&mut self, _temporary: &TemporaryName) {}
    }
    let ground = Ground::new();
    ground.write("scratch/key", b"new");
    ground.write("workspace/out", b"old");
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut Broken,
    );
    assert_eq!(code_of(&reports[0]), "destination_unwritable");
    assert_eq!(
        fs::read(ground.path("workspace/out")).expect("read"),
        b"old"
    );
    assert_eq!(
        fs::read_dir(ground.path("workspace"))
            .expect("listed")
            .count(),
        1
    );
}

#[test]
fn a_temporary_name_that_is_taken_is_left_alone_and_the_next_one_used() {
    let ground = Ground::new();
    ground.write("scratch/key", b"new");
    let squatter = ground.path(format!("workspace/.runner-{RUN_ID}-0.tmp"));
    symlink(ground.path("outside/secret"), &squatter).expect("linked");
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut Memory::default(),
    );
    assert_eq!(reports[0].state, SyncState::Synced, "{reports:?}");
    assert!(fs::symlink_metadata(&squatter).expect("there").is_symlink());
    ground.assert_canary();
    for number in 1..20 {
        ground.write(
            &format!("workspace/.runner-{RUN_ID}-{number}.tmp"),
            b"taken",
        );
    }
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        RUN_ID,
        &FileLimits::default(),
        &mut Memory::default(),
    );
    assert_eq!(code_of(&reports[0]), "destination_unwritable");
    let reports = sync(
        &ground.workspace(),
        &[output("key", "out")],
        ground.scratch().as_fd(),
        None,
        "../x",
        &FileLimits::default(),
        &mut Memory::default(),
    );
    assert_eq!(code_of(&reports[0]), "run_id_refused");
}

/// D-20
#[test]
fn a_later_start_removes_only_a_plain_file_of_our_form() {
    let ground = Ground::new();
    let workspace = ground.path("workspace");
    for path in [
        "a",
        ".runner-x.tmp",
        ".runner--1.tmp",
        ".runner-A-1.tmp",
        ".runner-x-1",
        ".runner-x-.tmp",
    ] {
        let error = TemporaryName::parse(relative(path)).expect_err("not ours");
        assert_eq!(error.code(), "temporary_not_ours", "{path}");
    }
    let name = |path: &str| TemporaryName::parse(relative(path)).expect("ours");
    ground.write("workspace/d/.runner-x-1.tmp", b"left");
    assert!(remove_temporary(&workspace, &name("d/.runner-x-1.tmp")).expect("removed"));
    assert!(!remove_temporary(&workspace, &name("d/.runner-x-1.tmp")).expect("gone"));
    assert!(!remove_temporary(&workspace, &name("no/.runner-x-1.tmp")).expect("gone"));
    assert!(!remove_temporary(&ground.path("no"), &name(".runner-x-1.tmp")).expect("gone"));
    symlink(
        ground.path("outside/secret"),
        workspace.join(".runner-x-2.tmp"),
    )
    .expect("linked");
    fs::create_dir(workspace.join(".runner-x-3.tmp")).expect("made");
    ground.write("workspace/file", b"x");
    fs::hard_link(workspace.join("file"), workspace.join(".runner-x-4.tmp")).expect("linked");
    symlink("../outside", workspace.join("link")).expect("linked");
    for path in [
        ".runner-x-2.tmp",
        ".runner-x-3.tmp",
        ".runner-x-4.tmp",
        "link/.runner-x-5.tmp",
    ] {
        let error = remove_temporary(&workspace, &name(path)).expect_err("not ours");
        assert_eq!(error.code(), "temporary_not_ours", "{path}: {error}");
    }
    assert_eq!(fs::read_dir(&workspace).expect("listed").count(), 6);
    ground.assert_canary();
}
