//! The same sources make the same artifact, whatever else differs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::artifacts::{Artifact, Source};
use support::bodies::copy_program;
use support::git::git;
use support::{is_root, needs_root};

const FILES: [(&str, &str); 6] = [
    ("bin/go", "#!/bin/sh\n"),
    ("a-b", "before the directory a"),
    ("a/x", "x"),
    ("a0", "after it"),
    ("empty", ""),
    ("\u{e9}/\u{1f980}.txt", "crab"),
];
/// The digest of the directory, as `golden` in version 1.
const MANIFEST: &str = r#"{"annotations":{"dev.stax.spec.version":"1.0.0","org.opencontainers.image.created":"1970-01-01T00:00:00Z","org.opencontainers.image.title":"golden","org.opencontainers.image.version":"1"},"artifactType":"application/vnd.stax.source.v1","config":{"digest":"sha256:dd1a8614e4059ad8ce78cda746da080e94ea8daf7f70c25bd1b65b90081e3f0e","mediaType":"application/vnd.stax.source.config.v1+json","size":121},"layers":[{"digest":"sha256:41fe60e30fe1ef48d7e1ed07da9b51d72322c8223fec20fb2f7fe92510f51760","mediaType":"application/vnd.stax.source.snapshot.v1.tar+gzip","size":297}],"mediaType":"application/vnd.oci.image.manifest.v1+json","schemaVersion":2}"#;
const CONFIG: &str = r#"{"kind":"source","name":"golden","snapshot":{"fileCount":6},"sourceType":"directory","specVersion":"1.0.0","version":"1"}"#;
/// The digest of the tar in the layer; GNU tar makes the same one (ustar, sorted, no owners, times 0).
const CONTENT_DIGEST: &str =
    "sha256:a556087862475f30ccf27a391beebfb1a4de0bd36668d6498dbca9717c396f23";

fn plant(folder: &Path, files: impl Iterator<Item = (&'static str, &'static str)>) {
    for (name, contents) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(&path, contents).expect("written");
    }
    let program = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join("bin/go"), program).expect("set");
}

#[test]
fn manifest_config_and_tar_are_these_bytes() {
    let source = Source::new();
    plant(&source.directory(), FILES.into_iter());
    let artifact = source.build(&["--name", "golden"]);
    assert_eq!(String::from_utf8_lossy(&artifact.manifest), MANIFEST);
    assert_eq!(String::from_utf8_lossy(&artifact.config), CONFIG);
    assert_eq!(artifact.report["layer"]["content_digest"], CONTENT_DIGEST);
}

#[test]
fn umask_clock_order_locale_and_place_make_no_difference() {
    let source = Source::new();
    let first = source.ground.path("one/tree");
    plant(&first, FILES.into_iter());
    let second = source.ground.path("somewhere else/deeper/tree");
    plant(&second, FILES.into_iter().rev());
    for (name, _) in FILES {
        let path = second.join(name);
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        let mode = if mode & 0o100 == 0 { 0o600 } else { 0o777 };
        let file = std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("opened");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_007);
        file.set_modified(time).expect("set");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
    }
    let built = |folder: &Path, umask: &str, variables: &[(&str, &str)]| {
        let made = source.command(folder, &["--version", "1"]);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
        shell.arg(made.get_program()).args(made.get_args());
        shell.env_clear();
        let set = made
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        shell.envs(set).envs(variables.iter().copied());
        source.artifact(shell)
    };
    let expected = built(&first, "022", &[]);
    for (folder, umask, variables) in [
        (&second, "022", &[][..]),
        (
            &second,
            "077",
            &[("TZ", "Pacific/Apia"), ("LC_ALL", "tr_TR.UTF-8")],
        ),
        (&first, "000", &[("USER", "somebody"), ("LANG", "C")]),
    ] {
        let artifact = built(folder, umask, variables);
        assert_eq!(
            artifact.digest(),
            expected.digest(),
            "{umask} {variables:?}"
        );
        assert_eq!(artifact.layer, expected.layer);
    }
}

#[test]
fn another_uid_makes_the_same_artifact() {
    if !is_root() {
        return needs_root("only root can become another user");
    }
    let source = Source::new();
    plant(&source.directory(), FILES.into_iter());
    let expected = source.build(&[]);
    // The program and the source, readable by another user.
    let open = tempfile::tempdir().expect("a directory");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(open.path(), mode).expect("set");
    std::os::unix::fs::chown(open.path(), Some(40_150), Some(40_150)).expect("given");
    let program = open.path().join("runner");
    copy_program(support::runner(), &program);
    plant(&open.path().join("tree"), FILES.into_iter().rev());
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "40150", "--regid", "40150", "--clear-groups"])
        .arg(&program)
        .args(["source", "build"])
        .arg(open.path().join("tree"))
        .args(["--name", "it", "--version", "1", "--json"])
        .current_dir(open.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", open.path().join("home"))
        .env("RUNNER_OPT_OCI_DIRECTORY", open.path().join("oci"));
    let ended = support::bundling::output_of(&mut command);
    ended.assert_done();
    assert_eq!(ended.json()["digest"], expected.digest());
}

#[test]
fn two_checkouts_of_a_commit_are_the_same_artifact() {
    let source = Source::checkout(&FILES);
    source.git(&["remote", "add", "origin", "https://git.example.org/a/b.git"]);
    let copy = source.ground.path("other place");
    let from = source.directory();
    let words = ["clone", "-q", from.to_str().expect("plain"), "."];
    std::fs::create_dir(&copy).expect("made");
    git(&copy, &words);
    git(
        &copy,
        &[
            "remote",
            "set-url",
            "origin",
            "https://me:pw@git.example.org/a/b.git",
        ],
    );
    // Files that git does not know.
    std::fs::create_dir_all(copy.join("left/behind")).expect("made");
    std::fs::write(copy.join(".git/info/exclude"), "x").expect("written");
    let built = |directory: &Path| -> Artifact {
        source.artifact(source.command(directory, &["--name", "it"]))
    };
    let (first, second) = (built(&from), built(&copy));
    assert_eq!(first.digest(), second.digest());
    assert_eq!(first.report["created"], "2023-11-14T22:13:20Z");
    assert_eq!(first.report["warnings"], second.report["warnings"]);
}

#[test]
fn a_stated_time_is_when_it_was_created() {
    let source = Source::checkout(&FILES);
    let with = |value: &str| {
        let mut command = source.command(&source.directory(), &["--name", "it"]);
        command.env("SOURCE_DATE_EPOCH", value);
        command
    };
    let artifact = source.artifact(with("86399"));
    assert_eq!(artifact.report["created"], "1970-01-01T23:59:59Z");
    for value in ["", "0"] {
        let created = source.artifact(with(value)).report["created"].clone();
        let expected = if value.is_empty() {
            "2023-11-14T22:13:20Z"
        } else {
            "1970-01-01T00:00:00Z"
        };
        assert_eq!(created, expected, "{value:?}");
    }
    for value in ["-1", "now", "1.5", "99999999999999999999"] {
        let ended = support::bundling::output_of(&mut with(value));
        ended.assert_refused("usage", &["SOURCE_DATE_EPOCH"]);
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let source = Source::with(&[("a", "x")]);
    let big = source.file("b", "");
    let file = std::fs::File::options()
        .append(true)
        .open(big)
        .expect("opened");
    file.set_len(64 << 20).expect("grown");
    let child = source
        .command(&source.directory(), &["--name", "it", "--version", "1"])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("started");
    // The file grows until the program ends, so a write happens between listing and the last read.
    let mut child = child;
    let mut grows = &file;
    while child.try_wait().expect("waited").is_none() {
        std::io::Write::write_all(&mut grows, b"more").expect("written");
    }
    let output = child.wait_with_output().expect("waited");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("`b` changed while it was read (source_changed)"),
        "{stderr}"
    );
    assert_eq!(source.stored(), 0);
}
