//! Reasons for refusing a run.

use crate::run::error::RunError;

/// Fails with the first reason in a run; collects all reasons in a plan.
#[derive(Debug)]
pub(super) struct Refusals {
    collected: Option<Vec<RunError>>,
}

impl Refusals {
    pub(super) fn fail() -> Self {
        Self { collected: None }
    }

    pub(super) fn collecting() -> Self {
        Self {
            collected: Some(Vec::new()),
        }
    }

    /// The value of `result`; `None` if its error was collected.
    ///
    /// # Errors
    /// The error of `result`, unless errors are collected.
    pub(super) fn check<T>(&mut self, result: Result<T, RunError>) -> Result<Option<T>, RunError> {
        match (result, &mut self.collected) {
            (Ok(value), _) => Ok(Some(value)),
            (Err(error), None) => Err(error),
            (Err(error), Some(collected)) => {
                collected.push(error);
                Ok(None)
            }
        }
    }

    pub(super) fn refuse(&mut self, error: RunError) -> Result<(), RunError> {
        self.check::<()>(Err(error)).map(drop)
    }

    pub(super) fn into_vec(self) -> Vec<RunError> {
        self.collected.unwrap_or_default()
    }
}
