//! Names that leave the bundle, or that parsers could read in two ways.

use std::os::fd::AsFd as _;

use crate::arena::{Arena, PERMIT, kept, refused, refused_in};
use support::tar::{Tar, header};

///
#[test]
fn a_name_that_climbs_out_is_refused() {
    for name in ["../x", "../../../../tmp/x", "..", "../", "../canary/secret"] {
        refused(
            &Tar::new()
                .file("ok", b"1")
                .file(name.trim_end_matches('/'), b"x")
                .gz(),
            "path_parent",
        );
        refused(&Tar::new().directory(name).gz(), "path_parent");
        refused(
            &Tar::new().symlink(name.trim_end_matches('/'), "ok").gz(),
            "path_parent",
        );
    }
}

///
#[test]
fn a_name_that_climbs_out_after_descending_is_refused() {
    refused(&Tar::new().file("a/../../x", b"x").gz(), "path_parent");
    let sly = Tar::new().directory("a/").file("a/../../canary/x", b"x");
    refused(&sly.gz(), "path_parent");
}

/// refused although it would stay inside.
#[test]
fn a_name_with_dot_dot_is_refused_even_where_it_stays_inside() {
    refused(&Tar::new().file("a/b/../../c", b"x").gz(), "path_parent");
    refused(&Tar::new().file("a/..", b"x").gz(), "path_parent");
}

///
#[test]
fn an_absolute_name_is_refused_and_not_stripped() {
    let arena = Arena::new();
    let absolute = arena.canary("new");
    let error = refused_in(
        &arena,
        &Tar::new().pax_file(absolute.as_bytes(), b"x").gz(),
        "path_absolute",
    );
    assert!(error.to_string().contains("is absolute"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("-C DIR")));
    assert!(arena.found().is_empty());
    refused(&Tar::new().file("/tmp/x", b"x").gz(), "path_absolute");
}

///
#[test]
fn absolute_names_in_disguise_are_refused() {
    for (name, code) in [
        ("//tmp/x", "path_absolute"),
        ("///x", "path_absolute"),
        ("/./x", "path_absolute"),
        (".//tmp/x", "path_absolute"),
        ("./../x", "path_parent"),
        ("././x", "path_empty_segment"),
        ("a//x", "path_empty_segment"),
        ("a/./x", "path_empty_segment"),
    ] {
        refused(&Tar::new().file(name, b"x").gz(), code);
    }
}

///
#[test]
fn windows_paths_are_plain_file_names() {
    let names = ["..\\x", "C:\\x", "\\\\host\\x"];
    let tar = names
        .iter()
        .fold(Tar::new(), |tar, name| tar.file(name, b"x"));
    let (arena, _) = kept(&tar.gz());
    assert_eq!(arena.found(), names);
}

///
#[test]
fn the_bundles_own_directory_is_accepted_and_left_as_it_is() {
    for name in [".", "./"] {
        let tar = Tar::new()
            .with(b'5', name.as_bytes(), 0, |block| {
                block[100..107].copy_from_slice(b"0007777")
            })
            .file("./a", b"1");
        let (arena, unpacked) = kept(&tar.gz());
        assert_eq!(arena.found(), ["a"]);
        assert_eq!(unpacked.entries, 1);
        assert_eq!(arena.mode(""), 0o751, "the root was chmodded");
    }
    for (name, code) in [
        ("", "path_empty"),
        ("/", "path_absolute"),
        ("..", "path_parent"),
    ] {
        refused(&Tar::new().directory(name).gz(), code);
    }
    refused(&Tar::new().file("", b"x").gz(), "path_empty");
    refused(&Tar::new().file(".", b"x").gz(), "path_root");
    refused(&Tar::new().file("./", b"x").gz(), "path_root");
    refused(&Tar::new().symlink(".", "a").gz(), "path_root");
    refused(
        &Tar::new().file("a", b"x").hard_link(".", "a").gz(),
        "path_root",
    );
}

///
#[test]
fn a_path_of_222372_segments_in_a_tiny_archive_is_refused_before_anything_is_made() {
    let name = "a/".repeat(222_372);
    let archive = Tar::new()
        .pax_file(format!("{name}x").as_bytes(), b"x")
        .gz();
    assert!(archive.len() < 4_000, "{}", archive.len());
    let arena = Arena::new();
    refused_in(&arena, &archive, "path_too_long");
    assert!(arena.found().is_empty());
}

///
#[test]
fn paths_longer_than_the_kernel_takes_are_refused() {
    let segment = "n".repeat(255);
    let longest = [segment.as_str(); 16].join("/");
    assert_eq!(longest.len(), 4095);
    // No path leads to the file from outside, only descriptors.
    let target = tempfile::tempdir().expect("a directory");
    let into = std::fs::File::open(target.path()).expect("opened");
    let archive = Tar::new().pax_file(longest.as_bytes(), b"x").gz();
    let limits = archive::UnpackLimits::default();
    let unpacked = archive::unpack(&PERMIT, archive.as_slice(), into.as_fd(), &limits);
    let unpacked = unpacked.expect("unpacked");
    let mut canonical = Vec::new();
    archive::write_canonical(&unpacked.tree, into.as_fd(), &mut canonical).expect("written");
    assert_eq!((unpacked.entries, unpacked.bytes), (16, 1));
    refused(
        &Tar::new()
            .pax_file(format!("{longest}/n").as_bytes(), b"x")
            .gz(),
        "path_too_long",
    );
    refused(
        &Tar::new().pax_file("n".repeat(256).as_bytes(), b"x").gz(),
        "path_segment_too_long",
    );
    let deep = |count| vec!["d"; count].join("/");
    kept(&Tar::new().pax_file(deep(128).as_bytes(), b"x").gz());
    refused(
        &Tar::new().pax_file(deep(129).as_bytes(), b"x").gz(),
        "path_too_deep",
    );
}

///
#[test]
fn of_two_files_of_one_name_the_last_wins_whole() {
    let tar = Tar::new()
        .with(b'0', b"f", 10, |block| {
            block[100..107].copy_from_slice(b"0000755")
        })
        .data(b"0123456789")
        .file("g", b"g")
        .file("f", b"new");
    let (arena, unpacked) = kept(&tar.gz());
    assert_eq!(arena.read("f"), b"new");
    assert_eq!(arena.mode("f"), 0o644);
    assert_eq!((unpacked.entries, unpacked.bytes), (2, 4));
    let (arena, _) = kept(
        &Tar::new()
            .symlink("l", "a")
            .symlink("l", "b")
            .directory("d/")
            .directory("d")
            .gz(),
    );
    assert_eq!(
        std::fs::read_link(arena.target().join("l"))
            .expect("a link")
            .as_os_str(),
        "b"
    );
}

///
#[test]
fn two_entries_of_one_name_and_two_types_are_refused() {
    for tar in [
        Tar::new().file("x", b"1").directory("x/"),
        Tar::new().directory("x/").file("x", b"1"),
        Tar::new().file("x/y", b"1").file("x", b"1"),
        Tar::new().file("x/y", b"1").symlink("x", "z"),
        Tar::new().symlink("x", "z").directory("x/"),
        Tar::new().file("x", b"1").symlink("x", "z"),
    ] {
        refused(&tar.gz(), "entry_other_type");
    }
    let error = refused(
        &Tar::new().file("x", b"1").file("x/y", b"2").gz(),
        "bundle_path_conflict",
    );
    assert_eq!(
        error.to_string(),
        "entry 2, `x/y`: it lies beneath `x`, which is a file"
    );
}

///
#[test]
fn names_that_other_systems_confuse_stay_distinct_and_case_twins_are_told() {
    let names = ["A", "a", "\u{e9}", "e\u{301}", "ss", "\u{df}"];
    let tar = names
        .iter()
        .fold(Tar::new(), |tar, name| tar.file(name, name.as_bytes()));
    let (arena, unpacked) = kept(&tar.gz());
    for name in names {
        assert_eq!(arena.read(name), name.as_bytes());
    }
    let codes: Vec<&str> = unpacked
        .warnings
        .iter()
        .map(|warning| warning.code.as_str())
        .collect();
    assert_eq!(codes, ["bundle_case_twins"]);
    assert!(unpacked.warnings[0].message.contains("`A` and `a`"));
}

///
#[test]
fn names_with_control_bytes_are_kept_and_shown_escaped() {
    use std::os::unix::ffi::OsStrExt as _;
    let names: [&[u8]; 4] = [
        b"\xff\xfe",
        b"new\nline",
        b"\x1b[31mred",
        "a\u{202e}b".as_bytes(),
    ];
    let tar = names.iter().fold(Tar::new(), |tar, name| {
        tar.raw(&header(b'0', name, 1)).data(b"x")
    });
    let (arena, _) = kept(&tar.clone().gz());
    for name in names {
        assert!(
            arena
                .target()
                .join(std::ffi::OsStr::from_bytes(name))
                .is_file()
        );
    }
    for name in names {
        let bad = tar.clone().raw(&header(b'5', name, 0)).gz();
        let text = refused(&bad, "entry_other_type").to_string();
        assert!(
            !text.contains(['\n', '\x1b', '\u{202e}', '\u{fffd}']),
            "{text:?}"
        );
    }
}

///
#[test]
fn a_name_with_a_nul_byte_is_refused_wherever_it_stands() {
    let in_name = Tar::new().raw(&header(b'0', b"a\0/../../x", 0));
    refused(&in_name.gz(), "header_nul_in_name");
    let in_prefix = Tar::new().with(b'0', b"x", 0, |block| {
        block[345..350].copy_from_slice(b"a\0b/c")
    });
    refused(&in_prefix.gz(), "header_nul_in_name");
    refused(&Tar::new().pax_file(b"a\0b", b"x").gz(), "pax_nul");
    let long = Tar::new().extended(b'L', b"a\0b\0").file("x", b"x");
    refused(&long.gz(), "long_name_nul");
}

/// the prefix ends in `..`, or the name does at its hundredth byte.
#[test]
fn dot_dot_that_appears_when_prefix_and_name_are_joined_is_refused() {
    let prefix = |prefix: &'static [u8], name: &[u8]| {
        Tar::new()
            .with(b'0', name, 1, |block| {
                block[345..345 + prefix.len()].copy_from_slice(prefix)
            })
            .data(b"x")
            .gz()
    };
    refused(&prefix(b"a/..", b"../x"), "path_parent");
    refused(&prefix(b"..", b"x"), "path_parent");
    refused(&prefix(b"/a", b"x"), "path_absolute");
    refused(&prefix(b"a/", b"x"), "path_empty_segment");
    let at_100 = format!("{}/..", "n".repeat(97));
    assert_eq!(at_100.len(), 100);
    refused(&Tar::new().file(&at_100, b"x").gz(), "path_parent");
    let (arena, _) = kept(&prefix(b"some/where", b"x"));
    assert_eq!(arena.read("some/where/x"), b"x");
}

#[test]
fn directories_of_version_control_are_left_out_with_one_warning() {
    let tar = Tar::new()
        .directory(".git/")
        .file(".git/hooks/pre-commit", b"#!/bin/sh")
        .symlink(".git/escape", "../../canary")
        .file("sub/.svn/entries", b"x")
        .file(".hg", b"x")
        .file(".gitignore", b"keep")
        .file("a", b"1");
    let (arena, unpacked) = kept(&tar.gz());
    assert_eq!(arena.found(), [".gitignore", "a"]);
    assert_eq!(unpacked.warnings.len(), 1);
    assert_eq!(unpacked.warnings[0].code, "bundle_left_out");
    let text = &unpacked.warnings[0].message;
    assert!(text.contains("`.git` and 4 more"), "{text}");
}
