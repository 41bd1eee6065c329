//! A caller that starts the runner in an unusual state: the state does not reach the body.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::runtime::Runtime;
use support::bodies::c_body;
use support::invariants::living;
use support::{Ground, is_root};

const SIGNALS: &str = include_str!("../bodies/lifetime/odd_starts_signals.c");

/// E-07
#[test]
fn ignored_and_blocked_signals_of_the_caller_change_nothing() {
    let ground = Ground::new();
    let program = c_body("strange-signals", SIGNALS);
    let program = program.to_str().expect("plain");
    let mut case = ground.command(&["run", "--", "/bin/sh", "-c", "(exit 3); echo $?; exit 4"]);
    case.behind(&[program]);
    let done = case.done();
    done.assert_exited(4);
    assert_eq!(done.text(), "3\n");
    // Time limits and cancelling also work.
    let mut case = ground.command(&["run", "--timeout=200ms", "--", "/bin/sleep", "600"]);
    case.behind(&[program]);
    case.done().assert_outcome("timed_out", 124);
    let mut case = ground.command(&["run", "--", "/bin/sleep", "600"]);
    case.behind(&[program]);
    let mut running = case.start();
    running.until("the body", || !living(ground.marker()).is_empty());
    running.signal(rustix::process::Signal::TERM);
    running.done().assert_outcome("cancelled", 143);
}

/// E-07: the body starts in the same state whatever the caller's state is.
#[test]
fn the_body_starts_with_no_signal_blocked_or_ignored() {
    let ground = Ground::new();
    let body = ["run", "--", "/bin/grep", "^Sig[BI]", "/proc/self/status"];
    let none = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
    let done = ground.command(&body).done();
    done.assert_exited(0);
    assert_eq!(done.text(), none);
    let program = c_body("strange-signals", SIGNALS);
    let mut case = ground.command(&body);
    case.behind(&[program.to_str().expect("plain")]);
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(done.text(), none);
}

/// E-22
#[test]
fn a_runtime_directory_that_others_could_change_is_refused() {
    let ground = Ground::new();
    let refused = |runtime: &Runtime| {
        let done = runtime.case(&ground, &[], &["/bin/true"]).done();
        assert_eq!(done.code, 125, "{done:#?}");
        assert!(done.stderr.starts_with("runner: "), "{}", done.stderr);
        let message = done.report["error"]["message"]
            .as_str()
            .expect("a message")
            .to_owned();
        assert!(message.contains("not safe"), "{message}");
    };
    let link = Runtime::new();
    let target = ground.path("target");
    std::fs::create_dir(&target).expect("made");
    std::os::unix::fs::symlink(&target, &link.path).expect("linked");
    refused(&link);
    assert_eq!(
        std::fs::read_dir(&target).expect("read").count(),
        0,
        "the link was followed"
    );
    std::fs::remove_file(&link.path).expect("removed");

    for mode in [0o777, 0o770, 0o1777] {
        let open = Runtime::new();
        std::fs::create_dir(&open.path).expect("made");
        std::fs::set_permissions(&open.path, std::fs::Permissions::from_mode(mode)).expect("set");
        refused(&open);
    }

    let file = Runtime::new();
    std::fs::write(&file.path, "").expect("written");
    refused(&file);
    std::fs::remove_file(&file.path).expect("removed");

    // A directory of another user: root's for an ordinary user, an ordinary user's for root.
    let mut foreign = Runtime::new();
    if is_root() {
        std::fs::create_dir(&foreign.path).expect("made");
        std::os::unix::fs::chown(&foreign.path, Some(40_999), Some(40_999)).expect("given away");
        refused(&foreign);
    } else {
        foreign.path = "/usr".into();
        refused(&foreign);
        foreign.path = "/nowhere-to-be-removed".into();
    }
}

/// E-23
#[test]
fn the_file_mode_mask_of_the_caller_changes_nothing() {
    for mask in ["000", "777", "077"] {
        let (ground, runtime) = (Ground::new(), Runtime::new());
        let manifest = serde_json::json!({
            "name": "x",
            "run": {"shell": "echo x >/scratch/out; umask; touch /tmp/f; stat -c %a /tmp/f"},
            "outputsFiles": {"out": {"path": "result.txt"}},
        });
        let bundle = ground.bundle(&[("manifest.json", &manifest.to_string())]);
        let workspace = ground.workspace();
        let words = [
            "exec",
            "--workspace",
            workspace.to_str().expect("plain"),
            bundle.to_str().expect("plain"),
        ];
        let mut case = runtime.command(&ground, &words);
        // The report belongs to the caller and follows the caller's umask: it exists already.
        for word in case
            .command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
        {
            if let Some(path) = word.strip_prefix("--json=") {
                std::fs::write(path, "").expect("written");
            }
        }
        case.behind(&["/bin/sh", "-c", &format!("umask {mask}; exec \"$@\""), "sh"]);
        let done = case.done();
        done.assert_exited(0);
        assert_eq!(done.text(), "0022\n644\n", "umask {mask}");
        let metadata = std::fs::metadata(workspace.join("result.txt")).expect("synced");
        assert_eq!(metadata.mode() & 0o7777, 0o644, "umask {mask}");
        let mode = std::fs::metadata(&runtime.path).expect("made").mode() & 0o7777;
        assert_eq!(mode, if is_root() { 0o711 } else { 0o700 }, "umask {mask}");
    }
}

/// E-23
#[test]
fn a_working_directory_that_is_gone_or_closed_changes_nothing() {
    let ground = Ground::new();
    let gone = ground.path("gone");
    let script = format!(
        "mkdir {0} && cd {0} && rmdir {0} && exec \"$@\"",
        gone.display()
    );
    let mut case = ground.command(&["run", "--", "/bin/pwd"]);
    case.behind(&["/bin/sh", "-c", &script, "sh"]);
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "/home/runner\n");
}

/// E-23
#[test]
fn strange_variables_of_the_caller_change_nothing() {
    let ground = Ground::new();
    let mut case = ground.command(&["run", "--", "/usr/bin/env"]);
    case.command
        .env_remove("HOME")
        .env("TZ", "../../x")
        .env("LC_ALL", "C")
        .env("LANG", "\u{7f}")
        .env("LD_PRELOAD", "/nonexistent.so")
        .env("RUST_BACKTRACE", "full")
        .env("BASH_ENV", "/nonexistent")
        .env("IFS", "x");
    let done = case.done();
    done.assert_exited(0);
    for name in [
        "TZ=",
        "LC_ALL=",
        "LD_PRELOAD=",
        "RUST_BACKTRACE=",
        "BASH_ENV=",
        "IFS=",
    ] {
        assert!(!done.text().contains(name), "{}", done.text());
    }
    assert!(
        done.text().contains("HOME=/home/runner\n"),
        "{}",
        done.text()
    );
    assert!(done.text().contains("LANG=C.UTF-8\n"), "{}", done.text());
}

/// E-24
#[test]
fn an_empty_argument_vector_is_wrong_usage_and_no_crash() {
    let text = "#include <unistd.h>
        int main(int argc, char **argv) { char *none[] = { 0 }; execv(argv[1], none); return 99 + argc; }";
    let program = c_body("no-arguments", text);
    let output = std::process::Command::new(program)
        .arg(support::runner())
        .output()
        .expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(
        words.contains("Usage") && !words.contains("panicked"),
        "{words}"
    );
}

/// B-03 for the caller's descriptors: open descriptors of the caller do not reach the body.
#[test]
fn descriptors_that_the_caller_leaves_open_do_not_reach_the_body() {
    let ground = Ground::new();
    let mut case = ground.command(&["run", "--", "/bin/ls", "/proc/self/fd"]);
    case.behind(&[
        "/bin/bash",
        "-c",
        "exec 5</etc/passwd 9</ 17>/dev/null 200</; exec \"$@\"",
        "sh",
    ]);
    let done = case.done();
    done.assert_exited(0);
    // 3 is the directory that ls itself reads.
    assert_eq!(done.text(), "0\n1\n2\n3\n");
}
