//! The limits: who stated what, what holds, and whether this host can hold it.

use std::time::Duration;

use crate::spec::host_policy::Maxima;
use crate::spec::manifest::StatedLimit;
use crate::spec::plan_report::{DEFAULT, HOST_POLICY, Speaker};
use crate::spec::report::{Enforcement, EnforcementState, LimitReport};
use crate::spec::request::{LimitOptions, LimitsMode};

/// Memory where nobody states it (AIP-17 recommends it).
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Wall time where nobody states it (AIP-17 recommends it).
pub const WALL_TIME_DEFAULT: Duration = Duration::from_secs(600);
/// Wall time where a `sandbox` block is present and nobody states it (AIP-36).
pub const WALL_TIME_SANDBOX_DEFAULT: Duration = Duration::from_secs(30);
/// Processes and threads where nobody states them.
pub const PROCESSES_DEFAULT: u64 = 512;
/// Between the stop signal and SIGKILL where nobody states it.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(2);
/// Output of each stream that is captured where nobody states it.
pub const CAPTURE_BYTES_DEFAULT: u64 = 16 << 20;
/// Memory that is left to processes when files fill the writable space.
const MEMORY_NOT_FOR_FILES_BYTES: u64 = 32 << 20;
/// Inodes that the body may make.
pub const DISK_INODES: u64 = 65_536;
/// Whose word it is that files may not take all of the memory.
const MEMORY: &str = "memory_bytes";
/// Below this the runner's own part of the body's start does not fit.
const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// What holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the whole tree, bytes.
    pub memory_bytes: u64,
    /// Share of the processors, thousandths of one.
    pub cpu_millis: Option<u64>,
    /// CPU time of the whole tree.
    pub cpu_time: Option<Duration>,
    /// Wall time.
    pub wall_time: Duration,
    /// Between the stop signal and SIGKILL.
    pub grace: Duration,
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes that the body may write into the writable space.
    pub disk_bytes: u64,
    /// Inodes that it may make there.
    pub disk_inodes: u64,
    /// Bytes of each output stream that are passed on or kept.
    pub output_bytes: Option<u64>,
    /// Each of them for the report, mechanisms still to be named.
    pub reports: Vec<LimitReport>,
    /// Who said what about each, in the order of `reports`.
    pub speakers: Vec<Vec<Speaker>>,
}

/// Why a limit is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Nothing can run under it.
    #[error("{name} of {value} is below {least}, under which no program starts")]
    TooSmall {
        /// Name of the limit, unit last.
        name: &'static str,
        /// As stated.
        value: u64,
        /// What it takes.
        least: u64,
    },
    /// This host cannot hold it, or only weakly.
    #[error("this host cannot hold the limit {axis}: {reason}")]
    Unenforceable {
        /// Which.
        axis: String,
        /// Why.
        reason: String,
    },
}

impl LimitError {
    /// Stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => "limit_too_small",
            Self::Unenforceable { .. } => "limit_unenforceable",
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TooSmall { .. } => None,
            Self::Unenforceable { .. } => Some(
                "see `runner doctor`; --limits=best-effort runs without what cannot be held"
                    .to_owned(),
            ),
        }
    }
}

/// A value and whose word it is.
struct Stated {
    value: u64,
    source: String,
}

/// Merges what flags and manifest state: the strictest wins, the host policy's maxima above all.
///
/// # Errors
/// [`LimitError::TooSmall`].
pub fn merge(
    flags: &LimitOptions,
    manifest: &[StatedLimit],
    has_sandbox_block: bool,
    maxima: &Maxima,
    captured: bool,
) -> Result<Limits, LimitError> {
    let mut merger = Merger {
        manifest,
        reports: Vec::with_capacity(9),
        speakers: Vec::with_capacity(9),
    };
    let of_host = |value| Some((value, HOST_POLICY));
    let memory_bytes = merger.merge(
        "memory_bytes",
        flags.memory_bytes,
        Some(MEMORY_BYTES_DEFAULT),
        of_host(maxima.memory_bytes),
    );
    let wall_default = if has_sandbox_block {
        WALL_TIME_SANDBOX_DEFAULT
    } else {
        WALL_TIME_DEFAULT
    };
    let wall_time_ms = merger.merge(
        "wall_time_ms",
        flags.wall_time.map(milliseconds),
        Some(milliseconds(wall_default)),
        of_host(milliseconds(maxima.wall_time)),
    );
    let cpu_time_ms = merger.merge("cpu_time_ms", flags.cpu_time.map(milliseconds), None, None);
    let cpu_millis = merger.merge("cpu_millis", flags.cpus.and_then(thousandths), None, None);
    let processes = merger.merge(
        "processes",
        flags.processes,
        Some(PROCESSES_DEFAULT),
        of_host(maxima.processes),
    );
    let memory_bytes = memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT);
    let for_files = memory_bytes
        .checked_sub(MEMORY_NOT_FOR_FILES_BYTES)
        .unwrap_or(memory_bytes / 2)
        .max(memory_bytes / 4);
    let disk_bytes = merger.merge(
        "disk_bytes",
        flags.disk_bytes,
        Some(for_files),
        Some((for_files, MEMORY)),
    );
    let disk_inodes = merger.merge("disk_inodes", flags.disk_inodes, Some(DISK_INODES), None);
    let output_default = captured.then_some(CAPTURE_BYTES_DEFAULT);
    let output_bytes = merger.merge("output_bytes", flags.output_bytes, output_default, None);
    let grace = flags.grace.unwrap_or(GRACE_DEFAULT);
    for (name, value, least) in [
        ("memory_bytes", Some(memory_bytes), MEMORY_BYTES_MIN),
        ("wall_time_ms", wall_time_ms, 1),
    ] {
        let value = value.unwrap_or(least);
        if value < least {
            return Err(LimitError::TooSmall { name, value, least });
        }
    }
    Ok(Limits {
        memory_bytes,
        cpu_millis,
        cpu_time: cpu_time_ms.map(Duration::from_millis),
        wall_time: wall_time_ms.map_or(wall_default, Duration::from_millis),
        grace,
        processes: processes.unwrap_or(PROCESSES_DEFAULT),
        disk_bytes: disk_bytes.unwrap_or(for_files),
        disk_inodes: disk_inodes.unwrap_or(DISK_INODES),
        output_bytes,
        reports: merger.reports,
        speakers: merger.speakers,
    })
}

struct Merger<'manifest> {
    manifest: &'manifest [StatedLimit],
    reports: Vec<LimitReport>,
    speakers: Vec<Vec<Speaker>>,
}

impl Merger<'_> {
    fn merge(
        &mut self,
        name: &'static str,
        flag: Option<u64>,
        default: Option<u64>,
        maximum: Option<(u64, &str)>,
    ) -> Option<u64> {
        let of_flag = flag.map(|value| Stated {
            value,
            source: "flag".to_owned(),
        });
        let of_manifest = self.manifest.iter().filter(|limit| limit.name == name);
        let stated: Vec<Stated> = of_flag
            .into_iter()
            .chain(of_manifest.map(|limit| Stated {
                value: limit.value,
                source: limit.source.clone(),
            }))
            .collect();
        let speaker = |by: &str, value| Speaker {
            by: by.to_owned(),
            value,
        };
        let of_maximum = maximum.map(|(value, by)| speaker(by, value));
        let of_nobody = default.map(|value| speaker(DEFAULT, value));
        let said = stated.iter().map(|one| speaker(&one.source, one.value));
        self.speakers
            .push(said.chain(of_nobody).chain(of_maximum).collect());
        let stated = stated.into_iter().min_by_key(|stated| stated.value);
        let requested = stated.as_ref().map(|stated| stated.value);
        let winner = stated.or_else(|| {
            default.map(|value| Stated {
                value,
                source: DEFAULT.to_owned(),
            })
        });
        let winner = match (winner, maximum) {
            (Some(winner), Some((maximum, by))) if maximum < winner.value => Some(Stated {
                value: maximum,
                source: by.to_owned(),
            }),
            (winner, _) => winner,
        };
        let effective = winner.as_ref().map(|winner| winner.value);
        self.reports.push(LimitReport {
            name,
            requested,
            effective,
            enforced_by: "none",
            source: winner.map_or_else(|| DEFAULT.to_owned(), |winner| winner.source),
        });
        effective
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Thousandths of a processor; the command line has made sure that the number is positive.
fn thousandths(cpus: f64) -> Option<u64> {
    let scaled = (cpus * 1000.0).round();
    // Formatting is the one conversion of the standard library that neither wraps nor saturates.
    format!("{scaled:.0}").parse().ok()
}

/// How an axis of the host's coverage is called in the limits.
#[must_use]
pub fn axis_of(limit: &str) -> Option<&'static str> {
    match limit {
        "memory_bytes" => Some("memory"),
        "processes" => Some("processes"),
        "cpu_millis" => Some("cpu_share"),
        "cpu_time_ms" => Some("cpu_time"),
        _ => None,
    }
}

/// How strongly one axis holds on this host, and through what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// `memory`, `processes`, `cpu_share`, `cpu_time`.
    pub axis: &'static str,
    /// How strongly.
    pub state: EnforcementState,
    /// Through what.
    pub enforced_by: &'static str,
    /// Why not fully.
    pub reason: Option<String>,
}

/// Names the mechanism of each limit and refuses what this host cannot hold, as `mode` says: a
/// stated limit that is absent, with `Require` one that is weaker too, with `BestEffort` none.
///
/// # Errors
/// [`LimitError::Unenforceable`].
pub fn settle(
    limits: &mut Limits,
    coverage: &[Coverage],
    mode: LimitsMode,
) -> Result<Vec<Enforcement>, LimitError> {
    let mut enforcement = Vec::with_capacity(limits.reports.len());
    for report in &mut limits.reports {
        if report.effective.is_none() {
            continue;
        }
        let Some(axis) = axis_of(report.name) else {
            report.enforced_by = match report.name {
                "disk_bytes" | "disk_inodes" => "tmpfs",
                _ => "supervisor",
            };
            continue;
        };
        let covered = coverage.iter().find(|covered| covered.axis == axis);
        let state = covered.map_or(EnforcementState::Absent, |covered| covered.state);
        let reason = covered.and_then(|covered| covered.reason.clone());
        report.enforced_by = covered.map_or("none", |covered| covered.enforced_by);
        let refused = match (mode, state) {
            (LimitsMode::BestEffort, _) | (_, EnforcementState::Enforced) => false,
            (LimitsMode::Require, _) => true,
            (LimitsMode::Stated, EnforcementState::Weaker) => false,
            (LimitsMode::Stated, EnforcementState::Absent) => report.requested.is_some(),
        };
        if refused {
            return Err(LimitError::Unenforceable {
                axis: axis.to_owned(),
                reason: reason.unwrap_or_else(|| "nothing here can".to_owned()),
            });
        }
        enforcement.push(Enforcement {
            axis: axis.to_owned(),
            state,
            reason,
        });
    }
    Ok(enforcement)
}

/// Limits that somebody stated and that do not hold fully, with the axis that says why.
pub fn weaker_than_stated<'plan>(
    limits: &'plan Limits,
    enforcement: &'plan [Enforcement],
) -> impl Iterator<Item = (&'static str, &'plan Enforcement)> {
    limits
        .reports
        .iter()
        .filter(|report| report.requested.is_some())
        .filter_map(|report| {
            let axis = axis_of(report.name)?;
            let found = enforcement.iter().find(|one| one.axis == axis)?;
            (found.state != EnforcementState::Enforced).then_some((report.name, found))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maxima() -> Maxima {
        Maxima {
            memory_bytes: 4 << 30,
            wall_time: Duration::from_secs(3600),
            processes: 4096,
        }
    }

    fn stated(name: &'static str, value: u64) -> StatedLimit {
        StatedLimit {
            name,
            value,
            source: format!("runner.limits.{name}"),
        }
    }

    fn merged(flags: &LimitOptions, manifest: &[StatedLimit]) -> Limits {
        merge(flags, manifest, false, &maxima(), false).expect("merged")
    }

    fn source<'limits>(limits: &'limits Limits, name: &str) -> &'limits str {
        let found = limits.reports.iter().find(|report| report.name == name);
        found.map_or("", |report| report.source.as_str())
    }

    #[test]
    fn the_strictest_word_wins_and_is_named() {
        let flags = LimitOptions {
            memory_bytes: Some(512 << 20),
            ..LimitOptions::default()
        };
        let limits = merged(&flags, &[stated("memory_bytes", 128 << 20)]);
        assert_eq!(limits.memory_bytes, 128 << 20);
        assert_eq!(
            source(&limits, "memory_bytes"),
            "runner.limits.memory_bytes"
        );
        let limits = merged(&flags, &[]);
        assert_eq!(
            (limits.memory_bytes, source(&limits, "memory_bytes")),
            (512 << 20, "flag")
        );
        let limits = merged(&LimitOptions::default(), &[]);
        assert_eq!(limits.memory_bytes, MEMORY_BYTES_DEFAULT);
        let flags = LimitOptions {
            memory_bytes: Some(64 << 30),
            ..LimitOptions::default()
        };
        let limits = merged(&flags, &[]);
        assert_eq!(
            (limits.memory_bytes, source(&limits, "memory_bytes")),
            (4 << 30, "host-policy")
        );
    }

    #[test]
    fn a_sandbox_block_makes_the_default_wall_time_shorter() {
        let flags = LimitOptions::default();
        let limits = merge(&flags, &[], true, &maxima(), false).expect("merged");
        assert_eq!(limits.wall_time, WALL_TIME_SANDBOX_DEFAULT);
        let told = [stated("wall_time_ms", 120_000)];
        let limits = merge(&flags, &told, true, &maxima(), false).expect("merged");
        assert_eq!(limits.wall_time, Duration::from_secs(120));
    }

    #[test]
    fn files_never_take_the_memory_that_processes_need() {
        let flags = LimitOptions {
            disk_bytes: Some(1 << 40),
            ..LimitOptions::default()
        };
        assert_eq!(merged(&flags, &[]).disk_bytes, 224 << 20);
        let flags = LimitOptions {
            memory_bytes: Some(16 << 20),
            ..LimitOptions::default()
        };
        assert_eq!(merged(&flags, &[]).disk_bytes, 8 << 20);
    }

    #[test]
    fn limits_under_which_nothing_starts_are_refused() {
        let flags = LimitOptions {
            memory_bytes: Some(1),
            ..LimitOptions::default()
        };
        assert!(merge(&flags, &[], false, &maxima(), false).is_err());
        let flags = LimitOptions {
            wall_time: Some(Duration::ZERO),
            ..LimitOptions::default()
        };
        assert!(merge(&flags, &[], false, &maxima(), false).is_err());
    }

    #[test]
    fn a_stated_limit_that_nothing_holds_is_refused_unless_best_effort() {
        let flags = LimitOptions {
            cpus: Some(1.5),
            ..LimitOptions::default()
        };
        let mut limits = merged(&flags, &[]);
        assert_eq!(limits.cpu_millis, Some(1500));
        let weak = |axis| Coverage {
            axis,
            state: EnforcementState::Weaker,
            enforced_by: "poll",
            reason: Some("no cgroup".to_owned()),
        };
        let coverage = [weak("memory"), weak("processes")];
        assert!(settle(&mut limits, &coverage, LimitsMode::Stated).is_err());
        let enforcement = settle(&mut limits, &coverage, LimitsMode::BestEffort).expect("runs");
        assert!(
            enforcement
                .iter()
                .any(|axis| axis.state == EnforcementState::Absent)
        );
        let mut limits = merged(&LimitOptions::default(), &[]);
        assert!(settle(&mut limits, &coverage, LimitsMode::Stated).is_ok());
        assert!(settle(&mut limits, &coverage, LimitsMode::Require).is_err());
        let flags = LimitOptions {
            memory_bytes: Some(64 << 20),
            ..LimitOptions::default()
        };
        let mut limits = merged(&flags, &[]);
        let enforcement = settle(&mut limits, &coverage, LimitsMode::Stated).expect("runs");
        let weaker: Vec<&str> = weaker_than_stated(&limits, &enforcement)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(weaker, ["memory_bytes"]);
    }
}
