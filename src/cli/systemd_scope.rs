//! Starting again through systemd-run, where that is what gives a run its limits.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::run::host::scope::command_in_scope;
use spec::report::WarningReport;
use spec::request::Caller;
use sys::probe::effective_uid;

/// Says to the second start that it is one.
const MARK: &str = "RUNNER_OPT_IN_DELEGATED_SCOPE";

/// Replaces this process by one in a scope of its own, where `command_in_scope` says so.
///
/// Returns where nothing had to be done, or with a warning where systemd-run could not be
/// executed: the run then goes on, and its report says which limits hold less.
///
/// `words` are this process's own, the name of the program first.
pub(crate) fn enter_scope(caller: &Caller, words: &[OsString]) -> Option<WarningReport> {
    let program = std::env::current_exe().ok()?;
    let argv = command_in_scope(caller, &program, words.get(1..).unwrap_or_default())?;
    let (name, rest) = argv.split_first()?;
    let mut command = Command::new(name);
    command.args(rest).env(MARK, "1");
    let uid = effective_uid();
    if uid != 0 && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // Where the user's manager was seen to listen; without it systemd-run finds no bus, and
        // by then it has taken our place.
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{uid}"));
    }
    let error = command.exec();
    Some(WarningReport::new(
        "scope_unavailable",
        format!("systemd-run could not be executed: {error}"),
    ))
}
