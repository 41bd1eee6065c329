//! What confinement costs while a body runs: bare, under bubblewrap, under an OCI runtime and under
//! `runner run`.
//!
//! `cargo bench --bench steady -- --help`. The small bodies (`steady/body.c`) take their time
//! themselves, so a launch is not counted; the real ones (an install of packages, a build) are taken
//! from outside, launch and all. `--small` and `--real` take only these. `--rulesets` measures what Landlock rulesets cost at
//! an open, without any sandbox around. `--observed` measures what it costs that denials are observed.
//!
//! The marks are taken on minima: what the confinement costs, and not what else the machine did.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

mod support;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{Ground, Options, Report, Table, Usage};

const BODY: &str = include_str!("steady/body.c");
const RULESETS: &str = include_str!("steady/rulesets.c");
const UNDER_A_LISTENER: &str = concat!(
    "#define _GNU_SOURCE\n",
    include_str!("../tests/bodies/escapes/attempts_prelude.c"),
    include_str!("../tests/bodies/escapes/under_a_listener.c")
);

/// Kind, count, what one of it is.
const KINDS: [(&str, usize, &str); 6] = [
    ("calls", 100_000, "getpid()"),
    ("refused", 2_000, "mount(), refused"),
    ("paths", 3_000, "open + close + stat, read only"),
    ("writes", 1_500, "create + write + close + rename + unlink"),
    ("forks", 12, "fork + exec + exit + wait"),
    ("computes", 4_000_000, "step of a computation"),
];
const PACKAGES: usize = 40;
const FILES_PER_PACKAGE: usize = 15;

fn main() {
    let usage = Usage {
        bench: "steady",
        about: "System calls, paths, processes, computing, an install and a build, confined.",
        rounds: 20,
        quick_rounds: 3,
        own: &["--small", "--real", "--rulesets", "--observed"],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let mut report = Report::new();
    let ground = Ground::new();
    if options.has("--rulesets") {
        report.tables = rulesets(&ground, options.rounds);
        return report;
    }
    if options.has("--observed") {
        observed(&ground, options.rounds, &mut report);
        return report;
    }
    let peers = Peers::new(&ground, &mut report);
    if !options.has("--real") {
        small(options, &peers, &mut report);
        observed(&ground, options.rounds, &mut report);
    }
    if !options.has("--small") {
        real(options, &peers, &mut report);
    }
    report
}

fn small(options: &Options, peers: &Peers<'_>, report: &mut Report) {
    let body = peers.ground.compile("body", BODY, &["-static"]);
    let tree = plant_tree(peers.ground);
    for (kind, count, one) in KINDS {
        let count = count.to_string();
        let place = if kind == "paths" {
            &tree
        } else {
            Path::new("/tmp")
        };
        let words = [
            body.as_os_str(),
            kind.as_ref(),
            count.as_ref(),
            place.as_ref(),
        ];
        let table =
            Table::new(one, "ns", &["bare"]).measure(&peers.names, options.rounds, 1, |peer| {
                peers.inside_ns(peer, kind, &words)
            });
        mark(report, kind, &table);
        report.tables.push(table);
    }
}

fn real(options: &Options, peers: &Peers<'_>, report: &mut Report) {
    let files = if options.quick { 20 } else { 200 };
    for (kind, title, script) in [
        (
            "npm",
            format!("npm install of {PACKAGES} packages from a local index"),
            plant_packages(peers.ground),
        ),
        (
            "make",
            format!("make -j2 of {files} C files"),
            plant_sources(peers.ground, files),
        ),
    ] {
        if support::on_path(kind).is_none() {
            report.absent(&title, &format!("{kind} is not on the path"));
            continue;
        }
        let words = ["sh", "-e", "-c", &script].map(OsStr::new);
        let (rounds, warm_up) = if options.quick {
            (1, 0)
        } else {
            (options.rounds.div_ceil(4), 1)
        };
        let table =
            Table::new(&title, "ms", &["bare"]).measure(&peers.names, rounds, warm_up, |peer| {
                peers.wall_ms(peer, kind, &words)
            });
        report.tables.push(table);
    }
}

fn mark(report: &mut Report, kind: &str, table: &Table) {
    let ours = "runner run";
    let ratio = table.ratio(ours, "bare").map(|ratio| ratio.min);
    let why = "it did not run";
    match kind {
        "calls" => {
            let least = |name| table.row(name).map(|row| row.percentile(0));
            let price = least(ours).zip(least("bare")).map(|(own, bare)| own - bare);
            report.mark_if("price of a system call", price, why);
        }
        "paths" => report.mark_if("open + close + stat ÷ bare", ratio, why),
        "computes" => report.mark_if("CPU-bound ÷ bare", ratio, why),
        _ => (),
    }
}

/// Files five directories below the one that is given.
fn plant_tree(ground: &Ground) -> PathBuf {
    let tree = ground.folder("tree");
    let five = ground.folder("tree/one/two/three/four/five");
    for at in 0..64 {
        std::fs::write(five.join(at.to_string()), "something").unwrap();
    }
    tree
}

/// Packages as archives, and what depends on all of them. The script installs and uses them.
fn plant_packages(ground: &Ground) -> String {
    let index = ground.folder("index");
    let mut dependencies = serde_json::Map::new();
    for number in 0..PACKAGES {
        let name = format!("package-{number}");
        let folder = ground.folder(&format!("packed/{name}/package"));
        let manifest = json!({"name": name, "version": "1.0.0", "main": "0.js", "license": "MIT"});
        std::fs::write(folder.join("package.json"), manifest.to_string()).unwrap();
        for file in 0..FILES_PER_PACKAGE {
            let line = format!("exports.value = {number} * {file}; // and some words to fill it\n");
            std::fs::write(folder.join(format!("{file}.js")), line.repeat(20)).unwrap();
        }
        let archive = index.join(format!("{name}.tgz"));
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&archive).arg("-C");
        support::run_once(tar.arg(folder.parent().unwrap()).arg("package"));
        dependencies.insert(name, json!(format!("file:{}", archive.display())));
    }
    let manifest = json!({"name": "program", "version": "1.0.0", "dependencies": dependencies});
    std::fs::write(index.join("package.json"), manifest.to_string()).unwrap();
    format!(
        "mkdir \"$HOME/program\"; cd \"$HOME/program\"; cp {}/package.json .\n\
         npm install --offline --no-audit --no-fund --no-update-notifier --loglevel=error\n\
         node -e 'if (require(\"package-{}\").value !== 0) process.exit(1)'",
        index.display(),
        PACKAGES - 1
    )
}

/// Small C files and a Makefile. The script builds a program of them and runs it.
fn plant_sources(ground: &Ground, files: usize) -> String {
    let sources = ground.folder("sources");
    let mut main = String::from("#include <stdio.h>\n");
    let mut sum = String::new();
    for at in 0..files {
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
             int part_{at}(int count) {{\n  char text[64];\n  int sum = 0;\n\
             for (int at = 0; at < count; at++) {{\n\
             snprintf(text, sizeof text, \"%d\", at * {at});\n sum += strlen(text);\n  }}\n\
             return sum;\n}}\n"
        );
        std::fs::write(sources.join(format!("part_{at}.c")), text).unwrap();
        main.push_str(&format!("int part_{at}(int);\n"));
        sum.push_str(&format!(" + part_{at}(3)"));
    }
    main.push_str(&format!("int main(void) {{ return (0{sum}) == 0; }}\n"));
    std::fs::write(sources.join("main.c"), main).unwrap();
    let makefile = "SOURCES := $(notdir $(wildcard $(FROM)/*.c))\n\
        program: $(SOURCES:.c=.o)\n\tgcc -o $@ $^\n\
        %.o: $(FROM)/%.c\n\tgcc -O1 -c -o $@ $<\n";
    std::fs::write(sources.join("Makefile"), makefile).unwrap();
    let sources = sources.display();
    format!(
        "mkdir \"$HOME/build\"; cd \"$HOME/build\"\n\
         make -s -j2 -f {sources}/Makefile FROM={sources}; ./program"
    )
}

/// Who takes part, and how each starts a command. What stands on the ground is visible to all at
/// its own path, and cannot be written; /tmp and the home can.
struct Peers<'ground> {
    ground: &'ground Ground,
    names: Vec<&'static str>,
    /// A directory in memory, as the sandboxes' own are: the home of what runs bare.
    home: tempfile::TempDir,
}

const ENVIRONMENT: [(&str, &str); 2] = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp")];

impl<'ground> Peers<'ground> {
    fn new(ground: &'ground Ground, report: &mut Report) -> Self {
        let mut peers = Self {
            ground,
            names: vec!["bare"],
            home: tempfile::TempDir::with_prefix_in("runner-bench-", support::in_memory()).unwrap(),
        };
        let mut runtime = false;
        for name in ["bwrap", "crun", "runc", "runner run"] {
            if name == "runc" && runtime {
                continue;
            }
            peers.names.push(name);
            let words = ["/usr/bin/true".as_ref()];
            let last = peers.names.len() - 1;
            if let Err(why) = support::try_out(&mut peers.command(last, "probe", &words)) {
                assert_ne!(name, "runner run", "{why}");
                peers.names.pop();
                report.absent(name, &why);
            } else {
                runtime |= name == "crun";
            }
        }
        peers
    }

    fn inside_ns(&self, peer: usize, kind: &str, words: &[&OsStr]) -> f64 {
        nanoseconds(&mut self.command(peer, kind, words))
    }

    fn wall_ms(&self, peer: usize, kind: &str, words: &[&OsStr]) -> f64 {
        let took = support::wall_us(&mut self.command(peer, kind, words)) / 1e3;
        for left in std::fs::read_dir(self.home.path()).unwrap() {
            let left = left.unwrap().path();
            if left.is_dir() {
                std::fs::remove_dir_all(left).unwrap();
            } else {
                std::fs::remove_file(left).unwrap();
            }
        }
        took
    }

    /// `kind` names the body: an OCI runtime is given a file for each.
    fn command(&self, peer: usize, kind: &str, words: &[&OsStr]) -> Command {
        match self.names[peer] {
            "bare" => self.bare(words),
            "bwrap" => self.bwrap(words),
            "runner run" => self.runner(words),
            runtime => self.oci(runtime, kind, words),
        }
    }

    fn root(&self) -> PathBuf {
        self.ground.path("")
    }

    fn bare(&self, words: &[&OsStr]) -> Command {
        // What is given /tmp as the place to write in writes in memory here as well.
        let words = words.iter().map(|word| match word.to_str() {
            Some("/tmp") => self.home.path().as_os_str(),
            _ => word,
        });
        let words: Vec<_> = words.collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .envs(ENVIRONMENT)
            .env("HOME", self.home.path())
            .current_dir(self.home.path());
        command
    }

    fn bwrap(&self, words: &[&OsStr]) -> Command {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--die-with-parent", "--new-session"]);
        command.args(["--clearenv", "--ro-bind", "/usr", "/usr"]);
        for name in ["bin", "sbin", "lib", "lib64"] {
            command.arg("--symlink").arg(format!("usr/{name}"));
            command.arg(format!("/{name}"));
        }
        command.args(["--ro-bind", "/etc", "/etc", "--proc", "/proc"]);
        command.args(["--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind"]);
        command.arg(self.root()).arg(self.root());
        for (name, value) in ENVIRONMENT {
            command.args(["--setenv", name, value]);
        }
        command.args(["--chdir", "/tmp", "--"]).args(words);
        command
    }

    fn runner(&self, words: &[&OsStr]) -> Command {
        let mut command = Command::new(support::runner());
        command.args(["run", "--memory=1G", "--quiet", "--ro"]);
        command.arg(self.root()).arg("--").args(words);
        command
    }

    /// The runtime's own default specification, with the host's /usr and /etc in place of an image.
    fn oci(&self, runtime: &str, kind: &str, words: &[&OsStr]) -> Command {
        let bundle = self.ground.folder(&format!("oci/{runtime}-{kind}"));
        if !bundle.join("rootfs").exists() {
            self.write_oci_bundle(runtime, &bundle, words);
        }
        let mut command = Command::new(runtime);
        command.arg("--root").arg(self.ground.path("oci/state"));
        if runtime == "crun" {
            command.arg("--cgroup-manager=disabled");
        }
        command.arg("run").arg("--bundle").arg(&bundle);
        command.arg(format!("runner-bench-{kind}-{}", std::process::id()));
        command
    }

    fn write_oci_bundle(&self, runtime: &str, bundle: &Path, words: &[&OsStr]) {
        let rootfs = self.ground.folder(&format!("{}/rootfs", bundle.display()));
        for name in ["bin", "sbin", "lib", "lib64"] {
            std::os::unix::fs::symlink(format!("usr/{name}"), rootfs.join(name)).unwrap();
        }
        let mut specify = Command::new(runtime);
        specify.arg("spec").current_dir(bundle);
        if !rustix::process::geteuid().is_root() {
            specify.arg("--rootless");
        }
        support::run_once(&mut specify);
        let file = bundle.join("config.json");
        let mut specification: Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let process = &mut specification["process"];
        process["args"] = json!(words);
        process["terminal"] = json!(false);
        process["cwd"] = json!("/tmp");
        let environment = ENVIRONMENT.map(|(name, value)| format!("{name}={value}"));
        process["env"] = json!(environment);
        let root = self.root();
        let mounts = specification["mounts"].as_array_mut().unwrap();
        mounts.push(json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}));
        for place in [Path::new("/usr"), Path::new("/etc"), &root] {
            mounts.push(json!({
                "destination": place, "source": place, "type": "none", "options": ["rbind", "ro"],
            }));
        }
        std::fs::write(&file, specification.to_string()).unwrap();
    }
}

/// A table for each kind of calls: refusals not observed, as in every run, and with `--trace`. The mark is
/// the worst of the kinds that the filter allows.
fn observed(ground: &Ground, rounds: usize, report: &mut Report) {
    const NAMES: [&str; 3] = ["not observed", "runner run", "runner run --trace"];
    let body = ground.compile("body", BODY, &["-static"]);
    // In a sandbox that has a listener, the runner has none.
    let wrapper = ground.compile("under-a-listener", UNDER_A_LISTENER, &["-static"]);
    let tree = plant_tree(ground);
    let start = |peer: usize, words: &[&OsStr]| {
        let program = support::runner();
        let mut command = match peer {
            0 => Command::new(&wrapper),
            _ => Command::new(&program),
        };
        command.args((peer == 0).then_some(&program));
        command.args(["run", "--memory=1G", "--quiet", "--ro"]);
        command
            .arg(ground.path(""))
            .args((peer == 2).then_some("--trace"));
        nanoseconds(command.arg("--").args(words))
    };
    let kinds = KINDS
        .iter()
        .filter(|(kind, ..)| ["calls", "refused", "paths"].contains(kind));
    let mut worst: Option<f64> = None;
    for (kind, count, one) in kinds {
        let count = count.to_string();
        let words = [
            body.as_os_str(),
            kind.as_ref(),
            count.as_ref(),
            tree.as_ref(),
        ];
        let table = Table::new(one, "ns", &[NAMES[0]])
            .measure(&NAMES, rounds, 1, |peer| start(peer, &words));
        let ratio = table.ratio(NAMES[1], NAMES[0]).map(|ratio| ratio.min);
        if *kind != "refused" {
            worst = worst.into_iter().chain(ratio).reduce(f64::max);
        }
        report.tables.push(table);
    }
    report.mark_if("calls, refusals observed ÷ not", worst, "it did not run");
}

/// What a body prints that takes its time itself.
fn nanoseconds(command: &mut Command) -> f64 {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse().unwrap()
}

/// Three tables: open and close, stat, all of it.
fn rulesets(ground: &Ground, rounds: usize) -> Vec<Table> {
    let program = ground.compile("rulesets", RULESETS, &["-static"]);
    let tree = plant_tree(ground);
    let mut tables: Vec<Table> = ["open + close", "stat", "open + close + stat"]
        .iter()
        .map(|title| Table::new(title, "ns", &["no ruleset"]))
        .collect();
    for _round in 0..rounds {
        let output = Command::new(&program).arg(&tree).output().unwrap();
        assert!(output.status.success(), "{program:?}: {output:?}");
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let (values, name) = line.split_once('\t').unwrap();
            let values = values.split(' ').map(|value| value.parse().unwrap());
            for (table, value) in tables.iter_mut().zip(values) {
                match table.rows.iter_mut().find(|row| row.name == name) {
                    Some(row) => row.values.push(value),
                    None => table.add(name, vec![value]),
                }
            }
        }
    }
    tables
}
