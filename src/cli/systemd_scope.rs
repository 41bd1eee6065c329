//! Starts this program again through systemd-run if that provides a delegated cgroup.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::run::host::scope::command_in_scope;
use spec::report::WarningReport;
use spec::request::Caller;
use sys::detach::Readiness;
use sys::probe::effective_uid;

/// Set for the second start.
pub(super) const MARK: &str = "RUNNER_OPT_IN_DELEGATED_SCOPE";

/// Replaces this process with one in a scope of its own, if `command_in_scope` returns a command.
///
/// Returns if nothing has to be done, or with a warning if the second start is not possible: the run
/// then continues, and its report shows which limits are weaker.
///
/// `words` is the argument vector, with the program's name first. The second start reads all inputs
/// again: call this before a pipe is read. `policy_file`, that of `--policy`, has been read. `readiness` of
/// the supervisor of a sandbox goes over to the second start.
pub(crate) fn enter_scope(
    caller: &Caller,
    words: &[OsString],
    policy_file: Option<&Path>,
    readiness: Option<&Readiness>,
) -> Option<WarningReport> {
    let program = std::env::current_exe().ok()?;
    let argv = command_in_scope(caller, &program, words.get(1..).unwrap_or_default())?;
    let unavailable = |message| Some(WarningReport::new("scope_unavailable", message));
    if policy_file.is_some_and(|file| !file.is_file()) {
        return unavailable(
            "systemd-run would have to read the file of --policy again, which is no regular file"
                .to_owned(),
        );
    }
    let (name, rest) = argv.split_first()?;
    let mut command = Command::new(name);
    command.args(rest).env(MARK, "1");
    let uid = effective_uid();
    let mut variables = caller.environment.iter();
    if uid != 0 && variables.all(|(name, _)| name != b"XDG_RUNTIME_DIR") {
        // The directory of the user manager's socket. Without it systemd-run finds no bus, and fails
        // after it has replaced this process.
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{uid}"));
    }
    if let Some(Err(errno)) = readiness.map(Readiness::pass_on) {
        return unavailable(format!("the standard input cannot be passed on: {errno}"));
    }
    let error = command.exec();
    unavailable(format!("systemd-run could not be executed: {error}"))
}
