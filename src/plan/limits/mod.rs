//! Limits: merges what flags, manifest, host policy and defaults state.

mod coverage;

use std::time::Duration;

use crate::plan::grants::Origin;
use spec::host_policy::{Maxima, Maximum};
use spec::limits::{Limit, LimitValues, UNLIMITED, WALL_TIME_SANDBOX_DEFAULT_MS, milliseconds};
use spec::manifest::StatedLimit;
use spec::plan_report::{BUILT_IN_MAXIMUM, DEFAULT, FLAG, HOST_POLICY};
use spec::report::{LimitReport, LimitSource, WarningReport};
use spec::request::LimitOptions;

pub(crate) use coverage::apply_coverage;
pub(crate) use coverage::weaker_than_stated;

/// Default time between the stop signal and SIGKILL.
pub(crate) const GRACE_DEFAULT: Duration = Duration::from_secs(2);
/// Default limit of each captured stream.
pub(crate) const CAPTURE_BYTES_DEFAULT: u64 = 16 << 20;
/// Memory that is left for processes when files fill the writable tmpfs.
const MEMORY_NOT_FOR_FILES_BYTES: u64 = 32 << 20;

/// The effective limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// In the units of the names; `None`: no limit.
    pub values: LimitValues,
    /// Between the stop signal and SIGKILL.
    pub grace: Duration,
    /// One for each limit. `apply_coverage` sets the mechanisms.
    pub reports: Vec<LimitReport>,
    /// One for each limit that is lower than stated.
    pub warnings: Vec<WarningReport>,
}

/// Why a limit is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("{message}")]
    TooSmall {
        limit: Limit,
        value: u64,
        message: String,
    },
    /// The caller states more than the host's configuration allows.
    #[error("{asked}, and {place} allows at most {maximum}")]
    AboveMaximum {
        limit: Limit,
        /// The flag or key of the caller's manifest, with its value.
        asked: String,
        maximum: String,
        /// `FILE:LINE` of the configuration.
        place: String,
    },
    #[error("this host cannot enforce the limit {axis}: {reason}")]
    Unenforceable { axis: String, reason: String },
}

impl LimitError {
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => "limit_too_small",
            Self::AboveMaximum { .. } => "limit_above_maximum",
            Self::Unenforceable { .. } => "limit_unenforceable",
        }
    }

    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            // A size without a unit is bytes.
            Self::TooSmall { limit, value, .. } => {
                let is_size = limit.name().ends_with("_bytes") && *value < 1 << 10;
                (is_size && value << 20 >= limit.row().min)
                    .then(|| format!("did you mean {value}m, which is {value} MiB?"))
            }
            Self::AboveMaximum { limit, place, .. } => Some(format!(
                "state less, or raise maxima.{} in {place}",
                limit.row().maximum.unwrap_or(limit.name())
            )),
            // No mode of `--limits` changes this limit.
            Self::Unenforceable { axis, .. } if axis == Limit::OpenFiles.name() => {
                Some("state less, or raise the hard limit".to_owned())
            }
            Self::Unenforceable { .. } => Some(
                "see `runner doctor`; --limits=best-effort runs without what cannot be enforced"
                    .to_owned(),
            ),
        }
    }
}

/// Facts of a run that decide defaults of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFacts {
    /// The manifest has a `sandbox` block, whose default wall time is shorter (AIP-36).
    pub has_sandbox_block: bool,
    /// `-t`: the wall time is unlimited by default.
    pub has_terminal: bool,
    /// The streams are captured for the report.
    pub captured: bool,
    /// The hard limit of open descriptors of this process (getrlimit(2)), which the run cannot raise.
    pub open_files_hard: u64,
}

/// Merges what flags and manifest state: the strictest wins. [`Maxima`] of the host policy bound the
/// result: a higher value of the caller is refused, one of a bundle's own manifest is lowered with a
/// warning.
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
    let open_files_stated = flags.values.get(Limit::OpenFiles);
    if open_files_stated.is_some_and(|stated| stated > facts.open_files_hard) {
        return Err(LimitError::Unenforceable {
            axis: Limit::OpenFiles.name().to_owned(),
            reason: format!(
                "the hard limit of open descriptors here is {} (`ulimit -Hn`)",
                facts.open_files_hard
            ),
        });
    }
    let mut merged = Limits {
        grace: flags.grace.unwrap_or(GRACE_DEFAULT),
        values: LimitValues::default(),
        reports: Vec::with_capacity(Limit::ALL.len()),
        warnings: Vec::new(),
    };
    for limit in Limit::ALL {
        let flag = flags.values.get(limit);
        let stated = stated(limit, flag, manifest, origin);
        let default = default(limit, &merged, facts);
        let bound = bound(limit, &merged, maxima);
        let effective = merged.add(limit, &stated, default, bound)?;
        if let Some(value) = effective {
            if let Some(message) = limit.too_small(value) {
                return Err(LimitError::TooSmall {
                    limit,
                    value,
                    message,
                });
            }
            merged.values.set(limit, value);
        }
    }
    Ok(merged)
}

/// The default of `limit`; `None`: no limit. `earlier` are the limits before it in the table.
fn default(limit: Limit, earlier: &Limits, facts: RunFacts) -> Option<u64> {
    let default = limit.row().default;
    match limit {
        Limit::WallTime if facts.has_terminal => None,
        Limit::WallTime if facts.has_sandbox_block => Some(WALL_TIME_SANDBOX_DEFAULT_MS),
        Limit::OpenFiles => default.map(|files| files.min(facts.open_files_hard)),
        Limit::Disk => Some(memory_for_files(earlier)),
        Limit::Output => facts.captured.then_some(CAPTURE_BYTES_DEFAULT),
        Limit::Memory
        | Limit::WallTime
        | Limit::CpuTime
        | Limit::Cpus
        | Limit::Processes
        | Limit::DiskInodes
        | Limit::FileSize => default,
    }
}

fn bound(limit: Limit, earlier: &Limits, maxima: &Maxima) -> Option<Bound> {
    match limit {
        Limit::Memory => Some(Bound::of(&maxima.memory_bytes, |bytes| *bytes)),
        Limit::WallTime => Some(Bound::of(&maxima.wall_time, |time| milliseconds(*time))),
        Limit::Processes => Some(Bound::of(&maxima.processes, |count| *count)),
        Limit::Disk => Some(Bound {
            value: memory_for_files(earlier),
            by: BoundBy::Memory,
        }),
        Limit::CpuTime
        | Limit::Cpus
        | Limit::OpenFiles
        | Limit::DiskInodes
        | Limit::FileSize
        | Limit::Output => None,
    }
}

/// Files in the writable tmpfs are memory: some of it is left for processes.
fn memory_for_files(limits: &Limits) -> u64 {
    let memory_bytes = limits.memory_bytes();
    memory_bytes
        .checked_sub(MEMORY_NOT_FOR_FILES_BYTES)
        .unwrap_or(memory_bytes / 2)
        .max(memory_bytes / 4)
}

fn stated(
    limit: Limit,
    flag: Option<u64>,
    manifest: &[StatedLimit],
    origin: Origin,
) -> Vec<Stated> {
    let of_flag = flag.map(|value| Stated {
        value,
        source: FLAG.to_owned(),
        by_caller: true,
    });
    let of_manifest = manifest.iter().filter(|stated| stated.limit == limit);
    of_flag
        .into_iter()
        .chain(of_manifest.map(|stated| Stated {
            value: stated.value,
            source: stated.source.clone(),
            by_caller: origin == Origin::Caller,
        }))
        .collect()
}

struct Bound {
    value: u64,
    by: BoundBy,
}

enum BoundBy {
    /// The memory limit: files are memory.
    Memory,
    /// This program. Applies to a bundle's own manifest, unless the caller states a limit too.
    BuiltIn,
    /// The configuration, with `FILE:LINE`.
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
            BoundBy::Memory => Limit::Memory.name(),
            BoundBy::BuiltIn => BUILT_IN_MAXIMUM,
            BoundBy::Configuration(_) => HOST_POLICY,
        }
    }
}

#[derive(Clone)]
struct Stated {
    value: u64,
    source: String,
    /// By a flag, or by a manifest that the caller gave.
    by_caller: bool,
}

impl Limits {
    /// Decides one limit and adds its report.
    fn add(
        &mut self,
        limit: Limit,
        stated: &[Stated],
        default: Option<u64>,
        bound: Option<Bound>,
    ) -> Result<Option<u64>, LimitError> {
        let bound = bound.filter(|bound| match bound.by {
            BoundBy::BuiltIn => stated.iter().any(|entry| !entry.by_caller),
            BoundBy::Memory | BoundBy::Configuration(_) => true,
        });
        let sources = sources(stated, default, bound.as_ref());
        let stated_min = stated.iter().min_by_key(|stated| stated.value).cloned();
        let winner = stated_min.clone().or_else(|| {
            default.map(|value| Stated {
                value,
                source: DEFAULT.to_owned(),
                by_caller: false,
            })
        });
        let winner = match (winner, &bound) {
            (winner, Some(bound)) => apply_bound(limit, stated, winner, bound)?,
            (winner, None) => winner,
        };
        if let Some(winner) = &winner {
            let requested = stated
                .iter()
                .filter(|entry| entry.source == FLAG)
                .chain(&stated_min)
                .find(|requested| requested.value > winner.value);
            if let Some(requested) = requested {
                self.warnings.push(lowered(limit, requested, winner));
            }
        }
        let finite = |value: u64| (value != UNLIMITED).then_some(value);
        let effective = winner.as_ref().and_then(|winner| finite(winner.value));
        self.reports.push(LimitReport {
            limit,
            requested: stated_min.and_then(|stated| finite(stated.value)),
            effective,
            enforced_by: "none",
            source: winner.map_or_else(|| DEFAULT.to_owned(), |winner| winner.source),
            sources,
        });
        Ok(effective)
    }

    /// Memory of the whole tree, bytes. Every run has this limit.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.values.get(Limit::Memory).unwrap_or_default()
    }

    /// A time limit; `None`: no limit.
    #[must_use]
    pub fn time(&self, limit: Limit) -> Option<Duration> {
        self.values.get(limit).map(Duration::from_millis)
    }
}

/// All sources of a value, with the bound last.
fn sources(stated: &[Stated], default: Option<u64>, bound: Option<&Bound>) -> Vec<LimitSource> {
    let row = |source: &str, value| LimitSource {
        source: source.to_owned(),
        value,
    };
    let stated = stated.iter().map(|entry| row(&entry.source, entry.value));
    let default = default.map(|value| row(DEFAULT, value));
    let bound = bound.map(|bound| row(bound.name(), bound.value));
    stated.chain(default).chain(bound).collect()
}

/// Applies `bound` to `winner`.
fn apply_bound(
    limit: Limit,
    stated: &[Stated],
    winner: Option<Stated>,
    bound: &Bound,
) -> Result<Option<Stated>, LimitError> {
    if let BoundBy::Configuration(place) = &bound.by {
        let beyond = stated
            .iter()
            .find(|entry| entry.by_caller && entry.value > bound.value);
        if let Some(beyond) = beyond {
            return Err(LimitError::AboveMaximum {
                limit,
                asked: format!(
                    "{} asks for {}",
                    flag_or_key(limit, beyond),
                    amount_or_none(limit, beyond.value)
                ),
                maximum: limit.amount(bound.value),
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
        // The caller states as much or more.
        (winner, BoundBy::BuiltIn) if stated.iter().any(|entry| entry.by_caller) => winner,
        (Some(winner), _) if winner.value > bound.value => Some(of_bound),
        (None, BoundBy::Configuration(_)) => Some(of_bound),
        (winner, _) => winner,
    })
}

fn flag_or_key(limit: Limit, stated: &Stated) -> String {
    match stated.source.as_str() {
        FLAG => limit.flag(),
        key => format!("`{key}`"),
    }
}

fn amount_or_none(limit: Limit, value: u64) -> String {
    match value {
        UNLIMITED => "none".to_owned(),
        value => limit.amount(value),
    }
}

fn lowered(limit: Limit, requested: &Stated, winner: &Stated) -> WarningReport {
    let because = match winner.source.as_str() {
        by if by == Limit::Memory.name() => "files count as memory: raise --memory".to_owned(),
        BUILT_IN_MAXIMUM => format!(
            "a bundle's manifest gets no more by itself: state {}",
            limit.flag()
        ),
        HOST_POLICY => "the host's configuration allows no more".to_owned(),
        key => format!("`{key}` of the manifest is stricter"),
    };
    WarningReport::new(
        "limit_lowered",
        format!(
            "{} asks for {}, but {} applies: {because}",
            flag_or_key(limit, requested),
            amount_or_none(limit, requested.value),
            limit.amount(winner.value),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::host_config::{AtLine, Size, Statement, Time, WrittenMaxima};
    use spec::host_policy::HostPolicy;

    const PLAIN: RunFacts = RunFacts {
        has_sandbox_block: false,
        has_terminal: false,
        captured: false,
        open_files_hard: 4096,
    };

    fn maxima() -> Maxima {
        HostPolicy::default().maxima
    }

    fn stated(limit: Limit, value: u64) -> StatedLimit {
        StatedLimit {
            limit,
            value,
            source: format!("runner.limits.{}", limit.name()),
        }
    }

    fn flag(limit: Limit, value: u64) -> LimitOptions {
        LimitOptions {
            values: [(limit, value)].into(),
            ..LimitOptions::default()
        }
    }

    pub(super) fn merged(flags: &LimitOptions, manifest: &[StatedLimit]) -> Limits {
        merge(flags, manifest, Origin::Bundle, &maxima(), PLAIN).expect("merged")
    }

    fn source(limits: &Limits, limit: Limit) -> &str {
        let found = limits.reports.iter().find(|report| report.limit == limit);
        found.map_or("", |report| report.source.as_str())
    }

    #[test]
    fn the_strictest_word_wins_and_is_named() {
        let flags = flag(Limit::Memory, 512 << 20);
        let limits = merged(&flags, &[stated(Limit::Memory, 128 << 20)]);
        assert_eq!(limits.memory_bytes(), 128 << 20);
        assert_eq!(source(&limits, Limit::Memory), "runner.limits.memory_bytes");
        let limits = merged(&flags, &[]);
        assert_eq!(
            (limits.memory_bytes(), source(&limits, Limit::Memory)),
            (512 << 20, "flag")
        );
        let limits = merged(&LimitOptions::default(), &[]);
        assert_eq!(Some(limits.memory_bytes()), Limit::Memory.row().default);
    }

    fn memory(bytes: u64) -> LimitOptions {
        flag(Limit::Memory, bytes)
    }

    #[test]
    fn built_in_maxima_bind_what_a_bundle_asks_and_no_flag() {
        let asked = [stated(Limit::Memory, 64 << 30)];
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
            // The caller's flag confirms what the bundle asks for.
            (memory(8 << 30), &asked, Origin::Bundle, 8 << 30, "flag", 0),
            (
                memory(65 << 30),
                &asked,
                Origin::Bundle,
                64 << 30,
                "runner.limits.memory_bytes",
                1,
            ),
        ] {
            let limits = merge(&flags, manifest, origin, &maxima(), PLAIN).expect("merged");
            assert_eq!(
                (
                    limits.memory_bytes(),
                    source(&limits, Limit::Memory),
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
            maxima: WrittenMaxima {
                memory: Some(AtLine {
                    value: Size(1 << 30),
                    line: 7,
                }),
                timeout: Some(AtLine {
                    value: Time(Duration::from_secs(60)),
                    line: 8,
                }),
                processes: None,
            },
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
        let unlimited = flag(Limit::WallTime, UNLIMITED);
        let error = merge(&unlimited, &[], Origin::Bundle).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "--timeout asks for none, and /etc/runner/config.yaml:8 allows at most 1 min"
        );
        let asked = [stated(Limit::Memory, 2 << 30)];
        assert!(merge(&LimitOptions::default(), &asked, Origin::Caller).is_err());
        let limits = merge(&LimitOptions::default(), &asked, Origin::Bundle).expect("merged");
        assert_eq!(limits.memory_bytes(), 1 << 30);
        assert_eq!(limits.warnings[0].code, "limit_lowered");
        // Lowering a default is no warning.
        let limits = merge(&LimitOptions::default(), &[], Origin::Bundle).expect("merged");
        assert_eq!(limits.time(Limit::WallTime), Some(Duration::from_secs(60)));
        assert_eq!(source(&limits, Limit::WallTime), HOST_POLICY);
        assert!(limits.warnings.is_empty());
    }

    #[test]
    fn a_flag_that_the_manifest_lowers_is_told() {
        let limits = merged(&memory(512 << 20), &[stated(Limit::Memory, 128 << 20)]);
        assert_eq!(
            limits.warnings[0].message,
            "--memory asks for 512 MiB, but 128 MiB applies: `runner.limits.memory_bytes` of the manifest is stricter"
        );
        let limits = merged(&memory(64 << 20), &[stated(Limit::Memory, 128 << 20)]);
        assert!(limits.warnings.is_empty());
    }

    #[test]
    fn no_wall_time_where_none_was_asked_or_a_person_sits_there() {
        let unlimited = flag(Limit::WallTime, UNLIMITED);
        let limits = merged(&unlimited, &[]);
        assert_eq!(
            (
                limits.time(Limit::WallTime),
                source(&limits, Limit::WallTime)
            ),
            (None, "flag")
        );
        let limits = merged(&unlimited, &[stated(Limit::WallTime, 5_000)]);
        assert_eq!(limits.time(Limit::WallTime), Some(Duration::from_secs(5)));
        assert_eq!(limits.warnings[0].code, "limit_lowered");
        let terminal = RunFacts {
            has_terminal: true,
            ..PLAIN
        };
        let flags = LimitOptions::default();
        let limits = merge(&flags, &[], Origin::Caller, &maxima(), terminal).expect("merged");
        assert_eq!(limits.time(Limit::WallTime), None);
        let asked = [stated(Limit::WallTime, 5_000)];
        let limits = merge(&flags, &asked, Origin::Caller, &maxima(), terminal).expect("merged");
        assert_eq!(limits.time(Limit::WallTime), Some(Duration::from_secs(5)));
    }

    #[test]
    fn open_descriptors_are_never_promised_beyond_the_hard_limit() {
        let flags = LimitOptions::default();
        let low = RunFacts {
            open_files_hard: 512,
            ..PLAIN
        };
        let limits = merge(&flags, &[], Origin::Caller, &maxima(), low).expect("merged");
        assert_eq!(limits.values.get(Limit::OpenFiles), Some(512));
        let flags = flag(Limit::OpenFiles, 1024);
        let refused = merge(&flags, &[], Origin::Caller, &maxima(), low).expect_err("refused");
        assert!(refused.to_string().contains("512"), "{refused}");
        let hint = refused.hint().expect("a hint");
        assert!(!hint.contains("best-effort"), "{hint}");
    }

    #[test]
    fn a_sandbox_block_makes_the_default_wall_time_shorter() {
        let flags = LimitOptions::default();
        let facts = RunFacts {
            has_sandbox_block: true,
            ..PLAIN
        };
        let limits = merge(&flags, &[], Origin::Bundle, &maxima(), facts).expect("merged");
        assert_eq!(
            limits.time(Limit::WallTime),
            Some(Duration::from_millis(WALL_TIME_SANDBOX_DEFAULT_MS))
        );
        let asked = [stated(Limit::WallTime, 120_000)];
        let limits = merge(&flags, &asked, Origin::Bundle, &maxima(), facts).expect("merged");
        assert_eq!(limits.time(Limit::WallTime), Some(Duration::from_secs(120)));
    }

    #[test]
    fn files_never_take_the_memory_that_processes_need() {
        let flags = flag(Limit::Disk, 1 << 40);
        let limits = merged(&flags, &[]);
        assert_eq!(limits.values.get(Limit::Disk), Some(224 << 20));
        assert_eq!(
            limits.warnings[0].message,
            "--disk asks for 1024 GiB, but 224 MiB applies: files count as memory: raise --memory"
        );
        let flags = flag(Limit::Memory, 16 << 20);
        assert_eq!(merged(&flags, &[]).values.get(Limit::Disk), Some(8 << 20));
    }

    #[test]
    fn limits_under_which_nothing_starts_are_refused() {
        for (bytes, hint) in [(1, None), (64, Some("did you mean 64m, which is 64 MiB?"))] {
            let refused = merge(&memory(bytes), &[], Origin::Bundle, &maxima(), PLAIN);
            assert_eq!(refused.expect_err("refused").hint().as_deref(), hint);
        }
        let flags = flag(Limit::WallTime, 0);
        assert!(merge(&flags, &[], Origin::Bundle, &maxima(), PLAIN).is_err());
    }
}
