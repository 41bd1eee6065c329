//! What a program costs before it does anything: exec to exit of programs that print a line, and the
//! memory of our own process in a launch.
//!
//! `cargo bench --bench start -- --help`.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends there"
)]

mod support;

use std::path::Path;
use std::process::Command;

use support::{Ground, Options, Peer, Report, Table, Usage, peers};

const LINE: &str = "#include <stdio.h>\nint main(void) { puts(\"runner 0.1.0\"); return 0; }\n";
/// Prints how many KiB a command and its children had in memory at most, each for itself.
const PEAK: &str = include_str!("start/peak.c");

fn main() {
    let usage = Usage {
        bench: "start",
        about: "Exec to exit of programs that print a line; memory of our process in a launch.",
        rounds: 400,
        quick_rounds: 150,
        own: &[],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let mut report = Report::new();
    let body = ground.nothing("bundle/true");
    let mut programs = programs(&ground, &body, &mut report);
    let names: Vec<&str> = programs.iter().map(|peer| peer.name).collect();
    let table = Table::new("exec to exit", "µs", &["C, static"]).measure(
        &names,
        options.rounds,
        3,
        |place| support::wall_us(&mut programs[place].command),
    );
    report.mark("version over a C program", over(&table));
    report.tables.push(table);
    let memory = memory(&ground, &body, options, &mut report);
    let own = memory.row("runner exec hello");
    let most = own.map(|row| row.percentile(100) / 1024.0);
    report.mark_if("own memory for hello", most, "no launch");
    report.tables.push(memory);
    report
}

/// By how much printing our version takes longer than a line of C, µs: the median of the rounds.
fn over(table: &Table) -> f64 {
    let values = |name| table.row(name).map_or(&[] as &[f64], |row| &row.values);
    let pairs = values("runner --version").iter().zip(values("C, static"));
    let differences: Vec<f64> = pairs.map(|(own, theirs)| own - theirs).collect();
    support::median(&differences)
}

fn programs(ground: &Ground, body: &Path, report: &mut Report) -> Vec<Peer> {
    let fixed = ground.compile("line-static", LINE, &["-static"]);
    let dynamic = ground.compile("line-dynamic", LINE, &[]);
    let mut programs = vec![
        Peer::new("no C library, says nothing", body, &[]),
        Peer::new("C, static", &fixed, &[]),
        Peer::new("C, dynamic", &dynamic, &[]),
        Peer::new("runner --version", &support::runner(), &["--version"]),
    ];
    match support::on_path("bwrap") {
        Some(bwrap) => programs.push(Peer::new("bwrap --version", &bwrap, &["--version"])),
        None => report.absent("bwrap", "bwrap is not on the path"),
    }
    programs
}

/// The largest resident set of each launcher, KiB: pages of the program's file are part of it.
fn memory(ground: &Ground, body: &Path, options: &Options, report: &mut Report) -> Table {
    let peak = ground.compile("peak", PEAK, &["-static"]);
    ground.file("bundle/manifest.yaml", "run: [./true]\n");
    let bundle = ground.archive("hello.tar.gz", &ground.path("bundle"));
    let runner = support::runner();
    let mut launchers = vec![
        ("runner run", own(&runner, &["run", "--"], body)),
        ("runner exec hello", own(&runner, &["exec"], &bundle)),
    ];
    launchers.extend(peers::bwrap(body, report).map(|peer| (peer.name, peer.command)));
    let names: Vec<&str> = launchers.iter().map(|(name, _)| *name).collect();
    let rounds = options.rounds.div_ceil(20);
    Table::new("largest resident set", "KiB", &[]).measure(&names, rounds, 1, |place| {
        let launcher = &launchers[place].1;
        let mut command = Command::new(&peak);
        command
            .arg(launcher.get_program())
            .args(launcher.get_args());
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{command:?}: {}", ran.status);
        let said = String::from_utf8(ran.stdout).unwrap();
        said.trim().parse().unwrap()
    })
}

fn own(runner: &Path, words: &[&str], last: &Path) -> Command {
    let mut command = Command::new(runner);
    command.args(words).arg(last);
    command
}
