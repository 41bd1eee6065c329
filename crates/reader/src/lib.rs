//! Validates documents against schemas in a child process with limits, because both may be
//! untrusted.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use spec::io::contract::{Contract, ContractError, Mismatch};
use sys::worker::{WorkerError, WorkerLimits, run_in_child};

const TIME_MAX: Duration = Duration::from_secs(10);
/// Limit beyond the memory of the supervisor, which already contains the document.
const MEMORY_BYTES_MAX: u64 = 128 << 20;
/// Enough for 1,000 mismatches with two short texts each.
const ANSWER_BYTES_MAX: usize = 2 << 20;

/// A schema and the document to validate.
#[derive(Debug, Clone, Copy)]
pub struct Question<'run> {
    /// `inputs` or `outputs`.
    pub block: &'static str,
    pub schema: &'run Value,
    /// `None`: only validate the schema.
    pub document: Option<&'run Value>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    Accepted,
    InvalidSchema(ContractError),
    Mismatch(Vec<Mismatch>),
}

/// Reason why a document was not accepted.
#[derive(Debug)]
pub enum Refused {
    /// Invalid schema, or validation did not finish.
    Schema {
        block: &'static str,
        error: ContractError,
    },
    Document(Vec<Mismatch>),
    Cancelled(i32),
    Host(rustix::io::Errno),
}

/// Validates `questions` in order within `time`, at most ten seconds.
///
/// # Errors
/// [`Refused`] for the first failure.
pub fn judge(
    questions: &[Question<'_>],
    time: Option<Duration>,
    signals: Option<BorrowedFd<'_>>,
) -> Result<(), Refused> {
    let Some(first) = questions.first() else {
        return Ok(());
    };
    let limits = WorkerLimits {
        time: time.unwrap_or(TIME_MAX).min(TIME_MAX),
        memory_bytes: MEMORY_BYTES_MAX,
        answer_bytes: ANSWER_BYTES_MAX,
    };
    let work = || {
        let verdicts: Vec<Verdict> = questions.iter().map(verdict).collect();
        serde_json::to_vec(&verdicts).unwrap_or_default()
    };
    let too_costly = |reason: String| Refused::Schema {
        block: first.block,
        error: ContractError::TooCostly { reason },
    };
    let answer = run_in_child(limits, signals, &work).map_err(|error| match error {
        WorkerError::TimedOut => too_costly(format!("it takes longer than {:?}", limits.time)),
        WorkerError::Exited => {
            too_costly("it needs more than 128 MiB of memory, or more stack".to_owned())
        }
        WorkerError::TooLong => too_costly("the list of its mismatches is too long".to_owned()),
        WorkerError::Signal(signal) => Refused::Cancelled(signal),
        WorkerError::Host(errno) => Refused::Host(errno),
    })?;
    let verdicts: Vec<Verdict> = serde_json::from_slice(&answer)
        .map_err(|error| too_costly(format!("the validator's answer is malformed: {error}")))?;
    if verdicts.len() != questions.len() {
        return Err(too_costly(
            "the validator's answer is incomplete".to_owned(),
        ));
    }
    for (question, verdict) in questions.iter().zip(verdicts) {
        match verdict {
            Verdict::Accepted => (),
            Verdict::InvalidSchema(error) => {
                let block = question.block;
                return Err(Refused::Schema { block, error });
            }
            Verdict::Mismatch(found) => return Err(Refused::Document(found)),
        }
    }
    Ok(())
}

fn verdict(question: &Question<'_>) -> Verdict {
    let contract = match Contract::compile(question.schema) {
        Ok(contract) => contract,
        Err(error) => return Verdict::InvalidSchema(error),
    };
    match question
        .document
        .map(|document| contract.validate(document))
    {
        Some(Err(mismatches)) => Verdict::Mismatch(mismatches),
        None | Some(Ok(())) => Verdict::Accepted,
    }
}
