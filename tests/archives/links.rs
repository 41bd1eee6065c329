//! Symbolic and hard links, and attacks through them.

use crate::arena::{Arena, kept, refused, refused_in};
use support::tar::Tar;

///
#[test]
fn nothing_is_written_through_a_link_to_the_outside() {
    let arena = Arena::new();
    let tar = Tar::new().symlink("l", &arena.canary("")).file("l/x", b"x");
    refused_in(&arena, &tar.gz(), "symlink_absolute");
    let tar = Tar::new().symlink("l", "../canary").file("l/x", b"x");
    refused(&tar.gz(), "symlink_escapes");
}

#[test]
fn nothing_is_written_through_a_link_to_the_inside_either() {
    for later in [
        Tar::new().file("l/x", b"x"),
        Tar::new().directory("l/d/"),
        Tar::new().symlink("l/m", "y"),
        Tar::new().file("l/deep/er/x", b"x"),
        Tar::new().file("f", b"1").hard_link("l/h", "f"),
    ] {
        let tar = Tar::new().directory("d/").symlink("l", "d").raw(&later.0);
        let error = refused(&tar.gz(), "entry_through_link");
        assert!(error.to_string().contains("`l`"), "{error}");
    }
}

///
#[test]
fn links_that_climb_step_by_step_are_refused() {
    let tar = Tar::new()
        .symlink("cur", ".")
        .symlink("par", "cur/..")
        .file("par/x", b"x");
    refused(&tar.gz(), "entry_through_link");
    let tar = Tar::new().symlink("cur", ".").symlink("par", "cur/..");
    refused(&tar.gz(), "symlink_through_link");
    let tar = Tar::new().symlink("par", "cur/..").symlink("cur", ".");
    refused(&tar.gz(), "symlink_through_link");
}

///
#[test]
fn a_file_does_not_take_the_place_of_a_link() {
    let tar = Tar::new()
        .symlink("f", "../canary/secret")
        .file("f", b"overwritten");
    refused(&tar.gz(), "symlink_escapes");
    let tar = Tar::new().symlink("f", "g").file("f", b"overwritten");
    refused(&tar.gz(), "entry_other_type");
}

///
#[test]
fn a_directory_that_later_turns_into_a_link_is_refused() {
    let tar = Tar::new()
        .directory("d/")
        .symlink("d", "/")
        .file("d/x", b"x");
    refused(&tar.gz(), "symlink_absolute");
    let tar = Tar::new()
        .directory("d/")
        .directory("e/")
        .symlink("d", "e")
        .file("d/x", b"x");
    refused(&tar.gz(), "entry_other_type");
}

///
#[test]
fn a_directory_entry_does_not_chmod_what_a_link_of_its_name_points_to() {
    let arena = Arena::new();
    let tar = Tar::new()
        .symlink("d", &arena.canary("directory"))
        .with(b'5', b"d/", 0, |block| {
            block[100..107].copy_from_slice(b"0000777")
        });
    refused_in(&arena, &tar.gz(), "symlink_absolute");
    let tar = Tar::new()
        .directory("real/")
        .symlink("d", "real")
        .with(b'5', b"d/", 0, |block| {
            block[100..107].copy_from_slice(b"0000777")
        });
    refused(&tar.gz(), "entry_other_type");
}

///
#[test]
fn a_deep_link_that_climbs_out_is_refused() {
    let tar = Tar::new()
        .directory("a/b/c/")
        .symlink("a/b/c/l", "../../../..")
        .file("a/b/c/l/x", b"x");
    refused(&tar.gz(), "symlink_escapes");
    let tar = Tar::new().symlink("a/b/c/l", "../../..");
    let (arena, _) = kept(&tar.gz());
    assert_eq!(arena.found(), ["a", "a/b", "a/b/c", "a/b/c/l"]);
}

/// a chain whose real path exceeds PATH_MAX, so that a check with realpath fails.
#[test]
fn a_chain_of_links_too_long_for_realpath_is_refused() {
    let long = "d".repeat(247);
    let mut tar = Tar::new();
    let mut path = String::new();
    for step in "abcdefghijklmnop".chars() {
        tar = tar
            .pax(&[("path", format!("{path}{long}").as_bytes())])
            .directory("d/")
            .pax(&[
                ("path", format!("{path}{step}").as_bytes()),
                ("linkpath", long.as_bytes()),
            ])
            .symlink("l", "t");
        path = format!("{path}{step}/");
    }
    let escape = format!("{}{}", "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/", "../".repeat(17));
    tar = tar.symlink("escape", &escape).file("escape/x", b"x");
    refused(&tar.gz(), "entry_through_link");
}

///
#[test]
fn a_link_that_is_inside_only_on_paper_is_refused() {
    let tar = Tar::new()
        .symlink("a/sub", "..")
        .symlink("l", "a/sub/../canary");
    refused(&tar.gz(), "symlink_through_link");
    let tar = Tar::new()
        .symlink("d/deep/up", "../..")
        .symlink("m", "d/deep/up/../..");
    refused(&tar.gz(), "symlink_through_link");
}

///
#[test]
fn a_hard_link_to_an_absolute_path_is_refused() {
    let arena = Arena::new();
    let tar = Tar::new()
        .hard_link("h", &arena.canary("secret"))
        .file("h", b"overwritten");
    refused_in(&arena, &tar.gz(), "hard_link_path");
    refused(
        &Tar::new().hard_link("h", "/etc/passwd").gz(),
        "hard_link_path",
    );
}

///
#[test]
fn a_hard_link_that_climbs_out_is_refused() {
    for target in ["../canary/secret", "a/../../canary/secret", "..", ""] {
        let tar = Tar::new()
            .file("a/x", b"1")
            .hard_link("h", target)
            .file("h", b"overwritten");
        refused(&tar.gz(), "hard_link_path");
    }
}

///
#[test]
fn a_hard_link_to_a_symlink_is_refused() {
    let tar = Tar::new()
        .symlink("l", "x")
        .hard_link("h", "l")
        .file("h", b"overwritten");
    let error = refused(&tar.gz(), "hard_link_not_file");
    assert!(error.to_string().contains("which is a symlink"), "{error}");
    let tar = Tar::new()
        .symlink("l", "d")
        .file("d/x", b"1")
        .hard_link("h", "l/x");
    refused(&tar.gz(), "hard_link_missing");
}

///
#[test]
fn a_hard_link_whose_target_moved_away_is_refused() {
    let tar = Tar::new()
        .file("a/t/dummy", b"")
        .symlink("b", "../canary")
        .symlink("c", "a/t")
        .symlink("c/escape", "../../canary/secret")
        .symlink("c", "b")
        .hard_link("c/escape", "c/escape")
        .file("c/escape", b"overwritten");
    refused(&tar.gz(), "symlink_escapes");
    let tar = Tar::new()
        .file("a/t/x", b"")
        .symlink("c", "a/t")
        .hard_link("h", "c/x");
    refused(&tar.gz(), "hard_link_missing");
}

///
#[test]
fn a_hard_link_to_a_later_file_to_itself_or_to_a_directory_is_refused() {
    refused(
        &Tar::new().hard_link("h", "f").file("f", b"1").gz(),
        "hard_link_missing",
    );
    refused(&Tar::new().hard_link("h", "h").gz(), "hard_link_itself");
    refused(
        &Tar::new().file("h", b"1").hard_link("h", "h").gz(),
        "hard_link_itself",
    );
    refused(
        &Tar::new().directory("d/").hard_link("h", "d").gz(),
        "hard_link_not_file",
    );
    refused(
        &Tar::new()
            .file(".git/x", b"1")
            .hard_link("h", ".git/x")
            .gz(),
        "hard_link_missing",
    );
}

///
#[test]
fn a_hard_link_with_data_is_refused_and_its_target_is_not_overwritten() {
    let arena = Arena::new();
    let tar = Tar::new()
        .file("f", b"before")
        .with(b'1', b"h", 5, |block| block[157..158].copy_from_slice(b"f"))
        .data(b"after");
    refused_in(&arena, &tar.gz(), "data_without_file");
    assert_eq!(arena.read("f"), b"before");
}

#[test]
fn a_hard_link_becomes_a_copy_with_its_targets_contents_and_mode() {
    let tar = Tar::new()
        .with(b'0', b"./f", 3, |block| {
            block[100..107].copy_from_slice(b"0000755")
        })
        .data(b"one")
        .hard_link("d/h", "./f")
        .file("f", b"two")
        .hard_link("i", "f");
    let (arena, unpacked) = kept(&tar.gz());
    assert_eq!(
        (arena.read("d/h"), arena.mode("d/h")),
        (b"one".to_vec(), 0o755)
    );
    assert_eq!((arena.read("i"), arena.mode("i")), (b"two".to_vec(), 0o644));
    assert_eq!((unpacked.bytes, unpacked.entries), (9, 4));
}

/// refused, so that no later stage can meet one.
#[test]
fn a_link_to_the_outside_is_refused_even_if_nothing_goes_through_it() {
    let arena = Arena::new();
    refused_in(
        &arena,
        &Tar::new().symlink("l", &arena.canary("secret")).gz(),
        "symlink_absolute",
    );
    refused(
        &Tar::new().symlink("l", "../canary/secret").gz(),
        "symlink_escapes",
    );
    refused(
        &Tar::new().symlink("d/l", "../../target/d").gz(),
        "symlink_escapes",
    );
    let error = refused(
        &Tar::new().symlink("l", "/proc/self/environ").gz(),
        "symlink_absolute",
    );
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("relative link"))
    );
}

///
#[test]
fn links_without_a_target_or_a_name_are_refused() {
    refused(&Tar::new().symlink("l", "").gz(), "symlink_empty");
    refused(&Tar::new().symlink("", "x").gz(), "path_empty");
    refused(&Tar::new().symlink("l/", "x").gz(), "path_slash_after_name");
    refused(
        &Tar::new().file("f", b"").hard_link("l/", "f").gz(),
        "path_slash_after_name",
    );
    refused(&Tar::new().file("f/", b"").gz(), "path_slash_after_name");
    let tar = Tar::new().pax(&[("linkpath", b"a\0b")]).symlink("l", "x");
    refused(&tar.gz(), "pax_nul");
}

///
#[test]
fn loops_and_chains_of_links_are_refused() {
    refused(&Tar::new().symlink("a", "a").gz(), "symlink_loop");
    refused(
        &Tar::new().symlink("a", "b").symlink("b", "a").gz(),
        "symlink_chained",
    );
    let chain = (0..41).fold(Tar::new(), |tar, step| {
        tar.symlink(&format!("l{step}"), &format!("l{}", step + 1))
    });
    let error = refused(&chain.file("l41", b"x").gz(), "symlink_chained");
    assert!(
        error
            .to_string()
            .starts_with("`l0` is a symlink to another symlink, `l1`"),
        "{error}"
    );
}

#[test]
fn a_link_inside_the_bundle_is_kept_whatever_the_order() {
    let npm = Tar::new()
        .symlink("node_modules/.bin/tool", "../tool/bin/tool.js")
        .symlink("node_modules/self", "..")
        .symlink("current", "./node_modules/tool/")
        .symlink("dangling", "not/there")
        .file("node_modules/tool/bin/tool.js", b"#!/usr/bin/env node");
    let (arena, unpacked) = kept(&npm.gz());
    let through = arena.read("node_modules/.bin/tool");
    assert_eq!(through, b"#!/usr/bin/env node");
    let kept_target = std::fs::read_link(arena.target().join("current")).expect("a link");
    assert_eq!(kept_target.as_os_str(), "./node_modules/tool/");
    assert_eq!(unpacked.warnings, []);
    assert_eq!(unpacked.entries, 9);
}
