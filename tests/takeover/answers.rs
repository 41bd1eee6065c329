//! What the supervisor does with the answers of a process that was taken over.

use super::{Scene, archive, archive_with, listed, part, unpacked};
use attacker::{Answer, Attack};
use support::text;

fn answer(text: &str, list: Option<Vec<u8>>, is_endless: bool) -> Answer {
    Answer {
        text: (text.to_owned(), None),
        after: list.map(|list| part(&list)),
        is_endless,
        ..Answer::default()
    }
}

fn attack(answer: Answer) -> Attack {
    Attack {
        answer,
        ..Attack::default()
    }
}

/// A-61: lists of any length and form.
#[test]
fn malformed_answers_about_an_archive_are_refused() {
    let Some(scene) = Scene::new() else { return };
    let unpacked = unpacked(&format!("sha256:{}", "0".repeat(64)));
    let escape = r#"{"Problem":{"code":"x","message":"\u001b[2J","hint":null,"cause":"Host"}}"#;
    let malformed = "the answer of its reader is malformed";
    let list = |name: &str, bytes| answer(&unpacked, Some(listed(name, bytes)), false);
    for (what, answer, expected) in [
        (
            "nothing",
            answer("", None, false),
            "ended without an answer",
        ),
        ("noise", answer("noise", None, false), malformed),
        (
            "a length",
            answer("\u{7f}\u{7f}\u{7f}\u{7f}", None, false),
            malformed,
        ),
        (
            "control characters",
            answer(escape, Some(Vec::new()), false),
            malformed,
        ),
        ("a name that climbs", list("../../etc/passwd", 1), malformed),
        ("an absolute name", list("/etc/passwd", 1), malformed),
        ("a huge file", list("file", u64::MAX), malformed),
        (
            "half a list",
            answer(&unpacked, Some(vec![b'f'; 7]), false),
            malformed,
        ),
        (
            "an endless answer",
            answer(&" ".repeat(4096), None, true),
            // Cut after some time or at some length.
            "the answer of its reader is",
        ),
    ] {
        for more in [0, 100_000] {
            let bytes = archive(&attack(answer.clone()), "echo ran\n", more);
            let bundle = scene.ground.write("bundle.tar.gz", bytes);
            let done = scene.command(&["exec", text(&bundle)]).done();
            done.assert_error("refused", "archive_unreadable");
            let message = done.report["error"]["message"].as_str().expect("text");
            assert!(message.contains(expected), "{what}: {message}");
            assert_eq!(done.text(), "", "{what}");
        }
    }
    scene.assert_untouched();
}

/// A-61: about an archive that is read for a plan: also contents that no file of the tree can have.
#[test]
fn malformed_answers_about_an_archive_that_is_not_unpacked_are_refused() {
    let Some(scene) = Scene::new() else { return };
    let malformed = "the answer of its reader is malformed";
    let tree = unpacked(&format!("sha256:{}", "0".repeat(64)));
    let with_contents = |contents: Vec<u8>| Answer {
        after: Some([part(&listed("main.sh", 3)), contents].concat()),
        ..answer(&tree, None, false)
    };
    let contents = |name: &str, text: &[u8]| part(&[part(name.as_bytes()), part(text)].concat());
    for (what, answer, expected) in [
        (
            "nothing",
            answer("", None, false),
            "ended without an answer",
        ),
        ("noise", answer("noise", None, false), malformed),
        ("no contents", with_contents(Vec::new()), malformed),
        (
            "a longer file",
            with_contents(contents("main.sh", b"long")),
            malformed,
        ),
        (
            "another file",
            with_contents(contents("other", b"x")),
            malformed,
        ),
        (
            "a name that climbs",
            with_contents(contents("../x", b"x")),
            malformed,
        ),
        ("half of it", with_contents(part(&[7; 5])), malformed),
    ] {
        let bytes = archive_with(&attack(answer).on("surveys"), "echo ran\n", 0);
        let bundle = scene.ground.write("bundle.tar.gz", bytes);
        let output = scene.output(&scene.ground.path(""), &["plan", text(&bundle)]);
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert_eq!(output.status.code(), Some(125), "{what}: {shown}");
        // Its lines are as wide as a terminal.
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(words.join(" ").contains(expected), "{what}: {shown}");
    }
    scene.assert_untouched();
}

/// A-61: a tree that is not there.
#[test]
fn files_that_a_lie_names_are_not_read_from_elsewhere() {
    let Some(scene) = Scene::new() else { return };
    let unpacked = unpacked(&format!("sha256:{}", "0".repeat(64)));
    let list = listed("manifest.yaml", 10);
    let bytes = archive(
        &attack(answer(&unpacked, Some(list), false)),
        "echo ran\n",
        0,
    );
    let bundle = scene.ground.write("bundle.tar.gz", bytes);
    let done = scene.command(&["exec", text(&bundle)]).done();
    done.assert_error("refused", "manifest_unreadable");
    scene.assert_untouched();
}

/// A-61: of documents and schemas.
#[test]
fn malformed_answers_about_a_document_are_refused() {
    let Some(scene) = Scene::new() else { return };
    let control = r#"{"Error":{"place":null,"problem":{"Syntax":{"reason":"\u001b[2J"}}}}"#;
    let mismatch = r#"[{"Mismatch":[{"pointer":"/\u001b[2J","message":"x"}]}]"#;
    for (parser, text, is_endless) in [
        ("documents", "", false),
        ("documents", "noise", false),
        ("documents", control, false),
        ("documents", r#"{"Document":[]}"#, false),
        ("documents", "   ", true),
        ("schemas", "", false),
        ("schemas", "[]", false),
        ("schemas", r#"["Accepted","Accepted","Accepted"]"#, false),
        ("schemas", mismatch, false),
        ("schemas", "   ", true),
    ] {
        let attack = attack(answer(text, None, is_endless)).on(parser);
        let manifest = format!("run: main.sh\ninputs: {{type: object, title: {attack}}}\n");
        let bundle = scene.ground.bundle(&[
            ("manifest.yaml", manifest.as_str()),
            ("main.sh", "#!/bin/sh\necho ran\n"),
        ]);
        let bundle = bundle.to_str().expect("text");
        let done = scene.command(&["exec", bundle]).done();
        assert_eq!(done.outcome(), "refused", "{parser} {text}: {done:#?}");
        assert_eq!(done.text(), "", "{parser} {text}");
        assert!(
            !done.stderr.contains('\u{1b}'),
            "{parser} {text}: {done:#?}"
        );
        let report = done.report.to_string();
        assert!(!report.contains("\\u001b"), "{parser} {text}: {report}");
    }
    scene.assert_untouched();
}

/// A-61: of the users of an image.
#[test]
fn users_that_no_image_has_are_refused() {
    let Some(scene) = Scene::new() else { return };
    let user = |uid: u32, home: &str| {
        let home = home.as_bytes();
        let line = "null";
        format!(
            r#"{{"Ok":{{"uid":{uid},"gid":0,"home":{home:?},"added_user":{line},"added_group":{line}}}}}"#
        )
    };
    let named = |name: &str| {
        format!(r#"{{"Err":{{"Unknown":{{"kind":"user","name":"{name}","file":"etc/passwd"}}}}}}"#)
    };
    for (text, is_endless, code) in [
        (user(u32::MAX, "/"), false, "image_unreadable"),
        (user(0, "relative"), false, "image_unreadable"),
        (named("\\u001b[2J"), false, "image_unreadable"),
        (named("other"), false, "image_user_unknown"),
        ("noise".to_owned(), false, "image_unreadable"),
        (" ".to_owned(), true, "image_unreadable"),
    ] {
        let attack = attack(answer(&text, None, is_endless)).on("texts");
        let image = scene.image(&format!("{attack}\n"));
        let bundle = scene.ground.bundle(&[
            ("manifest.yaml", "run: [sh, main.sh]\n"),
            ("main.sh", "echo ran\n"),
        ]);
        let bundle = bundle.to_str().expect("text");
        let done = scene.command(&["exec", "--image", &image, bundle]).done();
        done.assert_error("refused", code);
        assert_eq!(done.text(), "", "{text}");
        let shown = format!("{}{}", done.stderr, done.report);
        assert!(
            !shown.contains('\u{1b}') && !shown.contains("\\u001b"),
            "{text}: {shown}"
        );
    }
    scene.assert_untouched();
}
