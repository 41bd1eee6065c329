//! The limits: who stated what, what holds, and whether this host can hold it.
#![forbid(unsafe_code)]

mod coverage;

use std::time::Duration;

use crate::plan::grants::Origin;
use spec::host_policy::{Maxima, Maximum};
use spec::manifest::StatedLimit;
use spec::plan_report::{BUILT_IN_MAXIMUM, DEFAULT, FLAG, HOST_POLICY, Speaker};
use spec::report::{LimitReport, WarningReport};
use spec::request::LimitOptions;
use spec::units::amount;

pub(crate) use coverage::axis_of;
pub(crate) use coverage::weaker_than_stated;
pub use coverage::{Coverage, settle};

/// Memory where nobody states it (AIP-17 recommends it).
pub(crate) const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Wall time where nobody states it (AIP-17 recommends it).
pub(crate) const WALL_TIME_DEFAULT: Duration = Duration::from_secs(600);
/// Wall time where a `sandbox` block is present and nobody states it (AIP-36).
pub(crate) const WALL_TIME_SANDBOX_DEFAULT: Duration = Duration::from_secs(30);
/// Processes and threads where nobody states them.
pub(crate) const PROCESSES_DEFAULT: u64 = 512;
/// Open descriptors of each process where nobody states them.
pub(crate) const OPEN_FILES_DEFAULT: u64 = 1024;
/// Between the stop signal and SIGKILL where nobody states it.
pub(crate) const GRACE_DEFAULT: Duration = Duration::from_secs(2);
/// Output of each stream that is captured where nobody states it.
pub(crate) const CAPTURE_BYTES_DEFAULT: u64 = 16 << 20;
/// Memory that is left to processes when files fill the writable space.
const MEMORY_NOT_FOR_FILES_BYTES: u64 = 32 << 20;
/// Inodes that the body may make.
pub(crate) const DISK_INODES: u64 = 65_536;
/// Whose word it is that files may not take all of the memory.
const MEMORY: &str = "memory_bytes";
/// Below this the runner's own part of the body's start does not fit.
const MEMORY_BYTES_MIN: u64 = 4 << 20;
/// The kernel counts what a tmpfs holds in portions for each processor: a limit as near to what is
/// in it already as that is sometimes refused.
const DISK_BYTES_MIN: u64 = 64 << 10;

/// What holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the whole tree, bytes.
    pub memory_bytes: u64,
    /// Share of the processors, thousandths of one.
    pub cpu_millis: Option<u64>,
    /// CPU time of the whole tree.
    pub cpu_time: Option<Duration>,
    /// Wall time; `None`: none.
    pub wall_time: Option<Duration>,
    /// Between the stop signal and SIGKILL.
    pub grace: Duration,
    /// Processes and threads at once.
    pub processes: u64,
    /// Open descriptors of each process.
    pub open_files: u64,
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
    /// Limits that are lower than somebody stated.
    pub warnings: Vec<WarningReport>,
}

/// Why a limit is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Nothing can run under it.
    #[error("{name} of {} is below {}, under which no program starts", amount(name, *value), amount(name, *least))]
    TooSmall {
        /// Name of the limit, unit last.
        name: &'static str,
        value: u64,
        least: u64,
    },
    /// The caller states more than the host's configuration allows.
    #[error("{asked}, and {place} allows at most {maximum}")]
    AboveMaximum {
        /// Name of the limit, unit last.
        name: &'static str,
        /// The flag, or the key of the caller's manifest, and its value as people write it.
        asked: String,
        maximum: String,
        /// `FILE:LINE` of the configuration.
        place: String,
    },
    /// This host cannot hold it, or only weakly.
    #[error("this host cannot hold the limit {axis}: {reason}")]
    Unenforceable { axis: String, reason: String },
}

impl LimitError {
    /// Stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => "limit_too_small",
            Self::AboveMaximum { .. } => "limit_above_maximum",
            Self::Unenforceable { .. } => "limit_unenforceable",
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            // A number without a unit is one of bytes.
            Self::TooSmall { name, value, .. } => {
                let is_size = name.ends_with("_bytes") && *value < 1 << 10;
                is_size.then(|| format!("did you mean {value}m, which is {value} MiB?"))
            }
            Self::AboveMaximum { name, place, .. } => Some(format!(
                "state less, or raise maxima.{} in {place}",
                match *name {
                    "memory_bytes" => "memory",
                    "wall_time_ms" => "timeout",
                    other => other,
                }
            )),
            Self::Unenforceable { .. } => Some(
                "see `runner doctor`; --limits=best-effort runs without what cannot be held"
                    .to_owned(),
            ),
        }
    }
}

/// What of a run decides its limits besides those that somebody states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFacts {
    /// The manifest has a `sandbox` block, whose default wall time is shorter (AIP-36).
    pub has_sandbox_block: bool,
    /// A person sits at the terminal (`-t`): no wall time unless somebody states one.
    pub has_terminal: bool,
    /// The streams are kept for the report.
    pub captured: bool,
    /// The hard limit of open descriptors of this process (getrlimit(2)), which nobody here may
    /// raise.
    pub open_files_hard: u64,
}

/// Merges what flags and manifest state: the strictest wins. Host policy bounds it, see [`Maxima`]:
/// what the caller states is never lowered to a bound but refused, what a bundle's own manifest
/// asks is lowered with a warning.
///
/// # Errors
/// [`LimitError::TooSmall`], [`LimitError::AboveMaximum`].
pub fn merge(
    flags: &LimitOptions,
    manifest: &[StatedLimit],
    origin: Origin,
    maxima: &Maxima,
    facts: RunFacts,
) -> Result<Limits, LimitError> {
    let mut merger = Merger {
        manifest,
        origin,
        reports: Vec::with_capacity(9),
        speakers: Vec::with_capacity(9),
        warnings: Vec::new(),
    };
    let memory_bytes = merger.merge(
        "memory_bytes",
        flags.memory_bytes,
        Some(MEMORY_BYTES_DEFAULT),
        Some(Bound::of(&maxima.memory_bytes, |bytes| *bytes)),
    )?;
    let wall_default = match facts {
        RunFacts {
            has_terminal: true, ..
        } => None,
        RunFacts {
            has_sandbox_block: true,
            ..
        } => Some(WALL_TIME_SANDBOX_DEFAULT),
        _ => Some(WALL_TIME_DEFAULT),
    };
    let wall_time_ms = merger.merge(
        "wall_time_ms",
        flags.wall_time.map(wall_time_ms),
        wall_default.map(milliseconds),
        Some(Bound::of(&maxima.wall_time, |time| milliseconds(*time))),
    )?;
    let cpu_time_ms = merger.merge("cpu_time_ms", flags.cpu_time.map(milliseconds), None, None)?;
    let cpu_millis = merger.merge("cpu_millis", flags.cpus.and_then(thousandths), None, None)?;
    let processes = merger.merge(
        "processes",
        flags.processes,
        Some(PROCESSES_DEFAULT),
        Some(Bound::of(&maxima.processes, |count| *count)),
    )?;
    if let Some(stated) = flags.open_files
        && facts.open_files_hard < stated
    {
        return Err(LimitError::Unenforceable {
            axis: "open_files".to_owned(),
            reason: format!(
                "the hard limit of open descriptors here is {} (`ulimit -Hn`)",
                facts.open_files_hard
            ),
        });
    }
    let open_files = merger.merge(
        "open_files",
        flags.open_files,
        Some(OPEN_FILES_DEFAULT.min(facts.open_files_hard)),
        None,
    )?;
    let memory_bytes = memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT);
    let for_files = memory_bytes
        .checked_sub(MEMORY_NOT_FOR_FILES_BYTES)
        .unwrap_or(memory_bytes / 2)
        .max(memory_bytes / 4);
    let disk_bytes = merger.merge(
        "disk_bytes",
        flags.disk_bytes,
        Some(for_files),
        Some(Bound {
            value: for_files,
            by: BoundBy::Memory,
        }),
    )?;
    let disk_inodes = merger.merge("disk_inodes", flags.disk_inodes, Some(DISK_INODES), None)?;
    let output_default = facts.captured.then_some(CAPTURE_BYTES_DEFAULT);
    let output_bytes = merger.merge("output_bytes", flags.output_bytes, output_default, None)?;
    let grace = flags.grace.unwrap_or(GRACE_DEFAULT);
    for (name, value, least) in [
        ("memory_bytes", Some(memory_bytes), MEMORY_BYTES_MIN),
        ("disk_bytes", disk_bytes, DISK_BYTES_MIN),
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
        wall_time: wall_time_ms.map(Duration::from_millis),
        grace,
        processes: processes.unwrap_or(PROCESSES_DEFAULT),
        open_files: open_files.unwrap_or(OPEN_FILES_DEFAULT),
        disk_bytes: disk_bytes.unwrap_or(for_files),
        disk_inodes: disk_inodes.unwrap_or(DISK_INODES),
        output_bytes,
        reports: merger.reports,
        speakers: merger.speakers,
        warnings: merger.warnings,
    })
}

/// What `--timeout none` states, in milliseconds.
const UNLIMITED: u64 = u64::MAX;

/// The flag's value: [`Duration::MAX`] is `none`.
fn wall_time_ms(stated: Duration) -> u64 {
    match stated {
        Duration::MAX => UNLIMITED,
        stated => milliseconds(stated),
    }
}

/// An upper bound of one limit.
struct Bound {
    value: u64,
    by: BoundBy,
}

/// Who sets a bound.
enum BoundBy {
    /// The memory limit: files are memory.
    Memory,
    /// This program, for a bundle's own manifest only.
    BuiltIn,
    /// The configuration, at `FILE:LINE`.
    Configuration(String),
}

impl Bound {
    fn of<T>(maximum: &Maximum<T>, value: impl Fn(&T) -> u64) -> Self {
        Self {
            value: value(&maximum.value),
            by: match &maximum.stated_at {
                Some(place) => BoundBy::Configuration(place.clone()),
                None => BoundBy::BuiltIn,
            },
        }
    }

    fn name(&self) -> &'static str {
        match self.by {
            BoundBy::Memory => MEMORY,
            BoundBy::BuiltIn => BUILT_IN_MAXIMUM,
            BoundBy::Configuration(_) => HOST_POLICY,
        }
    }
}

/// A value and who states it.
#[derive(Clone)]
struct Stated {
    value: u64,
    source: String,
    /// The caller: a flag, or a manifest that the caller gave.
    by_caller: bool,
}

struct Merger<'manifest> {
    manifest: &'manifest [StatedLimit],
    origin: Origin,
    reports: Vec<LimitReport>,
    speakers: Vec<Vec<Speaker>>,
    warnings: Vec<WarningReport>,
}

impl Merger<'_> {
    fn merge(
        &mut self,
        name: &'static str,
        flag: Option<u64>,
        default: Option<u64>,
        bound: Option<Bound>,
    ) -> Result<Option<u64>, LimitError> {
        let stated = self.stated(name, flag);
        let bound = bound.filter(|bound| match bound.by {
            BoundBy::BuiltIn => stated.iter().any(|one| !one.by_caller),
            BoundBy::Memory | BoundBy::Configuration(_) => true,
        });
        self.speakers
            .push(speakers(&stated, default, bound.as_ref()));
        let stated_min = stated.iter().min_by_key(|stated| stated.value).cloned();
        let winner = stated_min.clone().or_else(|| {
            default.map(|value| Stated {
                value,
                source: DEFAULT.to_owned(),
                by_caller: false,
            })
        });
        let winner = match (winner, &bound) {
            (winner, Some(bound)) => bounded(name, &stated, winner, bound)?,
            (winner, None) => winner,
        };
        if let Some(winner) = &winner {
            let wanted = stated
                .iter()
                .filter(|one| one.source == FLAG)
                .chain(&stated_min)
                .find(|wanted| winner.value < wanted.value);
            if let Some(wanted) = wanted {
                self.warnings.push(lowered(name, wanted, winner));
            }
        }
        let limited = |value: u64| (value != UNLIMITED).then_some(value);
        let effective = winner.as_ref().and_then(|winner| limited(winner.value));
        self.reports.push(LimitReport {
            name,
            requested: stated_min.and_then(|stated| limited(stated.value)),
            effective,
            enforced_by: "none",
            source: winner.map_or_else(|| DEFAULT.to_owned(), |winner| winner.source),
        });
        Ok(effective)
    }

    /// What the flag and the manifest state of this limit.
    fn stated(&self, name: &str, flag: Option<u64>) -> Vec<Stated> {
        let of_flag = flag.map(|value| Stated {
            value,
            source: FLAG.to_owned(),
            by_caller: true,
        });
        let of_manifest = self.manifest.iter().filter(|limit| limit.name == name);
        of_flag
            .into_iter()
            .chain(of_manifest.map(|limit| Stated {
                value: limit.value,
                source: limit.source.clone(),
                by_caller: self.origin == Origin::Caller,
            }))
            .collect()
    }
}

/// Everybody who says something of a limit, the bound last.
fn speakers(stated: &[Stated], default: Option<u64>, bound: Option<&Bound>) -> Vec<Speaker> {
    let speaker = |by: &str, value| Speaker {
        by: by.to_owned(),
        value,
    };
    stated
        .iter()
        .map(|one| speaker(&one.source, one.value))
        .chain(default.map(|value| speaker(DEFAULT, value)))
        .chain(bound.map(|bound| speaker(bound.name(), bound.value)))
        .collect()
}

/// What holds of `winner` under `bound`.
fn bounded(
    name: &'static str,
    stated: &[Stated],
    winner: Option<Stated>,
    bound: &Bound,
) -> Result<Option<Stated>, LimitError> {
    if let BoundBy::Configuration(place) = &bound.by {
        let beyond = stated
            .iter()
            .find(|one| one.by_caller && bound.value < one.value);
        if let Some(beyond) = beyond {
            return Err(LimitError::AboveMaximum {
                name,
                asked: format!(
                    "{} asks for {}",
                    who_states(name, beyond),
                    amount_or_none(name, beyond.value)
                ),
                maximum: amount(name, bound.value),
                place: place.clone(),
            });
        }
    }
    let of_bound = Stated {
        value: bound.value,
        source: bound.name().to_owned(),
        by_caller: false,
    };
    Ok(match (winner, &bound.by) {
        (Some(winner), BoundBy::BuiltIn) if winner.by_caller => Some(winner),
        (Some(winner), _) if bound.value < winner.value => Some(of_bound),
        (None, BoundBy::Configuration(_)) => Some(of_bound),
        (winner, _) => winner,
    })
}

/// The flag, or the key of the manifest.
fn who_states(name: &str, stated: &Stated) -> String {
    match stated.source.as_str() {
        FLAG => flag_of(name).to_owned(),
        key => format!("`{key}`"),
    }
}

fn amount_or_none(name: &str, value: u64) -> String {
    match value {
        UNLIMITED => "none".to_owned(),
        value => amount(name, value),
    }
}

fn lowered(name: &'static str, wanted: &Stated, winner: &Stated) -> WarningReport {
    let because = match winner.source.as_str() {
        MEMORY => "files count as memory: raise --memory".to_owned(),
        BUILT_IN_MAXIMUM => format!(
            "a bundle's manifest gets no more by itself: state {}",
            flag_of(name)
        ),
        HOST_POLICY => "the host's configuration allows no more".to_owned(),
        FLAG => flag_of(name).to_owned(),
        key => format!("`{key}` of the manifest is stricter"),
    };
    WarningReport::new(
        "limit_lowered",
        format!(
            "{} asks for {}, and {} holds: {because}",
            who_states(name, wanted),
            amount_or_none(name, wanted.value),
            amount(name, winner.value),
        ),
    )
}

/// The flag that states a limit.
#[must_use]
pub(crate) fn flag_of(limit: &str) -> &'static str {
    match limit {
        "memory_bytes" => "--memory",
        "wall_time_ms" => "--timeout",
        "cpu_time_ms" => "--cpu-time",
        "cpu_millis" => "--cpus",
        "processes" => "--pids",
        "open_files" => "--nofile",
        "disk_bytes" => "--disk",
        "output_bytes" => "--max-output",
        _ => "the flag",
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

#[cfg(test)]
mod tests {
    use super::*;
    use spec::host_policy::{AtLine, HostPolicy, Statement};

    const PLAIN: RunFacts = RunFacts {
        has_sandbox_block: false,
        has_terminal: false,
        captured: false,
        open_files_hard: 4096,
    };

    fn maxima() -> Maxima {
        HostPolicy::default().maxima
    }

    fn stated(name: &'static str, value: u64) -> StatedLimit {
        StatedLimit {
            name,
            value,
            source: format!("runner.limits.{name}"),
        }
    }

    pub(super) fn merged(flags: &LimitOptions, manifest: &[StatedLimit]) -> Limits {
        merge(flags, manifest, Origin::Bundle, &maxima(), PLAIN).expect("merged")
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
    }

    fn memory(bytes: u64) -> LimitOptions {
        LimitOptions {
            memory_bytes: Some(bytes),
            ..LimitOptions::default()
        }
    }

    #[test]
    fn built_in_maxima_bind_what_a_bundle_asks_and_no_flag() {
        let asked = [stated("memory_bytes", 64 << 30)];
        for (flags, manifest, origin, holds, by, warnings) in [
            (
                memory(64 << 30),
                &[][..],
                Origin::Bundle,
                64 << 30,
                "flag",
                0,
            ),
            (
                LimitOptions::default(),
                &asked,
                Origin::Bundle,
                4 << 30,
                "built-in-maximum",
                1,
            ),
            (
                LimitOptions::default(),
                &asked,
                Origin::Caller,
                64 << 30,
                "runner.limits.memory_bytes",
                0,
            ),
            // The caller's flag is an answer to what the bundle asks.
            (memory(8 << 30), &asked, Origin::Bundle, 8 << 30, "flag", 0),
        ] {
            let limits = merge(&flags, manifest, origin, &maxima(), PLAIN).expect("merged");
            assert_eq!(
                (
                    limits.memory_bytes,
                    source(&limits, "memory_bytes"),
                    limits.warnings.len()
                ),
                (holds, by, warnings)
            );
        }
    }

    #[test]
    fn a_maximum_of_the_configuration_refuses_a_flag_beyond_it_and_says_where() {
        let file = Statement {
            origin: "/etc/runner/config.yaml".to_owned(),
            memory_bytes: Some(AtLine {
                value: 1 << 30,
                line: 7,
            }),
            wall_time: Some(AtLine {
                value: Duration::from_secs(60),
                line: 8,
            }),
            ..Statement::default()
        };
        let maxima = spec::host_policy::merge(&[file]).0.maxima;
        let merge = |flags: &LimitOptions, manifest: &[StatedLimit], origin| {
            merge(flags, manifest, origin, &maxima, PLAIN)
        };
        let error = merge(&memory(8 << 30), &[], Origin::Bundle).expect_err("refused");
        assert_eq!(error.code(), "limit_above_maximum");
        assert_eq!(
            error.to_string(),
            "--memory asks for 8 GiB, and /etc/runner/config.yaml:7 allows at most 1 GiB"
        );
        let unlimited = LimitOptions {
            wall_time: Some(Duration::MAX),
            ..LimitOptions::default()
        };
        let error = merge(&unlimited, &[], Origin::Bundle).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "--timeout asks for none, and /etc/runner/config.yaml:8 allows at most 1 min"
        );
        let asked = [stated("memory_bytes", 2 << 30)];
        assert!(merge(&LimitOptions::default(), &asked, Origin::Caller).is_err());
        let limits = merge(&LimitOptions::default(), &asked, Origin::Bundle).expect("merged");
        assert_eq!(limits.memory_bytes, 1 << 30);
        assert_eq!(limits.warnings[0].code, "limit_lowered");
        // A default is nobody's wish.
        let limits = merge(&LimitOptions::default(), &[], Origin::Bundle).expect("merged");
        assert_eq!(limits.wall_time, Some(Duration::from_secs(60)));
        assert_eq!(source(&limits, "wall_time_ms"), HOST_POLICY);
        assert!(limits.warnings.is_empty());
    }

    #[test]
    fn a_flag_that_the_manifest_lowers_is_told() {
        let limits = merged(&memory(512 << 20), &[stated("memory_bytes", 128 << 20)]);
        assert_eq!(
            limits.warnings[0].message,
            "--memory asks for 512 MiB, and 128 MiB holds: `runner.limits.memory_bytes` of the manifest is stricter"
        );
        let limits = merged(&memory(64 << 20), &[stated("memory_bytes", 128 << 20)]);
        assert!(limits.warnings.is_empty());
    }

    #[test]
    fn no_wall_time_where_none_was_asked_or_a_person_sits_there() {
        let unlimited = LimitOptions {
            wall_time: Some(Duration::MAX),
            ..LimitOptions::default()
        };
        let limits = merged(&unlimited, &[]);
        assert_eq!(
            (limits.wall_time, source(&limits, "wall_time_ms")),
            (None, "flag")
        );
        let limits = merged(&unlimited, &[stated("wall_time_ms", 5_000)]);
        assert_eq!(limits.wall_time, Some(Duration::from_secs(5)));
        assert_eq!(limits.warnings[0].code, "limit_lowered");
        let terminal = RunFacts {
            has_terminal: true,
            ..PLAIN
        };
        let flags = LimitOptions::default();
        let limits = merge(&flags, &[], Origin::Caller, &maxima(), terminal).expect("merged");
        assert_eq!(limits.wall_time, None);
        let asked = [stated("wall_time_ms", 5_000)];
        let limits = merge(&flags, &asked, Origin::Caller, &maxima(), terminal).expect("merged");
        assert_eq!(limits.wall_time, Some(Duration::from_secs(5)));
    }

    #[test]
    fn open_descriptors_are_never_promised_beyond_the_hard_limit() {
        let flags = LimitOptions::default();
        let low = RunFacts {
            open_files_hard: 512,
            ..PLAIN
        };
        let limits = merge(&flags, &[], Origin::Caller, &maxima(), low).expect("merged");
        assert_eq!(limits.open_files, 512);
        let flags = LimitOptions {
            open_files: Some(1024),
            ..LimitOptions::default()
        };
        let refused = merge(&flags, &[], Origin::Caller, &maxima(), low).expect_err("refused");
        assert!(refused.to_string().contains("512"), "{refused}");
    }

    #[test]
    fn a_sandbox_block_makes_the_default_wall_time_shorter() {
        let flags = LimitOptions::default();
        let facts = RunFacts {
            has_sandbox_block: true,
            ..PLAIN
        };
        let limits = merge(&flags, &[], Origin::Bundle, &maxima(), facts).expect("merged");
        assert_eq!(limits.wall_time, Some(WALL_TIME_SANDBOX_DEFAULT));
        let asked = [stated("wall_time_ms", 120_000)];
        let limits = merge(&flags, &asked, Origin::Bundle, &maxima(), facts).expect("merged");
        assert_eq!(limits.wall_time, Some(Duration::from_secs(120)));
    }

    #[test]
    fn files_never_take_the_memory_that_processes_need() {
        let flags = LimitOptions {
            disk_bytes: Some(1 << 40),
            ..LimitOptions::default()
        };
        let limits = merged(&flags, &[]);
        assert_eq!(limits.disk_bytes, 224 << 20);
        assert_eq!(
            limits.warnings[0].message,
            "--disk asks for 1024 GiB, and 224 MiB holds: files count as memory: raise --memory"
        );
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
        assert!(merge(&flags, &[], Origin::Bundle, &maxima(), PLAIN).is_err());
        let flags = LimitOptions {
            wall_time: Some(Duration::ZERO),
            ..LimitOptions::default()
        };
        assert!(merge(&flags, &[], Origin::Bundle, &maxima(), PLAIN).is_err());
    }
}
