//! Init that a body takes over: it has the body's rights, and the supervisor believes it nothing else than
//! how the body ended.

use std::time::Duration;

use super::Scene;
use attacker::{Answer, Attack};
use rustix::process::Signal;
use support::invariants::{eventually, processes_of};
use support::network::PYTHON;
use support::processes::{confined_child, is_gone, send, supervisors};
use support::{Case, Done, is_root, text};

const SCRIPT: &str = include_str!("../bodies/takeover/init.py");
/// Kinds of messages that init sends, and others. In turn: a pid, a wait status, an errno.
const KINDS: std::ops::RangeInclusive<u32> = 0..=24;
const ENDED: u32 = 5;
/// An unknown one, those of which init ends, and those of connections and commands.
const STAYING_KINDS: [u32; 7] = [0, ENDED, 7, 9, 11, 12, 13];
/// Besides its link, the locks of the run and its signals: the body's processes (kill(2) with pid 0, that of its
/// own group), and connections in the network of the run.
const REACHED: &str = "kill, socket inet, sendmsg, recvmsg";

fn case<'scene>(scene: &'scene Scene, flags: &[&str], attack: &Attack) -> Case<'scene> {
    let notes = if attack.notes { "notes" } else { "none" };
    let attack = attack.on("init");
    let words = [
        &["run", "--timeout=60s", "--grace=100ms"][..],
        flags,
        &["--", PYTHON, "-c", SCRIPT, &attack, notes],
    ]
    .concat();
    scene.command(&words)
}

fn message(kind: u32, values: [i32; 3]) -> Vec<u8> {
    let values = values.iter().flat_map(|value| value.to_ne_bytes());
    kind.to_ne_bytes().into_iter().chain(values).collect()
}

fn forging(bytes: Vec<u8>) -> Attack {
    Attack {
        answer: Answer {
            before: bytes,
            ..Answer::default()
        },
        ..Attack::default()
    }
}

/// Notes what it reaches, tells nothing, and stays.
fn exploring(scene: &Scene) -> Attack {
    let mut attack = scene.attack(Answer::default());
    // The run has a `/tmp` of its own.
    let directories = &mut attack.surroundings.directories;
    directories.retain(|directory| *directory != std::env::temp_dir());
    Attack {
        notes: true,
        stays: true,
        ..attack
    }
}

/// less than the body.
#[test]
fn init_that_is_taken_over_reaches_its_link_and_its_children() {
    let Some(scene) = Scene::new() else { return };
    // Nothing is sent: the supervisor believes that the body runs, until the time is over.
    let done = case(&scene, &["--timeout=2s"], &exploring(&scene)).done();
    assert_eq!(done.outcome(), "timed_out", "{done:#?}");
    // The locks of root's run are its record and its uid.
    let locks = if is_root() { 2 } else { 1 };
    let reached = format!("has 1 sockets and {locks} files and 1 others, {REACHED}");
    assert_eq!(done.text().trim(), reached);
    scene.assert_untouched();
}

/// of a message that init never sends, of one that lies, and of one that is none.
#[test]
fn forged_messages_of_init_end_the_run_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    for kind in KINDS {
        for values in [[0; 3], [1, 9, 5], [-1, i32::MIN, i32::MAX]] {
            assert_ended(
                &scene,
                kind,
                &case(&scene, &[], &forging(message(kind, values))).done(),
            );
        }
    }
    for length in [1, 15, 17, 4096] {
        assert_ended(
            &scene,
            0,
            &case(&scene, &[], &forging(vec![1; length])).done(),
        );
    }
    let mut flood = forging(message(7, [1, 0, 0]));
    flood.answer.is_endless = true;
    let done = case(&scene, &["--timeout=2s"], &flood).done();
    assert_eq!(done.outcome(), "timed_out", "{done:#?}");
    scene.assert_untouched();
}

#[track_caller]
fn assert_ended(scene: &Scene, kind: u32, done: &Done) {
    let outcome = done.outcome();
    let is_right = match kind {
        // Whatever the body says of its own end.
        ENDED => ["exited", "signaled"].contains(&outcome),
        _ => ["failed", "signaled"].contains(&outcome),
    };
    assert!(is_right, "{kind}: {done:#?}");
    scene.assert_untouched();
}

/// Sends a message, and does not exit.
fn staying(kind: u32) -> Attack {
    Attack {
        stays: true,
        ..forging(message(kind, [0; 3]))
    }
}

/// after any message, although it does not exit.
#[test]
fn init_that_is_taken_over_does_not_outlive_the_run() {
    let Some(scene) = Scene::new() else { return };
    for kind in STAYING_KINDS {
        let attack = staying(kind);
        let done = case(&scene, &["--timeout=1s"], &attack)
            .with_patience(Duration::from_secs(10))
            .done();
        assert!(
            ["exited", "failed", "timed_out"].contains(&done.outcome()),
            "{done:#?}"
        );
        assert_ne!(done.report["error"]["code"], "unkillable", "{done:#?}");
    }
    scene.assert_untouched();
}

/// A-69, E-01.
#[test]
fn init_that_is_taken_over_does_not_outlive_a_supervisor_that_ends() {
    let Some(scene) = Scene::new() else { return };
    let mut running = case(&scene, &[], &exploring(&scene)).start();
    // What init notes.
    running.until_printed(1);
    let init = confined_child(running.pid());
    running.signal(Signal::TERM);
    let done = running.done();
    assert_eq!(done.outcome(), "cancelled", "{done:#?}");
    eventually("init has ended", || is_gone(init));
}

/// A-69, E-01: it cannot clear its death signal.
#[test]
fn init_that_is_taken_over_does_not_outlive_a_killed_supervisor() {
    let Some(scene) = Scene::new() else { return };
    let mut running = case(&scene, &[], &exploring(&scene)).start();
    // What init notes, after it has tried everything.
    running.until_printed(1);
    let init = confined_child(running.pid());
    running.signal(Signal::KILL);
    eventually("init has ended", || is_gone(init));
    let removed = scene.output(&scene.ground.path(""), &["gc"]);
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    scene.assert_untouched();
}

/// nor the end of a sandbox that stays.
#[test]
fn init_of_a_sandbox_that_stays_ends_with_it() {
    let Some(scene) = Scene::new() else { return };
    let runtime = scene.ground.path("runtime");
    let say =
        |words: &[&str]| scene.output(&scene.ground.path(""), &[&["sandbox"], words].concat());
    for kind in STAYING_KINDS {
        let created = say(&["create", "--name", "one", "--no-record", "--grace=100ms"]);
        assert_eq!(created.status.code(), Some(0), "{created:?}");
        let attack = staying(kind).on("init");
        let begun = say(&[
            "exec", "-d", "one", "--", PYTHON, "-c", SCRIPT, &attack, "none",
        ]);
        assert_eq!(begun.status.code(), Some(0), "{begun:?}");
        // The supervisor may have ended the sandbox for the message.
        let removed = say(&["rm", "-f", "one"]);
        let problem = String::from_utf8_lossy(&removed.stderr);
        let codes = ["no_sandbox", "sandbox_ending", "sandbox_unusable"];
        let is_ending = codes.iter().any(|code| problem.contains(code));
        assert!(removed.status.success() || is_ending, "{kind}: {removed:?}");
        let sockets = runtime.join("sandboxes");
        eventually("its socket is removed", || {
            let entries = std::fs::read_dir(&sockets).expect("listed");
            entries.count() == 0
        });
    }
    // The supervisor, which waits for init, ends after its socket is removed.
    eventually("no process of a sandbox is left", || {
        processes_of(text(&runtime), "").is_empty()
    });
    scene.assert_untouched();
}

/// A-69, E-31: it has cleared its death signal. The next start ends it.
#[test]
fn init_of_a_sandbox_that_stays_does_not_outlive_the_next_start() {
    let Some(scene) = Scene::new() else { return };
    let runtime = scene.ground.path("runtime");
    let say = |words: &[&str]| scene.output(&scene.ground.path(""), words);
    let created = say(&["sandbox", "create", "--name", "one", "--no-record"]);
    assert_eq!(created.status.code(), Some(0), "{created:?}");
    let attack = exploring(&scene).on("init");
    // Attached it would not end: init tells of no end any more.
    let words = [
        "sandbox", "exec", "-d", "one", "--", PYTHON, "-c", SCRIPT, &attack, "notes",
    ];
    let begun = say(&words);
    assert_eq!(begun.status.code(), Some(0), "{begun:?}");
    let id = String::from_utf8(begun.stdout).expect("text");
    eventually("init notes that it cleared its death signal", || {
        let told = say(&["sandbox", "logs", "one", id.trim()]);
        String::from_utf8_lossy(&told.stdout).contains("prctl")
    });
    let [supervisor] = supervisors(&runtime)[..] else {
        panic!("not one supervisor");
    };
    let init = confined_child(supervisor);
    send(supervisor, Signal::KILL);
    eventually("the supervisor has ended", || {
        supervisors(&runtime).is_empty()
    });
    assert!(!is_gone(init), "it cleared its death signal");
    let removed = say(&["gc"]);
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    eventually("init has ended", || is_gone(init));
    assert!(processes_of(text(&runtime), "").is_empty());
    scene.assert_untouched();
}
