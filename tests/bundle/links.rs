//! Symbolic links: kept where they stay inside, refused by name, or followed.

use std::os::unix::fs::symlink;

use support::Ground;
use support::bundling::{Content, manifest};

fn with_links(links: &[(&str, &str)]) -> Ground {
    let ground = Ground::new();
    ground.file("d/file", "text");
    ground.file("d/sub/inner", "inner");
    ground.file("outside", "in the workspace, not in d");
    ground.write("secret", "not in the workspace");
    for (name, target) in links {
        symlink(target, ground.workspace().join(name)).expect("linked");
    }
    ground.file("m.yaml", manifest("local: {path: d, as: .}"));
    ground
}

#[test]
fn a_relative_link_that_stays_inside_is_kept() {
    let links = [
        ("d/to-file", "file"),
        ("d/sub/up", "../file"),
        ("d/to-dir", "sub"),
        ("d/dangling", "nowhere"),
        ("d/round", "sub/../file"),
    ];
    let ground = with_links(&links);
    let archive = ground.archive(&["m.yaml"]);
    for (name, target) in links {
        let name = name.strip_prefix("d/").expect("in d");
        assert_eq!(archive.entries[name], Content::Link(target.to_owned()));
    }
    let done = ground.exec(
        &["--run", "[\"cat\", \"to-file\", \"sub/up\"]"],
        &ground.path("archive.tar.gz"),
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "texttext");
}

#[test]
fn a_link_that_leads_elsewhere_is_refused_by_name() {
    for (name, target, code) in [
        ("d/l", "/etc/passwd", "symlink_absolute"),
        ("d/l", "../outside", "symlink_escapes"),
        ("d/sub/l", "../../../secret", "symlink_escapes"),
        ("d/l", "l", "symlink_loop"),
        ("d/l", "to-dir/inner", "symlink_through_link"),
        ("d/l", "to-file", "symlink_chained"),
    ] {
        let ground = with_links(&[("d/to-file", "file"), ("d/to-dir", "sub"), (name, target)]);
        let ended = ground.make(&["m.yaml", "--list"]);
        let link = name.rsplit('/').next().expect("a name");
        ended.assert_refused(
            code,
            &["m.yaml:5:7", &format!("{link}`"), "--symlinks=follow"],
        );
    }
}

#[test]
fn a_source_behind_a_link_is_refused_and_can_be_followed() {
    let ground = with_links(&[("alias", "d")]);
    for source in ["local: alias/file", "local: alias/sub", "local: 'alias/*'"] {
        ground.file("m.yaml", manifest(source));
        let ended = ground.make(&["m.yaml", "--list"]);
        assert_eq!(ended.code, 125, "{ended:#?}");
        ground
            .make(&["m.yaml", "--list", "--symlinks=follow"])
            .assert_done();
    }
    ground.file("m.yaml", manifest("local: alias/file"));
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_refused(
        "symlink_through_link",
        &["passes through the symlink `alias`"],
    );
    ground.file("m.yaml", manifest("local: alias/"));
    ground
        .make(&["m.yaml", "--list"])
        .assert_refused("source_not_directory", &["is a symlink"]);
    // The link itself is a link.
    ground.file("m.yaml", manifest("local: alias\nlocal: d"));
    assert_eq!(
        ground.archive(&["m.yaml"]).entries["alias"],
        Content::Link("d".to_owned())
    );
}

#[test]
fn followed_links_are_copies_of_what_they_point_to() {
    let ground = with_links(&[
        ("d/to-file", "file"),
        ("d/to-outside", "../outside"),
        ("d/chained", "to-outside"),
        ("d/to-dir", "sub"),
        ("d/through", "to-dir/inner"),
        ("d/sub/up", "../file"),
    ]);
    let absolute = ground
        .workspace()
        .canonicalize()
        .expect("there")
        .join("outside");
    symlink(absolute, ground.workspace().join("d/absolute")).expect("linked");
    let archive = ground.archive(&["m.yaml", "--symlinks=follow"]);
    for (name, text) in [
        ("to-file", "text"),
        ("to-outside", "in the workspace, not in d"),
        ("chained", "in the workspace, not in d"),
        ("absolute", "in the workspace, not in d"),
        ("to-dir/inner", "inner"),
        ("to-dir/up", "text"),
        ("through", "inner"),
        ("sub/up", "text"),
    ] {
        assert_eq!(archive.text(name), text, "{name}");
    }
}

#[test]
fn a_link_that_cannot_be_followed_is_refused_by_name() {
    for (target, code) in [
        ("../../secret", "symlink_escapes"),
        ("/etc/passwd", "symlink_escapes"),
        ("nowhere", "symlink_dangling"),
        ("l", "symlink_loop"),
        (".", "symlink_loop"),
        ("..", "symlink_loop"),
    ] {
        let ground = with_links(&[("d/l", target)]);
        let ended = ground.make(&["m.yaml", "--list", "--symlinks=follow"]);
        ended.assert_refused(code, &[&format!("symlink to `{target}`")]);
    }
}

#[test]
fn an_outer_link_never_leads_the_bundle_to_a_secret() {
    let ground = with_links(&[]);
    std::fs::remove_dir_all(ground.workspace().join("d")).expect("removed");
    symlink("..", ground.workspace().join("d")).expect("linked");
    ground.file("m.yaml", manifest("local: d/secret"));
    for flags in [
        &["m.yaml", "--list"][..],
        &["m.yaml", "--list", "--symlinks=follow"],
    ] {
        let ended = ground.make(flags);
        assert_eq!(ended.code, 125, "{ended:#?}");
        assert!(!ended.text().contains("secret"));
    }
}
