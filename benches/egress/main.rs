//! What the body's network costs: connecting, bytes, set-up, and many denials; side by side with
//! plain loopback and with an HTTP CONNECT proxy.
//!
//! `cargo bench --bench egress -- --help`. In each round every way is measured once and divided by
//! plain loopback in the same round. Times are those of the fastest tenth, since what else the
//! machine does only adds.
//!
//! The other side is threads of this program on 127.0.0.1; the body is `body.c`, which measures
//! itself, directly or as a body.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

mod denied;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use servers::Servers;
use support::{Options, Report, Usage};

/// The name that bodies reach the other side by.
pub(crate) const HOST: &str = "bench.example";
/// Allowed at the ports of HTTP and HTTPS too; only ever denied there.
pub(crate) const JUDGED_HOST: &str = "judged.example";
/// Allowed, and at a private address that the host policy does not open.
pub(crate) const PRIVATE_HOST: &str = "private.example";

/// How the body reaches the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Loopback,
    ConnectProxy,
    Tproxy,
    AnyIp,
    OwnProxy,
}

pub(crate) const WAYS: [(Way, &str); 5] = [
    (Way::Loopback, "loopback"),
    (Way::ConnectProxy, "CONNECT proxy"),
    (Way::Tproxy, "runner, tproxy"),
    (Way::AnyIp, "runner, anyip"),
    (Way::OwnProxy, "runner, its CONNECT proxy"),
];

/// What is measured.
struct Measure {
    /// What the body is told; names of ports are replaced, and `mib` by how much is sent.
    words: &'static [&'static str],
    /// What it prints, and what that is called here.
    figures: &'static [(&'static str, &'static str)],
}

const MEASURES: [Measure; 6] = [
    Measure {
        words: &["connect", "echo", "300"],
        figures: &[
            ("connect", "connect() ns"),
            ("first_byte", "connect + byte ns"),
        ],
    },
    Measure {
        words: &["roundtrip", "echo", "2000"],
        figures: &[("roundtrip", "round trip ns")],
    },
    Measure {
        words: &["up", "sink", "1", "mib"],
        figures: &[("bytes_a_second", "1 stream up B/s")],
    },
    Measure {
        words: &["down", "source", "1", "mib"],
        figures: &[("bytes_a_second", "1 stream down B/s")],
    },
    Measure {
        words: &["up", "sink", "64", "mib"],
        figures: &[("bytes_a_second", "64 streams up B/s")],
    },
    Measure {
        words: &["down", "source", "64", "mib"],
        figures: &[("bytes_a_second", "64 streams down B/s")],
    },
];

/// Each figure of each way, one a round.
pub(crate) type Figures = BTreeMap<(&'static str, Way), Vec<f64>>;

/// From the start of the program, in microseconds, one a round.
#[derive(Default)]
pub(crate) struct Launches {
    /// To the body's first line: no network, tproxy, anyip.
    pub(crate) begun_us: [Vec<f64>; 3],
    /// To the end of the program: the same.
    pub(crate) ended_us: [Vec<f64>; 3],
}

pub(crate) struct Ground {
    folder: support::Ground,
    pub(crate) body: PathBuf,
    servers: Servers,
}

fn main() {
    let usage = Usage {
        bench: "egress",
        about: "What the body's network costs, beside plain loopback and a CONNECT proxy.",
        rounds: 7,
        quick_rounds: 3,
        own: &["--launches N", "--denials N"],
    };
    support::run(&usage, report);
}

fn report(options: &Options) -> Report {
    let count = |name, full, quick| {
        let default = if options.quick { quick } else { full };
        options.number(name).unwrap_or(default)
    };
    let ground = Ground::new();
    let mib = if options.quick { 256 } else { 512 };
    let figures = measure(&ground, options.rounds, mib);
    let launches = measure_launches(&ground, count("--launches", 60, 20));
    let denied = denied::measure(&ground, count("--denials", 10_000, 200));
    table::report(&figures, &launches, &denied)
}

impl Ground {
    fn new() -> Self {
        let folder = support::Ground::new();
        let body = folder.compile("body", include_str!("body.c"), &["-pthread"]);
        // Loopback is the host's own: only an entry that is exactly the address opens it.
        folder.file("policy.yaml", "egress: {private_ranges: [127.0.0.1/32]}\n");
        Self {
            folder,
            body,
            servers: Servers::start(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// `runner run` without a network.
    fn plain_runner(&self) -> Command {
        let mut command = Command::new(support::runner());
        command.args(["run", "--quiet", "--policy"]);
        command.arg(self.path("policy.yaml"));
        command
    }

    /// `runner run` with a way of capturing; the body's words are to follow.
    pub(crate) fn runner(&self, capture: &str) -> Command {
        let mut command = self.plain_runner();
        command.args(["--egress-capture", capture]);
        let ports = [self.servers.echo, self.servers.sink, self.servers.source];
        for port in ports {
            command.args(["--allow-net", &format!("{HOST}:{port}")]);
        }
        for (host, address) in [
            (HOST, "127.0.0.1"),
            (JUDGED_HOST, "127.0.0.1"),
            (PRIVATE_HOST, "10.1.2.3"),
        ] {
            command.args(["--add-host", &format!("{host}:{address}")]);
        }
        for host in [JUDGED_HOST, PRIVATE_HOST] {
            command.args(["--allow-net", host]);
        }
        command
    }

    /// The body on a way, without what it is to do.
    fn on(&self, way: Way) -> Command {
        let words = |mut command: Command, words: &[&str]| {
            command.args(words);
            command
        };
        let captured = |capture, how: &[&str]| {
            let mut command = self.runner(capture);
            command.arg("--").arg(&self.body).args(how);
            command
        };
        let proxy = self.servers.proxy.to_string();
        match way {
            Way::Loopback => words(Command::new(&self.body), &["to", "127.0.0.1"]),
            Way::ConnectProxy => words(Command::new(&self.body), &["through", &proxy, "127.0.0.1"]),
            Way::Tproxy => captured("tproxy", &["to", HOST]),
            Way::AnyIp => captured("anyip", &["to", HOST]),
            // The compatibility proxy's port on the body's own loopback.
            Way::OwnProxy => captured("tproxy", &["through", "3", HOST]),
        }
    }
}

fn measure(ground: &Ground, rounds: usize, mib: usize) -> Figures {
    let mut figures = Figures::new();
    for round in 0..rounds {
        for measure in &MEASURES {
            for place in 0..WAYS.len() {
                let (way, _) = WAYS[(place + round) % WAYS.len()];
                let mut command = ground.on(way);
                for word in measure.words {
                    match (ground.servers.port(word), *word) {
                        (Some(port), _) => command.arg(port.to_string()),
                        (None, "mib") => command.arg(mib.to_string()),
                        (None, word) => command.arg(word),
                    };
                }
                let printed = output(&mut command);
                for (printed_name, name) in measure.figures {
                    let value = value(&printed, printed_name);
                    figures.entry((name, way)).or_default().push(value);
                }
            }
        }
    }
    figures
}

fn measure_launches(ground: &Ground, launches: usize) -> Launches {
    let mut times = Launches::default();
    for round in 0..launches + 5 {
        for place in 0..3 {
            let place = (place + round) % 3;
            let mut command = ground.plain_runner();
            // The same command but for the network: reading a policy file is no set-up of it.
            match place {
                0 => (),
                1 => drop(command.args(["--allow-net", HOST, "--egress-capture", "tproxy"])),
                _ => drop(command.args(["--allow-net", HOST, "--egress-capture", "anyip"])),
            }
            command.arg("--").arg(&ground.body).arg("begun");
            let (start, started_at) = (Instant::now(), SystemTime::now());
            let printed = output(&mut command);
            // The first launches fill caches.
            if 5 <= round {
                let began_ns = value(&printed, "begun") - epoch_ns(started_at);
                times.begun_us[place].push(began_ns / 1e3);
                let took = start.elapsed();
                times.ended_us[place].push(took.div_duration_f64(Duration::from_micros(1)));
            }
        }
    }
    times
}

fn epoch_ns(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.div_duration_f64(Duration::from_nanos(1))
}

/// What a command prints, which must succeed.
fn output(command: &mut Command) -> String {
    let ran = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{command:?}: {}", ran.status);
    String::from_utf8(ran.stdout).unwrap()
}

/// The first number of the line that begins with this name.
pub(crate) fn value(printed: &str, name: &str) -> f64 {
    let mut lines = printed.lines().map(str::split_whitespace);
    lines
        .find_map(|mut words| (words.next() == Some(name)).then(|| words.next())?)
        .unwrap()
        .parse()
        .unwrap()
}
