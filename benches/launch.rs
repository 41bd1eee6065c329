//! Launch to exit of a body that does nothing, side by side with a bare exec, with the floor and with
//! other people's sandboxes.
//!
//! `cargo bench --bench launch -- --help`. `--idle MS` lets the machine rest before every launch; the
//! rounds that the mark about idle machines is about are run in any case.

mod support;

use std::path::Path;
use std::time::Duration;

use support::{Ground, Options, Peer, Report, Table, Usage, peers};

/// The rest before a launch that the mark about idle machines names.
const IDLE: Duration = Duration::from_millis(200);
const PEER_ABSENT: &str = "that peer takes no part here";

fn main() {
    let usage = Usage {
        bench: "launch",
        about: "Launch to exit of a body that does nothing, beside the floor and other sandboxes.",
        rounds: 120,
        quick_rounds: 40,
        own: &["--idle-rounds N"],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let mut report = Report::new();
    let body = ground.nothing("bundle/true");
    let mut near = near(&ground, &body, &mut report);
    let table = launches("launch to exit", &mut near, options.rounds, options.idle);
    let idle_rounds = options
        .number("--idle-rounds")
        .unwrap_or(if options.quick { 8 } else { 60 });
    near.retain(|peer| ["bare", "floor", "bwrap", "runner run"].contains(&peer.name));
    let rested = launches("after 200 ms of idle", &mut near, idle_rounds, IDLE);
    let of_processors = processor_times(&mut near, options.rounds);
    // In rounds of their own: what they leave to the kernel would meet those above.
    near.retain(|peer| ["bwrap", "runner run"].contains(&peer.name));
    near.extend(peers::others(&ground, &body, &mut report));
    let others = launches(
        "beside others",
        &mut near,
        options.rounds.div_ceil(3),
        options.idle,
    );
    for (mark, table, name, against) in [
        ("run ÷ bwrap", &table, "runner run", "bwrap"),
        ("run ÷ floor", &table, "runner run", "floor"),
        (
            "run ÷ nsjail with limits",
            &others,
            "runner run",
            "nsjail with limits",
        ),
        ("exec hello ÷ bwrap", &table, "runner exec hello", "bwrap"),
    ] {
        let p50 = table.ratio(name, against).map(|ratio| ratio.p50);
        report.mark_if(mark, p50, PEER_ABSENT);
    }
    let idle_p90 = rested.ratio("runner run", "bwrap").map(|ratio| ratio.p90);
    report.mark_if(
        "run ÷ bwrap, p90 after 200 ms of idle",
        idle_p90,
        PEER_ABSENT,
    );
    let processor_time = of_processors.ratio("runner run", "bwrap");
    let processor_time = processor_time.map(|ratio| ratio.p50);
    report.mark_if("processor time, run ÷ bwrap", processor_time, PEER_ABSENT);
    report.tables.extend([table, rested, of_processors, others]);
    report
}

fn launches(title: &str, peers: &mut [Peer], rounds: usize, idle: Duration) -> Table {
    let names: Vec<&str> = peers.iter().map(|peer| peer.name).collect();
    // The first launches fill caches and make the runtime directory.
    Table::new(title, "µs", &["bwrap", "floor"]).measure(&names, rounds, 3, |place| {
        std::thread::sleep(idle);
        peers[place].launch_us()
    })
}

/// User and system time of all processes of a launch.
fn processor_times(peers: &mut [Peer], rounds: usize) -> Table {
    let names: Vec<&str> = peers.iter().map(|peer| peer.name).collect();
    let table = Table::new("processor time of a launch", "µs", &["bwrap"]);
    table.measure(&names, rounds, 3, |place| peers[place].processor_us())
}

/// Those whom the marks are about.
fn near(ground: &Ground, body: &Path, report: &mut Report) -> Vec<Peer> {
    let libc = ground.compile("libc", "int main(void) { return 0; }\n", &["-static"]);
    let mut near = vec![
        Peer::new("bare", body, &[]),
        Peer::new("bare, static with the C library", &libc, &[]),
        peers::floor(ground, "classic", body),
        peers::floor(ground, "dot", body),
    ];
    near.extend(peers::bwrap(body, report));
    ground.file("bundle/manifest.yaml", "run: [./true]\n");
    let bundle = ground.archive("hello.tar.gz", &ground.path("bundle"));
    for (name, words, last) in [
        ("runner run", &["run", "--"] as &[&str], body),
        ("runner exec hello", &["exec"], &bundle),
    ] {
        let mut peer = Peer::new(name, &support::runner(), words);
        peer.command.arg(last);
        near.push(peer);
    }
    near
}
