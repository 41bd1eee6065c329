//! What a launch costs against how much it is asked for: mounts, inputs, names, bytes, and runs
//! that are open beside it.
//!
//! `cargo bench --bench curve -- --json=FILE`, then `scripts/plot FILE docs/cost-curve.svg`.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

mod support;

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::{Ground, Options, Report, percentile};

/// Says that it runs, and then waits to be ended.
#[cfg(target_arch = "x86_64")]
const SLEEPER: &str = r#"void _start(void) {
    __asm__ volatile("mov $1, %eax; mov $1, %edi; mov %rsp, %rsi; mov $1, %edx; syscall");
    for (;;) __asm__ volatile("mov $34, %%eax; syscall" ::: "rax", "rcx", "r11");
}"#;
#[cfg(target_arch = "aarch64")]
const SLEEPER: &str = r#"void _start(void) {
    __asm__ volatile("mov x8, #64; mov x0, #1; mov x1, sp; mov x2, #1; svc #0");
    for (;;) __asm__ volatile("mov x8, #73; mov x0, #0; mov x1, #0; mov x2, #0; mov x3, #0; svc #0"
        ::: "x0", "x1", "x2", "x3", "x8");
}"#;
const TEXT: &str = "const value = await import(index).then((result) => result.name);\n";

/// How a curve is taken, with the body of the runs.
type Take = fn(&Options, &Ground, &Path) -> Curve;

/// Launch to exit against a number of things.
struct Curve {
    name: &'static str,
    /// What is counted, in the plural.
    items: &'static str,
    counts: Vec<f64>,
    /// By count, then by round.
    wall_us: Vec<Vec<f64>>,
    /// Counts below are another thing, and not on the line.
    line_from: f64,
}

fn main() {
    let usage = support::Usage {
        bench: "curve",
        about: "Launch to exit against mounts, inputs, names, bytes and open runs.",
        rounds: 12,
        quick_rounds: 2,
        own: &["--only CURVE"],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let body = ground.nothing("true");
    let curves: [(&str, Take); 5] = [
        ("mounts", mounts),
        ("inputs", inputs),
        ("names", names),
        ("bytes", bytes),
        ("runs", runs),
    ];
    let mut report = Report::new();
    let mut facts = Vec::new();
    for (name, make) in curves {
        if options.text("--only").is_some_and(|only| only != name) {
            continue;
        }
        let curve = make(options, &ground, &body);
        writeln!(report.text, "{}", curve.markdown()).unwrap();
        facts.push(curve.json());
    }
    assert!(!facts.is_empty(), "--only names none of the curves");
    report.facts.insert("curves".into(), facts.into());
    report
}

/// All points, or of a quick run the ends and one between.
fn points(options: &Options, all: &[f64]) -> Vec<f64> {
    match options.quick {
        false => all.to_vec(),
        true => vec![all[0], all[all.len() / 2], all[all.len() - 1]],
    }
}

fn whole(count: f64) -> usize {
    format!("{count:.0}").parse().unwrap()
}

/// One command for each count, in interleaved rounds.
fn timed(options: &Options, commands: &mut [Command]) -> Vec<Vec<f64>> {
    support::interleaved(commands.len(), options.rounds, 1, |_, place| {
        support::wall_us(&mut commands[place])
    })
}

fn run(body: &Path, add: impl FnOnce(&mut Command)) -> Command {
    let mut command = Command::new(support::runner());
    command.arg("run");
    add(&mut command);
    command.arg("--").arg(body);
    command
}

fn mounts(options: &Options, ground: &Ground, body: &Path) -> Curve {
    // For root each is a descriptor in the one message that launches the child, and so is the body.
    let counts = match rustix::process::geteuid().is_root() {
        true => points(options, &[0.0, 25.0, 50.0, 100.0, 150.0, 200.0, 239.0]),
        false => points(options, &[0.0, 50.0, 100.0, 200.0, 350.0, 500.0]),
    };
    let folders: Vec<PathBuf> = (0..500)
        .map(|number| ground.folder(&format!("mounts/{number}")))
        .collect();
    let mut commands: Vec<Command> = counts
        .iter()
        .map(|count| {
            run(body, |command| {
                for folder in &folders[..whole(*count)] {
                    command.arg("--ro").arg(folder);
                }
            })
        })
        .collect();
    Curve {
        name: "mounts",
        items: "mounts (--ro)",
        line_from: 0.0,
        wall_us: timed(options, &mut commands),
        counts,
    }
}

fn inputs(options: &Options, ground: &Ground, body: &Path) -> Curve {
    let counts = points(options, &[0.0, 100.0, 250.0, 500.0, 750.0, 1000.0]);
    let bundle = bundle(ground, "inputs", body, 0);
    let workspace = ground.folder("workspace");
    for number in 0..1000 {
        std::fs::write(workspace.join(number.to_string()), TEXT).unwrap();
    }
    let mut commands: Vec<Command> = counts
        .iter()
        .map(|count| {
            let mut command = Command::new(support::runner());
            command.arg("exec").arg("--workspace").arg(&workspace);
            for number in 0..whole(*count) {
                command.arg("--in").arg(format!("k{number}={number}"));
            }
            command.arg(&bundle);
            command
        })
        .collect();
    Curve {
        name: "inputs",
        items: "staged files (--in)",
        line_from: 0.0,
        wall_us: timed(options, &mut commands),
        counts,
    }
}

fn names(options: &Options, _ground: &Ground, body: &Path) -> Curve {
    let counts = points(options, &[0.0, 1.0, 250.0, 500.0, 750.0, 1000.0]);
    let mut commands: Vec<Command> = counts
        .iter()
        .map(|count| {
            run(body, |command| {
                for number in 0..whole(*count) {
                    let name = format!("h{number}.example.com:443");
                    command.arg("--allow-net").arg(name);
                }
            })
        })
        .collect();
    Curve {
        name: "names",
        items: "names (--allow-net)",
        line_from: 1.0,
        wall_us: timed(options, &mut commands),
        counts,
    }
}

fn bytes(options: &Options, ground: &Ground, body: &Path) -> Curve {
    let all = [0.02, 1.0, 5.0, 20.0, 50.0, 100.0, 200.0];
    let counts = match options.quick {
        false => all.to_vec(),
        true => vec![0.02, 5.0, 20.0],
    };
    let mut commands: Vec<Command> = counts
        .iter()
        .map(|count| {
            let bundle = bundle(ground, &format!("bytes-{count}"), body, whole(count * 1e6));
            let mut command = Command::new(support::runner());
            command.args(["exec", "--memory", "1g", "--disk", "1g", "--no-cache"]);
            command.arg(bundle);
            command
        })
        .collect();
    Curve {
        name: "bytes",
        items: "MB in the bundle",
        line_from: 0.0,
        wall_us: timed(options, &mut commands),
        counts,
    }
}

/// A bundle with so many bytes of text beside the body, in files of 10 KB as far as there are 2,000.
fn bundle(ground: &Ground, name: &str, body: &Path, bytes: usize) -> PathBuf {
    let folder = ground.folder(name);
    std::fs::copy(body, folder.join("true")).unwrap();
    std::fs::write(folder.join("manifest.yaml"), "run: [./true]\n").unwrap();
    let each = 10_000.max(bytes.div_ceil(2_000));
    let mut state: u64 = 1;
    let mut left = bytes;
    let mut number = 0;
    while 0 < left {
        let mut text = String::with_capacity(each + TEXT.len());
        while text.len() < each.min(left) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let cut = usize::try_from(state >> 58).unwrap();
            write!(text, "{}{:x}", &TEXT[..cut], state >> 40).unwrap();
        }
        text.truncate(each.min(left));
        left -= text.len();
        std::fs::write(folder.join(number.to_string()), text).unwrap();
        number += 1;
    }
    let archive = ground.archive(&format!("{name}.tar.gz"), &folder);
    std::fs::remove_dir_all(folder).unwrap();
    archive
}

/// Runs whose bodies sleep; ended with the value, after a panic too.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn set(&mut self, count: usize, sleeper: &Path) {
        drop(Self(self.0.split_off(count.min(self.0.len()))));
        while self.0.len() < count {
            let mut child = run(sleeper, |command| {
                command.args(["--grace", "0s"]);
            })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
            // The body says so when it runs.
            let said = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
            self.0.push(child);
            assert_eq!(said, 1, "a run beside ended");
        }
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &self.0 {
            let pid = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        for child in &mut self.0 {
            child.wait().unwrap();
        }
    }
}

/// Level by level, up and down again: who sleeps cannot take part in rounds.
fn runs(options: &Options, ground: &Ground, body: &Path) -> Curve {
    let counts = match options.quick {
        false => vec![0.0, 50.0, 100.0, 200.0, 350.0, 500.0],
        true => vec![0.0, 50.0, 100.0],
    };
    let sleeper = ground.compile("sleeper", SLEEPER, &["-static", "-nostdlib"]);
    let mut sleepers = Sleepers(Vec::new());
    let mut command = run(body, |_| ());
    let mut wall_us = vec![Vec::new(); counts.len()];
    for place in (0..counts.len()).chain((0..counts.len()).rev()) {
        sleepers.set(whole(counts[place]), &sleeper);
        support::wall_us(&mut command);
        let again = (0..options.rounds).map(|_| support::wall_us(&mut command));
        wall_us[place].extend(again);
    }
    Curve {
        name: "runs",
        items: "runs open beside it",
        line_from: 0.0,
        wall_us,
        counts,
    }
}

impl Curve {
    /// Start and slope of the line through the minima (least squares).
    fn line(&self) -> (f64, f64) {
        let points: Vec<(f64, f64)> = self
            .counts
            .iter()
            .zip(&self.wall_us)
            .filter(|(count, _)| self.line_from <= **count)
            .map(|(count, wall)| (*count, percentile(wall, 0)))
            .collect();
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| {
            points.iter().map(of).sum::<f64>() / f64::from(u32::try_from(points.len()).unwrap())
        };
        let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
        let rise = mean(&|point| (point.0 - x) * (point.1 - y));
        let slope = rise / mean(&|point| (point.0 - x).powi(2));
        (y - slope * x, slope)
    }

    fn markdown(&self) -> String {
        let (start, slope) = self.line();
        let mut text = format!(
            "| {} | min µs | p50 µs | p90 µs |\n| --- | --- | --- | --- |\n",
            self.items
        );
        for (count, wall) in self.counts.iter().zip(&self.wall_us) {
            let [min, p50, p90] = [0, 50, 90].map(|percent| percentile(wall, percent));
            writeln!(text, "| {count} | {min:.0} | {p50:.0} | {p90:.0} |").unwrap();
        }
        writeln!(
            text,
            "\n{}: {start:.0} µs, and {slope:.1} µs for each\n",
            self.name
        )
        .unwrap();
        text
    }

    fn json(&self) -> Value {
        let points: Vec<Value> = self
            .counts
            .iter()
            .zip(&self.wall_us)
            .map(|(count, wall)| {
                let [min, p50, p90] = [0, 50, 90].map(|percent| percentile(wall, percent).round());
                json!({"count": count, "min_us": min, "p50_us": p50, "p90_us": p90})
            })
            .collect();
        let (start, slope) = self.line();
        json!({
            "name": self.name,
            "items": self.items,
            "points": points,
            "line_from": self.line_from,
            "start_us": start.round(),
            "slope_us": (slope * 100.0).round() / 100.0,
        })
    }
}
