//! Paths that change during setup: a process of the host repeatedly swaps a directory for a link.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, chmod, mknodat, renameat_with};

use support::{Done, Ground, tier_includes};

/// Exchanges two names until it is dropped.
struct Swapper {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !end.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("swapped");
                swaps += 1;
                // Long enough for a second look to see the other one.
                std::thread::sleep(std::time::Duration::from_micros(150));
            }
            swaps
        });
        let thread = Some(thread);
        Self { ended, thread }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("one");
        assert_ne!(thread.join().expect("ended"), 0, "nothing was swapped");
    }
}

/// More than the rounds of any tier: with so many, the results are not chance.
const TRIED_MAX: u32 = 500;

fn rounds() -> u32 {
    if tier_includes("long") { 150 } else { 12 }
}

/// A run that was refused, or whose setup failed, has run nothing.
#[track_caller]
fn assert_ran_or_nothing(done: &Done) -> bool {
    if done.outcome() == "exited" {
        return true;
    }
    assert!(matches!(done.outcome(), "refused" | "failed"), "{done:#?}");
    assert_eq!((done.code, done.text().as_str()), (125, ""), "{done:#?}");
    false
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// B-50 (CVE-2021-30465): a mount point inside another mounted directory, which another process can
/// write. The mount is at its place, or nothing runs: it is never at the target of a link.
#[test]
fn a_mount_point_swapped_for_a_link_is_safe_or_ends_the_run() {
    let ground = Ground::new();
    let (lent, given) = (ground.path("lent"), ground.path("given"));
    std::fs::create_dir_all(lent.join("place")).expect("made");
    ground.write("given/mark", "");
    let place = lent.join("place");
    let mount = format!("{}:{}:ro", text(&given), text(&place));
    for target in [
        "/etc",
        "/",
        "../../../../../../../proc",
        text(&ground.path("canary")),
    ] {
        let swapped = lent.join("swapped");
        symlink(target, &swapped).expect("linked");
        let swapper = Swapper::start(place.clone(), swapped.clone());
        for kind in ["--rw", "--ro"] {
            let (mut tried, mut ran) = (0, 0);
            // Which of the two is seen is chance.
            while tried < rounds() / 4 || ran == 0 {
                assert!(tried < TRIED_MAX, "nothing ran: {target}, {kind}");
                tried += 1;
                let flags = [kind, text(&lent), "--mount", &mount];
                let body = "cat /proc/self/mountinfo";
                let done = ground.run(&flags, &["/bin/sh", "-c", body]);
                if !assert_ran_or_nothing(&done) {
                    continue;
                }
                ran += 1;
                let shown = done.text();
                let places: Vec<&str> = shown
                    .lines()
                    .filter(|line| {
                        line.split(' ')
                            .nth(3)
                            .is_some_and(|root| root.ends_with("/given"))
                    })
                    .filter_map(|line| line.split(' ').nth(4))
                    .collect();
                // The directory continues to move, with the mount on it.
                let at_home = [text(&place), text(&swapped)];
                assert_eq!(places.len(), 1, "{shown}");
                assert!(at_home.contains(&places[0]), "{target}: {shown}");
            }
        }
        drop(swapper);
        for name in [&place, &swapped] {
            if name.is_symlink() {
                std::fs::remove_file(name).expect("removed");
            }
        }
        if !place.exists() {
            std::fs::rename(&swapped, &place).expect("renamed");
        }
    }
}

/// B-49, B-50: Landlock rules, too, apply to what was mounted: if the link at that path were
/// followed, its rule would allow all writes. A FIFO shows this: it can be written if its mode and
/// the ruleset allow it, also on a read-only mount.
#[test]
fn a_mount_whose_place_becomes_a_link_later_widens_no_rule() {
    let ground = Ground::new();
    let [lent, given, pipes] = ["lent", "given", "pipes"].map(|name| ground.path(name));
    std::fs::create_dir_all(lent.join("place")).expect("made");
    ground.write("given/mark", "");
    std::fs::create_dir(&pipes).expect("made");
    for pipe in [&pipes.join("pipe"), &lent.join("pipe")] {
        let all = Mode::from_raw_mode(0o666);
        mknodat(CWD, pipe, FileType::Fifo, all, 0).expect("made");
        chmod(pipe, all).expect("set");
    }
    // At other paths: below the body's own /tmp the ruleset allows all writes.
    let mut flags = Vec::new();
    for (source, target) in [
        (&lent, "/lent"),
        (&given, "/lent/place"),
        (&pipes, "/pipes:ro"),
    ] {
        flags.extend(["--mount".to_owned(), format!("{}:{target}", text(source))]);
    }
    // These are mounted after it, which gives the link time.
    for number in 0..40 {
        flags.extend(["--tmpfs".to_owned(), format!("/own/{number}")]);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let body = "for pipe; do if (exec 3<>$pipe) 2>/dev/null; then echo $pipe; fi; done";
    let words = ["/bin/sh", "-c", body, "sh", "/lent/pipe", "/pipes/pipe"];
    symlink("/", lent.join("swapped")).expect("linked");
    let _swapper = Swapper::start(lent.join("place"), lent.join("swapped"));
    let (mut tried, mut ran) = (0, 0);
    // Which of the two is seen is chance, here and below.
    while tried < rounds() * 2 || ran == 0 {
        assert!(tried < TRIED_MAX, "nothing ran");
        tried += 1;
        let done = ground.run(&flags, &words);
        if assert_ran_or_nothing(&done) {
            ran += 1;
            assert_eq!(done.text(), "/lent/pipe\n", "{done:#?}");
        }
    }
}

/// B-50 (CVE-2018-15664): the mounted source is the one that was checked. A source that is a plain
/// directory when checked and a link into the cache of bundles when mounted would give the body
/// access to all later runs.
#[test]
fn a_source_that_is_swapped_for_a_link_to_the_cache_is_never_lent_with_it() {
    let ground = Ground::new();
    let cache = ground.path("cache");
    std::fs::create_dir(&cache).expect("made");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&cache, private).expect("set");
    ground.write("cache/kept", "the next run's");
    ground.write("plain/kept", "nobody's");
    symlink(&cache, ground.path("link")).expect("linked");
    let (plain, link) = (ground.path("plain"), ground.path("link"));
    let _swapper = Swapper::start(plain.clone(), link);
    let body = format!("echo changed >{}/kept", text(&plain));
    let (mut tried, mut ran) = (0, 0);
    while tried < rounds() * 3 || ran == 0 {
        assert!(tried < TRIED_MAX, "nothing ran");
        tried += 1;
        let words = ["run", "--rw", text(&plain), "--", "/bin/sh", "-c", &body];
        let done = ground
            .command(&words)
            .env("RUNNER_OPT_CACHE_DIRECTORY", text(&cache))
            .done();
        ran += u32::from(assert_ran_or_nothing(&done));
        let kept = std::fs::read_to_string(cache.join("kept")).expect("readable");
        assert_eq!(kept, "the next run's", "{done:#?}");
    }
}

/// B-50: a swapped workspace is one of the two, completely, and an input that becomes a link is refused.
#[test]
fn an_input_that_is_swapped_for_a_link_never_leads_out_of_the_workspace() {
    let ground = Ground::new();
    ground.write("outside/input", "from outside");
    ground.write("work/deep/input", "from inside");
    let workspace = ground.workspace();
    symlink("../outside", workspace.join("link")).expect("linked");
    let _swapper = Swapper::start(workspace.join("deep"), workspace.join("link"));
    let flags = [
        "--workspace",
        text(&workspace),
        "--in",
        "given=deep/input",
        "--out",
        "out=deep/out",
    ];
    let (mut tried, mut ran) = (0, 0);
    while tried < rounds() || ran == 0 {
        assert!(tried < TRIED_MAX, "nothing ran");
        tried += 1;
        let body = "cat /scratch/given; echo out >/scratch/out";
        let done = ground.run(&flags, &["/bin/sh", "-c", body]);
        if assert_ran_or_nothing(&done) {
            ran += 1;
            assert_eq!(done.text(), "from inside", "{done:#?}");
        }
        assert!(!ground.path("outside/out").exists(), "{done:#?}");
    }
}

/// B-50 without a race: a link in a passed directory leads neither a mount nor the creation of its
/// mount point outside.
#[test]
fn a_link_on_the_way_to_the_place_of_a_mount_is_not_followed() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    ground.write("given/mark", "");
    let canary = ground.path("canary");
    for (target, name) in [
        (text(&canary), "new"),
        (text(&canary), "deep"),
        (text(&canary), "file"),
        ("/etc", "ssl"),
        ("../../../../../../../../tmp", "new"),
        ("/proc", "new"),
    ] {
        symlink(target, lent.join("link")).expect("linked");
        let place = lent.join("link").join(name);
        let source = if name == "file" {
            "given/mark"
        } else {
            "given"
        };
        let mount = format!("{}:{}:ro", text(&ground.path(source)), text(&place));
        let tmpfs = text(&place);
        for more in [["--mount", &mount], ["--tmpfs", tmpfs]] {
            let flags = [&["--rw", text(&lent)], &more[..]].concat();
            let body = "cat /proc/self/mountinfo";
            // Invariant 1 checks the canary tree.
            let done = ground.run(&flags, &["/bin/sh", "-c", body]);
            assert!(!assert_ran_or_nothing(&done), "{target}: {done:#?}");
        }
        std::fs::remove_file(lent.join("link")).expect("removed");
    }
}
