//! Other programs can read the written artifacts.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::artifacts::Source;
use support::bundling::output_of;
use support::skip;

#[track_caller]
fn skopeo(words: &[&str]) -> Option<Vec<u8>> {
    let output = match Command::new("skopeo").args(words).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip("skopeo is not installed");
            return None;
        }
        Err(error) => panic!("skopeo: {error}"),
    };
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {complaints}");
    Some(output.stdout)
}

fn build_into(source: &Source, layout: &Path, version: &str) -> Value {
    let words = ["--name", "it", "--version", version, "--json"];
    let mut command = source.command(&source.directory(), &words);
    let ended = output_of(command.arg("-o").arg(layout));
    ended.assert_done();
    ended.json()
}

#[test]
fn skopeo_reads_a_layout_and_copies_it_byte_by_byte() {
    let source = Source::with(&[("a", "a"), ("d/b", "b")]);
    let layout = source.ground.path("it.oci");
    let report = build_into(&source, &layout, "1");
    let from = format!("oci:{}:1", layout.display());
    let Some(raw) = skopeo(&["inspect", "--raw", &from]) else {
        return;
    };
    let digest = report["digest"].as_str().expect("text");
    let hex = digest.strip_prefix("sha256:").expect("a digest");
    let ours = std::fs::read(layout.join("blobs/sha256").join(hex)).expect("read");
    assert_eq!(raw, ours);
    let manifest: Value = serde_json::from_slice(&raw).expect("JSON");
    assert_eq!(manifest["artifactType"], "application/vnd.stax.source.v1");
    let copy = source.ground.path("copy.oci");
    let to = format!("oci:{}:x", copy.display());
    skopeo(&["copy", "--quiet", &from, &to]);
    for part in [
        &report["digest"],
        &report["config_digest"],
        &report["layer"]["digest"],
    ] {
        let hex = part
            .as_str()
            .and_then(|part| part.split(':').nth(1))
            .expect("a digest");
        let name = Path::new("blobs/sha256").join(hex);
        let [ours, theirs] =
            [&layout, &copy].map(|at| std::fs::read(at.join(&name)).expect("a blob"));
        assert_eq!(ours, theirs, "{part}");
    }
}

#[test]
fn one_layout_holds_several_versions() {
    let source = Source::with(&[("a", "a")]);
    let layout = source.ground.path("it.oci");
    let first = build_into(&source, &layout, "1");
    source.file("a", "second");
    let second = build_into(&source, &layout, "2");
    assert_ne!(first["digest"], second["digest"]);
    for (version, report) in [("1", first), ("2", second)] {
        let from = format!("oci:{}:{version}", layout.display());
        let Some(raw) = skopeo(&["inspect", "--raw", &from]) else {
            return;
        };
        let manifest: Value = serde_json::from_slice(&raw).expect("JSON");
        assert_eq!(manifest["layers"][0]["digest"], report["layer"]["digest"]);
    }
}

#[test]
fn a_layout_is_not_written_over_something_else() {
    let source = Source::with(&[("a", "a")]);
    let occupied = source.ground.write("file", "mine");
    let mut command = source.command(&source.directory(), &["--version", "1", "-o"]);
    let refused = output_of(command.arg(&occupied));
    assert_eq!(refused.code, 125, "{refused:#?}");
    assert_eq!(std::fs::read_to_string(&occupied).expect("read"), "mine");
}

#[test]
fn text_tells_what_to_do_next() {
    let source = Source::with(&[("a", "a")]);
    let ended = source.try_build(&[]);
    ended.assert_done();
    let text = ended.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["name       it", "version    1"]);
    assert!(lines[2].starts_with("digest     sha256:"), "{text}");
    assert!(
        lines[3].starts_with("snapshot   1 file, 1 byte in "),
        "{text}"
    );
    assert_eq!(lines[4], "reference  none yet: runner source push it:1 REF");
    assert_eq!(ended.stderr, "");
}
