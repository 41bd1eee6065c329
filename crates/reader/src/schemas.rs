//! Validates documents against JSON Schemas.

use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use spec::io::contract::{Contract, ContractError, MISMATCHES_MAX, Mismatch};
use spec::parse_permit::ParsePermit;

use crate::WaitLimit;
use crate::message::is_plain;
use crate::worker::{NoAnswer, TextWorker};

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

impl Verdict {
    /// Whether its texts may stand in a report and on a terminal.
    fn is_plain(&self) -> bool {
        match self {
            Self::Accepted => true,
            Self::InvalidSchema(error) => is_plain(&error.to_string()),
            Self::Mismatch(found) => {
                let mut texts = found.iter().flat_map(|one| [&one.pointer, &one.message]);
                (1..=MISMATCHES_MAX).contains(&found.len()) && texts.all(|text| is_plain(text))
            }
        }
    }
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
    Host(Errno),
}

/// Validates `questions` in order within the limit, at most ten seconds.
///
/// # Errors
/// [`Refused`] for the first failure.
pub fn judge(questions: &[Question<'_>], wait_limit: WaitLimit<'_>) -> Result<(), Refused> {
    let Some(first) = questions.first() else {
        return Ok(());
    };
    let too_costly = |reason: String| Refused::Schema {
        block: first.block,
        error: ContractError::TooCostly { reason },
    };
    let worker = TextWorker {
        time_max: TIME_MAX,
        memory_bytes: MEMORY_BYTES_MAX,
        answer_bytes: ANSWER_BYTES_MAX,
        prepare: &prepare,
        run: &|permit, _source| {
            let verdicts = questions.iter().map(|question| verdict(permit, question));
            let verdicts: Vec<Verdict> = verdicts.collect();
            serde_json::to_vec(&verdicts).unwrap_or_default()
        },
    };
    let answer = worker
        .answer(&mut std::io::empty(), wait_limit)
        .map_err(|no_answer| match no_answer {
            NoAnswer::Exited => {
                too_costly("it needs more than 128 MiB of memory, or more stack".to_owned())
            }
            NoAnswer::TooLong => too_costly("the list of its mismatches is too long".to_owned()),
            NoAnswer::Cancelled(signal) => Refused::Cancelled(signal),
            NoAnswer::Host(errno) => Refused::Host(errno),
            NoAnswer::TimedOut(_) => too_costly(no_answer.reason()),
        })?;
    let blocks: Vec<&str> = questions.iter().map(|question| question.block).collect();
    read_schema_answer(&answer, &blocks)
        .unwrap_or_else(|| Err(too_costly("the validator's answer is malformed".to_owned())))
}

/// Parses the verdicts about the schemas of these blocks; the error is the first failure. `None` for what
/// a validator cannot have written.
pub fn read_schema_answer(answer: &[u8], blocks: &[&'static str]) -> Option<Result<(), Refused>> {
    let verdicts: Vec<Verdict> = serde_json::from_slice(answer).ok()?;
    if verdicts.len() != blocks.len() || !verdicts.iter().all(Verdict::is_plain) {
        return None;
    }
    let mut refused = blocks
        .iter()
        .zip(verdicts)
        .filter_map(|(block, verdict)| match verdict {
            Verdict::Accepted => None,
            Verdict::InvalidSchema(error) => Some(Refused::Schema { block, error }),
            Verdict::Mismatch(found) => Some(Refused::Document(found)),
        });
    Some(refused.next().map_or(Ok(()), Err))
}

/// The validator's hash maps read their seed from /dev/urandom, once.
fn prepare() -> Result<(), Errno> {
    let permit = ParsePermit::for_trusted_text();
    Contract::compile(&permit, &Value::Bool(true)).map_err(|_error| Errno::IO)?;
    Ok(())
}

fn verdict(permit: &ParsePermit, question: &Question<'_>) -> Verdict {
    #[cfg(feature = "planted-bugs")]
    confinement::planted::trigger("schemas", format!("{question:?}").as_bytes());
    let contract = match Contract::compile(permit, question.schema) {
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
