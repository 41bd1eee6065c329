//! strace as the referee: it sees the result of each call, which `--trace` infers.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use support::network::PYTHON;
use support::packages::{has, npm_package, wheels};
use support::{Done, Ground, belongs_to_tier, skip, text};

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

/// What strace says of the body's processes: `lines` are those of each, by process id. Each starts in `start`.
fn by_strace(lines: &BTreeMap<u32, String>, start: &str) -> Failures {
    let mut failures = Failures::new();
    let of_runner = |text: &str| text.contains("\nmount(") || text.contains("openat2(");
    let mut is_first = true;
    for text in lines.values().filter(|text| !of_runner(text)) {
        let mut lines = text.lines();
        if std::mem::take(&mut is_first) {
            // Before, it is not the body yet.
            lines.find(|line| line.starts_with("execve(") && line.ends_with(" = 0"));
        }
        let mut current = start.to_owned();
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
    let seen = top.join("seen");
    let flags = ["--ro", text(&seen), "--ro", text(&script)];
    let body = [interpreter, text(&script), text(&top)];
    let exact = compare_run(&ground, &flags, HOME, &body);
    assert!(least <= exact.len(), "{exact:#?}");
}

/// Compares what `--trace` and strace say of a body, whose processes start in `start`.
fn compare_run(ground: &Ground, flags: &[&str], start: &str, body: &[&str]) -> Failures {
    let prefix = ground.path("strace");
    // Sockets of the body's own, beside a mounted directory.
    let words = ["run", "--trace", "--unix-sockets"];
    let body = [&["--", "sh", "-c", "exec \"$@\"", "sh"], body].concat();
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
    let case = ground.command(&[&words[..], flags, &body].concat());
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
    let (exact, inferred) = (by_strace(&lines, start), by_trace(&done));
    assert_eq!(inferred, exact);
    exact
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

/// Compares a run of a tool, whose settings, named by `variable`, are hidden.
fn compare_tool(ground: &Ground, flags: &[&str], variable: &str, script: &str) {
    let hidden = ground.write("hidden/settings", "");
    let variable = format!("{variable}={}", text(&hidden));
    let flags = [flags, &["-e", &variable]].concat();
    let at = flags.iter().position(|flag| *flag == "-w");
    let directory = at.map_or(HOME, |at| flags[at + 1]);
    let exact = compare_run(ground, &flags, directory, &["sh", "-ec", script]);
    assert!(exact.contains_key(&of_host(&hidden)), "{exact:#?}");
}

#[test]
fn git_was_denied_what_strace_saw_fail_and_nothing_else() {
    if !belongs_to_tier("long") {
        return;
    }
    if !has("git") {
        return skip("git is not installed");
    }
    let ground = Ground::new();
    // In the home of the body: what it makes in a directory of the host would be there when strace is read.
    let script = "git init -q .; echo text > file; git add file
        git -c user.name=n -c user.email=e@x.org commit -q -m message
        git status --short; git log --oneline; git grep text";
    compare_tool(&ground, &[], "GIT_CONFIG_GLOBAL", script);
}

#[test]
fn pip_was_denied_what_strace_saw_fail_and_nothing_else() {
    if !belongs_to_tier("long") {
        return;
    }
    let Some(wheels) = wheels() else {
        return skip("no wheels can be downloaded");
    };
    let wheels = wheels.canonicalize().expect("there");
    let ground = Ground::new();
    let script = format!(
        "{PYTHON} -m pip install --quiet --no-index --find-links {} --target /tmp/lib six markupsafe
         PYTHONPATH=/tmp/lib {PYTHON} -c 'import six, markupsafe'",
        wheels.display()
    );
    let flags = ["--ro", text(&wheels)];
    compare_tool(&ground, &flags, "PIP_CONFIG_FILE", &script);
}

#[test]
fn npm_was_denied_what_strace_saw_fail_and_nothing_else() {
    if !belongs_to_tier("long") {
        return;
    }
    if !has("npm") {
        return skip("npm is not installed");
    }
    let Some(folder) = npm_package("left-pad", "1.3.0") else {
        return skip("no package of npm can be downloaded");
    };
    let folder = folder.canonicalize().expect("there");
    let ground = Ground::new();
    let flags = ["--ro", text(&folder), "-w", text(&folder)];
    let script = "npm --offline ls --omit=dev; node -e 'require(\"./index.js\")'";
    compare_tool(&ground, &flags, "NPM_CONFIG_USERCONFIG", script);
}
