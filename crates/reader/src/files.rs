//! Unpacks files that are copied out of a sandbox.

use std::fs::File;
use std::os::fd::BorrowedFd;

use archive::{UnpackLimits, transfer};
use confinement::Role;
use serde::{Deserialize, Serialize};
use spec::parse_permit::ParsePermit;
use sys::worker::WorkerLimits;

use crate::filling::{Feed, fill};
use crate::message::{HEADER_BYTES_MAX, Problem, malformed, read_header, write_header};
use crate::unpacking::memory_bytes;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Header {
    Unpacked {
        /// Devices and FIFOs.
        skipped: u64,
    },
    Problem(Problem),
}

/// Unpacks a tar as [`transfer::unpack::unpack`] does, into the empty directory `into`. Returns how many
/// entries were skipped.
///
/// # Errors
/// [`Problem`]; `into` then contains some of the entries.
pub fn unpack_files(
    feed: Feed<'_>,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
) -> Result<u64, Problem> {
    let worker_limits = WorkerLimits {
        time: None,
        memory_bytes: memory_bytes(limits),
        file_bytes: limits.unpacked_bytes,
        answer_bytes: usize::try_from(HEADER_BYTES_MAX).unwrap_or(usize::MAX),
    };
    let run = |permit: &ParsePermit, source: File| {
        #[cfg(feature = "planted-bugs")]
        let source = confinement::planted::watch("files", source);
        let unpacked = transfer::unpack::unpack(permit, source, into, limits);
        write_header(&match unpacked {
            Ok(skipped) => Header::Unpacked { skipped },
            Err(error) => Header::Problem(Problem::of(&error)),
        })
    };
    let answer = fill(feed, Role::LayerUnpacker(into), worker_limits, &run)?;
    let skipped = read_files_answer(&answer.bytes)?;
    answer.archive_digest().map(|_whole| skipped)
}

/// Parses the message of a process that unpacked files.
fn read_files_answer(bytes: &[u8]) -> Result<u64, Problem> {
    match read_header(bytes)? {
        (Header::Unpacked { skipped }, []) => Ok(skipped),
        (Header::Problem(problem), []) if problem.is_plain() => Err(problem),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_no_reader_writes_is_malformed() {
        let whole = write_header(&Header::Unpacked { skipped: 3 });
        assert_eq!(read_files_answer(&whole), Ok(3));
        let control = Problem::of_reader("\u{1b}[31m");
        for bad in [
            Vec::new(),
            whole[..whole.len() - 1].to_vec(),
            [&whole, &b"x"[..]].concat(),
            write_header(&Header::Problem(control)),
        ] {
            let found = read_files_answer(&bad).expect_err("malformed");
            assert!(found.message.contains("malformed"), "{found}");
        }
    }
}
