//! The cache of bundles: a body sees the same with it and without it, no body changes what the next
//! one sees, and nobody else can add to it.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use support::{Done, Ground, is_root, needs_root, runner};

/// Text that gzip cannot compress: bundles up to 32 KiB are not kept.
fn noise(seed: u32, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        write!(text, "{state:08x}").expect("written");
    }
    text.truncate(bytes);
    text
}

/// A ground with its own cache, and a bundle that is large enough to be kept.
struct Kept {
    ground: Ground,
    cache: PathBuf,
    bundle: PathBuf,
}

impl Kept {
    fn new(script: &str) -> Self {
        let ground = Ground::new();
        let cache = cache_directory();
        let noise = noise(7, 120_000);
        let bundle = ground.bundle(&[
            ("manifest.yaml", "run: [bash, main.sh]\n"),
            ("main.sh", script),
            ("tool.sh", "#!/bin/sh\necho tool\n"),
            ("data/noise", &noise),
            ("data/deep/er/file", "deep\n"),
            ("empty/.keep", ""),
        ]);
        settle(&bundle);
        Self {
            ground,
            cache,
            bundle,
        }
    }

    fn exec(&self, flags: &[&str]) -> Done {
        let words = [&["exec"], flags, &[self.bundle.to_str().expect("text")]].concat();
        let directory = self.cache.to_str().expect("text");
        self.ground
            .command(&words)
            .env("RUNNER_OPT_CACHE_DIRECTORY", directory)
            .done()
    }

    fn verb(&self, words: &[&str]) -> (i32, Value) {
        let output = Command::new(runner())
            .arg("cache")
            .args(words)
            .arg("--json")
            .env("RUNNER_OPT_CACHE_DIRECTORY", &self.cache)
            .output()
            .expect("the runner starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let code = output.status.code().expect("an exit code");
        (code, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    fn trees(&self) -> Vec<PathBuf> {
        let trees = self.cache.join("1/trees");
        std::fs::read_dir(trees).map_or_else(
            |_none| Vec::new(),
            |found| found.map(|one| one.expect("an entry").path()).collect(),
        )
    }

    fn assert_clean(&self) {
        let (code, verdict) = self.verb(&["verify"]);
        assert_eq!((code, verdict["whole"].as_u64()), (0, Some(1)), "{verdict}");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.cache).expect("removed");
    }
}

/// In memory if possible, as the default is.
fn cache_directory() -> PathBuf {
    let shm = Path::new("/dev/shm");
    let above = if shm.is_dir() { shm } else { Path::new("/tmp") };
    let directory = tempfile::Builder::new().prefix("cache-").tempdir_in(above);
    let path = directory.expect("a directory").keep();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("set");
    path
}

/// Waits until the file's times are older than what the cache trusts: ctime cannot be set.
fn settle(path: &Path) {
    let status = std::fs::metadata(path).expect("looked at");
    let changed = u64::try_from(status.ctime()).expect("after 1970");
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.expect("after 1970").as_secs()
    };
    while now() <= changed + 2 {
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn found(done: &Done) -> (&str, &str) {
    let cache = &done.report["bundle"]["cache"];
    let word = |key: &str| cache[key].as_str().unwrap_or_default();
    (word("found"), word("view"))
}

/// The result of stat(2) for everything in the bundle, without times, device and inode, and the contents.
const LOOK: &str = r#"cd /bundle
find . -mindepth 1 -printf '%p %y %m %U %G %s %l\n' | sort
find . -type f -print0 | sort -z | xargs -0 sha256sum
stat -c '%n %F %a %u %g' /bundle
find . -type f -printf '%n ' ; echo
./tool.sh
"#;

/// Operations on a directory of the body's own; one line for each result.
const USE: &str = include_str!("bodies/cache/use.sh");

#[test]
fn a_body_sees_the_same_tree_from_cache_and_copy() {
    let kept = Kept::new("");
    let policy = kept
        .ground
        .write("copy.yaml", "cache: {bundles: {copy: true}}\n");
    let policy = policy.to_str().expect("text");
    for script in [LOOK, USE] {
        let run = serde_json::json!({ "shell": script }).to_string();
        let with = |flags: &[&str]| {
            let done = kept.exec(&[flags, &["--run", &run]].concat());
            done.assert_exited(0);
            let (found, view) = found(&done);
            (found.to_owned(), view.to_owned(), done.text())
        };
        let own = with(&["--no-cache"]);
        assert_eq!((&*own.0, &*own.1), ("off", "own"));
        assert!(own.2.contains("data/deep/er/file"), "{}", own.2);
        for flags in [&[][..], &[], &["--no-trust-mtime"], &["--policy", policy]] {
            let other = with(flags);
            assert_ne!(other.0, "off");
            assert_eq!(own.2, other.2, "{flags:?} {} {}", other.0, other.1);
        }
        kept.assert_clean();
    }
}

/// The kernel has no redirects in a user namespace: programs copy instead, as between file systems.
#[test]
fn renaming_a_directory_of_the_bundle_is_the_one_thing_that_only_a_tree_of_ones_own_allows() {
    let kept = Kept::new("");
    let script = "import os\ntry: os.rename('/bundle/data', '/bundle/moved'); print('renamed')\nexcept OSError as e: print(e.errno)";
    let run = serde_json::json!(["python3", "-c", script]).to_string();
    let told = |flags: &[&str]| {
        let done = kept.exec(&[flags, &["--run", &run]].concat());
        (found(&done).1.to_owned(), done.text())
    };
    assert_eq!(
        told(&["--no-cache"]),
        ("own".to_owned(), "renamed\n".to_owned())
    );
    let expected = match told(&[]) {
        (view, text) if view == "overlayfs" => (text, "18\n"),
        (_, text) => (text, "renamed\n"),
    };
    assert_eq!(expected.0, expected.1);
    let done = kept.exec(&["--keep", "--run", &run]);
    assert_eq!(done.text(), "renamed\n");
    let scratch = done.report["kept"].as_str().expect("a path");
    std::fs::remove_dir_all(scratch).expect("removed");
    kept.assert_clean();
}

#[test]
fn no_directory_that_holds_the_cache_is_lent_for_writing() {
    let kept = Kept::new("true");
    assert_eq!(found(&kept.exec(&[])).0, "miss");
    let link = kept.ground.path("way");
    std::os::unix::fs::symlink(&kept.cache, &link).expect("linked");
    let trees = kept.cache.join("1/trees");
    let lent = |path: &Path| format!("{}:/work", path.display());
    for place in [&kept.cache, &trees, &link] {
        let done = kept.exec(&["--mount", &lent(place)]);
        assert_eq!(done.code, 125, "{}: {done:#?}", place.display());
        assert_eq!(done.report["error"]["code"], "mount_holds_cache");
        let output = Command::new(runner())
            .args(["plan", "--mount", &lent(place)])
            .arg(&kept.bundle)
            .env("RUNNER_OPT_CACHE_DIRECTORY", &kept.cache)
            .output();
        let code = output.expect("the runner starts").status.code();
        assert_eq!(code, Some(125), "what exec refuses, plan does not promise");
        let done = kept.exec(&["--mount", &(lent(place) + ":ro")]);
        assert_eq!(done.code, 0, "reading changes nothing: {done:#?}");
    }
    kept.assert_clean();
}

#[test]
fn the_report_says_where_the_tree_came_from() {
    let kept = Kept::new("true");
    assert_eq!(found(&kept.exec(&[])).0, "miss");
    assert_eq!(found(&kept.exec(&[])).0, "identity");
    assert_eq!(found(&kept.exec(&["--no-trust-mtime"])).0, "digest");
    assert_eq!(found(&kept.exec(&["--no-cache"])), ("off", "own"));
    // The same bytes under another name, with new times: hashed, and found.
    let copy = kept.ground.path("copy.tar.gz");
    std::fs::copy(&kept.bundle, &copy).expect("copied");
    let words = ["exec", copy.to_str().expect("text")];
    let directory = kept.cache.to_str().expect("text");
    let done = kept.ground.command(&words);
    let done = done.env("RUNNER_OPT_CACHE_DIRECTORY", directory).done();
    assert_eq!(found(&done).0, "digest");
    assert_eq!(done.report["bundle"]["cache"]["reason"], "young");
    let (code, listing) = kept.verb(&["ls"]);
    assert_eq!(
        (code, listing["trees"].as_array().map(Vec::len)),
        (0, Some(1))
    );
    let digest = &done.report["bundle"]["content_digest"];
    assert_eq!(&listing["trees"][0]["content_digest"], digest);
}

/// Every way in which a body can change a file; failures do not matter, remaining changes do.
const HOSTILE: &str = include_str!("bodies/cache/hostile.py");

/// A tree as the host sees it: names, modes, owners, times, links, contents.
fn state(tree: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = vec![tree.to_owned()];
    while let Some(path) = pending.pop() {
        let status = std::fs::symlink_metadata(&path).expect("looked at");
        let contents = match status.file_type() {
            kind if kind.is_dir() => {
                for entry in std::fs::read_dir(&path).expect("listed") {
                    pending.push(entry.expect("an entry").path());
                }
                String::new()
            }
            kind if kind.is_file() => {
                let bytes = std::fs::read(&path).expect("read");
                spec::digest::Digest::of(&bytes).to_string()
            }
            _ => format!("{:?}", std::fs::read_link(&path)),
        };
        lines.push(format!(
            "{} {:o} {}:{} {} {} {}.{} {}.{} {contents}",
            path.display(),
            status.mode(),
            status.uid(),
            status.gid(),
            status.nlink(),
            status.size(),
            status.mtime(),
            status.mtime_nsec(),
            status.ctime(),
            status.ctime_nsec(),
        ));
    }
    lines.sort();
    lines
}

#[test]
fn a_body_cannot_change_the_cached_tree() {
    let kept = Kept::new(LOOK);
    let first = kept.exec(&[]);
    first.assert_exited(0);
    let before = state(&kept.trees()[0].join("tree"));
    let hostile = kept.ground.write("work/hostile.py", HOSTILE);
    let run = serde_json::json!({ "shell": format!("exec python3 {}", hostile.display()) });
    let mount = hostile.to_str().expect("text");
    let attacked = kept.exec(&["--ro", mount, "--run", &run.to_string()]);
    attacked.assert_exited(0);
    assert_eq!(attacked.text(), "done\n", "{}", attacked.stderr);
    assert_ne!(found(&attacked).0, "off");
    assert_eq!(before, state(&kept.trees()[0].join("tree")));
    let second = kept.exec(&[]);
    assert_eq!(found(&second).0, "identity");
    assert_eq!(first.text(), second.text());
    kept.assert_clean();
}

#[test]
fn a_run_that_is_killed_in_the_middle_leaves_the_tree_as_it_was() {
    let kept = Kept::new(LOOK);
    let first = kept.exec(&[]);
    let before = state(&kept.trees()[0].join("tree"));
    let run =
        r#"{"shell":"cd /bundle; rm -rf data; echo ready; while :; do echo x >> tool.sh; done"}"#;
    let mut child = Command::new(runner())
        .args(["exec", "-q", "--run", run])
        .arg(&kept.bundle)
        .env("RUNNER_OPT_CACHE_DIRECTORY", &kept.cache)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = [0; 5];
    let mut stdout = child.stdout.take().expect("a pipe");
    std::io::Read::read_exact(&mut stdout, &mut line).expect("the body runs");
    child.kill().expect("killed");
    child.wait().expect("reaped");
    assert_eq!(before, state(&kept.trees()[0].join("tree")));
    assert_eq!(first.text(), kept.exec(&[]).text());
    kept.assert_clean();
}

#[test]
fn a_process_killed_at_any_moment_leaves_no_usable_entry() {
    let kept = Kept::new(LOOK);
    let own = kept.exec(&["--no-cache"]).text();
    for delay_us in (0..24).map(|step| step * 900) {
        let mut child = Command::new(runner())
            .args(["exec", "-q"])
            .arg(&kept.bundle)
            .env("RUNNER_OPT_CACHE_DIRECTORY", &kept.cache)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        std::thread::sleep(Duration::from_micros(delay_us));
        child.kill().expect("killed");
        child.wait().expect("reaped");
        let (code, verdict) = kept.verb(&["verify"]);
        assert_eq!(code, 0, "after {delay_us} µs: {verdict}");
        if delay_us % 2_700 == 0 {
            kept.verb(&["gc", "--all"]);
        }
    }
    assert_eq!(own, kept.exec(&[]).text());
    assert_eq!(kept.verb(&["gc"]).0, 0);
    let left = std::fs::read_dir(kept.cache.join("1/building"))
        .expect("listed")
        .count();
    assert_eq!(left, 0, "garbage of the dead");
}

#[test]
fn processes_that_fill_the_cache_at_once_end_with_one_tree() {
    let kept = Kept::new(LOOK);
    let own = kept.exec(&["--no-cache"]).text();
    let children: Vec<_> = (0..6)
        .map(|_| {
            Command::new(runner())
                .args(["exec", "-q"])
                .arg(&kept.bundle)
                .env("RUNNER_OPT_CACHE_DIRECTORY", &kept.cache)
                .stdout(Stdio::piped())
                .spawn()
                .expect("started")
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), own);
    }
    assert_eq!(kept.trees().len(), 1);
    kept.assert_clean();
}

#[test]
fn a_tree_that_was_changed_from_outside_is_found_and_removed() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 7] = [
        ("bytes", |tree| {
            std::fs::write(tree.join("tool.sh"), "#!/bin/sh\necho EVIL\n").expect("written")
        }),
        ("mode", |tree| {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(tree.join("data/noise"), mode).expect("set");
        }),
        ("more", |tree| {
            std::fs::write(tree.join("data/more"), "x").expect("written")
        }),
        ("less", |tree| {
            std::fs::remove_file(tree.join("data/deep/er/file")).expect("removed")
        }),
        ("a link", |tree| {
            std::fs::remove_file(tree.join("empty/.keep")).expect("removed");
            symlink("/etc/passwd", tree.join("empty/.keep")).expect("linked");
        }),
        ("a second name", |tree| {
            std::fs::hard_link(
                tree.join("tool.sh"),
                tree.parent().expect("above").join("x"),
            )
            .expect("linked");
        }),
        ("no facts", |tree| {
            std::fs::remove_file(tree.parent().expect("above").join("facts")).expect("removed")
        }),
    ];
    let kept = Kept::new("true");
    for (what, change) in changes {
        assert_eq!(found(&kept.exec(&[])).0, "miss", "{what}");
        change(&kept.trees()[0].join("tree"));
        let (code, verdict) = kept.verb(&["verify"]);
        assert_eq!(code, 1, "{what}: {verdict}");
        assert_eq!(
            verdict["damaged"].as_array().map(Vec::len),
            Some(1),
            "{what}"
        );
        assert!(kept.trees().is_empty(), "{what}");
    }
}

#[test]
fn a_cache_writable_by_others_is_not_used() {
    let kept = Kept::new("echo ran");
    let place = kept.ground.path("place");
    let elsewhere = kept.ground.path("elsewhere");
    std::fs::create_dir(&elsewhere).expect("made");
    let with = |place: &Path| {
        let words = ["exec", kept.bundle.to_str().expect("text")];
        let done = kept.ground.command(&words);
        let directory = place.to_str().expect("text");
        done.env("RUNNER_OPT_CACHE_DIRECTORY", directory).done()
    };
    let mode = |path: &Path, bits| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("set");
    };
    let assert_unsafe = |what: &str, done: &Done| {
        done.assert_exited(0);
        let cache = &done.report["bundle"]["cache"];
        assert_eq!(
            (&cache["found"], &cache["reason"]),
            (&"off".into(), &"unsafe".into()),
            "{what}"
        );
    };
    symlink(&elsewhere, &place).expect("linked");
    assert_unsafe("a link", &with(&place));
    std::fs::remove_file(&place).expect("removed");
    std::fs::create_dir(&place).expect("made");
    mode(&place, 0o770);
    assert_unsafe("open to the group", &with(&place));
    mode(&place, 0o700);
    let open = kept.ground.path("open");
    std::fs::create_dir(&open).expect("made");
    mode(&open, 0o777);
    assert_unsafe(
        "in a directory that everybody writes",
        &with(&open.join("cache")),
    );
    if is_root() {
        let stranger = Some(rustix::fs::Uid::from_raw(40_151));
        rustix::fs::chown(&place, stranger, None).expect("given away");
        assert_unsafe("another user's", &with(&place));
    } else {
        needs_root("only root can give a directory away");
    }
    assert_eq!(std::fs::read_dir(&elsewhere).expect("listed").count(), 0);
}

#[test]
fn an_archive_with_its_old_size_and_mtime_is_another_archive() {
    let kept = Kept::new("echo first");
    assert_eq!(kept.exec(&[]).text(), "first\n");
    assert_eq!(found(&kept.exec(&[])).0, "identity");
    let status = std::fs::metadata(&kept.bundle).expect("looked at");
    let noise = noise(8, 120_000);
    let other = kept.ground.bundle(&[
        ("manifest.yaml", "run: [bash, main.sh]\n"),
        ("main.sh", "echo other"),
        ("data/noise", &noise),
    ]);
    // Rewritten in place with the same inode and size; zeros pad the end of the gzip file.
    let mut bytes = std::fs::read(other).expect("read");
    let size = usize::try_from(status.len()).expect("small");
    if bytes.len() <= size {
        bytes.resize(size, 0);
    }
    let file = std::fs::File::options()
        .write(true)
        .open(&kept.bundle)
        .expect("opened");
    file.set_len(0).expect("emptied");
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("written");
    file.set_modified(status.modified().expect("an mtime"))
        .expect("set back");
    let done = kept.exec(&[]);
    assert_ne!(found(&done).0, "identity");
    assert_ne!(done.text(), "first\n");
}

#[test]
fn oversized_trees_are_evicted_and_trees_in_use_stay() {
    let kept = Kept::new("echo ran");
    let policy = kept
        .ground
        .write("small.yaml", "cache: {bundles: {size: 64k}}\n");
    let done = kept.exec(&["--policy", policy.to_str().expect("text")]);
    assert_eq!(done.text(), "ran\n");
    assert_eq!(done.report["bundle"]["cache"]["reason"], "too_large");
    assert!(kept.trees().is_empty());
    let mut child = Command::new(runner())
        .args([
            "exec",
            "-q",
            "--run",
            r#"{"shell":"echo ready; read x; cat tool.sh"}"#,
            "-i",
        ])
        .arg(&kept.bundle)
        .env("RUNNER_OPT_CACHE_DIRECTORY", &kept.cache)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut line).expect("runs");
    assert_eq!(kept.verb(&["gc", "--all"]).1["trees"], 0, "it is in use");
    assert_eq!(kept.trees().len(), 1);
    std::io::Write::write_all(child.stdin.as_mut().expect("a pipe"), b"\n").expect("told");
    let output = child.wait_with_output().expect("ended");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "#!/bin/sh\necho tool\n"
    );
    assert_eq!(kept.verb(&["gc", "--all"]).1["trees"], 1);
    assert!(kept.trees().is_empty());
}

#[test]
fn limits_of_the_writable_space_hold_for_what_is_copied_up() {
    let kept = Kept::new("");
    let run = r#"{"shell":"cd /bundle; for i in 1 2 3 4 5 6 7 8 9; do cat data/noise data/noise >> data/noise2; done; stat -c %s data/noise2; echo x >> data/noise && echo written"}"#;
    for flags in [&["--no-cache"][..], &[], &[]] {
        let done = kept.exec(&[flags, &["--disk", "64k", "--run", run]].concat());
        assert!(
            !done.text().contains("written") || found(&done).1 == "own",
            "{}",
            done.text()
        );
    }
    kept.assert_clean();
}
