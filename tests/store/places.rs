//! The directory of the store: its owner, and full or read-only file systems.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sources::oci::store::Store;

use crate::ground::{Ground, assert_untorn, source};
use support::{is_root, needs_root, runner, skip};

fn code(ground: &Ground) -> &'static str {
    match Store::open(&ground.place()) {
        Ok(_) => "opened",
        Err(error) => error.code(),
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

#[test]
fn a_directory_that_is_not_this_users_alone_is_refused() {
    let ground = Ground::new();
    let directory = ground.path("oci");
    assert_eq!(code(&ground), "opened");
    for open in [0o755, 0o770, 0o707, 0o500] {
        mode(&directory, open);
        assert_eq!(code(&ground), "store_unsafe", "{open:o}");
    }
    mode(&directory, 0o700);
    assert_eq!(code(&ground), "opened");
    std::fs::rename(&directory, ground.path("elsewhere")).expect("renamed");
    symlink(ground.path("elsewhere"), &directory).expect("linked");
    assert_eq!(code(&ground), "store_unsafe");
    std::fs::remove_file(&directory).expect("removed");
    std::fs::write(&directory, b"").expect("written");
    assert_eq!(code(&ground), "store_unsafe");
    std::fs::remove_file(&directory).expect("removed");
    let above = ground.path("");
    mode(&above, 0o777);
    assert_eq!(code(&ground), "store_unsafe");
    mode(&above, 0o1777);
    assert_eq!(code(&ground), "opened");
}

#[test]
fn a_part_of_the_store_that_is_a_link_or_open_to_others_is_refused() {
    let ground = Ground::new();
    let store = Store::open(&ground.place()).expect("opened");
    let part = store.path().join("snapshots");
    let code = || match store.snapshots() {
        Ok(_) => "opened",
        Err(error) => error.code(),
    };
    assert_eq!(code(), "opened");
    mode(&part, 0o755);
    assert_eq!(code(), "store_unsafe");
    mode(&part, 0o700);
    std::fs::rename(&part, ground.path("elsewhere")).expect("renamed");
    symlink(ground.path("elsewhere"), &part).expect("linked");
    assert_eq!(code(), "store_unsafe");
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if !is_root() {
        return needs_root("only root can give a directory away");
    }
    let ground = Ground::new();
    assert_eq!(code(&ground), "opened");
    std::os::unix::fs::chown(ground.path("oci"), Some(40_150), None).expect("given away");
    assert_eq!(code(&ground), "store_unsafe");
}

/// Runs `script` in its own mount namespace with the runner as `$1`; returns its output.
fn in_own_mounts(script: &str, words: &[&Path]) -> Option<(i32, String, String)> {
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(runner()).args(words);
    let output = command.output().expect("unshare runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (code, stderr) = (output.status.code(), text(&output.stderr));
    if stderr.contains("unshare failed") {
        skip(&format!("no mount namespace for a test: {stderr}"));
        return None;
    }
    assert_ne!(code, Some(99), "{stderr}");
    Some((code.expect("an exit code"), text(&output.stdout), stderr))
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_partial_file() {
    let ground = Ground::new();
    // The first one is too large as a download, the second one only when unpacked.
    let text = vec![b'a'; 9 << 20];
    let flat = crate::ground::snapshot(&[("flat", &text)]);
    source(1, 8 << 20).write(&ground.path("noise"), None);
    crate::ground::source_of(&flat, 1).write(&ground.path("flat"), None);
    source(2, 10_000).write(&ground.path("small"), None);
    let (disk, copy) = (ground.path("disk"), ground.path("copy"));
    std::fs::create_dir(&disk).expect("made");
    let script =
        include_str!("../bodies/store/a_full_disk_is_reported_and_leaves_no_partial_file.sh");
    let words: [&Path; 3] = [&disk, &copy, &ground.path("")];
    let Some((code, stdout, stderr)) = in_own_mounts(script, &words) else {
        return;
    };
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(stdout.matches("(store_full)").count(), 2, "{stdout}");
    assert!(stdout.contains("No space left on device"), "{stdout}");
    assert!(stdout.contains("runner source gc --all"), "{stdout}");
    // Neither the download nor the tree leaves anything if there is no room.
    let is_blob =
        |line: &str| line.len() == 64 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(!stdout.lines().any(is_blob), "{stdout}");
    assert!(3 <= assert_untorn(&copy), "{stdout}");
}

#[test]
fn a_read_only_store_serves_its_contents() {
    let ground = Ground::new();
    source(1, 100_000).write(&ground.path("kept"), None);
    source(2, 100_000).write(&ground.path("other"), None);
    let store = ground.path("store");
    std::fs::create_dir(&store).expect("made");
    let script = include_str!("../bodies/store/a_read_only_store_serves_its_contents.sh");
    let words: [&Path; 2] = [&store, &ground.path("")];
    let Some((code, stdout, stderr)) = in_own_mounts(script, &words) else {
        return;
    };
    assert_eq!(code, 125, "{stdout}{stderr}");
    let pulled: Value = serde_json::from_str(&stdout).expect("a document");
    assert_eq!(pulled["found"], "store", "{stdout}");
    assert!(stderr.contains("(store_read_only)"), "{stderr}");
}
