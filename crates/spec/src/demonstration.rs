//! What the demonstration tries, and what came of each attempt.

use crate::report::{Enforcement, ErrorReport};

/// Which part of the table an attempt belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What a body may do.
    Allowed,
    /// What it may not.
    Denied,
    /// What it may do up to a limit.
    Limited,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    AsPromised,
    Broken,
    /// It could not be tried here.
    NotTried,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which part of the table.
    pub part: Part,
    /// What came of it.
    pub held: Held,
    pub what: &'static str,
    /// What the body was told, escaped.
    pub answer: String,
    /// The mechanism that stood there first.
    pub mechanism: String,
}

/// The whole of it.
#[derive(Debug, Clone, Default)]
pub struct Demonstration {
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// What holds only weakly, or not at all, on this host.
    pub weaknesses: Vec<Enforcement>,
    /// How many bodies were run.
    pub runs: usize,
    /// The signal that ended it early.
    pub cancelled_by: Option<i32>,
    /// Why a run was refused or failed; then nothing was demonstrated after it.
    pub error: Option<ErrorReport>,
}

impl Demonstration {
    /// Whether everything was as promised.
    #[must_use]
    pub fn holds(&self) -> bool {
        let broken = self.rows.iter().any(|row| row.held == Held::Broken);
        self.error.is_none() && self.cancelled_by.is_none() && !broken
    }
}
