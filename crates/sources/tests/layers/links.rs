//! Symbolic links: kept as they are, never followed out of the root, and the resolution of paths
//! through them.

use crate::stack::{Stack, refused, refused_over};
use support::tar::Tar;

#[test]
fn a_link_is_kept_as_it_is_written_wherever_it_points() {
    let stack = Stack::new();
    let outside = stack.canary("secret");
    let stack = Stack::of([Tar::new()
        .symlink("absolute", &outside)
        .symlink("up", "../../../../etc/passwd")
        .symlink("dangling", "no/where")
        .symlink("itself", "itself")
        .link(b'2', "long", &"t/".repeat(2_047))
        .end()]);
    let read = |name: &str| {
        let target = std::fs::read_link(stack.path(0).join(name)).expect("a link");
        target.to_str().expect("UTF-8").to_owned()
    };
    assert_eq!(read("absolute"), outside);
    assert_eq!(read("up"), "../../../../etc/passwd");
    assert_eq!(read("itself"), "itself");
    assert_eq!(read("long").len(), 4_094);
    for path in ["absolute", "up", "dangling", "itself", "long", "itself/x"] {
        assert_eq!(stack.seen(path), "(nothing)", "{path}");
    }
}

#[test]
fn a_link_that_no_file_system_takes_is_refused() {
    let none = Tar::new().symlink("l", "").end();
    assert_eq!(refused(&none), "symlink_empty");
    let long = Tar::new().link(b'2', "l", &"t".repeat(4_096)).end();
    assert_eq!(refused(&long), "symlink_too_long");
    let nul = Tar::new().pax(&[("linkpath", b"a\0b")]).symlink("l", "x");
    assert_eq!(refused(&nul.end()), "pax_nul");
    let slash = Tar::new().symlink("l/", "x").end();
    assert_eq!(refused(&slash), "path_slash_after_name");
}

#[test]
fn a_file_behind_a_link_goes_where_the_link_leads_inside_the_root() {
    let outside = Stack::new().canary("");
    for (target, place) in [
        ("usr/lib", "usr/lib/x"),
        ("/usr/lib", "usr/lib/x"),
        ("./usr/./lib/", "usr/lib/x"),
        ("usr/lib/../lib", "usr/lib/x"),
        ("..", "x"),
        ("../../../..", "x"),
        ("/", "x"),
        ("no/where/yet", "no/where/yet/x"),
    ] {
        let link = Tar::new().directory("usr/lib").symlink("lib", target);
        let file = Tar::new().file("lib/x", b"through");
        let one = Stack::of([link.clone().raw(&file.0).end()]);
        assert_eq!(one.seen(place), "through", "one layer, {target}");
        let two = Stack::of([link.end(), file.end()]);
        assert_eq!(two.seen(place), "through", "two layers, {target}");
        assert_eq!(two.seen("lib/x"), "through", "two layers, {target}");
    }
    let base = Tar::new().symlink("out", &outside).end();
    let stack = Stack::of([base, Tar::new().file("out/secret", b"inside").end()]);
    assert_eq!(stack.seen("out/secret"), "inside");
}

#[test]
fn links_of_links_lead_on_and_a_circle_is_refused() {
    let chain = |count: usize| {
        (0..count).fold(Tar::new(), |tar, n| {
            tar.symlink(&format!("l{n}"), &format!("l{}", n + 1))
        })
    };
    let base = chain(39).end();
    let stack = Stack::of([base, Tar::new().file("l0/x", b"far").end()]);
    assert_eq!(stack.seen("l39/x"), "far");
    assert_eq!(stack.seen("l0/x"), "far");
    let through = Tar::new().file("l0/x", b"").end();
    assert_eq!(
        refused_over(&[chain(41).end()], &through),
        "layer_path_links"
    );
    for circle in [
        Tar::new().symlink("l0", "l0"),
        Tar::new().symlink("l0", "b").symlink("b", "l0"),
        Tar::new().symlink("l0", "l0/l0/l0"),
        Tar::new().symlink("l0", "/l0/.."),
    ] {
        assert_eq!(refused_over(&[circle.end()], &through), "layer_path_links");
    }
    let growing = Tar::new()
        .symlink("l0", "a/l1")
        .symlink("a/l1", &"b/".repeat(2_000));
    assert_eq!(refused_over(&[growing.end()], &through), "path_too_long");
}

#[test]
fn a_link_below_counts_until_a_layer_replaces_it() {
    let base = Tar::new()
        .symlink("d", "real")
        .file("real/old", b"old")
        .end();
    let directory = Tar::new().directory("d").file("d/x", b"own").end();
    let stack = Stack::of([base.clone(), directory.clone()]);
    assert_eq!(stack.seen("d/x"), "own");
    assert_eq!(stack.seen("d/old"), "(nothing)");
    assert_eq!(stack.seen("real/x"), "(nothing)");
    let third = Tar::new().file("d/y", b"third").end();
    let stack = Stack::of([base.clone(), directory, third.clone()]);
    assert_eq!(stack.seen("d/y"), "third");
    assert_eq!(stack.seen("real/y"), "(nothing)");
    let gone = Tar::new().file(".wh.d", b"").end();
    let stack = Stack::of([base.clone(), gone, third.clone()]);
    assert_eq!(stack.seen("d/y"), "third");
    assert_eq!(stack.seen("real/y"), "(nothing)");
    let stack = Stack::of([base, third]);
    assert_eq!(stack.seen("real/y"), "third");
}

#[test]
fn a_link_is_laid_beside_a_file_that_was_there_and_the_next_layer_writes_through_neither() {
    // A file, then a link with its name, then the file again through the link.
    let secret = Stack::new().canary("secret");
    let stack = Stack::of([
        Tar::new().file("x", b"first").end(),
        Tar::new().symlink("x", &secret).end(),
        Tar::new().file("x", b"third").end(),
    ]);
    assert_eq!(stack.seen("x"), "third");
    assert_eq!(stack.top(), ["f x"]);
}

#[test]
fn a_hard_link_is_looked_for_where_its_path_leads() {
    let base = Tar::new().symlink("lib", "usr/lib").end();
    let next = Tar::new()
        .file("usr/lib/a", b"file")
        .hard_link("lib/b", "lib/a")
        .end();
    let stack = Stack::of([base, next]);
    assert_eq!(stack.seen("usr/lib/b"), "file");
    assert_eq!(
        stack.top(),
        ["d usr", "d usr/lib", "f usr/lib/a", "f usr/lib/b"]
    );
}
