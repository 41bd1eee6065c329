//! Re-execution in a systemd scope, which is needed if the version 2 cgroup is not delegated.

use std::ffi::OsString;
use std::path::Path;

use super::choose::ScopeOwner;

/// Builds the `systemd-run` command that runs `program` with `arguments` (without its name) in a
/// transient delegated scope.
///
/// With `--scope` systemd-run registers its own process and executes the program in place, which
/// keeps pid, descriptors, environment, working directory and exit code.
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
    fn an_argument_of_the_body_is_never_an_option_of_systemd_run() {
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
