//! Rounds that measure every peer once, in an order that changes from round to round.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Calls `measure(round, peer)` for each peer in each round; returns the values by peer, then by
/// round. `warm_up` rounds before them fill caches and are not returned.
///
/// The order is shuffled in each round, the same in every run: a peer that always ran after the
/// same other one would pay for the work that one leaves to the kernel, such as the tear-down of a
/// network namespace.
pub fn interleaved(
    peers: usize,
    rounds: usize,
    warm_up: usize,
    mut measure: impl FnMut(usize, usize) -> f64,
) -> Vec<Vec<f64>> {
    let mut values = vec![Vec::with_capacity(rounds); peers];
    let mut state = 1;
    for round in 0..warm_up + rounds {
        for peer in shuffled(peers, &mut state) {
            let value = measure(round, peer);
            if warm_up <= round {
                values[peer].push(value);
            }
        }
    }
    values
}

fn shuffled(count: usize, state: &mut u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, usize::try_from(*state >> 33).unwrap() % (last + 1));
    }
    order
}

/// From just before the start to the end, which must be a success, in microseconds. Standard output
/// is discarded, standard error is shown.
pub fn wall_us(command: &mut Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status().unwrap();
    let took = start.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took.div_duration_f64(Duration::from_micros(1))
}

/// User and system time of a command, which must be a success, and of all that it and they waited for, in
/// microseconds (wait4(2)). Standard output is discarded, standard error is shown.
pub fn processor_us(command: &mut Command) -> f64 {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let pid = i32::try_from(child.unwrap().id()).unwrap();
    let ended = sys::process::wait(pid, true).unwrap().unwrap();
    assert_eq!(ended.raw_status, 0, "{command:?}");
    (ended.user_time_us + ended.system_time_us) as f64
}

/// Runs a command, which must succeed.
pub fn run_once(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// Runs a command; if it fails, the error is the last line of its output.
pub fn try_out(command: &mut Command) -> Result<(), String> {
    let ran = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if ran.status.success() {
        return Ok(());
    }
    let said = [ran.stderr, ran.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(format!("{}: {}", ran.status, last.unwrap_or("no word")))
}
