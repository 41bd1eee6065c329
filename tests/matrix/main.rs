//! The same hostile bodies under this program and under other tools. An attack that another tool
//! prevents and this program does not is a failure; an attack that no tool prevents is listed.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod cases;
mod page;
mod scene;
mod tools;

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cases::{CASES, Case, Judge};
use scene::Scene;
use tools::{TOOLS, Tool};

/// A tool that takes longer hangs. Not an assertion about speed.
const HANG_AFTER: Duration = Duration::from_secs(60);
/// How long a process may survive its tool.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The attack failed; holds the reason, from the body or the host.
    Held(String),
    /// The attack succeeded; holds its result.
    Through(String),
    /// The case belongs to a higher tier.
    NotTried,
    /// The body did not start: the result is unknown.
    NotStarted(String),
}

/// The results of all bodies under one tool, in the order of [`CASES`].
#[derive(Debug)]
pub struct Column {
    tool: Tool,
    verdicts: Vec<Verdict>,
}

impl Column {
    /// Prints the results of a tool.
    fn told(&self) -> Vec<String> {
        let each = CASES.iter().zip(&self.verdicts);
        each.map(|(case, verdict)| format!("{} | {} | {verdict:?}", self.tool.name(), case.name))
            .collect()
    }
}

fn hostile() -> PathBuf {
    support::bodies::c_body("hostile", include_str!("hostile.c"))
}

/// Runs one body under one tool with its common options.
fn judge(case: &Case, tool: Tool, scene: &mut Scene) -> Verdict {
    judge_with(case, tool, scene, &[])
}

/// The same with further flags of the runner.
fn judge_with(case: &Case, tool: Tool, scene: &mut Scene, more: &[&str]) -> Verdict {
    let told = scene.path("told");
    let mut command = tool.command(case, scene, more);
    let file = File::create(&told).expect("made");
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a descriptor"))
        .stderr(File::create(scene.path("said")).expect("made"));
    let mut child = command.spawn().expect("the tool starts");
    if case.judge == Judge::KilledParent {
        let lines = || std::fs::read_to_string(&told).unwrap_or_default();
        wait_until(&mut child, || lines().contains("waiting"));
        child.kill().expect("killed");
    }
    let status = wait(&mut child);
    let text = read(&told);
    let verdict = if text.lines().any(|line| line.ends_with("begun")) {
        decide(case, tool, scene, &text, status)
    } else {
        let said = read(&scene.path("said"));
        let line = said.lines().chain(text.lines()).next().unwrap_or_default();
        Verdict::NotStarted(format!("{status}: {line}"))
    };
    scene.mend();
    tool.clean_up(case, scene);
    verdict
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn wait(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waited") {
            return status;
        }
        if HANG_AFTER < started.elapsed() {
            child.kill().expect("killed");
            panic!("a tool hangs: {}", child.id());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wait_until(child: &mut Child, ready: impl Fn() -> bool) {
    let started = Instant::now();
    while !ready() && started.elapsed() < HANG_AFTER {
        if child.try_wait().expect("waited").is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Evidence from the host, or the line of the body.
fn decide(case: &Case, tool: Tool, scene: &mut Scene, text: &str, status: ExitStatus) -> Verdict {
    // A body that nothing would end is not waited for.
    let patience = if tool == Tool::Bare {
        Duration::from_millis(50)
    } else {
        PATIENCE
    };
    let through = |is_through: bool, what: &str| {
        if is_through {
            Verdict::Through(what.to_owned())
        } else {
            Verdict::Held(last_words(text, status))
        }
    };
    match case.judge {
        Judge::Canary => through(scene.canary_changed(), "the file changed"),
        Judge::Victim => {
            // Output arrives a little later.
            let patience = if text.contains("it killed") {
                PATIENCE
            } else {
                Duration::ZERO
            };
            through(scene.victim_ended_within(patience), "the process ended")
        }
        Judge::OutputMib(least) => through(least << 20 <= text.len() as u64, "all of it arrived"),
        Judge::Leftover | Judge::KilledParent => {
            through(scene.bodies_stay(patience), "the process lives on")
        }
        Judge::Line | Judge::LineOnTerminal | Judge::LineWithDescriptor => {
            let got = text.lines().find_map(|line| after(line, "got: "));
            through(got.is_some(), got.unwrap_or_default())
        }
    }
}

/// The rest of the line; a terminal may have put something before it.
fn after<'line>(line: &'line str, word: &str) -> Option<&'line str> {
    line.split_once(word).map(|(_, rest)| rest.trim())
}

/// The last line of the body; without one, how it ended.
fn last_words(text: &str, status: ExitStatus) -> String {
    let said = text.lines().find_map(|line| after(line, "held: "));
    let ended = || match (status.code(), status.signal()) {
        (Some(0), _) => "nothing came of it".to_owned(),
        (Some(code), _) => format!("ended, exit code {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
    };
    said.map_or_else(ended, str::to_owned)
}

/// None if the tool cannot start even the first body.
fn column(tool: Tool, hostile: &Path) -> Result<Column, String> {
    let mut scene = Scene::new(hostile);
    if let Verdict::NotStarted(why) = judge(&CASES[0], tool, &mut scene) {
        return Err(why);
    }
    let verdicts = CASES
        .iter()
        .map(|case| {
            if case.is_long && !support::tier_includes("long") {
                Verdict::NotTried
            } else {
                judge(case, tool, &mut scene)
            }
        })
        .collect();
    Ok(Column { tool, verdicts })
}

/// Whether the case shows anything here, for this user: an attack that fails without a sandbox
/// shows nothing.
fn is_shown(case: &Case, bare: &Verdict) -> bool {
    let is_through = matches!(bare, Verdict::Through(_));
    if *bare == Verdict::NotTried {
        return false;
    }
    let is_expected = case.wants.is_none() && (support::is_root() || !case.root_only);
    assert!(
        is_through || !is_expected,
        "{}: its body does not even get through where nothing holds it: {bare:?}",
        case.name
    );
    is_through
}

/// All tools of this tier, and the control: in threads, since they mostly wait.
fn everybody(hostile: &Path, is_long: bool) -> (Column, Vec<Column>, Vec<(Tool, String)>) {
    let (mut columns, mut absent) = (Vec::new(), Vec::new());
    let asked = TOOLS.iter().filter(|tool| is_long || tool.is_quick());
    let tried = std::thread::scope(|threads| {
        let mut running = vec![(Tool::Bare, threads.spawn(|| column(Tool::Bare, hostile)))];
        for tool in asked.copied() {
            if tool.program().is_some() {
                running.push((tool, threads.spawn(move || column(tool, hostile))));
            } else {
                absent.push((tool, "not installed".to_owned()));
            }
        }
        let done = running.into_iter();
        let done = done.map(|(tool, thread)| (tool, thread.join().expect("no panic")));
        done.collect::<Vec<_>>()
    });
    for (tool, tried) in tried {
        match tried {
            Ok(column) => columns.push(column),
            Err(why) => absent.push((tool, format!("does not work here: {why}"))),
        }
    }
    assert_eq!(columns[0].tool, Tool::Bare, "{absent:?}");
    (columns.remove(0), columns, absent)
}

#[test]
fn a_body_that_another_tool_stops_is_stopped_here_too() {
    let hostile = hostile();
    let is_long = support::belongs_to_tier("long");
    let (bare, columns, absent) = everybody(&hostile, is_long);
    sweep();
    for line in [&bare].into_iter().chain(&columns).flat_map(Column::told) {
        say(&line);
    }
    for (tool, why) in &absent {
        say(&format!("{} | {why}", tool.name()));
        if tool.program().is_none() && tool.is_of_debian() {
            support::skip(&format!("{} is not installed", tool.name()));
        }
    }
    let cases = CASES.iter().zip(&bare.verdicts);
    let shown: Vec<bool> = cases.map(|(case, bare)| is_shown(case, bare)).collect();
    let page = page::Page {
        columns: &columns,
        absent: &absent,
        shown: &shown,
    };
    say(&page.summary());
    let faults = page.faults();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    page.compare_or_write(is_long);
}

/// Another start, which removes the leftovers of the killed one.
fn sweep() {
    let done = std::process::Command::new(support::runner())
        .args(["run", "--quiet", "--", "true"])
        .status();
    assert!(done.expect("the runner starts").success());
}

#[expect(
    clippy::print_stdout,
    reason = "what tests print is read by scripts/prove"
)]
fn say(line: &str) {
    println!("{line}");
}
