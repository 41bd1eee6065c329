//! `sandbox diff`, `snapshot` and `restore` with an image as the root.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::Stored;
use super::layout::{base, file, image, layer, place};
use support::runner;

/// Runs `runner sandbox WORDS…`; returns exit code, standard output and standard error.
fn say(stored: &Stored, words: &[&str]) -> (i32, String, String) {
    std::fs::create_dir_all(stored.ground.path("state")).expect("made");
    let done = Command::new(runner())
        .arg("sandbox")
        .args(words)
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", stored.ground.path("run"))
        .env("RUNNER_OPT_OCI_DIRECTORY", stored.store())
        .env("RUNNER_OPT_STATE_DIRECTORY", stored.ground.path("state"))
        .stdin(Stdio::null())
        .output()
        .expect("the runner starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = done.status.code().expect("an exit code");
    (code, text(done.stdout), text(done.stderr))
}

#[track_caller]
fn done(stored: &Stored, words: &[&str]) -> String {
    let (code, stdout, stderr) = say(stored, words);
    assert_eq!(code, 0, "{words:?}: {stdout}{stderr}");
    stdout
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The changes that commands made: not the mount points and the files of the user that every image gets.
fn changes(stored: &Stored, name: &str) -> Vec<String> {
    let listed = done(stored, &["diff", name]);
    let lines = listed.lines().map(str::to_owned);
    lines
        .filter(|line| line.contains("/srv") || line.contains("/usr"))
        .collect()
}

#[test]
fn changed_and_deleted_files_of_an_image_come_back_in_a_restored_sandbox() {
    let stored = Stored::new();
    let Some(base) = base() else { return };
    let upper = layer([
        ("srv/changed", file("old\n")),
        ("srv/gone", file("old\n")),
        ("srv/tree/one", file("1\n")),
        ("srv/tree/two", file("2\n")),
        ("srv/again/old", file("old\n")),
    ]);
    let image = place(&image(&stored.ground, "image", &[base, upper], json!({})));
    done(&stored, &["create", "--name", "one", "--image", &image]);
    assert_eq!(changes(&stored, "one"), [""; 0]);
    let script = "echo new > /srv/changed; rm /srv/gone; rm -r /srv/tree; rm -r /srv/again; \
        mkdir /srv/again /srv/own; echo new > /srv/again/new; echo mine > /srv/own/mine; echo t > /tmp/t; \
        rm /usr/lib/kept";
    let wrote = say(&stored, &["exec", "one", "--", "sh", "-c", script]);
    if wrote.2.contains("Read-only") {
        return support::skip(
            "tmpfs has no user attributes on this kernel, so the root is read-only",
        );
    }
    assert_eq!(wrote, (0, String::new(), String::new()));
    let changed = [
        "C /srv",
        "C /srv/again",
        "A /srv/again/new",
        "D /srv/again/old",
        "C /srv/changed",
        "D /srv/gone",
        "A /srv/own",
        "A /srv/own/mine",
        "D /srv/tree",
        "C /usr",
        "C /usr/lib",
        "D /usr/lib/kept",
    ];
    assert_eq!(changes(&stored, "one"), changed);
    let snapshot = stored.ground.path("snapshot.tar");
    done(&stored, &["snapshot", "one", text(&snapshot)]);
    done(&stored, &["rm", "one"]);
    done(
        &stored,
        &[
            "restore",
            text(&snapshot),
            "--name",
            "two",
            "--image",
            &image,
        ],
    );
    let script =
        "cat /srv/changed /srv/again/new /srv/own/mine /tmp/t; ls /srv /srv/again /usr/lib";
    assert_eq!(
        done(&stored, &["exec", "two", "--", "sh", "-c", script]),
        "new\nnew\nmine\nt\n/srv:\nagain\napp\nchanged\nown\n\n/srv/again:\nnew\n\n/usr/lib:\n"
    );
    assert_eq!(changes(&stored, "two"), changed);
    done(&stored, &["rm", "two"]);
    // Its files do not fit a sandbox without the image.
    let (code, _, stderr) = say(&stored, &["restore", text(&snapshot), "--name", "three"]);
    assert_eq!(code, 125);
    assert!(stderr.contains("restore with the --image"), "{stderr}");
    let listed = done(&stored, &["ls", "--json"]);
    assert!(!listed.contains("three"), "{listed}");
}
