//! The same resolution makes the same bytes, whatever else differs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use support::bodies::copy_program;
use support::bundling::output_of;
use support::{Ground, is_root, needs_root, runner};

/// The tree of the golden digests: every kind of entry, and every encoding of its name.
const FILES: [(&str, &str); 7] = [
    (
        "manifest.yaml",
        "name: golden\nrun: [./bin/go]\nrunner: {limits: {memory_mb: 64}}\n",
    ),
    ("bin/go", "#!/bin/sh\necho golden\n"),
    ("a-b", "before the directory a"),
    ("a/x", "x"),
    ("a0", "after it"),
    ("empty", ""),
    ("\u{e9}/\u{1f980}.txt", "crab"),
];
const CONTENT_DIGEST: &str =
    "sha256:377904eef8f264f8dbd57eefaa92d2d642ca5355ff462e4c6caea8c39eaf1708";
const ARCHIVE_DIGEST: &str =
    "sha256:a720f9e25288c55721d58d8174eb48886f4b64a7e75edf03e20e4d70cb3311e4";

/// Creates the tree, with the files in this order.
fn plant(folder: &Path, order: impl Iterator<Item = usize>) {
    for index in order {
        let (name, contents) = FILES[index];
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(&path, contents).expect("written");
    }
    let long = folder.join("n".repeat(101)).join("o".repeat(160));
    std::fs::create_dir_all(long.parent().expect("a parent")).expect("made");
    std::fs::write(long, "pax").expect("written");
    let program = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.join("bin/go"), program).expect("set");
    std::os::unix::fs::symlink("a/x", folder.join("link")).expect("linked");
}

fn bundle(folder: &Path, target: &Path) -> Command {
    let mut command = Command::new(runner());
    command.arg("bundle").arg(folder).arg("-o").arg(target);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent");
    command
}

#[test]
fn clock_umask_locale_order_and_place_make_no_difference() {
    let ground = Ground::new();
    let first = ground.path("one/tree");
    plant(&first, 0..FILES.len());
    let target = ground.path("first.tar.gz");
    output_of(&mut bundle(&first, &target)).assert_done();
    let expected = std::fs::read(&target).expect("read");
    // Another checkout, in another order, with other times and equivalent modes.
    let second = ground.path("somewhere else/deeper/tree");
    plant(&second, (0..FILES.len()).rev());
    for (name, _) in FILES {
        let path = second.join(name);
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        let mode = if mode & 0o100 == 0 { 0o600 } else { 0o777 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        let file = std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("opened");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_007);
        file.set_modified(time).expect("set");
    }
    for (number, (folder, variables, umask)) in [
        (&first, &[][..], "022"),
        (&second, &[], "022"),
        (
            &second,
            &[
                ("TZ", "Pacific/Apia"),
                ("LANG", "tr_TR.UTF-8"),
                ("LC_ALL", "C"),
            ],
            "022",
        ),
        (
            &second,
            &[
                ("USER", "somebody"),
                ("HOME", "/tmp"),
                ("SOURCE_DATE_EPOCH", "1"),
            ],
            "077",
        ),
        (&first, &[], "777"),
    ]
    .into_iter()
    .enumerate()
    {
        let target = ground.path(&format!("again-{number}.tar.gz"));
        let made = bundle(folder, &target);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
        shell.arg(made.get_program()).args(made.get_args());
        shell
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/nonexistent");
        shell.envs(variables.iter().copied());
        output_of(&mut shell).assert_done();
        let mode = std::fs::metadata(&target).expect("there").permissions();
        let masked = 0o666 & !u32::from_str_radix(umask, 8).expect("octal");
        assert_eq!(mode.mode() & 0o777, masked, "umask {umask}");
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).expect("set");
        assert!(
            std::fs::read(&target).expect("read") == expected,
            "case {number}"
        );
    }
}

#[test]
fn another_user_makes_the_same_bundle() {
    if !is_root() {
        return needs_root("only root can become somebody else");
    }
    let ground = Ground::new();
    let open = || std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(ground.path(""), open()).expect("set");
    let tree = ground.path("tree");
    plant(&tree, 0..FILES.len());
    // Another user must be able to execute the program too.
    let program = ground.path("runner");
    copy_program(runner(), &program);
    std::fs::set_permissions(tree.join("bin/go"), open()).expect("set");
    let mut archives = Vec::new();
    for uid in ["0", "40124"] {
        let target = ground.path(&format!("{uid}.tar.gz"));
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups"]);
        command
            .arg(&program)
            .arg("bundle")
            .arg(&tree)
            .arg("-o")
            .arg(&target);
        command.env_clear().env("PATH", "/usr/bin:/bin");
        output_of(&mut command).assert_done();
        archives.push(std::fs::read(target).expect("read"));
    }
    assert!(archives[0] == archives[1]);
}

#[test]
fn the_golden_digests_hold() {
    let ground = Ground::new();
    let tree = ground.path("tree");
    plant(&tree, 0..FILES.len());
    let target = ground.path("golden.tar.gz");
    let ended = output_of(bundle(&tree, &target).arg("--print-digest"));
    ended.assert_done();
    assert_eq!(ended.text().trim_end(), CONTENT_DIGEST);
    let archive = std::fs::read(&target).expect("read");
    // Depends on the compression library: this one may change with a dependency.
    let digest = spec::digest::Digest::of(&archive).to_string();
    assert_eq!(digest, ARCHIVE_DIGEST);
    // The identity is the digest of the uncompressed tar, which `exec` reports.
    let tar = Command::new("gzip")
        .arg("-dc")
        .arg(&target)
        .output()
        .expect("gzip runs");
    let digest = spec::digest::Digest::of(&tar.stdout).to_string();
    assert_eq!(digest, CONTENT_DIGEST);
    let done = ground.exec(&[], &target);
    done.assert_exited(0);
    assert_eq!(done.report["bundle"]["content_digest"], CONTENT_DIGEST);
}
