//! Each system call of a run fails once, with each errno in turn. The run either is as without the
//! fault, because the call does not matter or is repeated; or it reports the failure, and no body
//! ran with less confinement.

use rustix::io::Errno;

use crate::crew::{each, sample};
use crate::harmless::why_harmless;
use crate::scene::{Scene, Stage, lasting};
use crate::tracer::{Act, Point, Role, Trace};
use support::{skip, tier_includes};

/// The errnos of a host without resources.
const ERRNOS: [(Errno, &str); 6] = [
    (Errno::PERM, "EPERM"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::MFILE, "EMFILE"),
    (Errno::INTR, "EINTR"),
    (Errno::AGAIN, "EAGAIN"),
];
/// Calls that cannot fail, or not in this way: close(2) closes whatever it returns, and brk(2)
/// returns an address.
const NEVER_FAIL: [&str; 9] = [
    "brk",
    "close",
    "exit_group",
    "getegid",
    "geteuid",
    "getpid",
    "munmap",
    "umask",
    "uname",
];

/// The result of a run with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// The call was not reached: the processes ran in another order.
    Missed,
    /// As without the fault.
    Same,
    /// The body ran, and the report or a warning names the difference.
    Told,
    /// Only an error.
    Failed,
}

/// The verdict on a run with a fault.
#[derive(Debug)]
struct Judged {
    ending: Ending,
    /// Violations.
    wrongs: Vec<String>,
    said: String,
}

struct Undisturbed {
    report: serde_json::Value,
    stdout: Vec<u8>,
    stderr: String,
    trace: Trace,
}

/// The calls where a fault is possible: those of the runner's own code, not of the start of the C library.
pub fn points(trace: &Trace) -> Vec<Point> {
    let first = trace
        .points
        .iter()
        .position(|point| point.role == Role::Supervisor && point.name() == "fcntl")
        .expect("the program begins with its descriptors");
    trace.points[first..]
        .iter()
        .filter(|point| !NEVER_FAIL.contains(&point.name()))
        // GRND_INSECURE: the keys of Rust's maps, for which the kernel always has random bytes.
        .filter(|point| (point.name(), &*point.detail) != ("getrandom", "flags=4"))
        // The supervisor goes back to its own OOM score, which the kernel always allows.
        .filter(|point| !(point.name() == "write" && point.detail.ends_with(",0")))
        .cloned()
        .collect()
}

fn judge(stage: &Stage, usual: &Undisturbed, point: &Point, errno: Errno) -> Judged {
    let scene = Scene::new();
    let played = scene.play(stage, Some((point, Act::Fail(errno))));
    let (done, trace) = (&played.done, &played.trace);
    let mut wrongs = Vec::new();
    let mut said = done.stderr.trim().to_owned();
    if !trace.hit {
        return Judged {
            ending: Ending::Missed,
            wrongs,
            said,
        };
    }
    let ran = !trace.body.is_empty();
    let weaker = differing_axes(&usual.report, &done.report);
    if ran {
        let missing: Vec<&String> = usual
            .trace
            .body
            .iter()
            .filter(|fact| !trace.body.contains(fact))
            // Limits that the report calls absent are not expected.
            .filter(|fact| !is_of(&weaker, fact))
            // An additional group is harmless.
            .filter(|fact| !of_a_group(&trace.body, fact) && !only_counts(fact))
            .collect();
        if !missing.is_empty() {
            wrongs.push(format!("body_ran_wrongly: {missing:?}"));
        }
    }
    if done.stderr.contains("panicked") || done.code == 98 || [101, 134, 139].contains(&done.code) {
        wrongs.push(format!("a panic or a hang: code {}", done.code));
    }
    wrongs.extend(scene.torn());
    let strangers = scene.strangers();
    if !strangers.is_empty() {
        wrongs.push(format!("leaked: {strangers:?}"));
    }
    let ending = match done.outcome() {
        "exited" if done.code == 0 => {
            if words_besides(&weaker, &done.stdout) != words_besides(&weaker, &usual.stdout) {
                wrongs.push(format!("the body said {:?}", done.text()));
            }
            wrongs.extend(scene.unsaid(&done.report));
            if lasting(&done.report) == lasting(&usual.report) && done.stderr == usual.stderr {
                Ending::Same
            } else {
                said = format!(
                    "{said} {}",
                    difference(&lasting(&usual.report), &lasting(&done.report))
                );
                Ending::Told
            }
        }
        "failed" | "refused" => {
            if ![125, 126, 127].contains(&done.code) {
                wrongs.push(format!(
                    "exit code {} of a run that {}",
                    done.code,
                    done.outcome()
                ));
            }
            Ending::Failed
        }
        "no report" if done.code == 125 => Ending::Failed,
        "exited" if done.code == 125 && done.stderr.contains("(report_unwritable)") => {
            Ending::Failed
        }
        other => {
            wrongs.push(format!("outcome {other}, exit code {}", done.code));
            Ending::Failed
        }
    };
    if ending == Ending::Failed {
        let lines: Vec<&str> = done
            .stderr
            .lines()
            .filter(|line| line.starts_with("runner: "))
            .collect();
        let errors = lines.iter().filter(|line| {
            line.starts_with("runner: failed: ") || line.starts_with("runner: refused: ")
        });
        if errors.count() != 1 {
            wrongs.push("not one line that says what failed".into());
        }
    }
    let runs = scene.records();
    if !runs.is_empty() && !said.contains("warning") && ending != Ending::Failed {
        wrongs.push(format!("leaked without a word: {runs:?}"));
    }
    scene.start_again();
    scene.assert_nothing_left(&runs);
    Judged {
        ending,
        wrongs,
        said,
    }
}

/// The facts and lines of the body that each axis of the confinement determines.
const OF_AXES: [(&str, &[&str]); 16] = [
    ("user_namespace", &["namespace user "]),
    ("mount_namespace", &["namespace mnt "]),
    ("pid_namespace", &["namespace pid "]),
    ("network_namespace", &["namespace net "]),
    ("ipc_namespace", &["namespace ipc "]),
    ("uts_namespace", &["namespace uts "]),
    ("cgroup_namespace", &["namespace cgroup "]),
    ("time_namespace", &["namespace time "]),
    ("no_new_privs", &["status NoNewPrivs:"]),
    ("capabilities", &["status Cap"]),
    (
        "seccomp",
        &["status Seccomp", "unshare refused", "raw socket refused"],
    ),
    ("landlock", &["layers left "]),
    ("memory", &[":memory:", "limits Max data size "]),
    ("processes", &[":pids:", "limits Max processes "]),
    ("cpu_share", &[":cpu,", ":cpu:"]),
    (
        "cpu_time",
        &[":cpuacct", ",cpuacct", "limits Max cpu time "],
    ),
];

/// The axes on which two reports differ.
fn differing_axes(usual: &serde_json::Value, other: &serde_json::Value) -> Vec<String> {
    let axes = |report: &serde_json::Value| {
        let axes = report["enforcement"].as_object();
        axes.cloned().unwrap_or_default()
    };
    let (usual, other) = (axes(usual), axes(other));
    type Axes = serde_json::Map<String, serde_json::Value>;
    let one_sided = |all: &Axes, some: &Axes| -> Vec<String> {
        let left = all
            .iter()
            .filter(|(axis, held)| some.get(*axis) != Some(held));
        left.map(|(axis, _)| axis.clone()).collect()
    };
    let mut axes = one_sided(&usual, &other);
    axes.extend(one_sided(&other, &usual));
    axes
}

/// Whether one of `axes` determines a fact of the body or a line that it printed.
fn is_of(axes: &[String], line: &str) -> bool {
    OF_AXES
        .iter()
        .filter(|(axis, _)| axes.iter().any(|other| other == axis))
        .flat_map(|(_, parts)| *parts)
        .any(|part| line.starts_with(part) || part.starts_with([':', ',']) && line.contains(part))
}

fn words_besides(axes: &[String], stdout: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stdout);
    let lines = text.lines().filter(|line| !is_of(axes, line));
    lines.map(str::to_owned).collect()
}

/// Whether `fact` is about a cgroup without counters and limits.
fn only_counts(fact: &str) -> bool {
    fact.contains(":cpuacct:") || fact.starts_with("cgroup 0::")
}

/// Whether `fact` says that the body is outside a group of a hierarchy in which it is in one here.
fn of_a_group(facts: &[String], fact: &str) -> bool {
    let hierarchy = fact
        .strip_suffix('/')
        .filter(|fact| fact.starts_with("cgroup "));
    hierarchy.is_some_and(|hierarchy| {
        facts
            .iter()
            .any(|fact| fact.starts_with(hierarchy) && fact.ends_with("/of the run"))
    })
}

/// The fields in which two documents differ.
fn difference(usual: &serde_json::Value, other: &serde_json::Value) -> String {
    match (usual, other) {
        (serde_json::Value::Object(usual), serde_json::Value::Object(other)) => usual
            .iter()
            .filter(|(name, value)| other.get(*name) != Some(value))
            .map(|(name, value)| {
                let theirs = other.get(name).unwrap_or(&serde_json::Value::Null);
                format!("{name}: {}", difference(value, theirs))
            })
            .collect::<Vec<_>>()
            .join("; "),
        (serde_json::Value::Array(usual), serde_json::Value::Array(other)) => other
            .iter()
            .filter(|value| !usual.contains(value))
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        (_, other) => other.to_string(),
    }
}

/// Each errno at each kind of call, and one at each call that resembles two before it.
fn thorough(points: &[Point]) -> Vec<(Point, (Errno, &'static str))> {
    let mut faults = Vec::new();
    for (number, point) in points.iter().enumerate() {
        let alike = |other: &&Point| {
            (other.role, other.call, &other.detail) == (point.role, point.call, &point.detail)
        };
        let known = points[..number].iter().filter(alike).count();
        if known < 2 {
            faults.extend(ERRNOS.map(|errno| (point.clone(), errno)));
        } else {
            faults.push((point.clone(), ERRNOS[number % ERRNOS.len()]));
        }
    }
    faults
}

/// E-10, D-28
#[test]
fn a_failed_call_has_no_effect_or_ends_the_run_without_an_unconfined_body() {
    if !cfg!(target_arch = "x86_64") {
        return skip("the tracer knows the registers of x86_64 only");
    }
    let stage = Stage::new(0);
    let played = stage.undisturbed();
    let usual = Undisturbed {
        report: played.done.report,
        stdout: played.done.stdout,
        stderr: played.done.stderr,
        trace: played.trace,
    };
    let all = points(&usual.trace);
    let faults: Vec<(Point, (Errno, &str))> = if tier_includes("long") {
        thorough(&all)
    } else {
        sample(&all)
            .into_iter()
            .zip(ERRNOS.iter().cycle())
            .map(|(point, errno)| (point.clone(), *errno))
            .collect()
    };
    let judged = each(&faults, |(point, (errno, _))| {
        judge(&stage, &usual, point, *errno)
    });
    let mut wrong = Vec::new();
    let count = |ending: Ending| {
        judged
            .iter()
            .filter(|judged| judged.as_ref().is_ok_and(|judged| judged.ending == ending))
            .count()
    };
    for ((point, (errno, name)), judged) in faults.iter().zip(&judged) {
        let place = format!("{point} = {name}");
        match judged {
            Err(panic) => wrong.push(format!("{place}: {panic}")),
            Ok(judged) => {
                println!("{:?}: {place}: {}", judged.ending, judged.said);
                for one in &judged.wrongs {
                    wrong.push(format!("{place}: {one}: {:.300}", judged.said));
                }
                if judged.ending == Ending::Same && why_harmless(point, *errno).is_none() {
                    wrong.push(format!(
                        "{place}: nobody noticed, and it is not listed as harmless"
                    ));
                }
            }
        }
    }
    println!(
        "faults: injected={} missed={} same={} told={} failed={} wrong={}",
        faults.len(),
        count(Ending::Missed),
        count(Ending::Same),
        count(Ending::Told),
        count(Ending::Failed),
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let missed = count(Ending::Missed);
    assert!(
        missed < faults.len() / 2,
        "{missed} of {} missed",
        faults.len()
    );
}

/// B-50, E-10: mounted paths are compared with a cache behind a link. If the host fails to resolve
/// the link, the runner cannot know that they differ.
#[test]
fn the_cache_is_never_mounted_whatever_call_fails() {
    if !cfg!(target_arch = "x86_64") {
        return skip("the tracer knows the registers of x86_64 only");
    }
    let stage = Stage::new(0);
    let refused = Scene::that_lends_its_cache().play(&stage, None);
    refused.done.assert_error("refused", "mount_holds_cache");
    assert_eq!(refused.trace.body, Vec::<String>::new(), "the body was run");
    let mut all = points(&refused.trace);
    all.retain(|point| point.role == Role::Supervisor);
    let faults: Vec<(Point, (Errno, &str))> = if tier_includes("long") {
        thorough(&all)
    } else {
        // The calls that check the paths, and those that end the unused prefork.
        let matters = |point: &&Point| {
            point.detail.contains("/ground-")
                || ["pidfd_send_signal", "wait4"].contains(&point.name())
        };
        all.iter()
            .filter(matters)
            .flat_map(|point| [ERRNOS[0], ERRNOS[1]].map(|errno| (point.clone(), errno)))
            .collect()
    };
    assert!(!faults.is_empty(), "no call has a path of the ground");
    let judged = each(&faults, |(point, (errno, _))| {
        lending(&stage, point, *errno)
    });
    let mut wrong = Vec::new();
    for ((point, (_, name)), judged) in faults.iter().zip(judged) {
        let found = judged.unwrap_or_else(Some);
        wrong.extend(found.map(|one| format!("{point} = {name}: {one:.300}")));
    }
    println!("faults: injected={} wrong={}", faults.len(), wrong.len());
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// What is wrong with a run that mounts its cache, with a fault in it.
fn lending(stage: &Stage, point: &Point, errno: Errno) -> Option<String> {
    let scene = Scene::that_lends_its_cache();
    let played = scene.play(stage, Some((point, Act::Fail(errno))));
    let done = &played.done;
    let ran = !played.trace.body.is_empty() || !done.stdout.is_empty();
    let is_told = matches!(done.outcome(), "refused" | "failed" | "no report");
    let torn = scene.torn();
    let runs = scene.records();
    scene.start_again();
    scene.assert_nothing_left(&runs);
    let (outcome, code, said) = (done.outcome(), done.code, &done.stderr);
    if ran {
        Some(format!("the body ran: {said}"))
    } else if !is_told || code != 125 {
        Some(format!("{outcome}, exit code {code}: {said}"))
    } else {
        torn
    }
}
