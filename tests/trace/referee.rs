//! strace as the referee: it sees the result of each call, which `--trace` infers.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use support::{Done, Ground, text};

use super::of_files;

/// The home directory of the body, in which it starts.
const HOME: &str = "/home/runner";
/// Calls with two paths, of which the line does not say which one is missing.
const OF_TWO_PATHS: [&str; 5] = ["link", "linkat", "rename", "renameat", "renameat2"];

/// How often each path was missing or on a read-only mount.
type Failures = BTreeMap<PathBuf, u64>;

/// The path as the host has it, links resolved as far as it exists.
fn of_host(path: &Path) -> PathBuf {
    let mut above = path.ancestors();
    let real = above.find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (above, real) = real.expect("the root exists");
    let below = path.strip_prefix(above).expect("it is below");
    real.components().chain(below.components()).collect()
}

/// The text between quotes, with the text before it.
fn strings(arguments: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = arguments.split('"').collect();
    let pairs = parts.chunks_exact(2);
    pairs.map(|pair| (pair[0], pair[1])).collect()
}

/// The directory of a `AT_FDCWD</tmp>, ` or `3</tmp>, `.
fn directory(before: &str) -> &str {
    let named = before.rsplit_once('<').map(|(_, named)| named);
    let named = named.and_then(|named| named.split_once('>'));
    named.map_or("", |(directory, _)| directory)
}

/// The path that a line of strace says was missing or read-only because of the view. `current` is the
/// directory of the process.
fn failure(line: &str, current: &str) -> Option<PathBuf> {
    let (call, result) = line.rsplit_once(" = -1 ")?;
    let errno = result.split(' ').next()?;
    if !["ENOENT", "EROFS"].contains(&errno) {
        return None;
    }
    let (name, arguments) = call.split_once('(')?;
    assert!(!OF_TWO_PATHS.contains(&name), "{line}");
    let strings = strings(arguments);
    let which = usize::from(name.starts_with("symlink"));
    let (before, path) = strings.get(which)?;
    let start = match directory(before) {
        "" => current,
        directory => directory,
    };
    let asked = Path::new(start).join(path);
    if path.is_empty() || asked.starts_with("/proc") {
        return None;
    }
    let creates = line.contains("O_CREAT")
        || ["mkdir", "mkdirat", "bind", "symlink", "symlinkat"].contains(&name);
    let missed = match creates {
        true => asked.parent()?,
        false => &asked,
    };
    (errno == "EROFS" || missed.exists()).then(|| of_host(&asked))
}

/// What strace says of the body's processes: `lines` are those of each, by process id.
fn by_strace(lines: &BTreeMap<u32, String>) -> Failures {
    let mut failures = Failures::new();
    let of_runner = |text: &str| text.contains("\nmount(") || text.contains("openat2(");
    let mut is_first = true;
    for text in lines.values().filter(|text| !of_runner(text)) {
        let mut lines = text.lines();
        if std::mem::take(&mut is_first) {
            // Before, it is not the body yet.
            lines.find(|line| line.starts_with("execve(") && line.ends_with(" = 0"));
        }
        let mut current = HOME.to_owned();
        for line in lines {
            if let Some(path) = failure(line, &current) {
                *failures.entry(path).or_default() += 1;
            }
            if line.starts_with("chdir(") && line.ends_with(" = 0") {
                let to = strings(line)[0].1;
                current = text_of(&Path::new(&current).join(to));
            }
        }
    }
    failures
}

fn text_of(path: &Path) -> String {
    text(path).to_owned()
}

fn by_trace(done: &Done) -> Failures {
    let mut failures = Failures::new();
    for denial in of_files(done) {
        let errno = denial["errno"].as_str().expect("an errno");
        assert!(["ENOENT", "EROFS"].contains(&errno), "{denial}");
        let object = Path::new(denial["object"].as_str().expect("a path"));
        *failures.entry(of_host(object)).or_default() += denial["count"].as_u64().expect("a count");
    }
    failures
}

fn compare(script: &str, name: &str, least: usize) {
    let ground = Ground::new();
    let top = ground.path("top");
    for (path, contents) in [
        ("hidden/key", "echo sourced"),
        ("hidden/hidden.h", ""),
        ("hidden/hidden_module.py", ""),
        ("seen/seen.h", "#define SEEN \"it runs\"\n"),
        ("seen/seen_module.py", ""),
        ("seen/file", ""),
    ] {
        ground.write(&format!("top/{path}"), contents);
    }
    ground.program("top/hidden/tool", "#!/bin/sh\necho tool\n");
    for (target, link) in [
        ("key", "hidden/link"),
        ("../hidden/key", "seen/link"),
        ("../hidden/nowhere", "seen/dangling"),
    ] {
        symlink(target, top.join(link)).expect("made");
    }
    let _listener = UnixListener::bind(top.join("hidden/socket")).expect("bound");
    let script = ground.write(name, script);
    let interpreter = match name.ends_with(".py") {
        true => "python3",
        false => "sh",
    };
    let prefix = ground.path("strace");
    let seen = top.join("seen");
    // Sockets of the body's own, beside a mounted directory.
    let words = [
        "run",
        "--trace",
        "--unix-sockets",
        "--ro",
        text(&seen),
        "--ro",
        text(&script),
    ];
    let body = [
        "--",
        "sh",
        "-c",
        "exec \"$@\"",
        "sh",
        interpreter,
        text(&script),
        text(&top),
    ];
    let calls = "trace=file,connect,bind";
    let strace = [
        "-ff",
        "-qq",
        "-y",
        "-s",
        "4096",
        "-e",
        calls,
        "-e",
        "signal=none",
        "-o",
        text(&prefix),
    ];
    let case = ground.command(&[&words[..], &body].concat());
    let done = case.through("strace", &strace).done();
    done.assert_exited(0);
    let mut lines = BTreeMap::new();
    for entry in ground.path("").read_dir().expect("listed").flatten() {
        let path = entry.path();
        if let Some(process) = text(&path).strip_prefix(&format!("{}.", text(&prefix))) {
            let process = process.parse().expect("a process id");
            lines.insert(process, std::fs::read_to_string(&path).expect("read"));
        }
    }
    let (exact, inferred) = (by_strace(&lines), by_trace(&done));
    assert!(least <= exact.len(), "{exact:#?}");
    assert_eq!(inferred, exact);
}

#[test]
fn a_shell_was_denied_what_strace_saw_fail_and_nothing_else() {
    compare(include_str!("../bodies/trace/referee.sh"), "referee.sh", 10);
}

#[test]
fn python_was_denied_what_strace_saw_fail_and_nothing_else() {
    compare(include_str!("../bodies/trace/referee.py"), "referee.py", 10);
}

#[test]
fn a_compiler_was_denied_what_strace_saw_fail_and_nothing_else() {
    compare(
        include_str!("../bodies/trace/referee-gcc.sh"),
        "referee-gcc.sh",
        5,
    );
}
