//! Files of a working tree that do not belong into a bundle: left out and reported.

use std::os::unix::fs::symlink;

use support::Ground;
use support::bundling::manifest;

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n";

/// The warning with this code.
#[track_caller]
fn warning<'text>(stderr: &'text str, code: &str) -> &'text str {
    let end = format!("({code})");
    let mut lines = stderr.lines().filter(|line| line.ends_with(&end));
    lines
        .next()
        .unwrap_or_else(|| panic!("no {code}: {stderr}"))
}

fn names(ground: &Ground, subject: &str, flags: &[&str]) -> Vec<String> {
    ground.archive(&[&[subject], flags].concat()).names()
}

#[test]
fn a_manifest_s_own_folder_gives_no_credentials_and_each_is_reported() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    for (name, text) in [
        (".env", "TOKEN=x"),
        (".env.example", "TOKEN="),
        ("deep/id_rsa", KEY),
        ("deep/id_rsa.pub", "ssh-rsa x"),
        ("home/.aws/credentials", "x"),
        ("k.pem", KEY),
        ("public.pem", "-----BEGIN CERTIFICATE-----\nx\n"),
    ] {
        ground.file(name, text);
    }
    // Followed links are judged by their target, not by their name.
    symlink(".env", ground.workspace().join("settings")).expect("made");
    let expected = [
        ".env.example",
        "deep/",
        "deep/id_rsa.pub",
        "home/",
        "home/.aws/",
        "manifest.yaml",
        "public.pem",
    ];
    assert_eq!(names(&ground, ".", &["--symlinks=follow"]), expected);
    let ended = ground.make(&[".", "--print-digest", "--symlinks=follow"]);
    ended.assert_done();
    let line = warning(&ended.stderr, "bundle_credentials_left_out");
    for part in [
        "`.env`, dotenv",
        "`deep/id_rsa`, ssh-key",
        "`home/.aws/credentials`, aws",
        "`k.pem`, private-key",
        "`!NAME` in .bundleignore",
    ] {
        assert!(line.contains(part), "no {part}: {line}");
    }
    // Following the hint works.
    ground.file(".bundleignore", "!.env\n!k.pem\n");
    let names = names(&ground, ".", &["--symlinks=follow"]);
    for name in [".env", "k.pem", "settings"] {
        assert!(names.iter().any(|had| had == name), "no {name}: {names:?}");
    }
}

#[test]
fn files_in_gitignore_and_bundleignore_are_left_out_of_a_folder_and_reported() {
    let ground = Ground::new();
    for (name, text) in [
        ("tool/manifest.yaml", "run: [echo]\n"),
        ("tool/.gitignore", "node_modules/\n*.log\ndist/\n"),
        ("tool/.bundleignore", "!dist/\n/notes.md\n"),
        ("tool/node_modules/a/index.js", "x"),
        ("tool/run.log", "x"),
        ("tool/dist/out.js", "x"),
        ("tool/notes.md", "x"),
        ("tool/src/notes.md", "x"),
        ("tool/src/.gitignore", "!keep.log\ngone\n"),
        ("tool/src/keep.log", "x"),
        ("tool/src/gone", "x"),
    ] {
        ground.file(name, text);
    }
    let expected = [
        ".bundleignore",
        ".gitignore",
        "dist/",
        "dist/out.js",
        "manifest.yaml",
        "src/",
        "src/.gitignore",
        "src/keep.log",
        "src/notes.md",
    ];
    assert_eq!(names(&ground, "tool", &[]), expected);
    let ended = ground.make(&["tool", "--list"]);
    ended.assert_done();
    let line = warning(&ended.stderr, "bundle_ignored");
    for part in [
        "`tool/node_modules`, .gitignore",
        "`tool/run.log`, .gitignore",
        "`tool/notes.md`, .bundleignore",
        "`tool/src/gone`, .gitignore",
    ] {
        assert!(line.contains(part), "no {part}: {line}");
    }
    assert!(!line.contains("dist"), "{line}");
    // A list with invalid text is refused.
    ground.file("tool/src/.bundleignore", b"ok\n\xff\n");
    let ended = ground.make(&["tool", "--list"]);
    ended.assert_refused("source_ignore_file", &["tool/src/.bundleignore", "line 2"]);
}

#[test]
fn what_a_source_names_is_taken_but_for_bundleignore_and_credentials_are_told() {
    let ground = Ground::new();
    for (name, text) in [
        (".gitignore", "dist\n"),
        ("dist/.gitignore", "*\n"),
        ("dist/app.js", "x"),
        ("dist/.env", "x"),
        ("dist/app.map", "x"),
        ("dist/.bundleignore", "*.map\n"),
        (".netrc", "x"),
    ] {
        ground.file(name, text);
    }
    ground.file(
        "m.yaml",
        manifest("local: {path: dist, as: .}\nlocal: .netrc"),
    );
    let expected = [".bundleignore", ".env", ".gitignore", ".netrc", "app.js"];
    assert_eq!(names(&ground, "m.yaml", &[]), expected);
    let ended = ground.make(&["m.yaml", "--list"]);
    let line = warning(&ended.stderr, "bundle_ignored");
    assert!(line.contains("`dist/app.map`, .bundleignore"), "{line}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    for part in ["`dist/.env`, dotenv", "`.netrc`, netrc"] {
        let is_told = |line: &&str| line.contains(part) && line.ends_with("(bundle_credentials)");
        assert!(lines.iter().any(is_told), "no {part}: {lines:?}");
    }
}

#[test]
fn installed_packages_and_a_large_bundle_are_reported_with_the_ten_largest() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    ground.file("node_modules/a/node_modules/b/index.js", "12345");
    ground.file("node_modules/a/index.js", "12345");
    ground.file("lib/__pycache__/x.pyc", "x");
    ground.file("env/pyvenv.cfg", "home = /usr/bin\n");
    ground.file("env/bin/python", [b'x'; 2048]);
    let ended = ground.make(&[".", "--list"]);
    let line = warning(&ended.stderr, "bundle_installed");
    for part in [
        "`node_modules` (2 files, 10 bytes)",
        "`lib/__pycache__` (1 file, 1 bytes)",
        "`env` (2 files, 2 KiB)",
        ".bundleignore",
    ] {
        assert!(line.contains(part), "no {part}: {line}");
    }
    assert!(!ended.stderr.contains("bundle_large"), "{ended:?}");
    for number in 1..=12 {
        ground.file(&format!("big{number:02}"), vec![0; number << 20]);
    }
    let ended = ground.make(&[".", "--list"]);
    let line = warning(&ended.stderr, "bundle_large");
    assert!(
        line.contains("`big12` (12 MiB), `big11` (11 MiB)"),
        "{line}"
    );
    assert!(line.contains("`big03` (3 MiB) and"), "{line}");
    ground.file(".bundleignore", "node_modules\n__pycache__\nenv\nbig*\n");
    let ended = ground.make(&[".", "--list"]);
    for code in ["bundle_installed", "bundle_large"] {
        assert!(!ended.stderr.contains(code), "{ended:?}");
    }
}
