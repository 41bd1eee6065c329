//! The process that parses what git checkouts contain and what git prints of them, taken over.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::cache::contents;
use super::patterns::framed;
use super::{READER, Scene};
use attacker::{Answer, Attack};
use support::git::git;
use support::text;

/// An answer of these parts.
fn parts(parts: &[&str]) -> String {
    let parts = parts.iter().map(|part| super::part(part.as_bytes()));
    let parts = String::from_utf8(parts.collect::<Vec<_>>().concat()).expect("short lengths");
    framed(&parts)
}

/// What the process reached, as the last part of what it answers: cut where nothing more is expected.
fn confession(answers: &[String]) -> Answer {
    let text = answers.concat();
    let before = text
        .strip_suffix(&format!("{READER}!"))
        .expect("at the end");
    Answer {
        text: (before.to_owned(), Some("!".to_owned())),
        ..Answer::default()
    }
}

fn silent(text: String) -> Attack {
    Attack {
        answer: Answer {
            text: (text, None),
            ..Answer::default()
        },
        ..Attack::default()
    }
}

/// A checkout with a commit of this message, and a change.
fn checkout(scene: &Scene, message: &str) -> PathBuf {
    let directory = scene.ground.folder(&[("a", "a")]);
    git(&directory, &["init", "-q", "-b", "main"]);
    git(&directory, &["add", "-A"]);
    git(&directory, &["commit", "-q", "-m", message]);
    std::fs::write(directory.join("a"), "changed").expect("written");
    directory
}

fn build(scene: &Scene, directory: &Path) -> (Output, String) {
    let words = ["source", "build", ".", "--name", "x", "--version", "1"];
    let output = scene.output(directory, &words);
    let shown = [&output.stdout[..], &output.stderr].concat();
    let shown = String::from_utf8(shown).expect("text");
    // Its lines are as wide as a terminal.
    let words: Vec<&str> = shown.split_whitespace().collect();
    let shown = words.join(" ");
    (output, shown)
}

/// in a configuration, in a commit, in a list of sparse directories.
#[test]
fn the_parser_of_checkouts_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let reached = &format!("{READER}!");
    let in_settings = confession(&[parts(&["extensions.objectformat", reached])]);
    let directory = checkout(&scene, "m");
    let attack = scene.attack(in_settings).on("questions");
    git(&directory, &["config", "x.attack", &attack]);
    let (output, shown) = build(&scene, &directory);
    assert!(
        shown.contains(&format!("found extensions.objectformat = {reached}")),
        "{shown}"
    );
    assert_eq!(output.status.code(), Some(125), "{shown}");

    // Its time, the files of the index, and what has changed.
    let in_commit = [parts(&["\0\0\0\0\0\0\0\0"]), parts(&[]), parts(&[reached])];
    let attack = scene.attack(confession(&in_commit)).on("questions");
    let (output, shown) = build(&scene, &checkout(&scene, &attack));
    let warned = format!("files differ from the commit: `{reached}`");
    assert!(shown.contains(&warned), "{shown}");
    assert_eq!(output.status.code(), Some(0), "{shown}");

    let directory = checkout(&scene, "m");
    let attack = scene
        .attack(confession(&[parts(&[reached])]))
        .on("questions");
    git(&directory, &["config", "core.sparseCheckout", "true"]);
    std::fs::create_dir_all(directory.join(".git/info")).expect("made");
    std::fs::write(
        directory.join(".git/info/sparse-checkout"),
        format!("/*\n{attack}\n"),
    )
    .expect("written");
    let (output, shown) = build(&scene, &directory);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let kept = contents(&scene.ground.path("oci"));
    let is_config = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).contains(&format!("\"sparse\":[\"{reached}\"]"))
    };
    assert!(kept.values().any(|(_, bytes)| is_config(bytes)), "{shown}");
    scene.assert_untouched();
}

/// a path that is no repository, an option for git, a credential, a path that climbs, and noise.
#[test]
fn malformed_answers_about_a_checkout_are_refused() {
    let Some(scene) = Scene::new() else { return };
    let malformed = "the answer of its reader is malformed";
    let none = || parts(&[]);
    let branch = || parts(&["refs/heads/main"]);
    let commit = || parts(&["0123456789012345678901234567890123456789"]);
    let url = |url: &str| parts(&["remote.origin.url", "x"]) + &parts(&[url]);
    for (what, text, expected) in [
        ("nothing", String::new(), "ended without an answer"),
        (
            "noise",
            "\u{7f}\u{7f}\u{7f}\u{7f}".to_owned(),
            "ended without an answer",
        ),
        ("half a part", framed("\u{9}\0\0\0\0\0\0\0x"), malformed),
        ("half a setting", parts(&["core.eol"]), malformed),
        (
            "a credential",
            url("https://me:word@git.example.org/a"),
            malformed,
        ),
        (
            "control characters",
            url("https://git.example.org/\u{1b}"),
            malformed,
        ),
        (
            "an option",
            none() + &branch() + &parts(&["--textconv"]),
            malformed,
        ),
        ("a title", none() + &parts(&["\u{1b}[2J"]), malformed),
        (
            "no commit of it",
            none() + &branch() + &commit(),
            "git cat-file failed",
        ),
        (
            "half a time",
            none() + &none() + &none() + &parts(&["x"]),
            malformed,
        ),
    ] {
        let directory = checkout(&scene, "m");
        let attack = silent(text).on("questions");
        git(&directory, &["config", "x.attack", &attack]);
        let (output, shown) = build(&scene, &directory);
        assert_eq!(output.status.code(), Some(125), "{what}: {shown}");
        assert!(shown.contains(expected), "{what}: {shown}");
        assert!(!shown.contains('\u{1b}'), "{what}: {shown}");
    }
    scene.assert_untouched();
}

/// a `.git` file may name any directory of the caller's: it must be a repository.
#[test]
fn a_git_file_that_takes_its_parser_over_names_no_other_directory() {
    let Some(scene) = Scene::new() else { return };
    let home = scene.ground.path("home");
    for (text, is_built) in [
        (parts(&[]), true),
        (parts(&[text(&home), "second"]), false),
        // The configuration there says that it belongs to the checkout.
        (parts(&["."]) + &parts(&["."]), true),
        (parts(&["/nonexistent/\u{1b}"]), true),
    ] {
        let directory = scene.ground.folder(&[("a", "a")]);
        let attack = silent(text.clone()).on("questions");
        std::fs::write(directory.join(".git"), format!("gitdir: {attack}\n")).expect("written");
        let (output, shown) = build(&scene, &directory);
        let expected = if is_built { 0 } else { 125 };
        assert_eq!(output.status.code(), Some(expected), "{text:?}: {shown}");
        let said = match is_built {
            true => "names no repository that knows this directory",
            false => "the answer of its reader is malformed",
        };
        assert!(shown.contains(said), "{text:?}: {shown}");
    }
    scene.assert_untouched();
}
