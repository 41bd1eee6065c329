//! `keep` on hostile trees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use runner::staging::keep;
use rustix::fs::{Mode, OFlags};

use crate::accidents::{child, child_in_namespaces};
use crate::ground::*;

/// Makes `levels` directories, each in the one before it, by descriptor.
fn make_deep(parent: &Path, levels: usize) {
    let mut here = open_directory(parent);
    for _level in 0..levels {
        rustix::fs::mkdirat(&here, c"d", Mode::RWXU).expect("made");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        here = rustix::fs::openat(&here, c"d", flags, Mode::empty()).expect("opened");
    }
    rustix::fs::symlinkat(c"/etc/passwd", &here, c"bottom").expect("linked");
}

/// C-29
#[test]
fn a_tree_of_a_hundred_thousand_levels_is_kept() {
    let ground = Ground::in_memory();
    make_deep(&ground.path("scratch"), 100_000);
    let kept = keep(ground.scratch().as_fd(), &ground.path("kept"), 1 << 20).expect("kept");
    let counts = (kept.directories, kept.links, kept.left_out);
    assert_eq!(counts, (100_001, 1, 0));
    ground.assert_canary();
}

/// C-29
#[test]
fn a_deep_tree_costs_no_more_descriptors_than_a_flat_one() {
    let ground = Ground::new();
    make_deep(&ground.path("scratch"), 2_000);
    let script = "ulimit -n 160; exec \"$@\"";
    let words = ["bash", "-c", script, "bash"].map(OsStr::new);
    let done = child(&ground, &words)
        .env("FILE_CONTRACT_ACT", "keep")
        .output()
        .expect("started");
    assert!(done.status.success(), "{done:?}");
    let text = fs::read_to_string(ground.path("report")).expect("read");
    assert_eq!(text, "directories 2001 links 1 left out 0");
    ground.assert_canary();
}

#[test]
fn a_mount_in_a_tree_is_left_out() {
    let ground = Ground::new();
    ground.write("scratch/d/e/file", b"x");
    ground.write("scratch/d/file", b"x");
    let script = "mount -t tmpfs none $FILE_CONTRACT_HOME/scratch/d/e; \
        echo foreign > $FILE_CONTRACT_HOME/scratch/d/e/file; \
        FILE_CONTRACT_ACT=keep \"$@\"";
    if !child_in_namespaces(&ground, script) {
        return;
    }
    let text = fs::read_to_string(ground.path("report")).expect("read");
    assert_eq!(text, "directories 2 links 0 left out 1");
    assert!(ground.path("kept/d/file").exists());
    assert!(!ground.path("kept/d/e").exists());
    ground.assert_canary();
}

#[test]
fn a_tree_is_kept_without_following_or_opening_what_could_hurt() {
    let ground = Ground::new();
    let scratch = ground.path("scratch");
    ground.write("scratch/a/b/file", b"content");
    let tool = ground.write("scratch/tool", b"#!");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).expect("chmod");
    symlink("/proc/self/environ", scratch.join("link")).expect("linked");
    symlink("../outside", scratch.join("out")).expect("linked");
    make_fifo(&scratch.join("fifo"));
    let _listener = UnixListener::bind(scratch.join("socket")).expect("a socket");
    ground.write("scratch/closed/file", b"x");
    fs::set_permissions(scratch.join("closed"), fs::Permissions::from_mode(0o000)).expect("chmod");
    let sparse = ground.write("scratch/sparse", b"head");
    let file = File::options().write(true).open(sparse).expect("opened");
    file.set_len(1 << 40).expect("a hole of 1 TiB");
    ground.write("scratch/large", &vec![1; 3 << 20]);
    let ground = guarded(move || {
        let open = ground.scratch();
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o000)).expect("chmod");
        let kept = keep(open.as_fd(), &ground.path("kept"), 2 << 20).expect("kept");
        assert_eq!((kept.files, kept.links, kept.directories), (4, 2, 4));
        assert_eq!(kept.left_out, 3, "{:?}", kept.first_left_out);
        assert!(kept.bytes < 1 << 20, "holes stay holes: {}", kept.bytes);
        ground
    });
    let target = ground.path("kept");
    assert_eq!(mode_of(&target), 0o700);
    assert_eq!(fs::read(target.join("a/b/file")).expect("read"), b"content");
    assert_eq!(mode_of(&target.join("tool")), 0o755);
    let link = fs::read_link(target.join("link")).expect("read");
    assert_eq!(link, Path::new("/proc/self/environ"));
    let sparse = fs::metadata(target.join("sparse")).expect("there");
    assert_eq!(sparse.len(), 1 << 40);
    assert!(sparse.blocks() < 1_000);
    assert!(target.join("closed/file").exists());
    assert!(!target.join("large").exists());
    let again = keep(ground.scratch().as_fd(), &target, 1).expect_err("it exists");
    assert_eq!(again.code(), "tree_unusable");
    ground.assert_canary();
}
