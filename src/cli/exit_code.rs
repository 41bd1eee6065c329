//! The exit code of `runner exec` and `runner run`.
//!
//! | code | when |
//! | --- | --- |
//! | the body's own | the body exited by itself |
//! | 124 | the wall time limit or the CPU time limit ended it |
//! | 125 | the request was refused; the runner or the host failed; the declared outputs are missing or invalid; the output limit ended it; wrong usage |
//! | 126 | its program was found inside and could not be executed |
//! | 127 | its program was not found inside |
//! | 128 + n | signal n ended it; 137: the memory limit; for a cancelled run, n is the signal that the runner got |
//!
//! The code is ambiguous: a body may exit with 124. The report's `outcome` and raw wait status are not.

use spec::outcome::Outcome;
use spec::report::Exit;

pub(crate) const TIMED_OUT: u8 = 124;
pub(crate) const FAILED: u8 = 125;
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// The error code of a launch whose execve(2) failed with ENOENT or ENOTDIR.
pub(crate) const PROGRAM_NOT_FOUND: &str = "program_not_found";
/// The error code of a launch whose execve(2) failed with EACCES, ENOEXEC or a similar errno.
pub(crate) const PROGRAM_NOT_EXECUTABLE: &str = "program_not_executable";

/// `exit` is of the body's first process, `error_code` the code of the report's error, `cancelled_by`
/// the signal that the runner got.
#[must_use]
pub(crate) fn exit_code(
    outcome: Outcome,
    exit: Option<Exit>,
    error_code: Option<&str>,
    cancelled_by: Option<i32>,
) -> u8 {
    match outcome {
        Outcome::Exited => exit
            .and_then(|exit| exit.code)
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(FAILED),
        Outcome::Signaled => exit.and_then(|exit| exit.signal).map_or(FAILED, of_signal),
        Outcome::OutOfMemory => of_signal(libc::SIGKILL),
        Outcome::Cancelled => cancelled_by
            .or_else(|| exit.and_then(|exit| exit.signal))
            .map_or_else(|| of_signal(libc::SIGTERM), of_signal),
        Outcome::TimedOut | Outcome::CpuExhausted => TIMED_OUT,
        Outcome::OutputLimit => FAILED,
        Outcome::Refused | Outcome::Failed => match error_code {
            Some(PROGRAM_NOT_FOUND) => NOT_FOUND,
            Some(PROGRAM_NOT_EXECUTABLE) => NOT_EXECUTABLE,
            _ => FAILED,
        },
    }
}

pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal)
        .ok()
        .and_then(|signal| signal.checked_add(128))
        .unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32) -> Option<Exit> {
        Some(Exit {
            code: Some(code),
            signal: None,
            core_dump: false,
            raw_status: code << 8,
        })
    }

    fn killed(signal: i32) -> Option<Exit> {
        Some(Exit {
            code: None,
            signal: Some(signal),
            core_dump: false,
            raw_status: signal,
        })
    }

    #[test]
    fn the_exit_code_is_the_one_of_the_table() {
        use Outcome::*;
        for (outcome, exit, error, cancelled_by, code) in [
            (Exited, exited(0), None, None, 0),
            (Exited, exited(42), None, None, 42),
            (Exited, exited(124), None, None, 124),
            (Exited, exited(137), None, None, 137),
            (Exited, exited(255), None, None, 255),
            (Exited, None, None, None, 125),
            (Signaled, killed(11), None, None, 139),
            (Signaled, killed(9), None, None, 137),
            (Signaled, killed(64), None, None, 192),
            (TimedOut, killed(9), None, None, 124),
            (TimedOut, exited(0), None, None, 124),
            (CpuExhausted, killed(24), None, None, 124),
            (OutOfMemory, killed(9), None, None, 137),
            (OutOfMemory, exited(1), None, None, 137),
            (OutputLimit, killed(9), None, None, 125),
            (Cancelled, killed(9), None, Some(15), 143),
            (Cancelled, exited(0), None, Some(2), 130),
            (Cancelled, killed(15), None, None, 143),
            (Cancelled, None, None, None, 143),
            (Refused, None, Some("run_missing"), None, 125),
            (Refused, None, Some(PROGRAM_NOT_FOUND), None, 127),
            (Failed, None, Some(PROGRAM_NOT_FOUND), None, 127),
            (Failed, None, Some(PROGRAM_NOT_EXECUTABLE), None, 126),
            (Failed, exited(0), Some("missing-output"), None, 125),
            (Failed, None, None, None, 125),
        ] {
            assert_eq!(
                exit_code(outcome, exit, error, cancelled_by),
                code,
                "{outcome:?} {exit:?} {error:?} {cancelled_by:?}"
            );
        }
    }
}
