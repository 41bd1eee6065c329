//! Trees that the body shaped to hurt whoever walks them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use runner::staging::{keep, remove_tree};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

use crate::accidents::{child, child_ground, child_in_namespaces};
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

/// Removes `name` in the home of `ground` and asserts that nothing of it stays.
fn assert_removed(ground: &Ground, name: &std::ffi::CStr) -> u64 {
    let removal = remove_tree(open_directory(ground.home.path()).as_fd(), name).expect("one name");
    assert_eq!((removal.left, &removal.named[..]), (0, &[][..]));
    let home = open_directory(ground.home.path());
    assert!(rustix::fs::statat(&home, name, AtFlags::SYMLINK_NOFOLLOW).is_err());
    ground.assert_canary();
    removal.removed
}

/// C-29
#[test]
fn a_tree_of_a_hundred_thousand_levels_is_kept_and_removed() {
    let ground = Ground::in_memory();
    make_deep(&ground.path("scratch"), 100_000);
    let kept = keep(ground.scratch().as_fd(), &ground.path("kept"), 1 << 20).expect("kept");
    let counts = (kept.directories, kept.links, kept.left_out);
    assert_eq!(counts, (100_001, 1, 0));
    assert_eq!(assert_removed(&ground, c"kept"), 100_002);
    assert_eq!(assert_removed(&ground, c"scratch"), 100_002);
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
    assert!(text.starts_with("removed 2002 left 0"), "{text}");
    assert_eq!(assert_removed(&ground, c"kept"), 2_002);
}

/// C-30, in small
#[test]
fn a_directory_of_many_files_is_removed() {
    let ground = Ground::new();
    let here = ground.scratch();
    for number in 0..20_000 {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&here, format!("file-{number}"), flags, Mode::RUSR).expect("made");
    }
    assert_eq!(assert_removed(&ground, c"scratch"), 20_001);
}

/// C-31
#[test]
fn modes_that_forbid_everything_do_not_stop_the_removal() {
    let ground = Ground::new();
    let mut closed = Vec::new();
    for mode in [0o000, 0o555, 0o1777, 0o300, 0o444] {
        // Deeper than the levels that are held open, so that moving is tried as well.
        let mut path = format!("scratch/{mode:o}");
        for level in 0..40 {
            ground.write(&format!("{path}/file"), b"x");
            closed.push((ground.path(&path), mode));
            path = format!("{path}/{level}");
        }
        ground.write(&path, b"x");
    }
    make_fifo(&ground.path("scratch/fifo"));
    symlink("../outside", ground.path("scratch/link")).expect("linked");
    let _listener = UnixListener::bind(ground.path("scratch/socket")).expect("a socket");
    for (path, mode) in closed.iter().rev() {
        let file = path.join("file");
        fs::set_permissions(&file, fs::Permissions::from_mode(*mode)).expect("chmod");
        fs::set_permissions(path, fs::Permissions::from_mode(*mode)).expect("chmod");
    }
    fs::set_permissions(ground.path("scratch"), fs::Permissions::from_mode(0o000)).expect("chmod");
    assert_removed(&ground, c"scratch");
}

#[test]
fn mounts_in_a_tree_are_named_and_not_removed() {
    let ground = child_ground();
    ground.write("scratch/d/e/file", b"x");
    ground.write("scratch/d/closed/file", b"x");
    let mount = "mount -t tmpfs none $FILE_CONTRACT_HOME/scratch/d/closed; \
        mkdir $FILE_CONTRACT_HOME/scratch/d/closed/theirs; \
        mount --bind $FILE_CONTRACT_HOME/outside $FILE_CONTRACT_HOME/scratch/d/e;";
    let remove = format!("{mount} FILE_CONTRACT_ACT=remove");
    if !child_in_namespaces(
        &ground,
        &format!("{remove} \"$@\"; ls -R $FILE_CONTRACT_HOME/scratch"),
    ) {
        return;
    }
    let text = fs::read_to_string(ground.path("report")).expect("read");
    // Both places, the directory that holds them, and the top.
    assert!(text.starts_with("removed 2 left 4"), "{text}");
    assert!(text.contains("closed") && text.contains("Busy"), "{text}");
    ground.assert_canary();
    assert!(ground.path("scratch/d/closed/file").exists());
}

/// C-33
#[test]
fn a_directory_swapped_for_a_link_during_the_removal_costs_nothing_outside() {
    let ground = Ground::new();
    for round in 0..300 {
        for number in 0..4 {
            ground.write(&format!("scratch/victim/deep/file-{number}"), b"x");
        }
        symlink("../outside", ground.path("scratch/swap")).expect("linked");
        let directory = ground.path("scratch");
        let swapper = (round % 3 != 0).then(|| {
            Meanwhile::repeat(move || {
                let (one, other) = (directory.join("victim"), directory.join("swap"));
                // Fails once either is gone, which is what the removal is about.
                let swap = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                assert!(matches!(
                    swap,
                    Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL)
                ));
            })
        });
        let home = open_directory(ground.home.path());
        let removal = remove_tree(home.as_fd(), c"scratch").expect("one name");
        drop(swapper);
        ground.assert_canary();
        if removal.left != 0 {
            assert_removed(&ground, c"scratch");
        }
        assert!(!ground.path("scratch").exists(), "{removal:?}");
    }
}

#[test]
fn a_name_that_is_no_name_is_refused_and_a_missing_one_is_no_error() {
    let ground = Ground::new();
    let home = open_directory(ground.home.path());
    for name in [c"", c".", c"..", c"a/b", c"/etc", c"../outside"] {
        assert!(remove_tree(home.as_fd(), name).is_err(), "{name:?}");
    }
    let removal = remove_tree(home.as_fd(), c"missing").expect("one name");
    assert_eq!((removal.removed, removal.left), (0, 0));
    symlink("outside", ground.path("link")).expect("linked");
    assert_eq!(assert_removed(&ground, c"link"), 1);
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
        assert_eq!(kept.left_out, 3, "{:?}", kept.named);
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
