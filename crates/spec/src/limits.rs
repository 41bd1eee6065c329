//! The limits of a run: one table for the command line, the manifest, the configuration, the
//! report and the plan.
//!
//! A new limit is a variant of [`Limit`], an entry of [`Limit::ALL`] and a [`Row`]. Code that depends
//! on the limit matches without wildcards, so the compiler finds it: the default and the maximum of a
//! run, and the mechanism.

use core::time::Duration;

use crate::plan_report::{BUILT_IN_MAXIMUM, DEFAULT, FLAG, HOST_POLICY};
use crate::report::EnforcementState;

/// A limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory of all processes.
    Memory,
    WallTime,
    /// CPU time of all processes.
    CpuTime,
    /// Share of the processors.
    Cpus,
    /// Processes and threads at once.
    Processes,
    /// Open descriptors of each process.
    OpenFiles,
    /// Bytes in the writable directories of the run.
    Disk,
    /// Inodes in the writable directories of the run.
    DiskInodes,
    /// Bytes of each file that the body writes, in any directory.
    FileSize,
    /// Bytes of each output stream that are passed on or captured.
    Output,
}

/// The properties of a limit.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name in reports, plans and errors. It ends with the unit: see [`crate::units::amount`].
    pub name: &'static str,
    /// The label in the text of `runner plan`.
    pub word: &'static str,
    /// `None`: no flag sets it.
    pub flag: Option<Flag>,
    /// The key of `limits` in a manifest's `runner` and `sandbox`.
    pub key: Option<Key>,
    /// The key of `maxima` in the configuration.
    pub maximum: Option<&'static str>,
    /// In the unit of the name; `None`: no limit, or a default that depends on the run.
    pub default: Option<u64>,
    /// The smallest value with which a program starts.
    pub min: u64,
    pub enforced_by: EnforcedBy,
}

/// A flag of `runner run` and `runner exec`.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Without the dashes.
    pub long: &'static str,
    pub short: Option<char>,
    pub value: FlagValue,
    pub help: &'static str,
}

/// How the value of a flag is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagValue {
    /// `64m`, at least 1 byte.
    Size,
    /// `64m` or `0`.
    SizeOrZero,
    /// `1m30s`, at least 1 ms.
    Time,
    /// `1m30s`, or `none` for [`UNLIMITED`].
    TimeOrNone,
    /// `1.5`, stored in thousandths.
    Cpus,
    /// A whole number of this range. [`UNLIMITED`] is in none.
    Count { min: u64, max: u64 },
}

/// A key of a manifest. Its value is a whole number of at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub description: &'static str,
    /// The largest accepted number.
    pub max: u64,
    /// The value of 1 in the unit of the limit.
    pub unit: u64,
}

/// What enforces a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnforcedBy {
    /// The axis of [`Coverage`] with this name: a cgroup, or a weaker mechanism without one.
    Axis(&'static str),
    /// The same mechanism on every host.
    Always(&'static str),
}

/// The value of a flag that removes the limit.
pub const UNLIMITED: u64 = u64::MAX;
/// Default wall time with a `sandbox` block (AIP-36), in milliseconds.
pub const WALL_TIME_SANDBOX_DEFAULT_MS: u64 = 30_000;
/// The kernel's PID_MAX_LIMIT. A larger pids.max fails (EINVAL).
const PIDS_MAX: u64 = 4_194_304;
/// No kernel allows more descriptors: its largest fs.nr_open, rounded up.
const OPEN_FILES_MAX: u64 = 1 << 31;
/// Largest `memory_mb`: its bytes must fit 63 bits.
pub(crate) const MEMORY_MIB_MAX: u64 = i64::MAX.unsigned_abs() >> 20;
/// Largest `timeout_ms` and `cpu_ms`: 100 years. With a grace period, nanoseconds still fit 63
/// bits.
pub(crate) const TIME_MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;

const MEMORY_KEY: Key = Key {
    name: "memory_mb",
    description: "Memory of all processes together, in MiB. Default: 256.",
    max: MEMORY_MIB_MAX,
    unit: 1 << 20,
};

const fn time_key(name: &'static str, description: &'static str) -> Key {
    Key {
        name,
        description,
        max: TIME_MS_MAX,
        unit: 1,
    }
}

const fn flag(long: &'static str, value: FlagValue, help: &'static str) -> Flag {
    Flag {
        long,
        short: None,
        value,
        help,
    }
}

impl Limit {
    /// In the order of reports and plans.
    pub const ALL: [Self; 10] = [
        Self::Memory,
        Self::WallTime,
        Self::CpuTime,
        Self::Cpus,
        Self::Processes,
        Self::OpenFiles,
        Self::Disk,
        Self::DiskInodes,
        Self::FileSize,
        Self::Output,
    ];

    /// Its row of the table: flag, keys, unit, default and maximum.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one table")]
    pub const fn row(self) -> Row {
        match self {
            Self::Memory => Row {
                name: "memory_bytes",
                word: "memory",
                flag: Some(Flag {
                    short: Some('m'),
                    ..flag(
                        "memory",
                        FlagValue::Size,
                        "Memory of all processes together [default: 256m]",
                    )
                }),
                key: Some(MEMORY_KEY),
                maximum: Some("memory"),
                // Recommended by AIP-17, as is the wall time.
                default: Some(256 << 20),
                // The runner's code between clone and exec has to fit.
                min: 4 << 20,
                enforced_by: EnforcedBy::Axis("memory"),
            },
            Self::WallTime => Row {
                name: "wall_time_ms",
                word: "wall time",
                flag: Some(flag(
                    "timeout",
                    FlagValue::TimeOrNone,
                    "Wall time, such as 90s, 1h30m or 1d, or none; unpacking and checking \
                           count, fetching does not [default: 10m; none with -t]",
                )),
                key: Some(time_key(
                    "timeout_ms",
                    "Wall time, in milliseconds. Default: 600000; 30000 with a `sandbox` block.",
                )),
                maximum: Some("timeout"),
                default: Some(600_000),
                min: 1,
                enforced_by: EnforcedBy::Always("supervisor"),
            },
            Self::CpuTime => Row {
                name: "cpu_time_ms",
                word: "CPU time",
                flag: Some(flag(
                    "cpu-time",
                    FlagValue::Time,
                    "CPU time of all processes together",
                )),
                key: Some(time_key(
                    "cpu_ms",
                    "CPU time of all processes together, in milliseconds. Default: no limit.",
                )),
                maximum: None,
                default: None,
                min: 0,
                enforced_by: EnforcedBy::Axis("cpu_time"),
            },
            Self::Cpus => Row {
                name: "cpu_millis",
                word: "processors",
                flag: Some(flag(
                    "cpus",
                    FlagValue::Cpus,
                    "Share of processors, 1.5 for one and a half",
                )),
                key: None,
                maximum: None,
                default: None,
                min: 0,
                enforced_by: EnforcedBy::Axis("cpu_share"),
            },
            Self::Processes => Row {
                name: "processes",
                word: "processes",
                flag: Some(flag(
                    "pids",
                    FlagValue::Count {
                        min: 1,
                        max: PIDS_MAX,
                    },
                    "Processes and threads at once [default: 512]",
                )),
                key: None,
                maximum: Some("processes"),
                default: Some(512),
                min: 0,
                enforced_by: EnforcedBy::Axis("processes"),
            },
            Self::OpenFiles => Row {
                name: "open_files",
                word: "descriptors",
                flag: Some(flag(
                    "nofile",
                    FlagValue::Count {
                        min: 16,
                        max: OPEN_FILES_MAX,
                    },
                    "Open descriptors of each process [default: 1024]",
                )),
                key: None,
                maximum: None,
                default: Some(1024),
                min: 0,
                enforced_by: EnforcedBy::Always("rlimit"),
            },
            Self::Disk => Row {
                name: "disk_bytes",
                word: "disk",
                flag: Some(flag(
                    "disk",
                    FlagValue::Size,
                    "Bytes in the writable directories",
                )),
                key: None,
                maximum: None,
                default: None,
                // The kernel counts the blocks of a tmpfs in batches per processor. It may refuse a
                // limit that is within such a batch of the used blocks.
                min: 64 << 10,
                enforced_by: EnforcedBy::Always("tmpfs"),
            },
            Self::DiskInodes => Row {
                name: "disk_inodes",
                word: "inodes",
                flag: None,
                key: None,
                maximum: None,
                default: Some(65_536),
                min: 0,
                enforced_by: EnforcedBy::Always("tmpfs"),
            },
            Self::FileSize => Row {
                name: "file_bytes",
                word: "file size",
                flag: Some(flag(
                    "fsize",
                    FlagValue::Size,
                    "Bytes of each file that is written, also in --rw directories",
                )),
                key: None,
                maximum: None,
                default: None,
                min: 0,
                enforced_by: EnforcedBy::Always("rlimit"),
            },
            Self::Output => Row {
                name: "output_bytes",
                word: "output",
                flag: Some(flag(
                    "max-output",
                    FlagValue::SizeOrZero,
                    "Bytes of each output stream; may be 0",
                )),
                key: None,
                maximum: None,
                default: None,
                min: 0,
                enforced_by: EnforcedBy::Always("supervisor"),
            },
        }
    }

    /// The name in reports, plans and errors, unit last: `memory_bytes`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Finds the limit by its flag, without the dashes.
    #[must_use]
    pub fn of_flag(long: &str) -> Option<Self> {
        let has_flag = |limit: &Self| limit.row().flag.is_some_and(|flag| flag.long == long);
        Self::ALL.into_iter().find(has_flag)
    }

    /// The flag with its dashes, for messages.
    #[must_use]
    pub fn flag(self) -> String {
        match self.row().flag {
            Some(flag) => format!("--{}", flag.long),
            None => "the flag".to_owned(),
        }
    }

    /// How to change a value that `source` decided: by the flag, unless something else bounds it.
    #[must_use]
    pub fn how_to_change(self, source: Option<&str>) -> String {
        let flag = self.flag();
        match source {
            None | Some(DEFAULT | FLAG | BUILT_IN_MAXIMUM) => format!("{flag} sets it"),
            Some(HOST_POLICY) => "`maxima` of the host's configuration allow no more".to_owned(),
            Some(key) => format!("`{key}` of the manifest sets it, and {flag} can only lower it"),
        }
    }

    /// The axis of [`Coverage`] that enforces it; `None`: every host enforces it.
    #[must_use]
    pub const fn axis(self) -> Option<&'static str> {
        match self.row().enforced_by {
            EnforcedBy::Axis(axis) => Some(axis),
            EnforcedBy::Always(_) => None,
        }
    }

    /// Describes a `value` with which no program starts.
    #[must_use]
    pub fn too_small(self, value: u64) -> Option<String> {
        let least = self.row().min;
        (value < least).then(|| {
            format!(
                "{} of {} is below {}, under which no program starts",
                self.name(),
                self.amount(value),
                self.amount(least)
            )
        })
    }

    /// Formats a value with its unit.
    #[must_use]
    pub fn amount(self, value: u64) -> String {
        crate::units::amount(self.name(), value)
    }
}

// Fails if a variant is missing in the list.
const _: () = assert!(Limit::ALL.len() == Limit::Output as usize + 1);

/// How strongly a host enforces the limits of one axis, and with which mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// As in [`EnforcedBy::Axis`].
    pub axis: &'static str,
    pub state: EnforcementState,
    /// `cgroup-v1`, `cgroup-v2`, `rlimit`, `poll`, `none`.
    pub enforced_by: &'static str,
    pub reason: Option<String>,
}

/// The stated values of the limits, in the units of their names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitValues([Option<u64>; Limit::ALL.len()]);

impl LimitValues {
    /// The value of `limit`; `None`: not stated.
    #[must_use]
    pub const fn get(&self, limit: Limit) -> Option<u64> {
        self.0[limit as usize]
    }

    /// Replaces the value of `limit`.
    pub const fn set(&mut self, limit: Limit, value: u64) {
        self.0[limit as usize] = Some(value);
    }
}

impl<const COUNT: usize> From<[(Limit, u64); COUNT]> for LimitValues {
    fn from(values: [(Limit, u64); COUNT]) -> Self {
        let mut all = Self::default();
        for (limit, value) in values {
            all.set(limit, value);
        }
        all
    }
}

/// Converts to whole milliseconds, the unit of time limits.
#[must_use]
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_listed_once_at_its_index() {
        for (index, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, index, "{limit:?}");
            let mut limits = Limit::ALL.into_iter();
            let first = limits.find(|other| other.name() == limit.name());
            assert_eq!(first, Some(limit));
            if let Some(flag) = limit.row().flag {
                assert_eq!(Limit::of_flag(flag.long), Some(limit));
            }
        }
    }
}
