//! Sandboxes that stay: many of them, many commands in one, and supervisors that are killed.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::flat::{Counted, adopt_orphans, children, kib};
use crate::harness::{Place, how_many, in_a_process_of_its_own};
use support::invariants::eventually;
use support::{is_root, random, runner};

const LANES: usize = 2;
/// Most memory of an idle sandbox (PSS of supervisor and init), in KiB: the program that is not optimised
/// needs more.
pub const IDLE_KIB_MAX: u64 = if cfg!(debug_assertions) {
    8 << 10
} else {
    3 << 10
};
/// How much a supervisor may grow over its commands, in KiB: the allocator keeps its memory.
pub const GROWTH_KIB_MAX: u64 = 128;

struct Host<'place>(&'place Place);

impl Host<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(runner());
        command
            .args(words)
            .env("RUNNER_OPT_STATE_DIRECTORY", self.0.files())
            .stdin(Stdio::null());
        command
    }

    fn say(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the runner starts")
    }

    #[track_caller]
    fn expect(&self, words: &[&str]) -> String {
        let said = self.say(words);
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8(said.stdout).expect("text")
    }

    /// What a supervisor and its cleanup make once: directories, a spare record.
    fn warm_up(&self) {
        self.create("first");
        self.expect(&["sandbox", "rm", "first"]);
        eventually("it has ended", || children().is_empty());
    }

    fn create(&self, name: &str) {
        let words = [
            "sandbox",
            "create",
            "--name",
            name,
            "--no-record",
            "-m",
            "64m",
        ];
        assert_eq!(self.expect(&words), format!("{name}\n"));
    }

    fn remove(&self, names: &[String]) {
        for names in names.chunks(100) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.expect(&[&["sandbox", "rm"], &names[..]].concat());
        }
    }
}

/// Calls `act` with each number below `count`, in a few threads.
pub fn in_lanes(count: usize, act: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        number if number < count => act(number),
                        _ => break,
                    }
                }
            });
        }
    });
}

pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("s{number}")).collect()
}

/// A random number below `count`.
fn below(count: usize) -> usize {
    usize::from_str_radix(&random()[..8], 16).expect("digits") % count
}

/// E-32.
#[test]
fn many_sandboxes_at_once_are_small_and_leave_nothing() {
    in_a_process_of_its_own(
        "sandboxes::many_sandboxes_at_once_are_small_and_leave_nothing",
        many_at_once,
    );
}

fn many_at_once(place: &Place) {
    adopt_orphans();
    let host = Host(place);
    host.warm_up();
    let count = how_many([50, 1_000, 1_000]);
    let before = Counted::look(place);
    let names = names(count);
    in_lanes(count, |number| host.create(&names[number]));
    let listed = host.expect(&["sandbox", "ls"]);
    assert_eq!(listed.lines().count(), count, "{listed}");
    in_lanes(count, |number| {
        let words = [
            "sandbox",
            "exec",
            &names[number],
            "--",
            "sh",
            "-c",
            "echo $0 > /tmp/x",
        ];
        host.expect(&words);
    });
    let kib = pss_kib(&children()) / u64::try_from(count).expect("small");
    host.remove(&names);
    let leaks = before.leaks(place);
    println!(
        "endurance: sandboxes={count} leaks={} pss_kib={kib}",
        leaks.len()
    );
    assert_eq!(leaks, [""; 0]);
    assert!(kib <= IDLE_KIB_MAX, "{kib} KiB for each sandbox");
}

/// The first process in the sandbox of each supervisor.
pub fn inits(supervisors: &[i32]) -> Vec<i32> {
    let children = supervisors.iter().flat_map(|pid| {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let pids = children.expect("readable");
        let pids = pids.split_whitespace();
        pids.map(|pid| pid.parse::<i32>().expect("a pid"))
            .collect::<Vec<_>>()
    });
    children.collect()
}

/// Of the supervisors, and of the inits if they can be read.
pub fn pss_kib(supervisors: &[i32]) -> u64 {
    let pss = |pid: &i32| kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
    let own: u64 = supervisors.iter().map(pss).sum();
    // An init is not dumpable: proc shows its memory to root alone.
    let inits = if is_root() {
        inits(supervisors)
    } else {
        Vec::new()
    };
    own + inits.iter().map(pss).sum::<u64>()
}

/// E-32.
#[test]
fn many_commands_in_one_sandbox_leave_its_supervisor_as_it_was() {
    in_a_process_of_its_own(
        "sandboxes::many_commands_in_one_sandbox_leave_its_supervisor_as_it_was",
        many_commands,
    );
}

fn many_commands(place: &Place) {
    adopt_orphans();
    let host = Host(place);
    host.warm_up();
    let before = Counted::look(place);
    host.create("one");
    let [supervisor] = children()[..] else {
        panic!("not one supervisor: {:?}", children());
    };
    let run = |number: usize| {
        let code = i32::try_from(number % 7).expect("small");
        // Some cannot be started, some are killed.
        let (words, code) = match number % 10 {
            0 => (&["/nosuch"][..], 127),
            1 => (&["sh", "-c", "kill -9 $$"][..], 137),
            _ => (&["sh", "-c", "exit $0"][..], code),
        };
        let text = code.to_string();
        let words = [&["sandbox", "exec", "one", "--"], words, &[&text]].concat();
        let said = host.say(&words);
        assert_eq!(said.status.code(), Some(code), "{words:?}: {said:?}");
    };
    in_lanes(100, run);
    let look = || {
        let descriptors = std::fs::read_dir(format!("/proc/{supervisor}/fd")).expect("readable");
        (
            descriptors.count(),
            kib(&format!("/proc/{supervisor}/status"), "RssAnon:"),
        )
    };
    eventually("the first commands are forgotten", || {
        host.expect(&["sandbox", "ls"]).contains(" 0 commands")
    });
    let (descriptors, resident_kib) = look();
    let count = how_many([500, 10_000, 100_000]);
    in_lanes(count, run);
    eventually("the descriptors of the clients are closed", || {
        look().0 <= descriptors
    });
    let growth_kib = look().1.saturating_sub(resident_kib);
    host.remove(&["one".to_owned()]);
    let leaks = before.leaks(place);
    println!(
        "endurance: commands={count} leaks={} growth_kib={growth_kib}",
        leaks.len()
    );
    assert_eq!(leaks, [""; 0]);
    assert!(
        growth_kib <= GROWTH_KIB_MAX,
        "the supervisor grew by {growth_kib} KiB"
    );
}

/// E-31: a third of the supervisors, while commands run.
#[test]
fn killed_supervisors_are_cleaned_up_and_the_others_go_on() {
    in_a_process_of_its_own(
        "sandboxes::killed_supervisors_are_cleaned_up_and_the_others_go_on",
        kill_a_third,
    );
}

fn kill_a_third(place: &Place) {
    adopt_orphans();
    let host = Host(place);
    host.warm_up();
    let count = how_many([30, 300, 1_000]);
    let before = Counted::look(place);
    let names = names(count);
    in_lanes(count, |number| {
        host.create(&names[number]);
        host.expect(&[
            "sandbox",
            "exec",
            "-d",
            &names[number],
            "--",
            "sleep",
            "600",
        ]);
    });
    let mut supervisors = children();
    assert_eq!(supervisors.len(), count);
    let mut killed = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                // Its sandbox may be one that is killed now.
                host.say(&["sandbox", "exec", &names[below(count)], "--", "true"]);
            }
        });
        while killed.len() < count / 3 {
            let pid = supervisors.swap_remove(below(supervisors.len()));
            let process = Pid::from_raw(pid).expect("a pid");
            kill_process(process, Signal::KILL).expect("killed");
            killed.insert(pid);
        }
    });
    supervisors.sort_unstable();
    // A sandbox lives as long as its init: the next start does not clean up one that is still ending.
    eventually("the killed ones have ended", || children() == supervisors);
    host.expect(&["run", "--no-record", "--", "true"]);
    let listed = host.expect(&["sandbox", "ls"]);
    let alive: Vec<String> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert_eq!(alive.len(), count - killed.len(), "{listed}");
    for part in ["runs", "sandboxes"] {
        let files = std::fs::read_dir(place.runtime().join(part)).expect("readable");
        let files = files.map(|file| file.expect("readable").file_name());
        let left = files.filter(|name| !name.to_string_lossy().starts_with('.'));
        assert_eq!(left.count(), alive.len(), "{part}");
    }
    in_lanes(alive.len(), |number| {
        host.expect(&["sandbox", "exec", &alive[number], "--", "pkill", "sleep"]);
    });
    for name in &alive {
        eventually("its command has ended", || {
            host.say(&["sandbox", "rm", name]).status.success()
        });
    }
    let leaks = before.leaks(place);
    println!(
        "endurance: sandboxes_killed={} of={count} leaks={}",
        killed.len(),
        leaks.len()
    );
    assert_eq!(leaks, [""; 0]);
}
