//! The files of a source, and their paths in the bundle.

use std::os::unix::ffi::OsStrExt as _;

use support::Ground;
use support::bundling::{Archive, manifest};

fn populated() -> Ground {
    let ground = Ground::new();
    for (name, contents) in [
        ("shared/a.ts", "a"),
        ("shared/b.ts", "b"),
        ("shared/c.md", "c"),
        ("shared/.env", "dot"),
        ("shared/deep/d.ts", "d"),
        ("pages/[id].tsx", "page"),
        ("pages/i.tsx", "other"),
        ("package.json", "{}"),
    ] {
        ground.file(name, contents);
    }
    std::fs::create_dir(ground.workspace().join("shared/empty")).expect("made");
    ground
}

#[test]
fn a_source_takes_what_it_names_to_where_it_says() {
    let ground = populated();
    let tree = [
        "",
        ".env",
        "a.ts",
        "b.ts",
        "c.md",
        "deep/",
        "deep/d.ts",
        "empty/",
    ];
    let below = |prefix: &str| tree.map(|name| format!("{prefix}{name}")).to_vec();
    let named = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.into()).collect() };
    for (source, mut expected) in [
        // A file.
        ("local: package.json", named(&["package.json"])),
        ("local: ./package.json", named(&["package.json"])),
        (
            "local: {path: shared/a.ts}",
            named(&["shared/", "shared/a.ts"]),
        ),
        ("local: {path: shared/a.ts, as: .}", named(&["a.ts"])),
        (
            "local: {path: shared/a.ts, as: lib/x.ts}",
            named(&["lib/", "lib/x.ts"]),
        ),
        (
            "local: {path: shared/a.ts, as: lib/}",
            named(&["lib/", "lib/a.ts"]),
        ),
        // A directory: its path is the prefix unless stated otherwise.
        ("local: shared", below("shared/")),
        ("local: shared/", below("shared/")),
        ("local: {path: shared, as: .}", below("")[1..].to_vec()),
        ("local: {path: shared/, as: ./}", below("")[1..].to_vec()),
        (
            "local: {path: shared, as: x/y}",
            [named(&["x/"]), below("x/y/")].concat(),
        ),
        (
            "local: {path: shared/deep, as: deep/}",
            named(&["deep/", "deep/d.ts"]),
        ),
        ("local: shared/empty", named(&["shared/", "shared/empty/"])),
        // The matching files of a directory: `*` matches within one folder.
        (
            "local: {path: shared, glob: '*.ts'}",
            named(&["shared/", "shared/a.ts", "shared/b.ts"]),
        ),
        (
            "local: {path: shared, glob: '**/*.ts', as: .}",
            named(&["a.ts", "b.ts", "deep/", "deep/d.ts"]),
        ),
        (
            "local: {path: shared, glob: '*', as: .}",
            named(&[".env", "a.ts", "b.ts", "c.md"]),
        ),
        (
            "local: {path: shared, glob: '[!a]*.ts', as: .}",
            named(&["b.ts"]),
        ),
        // A pattern.
        (
            "local: shared/*.ts",
            named(&["shared/", "shared/a.ts", "shared/b.ts"]),
        ),
        (
            "local: {path: shared/*.ts, as: lib}",
            named(&["lib/", "lib/a.ts", "lib/b.ts"]),
        ),
        (
            "local: {path: 'sh?red/**/d.ts', as: .}",
            named(&["shared/", "shared/deep/", "shared/deep/d.ts"]),
        ),
        (
            "local: {path: shared/*/, as: .}",
            named(&["deep/", "deep/d.ts"]),
        ),
        // An existing name is not a pattern.
        (
            "local: 'pages/[id].tsx'",
            named(&["pages/", "pages/[id].tsx"]),
        ),
        ("local: 'pages/[i]*'", named(&["pages/", "pages/i.tsx"])),
        // Inline.
        (
            "inline: {path: a/b.txt, content: x}",
            named(&["a/", "a/b.txt"]),
        ),
        ("inline: {path: empty, content: ''}", named(&["empty"])),
    ] {
        expected.sort();
        let mut names = ground.archive_of(source).names();
        names.sort();
        assert_eq!(names, expected, "{source}");
    }
}

#[test]
fn a_source_that_is_the_whole_workspace_leaves_out_what_is_being_written() {
    let ground = populated();
    ground.file(
        "tool.yaml",
        "run: [cat, a]\ncode: {sources: [{local: .}]}\n",
    );
    ground.file(".git/config", "");
    // The second time both files exist.
    for _ in 0..2 {
        let words = ["tool.yaml", "-o", "out.tar.gz", "--lock", "l.json"];
        ground.make(&words).assert_done();
        let names = Archive::read(&ground.workspace().join("out.tar.gz")).names();
        assert!(names.iter().any(|name| name == "shared/deep/d.ts"));
        for left_out in ["out.tar.gz", "l.json", ".git"] {
            let holds = names.iter().any(|name| name.contains(left_out));
            assert!(!holds, "{names:?}");
        }
    }
}

#[test]
fn a_source_that_gives_nothing_is_refused_by_its_place() {
    let ground = populated();
    for (source, code, parts) in [
        (
            "local: pakage.json",
            "source_missing",
            &[
                "m.yaml:5:7 at /code/sources/0 (local)",
                "did you mean `package.json`?",
            ][..],
        ),
        (
            "local: shared/a.tsx",
            "source_missing",
            &["did you mean `shared/a.ts`?"],
        ),
        (
            "local: nowhere/at/all",
            "source_missing",
            &["`nowhere/at/all` is not there"],
        ),
        ("local: package.json/x", "source_missing", &[]),
        (
            "local: package.json/",
            "source_not_directory",
            &[
                "`package.json` is a file; expected a directory",
                "leave out the `/`",
            ],
        ),
        ("local: nowhere/*.ts", "source_missing", &[]),
        ("local: package.json/*.ts", "source_not_directory", &[]),
        (
            "local: 'shared/*.rs'",
            "source_missing",
            &["`shared/*.rs` matches no file"],
        ),
        (
            "local: 'shared/a**b'",
            "source_pattern",
            &["`a**b` cannot be read"],
        ),
        (
            "local: {path: shared, glob: '[a'}",
            "source_pattern",
            &["`[a`"],
        ),
        (
            "local: {path: 'shared/*', glob: '*'}",
            "source_pattern",
            &["`glob` is allowed only"],
        ),
        (
            "inline: {path: .runner/manifest.json, content: x}",
            "path_refused",
            &["resolved manifest"],
        ),
        (
            "local: {path: package.json, as: .runner/x}",
            "path_refused",
            &[],
        ),
        ("local: {path: shared, as: .runner}", "path_refused", &[]),
        (
            "inline: {path: a/.git/config, content: x}",
            "path_refused",
            &[".git, .hg or .svn"],
        ),
        ("local: .git", "path_refused", &[]),
        (
            "local: /etc/passwd",
            "path_refused",
            &["/code/sources/0/local"],
        ),
        ("local: ../secret", "path_refused", &[]),
        ("local: a/../../secret", "path_refused", &[]),
        ("ref: nowhere", "source_missing", &["(ref)"]),
        ("ref: package.json", "source_not_directory", &[]),
        (
            "ref: shared",
            "source_missing",
            &["holds no manifest", "manifest.yaml"],
        ),
    ] {
        ground.file("m.yaml", manifest(source));
        let ended = ground.make(&["m.yaml", "-o", "out.tar.gz"]);
        ended.assert_refused(code, parts);
        assert!(!ground.workspace().join("out.tar.gz").exists());
    }
}

#[test]
fn the_filter_of_a_directory_may_match_nothing_and_says_so() {
    let ground = populated();
    ground.file("m.yaml", manifest("local: {path: shared, glob: '*.rs'}"));
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_done().assert_warns("source_empty");
    ground.file(
        "m.yaml",
        manifest("local: {path: package.json, glob: '*.rs'}"),
    );
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_done().assert_warns("glob_ignored");
    assert!(ended.text().contains("package.json"));
}

#[test]
fn without_code_the_manifest_s_own_folder_is_the_bundle() {
    let ground = Ground::new();
    for (name, text) in [
        ("manifest.yaml", "run: [./bin/go]\n"),
        ("TOOL.md", "---\nentry: go.sh\n---\n"),
        (
            "CODE.md",
            "---\nschema: code/v2\nsource: {origin: workspace}\nrun: [./bin/go]\n---\n",
        ),
    ] {
        let folder = format!("tools/{name}-tool");
        ground.file(&format!("{folder}/{name}"), text);
        ground.program(&format!("work/{folder}/bin/go"), "#!/bin/sh\n");
        ground.file(&format!("{folder}/go.sh"), "");
        ground.file(&format!("{folder}/.hidden"), "x");
        let archive = ground.archive(&[&folder]);
        let mut expected = [".hidden", name, "bin/", "bin/go", "go.sh"];
        expected.sort_unstable();
        assert_eq!(archive.names(), expected, "{name}");
        // The choice of the workspace folder makes no difference.
        let inside = ground.workspace().join(&folder);
        let mut there = ground.bundle_command(&[".", "--print-digest"]);
        let there = support::bundling::output_of(there.current_dir(inside));
        assert_eq!(there.text().trim_end(), ground.digest(&[&folder]));
    }
}

#[test]
fn modes_empty_files_and_names_of_any_bytes_are_kept() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [./go]\n");
    ground.program("work/go", "#!/bin/sh\n");
    ground.file("nothing", "");
    let odd = std::ffi::OsStr::from_bytes(b"n\xff\xfe");
    std::fs::write(ground.workspace().join(odd), "bytes").expect("written");
    ground.file(&"l".repeat(255), "long");
    ground.file(&format!("{0}/{0}/{0}", "d".repeat(100)), "deep");
    for name in ["e\u{301}", "\u{e9}"] {
        ground.file(name, name);
    }
    let archive = ground.archive(&["."]);
    assert_eq!(archive.text(&"l".repeat(255)), "long");
    assert_eq!(archive.text("e\u{301}"), "e\u{301}");
    assert_eq!(archive.text("\u{e9}"), "\u{e9}");
    assert_eq!(archive.text("nothing"), "");
    assert_eq!(archive.text("n\u{fffd}\u{fffd}"), "bytes");
    let list = ground.make(&[".", "--list"]).text();
    assert!(list.contains(" x go  "), "{list}");
    assert!(list.contains(" - n\\xff\\xfe  "), "{list}");
    let done = ground.exec(&["--run", "[\"./go\"]"], &ground.path("archive.tar.gz"));
    done.assert_exited(0);
}

#[test]
fn names_that_differ_in_case_only_are_kept_with_a_warning() {
    let ground = Ground::new();
    ground.file(
        "m.yaml",
        manifest("inline: {path: README, content: a}\ninline: {path: readme, content: b}"),
    );
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_done().assert_warns("bundle_case_twins");
    assert!(ended.text().contains("README") && ended.text().contains("readme"));
}

#[test]
fn directories_of_version_control_and_the_reserved_one_are_left_out() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    for name in [
        ".git/config",
        "a/.hg/x",
        "a/.svn/y",
        "a/b/.git",
        ".runner/manifest.json",
    ] {
        ground.file(name, "x");
    }
    ground.file(".gitignore", "nothing-here");
    ground.file("a/b/.runner/x", "only at the top");
    let archive = ground.archive(&["."]);
    let expected = [
        ".gitignore",
        "a/",
        "a/b/",
        "a/b/.runner/",
        "a/b/.runner/x",
        "manifest.yaml",
    ];
    assert_eq!(archive.names(), expected);
    assert_ne!(archive.text(".runner/manifest.json"), "x");
    let ended = ground.make(&[".", "--list"]);
    ended
        .assert_warns("bundle_left_out")
        .assert_warns("bundle_reserved");
}

#[test]
fn special_files_are_refused_by_name() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    ground.file("data/plain", "x");
    let fifo = ground.workspace().join("data/queue");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("made");
    let ended = ground.make(&[".", "--list"]);
    ended.assert_refused("source_special_file", &["`data/queue` is a fifo", "`glob`"]);
    // Files that are not selected do not matter.
    ground.file("manifest.yaml", manifest("local: {path: data, glob: 'p*'}"));
    ground.make(&[".", "--list"]).assert_done();
    std::fs::remove_file(&fifo).expect("removed");
    let _listener = std::os::unix::net::UnixListener::bind(&fifo).expect("bound");
    ground.file("manifest.yaml", manifest("local: data/queue"));
    let ended = ground.make(&[".", "--list"]);
    ended.assert_refused("source_special_file", &["`data/queue` is a socket"]);
}

#[test]
fn later_sources_win_and_the_list_says_over_whom() {
    let ground = Ground::new();
    ground.file("base/tool.ts", "base");
    ground.file("base/keep.ts", "base");
    ground.file("mine/tool.ts", "mine");
    let sources = "local: {path: base, as: .}\n\
                   local: {path: mine, as: .}\n\
                   inline: {path: tool.ts, content: last}";
    let archive = ground.archive_of(sources);
    assert_eq!(archive.text("tool.ts"), "last");
    assert_eq!(archive.text("keep.ts"), "base");
    let list = ground.make(&["m.yaml", "--list", "--json"]).json();
    let entries = list["entries"].as_array().expect("a list");
    let tool = entries
        .iter()
        .find(|entry| entry["path"] == "tool.ts")
        .expect("listed");
    assert_eq!(tool["source"]["pointer"], "/code/sources/2");
    let replaced: Vec<_> = tool["replaced"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    assert_eq!(replaced[0]["pointer"], "/code/sources/0");
    assert_eq!(replaced[1]["pointer"], "/code/sources/1");
    assert_eq!(
        (&tool["bytes"], &tool["executable"]),
        (&4.into(), &false.into())
    );
    // In the reverse order, the other one wins.
    let turned = "inline: {path: tool.ts, content: last}\nlocal: {path: base, as: .}";
    assert_eq!(ground.archive_of(turned).text("tool.ts"), "base");
}

#[test]
fn a_file_where_another_source_has_a_directory_is_refused_with_both() {
    let ground = Ground::new();
    ground.file("one/lib", "a file");
    ground.file("two/lib/x", "in a directory");
    std::os::unix::fs::symlink("x", ground.file("three/x", "").with_file_name("lib"))
        .expect("linked");
    for (first, second) in [
        ("one", "two"),
        ("two", "one"),
        ("three", "two"),
        ("two", "three"),
    ] {
        let sources = format!("local: {{path: {first}, as: .}}\nlocal: {{path: {second}, as: .}}");
        ground.file("m.yaml", manifest(&sources));
        let ended = ground.make(&["m.yaml", "--list"]);
        let parts = [
            "m.yaml:6:7 at /code/sources/1",
            "m.yaml:5:7 at /code/sources/0",
            "`lib`",
        ];
        ended.assert_refused("bundle_path_conflict", &parts);
    }
}

#[test]
fn a_hard_link_is_a_copy() {
    let ground = Ground::new();
    let first = ground.file("d/first", "same");
    std::fs::hard_link(&first, first.with_file_name("second")).expect("linked");
    let archive = ground.archive_of("local: d");
    assert_eq!(archive.text("d/first"), archive.text("d/second"));
}
