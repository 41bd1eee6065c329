//! The attempts of the demonstration and their results.

use crate::report::{Enforcement, ErrorReport};

/// The part of the table that an attempt belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Allowed,
    Denied,
    Limited,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    AsPromised,
    Broken,
    /// Not possible on this host.
    NotTried,
}

/// An attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub part: Part,
    pub held: Held,
    pub what: &'static str,
    /// The error that the body got, escaped.
    pub answer: String,
    /// The mechanism that applied first.
    pub mechanism: String,
}

/// The whole demonstration.
#[derive(Debug, Clone, Default)]
pub struct Demonstration {
    pub rows: Vec<Row>,
    pub weaknesses: Vec<Enforcement>,
    pub runs: usize,
    pub cancelled_by: Option<i32>,
    pub error: Option<ErrorReport>,
}

impl Demonstration {
    /// Whether every attempt had the expected result.
    #[must_use]
    pub fn holds(&self) -> bool {
        let broken = self.rows.iter().any(|row| row.held == Held::Broken);
        self.error.is_none() && self.cancelled_by.is_none() && !broken
    }
}
