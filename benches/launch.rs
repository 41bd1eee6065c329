//! Launch to exit of a body that does nothing, side by side with a bare exec and with bubblewrap.
//!
//! `cargo bench --bench launch -- --help`.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Ground, Options, Report, Table, Usage};

/// The namespaces that a run has, the host's /usr, and the usual mounts. No Landlock, no system
/// call filter, no cgroup, no report.
const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/sbin",
    "/sbin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
];

fn main() {
    let usage = Usage {
        bench: "launch",
        about: "Launch to exit of a body that does nothing.",
        rounds: 100,
        quick_rounds: 30,
        own: &[],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let mut report = Report::new();
    let (names, mut commands): (Vec<&str>, Vec<Command>) =
        peers(&ground, &mut report).into_iter().unzip();
    // The first launches fill caches and make the runtime directory.
    let table = Table::new("launch to exit", "µs", &["bare", "bwrap"]).measure(
        &names,
        options.rounds,
        5,
        |place| {
            std::thread::sleep(options.idle);
            support::wall_us(&mut commands[place])
        },
    );
    let ratio = |name| table.ratio(name, "bwrap").map(|ratio| ratio.p50);
    let absent = "bwrap is not on the path";
    report.mark_if("run ÷ bwrap", ratio("runner run"), absent);
    report.mark_if("exec hello ÷ bwrap", ratio("runner exec"), absent);
    report.tables.push(table);
    report
}

fn peers(ground: &Ground, report: &mut Report) -> Vec<(&'static str, Command)> {
    let folder = ground.folder("bundle");
    let body = ground.nothing("bundle/true");
    ground.file("bundle/manifest.yaml", "run: [./true]\n");
    let bundle = ground.archive("hello.tar.gz", &folder);
    let mut peers = vec![("bare", command(&body, &[]))];
    match support::on_path("bwrap") {
        Some(program) => {
            let mut bwrap = command(&program, BWRAP);
            bwrap.arg("--ro-bind").arg(&body).args(["/true", "/true"]);
            peers.push(("bwrap", bwrap));
        }
        None => report.absent("bwrap", "not on the path"),
    }
    let runner = support::runner();
    let mut run = command(&runner, &["run", "--"]);
    run.arg(&body);
    peers.push(("runner run", run));
    let mut exec = command(&runner, &["exec"]);
    exec.arg(&bundle);
    peers.push(("runner exec", exec));
    peers
}

fn command(program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words);
    command
}
