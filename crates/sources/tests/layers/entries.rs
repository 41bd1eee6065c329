//! Names, types, modes and repeated entries of one layer.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use archive::UnpackLimits;

use crate::stack::{Stack, refused};
use support::tar::{Tar, header, record};

fn with_mode(tar: Tar, type_flag: u8, name: &str, mode: &str) -> Tar {
    tar.with(type_flag, name.as_bytes(), 0, |block| {
        block[100..108].copy_from_slice(format!("{mode:0>7}\0").as_bytes());
    })
}

#[test]
fn a_name_is_a_path_of_the_root_however_it_is_written() {
    let stack = Stack::of([Tar::new()
        .directory("./")
        .directory("./a/")
        .file("/b", b"b")
        .file("//c//d/./e", b"e")
        .file("a/./f", b"f")
        .file("./.git/config", b"kept")
        .file(".hg/x", b"kept")
        .end()]);
    assert_eq!(
        stack.top(),
        [
            "d .git",
            "d .hg",
            "d a",
            "d c",
            "d c/d",
            "f .git/config",
            "f .hg/x",
            "f a/f",
            "f b",
            "f c/d/e",
        ]
    );
    assert_eq!(stack.seen("c/d/e"), "e");
}

#[test]
fn a_name_that_could_leave_the_root_is_refused() {
    for (name, code) in [
        ("../a", "path_parent"),
        ("a/../b", "path_parent"),
        ("/../a", "path_parent"),
        ("..", "path_parent"),
        ("a/b/..", "path_parent"),
        ("", "path_empty"),
        (".", "path_root"),
        ("/", "path_slash_after_name"),
        ("a/", "path_slash_after_name"),
    ] {
        assert_eq!(refused(&Tar::new().file(name, b"x").end()), code, "{name}");
    }
    let nul = Tar::new().pax_file(b"a\0b", b"").end();
    assert_eq!(refused(&nul), "pax_nul");
}

#[test]
fn names_are_as_long_as_a_file_system_takes_them() {
    let longest = "n".repeat(255);
    let stack = Stack::of([Tar::new().pax_file(longest.as_bytes(), b"long").end()]);
    assert_eq!(stack.seen(&longest), "long");
    let longer = Tar::new().pax_file("n".repeat(256).as_bytes(), b"").end();
    assert_eq!(refused(&longer), "path_segment_too_long");
    let deepest = vec!["d"; 128].join("/");
    let stack = Stack::of([Tar::new().pax_file(deepest.as_bytes(), b"deep").end()]);
    assert_eq!(stack.seen(&deepest), "deep");
    for too_deep in [vec!["d"; 129].join("/"), vec!["d"; 222_372].join("/")] {
        let code = refused(&Tar::new().pax_file(too_deep.as_bytes(), b"").end());
        assert!(["path_too_deep", "path_too_long"].contains(&code), "{code}");
    }
}

#[test]
fn rights_are_kept_but_those_of_others_ids_and_the_owner_has_his() {
    let tar = [
        ("setuid", b'0', "4755", 0o755),
        ("setgid", b'0', "2711", 0o711),
        ("all", b'0', "7777", 0o1777),
        ("none", b'0', "0", 0o400),
        ("secret", b'0', "0600", 0o600),
        ("tmp", b'5', "1777", 0o1777),
        ("closed", b'5', "0", 0o700),
        ("shared", b'5', "2775", 0o775),
    ];
    let layer = tar.iter().fold(Tar::new(), |grown, (name, kind, mode, _)| {
        with_mode(grown, *kind, name, mode)
    });
    let stack = Stack::of([layer.file("closed/file", b"in").end()]);
    for (name, _, stated, mode) in tar {
        assert_eq!(stack.mode(name), mode, "{name}, stated {stated}");
    }
    assert_eq!(stack.seen("closed/file"), "in");
}

#[test]
fn a_directory_that_no_layer_states_again_keeps_its_mode() {
    let base = with_mode(Tar::new(), b'5', "tmp", "1777");
    let base = with_mode(base, b'5', "root", "0700").end();
    let next = Tar::new().file("tmp/x", b"").file("root/new/y", b"").end();
    let mut stack = Stack::of([base, next]);
    assert_eq!((stack.mode("tmp"), stack.mode("root")), (0o1777, 0o700));
    assert_eq!(stack.mode("root/new"), 0o755);
    let third = with_mode(Tar::new(), b'5', "root", "0755").file("tmp/z", b"");
    stack.push(&third.end()).expect("taken");
    assert_eq!((stack.mode("tmp"), stack.mode("root")), (0o1777, 0o755));
}

#[test]
fn devices_and_fifos_are_left_out_and_reported_once() {
    let mut stack = Stack::new();
    let device = |tar: Tar, kind: u8, name: &str| {
        tar.with(kind, name.as_bytes(), 0, |block| {
            block[329..336].copy_from_slice(b"0000000");
            block[337..344].copy_from_slice(b"0000000");
        })
    };
    let tar = device(Tar::new().file("kept", b"here"), b'3', "dev/whiteout");
    let tar = device(tar, b'3', "kept");
    let tar = device(device(tar, b'4', "dev/vda"), b'6', "dev/pipe");
    let unpacked = stack.push(&tar.end()).expect("taken");
    assert_eq!(stack.top(), ["f kept"]);
    assert_eq!(stack.seen("kept"), "here");
    let [warning] = &unpacked.warnings[..] else {
        panic!("{:?}", unpacked.warnings);
    };
    assert_eq!(warning.code, "image_left_out");
    assert!(
        warning
            .message
            .starts_with("`dev/whiteout`, a character device, and 3 more"),
        "{}",
        warning.message
    );
    let linked = device(Tar::new(), b'3', "d").hard_link("l", "d").end();
    assert_eq!(refused(&linked), "hard_link_missing");
}

#[test]
fn other_types_are_refused() {
    for kind in [b'7', b'S', b'D', b'M', b'V', b'Z', b's'] {
        let tar = Tar::new().raw(&header(kind, b"x", 0)).end();
        assert_eq!(refused(&tar), "entry_type", "{}", char::from(kind));
    }
    let sparse = Tar::new().pax(&[("GNU.sparse.major", b"1")]).file("x", b"");
    assert_eq!(refused(&sparse.end()), "sparse_file");
}

#[test]
fn attributes_and_owners_of_an_archive_are_not_those_of_the_layer() {
    let mut stack = Stack::new();
    let tar = Tar::new()
        .pax(&[
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.overlay.redirect", b"/etc"),
            ("SCHILY.xattr.security.capability", b"\x01\0\0\x02"),
            ("LIBARCHIVE.xattr.user.overlay.whiteout", b"eQ"),
            ("uid", b"0"),
            ("gid", b"0"),
        ])
        .directory("d")
        .file("d/x", b"");
    stack.push(&tar.end()).expect("taken");
    assert_eq!(stack.top(), ["d d", "f d/x"]);
    let status = fs::metadata(stack.path(0).join("d/x")).expect("status");
    assert_eq!(status.uid(), rustix::process::geteuid().as_raw());
}

#[test]
fn a_file_has_the_time_that_its_entry_says_and_no_time_is_refused() {
    let timed = |tar: Tar, name: &str, field: &[u8; 12]| {
        tar.with(b'0', name.as_bytes(), 0, |block| {
            block[136..148].copy_from_slice(field);
        })
    };
    let tar = timed(Tar::new(), "plain", b"14000000000\0");
    let tar = timed(tar, "garbage", b"x9999999999\0");
    let tar = timed(tar, "negative", &[0xff; 12]);
    let tar = [
        ("pax", &b"1234567890.5"[..]),
        ("huge", b"99999999999999999"),
        ("huger", b"18446744073709551615"),
        ("nan", b"nan"),
        ("before", b"-5"),
    ]
    .into_iter()
    .fold(tar, |tar, (name, time)| {
        tar.extended(b'x', &record("mtime", time)).file(name, b"")
    });
    let stack = Stack::of([tar.end()]);
    let time = |name: &str| {
        fs::metadata(stack.path(0).join(name))
            .expect("status")
            .mtime()
    };
    assert_eq!(time("plain"), 0o14_000_000_000);
    assert_eq!(time("pax"), 1_234_567_890);
}

#[test]
fn the_last_of_several_entries_counts_whatever_they_are() {
    let stack = Stack::of([Tar::new()
        .file("file-file", b"1")
        .file("file-file", b"2")
        .file("file-directory", b"1")
        .directory("file-directory")
        .file("file-directory/x", b"2")
        .directory("directory-file")
        .file("directory-file/a/b/c", b"1")
        .symlink("directory-file/l", "a")
        .file("directory-file", b"2")
        .file("directory-link/x", b"1")
        .symlink("directory-link", "file-file")
        .symlink("link-file", "file-file")
        .file("link-file", b"own")
        .symlink("link-directory", "file-directory")
        .directory("link-directory")
        .file("link-directory/y", b"own")
        .file("hard", b"hard")
        .hard_link("file-hard", "hard")
        .file("hard", b"new")
        .end()]);
    for (path, seen) in [
        ("file-file", "2"),
        ("file-directory/x", "2"),
        ("directory-file", "2"),
        ("directory-link", "2"),
        ("link-file", "own"),
        ("link-directory/y", "own"),
        ("file-directory/y", "(nothing)"),
        ("file-hard", "hard"),
        ("hard", "new"),
    ] {
        assert_eq!(stack.seen(path), seen, "{path}");
    }
}

#[test]
fn what_lies_beneath_a_file_of_the_same_layer_is_refused() {
    let tar = Tar::new().file("a", b"").file("a/b", b"").end();
    assert_eq!(refused(&tar), "bundle_path_conflict");
}

#[test]
fn a_hard_link_is_another_name_of_a_file_of_its_layer() {
    let stack = Stack::of([Tar::new()
        .file("a/file", b"shared")
        .hard_link("b/name", "a/file")
        .hard_link("c", "/./a//file")
        .end()]);
    assert_eq!(stack.seen("b/name"), "shared");
    let inode = |name: &str| {
        fs::metadata(stack.path(0).join(name))
            .expect("status")
            .ino()
    };
    assert_eq!(inode("a/file"), inode("b/name"));
    assert_eq!(inode("a/file"), inode("c"));
}

#[test]
fn a_hard_link_to_anything_else_is_refused() {
    let stack = Stack::new();
    let absolute = stack.canary("secret");
    for (target, code) in [
        (absolute.as_str(), "hard_link_missing"),
        ("../canary/secret", "hard_link_path"),
        ("later", "hard_link_missing"),
        ("l", "hard_link_itself"),
        ("d", "hard_link_not_file"),
        ("link", "hard_link_not_file"),
        ("", "hard_link_path"),
        ("d/x/y", "hard_link_missing"),
    ] {
        let tar = Tar::new()
            .directory("d")
            .file("d/x", b"")
            .symlink("link", &absolute)
            .link(b'1', "l", target)
            .file("later", b"")
            .end();
        assert_eq!(refused(&tar), code, "{target}");
    }
    let above = Tar::new().file("d/x", b"").hard_link("d", "d/x").end();
    assert_eq!(refused(&above), "hard_link_missing");
    let data = Tar::new()
        .file("a", b"")
        .with(b'1', b"l", 4, |block| block[157] = b'a')
        .data(b"data");
    assert_eq!(refused(&data.end()), "data_without_file");
}

#[test]
fn a_hard_link_to_a_file_of_a_layer_below_is_refused() {
    let base = Tar::new().file("a", b"below").end();
    let next = Tar::new().hard_link("b", "a").end();
    assert_eq!(
        crate::stack::refused_over(&[base], &next),
        "hard_link_missing"
    );
}

#[test]
fn entries_and_bytes_have_limits_however_they_come() {
    let code = |limits: UnpackLimits, tar: Tar| {
        let mut stack = Stack::new();
        stack.limits = limits;
        stack.push(&tar.end()).expect_err("too much").code()
    };
    let entries = UnpackLimits {
        entries: 1_000,
        ..UnpackLimits::default()
    };
    let many = (0..1_001).fold(Tar::new(), |tar, n| tar.file(&format!("{n}"), b""));
    assert_eq!(code(entries, many), "entries_limit");
    let again = (0..1_001).fold(Tar::new(), |tar, _| tar.file("same", b""));
    assert_eq!(code(entries, again), "entries_limit");
    let implied = (0..20).fold(Tar::new(), |tar, n| {
        tar.pax_file(format!("{n}/{}", vec!["d"; 100].join("/")).as_bytes(), b"")
    });
    assert_eq!(code(entries, implied), "entries_limit");
    let hidden = (0..1_001).fold(Tar::new(), |tar, n| tar.file(&format!(".wh.{n}"), b""));
    assert_eq!(code(entries, hidden), "entries_limit");
    let bytes = UnpackLimits {
        unpacked_bytes: 1 << 20,
        ..UnpackLimits::default()
    };
    let replaced = (0..9).fold(Tar::new(), |tar, _| tar.file("same", &[0; 128 << 10]));
    assert_eq!(code(bytes, replaced), "unpacked_bytes_limit");
    let names = (0..900).fold(Tar::new(), |tar, n| {
        tar.link(b'2', &format!("{n}"), &"t".repeat(4_000))
    });
    assert_eq!(code(entries, names), "name_bytes_limit");
}

#[test]
fn a_hundred_thousand_entries_are_taken_and_no_more() {
    // Entries for the root, which exists: they count as entries of the archive, and nothing is created.
    let tar = |count: usize| {
        let one = Tar::new().directory("./").0;
        Tar(one.repeat(count)).file("last", b"").end()
    };
    let mut stack = Stack::new();
    let unpacked = stack.push(&tar(99_999)).expect("taken");
    assert_eq!(
        (unpacked.entries, stack.top()),
        (1, vec!["f last".to_owned()])
    );
    assert_eq!(refused(&tar(100_000)), "entries_limit");
}
