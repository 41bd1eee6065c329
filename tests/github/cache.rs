//! The cache of fetched files: concurrent processes, kills, damage, and a maximum size.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use sources::github::{Client, GitHub as _};

use crate::service::{Repository, Service, files, pairs, path};
use support::skip;

/// Settings for a child process of [`a_child_of_another_case_fetches`]: base URL, cache, commit.
const CHILD: &str = "RUNNER_TEST_GITHUB_CHILD";
/// A limit for hangs. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(60);
/// The name of the archive in an entry.
const ARCHIVE: &str = "tree/archive.tar.gz";

/// A service with a commit of a few files in `org/repo`.
fn with_a_commit() -> Option<(Service, Repository, String)> {
    let service = Service::start()?;
    let repository = service.repository("org/repo");
    repository.write("a", "1");
    repository.write("d/b", "2");
    symlink("d/b", repository.path.join("link")).expect("linked");
    let sha = repository.commit();
    Some((service, repository, sha))
}

fn expected() -> Vec<(String, String)> {
    pairs(&[("a", "1"), ("d/b", "2"), ("link", "-> d/b")])
}

/// Fetches everything; returns whether it came from the cache.
fn fetch(service: &Service, sha: &str) -> bool {
    let tree = service
        .client()
        .fetch("org/repo", sha, None)
        .expect("there");
    assert_eq!(files(&tree), expected());
    tree.from_cache
}

/// The names in a part of the cache.
fn names(service: &Service, part: &str) -> Vec<PathBuf> {
    let directory = service.cache().join("github/1").join(part);
    let mut names: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .collect();
    names.sort();
    names
}

/// The entries with files, and those with an archive.
fn entries(service: &Service) -> (Vec<PathBuf>, Vec<PathBuf>) {
    names(service, "trees")
        .into_iter()
        .partition(|entry| !entry.join(ARCHIVE).exists())
}

/// Does nothing by itself: other cases start this program again with only this case.
#[test]
fn a_child_of_another_case_fetches() {
    let Some(settings) = std::env::var_os(CHILD) else {
        return;
    };
    let settings = settings.into_string().expect("text");
    let words: Vec<&str> = settings.split('|').collect();
    let [base_url, cache, sha] = words.as_slice() else {
        panic!("{settings}");
    };
    let client = Client::new(sources::github::ClientSettings {
        base_url: (*base_url).to_owned(),
        token: None,
        require_pin: false,
        limits: archive::UnpackLimits::default(),
        cache_directory: PathBuf::from(cache),
        cache_size_bytes: 1 << 30,
        timeouts: sources::Timeouts::default(),
    })
    .expect("a client");
    let tree = client.fetch("org/repo", sha, None).expect("there");
    assert_eq!(files(&tree), expected());
}

fn child(service: &Service, sha: &str) -> Child {
    let base_url = service.base_url();
    let settings = format!("{base_url}|{}|{sha}", service.cache().display());
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "cache::a_child_of_another_case_fetches"])
        .env(CHILD, settings)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program starts")
}

#[test]
fn eight_processes_at_once_fetch_once_and_have_the_same_files() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    service.always("/archive/", json!({"stall_body_s": 0.2}));
    let children: Vec<Child> = (0..8).map(|_| child(&service, &sha)).collect();
    for mut child in children {
        assert!(child.wait().expect("waited for").success());
    }
    assert_eq!(
        (service.count("/tarball/"), service.count("/archive/")),
        (1, 1)
    );
    assert_eq!(names(&service, "building").len(), 0);
    assert!(fetch(&service, &sha));
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < HANG_AFTER, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_fetch_leaves_no_entry_that_counts_as_complete() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    service.times(1, "/archive/", json!({"stall_body_s": 3_600}));
    let mut child = child(&service, &sha);
    wait_until("something is received", || {
        service.cache().join("github/1/building").exists()
            && names(&service, "building").iter().any(|building| {
                let archive = building.join(ARCHIVE);
                archive.metadata().is_ok_and(|status| 0 < status.len())
            })
    });
    child.kill().expect("it is ours");
    child.wait().expect("waited for");
    assert_eq!(names(&service, "trees").len(), 0);
    assert_eq!(names(&service, "building").len(), 1);
    assert!(!fetch(&service, &sha), "it was fetched anew");
    assert_eq!(
        names(&service, "building").len(),
        0,
        "what was left is gone"
    );
    assert!(fetch(&service, &sha));
}

#[test]
fn a_waiting_process_goes_on_when_the_one_that_fetches_is_killed() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    service.times(1, "/archive/", json!({"stall_body_s": 3_600}));
    let mut first = child(&service, &sha);
    wait_until("the first one has asked", || {
        service.count("/archive/") == 1
    });
    let mut second = child(&service, &sha);
    first.kill().expect("it is ours");
    first.wait().expect("waited for");
    assert!(second.wait().expect("waited for").success());
}

#[test]
fn a_damaged_file_is_never_used() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 11] = [
        ("a byte changed", |tree| {
            std::fs::write(tree.join("tree/a"), "x").expect("written");
        }),
        ("a file cut", |tree| {
            std::fs::write(tree.join("tree/a"), "").expect("written");
        }),
        ("a file removed", |tree| {
            std::fs::remove_file(tree.join("tree/d/b")).expect("removed");
        }),
        ("a file added", |tree| {
            std::fs::write(tree.join("tree/d/c"), "").expect("written");
        }),
        ("a mode changed", |tree| {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(tree.join("tree/a"), mode).expect("changed");
        }),
        ("a link that leads elsewhere", |tree| {
            std::fs::remove_file(tree.join("tree/link")).expect("removed");
            symlink("/etc/passwd", tree.join("tree/link")).expect("linked");
        }),
        ("a file that became a link", |tree| {
            std::fs::remove_file(tree.join("tree/a")).expect("removed");
            symlink("/etc/passwd", tree.join("tree/a")).expect("linked");
        }),
        ("the whole tree a link", |tree| {
            std::fs::remove_dir_all(tree.join("tree")).expect("removed");
            symlink("/etc", tree.join("tree")).expect("linked");
        }),
        ("the facts cut", |tree| {
            std::fs::write(tree.join("facts"), "{").expect("written");
        }),
        ("the facts removed", |tree| {
            std::fs::remove_file(tree.join("facts")).expect("removed");
        }),
        ("the facts of another entry", |tree| {
            let facts = std::fs::read_to_string(tree.join("facts")).expect("readable");
            let key = tree
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            let other = facts.replace(&key, &"0".repeat(64));
            assert_ne!(facts, other);
            std::fs::write(tree.join("facts"), other).expect("written");
        }),
    ];
    assert!(!fetch(&service, &sha));
    for (name, damage) in damages {
        let (trees, archives) = entries(&service);
        assert_eq!((trees.len(), archives.len()), (1, 1));
        service.forget();
        damage(&trees[0]);
        // Created again from the archive, which is unchanged.
        assert!(fetch(&service, &sha), "{name}");
        assert_eq!(service.paths().len(), 0, "{name}");
        let (trees, archives) = entries(&service);
        damage(&trees[0]);
        let archive = archives[0].join(ARCHIVE);
        let mut bytes = std::fs::read(&archive).expect("readable");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&archive, bytes).expect("written");
        assert!(!fetch(&service, &sha), "{name}: fetched anew");
        assert_eq!(service.count("/tarball/"), 1, "{name}");
        assert!(fetch(&service, &sha), "{name}: whole again");
        assert_eq!(names(&service, "building").len(), 0, "{name}");
    }
}

/// Sets the last use of an entry to `hours` ago.
fn used(entry: &Path, hours: u64) {
    let then = SystemTime::now() - Duration::from_secs(hours * 3_600);
    let facts = std::fs::File::options()
        .write(true)
        .open(entry.join("facts"))
        .expect("opened");
    facts.set_modified(then).expect("set");
}

/// Waits until no process holds the entry. A process that another case is just starting has a copy
/// of each descriptor, and so of each lock, until its exec.
fn until_let_go(entry: &Path) {
    let directory = std::fs::File::open(entry).expect("opened");
    let started = Instant::now();
    while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        assert!(started.elapsed() < HANG_AFTER, "{entry:?} is in use");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Also for the copies of this descriptor.
    flock(&directory, FlockOperation::Unlock).expect("unlocked");
}

#[test]
fn least_recently_used_entries_are_evicted_first_and_entries_in_use_never() {
    let Some(service) = Service::start() else {
        return;
    };
    let repository = service.repository("org/repo");
    // 8 files of one byte take 8 pages and 9 inodes, the archive two pages: about 47 KB each.
    let shas: Vec<String> = (0..4)
        .map(|round| {
            for file in 0..8 {
                repository.write(&format!("{file}"), format!("{round}"));
            }
            repository.commit()
        })
        .collect();
    let fetch = |sha: &str, size: u64| {
        let mut settings = service.settings();
        settings.cache_size_bytes = size;
        let client = Client::new(settings).expect("a client");
        client.fetch("org/repo", sha, None).expect("there")
    };
    let large = 1 << 30;
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut made = Vec::new();
    for sha in &shas[..3] {
        drop(fetch(sha, large));
        let now = names(&service, "trees");
        made.push(
            now.iter()
                .filter(|entry| !seen.contains(entry))
                .cloned()
                .collect::<Vec<_>>(),
        );
        seen = now;
    }
    assert!(made.iter().all(|both| both.len() == 2), "{made:?}");
    for (hours, both) in [(3, &made[0]), (1, &made[1]), (2, &made[2])] {
        for entry in both {
            used(entry, hours);
        }
    }
    // The first one is by far the oldest, but in use.
    let held = fetch(&shas[0], large);
    for entry in &made[0] {
        used(entry, 9);
    }
    let tree_of = |both: &[PathBuf]| {
        both.iter()
            .find(|entry| !entry.join(ARCHIVE).exists())
            .cloned()
            .expect("a tree")
    };
    let (kept_tree, gone_tree) = (tree_of(&made[0]), tree_of(&made[2]));
    for entry in made[1].iter().chain(&made[2]) {
        until_let_go(entry);
    }
    drop(fetch(&shas[3], 150_000));
    let left = names(&service, "trees");
    assert!(left.contains(&kept_tree), "it is in use");
    assert_eq!(files(&held).len(), 8);
    let left_trees = left.iter().filter(|entry| !entry.join(ARCHIVE).exists());
    assert_eq!(left_trees.count(), 3);
    assert!(!left.contains(&gone_tree), "used two hours ago: it goes");
    for entry in &made[1] {
        assert!(
            left.contains(entry),
            "used an hour ago: there is room for it"
        );
    }
    drop(held);
    // With a size of 0, every unused entry is removed, including the one just fetched.
    for entry in names(&service, "trees") {
        until_let_go(&entry);
    }
    let mut last = fetch(&shas[2], 0);
    let started = Instant::now();
    for sha in shas.iter().cycle() {
        if names(&service, "trees").len() == 1 || HANG_AFTER < started.elapsed() {
            break;
        }
        // The archive was still in use, see `until_let_go`.
        drop(last);
        last = fetch(sha, 0);
    }
    assert_eq!(names(&service, "trees").len(), 1);
    assert_eq!(files(&last).len(), 8);
    assert_eq!(names(&service, "building").len(), 0);
}

#[test]
fn what_earlier_versions_kept_is_removed_by_the_next_fetch() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    let old = service.cache().join("github");
    std::fs::create_dir_all(old.join("entries/0123/tree")).expect("made");
    std::fs::write(old.join("lock"), "").expect("written");
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&old, private).expect("changed");
    assert!(!fetch(&service, &sha));
    let left: Vec<_> = std::fs::read_dir(&old)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(left, ["1"]);
}

#[test]
fn using_an_entry_is_remembered() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    fetch(&service, &sha);
    let (trees, _) = entries(&service);
    used(&trees[0], 24);
    fetch(&service, &sha);
    let facts = trees[0].join("facts").metadata().expect("there");
    let age = facts
        .modified()
        .expect("a time")
        .elapsed()
        .unwrap_or_default();
    assert!(age < Duration::from_secs(3_600), "{age:?}");
}

#[test]
fn a_cache_that_others_may_write_to_or_that_is_anothers_is_refused() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    let refused = |expected: &str| {
        let error = service
            .client()
            .fetch("org/repo", &sha, None)
            .expect_err("refused");
        assert_eq!(error.code(), "github_cache", "{error}");
        let text = spec::report::with_causes(&error);
        assert!(text.contains(expected), "{text}");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("cache.directory"))
        );
    };
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
    };
    std::fs::create_dir(service.cache()).expect("made");
    for bits in [0o777, 0o702] {
        mode(&service.cache(), bits);
        refused("with mode 0");
    }
    mode(&service.cache(), 0o755);
    assert!(!fetch(&service, &sha));
    let inner = service.cache().join("github");
    let bits = inner.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(bits, 0o700, "what is private stays so");
    for bits in [0o777, 0o1777, 0o770, 0o702, 0o755] {
        mode(&inner, bits);
        refused("expected a directory of this user with mode 0700");
    }
    mode(&inner, 0o700);
    std::fs::remove_dir_all(&inner).expect("removed");
    std::fs::write(&inner, "").expect("written");
    refused("a link or a file");
    std::fs::remove_file(&inner).expect("removed");
    if support::is_root() {
        std::os::unix::fs::chown(service.cache(), Some(40_199), None).expect("given away");
        refused("uid 40199");
    } else {
        support::needs_root("only root gives a directory away");
    }
}

/// The owner of a directory above the cache can replace the cache.
#[test]
fn a_cache_below_a_directory_in_which_others_can_rename_it_is_refused() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    let fetched = || {
        let mut settings = service.settings();
        settings.cache_directory = service.cache().join("above/cache");
        let client = Client::new(settings).expect("a client");
        client.fetch("org/repo", &sha, None).map(|_tree| ())
    };
    fetched().expect("made by ourselves");
    let above = service.cache().join("above");
    let mode = |mode| {
        std::fs::set_permissions(&above, std::fs::Permissions::from_mode(mode)).expect("changed");
    };
    mode(0o777);
    let error = fetched().expect_err("refused");
    assert_eq!(error.code(), "github_cache", "{error}");
    let text = spec::report::with_causes(&error);
    assert!(text.contains("mode 0777"), "{text}");
    // Like /tmp: only owners rename files.
    mode(0o1777);
    fetched().expect("sticky");
    mode(0o755);
    if support::is_root() {
        std::os::unix::fs::chown(&above, Some(40_199), None).expect("given away");
        let error = fetched().expect_err("refused");
        let text = spec::report::with_causes(&error);
        assert!(text.contains("uid 40199"), "{text}");
    } else {
        support::needs_root("only root gives a directory away");
    }
}

#[test]
fn a_cache_is_created_private_with_its_parent_directories() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    let mut settings = service.settings();
    settings.cache_directory = service.cache().join("a/b");
    let client = Client::new(settings).expect("a client");
    client.fetch("org/repo", &sha, None).expect("there");
    for made in ["", "a", "a/b", "a/b/github", "a/b/github/1/trees"] {
        let status = service.cache().join(made).metadata().expect("made");
        assert_eq!(status.permissions().mode() & 0o777, 0o700, "{made}");
    }
}

#[test]
fn one_folder_of_a_repository_is_kept_apart_from_another_and_from_other_services() {
    let Some((service, _, sha)) = with_a_commit() else {
        return;
    };
    let Some(other) = Service::start() else {
        skip("a second service");
        return;
    };
    fetch(&service, &sha);
    let mut settings = other.settings();
    settings.cache_directory = service.cache();
    let client = Client::new(settings).expect("a client");
    let error = client.fetch("org/repo", &sha, None).expect_err("not there");
    assert_eq!(error.code(), "github_not_found");
    let client = service.client();
    let folder = client
        .fetch("org/repo", &sha, Some(&path("d")))
        .expect("there");
    assert_eq!(files(&folder), pairs(&[("b", "2")]));
    for (repository, folder) in [("org/repo2", None), ("org/repo", Some(path("d/b")))] {
        let error = client.fetch(repository, &sha, folder.as_ref());
        assert_eq!(error.expect_err("not there").code(), "github_not_found");
    }
}
