//! Files that are copied into a sandbox and out of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::{Host, Said, said};
use support::invariants::eventually;
use support::{has_cgroup, is_root, needs_root, skip, tier_includes};

const COPIES: &str = include_str!("../bodies/sandboxes/copies.py");
const SWAP: &str = include_str!("../bodies/sandboxes/swap.py");
const NAMES: &str = include_str!("../bodies/sandboxes/names.py");

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn copy(host: &Host, from: &str, to: &str) -> Said {
    host.say(&["sandbox", "cp", from, to])
}

#[track_caller]
fn copied(host: &Host, from: &str, to: &str) {
    let done = copy(host, from, to);
    assert_eq!(
        (done.code, &*done.stdout, &*done.stderr),
        (0, "", ""),
        "{from} {to}"
    );
}

/// Beside a hint.
#[track_caller]
fn assert_one_line(refused: &Said) {
    let lines = refused.stderr.lines();
    let problems = lines.filter(|line| !line.starts_with("runner: hint:"));
    assert_eq!(problems.count(), 1, "{refused:?}");
}

/// Starts a script of Python in the sandbox and waits until it says that it is up.
fn start(
    host: &Host,
    script: &str,
    words: &[&str],
) -> (Child, BufReader<std::process::ChildStdout>) {
    let command = ["sandbox", "exec", "one", "--", "python3", "-c", script];
    let mut child = host
        .command(&[&command, words].concat())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("read");
    assert_eq!(line, "up\n");
    (child, lines)
}

/// What a tree has: for each path its kind, mode, time and contents.
fn listed(root: &Path) -> BTreeMap<OsString, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let whole = root.join(&below);
        let status = fs::symlink_metadata(&whole).expect("there");
        let (time, contents) = if status.is_symlink() {
            let target = fs::read_link(&whole).expect("a link");
            (0, target.as_os_str().as_bytes().to_vec())
        } else if status.is_dir() {
            let entries = fs::read_dir(&whole).expect("listed");
            open.extend(entries.map(|entry| below.join(entry.expect("read").file_name())));
            (status.mtime(), Vec::new())
        } else {
            (status.mtime(), fs::read(&whole).expect("read"))
        };
        found.insert(below.into_os_string(), (status.mode(), time, contents));
    }
    found
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("listed")
        .map(|entry| {
            entry
                .expect("read")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

fn make_tree(tree: &Path) {
    fs::create_dir_all(tree.join("bin/empty")).expect("made");
    let mut state = 1_u64;
    let bytes: Vec<u8> = (0..700_001)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect();
    fs::write(tree.join("bin/tool"), &bytes).expect("written");
    fs::write(tree.join("nothing"), "").expect("written");
    symlink("bin/tool", tree.join("link")).expect("made");
    symlink("/etc/passwd", tree.join("absolute")).expect("made");
    for (name, mode) in [
        ("bin/tool", 0o751),
        ("nothing", 0o640),
        ("bin", 0o700),
        ("bin/empty", 0o755),
    ] {
        let path = tree.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        fs::File::open(&path)
            .expect("opened")
            .set_modified(time)
            .expect("set");
    }
}

#[test]
fn a_tree_comes_back_with_its_contents_modes_times_and_links_and_belongs_to_the_caller() {
    let host = Host::new();
    host.create("one", &[]);
    let tree = host.ground.path("tree");
    make_tree(&tree);
    let back = host.ground.path("back");
    copied(&host, path(&tree), "one:/scratch");
    let owners = host.shell("one", "find /scratch/tree ! -user $(id -u)");
    assert_eq!((owners.code, &*owners.stdout), (0, ""));
    copied(&host, "one:/scratch/tree", path(&back));
    assert_eq!(listed(&back), listed(&tree));
    let status = fs::metadata(&back).expect("there");
    assert_eq!(status.uid(), rustix::process::geteuid().as_raw());
    // A path is relative to the root. Bits that change the user are not copied.
    let tool = tree.join("bin/tool");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o6751)).expect("set");
    copied(&host, path(&tool), "one:tmp");
    assert_eq!(host.shell("one", "stat -c %a /tmp/tool").stdout, "751\n");
}

#[test]
fn the_place_of_a_copy_follows_the_rules_of_docker() {
    let host = Host::new();
    host.create("one", &[]);
    let tree = host.ground.path("tree");
    make_tree(&tree);
    let contents = format!("{}/.", path(&tree));
    let file = tree.join("nothing");
    let shell = |text: &str| host.shell("one", text).stdout;
    // Into a directory that exists, with its name; to a new name; over a file; only what is in it.
    copied(&host, path(&file), "one:/scratch");
    copied(&host, path(&file), "one:/scratch/new");
    copied(&host, path(&file), "one:/scratch/new");
    copied(&host, path(&tree), "one:/scratch/fresh");
    copied(&host, &contents, "one:/scratch/fresh");
    let found = shell("cd /scratch && ls -A . fresh");
    assert_eq!(
        found,
        ".:\nfresh\nnew\nnothing\n\nfresh:\nabsolute\nbin\nlink\nnothing\n"
    );
    for (from, to, problem) in [
        (
            path(&file),
            "one:/scratch/missing/",
            "there is no directory",
        ),
        (path(&file), "one:/missing/x", "there is no directory"),
        (path(&tree), "one:/scratch/new", "the other way round"),
        (path(&file), "one:/scratch/new/", "is not a directory"),
        ("one:/missing", path(&tree), "cannot read `/missing`"),
        (
            "one:/scratch/new/",
            path(&tree),
            "cannot read `/scratch/new/`",
        ),
        ("/missing", "one:/scratch", "cannot read `/missing`"),
        ("one:/dev/null", path(&tree), "it is a character device"),
        (path(&file), "one:/usr", "Read-only"),
        (
            path(&file),
            "another:/scratch",
            "there is no sandbox another",
        ),
        (path(&file), "..:/scratch", "exactly one of SRC and DEST"),
        (path(&file), "/scratch", "exactly one of SRC and DEST"),
        ("one:/scratch", "one:/tmp", "exactly one of SRC and DEST"),
        ("one:", path(&tree), "a path is empty"),
    ] {
        let refused = copy(&host, from, to);
        assert_eq!((refused.code, &*refused.stdout), (125, ""), "{from} {to}");
        assert!(refused.stderr.contains(problem), "{refused:?}");
        assert_one_line(&refused);
    }
    let closed = host.shell("one", "mkdir /scratch/closed; chmod 0 /scratch/closed");
    assert_eq!(closed.code, 0);
    for (from, to) in [
        ("one:/scratch/closed", path(&tree)),
        (path(&file), "one:/scratch/closed"),
    ] {
        let refused = copy(&host, from, to);
        assert!(refused.stderr.contains("Permission denied"), "{refused:?}");
    }
    assert_eq!(names(&tree), ["absolute", "bin", "link", "nothing"]);
    assert_eq!(shell("ls -A /scratch"), "closed\nfresh\nnew\nnothing\n");
    // A link at the end is a link, unless it is to be followed.
    copied(&host, path(&tree.join("link")), "one:/tmp");
    let done = host.say(&[
        "sandbox",
        "cp",
        "-L",
        path(&tree.join("link")),
        "one:/tmp/tool",
    ]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        shell("cd /tmp && readlink link && stat -c %s tool"),
        "bin/tool\n700001\n"
    );
}

#[test]
fn a_dash_is_a_tar() {
    let host = Host::new();
    host.create("one", &[]);
    let tree = host.ground.path("tree");
    make_tree(&tree);
    let mut tar = Command::new("tar")
        .args(["-c", "-C", path(&tree), "."])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let done = host
        .command(&["sandbox", "cp", "-", "one:/scratch"])
        .stdin(tar.stdout.take().expect("a pipe"))
        .output();
    assert_eq!(said(done.expect("started")).code, 0);
    assert!(tar.wait().expect("ended").success());
    let sent = host
        .command(&["sandbox", "cp", "one:/scratch/.", "-"])
        .output()
        .expect("started");
    assert_eq!(sent.status.code(), Some(0));
    let back = host.ground.path("back");
    fs::create_dir(&back).expect("made");
    let mut tar = Command::new("tar")
        .args(["-x", "-p", "-C", path(&back)])
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = tar.stdin.take().expect("a pipe");
    input.write_all(&sent.stdout).expect("written");
    drop(input);
    assert!(tar.wait().expect("ended").success());
    let without_root = |mut tree: BTreeMap<OsString, _>| {
        tree.remove(&OsString::new());
        tree
    };
    assert_eq!(without_root(listed(&back)), without_root(listed(&tree)));
    for (input, to, problem) in [
        (&b"no tar"[..], "one:/tmp", "expected a tar"),
        (&sent.stdout[..9_000], "one:/tmp", "the tar ends"),
        (&sent.stdout, "one:/tmp/missing", "there is no directory"),
    ] {
        let mut child = host
            .command(&["sandbox", "cp", "-", to])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        // The command may end before it has read all.
        let written = child.stdin.take().expect("a pipe").write_all(input);
        let refused = said(child.wait_with_output().expect("ended"));
        assert!(refused.stderr.contains(problem), "{refused:?} {written:?}");
    }
    assert_eq!(host.shell("one", "ls -A /tmp").stdout, "");
}

///
#[test]
fn names_of_a_body_are_copied_as_they_are_and_never_shown_raw() {
    let host = Host::new();
    host.create("one", &[]);
    let made = host.say(&[
        "sandbox", "exec", "one", "--", "python3", "-c", NAMES, "/scratch",
    ]);
    assert_eq!(made.code, 0, "{made:?}");
    let back = host.ground.path("back");
    copied(&host, "one:/scratch", path(&back));
    let found = listed(&back);
    assert_eq!(found.len(), 1 + 9 + 2 + 17);
    for (name, (_, _, contents)) in &found {
        let name = name.as_bytes();
        match name {
            b"out" => assert_eq!(contents, b"../../../../etc/passwd"),
            b"dangling" => assert_eq!(contents, b"/nowhere/\n"),
            _ if name.starts_with(b"long") || name.is_empty() => (),
            _ => assert_eq!(contents, name),
        }
    }
    // Back again, and out of it with a path that is longer than any.
    copied(&host, path(&back), "one:/tmp");
    let deeper = host.shell(
        "one",
        "d=$(printf %0250d 0); mkdir /tmp/$d; mv /tmp/back /tmp/$d/$d",
    );
    assert_eq!(deeper.code, 0, "{deeper:?}");
    let refused = copy(&host, "one:/tmp", path(&host.ground.path("no")));
    assert!(
        refused.stderr.contains("longer than 4095 bytes"),
        "{refused:?}"
    );
    assert!(!host.ground.path("no").exists());
    let named = host.shell(
        "one",
        "mkfifo \"/run/$(printf '\\033[31m')\" || mkfifo \"/tmp/$(printf '\\033[31m')\"",
    );
    assert_eq!(named.code, 0, "{named:?}");
    let one = host.shell("one", "rm -r /tmp/0*");
    assert_eq!(one.code, 0, "{one:?}");
    let skipped = copy(&host, "one:/tmp", path(&host.ground.path("no")));
    let line = "skipped `/tmp/\\x1b[31m`: it is a fifo";
    assert!(skipped.stderr.to_lowercase().contains(line), "{skipped:?}");
    assert!(!skipped.stderr.contains('\u{1b}'), "{skipped:?}");
}

///
#[test]
fn a_link_that_takes_the_place_of_a_directory_meanwhile_is_not_followed() {
    let host = Host::new();
    let shared = host.ground.path("shared");
    let secret = host.ground.path("secret");
    for directory in [&shared, &secret] {
        fs::create_dir(directory).expect("made");
    }
    // The body writes to the workspace with its own uid.
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("set");
    fs::write(secret.join("f"), "secret\n").expect("written");
    host.create("one", &["--rw", path(&shared)]);
    let (mut child, _lines) = start(&host, SWAP, &[path(&shared), path(&secret)]);
    let from = shared.join("a");
    let back = host.ground.path("back");
    let inside = format!("one:{}", path(&from));
    for _ in 0..20 {
        // Into the sandbox, with the caller's rights; then out of it, with those of the body.
        let done = copy(&host, path(&from), "one:/scratch/in");
        assert_eq!(done.code, 0, "{done:?}");
        let found = host.shell(
            "one",
            "cd /scratch/in && find . -type f -exec cat {} +; rm -rf /scratch/in",
        );
        assert!(!found.stdout.contains("secret"), "{found:?}");
        let done = copy(&host, &inside, path(&back));
        assert_eq!(done.code, 0, "{done:?}");
        for (name, (_, _, contents)) in listed(&back) {
            assert_ne!(contents, b"secret\n", "{name:?}");
        }
        fs::remove_dir_all(&back).expect("removed");
    }
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    child.wait().expect("ended");
}

///
#[test]
fn a_link_at_the_destination_is_not_written_through() {
    let host = Host::new();
    let shared = host.ground.path("shared");
    let outside = host.ground.path("outside");
    for directory in [&shared, &outside] {
        fs::create_dir(directory).expect("made");
    }
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("set");
    host.create("one", &["--rw", path(&shared)]);
    let planted = format!(
        "cd /scratch && mkdir -p t/d && echo evil > t/d/f && echo evil > f && cd {0} && mkdir t && \
         ln -s {1} link && ln -s {1}/f file && ln -s {1} t/d",
        path(&shared),
        path(&outside)
    );
    let planted = host.shell("one", &planted);
    assert_eq!(planted.code, 0, "{planted:?}");
    for (from, to, problem) in [
        ("one:/scratch/f", "link", "not followed"),
        ("one:/scratch/f", "file", "not followed"),
        ("one:/scratch/t", "link", "not followed"),
        ("one:/scratch/t", ".", "the other way round"),
        ("one:/scratch/t/.", "t", "the other way round"),
    ] {
        let refused = copy(&host, from, path(&shared.join(to)));
        assert!(refused.stderr.contains(problem), "{from} {to}: {refused:?}");
        assert_eq!(names(&outside), [""; 0], "{from} {to}");
    }
    assert_eq!(names(&shared), ["file", "link", "t"]);
}

/// A sandbox `one` with the file `/scratch/f`, whose copy takes a while, and a directory for the copy.
fn host_with_a_file_to_copy() -> (Host, PathBuf) {
    let host = Host::new();
    host.create("one", &[]);
    let made = host.shell("one", "head -c 3000000 /dev/urandom > /scratch/f");
    assert_eq!(made.code, 0, "{made:?}");
    let back = host.ground.path("back");
    fs::create_dir(&back).expect("made");
    (host, back)
}

///
#[test]
fn a_process_that_copies_is_not_traced_and_one_that_is_killed_leaves_nothing() {
    let (host, back) = host_with_a_file_to_copy();
    let (mut child, mut lines) = start(&host, COPIES, &["attack"]);
    copied(&host, "one:/scratch/f", path(&back));
    let mut line = String::new();
    lines.read_line(&mut line).expect("read");
    assert_eq!(line, "reached:\n");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert_eq!(names(&back), ["f"]);
    fs::remove_file(back.join("f")).expect("removed");
    let (mut child, _lines) = start(&host, COPIES, &["kill"]);
    let mut ended = 0;
    for _ in 0..20 {
        let done = copy(&host, "one:/scratch/f", path(&back));
        if done.code == 0 {
            assert_eq!(names(&back), ["f"]);
            fs::remove_file(back.join("f")).expect("removed");
            continue;
        }
        ended += 1;
        assert_eq!(done.code, 125, "{done:?}");
        assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
        assert_eq!(names(&back), [""; 0]);
    }
    assert!(ended > 0, "none was killed");
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    child.wait().expect("ended");
}

/// Starts a copy that does not end, and interrupts it once `is_under_way`.
fn interrupted(host: &Host, words: &[&str], is_under_way: &dyn Fn() -> bool) {
    let mut child = host
        .command(&[&["sandbox", "cp"], words].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    eventually("the copy is under way", is_under_way);
    kill_process(Pid::from_child(&child), Signal::INT).expect("sent");
    // A process that is stopped does not end: the second signal waits for nothing.
    eventually("it has ended", || {
        let status = fs::read_to_string(format!("/proc/{}/stat", child.id()));
        let is_zombie = status.is_ok_and(|text| text.contains(") Z "));
        is_zombie || kill_process(Pid::from_child(&child), Signal::INT).is_err()
    });
    let input = child.stdin.take();
    assert_eq!(child.wait().expect("ended").code(), Some(130), "{words:?}");
    drop(input);
}

///
#[test]
fn a_copy_that_is_interrupted_leaves_nothing_on_either_side() {
    let host = Host::new();
    host.create("one", &[]);
    let made = host.shell("one", "head -c 3000000 /dev/urandom > /scratch/f");
    assert_eq!(made.code, 0, "{made:?}");
    // Its input does not end.
    let is_inside = || {
        host.shell("one", "ls -A /tmp")
            .stdout
            .contains(".runner-cp-")
    };
    interrupted(&host, &["-", "one:/tmp"], &is_inside);
    eventually("nothing is left inside", || {
        host.shell("one", "ls -A /tmp").stdout.is_empty()
    });
    // Nobody reads its output.
    let runs = || host.list()[0]["commands"][0]["argv"][0] == "copy-out";
    interrupted(&host, &["one:/scratch/f", "-"], &runs);
    // The process inside is stopped.
    let back = host.ground.path("back");
    fs::create_dir(&back).expect("made");
    let (mut child, _lines) = start(&host, COPIES, &["stop", "/scratch/pid"]);
    interrupted(&host, &["one:/scratch/f", path(&back)], &|| {
        // No command is started meanwhile: until its exec it would look like a copy. The script has ended.
        let commands = host.list()[0]["commands"].clone();
        let is_alone = commands
            .as_array()
            .is_some_and(|commands| commands.len() == 1);
        is_alone && commands[0]["argv"][0] == "copy-out" && !names(&back).is_empty()
    });
    assert_eq!(names(&back), [""; 0]);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    let resumed = host.shell("one", "kill -CONT $(cat /scratch/pid)");
    assert_eq!(resumed.code, 0, "{resumed:?}");
    eventually("no process that copies is left", || {
        host.list()[0]["commands"] == serde_json::json!([])
    });
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    host.assert_empty();
}

/// E-04: What a killed copy left on the host is removed by the next start, and not before.
#[test]
fn what_a_killed_copy_left_is_removed_by_the_next_start() {
    let (host, back) = host_with_a_file_to_copy();
    let (mut script, _lines) = start(&host, COPIES, &["stop", "/scratch/pid"]);
    let mut copying = host
        .command(&["sandbox", "cp", "one:/scratch/f", path(&back)])
        .spawn()
        .expect("started");
    assert_eq!(script.wait().expect("ended").code(), Some(0));
    eventually("the copy is under way", || !names(&back).is_empty());
    let collected = host.say(&["gc"]);
    assert_eq!(collected.stdout, "nothing to remove\n", "{collected:?}");
    assert_eq!(names(&back).len(), 1);
    kill_process(Pid::from_child(&copying), Signal::KILL).expect("sent");
    copying.wait().expect("ended");
    assert!(names(&back)[0].starts_with(".runner-cp-"));
    eventually("it is removed", || {
        let collected = host.say(&["gc"]);
        assert_eq!(
            (collected.code, &*collected.stderr),
            (0, ""),
            "{collected:?}"
        );
        names(&back).is_empty()
    });
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    host.assert_empty();
}

///
#[test]
fn what_does_not_fit_is_refused_in_one_line_and_leaves_nothing() {
    let host = Host::new();
    host.create("one", &["--disk", "8m", "--fsize", "4m"]);
    let back = host.ground.path("back");
    fs::create_dir(&back).expect("made");
    let sparse = host.ground.path("sparse");
    fs::File::create(&sparse)
        .expect("made")
        .set_len(64 << 30)
        .expect("set");
    let limited = host.ground.path("limited");
    fs::write(&limited, vec![b'x'; 5 << 20]).expect("written");
    for (from, problem) in [(&sparse, "in all files"), (&limited, "File too large")] {
        let refused = copy(&host, path(from), "one:/scratch");
        assert_eq!(refused.code, 125, "{refused:?}");
        assert_one_line(&refused);
        assert!(refused.stderr.contains(problem), "{refused:?}");
        assert_eq!(host.shell("one", "ls -A /scratch").stdout, "");
    }
    // It is refused at its header, before any of its zeros arrives.
    let shared = host.ground.path("shared");
    fs::create_dir(&shared).expect("made");
    let huge = shared.join("f");
    fs::File::create(&huge)
        .expect("made")
        .set_len(1 << 40)
        .expect("set");
    host.create("two", &["--ro", path(&shared)]);
    let refused = copy(&host, &format!("two:{}", path(&huge)), path(&back));
    assert!(refused.stderr.contains("in all files"), "{refused:?}");
    assert_one_line(&refused);
    assert_eq!(names(&back), [""; 0]);
}

///
#[test]
fn a_full_disk_of_the_host_gets_nothing() {
    if !is_root() {
        return needs_root("only root can mount a small disk");
    }
    let host = Host::new();
    host.create("one", &[]);
    let made = host.shell(
        "one",
        "mkdir /scratch/t && cd /scratch/t && touch $(seq 200) && head -c 100000 /dev/urandom > f",
    );
    assert_eq!(made.code, 0, "{made:?}");
    let disk = host.ground.path("disk");
    fs::create_dir(&disk).expect("made");
    for (option, problem) in [
        ("size=64k", "in all files"),
        ("nr_inodes=100", "No space left"),
    ] {
        // Other tests compare their mounts.
        let script = "mount -t tmpfs -o $0 none $1 || exit 99
            $2 sandbox cp one:/scratch/t $1; code=$?; ls -A $1; exit $code";
        let runner = host.command(&[""]);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, option, path(&disk)]);
        command.arg(runner.get_program());
        for (name, value) in runner.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let refused = said(command.output().expect("started"));
        assert_eq!((refused.code, &*refused.stdout), (125, ""), "{refused:?}");
        assert_one_line(&refused);
        assert!(refused.stderr.contains(problem), "{refused:?}");
    }
}

/// 100,000 in tier long.
#[test]
fn many_thousand_entries_are_copied() {
    let host = Host::new();
    let shared = host.ground.path("shared");
    let directories = if tier_includes("long") { 100 } else { 10 };
    for directory in 0..directories {
        let directory = shared.join(directory.to_string());
        fs::create_dir_all(&directory).expect("made");
        for file in 0..1000 {
            fs::File::create(directory.join(file.to_string())).expect("made");
        }
    }
    host.create("one", &["--ro", path(&shared)]);
    let back = host.ground.path("back");
    let from = format!("one:{}", path(&shared));
    // A slow disk takes minutes.
    let copying = host
        .command(&["sandbox", "cp", &from, path(&back)])
        .output();
    let done = said(copying.expect("started"));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(listed(&back), listed(&shared));
}

#[test]
fn a_paused_sandbox_copies_nothing() {
    if !has_cgroup() {
        return skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    host.create("one", &[]);
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    let back = host.ground.path("back");
    let refused = copy(&host, "one:/etc/passwd", path(&back));
    assert!(refused.stderr.contains("(sandbox_paused)"), "{refused:?}");
    assert!(!back.exists());
}

/// What the copy of a sandbox that ends meanwhile says.
#[test]
fn a_copy_ends_with_its_sandbox() {
    let host = Host::new();
    host.create("one", &[]);
    let mut child = host
        .command(&["sandbox", "cp", "-", "one:/tmp"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    eventually("it runs", || {
        host.list()[0]["commands"][0]["argv"][0] == "copy-in"
    });
    let busy = host.say(&["sandbox", "rm", "one"]);
    assert!(busy.stderr.contains("(sandbox_busy)"), "{busy:?}");
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("ended").code(), Some(125));
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("read");
    assert!(said.contains("one"), "{said}");
}
