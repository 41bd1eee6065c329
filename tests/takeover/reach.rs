//! What a process that was taken over reaches.

use super::{READER, Scene, UNPACKER, archive, of_archives, of_documents, of_schemas, stored};
use support::tar::Tar;
use support::text;

/// Nothing stands after it in the list.
fn assert_reader(shown: &str) {
    let mut lines = shown.lines();
    let is_all = |line: &str| line.contains(READER) && !line.contains(&format!("{READER},"));
    assert!(lines.any(is_all), "{shown}");
}

/// small archives are unpacked into the space of the run, large ones into the cache.
#[test]
fn the_decoder_of_archives_has_the_directory_that_it_fills() {
    let Some(scene) = Scene::new() else { return };
    let attack = scene.attack(of_archives());
    let small = archive(&attack, "echo ran\n", 0);
    // In the header of the gzip file.
    let mut named = vec![0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3];
    named.extend_from_slice(attack.on("archives").as_bytes());
    named.push(0);
    let large = archive(&attack, "echo ran\n", 100_000);
    for (what, bytes) in [("small", small), ("named", named), ("large", large)] {
        let bundle = scene.ground.write(&format!("{what}.tar.gz"), bytes);
        for flags in [&[][..], &["--keep"], &["--no-cache"]] {
            let words = [&["exec"], flags, &[text(&bundle)]].concat();
            let done = scene.command(&words).done();
            done.assert_error("refused", "planted");
            assert_eq!(
                done.report["error"]["message"], UNPACKER,
                "{what} {flags:?}"
            );
            assert_eq!(done.text(), "", "{what} {flags:?}");
        }
    }
    scene.assert_untouched();
}

/// in a manifest and in a document of a block, in a bundle and before one is made.
#[test]
fn the_parser_of_documents_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let attack = scene.attack(of_documents()).on("documents");
    let manifest = format!("run: main.sh\n# {attack}\n");
    let block = format!("---\nschema: sandbox/v1\n# {attack}\n---\n");
    let by_block = "run: main.sh\nsandbox: {ref: ./SANDBOX.md}\n";
    for (manifest, block) in [
        (manifest.as_str(), "---\n---\n"),
        (by_block, block.as_str()),
    ] {
        let files = [
            ("manifest.yaml", manifest),
            ("SANDBOX.md", block),
            ("main.sh", "#!/bin/sh\necho ran\n"),
        ];
        let bundle = scene.ground.bundle(&files);
        let done = scene.command(&["exec", text(&bundle)]).done();
        assert_eq!(done.outcome(), "refused", "{done:#?}");
        let message = done.report["error"]["message"].as_str().expect("text");
        assert!(message.ends_with(READER), "{message}");
        let folder = scene.ground.folder(&files);
        // The process that reads the whole archive parses them, and is to answer more than an error.
        let output = scene.output(&folder, &["plan", text(&bundle)]);
        let shown = String::from_utf8(output.stdout).expect("text");
        assert_eq!(output.status.code(), Some(125), "{shown}");
        assert!(shown.contains("the answer of its reader"), "{shown}");
        for words in [&["check", "."][..], &["bundle", ".", "-o", "made.tar.gz"]] {
            let output = scene.output(&folder, words);
            let shown = [output.stdout, output.stderr].concat();
            let shown = String::from_utf8(shown).expect("text");
            assert_reader(&shown);
            assert_eq!(output.status.code(), Some(125), "{words:?}: {shown}");
        }
        assert!(!folder.join("made.tar.gz").exists());
    }
    scene.assert_untouched();
}

/// in a schema, in an input, and in what a body wrote.
#[test]
fn the_validator_of_schemas_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let attack = scene.attack(of_schemas()).on("schemas");
    let schema = format!("inputs: {{type: object, description: {attack}}}\n");
    let inputs = format!("{{\"key\": \"{attack}\"}}");
    let outputs = "outputs: {type: object}\n";
    let write = format!("printf '{{\"key\": \"{attack}\"}}' >\"$RUNNER_OUTPUT\"\n");
    for (what, block, script, flags) in [
        ("schema", schema.as_str(), "echo ran\n", &[][..]),
        (
            "input",
            "inputs: {type: object}\n",
            "echo ran\n",
            &["--inputs", inputs.as_str()],
        ),
        ("output", outputs, write.as_str(), &[]),
    ] {
        let tar = Tar::new()
            .file(
                "manifest.yaml",
                format!("run: [sh, main.sh]\n{block}").as_bytes(),
            )
            .file("main.sh", script.as_bytes());
        let bundle = scene
            .ground
            .write(&format!("{what}.tar.gz"), stored(&tar.end()));
        let words = [&["exec"], flags, &[text(&bundle)]].concat();
        let done = scene.command(&words).done();
        let message = done.report["error"]["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(READER), "{what}: {done:#?}");
        assert_eq!(done.text(), "", "{what}");
    }
    let files = [
        ("manifest.yaml", format!("run: main.sh\n{schema}")),
        ("main.sh", "#!/bin/sh\n".to_owned()),
    ];
    let folder = scene
        .ground
        .folder(&files.each_ref().map(|(name, text)| (*name, text.as_str())));
    for words in [&["check", "."][..], &["bundle", ".", "-o", "made.tar.gz"]] {
        let output = scene.output(&folder, words);
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert_reader(&shown);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {shown}");
    }
    scene.assert_untouched();
}
