//! Files of the host: read, changed or watched from inside.

use super::attempts::{assert_all_refused, assert_lines, attempt, attempt_with, shell};
use support::Ground;

/// B-41, F-08, F-11.
#[test]
fn the_host_s_files_and_sockets_are_not_there() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_host_s_files_and_sockets_are_not_there.c");
    let own = [
        ground.path("canary"),
        ground.workspace(),
        ground.path("canary/file"),
        std::env::current_exe().expect("a program"),
    ]
    .map(|path| path.to_str().expect("a plain path").to_owned());
    let names: Vec<&str> = [
        "/etc/shadow",
        "/etc/machine-id",
        "/etc/hostname",
        "/etc/sudoers",
        "/etc/ssh",
        "/root",
        "/root/.ssh",
        "/home/user/.ssh/id_rsa",
        "/var/lib",
        "/var/run/docker.sock",
        "/var/run/dbus/system_bus_socket",
        "/run",
        "/run/secrets",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/systemd/private",
        "/run/dbus/system_bus_socket",
        "/run/runner",
        "/tmp/.X11-unix",
        "/boot",
        "/opt",
        "/srv",
        "/mnt",
        "/sys",
        "/sys/fs/cgroup",
        "/sys/class/dmi/id/product_uuid",
    ]
    .into_iter()
    .chain(own.iter().map(String::as_str))
    .collect();
    let done = attempt_with(&ground, &[], "open-host-files", text, &names);
    assert_all_refused(&done, names.len(), &["ENOENT"]);
}

/// B-49: the read-only mounts protect what Landlock does not cover.
#[test]
fn every_kind_of_write_to_a_read_only_place_is_refused() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/every_kind_of_write_to_a_read_only_place_is_refused.c");
    let canary = ground.path("canary");
    let canary = canary.to_str().expect("a plain path");
    // The canary invariant checks it afterwards.
    let done = attempt_with(
        &ground,
        &["--ro", canary],
        "write-all-ways",
        text,
        &[canary],
    );
    let expected = [
        ("open", "EROFS EACCES"),
        ("both", "EROFS EACCES"),
        ("truncating", "EROFS EACCES"),
        ("create", "EROFS EACCES"),
        ("nameless", "EROFS EACCES"),
        ("truncate", "EROFS"),
        ("chmod", "EROFS"),
        ("chmod self", "EROFS"),
        ("chown", "EROFS"),
        ("setxattr", "EROFS"),
        ("removexattr", "EROFS"),
        ("utime", "EROFS"),
        ("rename", "EROFS"),
        ("rename out", "EXDEV"),
        ("link", "EROFS"),
        ("link out", "EXDEV"),
        ("symlink", "EROFS"),
        ("unlink", "EROFS"),
        ("mkdir", "EROFS"),
        ("rmdir", "EROFS"),
        ("fifo", "EROFS"),
        ("ftruncate", "EINVAL"),
        ("fchmod", "EROFS"),
        ("fallocate", "EBADF"),
        ("reopen", "EROFS EACCES"),
        ("map", "EACCES"),
        ("flags", "EROFS EPERM ENOTTY"),
    ];
    let text = done.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, (name, answers)) in lines.iter().zip(expected) {
        let (found, answer) = line.rsplit_once(' ').expect("two words");
        assert_eq!(found, name);
        assert!(answers.split(' ').any(|one| one == answer), "{line}");
    }
}

/// B-49, B-52: the system directories and the root itself.
#[test]
fn the_system_directories_and_the_root_take_no_writes() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/the_system_directories_and_the_root_take_no_writes.c");
    let done = attempt(&ground, "write-system", text);
    assert_all_refused(&done, 13, &["EROFS", "EACCES", "EBUSY", "EXDEV", "EPERM"]);
}

/// B-17, B-52 (CVE-2025-31133, CVE-2025-52565): files and links in the bundle with the names of the
/// runner's own paths.
#[test]
fn a_bundle_with_the_runner_s_own_names_changes_nothing_of_them() {
    let ground = Ground::new();
    let folder = ground.path("names");
    for name in ["dev", "proc", "etc", "runner", "scratch", "tmp"] {
        let inside = folder.join(name);
        std::fs::create_dir_all(&inside).expect("made");
        let files = [
            "null",
            "keys",
            "passwd",
            "input.json",
            "ld.so.preload",
            "nsswitch.conf",
            "libnss_files.so.2",
        ];
        for file in files {
            std::fs::write(inside.join(file), "from the bundle").expect("written");
        }
    }
    std::os::unix::fs::symlink("etc/passwd", folder.join("passwd")).expect("linked");
    assert_only_its_own(&ground, &folder);
}

/// Runs the folder as a bundle: the runner's own files are in place, and writes of the body do not
/// reach the bundle's.
#[track_caller]
fn assert_only_its_own(ground: &Ground, folder: &std::path::Path) {
    let bundle = support::bundles::pack(folder);
    let look = "head -1 /etc/passwd; echo written >/dev/null; \
        stat -c '%F %t %T' /dev/null /dev/zero /dev/full; stat -c %F /dev /dev/pts; cat /proc/keys; \
        test -e /etc/ld.so.preload || echo no preload; ls /tmp /scratch; \
        grep -c 'from the bundle' /bundle/etc/passwd; grep -rl written /bundle; true";
    let run = serde_json::json!({ "shell": look }).to_string();
    let done = ground.exec(&["--run", &run], &bundle);
    done.assert_exited(0);
    let expected = "runner:x:1000:1000:runner:/home/runner:/bin/sh
character special file 1 3
character special file 1 5
character special file 1 7
directory
directory
no preload
/scratch:

/tmp:
1
";
    assert_eq!(done.text(), expected, "{folder:?}: {done:#?}");
}

/// B-17 (CVE-2025-31133, CVE-2025-52565): links in place of /dev, of the device that masks files,
/// and of the terminals.
#[test]
fn a_link_in_the_bundle_with_the_name_of_a_device_leads_no_mount_anywhere() {
    let ground = Ground::new();
    for (name, target) in [
        ("dev", "etc"),
        ("dev/null", "../etc/passwd"),
        ("dev/pts", "../etc"),
        ("dev/pts/0", "../../etc/passwd"),
    ] {
        let folder = ground.path(&name.replace('/', "-"));
        std::fs::create_dir_all(folder.join("etc")).expect("made");
        for file in ["null", "keys", "passwd", "0"] {
            std::fs::write(folder.join("etc").join(file), "from the bundle").expect("written");
        }
        let link = folder.join(name);
        std::fs::create_dir_all(link.parent().expect("a parent")).expect("made");
        std::os::unix::fs::symlink(target, link).expect("linked");
        assert_only_its_own(&ground, &folder);
    }
}

/// B-43: no files of the host or of another run.
#[test]
fn tmp_and_shared_memory_begin_empty_in_every_run() {
    let ground = Ground::new();
    for _run in 0..2 {
        let text = "ls -A /tmp /dev/shm; for at in /tmp /dev/shm; do echo left >$at/left; cat $at/left; done";
        let lines = shell(&ground, &[], text);
        assert_eq!(lines, ["/dev/shm:", "", "/tmp:", "left", "left"]);
    }
    let of_host = std::env::temp_dir().join("left");
    assert!(!of_host.exists() && !std::path::Path::new("/dev/shm/left").exists());
}

/// B-59: whole mounts cannot be watched, visible single files can.
#[test]
fn fanotify_is_refused_and_inotify_works_on_what_is_visible() {
    let ground = Ground::new();
    let text = include_str!(
        "../bodies/escapes/fanotify_is_refused_and_inotify_works_on_what_is_visible.c"
    );
    assert_lines(
        &attempt(&ground, "watch", text),
        "fanotify EPERM\nunprivileged EPERM\nmark EPERM\nwatch ok\nhost ENOENT",
    );
}

/// B-53: pages of a read-only file are not written past the mounts.
#[test]
fn a_read_only_file_is_not_changed_through_pipes() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/a_read_only_file_is_not_changed_through_pipes.c");
    let canary = ground.path("canary");
    let canary = canary.to_str().expect("a plain path");
    let file = format!("{canary}/file");
    let done = attempt_with(&ground, &["--ro", canary], "pipe-pages", text, &[&file]);
    assert_lines(
        &done,
        "vmsplice EINVAL\nsplice ok\nwrite ok\nback EBADF\nfirst c",
    );
}

/// B-64: a read-only mount does not prevent writing to a named pipe. Landlock does, except below a
/// path that the body may write. There the body gains only the pipe, and the report names the path.
#[test]
fn a_fifo_of_the_host_in_a_read_only_directory_takes_nothing_but_beneath_a_writable_place() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    ground.write("lent/file", "as it was");
    let pipe = lent.join("pipe");
    let all = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, all, 0).expect("made");
    for path in [&pipe, &lent.join("file")] {
        rustix::fs::chmod(path, all).expect("set");
    }
    let mut reader = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut reader, libc::O_NONBLOCK);
    let mut reader = reader.read(true).write(true).open(&pipe).expect("open");
    let text = include_str!(
        "../bodies/escapes/a_fifo_of_the_host_in_a_read_only_directory_takes_nothing_but_beneath_a_writable_place.c"
    );
    let source = lent.to_str().expect("a plain path");
    for (place, answer) in [("/lent", "EACCES"), ("/tmp/lent", "ok")] {
        let mount = format!("{source}:{place}:ro");
        let done = attempt_with(&ground, &["--mount", &mount], "write-fifo", text, &[place]);
        let landlock = &done.report["enforcement"]["landlock"];
        if landlock["state"] == "absent" {
            return support::skip("this kernel has no Landlock");
        }
        let rest = "file EROFS\nnew EROFS\nremoved EROFS";
        assert_lines(&done, &format!("pipe {answer}\n{rest}"));
        let got = std::io::Read::read(&mut reader, &mut [0; 8]);
        assert_eq!(got.is_ok(), answer == "ok", "{place}: {got:?}");
        if landlock["state"] == "enforced" {
            let reason = landlock["reason"].as_str().unwrap_or_default();
            let named = reason.starts_with("/tmp/lent is read-only beneath /tmp,");
            assert_eq!(named, answer == "ok", "{reason}");
        }
    }
}
