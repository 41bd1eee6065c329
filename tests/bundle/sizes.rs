//! The maximum size of a bundle, and the memory that making one takes.

use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::Duration;

use super::outputs::noise;
use support::{Ground, invariants::watch_memory};

const HANG_AFTER: Duration = Duration::from_secs(300);

#[test]
fn each_cap_of_the_host_names_the_entry_that_crosses_it_and_its_key() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    ground.file("a/first", noise(40_000));
    ground.file("b/second", noise(40_000));
    ground.file("c/third", noise(40_000));
    for (policy, parts) in [
        (
            "{unpacked: 100k}",
            &["`c/third`", "120", "at most 100 KiB (unpack.unpacked)"][..],
        ),
        ("{entries: 8}", &["more than 8 files", "(unpack.entries)"]),
        (
            "{archive: 64k}",
            &["`b/second`", "more than 64 KiB (unpack.archive)"],
        ),
        ("{archive: 120k}", &["more than 120 KiB (unpack.archive)"]),
    ] {
        if policy.contains("120k") {
            // Just below its size: exceeded in the last file, or at the very end.
            ground.file("d/fourth", noise(4_000));
        }
        let policy = ground.write("policy.yaml", format!("unpack: {policy}\n"));
        let policy = policy.to_str().expect("a plain path");
        let ended = ground.make(&[".", "--policy", policy, "-o", "out.tar.gz"]);
        ended.assert_refused("bundle_size", parts);
        assert!(!ground.workspace().join("out.tar.gz").exists());
    }
}

#[test]
fn a_directory_of_very_many_names_ends_at_the_cap() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    for number in 0..500 {
        ground.file(&format!("many/{number}"), "");
    }
    let policy = ground.write("policy.yaml", "unpack: {entries: 20}\n");
    let policy = policy.to_str().expect("a plain path");
    let ended = ground.make(&[".", "--policy", policy, "--list"]);
    ended.assert_refused("source_too_many_files", &["more than 320 files"]);
    // Followed links do not multiply data beyond it either.
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    for level in 0..12 {
        ground.file(&format!("l{level}/x"), "");
        for number in 0..4 {
            let target = format!("../l{}", level + 1);
            symlink(
                target,
                ground.workspace().join(format!("l{level}/{number}")),
            )
            .expect("linked");
        }
    }
    ground.file("l12/x", "");
    let ended = ground.make(&[".", "--list", "--symlinks=follow"]);
    ended.assert_refused("bundle_size", &["unpack.entries"]);
}

#[test]
fn a_gibibyte_is_bundled_within_64_mebibytes_of_memory() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    let large = std::fs::File::create(ground.workspace().join("large")).expect("made");
    large.set_len(1 << 30).expect("sparse");
    let policy = ground.write("policy.yaml", "unpack: {unpacked: 2g}\n");
    let target = ground.path("out.tar.gz");
    let mut child = ground
        .bundle_command(&[
            ".",
            "--policy",
            policy.to_str().expect("plain"),
            "-o",
            target.to_str().expect("plain"),
        ])
        .stdin(Stdio::null())
        .spawn()
        .expect("started");
    let peak_kib = watch_memory(&mut child, HANG_AFTER);
    assert!(child.wait().expect("waited").success());
    assert!(0 < peak_kib && peak_kib < 64 << 10, "{peak_kib} KiB");
    assert!(1 << 20 < std::fs::metadata(&target).expect("there").len() * 2);
}
