//! Version 2, not handed over: the command that runs us again inside a scope of our own.

use std::ffi::OsString;
use std::path::Path;

use super::choose::ScopeOwner;

/// The argument vector of `systemd-run` that runs `program` with `arguments` (without its name)
/// in a transient scope that may make groups of its own.
///
/// With `--scope` systemd-run registers its own process and executes the program in place: process
/// id, descriptors, environment, working directory and exit code stay ours.
#[must_use]
pub fn delegated_scope_argv(
    owner: ScopeOwner,
    program: &Path,
    arguments: &[OsString],
) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec!["/usr/bin/systemd-run".into()];
    if owner == ScopeOwner::User {
        argv.push("--user".into());
    }
    argv.extend(["--scope", "-q", "-p", "Delegate=yes", "--"].map(OsString::from));
    argv.push(program.into());
    argv.extend_from_slice(arguments);
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_of_the_body_is_never_taken_for_an_option_of_systemd_run() {
        let argv = delegated_scope_argv(
            ScopeOwner::User,
            Path::new("/usr/bin/runner"),
            &["run".into(), "--".into(), "--uid=0".into()],
        );
        let expected = [
            "/usr/bin/systemd-run",
            "--user",
            "--scope",
            "-q",
            "-p",
            "Delegate=yes",
            "--",
            "/usr/bin/runner",
            "run",
            "--",
            "--uid=0",
        ];
        assert_eq!(argv, expected);
        let of_root = delegated_scope_argv(ScopeOwner::System, Path::new("/r"), &[]);
        assert!(!of_root.contains(&"--user".into()));
    }
}
