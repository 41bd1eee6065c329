//! What a terminal shows while a run goes on, and what is printed where there is none.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::Ground;
use support::screen::{self, ERASED};

/// The runner, with the terminal as standard error and, if `both`, as standard output.
fn on_terminal(end: OwnedFd, both: bool, words: &[&str]) -> Command {
    let mut command = Command::new(support::runner());
    if both {
        command.stdout(end.try_clone().expect("copied"));
    } else {
        command.stdout(Stdio::piped());
    }
    command.args(words).env("TERM", "xterm").stderr(end);
    command
}

/// The live line and the body's output share a terminal, and neither damages the other.
#[test]
fn a_live_line_shows_what_the_run_uses_and_leaves_the_output_whole() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let rw = workspace.to_str().expect("text");
    let body = "echo first; until [ -e go ]; do sleep 0.02; done; printf part; echo end";
    let words = [
        "run", "--stats", "--rw", rw, "-w", rw, "-m", "64m", "--pids=9",
    ];
    let words = [&words[..], &["--", "sh", "-c", body]].concat();
    let (end, screen) = screen::open_live();
    let mut child = on_terminal(end, true, &words).spawn().expect("started");
    screen.until("runner: memory ");
    std::fs::write(workspace.join("go"), "").expect("written");
    assert!(child.wait().expect("ended").success());
    let text = screen.join();
    let (before, after) = text.split_once("part").expect("the output");
    assert!(before.starts_with("first\r\n"), "{text:?}");
    assert!(before.ends_with(ERASED), "{text:?}");
    let line = before.split(ERASED).find(|line| line.contains("memory"));
    let line = line.expect("a line");
    for part in [" of 64.0 MiB, CPU ", " of 9"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(after.starts_with("end\r\n"), "{text:?}");
    assert!(after.contains(" used in "), "{text:?}");
}

/// Output that does not go to the terminal of the line leaves it alone.
#[test]
fn redirected_output_that_ends_within_a_line_does_not_hide_the_live_line() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let rw = workspace.to_str().expect("text");
    let body = "printf part; until [ -e go ]; do sleep 0.02; done";
    let words = [
        "run", "--stats", "--rw", rw, "-w", rw, "--", "sh", "-c", body,
    ];
    let (end, screen) = screen::open_live();
    let child = on_terminal(end, false, &words).spawn().expect("started");
    screen.until("runner: memory ");
    std::fs::write(workspace.join("go"), "").expect("written");
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.stdout, b"part");
    let text = screen.join();
    let (live, last) = text.rsplit_once(ERASED).expect("erased");
    assert!(live.contains("processes "), "{text:?}");
    assert!(last.contains("used in "), "{text:?}");
}

#[test]
fn without_a_terminal_there_is_one_line_at_the_end() {
    let ground = Ground::new();
    let done = ground.run(&["--stats", "-m", "64m", "--pids=9"], &["sleep", "0.7"]);
    done.assert_exited(0);
    // A host without cgroups enforces the limits only weakly, which is a warning.
    let is_warning = |line: &&str| line.starts_with("runner: warning: ");
    let lines: Vec<&str> = done
        .stderr
        .lines()
        .filter(|line| !is_warning(line))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["runner: used in ", "memory ", "CPU time ", "processes "] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
    if support::has_cgroup() {
        for part in [" of 64.0 MiB", " of 9"] {
            assert!(lines[0].contains(part), "{part}: {}", lines[0]);
        }
    }
    let quiet = ground.run(&["--stats", "-q"], &["true"]);
    assert_eq!(quiet.stderr, "");
    let plain = ground.run(&[], &["true"]);
    assert_eq!(plain.own_errors(), [""; 0]);
}

/// A bundle that comes slowly shows how much came, one that comes at once shows nothing.
#[test]
fn a_slow_unpacking_has_a_status_line_and_a_quick_one_has_none() {
    let ground = Ground::new();
    // Compressed, it is as large.
    let mut noise = vec![0; 300_000];
    let mut random = File::open("/dev/urandom").expect("opened");
    std::io::Read::read_exact(&mut random, &mut noise).expect("read");
    ground.write("folder/noise", noise);
    ground.write("folder/manifest.yaml", "run: [sh, main.sh]\n");
    ground.write("folder/main.sh", "echo body >&2\n");
    let archive = support::bundles::pack(&ground.path("folder"));
    let archive = std::fs::read(archive).expect("read");
    let run = |is_slow: bool, words: &[&str]| {
        let (end, screen) = screen::open_live();
        let mut command = on_terminal(end, false, words);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("started");
        drop(command);
        let mut pipe = child.stdin.take().expect("a pipe");
        let shows = || screen.text().contains("runner: unpacking the bundle: ");
        for piece in archive.chunks(1_000) {
            pipe.write_all(piece).expect("written");
            if is_slow && !shows() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        drop(pipe);
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success());
        screen.join()
    };
    let text = run(true, &["exec", "-"]);
    assert!(text.contains("runner: unpacking the bundle: "), "{text:?}");
    let (before, _) = text.split_once("body").expect("the output");
    assert!(before.ends_with(ERASED), "{text:?}");
    assert_eq!(run(false, &["exec", "-"]), "body\r\n");
    // Nor has one whose report goes to standard output, or with -q.
    for flag in ["--json", "-q"] {
        let text = run(true, &["exec", flag, "-"]);
        assert!(!text.contains("unpacking"), "{flag}: {text:?}");
    }
}
