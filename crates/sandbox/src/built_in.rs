//! A command that runs code of this program instead of executing one: in a copy of init, confined as the
//! first process of any command. The copy is not dumpable, as init is not, so no other process of the
//! sandbox traces it or reads its memory.
//!
//! Init does not wait for it: another process of the sandbox may stop it at any time.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::panic::catch_unwind;

use rustix::io::Errno;

use crate::command_plan::BuiltIn;
use crate::first_process::{CommandStart, confine};
use crate::steps::{ChildStep, CommandSteps, StepError, at};
use sys::arena::Arena;
use sys::{process, signal};

/// Exit code of a process that could not be confined: it has said why on its standard error.
const NOT_CONFINED: i32 = 1;
/// Room for its timestamps.
const ARENA_BYTES: usize = 64 << 10;
/// Exit code after a panic.
const PANICKED: i32 = 101;

/// Starts the process and returns its pid.
pub(super) fn start(
    start: &CommandStart<'_>,
    run: BuiltIn,
    words: &[&CStr],
) -> Result<i32, StepError> {
    // The supervisor overwrites the plan once the command has started.
    let command = start.command;
    let words: Vec<CString> = words.iter().map(|word| (*word).to_owned()).collect();
    let second_filter = command.second_filter.to_vec();
    let limits = command.limits.to_vec();
    let working_directory = command.working_directory.to_owned();
    // One that a stranger's archive has taken over would change the plans of others.
    let kept = start.arena.keep_from_later_children();
    kept.map_err(at(ChildStep::StartBody))?;
    let own_arena = Arena::new(ARENA_BYTES).map_err(at(ChildStep::StartBody))?;
    #[expect(unsafe_code, reason = "the one place where a copy of init is started")]
    // SAFETY: init has one thread.
    let forked = unsafe { process::fork() };
    if let Some(pid) = forked.map_err(at(ChildStep::StartBody))? {
        return Ok(pid);
    }
    let command = CommandSteps {
        second_filter: &second_filter,
        limits: &limits,
        working_directory: &working_directory,
        ..*command
    };
    let start = CommandStart {
        arena: &own_arena,
        command: &command,
        joins: &[],
        leaves: None,
        terminal: start.terminal,
        streams: start.streams,
        failed: Cell::new(None),
        confined: Cell::new(false),
    };
    // Limits are errors of the calls that exceed them.
    let confined =
        confine(&start).and_then(|()| signal::own_dispositions().map_err(at(ChildStep::Signals)));
    if let Err(failed) = confined {
        say(&start, failed);
        process::exit_now(NOT_CONFINED);
    }
    let words: Vec<&CStr> = words.iter().map(CString::as_c_str).collect();
    let code = catch_unwind(|| run(&words));
    process::exit_now(code.map_or(PANICKED, i32::from))
}

/// On the standard error, which may be in its place by now.
fn say(start: &CommandStart<'_>, StepError { step, errno, .. }: StepError) {
    let line = format!("cannot {}: {errno}\n", step.act());
    let [.., stderr] = start.streams;
    if rustix::io::write(stderr, line.as_bytes()) == Err(Errno::BADF) {
        rustix::io::write(rustix::stdio::stderr(), line.as_bytes()).unwrap_or_default();
    }
}
