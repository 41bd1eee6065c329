//! The process that matches patterns of ignore files and manifests, taken over.

use super::{READER, Scene};
use attacker::{Answer, Attack};

/// Text after its length, as answers to questions are sent.
pub(crate) fn framed(text: &str) -> String {
    let length = u8::try_from(text.len()).expect("short");
    assert!(length < 128, "one byte of UTF-8");
    format!("{}\0\0\0{text}", char::from(length))
}

/// What makes it answer `text`.
fn answer(text: &str, is_endless: bool) -> Answer {
    Answer {
        text: (framed(text), None),
        is_endless,
        ..Answer::default()
    }
}

/// A refusal of the pattern that lists what the process reached: cut where nothing more is expected.
fn of_patterns() -> Answer {
    let mut answer = answer(&format!("{}{READER}!", "\0".repeat(8)), false);
    let before = answer.text.0.replace(&format!("{READER}!"), "");
    answer.text = (before, Some("!".to_owned()));
    answer
}

/// What is said of a folder with this file, and that nothing was made.
fn refused(scene: &Scene, file: (&str, &str), words: &[&str]) -> String {
    let manifest = ("manifest.yaml", "run: main.sh\n");
    let files = [manifest, ("main.sh", "#!/bin/sh\n"), ("lib/a", "a"), file];
    let folder = scene.ground.folder(&files);
    let made = scene.ground.path("made");
    let output = scene.output(&folder, &[words, &["-o", support::text(&made)]].concat());
    let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    assert_eq!(output.status.code(), Some(125), "{words:?}: {shown}");
    assert!(!made.exists(), "{words:?}");
    shown
}

const BUNDLE: &[&str] = &["bundle", "."];
const SNAPSHOT: &[&str] = &[
    "source",
    "build",
    ".",
    "--name",
    "x",
    "--version",
    "1",
    "--no-git",
];

///
#[test]
fn the_matcher_of_patterns_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let attack = scene.attack(of_patterns()).on("questions");
    let line = format!("# {attack}\n");
    let glob = format!(
        "kind: tool\nname: x\nrun: cat lib/a\ncode: {{sources: [{{local: {{path: lib, glob: '*{attack}'}}}}]}}\n"
    );
    for (name, text, words) in [
        (".gitignore", &line, BUNDLE),
        ("lib/.bundleignore", &line, BUNDLE),
        ("lib/.staxignore", &line, SNAPSHOT),
        ("manifest.yaml", &glob, BUNDLE),
    ] {
        let shown = refused(&scene, (name, text), words);
        assert!(shown.contains(&format!("{READER}!")), "{name}: {shown}");
    }
    scene.assert_untouched();
}

/// answers of any length and form.
#[test]
fn malformed_answers_about_patterns_are_refused() {
    let Some(scene) = Scene::new() else { return };
    let raw = |text: &str| Answer {
        text: (text.to_owned(), None),
        ..Answer::default()
    };
    let (gone, malformed) = (
        "ended without an answer",
        "answer of its reader is malformed",
    );
    for (answer, expected) in [
        (raw(""), gone),
        (raw("ab"), gone),
        (raw("\u{7f}\u{7f}\u{7f}\u{7f}"), gone),
        (answer("short", false), malformed),
        // Accepted as a count of patterns, and then as verdicts that are too many.
        (answer(&"\0".repeat(8), true), gone),
        (
            answer(&"\u{7}".repeat(8), false),
            "more than 20000 patterns",
        ),
        // Bytes that are no verdicts about the four names.
        (
            raw("\u{8}\0\0\0\0\0\0\0\0\0\0\0\u{4}\0\0\0\u{7}\u{7}\u{7}\u{7}"),
            malformed,
        ),
    ] {
        let what = format!("{answer:?}");
        let attack = Attack {
            answer,
            ..Attack::default()
        };
        let line = format!("{}\n", attack.on("questions"));
        let shown = refused(&scene, (".gitignore", &line), BUNDLE);
        assert!(shown.contains(expected), "{what}: {shown}");
    }
    scene.assert_untouched();
}
