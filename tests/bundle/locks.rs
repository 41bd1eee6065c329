//! The lock file: written, and checked for differences.

use support::Ground;
use support::bundling::manifest;

fn locked() -> Ground {
    let ground = Ground::new();
    ground.file("lib/a", "a");
    ground.file(
        "m.yaml",
        manifest("local: lib\ninline: {path: b, content: b}"),
    );
    ground
        .make(&["m.yaml", "--lock", "m.lock", "-o", "out.tar.gz"])
        .assert_done();
    ground
}

#[test]
fn the_same_sources_are_accepted_and_written_the_same() {
    let ground = locked();
    ground
        .make(&[
            "m.yaml",
            "--lock",
            "m.lock",
            "--locked",
            "-o",
            "again.tar.gz",
        ])
        .assert_done();
    let read = |name: &str| std::fs::read(ground.workspace().join(name)).expect("read");
    assert_eq!(read("out.tar.gz"), read("again.tar.gz"));
    let before = read("m.lock");
    ground.make(&["m.yaml", "--lock", "m.lock"]).assert_done();
    assert_eq!(read("m.lock"), before);
}

#[test]
fn drift_is_refused_with_each_difference_and_no_bundle() {
    for (change, parts) in [
        (
            "lib/a",
            &["source m.yaml#/code/sources/0: bytes", "content_digest"][..],
        ),
        ("lib/more", &["source m.yaml#/code/sources/0: files"]),
        (
            "m.yaml",
            &["m.yaml#/code/sources/2", "egress", "secrets", "engine"],
        ),
    ] {
        let ground = locked();
        let text = match change {
            "m.yaml" => format!(
                "runner: {{engine: sandbox}}\nnetwork: {{egress: [a.example]}}\nsecrets: {{K: {{vault: kk}}}}\n{}",
                manifest(
                    "local: lib\ninline: {path: b, content: b}\ninline: {path: c, content: c}"
                )
            ),
            _ => "changed".to_owned(),
        };
        ground.file(change, text);
        let ended = ground.make(&["m.yaml", "--lock", "m.lock", "--locked", "-o", "new.tar.gz"]);
        ended.assert_refused("lock_drift", parts);
        assert!(!ground.workspace().join("new.tar.gz").exists());
    }
}

/// The reader of the pipe has the bundle before the exit code.
#[test]
fn a_bundle_that_drifted_is_not_even_begun_where_it_cannot_be_taken_back() {
    let ground = locked();
    let same = ground.make(&["m.yaml", "--lock", "m.lock", "--locked", "-o", "-"]);
    same.assert_done();
    assert!(same.stdout.starts_with(&[0x1f, 0x8b]), "{same:#?}");
    // Of the same size: only the digest differs.
    ground.file("lib/a", "b");
    let ended = ground.make(&["m.yaml", "--lock", "m.lock", "--locked", "-o", "-"]);
    ended.assert_refused("lock_drift", &["content_digest"]);
    assert!(ended.stdout.is_empty(), "{} bytes", ended.stdout.len());
    let ended = ground.make(&[
        "m.yaml",
        "--lock",
        "m.lock",
        "--locked",
        "-o",
        "/dev/stdout",
    ]);
    ended.assert_refused("lock_drift", &["content_digest"]);
    assert!(ended.stdout.is_empty(), "{} bytes", ended.stdout.len());
}

#[test]
fn an_invalid_lock_file_is_refused() {
    let ground = locked();
    for (text, part) in [("{}", "m.lock"), ("no", "m.lock"), ("", "m.lock")] {
        ground.file("m.lock", text);
        let ended = ground.make(&["m.yaml", "--lock", "m.lock", "--locked", "--print-digest"]);
        ended.assert_refused("lock_invalid", &[part]);
    }
    let ended = ground.make(&[
        "m.yaml",
        "--lock",
        "nothing.lock",
        "--locked",
        "--print-digest",
    ]);
    ended.assert_refused("lock_invalid", &["nothing.lock"]);
    let ended = ground.make(&["m.yaml", "--locked", "--print-digest"]);
    assert_eq!(ended.code, 125);
    assert!(ended.stderr.contains("--lock"), "{ended:#?}");
}

#[test]
fn neither_the_bundle_nor_the_lock_file_is_part_of_the_bundle() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    let first = ground.make(&[
        ".",
        "-o",
        "out.tar.gz",
        "--lock",
        "out.lock",
        "--print-digest",
    ]);
    let second = ground.make(&[
        ".",
        "-o",
        "out.tar.gz",
        "--lock",
        "out.lock",
        "--print-digest",
    ]);
    first.assert_done();
    assert_eq!(first.text(), second.text());
    let ended = ground.make(&[".", "-o", "out.tar.gz", "--lock", "out.lock", "--locked"]);
    ended.assert_done();
}
