//! Where a bundle and its manifest come from.

use super::sha256;
use support::text;
use support::{Ground, is_root, needs_root};

/// D-11: a link that exists before.
#[test]
fn a_link_of_another_user_on_the_way_to_a_directory_that_is_named_is_not_followed() {
    let ground = Ground::new();
    let bundle = ground.script(
        "run: body.sh\noutputsFiles: {o: {path: o}}\n",
        "echo out > /scratch/o\n",
    );
    std::fs::create_dir(ground.path("real")).expect("made");
    let link = ground.path("link");
    std::os::unix::fs::symlink("real", &link).expect("a link");
    let through = ground.path("link/../link/.");
    for flag in ["--workspace", "--out-dir"] {
        let done = ground.exec(&[flag, text(&through)], &bundle);
        done.assert_exited(0);
        let out = ground.path("real/o");
        assert_eq!(std::fs::read_to_string(&out).expect("synced"), "out\n");
        std::fs::remove_file(out).expect("removed");
    }
    for flag in ["--ro", "--rw"] {
        ground
            .run(&[flag, text(&through)], &["test", "-d", text(&link)])
            .assert_exited(0);
    }
    if !is_root() {
        return needs_root("only root can give a link to somebody else");
    }
    std::os::unix::fs::lchown(&link, Some(12_345), None).expect("given");
    for flag in ["--ro", "--rw"] {
        ground
            .run(&[flag, text(&through)], &["true"])
            .assert_error("refused", "mount_source_link")
            .assert_message("the link `link` on the way belongs to uid 12345")
            .assert_nothing_ran();
    }
    for flag in ["--workspace", "--out-dir"] {
        ground
            .exec(&[flag, text(&through)], &bundle)
            .assert_error("refused", "workspace_link")
            .assert_message("the link `link` on the way belongs to uid 12345")
            .assert_hint("name the directory itself")
            .assert_nothing_ran();
        assert!(!ground.path("real/o").exists());
    }
    let file = ground.path("link/file");
    let report = format!("--json={}", file.display());
    let ports = ["--publish=0:80", "--publish-file", text(&file)];
    for flags in [&[report.as_str()][..], &ports] {
        // Without the file that cannot be opened there is no report.
        let mut case = ground.command(&["run"]).without("I8");
        case.command.args(flags).args(["--", "/bin/true"]);
        let done = case.done();
        assert_eq!(done.code, 125, "{done:#?}");
        let found = "the link `link` on the way belongs to uid 12345";
        assert!(done.stderr.contains(found), "{done:#?}");
        assert!(!ground.path("real/file").exists());
    }
}

#[test]
fn a_folder_packed_with_plain_tar_runs_unchanged() {
    let ground = Ground::new();
    let bundle = ground.script("name: hello\nrun: body.sh\n", "echo hello; pwd\n");
    let done = ground.exec(&[], &bundle);
    done.assert_exited(0);
    assert_eq!(
        (done.text().as_str(), done.stderr.as_str()),
        ("hello\n/bundle\n", "")
    );
    let archive = std::fs::read(&bundle).expect("read");
    assert_eq!(done.report["bundle"]["archive_digest"], sha256(&archive));
    assert_eq!(done.report["run_form"], "file");
    assert_eq!(done.report["argv"], serde_json::json!(["bash", "body.sh"]));
}

#[test]
fn the_archive_may_come_from_standard_input() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "echo hello; cat\n");
    let archive = std::fs::read(&bundle).expect("read");
    let digest = sha256(&archive);
    let done = ground.command(&["exec", "-"]).stdin(archive).done();
    done.assert_exited(0);
    assert_eq!(
        done.text(),
        "hello\n",
        "the body does not read the archive's rest"
    );
    assert_eq!(done.report["bundle"]["archive_digest"], digest);
}

#[test]
fn a_directory_is_packed_on_the_fly_and_is_the_same_bundle() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "echo hello; echo more >> body.sh\n");
    let folder = bundle.with_extension("").with_extension("");
    let packed = ground.exec(&[], &bundle);
    let done = ground.exec(&[], &folder);
    done.assert_exited(0);
    assert_eq!(done.text(), "hello\n");
    assert_eq!(
        done.report["bundle"]["content_digest"],
        packed.report["bundle"]["content_digest"]
    );
    assert!(done.report["bundle"]["archive_digest"].is_null());
    let body = std::fs::read_to_string(folder.join("body.sh")).expect("read");
    assert_eq!(
        body, "echo hello; echo more >> body.sh\n",
        "the folder itself stays"
    );
}

#[test]
fn each_place_of_a_manifest_is_found_and_the_first_comes_first() {
    let ground = Ground::new();
    let manifests = [
        (
            ".runner/manifest.json",
            "{\"run\": [\"echo\", \"resolved\"]}",
        ),
        ("manifest.yaml", "run: [echo, yaml]\n"),
        ("manifest.json", "{\"run\": [\"echo\", \"json\"]}"),
        ("CODE.md", "---\nrun: [echo, code]\n---\n# Words\n"),
        ("TOOL.md", "---\nrun: [echo, tool]\n---\n"),
        ("WORKFLOW.md", "---\nrun: [echo, workflow]\n---\n"),
    ];
    for (first, said) in ["resolved", "yaml", "json", "code", "tool", "workflow"]
        .iter()
        .enumerate()
    {
        let done = ground.exec(&[], &ground.bundle(&manifests[first..]));
        done.assert_exited(0);
        assert_eq!(done.text(), format!("{said}\n"));
        let warnings = done.report["warnings"].as_array().expect("a list");
        let ignored = warnings
            .iter()
            .filter(|one| one["code"] == "manifest_ignored");
        // A resolved manifest lies beside its source.
        let expected = match first {
            0 => 0,
            first => manifests.len() - 1 - first,
        };
        assert_eq!(ignored.count(), expected, "{done:#?}");
    }
}

#[test]
fn a_manifest_of_the_caller_replaces_the_bundle_s_own() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[("manifest.yaml", "run: [echo, theirs]\n")]);
    for (name, words) in [
        ("mine.yaml", "run: [echo, mine]\n"),
        ("mine.json", "{\"run\": [\"echo\", \"mine\"]}"),
        ("mine.md", "---\nrun: [echo, mine]\n---\n"),
    ] {
        let manifest = ground.write(name, words);
        let done = ground.exec(&["--manifest", text(&manifest)], &bundle);
        done.assert_exited(0);
        assert_eq!(done.text(), "mine\n");
    }
}

#[test]
fn run_of_the_caller_replaces_the_manifest_s_in_each_of_its_forms() {
    let ground = Ground::new();
    let bundle = ground.script("run: [echo, theirs]\n", "echo script\n");
    for (run, said) in [
        ("body.sh", "script\n"),
        ("echo a; echo b", "a\nb\n"),
        ("[\"echo\", \"a b\", \"*\"]", "a b *\n"),
        ("{\"shell\": \"echo $((1+1))\"}", "2\n"),
        ("{\"exec\": [\"echo\", \"$HOME\"]}", "$HOME\n"),
        ("{\"file\": \"body.sh\"}", "script\n"),
    ] {
        let done = ground.exec(&["--run", run], &bundle);
        done.assert_exited(0);
        assert_eq!(done.text(), said, "--run {run}");
    }
    for run in [
        "[\"echo\"",
        "{\"file\": \"a\", \"exec\": [\"b\"]}",
        "{\"fiel\": \"a\"}",
        "[]",
        "",
    ] {
        let done = ground.exec(&["--run", run], &bundle);
        done.assert_error("refused", "run_invalid")
            .assert_nothing_ran();
    }
}

#[test]
fn a_bundle_without_a_manifest_is_refused_unless_the_caller_says_what_to_run() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[("body.sh", "echo script\n")]);
    let done = ground.exec(&[], &bundle);
    done.assert_error("refused", "manifest_missing")
        .assert_message("manifest.yaml")
        .assert_hint("--run")
        .assert_nothing_ran();
    ground.exec(&["--run", "body.sh"], &bundle).assert_exited(0);
    let empty = ground.bundle(&[]);
    ground
        .exec(&[], &empty)
        .assert_error("refused", "manifest_missing");
    let done = ground.exec(&["--run", "echo empty; ls -A"], &empty);
    done.assert_exited(0);
    assert_eq!(done.text(), "empty\n");
}

#[test]
fn a_manifest_inside_the_one_folder_is_refused_with_the_command_that_packs_it_right() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[
        ("my-tool/manifest.yaml", "run: body.sh\n"),
        ("my-tool/body.sh", "echo script\n"),
    ]);
    let done = ground.exec(&[], &bundle);
    done.assert_error("refused", "manifest_missing")
        .assert_message("my-tool")
        .assert_hint("-C my-tool .")
        .assert_nothing_ran();
}

#[test]
fn a_manifest_without_a_run_lists_candidates() {
    let ground = Ground::new();
    let bundle = ground.script("name: x\n", "echo script\n");
    let done = ground.exec(&[], &bundle);
    done.assert_error("refused", "run_missing")
        .assert_hint("body.sh");
}

#[test]
fn a_misspelt_key_is_refused_with_its_place_and_the_key_that_was_meant() {
    let ground = Ground::new();
    let done = ground.exec(&[], &ground.script("name: x\nrunn: body.sh\n", ""));
    done.assert_error("refused", "unknown_key")
        .assert_message("manifest.yaml:2:1")
        .assert_hint("did you mean `run`")
        .assert_nothing_ran();
}

#[test]
fn a_manifest_whose_code_was_not_fetched_says_what_to_run_first() {
    let ground = Ground::new();
    let manifest = "run: body.sh\ncode:\n  sources:\n    - local: src/\n";
    let done = ground.exec(&[], &ground.script(manifest, "echo script\n"));
    done.assert_error("refused", "code_unresolved")
        .assert_hint("runner bundle")
        .assert_nothing_ran();
}
