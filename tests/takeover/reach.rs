//! What a process that was taken over reaches.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;

use super::{
    READER, Scene, UNPACKER, archive, archive_with, of_archives, of_documents, of_json, of_schemas,
    of_texts, stored, told,
};
use attacker::Attack;
use support::tar::Tar;
use support::text;

/// Nothing stands after it in the list.
fn assert_reader(shown: &str) {
    let mut lines = shown.lines();
    let is_all = |line: &str| line.contains(READER) && !line.contains(&format!("{READER},"));
    assert!(lines.any(is_all), "{shown}");
}

/// A-61: small archives are unpacked into the space of the run, large ones into the cache.
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

/// A-61: an archive that is read for a plan is not unpacked.
#[test]
fn the_decoder_of_an_archive_that_is_not_unpacked_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let attack = scene.attack(of_archives()).on("surveys");
    for more in [0, 100_000] {
        let bytes = archive_with(&attack, "echo ran\n", more);
        let bundle = scene.ground.write("bundle.tar.gz", bytes);
        let output = scene.output(&scene.ground.path(""), &["plan", text(&bundle)]);
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert_reader(&shown);
        assert_eq!(output.status.code(), Some(125), "{shown}");
    }
    scene.assert_untouched();
}

/// A-61: in a manifest and in a document of a block, in a bundle and before one is made.
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

/// A-61: in a schema, in an input, and in what a body wrote.
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

/// A-61: of files of tools and projects, such as the package.json that a shim of volta reads.
#[test]
fn the_parser_of_files_of_tools_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let attack = scene.attack(of_texts(false)).on("texts");
    let bin = scene.ground.path("volta/bin");
    scene
        .ground
        .program("volta/bin/volta-shim", "#!/bin/sh\nexit 1\n");
    symlink("volta-shim", bin.join("node")).expect("linked");
    let project = scene.ground.write(
        "project/package.json",
        format!(r#"{{"volta": {{"node": "1.0"}}, "x": "{attack}"}}"#),
    );
    let mut case = scene.command(&["run", "node"]);
    case.command
        .current_dir(project.parent().expect("a directory"))
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env_remove("VOLTA_HOME");
    let done = case.done();
    done.assert_error("refused", "program_is_shim");
    let message = done.report["error"]["message"].as_str().expect("text");
    let expected = format!("no node of the version `{READER}` is installed");
    assert!(message.contains(&expected), "{message}");
    scene.assert_untouched();
}

/// A-61: of the first line of a program, before a run and after one that `env` ended.
#[test]
fn the_parser_of_first_lines_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let answer = told(r#"{"Script":["a",""#, r#"\r"]}"#, None);
    let attack = Attack {
        answer,
        ..Attack::default()
    };
    let tool = format!("#!/usr/bin/env {}\r\n", attack.on("texts"));
    assert!(tool.len() < 256, "{}", tool.len());
    let bundle = scene
        .ground
        .bundle(&[("manifest.yaml", "run: [./tool]\n"), ("tool", &tool)]);
    let command = scene.ground.program("here/tool", &tool);
    let warned = format!("it looks for `{READER}\\r`");
    for words in [&["exec", text(&bundle)][..], &["run", "--", text(&command)]] {
        let done = scene.command(words).done();
        done.assert_exited(127);
        assert!(done.stderr.contains(&warned), "{done:#?}");
    }
    for words in [
        &["plan", text(&bundle)][..],
        &["plan", "--", text(&command)],
    ] {
        let output = scene.output(&scene.ground.path(""), words);
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(words.join(" ").contains(&warned), "{shown}");
    }
    scene.assert_untouched();
}

/// A-61: of lists of Python packages.
#[test]
fn the_parser_of_lists_of_packages_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let image = scene.image("");
    let attack = scene.attack(of_texts(true)).on("texts");
    let bundle = scene.ground.bundle(&[
        ("manifest.yaml", "run: [sh, main.sh]\n"),
        ("main.sh", "echo ran\n"),
        ("requirements.txt", &format!("# {attack}\n")),
    ]);
    let done = scene
        .command(&["exec", "--image", &image, text(&bundle)])
        .done();
    done.assert_error("refused", "needs_list_unreadable");
    let message = done.report["error"]["message"].as_str().expect("text");
    assert!(message.contains(&format!("list {READER},")), "{message}");
    assert_eq!(done.text(), "");
    scene.assert_untouched();
}

/// A-61: of directories that are named after Python packages and their versions, and of versions in
/// `package.json`.
#[test]
fn the_parser_of_installed_packages_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let of_pip = Attack {
        answer: told(
            r#"[{"version":""#,
            r#"","is_of_bundle":true,"is_accepted":false}]"#,
            None,
        ),
        ..Attack::default()
    };
    // The names of these directories follow each other in what the process reads.
    let directories = format!("{}last/file", of_pip.on("texts"));
    let is_name = |name: &str| name.len() <= 255;
    assert!(directories.split('/').all(is_name), "{directories}");
    let of_npm = scene.attack(told("[\"", "\",false]", None)).on("texts");
    let package = format!(r#"{{"version": "{of_npm}"}}"#);
    for (need, file) in [
        ("pip: [six]", (directories.as_str(), "")),
        (
            "npm: [six]",
            ("node_modules/six/package.json", package.as_str()),
        ),
    ] {
        let manifest = format!("run: [sh, main.sh]\nrunner: {{needs: {{{need}}}}}\n");
        let files = [
            ("manifest.yaml", manifest.as_str()),
            ("main.sh", "echo ran\n"),
            file,
        ];
        let bundle = scene.ground.bundle(&files);
        let done = scene.command(&["exec", text(&bundle)]).done();
        done.assert_exited(0);
        let reason = &done.report["runner"]["needs_unsatisfied"][0]["reason"];
        assert_eq!(*reason, format!("the bundle has {READER}"), "{done:#?}");
        assert_eq!(done.text(), "ran\n");
    }
    scene.assert_untouched();
}

/// A-61: of the answers of github.
#[test]
fn the_parser_of_answers_of_github_has_nothing() {
    let Some(scene) = Scene::new() else { return };
    let attack = scene.attack(of_json()).on("json");
    let service = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = service.local_addr().expect("bound").port();
    let service = std::thread::spawn(move || {
        let (mut connection, _) = service.accept().expect("accepted");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).expect("a request");
            request.extend(byte);
        }
        let body = format!(r#"[{{"ref": "{attack}"}}]"#);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
        let length = body.len();
        write!(connection, "{head}Content-Length: {length}\r\n\r\n{body}").expect("answered");
    });
    let policy = format!("github: {{base_url: 'http://127.0.0.1:{port}'}}\n");
    let policy = scene.ground.write("policy.yaml", policy);
    let manifest = "kind: tool\nname: fetched\nrun: cat lib/a\n\
        code: {sources: [{github: {repo: org/repo, ref: v1}}]}\n";
    let folder = scene.ground.folder(&[("manifest.yaml", manifest)]);
    let words = [
        "bundle",
        ".",
        "-o",
        "made.tar.gz",
        "--policy",
        text(&policy),
    ];
    let output = scene.output(&folder, &words);
    service.join().expect("served");
    let shown = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    assert_reader(&shown);
    let expected = format!("the answer is not a JSON document: {READER}");
    assert!(shown.contains(&expected), "{shown}");
    assert_eq!(output.status.code(), Some(125), "{shown}");
    scene.assert_untouched();
}
