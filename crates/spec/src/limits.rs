//! The limits of a run: one table for the command line, the manifest, the configuration, the
//! report and the plan.
//!
//! A new limit is a variant of [`Limit`], its place in [`Limit::ALL`] and its [`Row`]. All that
//! reads limits matches without wildcards, so that the compiler names the places that decide
//! something of it: the default and the maximum of a run, and the mechanism.

use core::time::Duration;

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
    /// Bytes that the body may write into the writable space.
    Disk,
    /// Inodes that it may make there.
    DiskInodes,
    /// Bytes of each file that it writes, wherever it lies.
    FileSize,
    /// Bytes of each output stream that are passed on or kept.
    Output,
}

/// What is said of a limit in more than one place.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name in reports, plans and errors. Its end is the unit, see [`crate::units::amount`].
    pub name: &'static str,
    /// The word of `runner plan`.
    pub word: &'static str,
    /// `None`: no flag sets it.
    pub flag: Option<Flag>,
    /// The key of `limits` in a manifest's `runner` and `sandbox`.
    pub key: Option<Key>,
    /// The key of `maxima` in the configuration.
    pub maximum: Option<&'static str>,
    /// Where nobody states it, in the unit of the name; `None`: no limit, or one that depends on
    /// the run.
    pub default: Option<u64>,
    /// Below this no program starts.
    pub least: u64,
    pub held_by: HeldBy,
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
    /// `1m30s` or `none`, which is [`UNLIMITED`].
    TimeOrNone,
    /// `1.5`, kept in thousandths.
    Cpus,
    /// A number not below this.
    Count(u64),
}

/// A key of a manifest. Its value is a whole number of at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub description: &'static str,
    /// The largest number that the key takes.
    pub most: u64,
    /// The value of 1 in the unit of the limit.
    pub unit: u64,
}

/// What holds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBy {
    /// The axis of the host's coverage with this name: a cgroup, or what is weaker without one.
    Axis(&'static str),
    /// The same mechanism on every host.
    Always(&'static str),
}

/// The value of a flag that asks for no limit.
pub const UNLIMITED: u64 = u64::MAX;
/// Wall time where a `sandbox` block is present and nobody states it (AIP-36), milliseconds.
pub const WALL_TIME_SANDBOX_DEFAULT_MS: u64 = 30_000;
/// Largest `memory_mb`: its bytes must fit 63 bits.
pub(crate) const MEMORY_MIB_MAX: u64 = i64::MAX.unsigned_abs() >> 20;
/// Largest `timeout_ms` and `cpu_ms`: 100 years. With a grace period, nanoseconds still fit 63
/// bits.
pub(crate) const TIME_MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;

const MEMORY_KEY: Key = Key {
    name: "memory_mb",
    description: "Memory of all processes together, in MiB. Default: 256.",
    most: MEMORY_MIB_MAX,
    unit: 1 << 20,
};

const fn time_key(name: &'static str, description: &'static str) -> Key {
    Key {
        name,
        description,
        most: TIME_MS_MAX,
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

    /// Its row of the table.
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
                        "Memory of the whole tree [default: 256m]",
                    )
                }),
                key: Some(MEMORY_KEY),
                maximum: Some("memory"),
                // AIP-17 recommends it, and the wall time.
                default: Some(256 << 20),
                // The runner's own part of the body's start has to fit.
                least: 4 << 20,
                held_by: HeldBy::Axis("memory"),
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
                least: 1,
                held_by: HeldBy::Always("supervisor"),
            },
            Self::CpuTime => Row {
                name: "cpu_time_ms",
                word: "CPU time",
                flag: Some(flag(
                    "cpu-time",
                    FlagValue::Time,
                    "CPU time of the whole tree",
                )),
                key: Some(time_key(
                    "cpu_ms",
                    "CPU time of all processes together, in milliseconds. Default: no limit.",
                )),
                maximum: None,
                default: None,
                least: 0,
                held_by: HeldBy::Axis("cpu_time"),
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
                least: 0,
                held_by: HeldBy::Axis("cpu_share"),
            },
            Self::Processes => Row {
                name: "processes",
                word: "processes",
                flag: Some(flag(
                    "pids",
                    FlagValue::Count(1),
                    "Processes and threads at once [default: 512]",
                )),
                key: None,
                maximum: Some("processes"),
                default: Some(512),
                least: 0,
                held_by: HeldBy::Axis("processes"),
            },
            Self::OpenFiles => Row {
                name: "open_files",
                word: "descriptors",
                flag: Some(flag(
                    "nofile",
                    FlagValue::Count(16),
                    "Open descriptors of each process [default: 1024]",
                )),
                key: None,
                maximum: None,
                default: Some(1024),
                least: 0,
                held_by: HeldBy::Always("rlimit"),
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
                // The kernel counts what a tmpfs holds in portions for each processor: a limit as
                // near to what is in it already as that is sometimes refused.
                least: 64 << 10,
                held_by: HeldBy::Always("tmpfs"),
            },
            Self::DiskInodes => Row {
                name: "disk_inodes",
                word: "inodes",
                flag: None,
                key: None,
                maximum: None,
                default: Some(65_536),
                least: 0,
                held_by: HeldBy::Always("tmpfs"),
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
                least: 0,
                held_by: HeldBy::Always("rlimit"),
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
                least: 0,
                held_by: HeldBy::Always("supervisor"),
            },
        }
    }

    /// The name in reports, plans and errors, unit last.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The limit of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// The limit that the flag `--long` sets.
    #[must_use]
    pub fn of_flag(long: &str) -> Option<Self> {
        let is_it = |limit: &Self| limit.row().flag.is_some_and(|flag| flag.long == long);
        Self::ALL.into_iter().find(is_it)
    }

    /// The flag that sets it, with its dashes, for messages.
    #[must_use]
    pub fn flag(self) -> String {
        match self.row().flag {
            Some(flag) => format!("--{}", flag.long),
            None => "the flag".to_owned(),
        }
    }

    /// The axis of the host's coverage that holds it; `None`: every host holds it.
    #[must_use]
    pub const fn axis(self) -> Option<&'static str> {
        match self.row().held_by {
            HeldBy::Axis(axis) => Some(axis),
            HeldBy::Always(_) => None,
        }
    }

    /// A value with its unit.
    #[must_use]
    pub fn amount(self, value: u64) -> String {
        crate::units::amount(self.name(), value)
    }
}

// A variant that is missing in the list moves the last one.
const _: () = assert!(Limit::ALL.len() == Limit::Output as usize + 1);

/// How strongly a host holds the limits of one axis, and through what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// As in [`HeldBy::Axis`].
    pub axis: &'static str,
    pub state: EnforcementState,
    /// `cgroup-v1`, `cgroup-v2`, `rlimit`, `poll`, `none`.
    pub enforced_by: &'static str,
    pub reason: Option<String>,
}

/// A value for each limit, in the units of their names; `None`: not stated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitValues([Option<u64>; Limit::ALL.len()]);

impl LimitValues {
    /// The value of `limit`.
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

/// Whole milliseconds, the unit of limits of time.
#[must_use]
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_listed_once_where_its_value_lies() {
        for (index, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, index, "{limit:?}");
            assert_eq!(Limit::named(limit.name()), Some(limit));
            if let Some(flag) = limit.row().flag {
                assert_eq!(Limit::of_flag(flag.long), Some(limit));
            }
        }
    }
}
