//! Whiteouts: what a layer hides of those below it.

use crate::stack::{Stack, refused};
use support::tar::Tar;

fn base() -> Vec<u8> {
    Tar::new()
        .file("d/a", b"below")
        .file("d/b", b"below")
        .file("d/s/c", b"below")
        .file("f", b"below")
        .symlink("l", "d")
        .end()
}

#[test]
fn a_whiteout_hides_what_lies_below_and_only_where_something_does() {
    let stack = Stack::of([
        base(),
        Tar::new()
            .file(".wh.f", b"")
            .file("d/.wh.a", b"")
            .file("d/.wh.none", b"")
            .file("none/.wh.x", b"")
            .file("f2/.wh.y", b"")
            .end(),
    ]);
    assert_eq!(stack.top(), ["d d", "w d/a", "w f"]);
    for (path, seen) in [
        ("f", "(nothing)"),
        ("d/a", "(nothing)"),
        ("d/b", "below"),
        ("d/s/c", "below"),
    ] {
        assert_eq!(stack.seen(path), seen, "{path}");
    }
    assert!(!stack.has("f") && stack.has("d/b"));
}

#[test]
fn the_lowest_layer_has_nothing_to_hide() {
    let stack = Stack::of([Tar::new()
        .file(".wh.x", b"")
        .file("d/.wh..wh..opq", b"")
        .file("e/f", b"")
        .end()]);
    assert_eq!(stack.top(), ["d e", "f e/f"]);
}

#[test]
fn a_whiteout_hides_nothing_of_its_own_layer_in_either_order() {
    let own = |tar: Tar| tar.file("d/new", b"own").file("f", b"own");
    let gone = |tar: Tar| tar.file(".wh.d", b"").file(".wh.f", b"");
    for layer in [own(gone(Tar::new())), gone(own(Tar::new()))] {
        let stack = Stack::of([base(), layer.end()]);
        assert_eq!(stack.top(), ["f d/new", "f f", "o d"]);
        for (path, seen) in [
            ("d/new", "own"),
            ("f", "own"),
            ("d/a", "(nothing)"),
            ("d/s/c", "(nothing)"),
        ] {
            assert_eq!(stack.seen(path), seen, "{path}");
        }
    }
}

#[test]
fn an_opaque_directory_hides_what_lies_below_and_nothing_of_its_own_layer() {
    let own = |tar: Tar| tar.file("d/new", b"own").file("d/s/new", b"own");
    let opaque = |tar: Tar| tar.file("d/.wh..wh..opq", b"");
    for layer in [own(opaque(Tar::new())), opaque(own(Tar::new()))] {
        let stack = Stack::of([base(), layer.end()]);
        for (path, seen) in [
            ("d/new", "own"),
            ("d/s/new", "own"),
            ("d/a", "(nothing)"),
            ("d/s/c", "(nothing)"),
            ("f", "below"),
        ] {
            assert_eq!(stack.seen(path), seen, "{path}");
        }
    }
    // With nothing else in it; a whiteout in it hides nothing more.
    let stack = Stack::of([base(), opaque(Tar::new().file("d/.wh.a", b"")).end()]);
    assert_eq!(stack.top(), ["o d"]);
    assert_eq!(stack.seen("d"), "(directory)");
    assert_eq!(stack.seen("d/b"), "(nothing)");
}

#[test]
fn an_opaque_directory_exists_also_with_a_whiteout_of_itself() {
    let opaque = |tar: Tar| tar.file("d/.wh..wh..opq", b"");
    let gone = |tar: Tar| tar.file(".wh.d", b"");
    for layer in [gone(opaque(Tar::new())), opaque(gone(Tar::new()))] {
        let stack = Stack::of([base(), layer.end()]);
        assert_eq!(stack.top(), ["o d"]);
        assert_eq!(stack.seen("d/a"), "(nothing)");
    }
}

#[test]
fn an_opaque_root_hides_every_layer_below() {
    let mut stack = Stack::of([base()]);
    let tar = Tar::new()
        .file("f", b"own")
        .file(".wh..wh..opq", b"")
        .file(".wh.d", b"")
        .file("l/x", b"own")
        .end();
    let unpacked = stack.push(&tar).expect("taken");
    assert!(unpacked.hides_all);
    assert_eq!(stack.top(), ["d l", "f f", "f l/x"]);
    assert_eq!(stack.seen("d"), "(nothing)");
    assert_eq!(stack.seen("l/x"), "own");
}

#[test]
fn a_whiteout_of_what_is_a_directory_again_hides_what_was_in_it() {
    let stack = Stack::of([
        base(),
        Tar::new().file(".wh.d", b"").end(),
        Tar::new().directory("d").file("d/new", b"third").end(),
    ]);
    assert_eq!(stack.seen("d/new"), "third");
    assert_eq!(stack.seen("d/a"), "(nothing)");
}

#[test]
fn a_directory_in_place_of_a_file_of_its_layer_shows_nothing_of_below() {
    let stack = Stack::of([base(), Tar::new().file("d", b"file").directory("d").end()]);
    assert_eq!(stack.seen("d"), "(directory)");
    assert_eq!(stack.seen("d/a"), "(nothing)");
}

#[test]
fn a_file_in_place_of_a_directory_hides_it_and_a_directory_a_file() {
    let stack = Stack::of([
        base(),
        Tar::new().file("d", b"file").file("f/x", b"beneath").end(),
        Tar::new().file("d/y", b"again").end(),
    ]);
    assert_eq!(stack.seen("f/x"), "beneath");
    assert_eq!(stack.seen("d/y"), "again");
    assert_eq!(stack.seen("d/a"), "(nothing)");
}

#[test]
fn a_whiteout_goes_where_its_path_leads() {
    let stack = Stack::of([base(), Tar::new().file("l/.wh.a", b"").end()]);
    assert_eq!(stack.top(), ["d d", "w d/a"]);
    let stack = Stack::of([base(), Tar::new().file("l/.wh..wh..opq", b"").end()]);
    assert_eq!(stack.top(), ["o d"]);
    let out = Stack::new().canary("");
    let link = Tar::new().symlink("out", &out).end();
    let stack = Stack::of([link, Tar::new().file("out/.wh.secret", b"").end()]);
    assert_eq!(stack.top(), [] as [&str; 0]);
    // Of a link, not of its target.
    let stack = Stack::of([base(), Tar::new().file(".wh.l", b"").end()]);
    assert_eq!(stack.top(), ["w l"]);
    assert_eq!(stack.seen("d/a"), "below");
    assert_eq!(stack.seen("l/a"), "(nothing)");
}

#[test]
fn an_invalid_whiteout_is_refused() {
    let root = Tar::new().symlink("r", "/").file("r/.wh.x", b"").end();
    assert_eq!(Stack::of([root]).top(), ["l r"]);
    for (name, code) in [
        (".wh.", "whiteout_name"),
        ("d/.wh.", "whiteout_name"),
        (".wh..", "whiteout_name"),
        (".wh...", "whiteout_name"),
        (".wh.d/x", "whiteout_name"),
    ] {
        assert_eq!(refused(&Tar::new().file(name, b"").end()), code, "{name}");
    }
    for tar in [
        Tar::new().file(".wh.x", b"data"),
        Tar::new().file(".wh..wh..opq", b"data"),
    ] {
        assert_eq!(refused(&tar.end()), "whiteout_data");
    }
    for tar in [
        Tar::new().directory(".wh.x"),
        Tar::new().symlink(".wh.x", "y"),
        Tar::new().with(b'3', b".wh.x", 0, |_| ()),
        Tar::new().directory("d/.wh..wh..opq"),
    ] {
        assert_eq!(refused(&tar.end()), "whiteout_not_a_file");
    }
}

#[test]
fn notes_of_aufs_are_left_out_and_its_whiteouts_are_names_of_one_file() {
    let mut stack = Stack::of([base()]);
    let unpacked = stack
        .push(
            &Tar::new()
                .file(".wh..wh.aufs", b"")
                .directory(".wh..wh.plnk")
                .file(".wh..wh.plnk/12.34", b"data")
                .directory(".wh..wh.orph")
                .hard_link(".wh.f", ".wh..wh.aufs")
                .hard_link("d/.wh.a", ".wh.f")
                .end(),
        )
        .expect("taken");
    assert_eq!(stack.top(), ["d d", "w d/a", "w f"]);
    assert_eq!(unpacked.warnings.len(), 1);
}

#[test]
fn names_that_only_look_like_whiteouts_are_names() {
    let stack = Stack::of([Tar::new()
        .file("x.wh.y", b"1")
        .file(".whx", b"2")
        .file("wh.z", b"3")
        .end()]);
    assert_eq!(stack.top(), ["f .whx", "f wh.z", "f x.wh.y"]);
}

#[test]
fn a_whiteout_beneath_another_one_hides_nothing_more() {
    for layer in [
        Tar::new().file(".wh.d", b"").file("d/.wh.a", b""),
        Tar::new().file("d/s/.wh.c", b"").file(".wh.d", b""),
    ] {
        let stack = Stack::of([base(), layer.end()]);
        assert_eq!(stack.top(), ["w d"]);
        assert_eq!(stack.seen("d/a"), "(nothing)");
    }
}

/// Each of them walked all links below it: so a few kilobytes used a CPU for hours.
#[test]
fn repeated_whiteouts_are_resolved_once() {
    const LINKS: usize = 10_000;
    const AGAIN: usize = 15_000;
    for name in [".wh..wh..opq", ".wh.d"] {
        let mut layer = Tar::new();
        for at in 0..LINKS {
            layer = layer.symlink(&format!("d/{at}"), "x");
        }
        for _again in 0..AGAIN {
            layer = layer.file(name, b"");
        }
        let mut stack = Stack::of([base()]);
        stack.limits.entries = 1_000_000;
        stack.limits.compressed_bytes = 1 << 30;
        stack.push(&layer.end()).expect("a layer that is taken");
        let links = stack
            .top()
            .iter()
            .filter(|one| one.starts_with("l d/"))
            .count();
        assert_eq!(links, LINKS, "{name}");
    }
}
