//! Reads what strangers wrote in a process without rights: unpacks archives, parses documents and
//! validates them against schemas.
//!
//! [`unpack`] and its like, [`survey`], [`parse_document`], [`parse_json`], [`parse_with`], [`Dialogue`] and [`judge`] fork
//! this process. The child gives up everything but the directory that it fills (crate `confinement`), reads, and answers with a message of
//! limited length, whose every part this process checks as if the child were hostile. It has ended when the
//! call returns.
//!
//! The calling process must have one thread. The child has a copy of its memory.

mod dialogue;
mod documents;
mod files;
mod filling;
mod json;
mod layers;
mod message;
mod packages;
mod schemas;
mod snapshots;
mod survey;
mod texts;
mod unpacking;
mod worker;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use dialogue::Dialogue;
pub use documents::{Documents, parse_document, read_document_answer};
pub use files::unpack_files;
pub use filling::Feed;
pub use json::{Unparsed, parse_json};
pub use layers::{Layer, read_layer_answer, unpack_layer};
pub use message::{Cause, Problem, put_part, read_archive_answer, split_parts};
pub use packages::{PackageProblem, PackagesTask, unpack_packages};
pub use schemas::{Question, Refused, judge, read_schema_answer};
pub use snapshots::{
    Hosted, read_hosted_answer, read_snapshot_answer, unpack_hosted, unpack_snapshot,
};
pub use survey::{SurveyTask, read_survey_answer, survey};
pub use texts::{parse_with, read_text_answer};
pub use unpacking::{ParseDocuments, Target, UnpackFailure, UnpackTask, unpack};

/// What ends a wait for the reader: the time limit, or a signal.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitLimit<'run> {
    pub time: Option<Duration>,
    /// signalfd(2) of the signals that cancel a run; `None` if they end this process.
    pub signals: Option<BorrowedFd<'run>>,
}
