//! Mounts: creating, changing or removing one, leaving the root, and propagation.

use super::attempts::{assert_lines, attempt, attempt_with};
use support::{Ground, is_root};

/// B-07 (CVE-2021-41133, CVE-2022-0185).
#[test]
fn nothing_can_be_mounted() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/nothing_can_be_mounted.c");
    assert_lines(
        &attempt(&ground, "mount", text),
        "proc EPERM
        sysfs EPERM
        tmpfs EPERM
        cgroup EPERM
        cgroup2 EPERM
        devpts EPERM
        mqueue EPERM
        bind EPERM
        overlay EPERM
        fuse EPERM
        block EPERM
        shared EPERM
        fsopen ENOSYS
        fsconfig ENOSYS
        fsmount ENOSYS
        fspick ENOSYS
        open_tree ENOSYS
        move_mount ENOSYS
        mount_setattr ENOSYS
        open_tree_attr ENOSYS
        statmount EPERM
        listmount EPERM",
    );
}

/// B-08, B-09.
#[test]
fn a_mount_cannot_be_made_writable_and_a_mask_not_removed() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/a_mount_cannot_be_made_writable_and_a_mask_not_removed.c");
    let canary = ground.path("canary");
    let canary = canary.to_str().expect("a plain path");
    let done = attempt_with(&ground, &["--ro", canary], "remount", text, &[canary]);
    let text = done.text();
    assert_eq!(text.lines().count(), 13, "{text}");
    for line in text.lines() {
        let refused = line.ends_with(" EPERM") || matches!(line, "write EROFS" | "write EACCES");
        assert!(refused, "{text}");
    }
}

/// B-67: on btrfs the first two show the whole subvolume of the directory, the third deletes others.
#[test]
fn a_snapshot_shows_nothing_that_is_not_mounted() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/a_snapshot_shows_nothing_that_is_not_mounted.c");
    let workspace = ground.workspace();
    let workspace = workspace.to_str().expect("a plain path");
    for policy in ["--syscalls=default", "--syscalls=strict"] {
        let flags = [policy, "--rw", workspace];
        let done = attempt_with(&ground, &flags, "snapshot", text, &[workspace]);
        assert_lines(
            &done,
            "snapshot EPERM
            snapshot v2 EPERM
            delete by id EPERM
            bcachefs EPERM
            clone ok",
        );
    }
}

/// B-10.
#[test]
fn the_root_cannot_be_left_or_changed() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_root_cannot_be_left_or_changed.c");
    assert_lines(
        &attempt(&ground, "leave-root", text),
        "chroot EPERM
        chroot here EPERM
        pivot_root EPERM
        pivot dots EPERM
        fchdir ok
        top root",
    );
}

/// B-18 (CVE-2022-0492).
#[test]
fn no_cgroup_hierarchy_can_be_reached() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/no_cgroup_hierarchy_can_be_reached.c");
    assert_lines(
        &attempt(&ground, "cgroups", text),
        "sys ENOENT\nrelease ENOENT\nprocs ENOENT\nmounts 0\nnamespace EPERM",
    );
}

/// Runs a body in a separate mount namespace, in which the directory that it sees is shared. `host`
/// runs outside once the body has started, then the body's script continues.
fn with_shared_mount(flags: &[&str], host: &str, body: &str) -> String {
    let ground = Ground::new();
    let (shared, talk) = (ground.path("shared"), ground.path("talk"));
    for directory in [&shared.join("sub"), &talk] {
        std::fs::create_dir_all(directory).expect("made");
    }
    let shared = shared.to_str().expect("a plain path");
    let talk = talk.to_str().expect("a plain path");
    let fill = |text: &str| text.replace("SHARED", shared).replace("TALK", talk);
    let body = fill(&format!(
        "touch TALK/started; until [ -e TALK/done ]; do sleep 0.05; done; {body}"
    ));
    let mut line = vec!["run".to_owned(), "--rw".to_owned(), talk.to_owned()];
    line.extend(flags.iter().map(|flag| fill(flag)));
    line.extend(["--", "/bin/sh", "-c", &body].map(str::to_owned));
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let outside = fill(&format!(
        "set -e; mount --bind SHARED SHARED; mount --make-shared SHARED
         \"$@\" & pid=$!
         until [ -e TALK/started ]; do kill -0 $pid; sleep 0.05; done
         {host}
         touch TALK/done; wait $pid"
    ));
    let mut words = vec!["--mount"];
    if !is_root() {
        words.push("--map-root-user");
    }
    words.extend(["sh", "-c", &outside, "sh"]);
    let runtime = ground.path("runtime");
    let runtime = runtime.to_str().expect("a plain path");
    // I10 would measure the shell.
    let done = ground
        .command(&line)
        .through("unshare", &words)
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", runtime)
        .without("I10")
        .done();
    done.assert_exited(0);
    done.text()
}

/// An empty directory inside a mounted one hides what is there, and keeps what is written.
#[test]
fn an_empty_directory_within_a_lent_one_shows_and_changes_nothing_of_it() {
    let ground = Ground::new();
    let hidden = ground.write("lent/hidden/secret", "of the host");
    let (lent, hidden) = (
        ground.path("lent"),
        hidden.parent().expect("one").to_owned(),
    );
    let (lent, inside) = (
        lent.to_str().expect("a plain path"),
        hidden.to_str().expect("a plain path"),
    );
    for flag in ["--ro", "--rw"] {
        for size in ["", ":1m"] {
            let empty = format!("{inside}{size}");
            let text = format!(
                "ls -A {inside}; echo new >{inside}/new && cat {inside}/new; ls -A /runner/overlays 2>&-"
            );
            let lines = super::attempts::shell(
                &ground,
                &[flag, lent, "--tmpfs", &empty],
                &format!("{text}; true"),
            );
            assert_eq!(lines, ["new"], "{flag} {empty}");
            let left: Vec<_> = std::fs::read_dir(&hidden).expect("readable").collect();
            assert_eq!(left.len(), 1, "{flag} {empty}");
        }
    }
}

/// B-51.
#[test]
fn what_the_host_mounts_later_does_not_appear_inside() {
    for flag in ["--ro", "--rw"] {
        let text = with_shared_mount(
            &[flag, "SHARED"],
            "mount -t tmpfs none SHARED/sub; touch SHARED/sub/from-the-host",
            "ls -A SHARED/sub; grep -c SHARED /proc/self/mountinfo",
        );
        assert_eq!(text, "1\n", "{flag}");
    }
}

/// B-51 in the other direction: mounts of the runner below a directory that the caller passes.
#[test]
fn what_is_mounted_inside_does_not_appear_on_the_host() {
    for flag in ["--ro", "--rw"] {
        let text = with_shared_mount(
            &[flag, "SHARED", "--tmpfs", "SHARED/sub"],
            "grep -c SHARED /proc/self/mountinfo >TALK/count",
            "cat TALK/count; grep -c SHARED /proc/self/mountinfo",
        );
        assert_eq!(text, "1\n2\n", "{flag}");
    }
}
