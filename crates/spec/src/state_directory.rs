//! Where the records of a user are, for all programs of this package.

use std::path::PathBuf;

const STATE_DIRECTORY_OF_ROOT: &str = "/var/lib/runner";

/// `RUNNER_OPT_STATE_DIRECTORY`, else `runner` in the user's state directory (XDG base directory specification), or
/// a directory of this uid in /tmp if there is no home. `absolute` returns a variable that is an absolute path.
#[must_use]
pub fn state_directory(uid: u32, absolute: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    if let Some(stated) = absolute("RUNNER_OPT_STATE_DIRECTORY") {
        return stated;
    }
    if uid == 0 {
        return PathBuf::from(STATE_DIRECTORY_OF_ROOT);
    }
    absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/state")))
        .map_or_else(
            || PathBuf::from(format!("/tmp/runner-{uid}/state")),
            |directory| directory.join("runner"),
        )
}

/// The directory of the runs of `runner serve`, in the state directory.
pub const SERVED_RUNS: &str = "serve";
