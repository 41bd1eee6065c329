//! Many runs at once: two callers beside other sandboxes, more callers, and up to a thousand runs that
//! all wait.
//!
//! `cargo bench --bench scale -- --help`.

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot do its work has nothing to say"
)]

mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use support::{Ground, Options, Peer, Report, Usage, peers};

/// Says that it runs, and ends with its input.
const WAITING: &str = "
#include <unistd.h>
int main(void) {
    char byte = '.';
    if (write(1, &byte, 1) != 1)
        return 1;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
";
fn main() {
    let usage = Usage {
        bench: "scale",
        about: "Many runs at once: runs a second, memory, up to 1,000 that all wait.",
        rounds: 120,
        quick_rounds: 30,
        own: &["--seconds N", "--at-once N"],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    raise_descriptors();
    let ground = Ground::new();
    let mut report = Report::new();
    let body = ground.nothing("true");
    let seconds = options
        .number("--seconds")
        .unwrap_or(if options.quick { 1 } else { 6 });
    two_loops(&ground, &body, seconds, &mut report);
    closed_loops(&body, seconds, &mut report);
    let most = options.number("--at-once").unwrap_or(1_000);
    waiting(&ground, most, options.quick, &mut report);
    report
}

fn raise_descriptors() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("raised");
}

fn run(body: &Path) -> Command {
    let mut command = Command::new(support::runner());
    command.args(["run", "-q", "--"]).arg(body);
    command
}

/// Two callers at once, each with one run after the other.
fn two_loops(ground: &Ground, body: &Path, seconds: usize, report: &mut Report) {
    let length = Duration::from_secs(u64::try_from(seconds).expect("small"));
    let mut rates: Vec<(&str, f64)> = Vec::new();
    let pair = || -> Vec<Peer> {
        let mut unsaid = Report::new();
        let mut all: Vec<Peer> = peers::bwrap(body, &mut unsaid).into_iter().collect();
        all.extend(peers::others(ground, body, &mut unsaid));
        all
    };
    for (mut one, other) in pair().into_iter().zip(pair()) {
        let name = one.name;
        if support::try_out(&mut one.command).is_err() {
            report.absent(name, "it is started from elsewhere, one at a time");
            continue;
        }
        let mut loops: Vec<Box<dyn FnMut() + Send>> = [one.command, renamed(&other.command)]
            .into_iter()
            .map(|mut command| -> Box<dyn FnMut() + Send> {
                Box::new(move || support::run_once(&mut command))
            })
            .collect();
        rates.push((name, rate(&mut loops, length)));
    }
    let mut loops: Vec<Box<dyn FnMut() + Send>> = (0..2)
        .map(|_| -> Box<dyn FnMut() + Send> {
            let mut command = run(body);
            Box::new(move || support::run_once(&mut command))
        })
        .collect();
    let own = rate(&mut loops, length);
    let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    rates.push(("runner run", own));
    let mut text = String::from("\n### two loops\n\n| | runs/s |\n| --- | ---: |\n");
    for (name, rate) in &rates {
        writeln!(text, "| {name} | {rate:.0} |").expect("text");
        report
            .facts
            .insert(format!("{name}: runs/s, two loops"), (*rate).into());
    }
    report.text.push_str(&text);
    let ratio = (0.0 < best).then_some(own / best);
    report.mark_if(
        "runs/s of two callers ÷ best peer",
        ratio,
        "no peer is here",
    );
}

/// The same command for another container: two of one name cannot run at once.
fn renamed(command: &Command) -> Command {
    let mut other = Command::new(command.get_program());
    for word in command.get_args() {
        let is_name = word.as_bytes().starts_with(b"runner-bench-");
        let suffix = if is_name { "-other" } else { "" };
        other.arg([word, suffix.as_ref()].into_iter().collect::<OsString>());
    }
    other
}

/// How often a second the loops go round, together.
fn rate(loops: &mut [Box<dyn FnMut() + Send + '_>], length: Duration) -> f64 {
    let since = Instant::now();
    let rounds: usize = std::thread::scope(|scope| {
        let running: Vec<_> = loops
            .iter_mut()
            .map(|once| {
                scope.spawn(move || {
                    let mut rounds = 0;
                    while since.elapsed() < length {
                        once();
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        running
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum()
    });
    f64::from(u32::try_from(rounds).expect("small")) / since.elapsed().as_secs_f64()
}

/// 1, 10 and 100 callers, each with one run after the other.
fn closed_loops(body: &Path, seconds: usize, report: &mut Report) {
    let length = Duration::from_secs(u64::try_from(seconds).expect("small"));
    let mut text = String::from(
        "\n### callers at once\n\n\
         | callers | runs/s | p50 ms | p90 ms | p99 ms | processors busy |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for callers in [1, 10, 100] {
        let times = Mutex::new(Vec::new());
        let before = processor_time();
        let mut loops: Vec<Box<dyn FnMut() + Send + '_>> = (0..callers)
            .map(|_| -> Box<dyn FnMut() + Send + '_> {
                let mut command = run(body);
                let times = &times;
                Box::new(move || {
                    let since = Instant::now();
                    support::run_once(&mut command);
                    let took = since.elapsed().as_secs_f64() * 1e3;
                    times.lock().expect("a list").push(took);
                })
            })
            .collect();
        let rate = rate(&mut loops, length);
        drop(loops);
        let busy = busy_since(before);
        let times = times.into_inner().expect("a list");
        let [p50, p90, p99] = [50, 90, 99].map(|percent| support::percentile(&times, percent));
        writeln!(
            text,
            "| {callers} | {rate:.0} | {p50:.2} | {p90:.2} | {p99:.2} | {busy:.0} % |"
        )
        .expect("text");
        for (name, value) in [
            ("runs/s", rate),
            ("p50_ms", p50),
            ("p90_ms", p90),
            ("p99_ms", p99),
        ] {
            report
                .facts
                .insert(format!("{callers} callers: {name}"), value.into());
        }
    }
    report.text.push_str(&text);
}

/// Busy and all ticks of all processors, from /proc/stat.
fn processor_time() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").expect("readable");
    let first = text.lines().next().expect("a line");
    let ticks: Vec<f64> = first
        .split_whitespace()
        .skip(1)
        .filter_map(|tick| tick.parse().ok())
        .collect();
    let all: f64 = ticks.iter().take(8).sum();
    (all - ticks[3] - ticks[4], all)
}

fn busy_since((busy, all): (f64, f64)) -> f64 {
    let (busy_now, all_now) = processor_time();
    100.0 * (busy_now - busy) / (all_now - all).max(1.0)
}

/// Runs that all wait at the same time: whether they all begin and end, and what each takes.
fn waiting(ground: &Ground, most: usize, quick: bool, report: &mut Report) {
    let body = ground.compile("waiting", WAITING, &["-static", "-O2"]);
    // An init is not dumpable: proc shows its memory and namespaces to root alone.
    let is_root = rustix::process::geteuid().is_root();
    let measured = if is_root {
        "supervisor and init"
    } else {
        "supervisor alone"
    };
    let mut text = format!(
        "\n### runs at once\n\n\
         | at once | until all run, s | until all ended, s | ended well | {measured}, KiB (PSS) \
         | of the host's memory, KiB | network namespaces |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let counts: &[usize] = if quick { &[most] } else { &[1, 10, 100, most] };
    for count in counts {
        let found = at_once(&body, *count);
        let Found {
            up_s,
            down_s,
            well,
            pss_kib,
            host_kib,
            namespaces,
        } = found;
        let namespaces = if is_root {
            namespaces.to_string()
        } else {
            "–".to_owned()
        };
        writeln!(
            text,
            "| {count} | {up_s:.2} | {down_s:.2} | {well} | {pss_kib:.0} | {host_kib:.0} | {namespaces} |"
        )
        .expect("text");
        report
            .facts
            .insert(format!("{count} at once: until all run, s"), up_s.into());
        report
            .facts
            .insert(format!("{count} at once: PSS, KiB"), pss_kib.into());
        report.facts.insert(
            format!("{count} at once: of the host, KiB"),
            host_kib.into(),
        );
        if *count == most {
            let well = f64::from(u32::try_from(well).expect("small"));
            let thousand = (most == 1_000).then_some(well);
            report.mark_if(
                "of 1,000 runs at once end",
                thousand,
                "another number was asked for",
            );
            report.mark("memory per waiting run", host_kib.max(pss_kib) / 1024.0);
        }
    }
    report.text.push_str(&text);
}

struct Found {
    up_s: f64,
    down_s: f64,
    well: usize,
    pss_kib: f64,
    host_kib: f64,
    namespaces: usize,
}

fn at_once(body: &Path, count: usize) -> Found {
    let (mut said, output) = std::io::pipe().expect("a pipe");
    let (input, hold) = std::io::pipe().expect("a pipe");
    let free_before = free_kib();
    let since = Instant::now();
    let mut runs: Vec<Child> = (0..count)
        .map(|_| {
            let mut command = Command::new(support::runner());
            command.args(["run", "-q", "-i", "--"]).arg(body);
            command.stdin(input.try_clone().expect("a descriptor"));
            command.stdout(output.try_clone().expect("a descriptor"));
            command.spawn().expect("it starts")
        })
        .collect();
    drop((input, output));
    let mut dots = vec![0; count];
    said.read_exact(&mut dots).expect("all run");
    let up_s = since.elapsed().as_secs_f64();
    let each = f64::from(u32::try_from(count).expect("small"));
    let host_kib = (free_before - free_kib()).max(0.0) / each;
    let supervisors: BTreeSet<u32> = runs.iter().map(Child::id).collect();
    let (pss_kib, namespaces) = of_processes(&supervisors);
    let since = Instant::now();
    drop(hold);
    let well = runs.iter_mut().map(|run| run.wait().expect("it ends"));
    let well = well.filter(std::process::ExitStatus::success).count();
    Found {
        up_s,
        down_s: since.elapsed().as_secs_f64(),
        well,
        pss_kib: pss_kib / each,
        host_kib,
        namespaces,
    }
}

fn free_kib() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("readable");
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .expect("a number")
}

/// PSS of these and of their inits, KiB, and how many network namespaces they are in.
fn of_processes(supervisors: &BTreeSet<u32>) -> (f64, usize) {
    let mut pss_kib = 0.0;
    let mut namespaces = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").expect("readable").flatten() {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        // The host may have an init of that name, and other runs.
        let is_of_supervisor = |name: &str| {
            let id = status.lines().find_map(|line| line.strip_prefix(name));
            id.and_then(|id| id.trim().parse().ok())
                .is_some_and(|id| supervisors.contains(&id))
        };
        if !is_of_supervisor("Pid:") && !is_of_supervisor("PPid:") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Pss:"));
        pss_kib += line
            .and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok())
            .unwrap_or(0.0);
        namespaces.extend(std::fs::read_link(entry.path().join("ns/net")).ok());
    }
    (pss_kib, namespaces.len())
}
