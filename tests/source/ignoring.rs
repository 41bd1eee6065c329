//! `.staxignore`: what it leaves out, where it may be, and when it is refused.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use super::artifacts::Source;

/// Each queried path of the tree.
const TREE: [&str; 18] = [
    "a.log",
    "b.txt",
    "build/out.o",
    "build/keep.o",
    "doc/a.txt",
    "doc/deep/a.txt",
    "doc/deep/b.md",
    "keep.log",
    "logs/a.log",
    "logs/keep.log",
    "src/build/out.o",
    "src/a{b,c}",
    "src/ab",
    "src/é.rs",
    "src/x y",
    "src/#h",
    "src/!n",
    "trail ",
];

/// Files derived from the patterns, in the order of the tests.
const TABLE: &[&[(&str, &str)]] = &[
    &[("", "*.log\n!keep.log\n")],
    &[("", "!keep.log\n*.log\n")],
    &[("", "build\n")],
    &[("", "/build\n")],
    &[("", "build/\n!build/keep.o\n")],
    &[("", "build/*\n!build/keep.o\n")],
    &[("", "doc/*.txt\n")],
    &[("", "doc/**/*.txt\n")],
    &[("", "**/deep\n")],
    &[("", "doc/**\n")],
    &[("", "src/a{b,c}\n")],
    &[("", "# a.log\n\n\\#h\n\\!n\n")],
    &[("", "src/x\\ y\ntrail\\ \n")],
    &[("", "*\n!*/\n!*.txt\n")],
    &[("", "/*\n!/src\n")],
    &[("", "[a-c].*\n")],
    &[("", "[!a-c].*\n")],
    &[("", "src/?.rs\n")],
    &[("", "*.log\r\nbuild/\r\n")],
    &[("", "*.log\n"), ("logs", "!keep.log\n")],
    &[("", "!logs/a.log\n"), ("logs", "*.log\n")],
    &[("", "logs/\n"), ("logs", "!keep.log\n")],
    &[("doc", "/a.txt\n"), ("doc/deep", "*.md\n")],
    &[("doc", "deep/a.txt\n")],
    &[("doc", "*.txt\n!/a.txt\n"), ("doc/deep", "!a.txt\n")],
    &[("", "/\n!\n**\n!**/\n!*.md\n")],
];

fn write(directory: &Path, ignore_file: &str, files: &[(&str, &str)]) {
    for name in TREE {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, name).expect("written");
    }
    for (folder, text) in files {
        std::fs::write(directory.join(folder).join(ignore_file), text).expect("written");
    }
}

/// The files that git selects in the same tree with the same patterns in .gitignore.
fn by_git(source: &Source, files: &[(&str, &str)]) -> Vec<String> {
    let oracle = source.ground.path("oracle");
    std::fs::create_dir(&oracle).expect("made");
    write(&oracle, ".gitignore", files);
    support::git::git(&oracle, &["init", "-q"]);
    let output = Command::new("git")
        .args([
            "-c",
            "core.quotePath=false",
            "ls-files",
            "-z",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(&oracle)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stderr(Stdio::inherit())
        .output()
        .expect("git starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut names: Vec<String> = text
        .split_terminator('\0')
        .map(|name| name.replace(".gitignore", ".staxignore"))
        .collect();
    names.sort();
    names
}

#[test]
fn the_same_patterns_leave_out_what_git_leaves_out() {
    for files in TABLE {
        let source = Source::new();
        write(&source.directory(), ".staxignore", files);
        let artifact = source.build(&["--strict"]);
        let mut taken = artifact.files.names();
        taken.retain(|name| !name.ends_with('/'));
        assert_eq!(taken, by_git(&source, files), "{files:?}");
    }
}

#[test]
fn patterns_cannot_reinclude_always_excluded_files() {
    let source = Source::with(&[
        ("x", "x"),
        (".hg/y", "y"),
        (".env", "A=1"),
        (".staxignore", "!.hg\n!.env\n"),
    ]);
    std::fs::create_dir(source.directory().join(".svn")).expect("made");
    let artifact = source.build(&[]);
    assert_eq!(artifact.files.names(), [".staxignore", "x"]);
}

#[test]
fn a_file_that_cannot_be_followed_is_refused_since_it_would_publish_what_it_names() {
    let source = Source::with(&[("x", "x"), ("real", "x")]);
    let at = source.directory().join(".staxignore");
    symlink("real", &at).expect("linked");
    let ended = source.try_build(&[]);
    ended.assert_refused(
        "source_ignore_file",
        &["`.staxignore`: it is a symlink, expected a file"],
    );
    std::fs::remove_file(&at).expect("removed");
    std::fs::create_dir(&at).expect("made");
    source
        .try_build(&[])
        .assert_refused("source_ignore_file", &["it is a directory"]);
    std::fs::remove_dir(&at).expect("removed");
    std::fs::create_dir(source.directory().join("d")).expect("made");
    for (text, said) in [
        (
            &b"a\n\xff\n"[..],
            "`d/.staxignore`, line 2: it is not UTF-8",
        ),
        (b"a\nb\n[z-a]\n", "`d/.staxignore`, line 3: "),
    ] {
        source.file("d/.staxignore", text);
        source
            .try_build(&[])
            .assert_refused("source_ignore_file", &[said]);
    }
    source.file("d/.staxignore", "a\n".repeat(600_000));
    source
        .try_build(&[])
        .assert_refused("source_ignore_file", &["it has 1200000 bytes"]);
    source.file("d/.staxignore", "a\n".repeat(20_001));
    source
        .try_build(&[])
        .assert_refused("source_ignore_file", &["more than 20000 patterns"]);
}

#[test]
fn a_snapshot_that_is_built_again_is_the_same_layer() {
    let source = Source::with(&[
        ("x", "x"),
        ("y.o", "y"),
        ("d/z", "z"),
        (".staxignore", "*.o\n"),
    ]);
    let first = source.build(&[]);
    let again = source.ground.path("again");
    std::fs::create_dir(&again).expect("made");
    let layer = source.ground.write("layer.tar.gz", &first.layer);
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(layer)
        .arg("-C")
        .arg(&again)
        .status();
    assert!(unpacked.expect("tar runs").success());
    let words = ["--name", "it", "--version", "1"];
    let second = source.artifact(source.command(&again, &words));
    assert_eq!(first.digest(), second.digest());
}
