//! What a watch gets and what it returns.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::audit_trail::AuditTrail;
use crate::control::Commands;
use crate::supervise::following::Follower;
use crate::supervise::judge::Reason;
use crate::supervise::stats::Stats;
use crate::supervise::streams::{InputPump, OutputPump};
use egress::dialler::Dialler;
use spec::request::OnOutputLimit;

/// Limits that the watch enforces.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    /// Of a sandbox that stays, [`Commands`] have the time.
    pub wall_time: Option<Duration>,
    /// Time between the stop signal and SIGKILL. Zero: only SIGKILL is sent.
    pub grace: Duration,
    pub cpu_time: Option<Duration>,
    /// Memory of the whole tree; only without a memory cgroup.
    pub memory_bytes: Option<u64>,
    pub on_output_limit: OnOutputLimit,
    pub stop_signal: i32,
    /// Number of CPUs, which limits how fast CPU time is used.
    pub processors: u32,
}

/// Pumps of the standard streams.
#[derive(Debug)]
pub struct Streams {
    pub stdin: Option<InputPump>,
    pub stdout: OutputPump,
    pub stderr: OutputPump,
    /// `--stats` on a terminal.
    pub stats: Option<Stats>,
}

/// Result of the watch.
#[derive(Debug)]
pub struct Observed {
    /// Wait status of the body's first process; `None` if init did not report it.
    pub raw_status: Option<i32>,
    pub init_status: Option<i32>,
    pub reason: Option<Reason>,
    pub wall_time: Duration,
    /// User and system CPU time of wait4(2), microseconds.
    pub waited_cpu_us: Option<(u64, u64)>,
    /// Peak of the samples.
    pub memory_seen_bytes: Option<u64>,
    pub problems: Vec<String>,
    pub unkillable: bool,
}

/// What a run has beside its streams.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "a follower has none")]
pub struct Attached<'run> {
    /// The body's terminal follows its size.
    pub caller_terminal: Option<&'run OwnedFd>,
    /// Serves the other end of the body's network.
    pub relay: Option<&'run mut Dialler>,
    pub audit: Option<&'run mut AuditTrail>,
    /// Of a sandbox that stays, which has no body.
    pub commands: Option<&'run mut Commands>,
    /// Is told of denials.
    pub follower: Option<&'run mut dyn Follower>,
}

/// The watch failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act}: {errno}")]
pub struct WatchError {
    pub act: &'static str,
    #[source]
    pub errno: Errno,
}

impl From<Errno> for WatchError {
    fn from(errno: Errno) -> Self {
        let act = "watch the body";
        Self { act, errno }
    }
}
