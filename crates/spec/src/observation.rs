//! Which denials a run observed: a list without entries means something only for kinds that were.

use serde::Serialize;

/// The kinds of denials, and whether they were observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Observation {
    /// Connections, datagrams and DNS queries: denials of kind `net`.
    pub network: KindObservation,
    /// Calls that the filter refuses: denials of kind `syscall`.
    pub syscalls: KindObservation,
    /// Processes beyond their limit: denials of kind `resource`.
    pub resources: KindObservation,
    /// Files that the body does not see, sees read-only or cannot execute: denials of kind `file` and
    /// `exec`. Observed with `--trace`.
    pub files: KindObservation,
    /// Signals to process 1, which is the runner's: denials of kind `signal`. Observed with `--trace`.
    pub signals: KindObservation,
}

/// Whether denials of one kind were observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KindObservation {
    /// Whether `denials` lists them.
    pub state: ObservationState,
    /// Why the state is not `observed`.
    pub reason: Option<String>,
    /// Number of denials of this kind that `denials` does not list, because it has too many others.
    pub beyond: u64,
}

/// Whether denials of one kind were observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ObservationState {
    /// Each of them.
    Observed,
    /// Not all of them.
    Partial,
    /// None of them.
    NotObserved,
}

impl KindObservation {
    /// All denials were observed; `beyond` of them are not listed.
    #[must_use]
    pub fn complete(beyond: u64) -> Self {
        Self {
            state: ObservationState::Observed,
            reason: None,
            beyond,
        }
    }

    /// Some denials were not observed, for `reason`; `beyond` of the observed ones are not listed.
    #[must_use]
    pub fn partial(reason: impl Into<String>, beyond: u64) -> Self {
        Self {
            state: ObservationState::Partial,
            reason: Some(reason.into()),
            beyond,
        }
    }

    /// No denial was observed, for `reason`.
    #[must_use]
    pub fn none(reason: impl Into<String>) -> Self {
        Self {
            state: ObservationState::NotObserved,
            reason: Some(reason.into()),
            beyond: 0,
        }
    }
}

/// Of a run whose body was not started.
impl Default for Observation {
    fn default() -> Self {
        let none = || KindObservation::none("the body was not started");
        Self {
            network: none(),
            syscalls: none(),
            resources: none(),
            files: none(),
            signals: none(),
        }
    }
}
