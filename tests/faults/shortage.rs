//! Hosts without a resource: disk space, inodes, descriptors, processes, address space; and
//! read-only hosts.

use std::process::Command;

use crate::crew::each;
use crate::scene::{Played, Scene, Stage};
use support::{is_root, runner, skip, tier_includes};

/// What is wrong with a run under a shortage: it must be as usual, or report what is missing, and
/// leave nothing incomplete.
fn wrongs(stage: &Stage, usual: &Played, before: &[String]) -> (String, Vec<String>) {
    let scene = Scene::new();
    let done = scene.done(stage, before);
    let mut wrong = Vec::new();
    match done.outcome() {
        "exited" if done.code == 0 => {
            if done.stdout != usual.done.stdout {
                wrong.push(format!("the body said {:?}", done.text()));
            }
            wrong.extend(scene.unsaid(&done.report));
        }
        "failed" | "refused" | "no report" if done.code == 125 => {
            let errors = ["runner: failed: ", "runner: refused: "];
            let lines = done.stderr.lines();
            let lines = lines.filter(|line| errors.iter().any(|error| line.starts_with(error)));
            if lines.count() != 1 {
                wrong.push(format!(
                    "not one line that says what failed: {}",
                    done.stderr
                ));
            }
            if !done.stdout.is_empty() && done.stdout != usual.done.stdout {
                wrong.push(format!("the body said {:?}", done.text()));
            }
        }
        other => wrong.push(format!("{other}, exit code {}: {}", done.code, done.stderr)),
    }
    if done.stderr.contains("panicked") {
        wrong.push(format!("a panic: {}", done.stderr));
    }
    wrong.extend(scene.torn());
    let runs = scene.records();
    scene.start_again();
    scene.assert_nothing_left(&runs);
    (
        format!("{} {}: {}", done.outcome(), done.code, done.stderr.trim()),
        wrong,
    )
}

/// Runs under each of `limits`, commands that end with the words to run. The name appears in messages.
fn under(name: &str, limits: &[Vec<String>]) {
    let stage = Stage::new(0);
    let usual = stage.undisturbed();
    let said = each(limits, |limit| wrongs(&stage, &usual, limit));
    assert_none_wrong(name, limits.iter().map(|limit| limit.join(" ")).zip(said));
}

/// The report of a run, and what is wrong with it; the message of a panic.
type Said = Result<(String, Vec<String>), String>;

#[track_caller]
fn assert_none_wrong(name: &str, all: impl Iterator<Item = (String, Said)>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for (one, said) in all {
        count += 1;
        match said {
            Ok((said, found)) => {
                println!("{one}: {said}");
                wrong.extend(found.iter().map(|found| format!("{one}: {found}")));
            }
            Err(panic) => wrong.push(format!("{one}: {panic}")),
        }
    }
    println!("faults: {name}={count} wrong={}", wrong.len());
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// prlimit(1) with one limit.
fn limited(resource: &str, most: usize) -> Vec<String> {
    vec!["prlimit".to_owned(), format!("--{resource}={most}")]
}

/// E-10
#[test]
fn a_run_with_few_descriptors_is_as_ever_or_says_that_they_are_too_few() {
    let step = if tier_includes("long") { 1 } else { 7 };
    let limits: Vec<_> = (3..=64)
        .step_by(step)
        .map(|most| limited("nofile", most))
        .collect();
    under("few_descriptors", &limits);
}

/// Limits on `resource`, from the lowest with which the program prints its version.
fn from_the_least(resource: &str, step_bytes: usize, count: usize) -> Vec<Vec<String>> {
    // With a limit below its own size, the program cannot print anything.
    let starts = |steps: usize| {
        let words = limited(resource, steps * step_bytes);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(runner()).arg("--version");
        command.output().expect("started").status.success()
    };
    // In steps; with more than it needs, it starts as well.
    let (mut too_few, mut enough) = (0, (200 << 20) / step_bytes);
    assert!(starts(enough), "it starts with 200 MiB");
    while enough - too_few > 1 {
        let middle = usize::midpoint(too_few, enough);
        if starts(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    let least = enough * step_bytes;
    let step = if tier_includes("long") { 1 } else { 8 };
    (0..count)
        .step_by(step)
        .map(|number| limited(resource, least + number * step_bytes))
        .collect()
}

/// E-10
#[test]
fn a_run_with_little_address_space_is_as_ever_or_says_that_it_is_too_little() {
    under("little_address_space", &from_the_least("as", 512 << 10, 64));
}

/// E-10: the shortage begins at any point of a run.
#[test]
fn a_run_with_little_data_is_as_ever_or_says_that_it_is_too_little() {
    under("little_data", &from_the_least("data", 8 << 10, 64));
}

/// E-10: with a limit on address space, the stack is allocated at the start.
#[test]
fn a_run_with_a_small_stack_is_as_ever_or_says_that_it_is_too_small() {
    let sizes = [64, 256, 1024, 1536, 2047, 2048, 8192].map(|kib| kib << 10);
    let alone = sizes.map(|most| limited("stack", most));
    let both = sizes.map(|most| {
        let mut words = limited("stack", most);
        words.push(format!("--as={}", 512 << 20));
        words
    });
    under("small_stack", &[alone, both].concat());
}

/// E-10: the limit does not apply to root, and for an ordinary user it covers all processes.
#[test]
fn a_run_with_few_processes_is_as_ever_or_says_that_they_are_too_few() {
    let limits = [0, 1, 2, 3, 8, 64].map(|most| limited("nproc", most));
    under("few_processes", &limits);
}

/// A directory that the runner writes: its name on the ground, which a flag or variable passes to the run.
const PLACES: [(&str, &str); 4] = [
    ("work", ""),
    ("cache", "RUNNER_OPT_CACHE_DIRECTORY"),
    ("runtime", "RUNNER_OPT_RUNTIME_DIRECTORY"),
    ("temporary", "TMPDIR"),
];
/// The fault of its file system, and the commands that cause it, in the directory itself.
const DEFECTS: [(&str, &str, &str); 3] = [
    (
        "full disk",
        "size=64k",
        "cat /dev/zero > filler 2> /dev/null",
    ),
    (
        "no inodes",
        "nr_inodes=8",
        "i=0; while touch filler-$i; do i=$((i+1)); done 2> /dev/null",
    ),
    ("read-only", "size=64k", "mount -o remount,bind,ro ."),
];

/// E-10, D-21
#[test]
fn a_full_disk_is_named_and_destroys_no_file() {
    let unshare: &[&str] = if is_root() { &["-m"] } else { &["-Urm"] };
    let probe = Command::new("unshare")
        .args(unshare)
        .args(["mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    if !probe.is_ok_and(|done| done.status.success()) {
        return skip("this user cannot mount a tmpfs in a namespace of its own");
    }
    let stage = Stage::new(64 << 10);
    let usual = stage.undisturbed();
    let cases: Vec<(usize, usize)> = (0..PLACES.len())
        .flat_map(|place| (0..DEFECTS.len()).map(move |defect| (place, defect)))
        .collect();
    let said = each(&cases, |(place, defect)| {
        on_defect(&stage, &usual, unshare, *place, *defect)
    });
    let names = cases
        .iter()
        .map(|(place, defect)| format!("{}, {}", PLACES[*place].0, DEFECTS[*defect].0));
    assert_none_wrong("bad_disk", names.zip(said));
}

fn on_defect(
    stage: &Stage,
    usual: &Played,
    unshare: &[&str],
    place: usize,
    defect: usize,
) -> (String, Vec<String>) {
    let (name, variable) = PLACES[place];
    let (_, options, make) = DEFECTS[defect];
    // Below the mount are the earlier contents; the namespace itself checks the leftovers on the
    // mount, with exit codes from 90.
    let script = format!(
        "set -e; cd \"$FAULTS_GROUND\"; mkdir -p -m 711 {name}; \
         mount -t tmpfs -o {options},mode=711 none {name}; cd {name}; \
         if [ {name} = work ]; then echo new > in.txt; echo old > old.txt; fi; \
         if [ {name} = cache ]; then chmod 700 .; fi; \
         {{ {make}; }} || :; cd ..; \
         if [ {name} = temporary ]; then export RUNNER_OPT_KEEP=true; fi; \
         [ -z \"{variable}\" ] || export {variable}=\"$PWD/{name}\"; \
         code=0; \"$@\" || code=$?; \
         if [ {name} = work ]; then \
           [ \"$(cat work/old.txt)\" = old ] || code=90; \
           for file in work/.runner-*.tmp; do [ ! -e \"$file\" ] || code=91; done; \
         fi; \
         cp -a work/. result; \
         exit $code"
    );
    let mut before: Vec<String> = vec!["unshare".into()];
    before.extend(unshare.iter().map(|word| (*word).to_owned()));
    before.extend(["sh", "-c", &script, "sh"].map(str::to_owned));
    wrongs(stage, usual, &before)
}
