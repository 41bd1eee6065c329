//! The command provider: a program of the host that prints the value of a slug.

use std::time::Duration;

use crate::error::Unusable;
use crate::program::{self, Invocation};
use crate::{Context, VALUE_BYTES_MAX, without_newline};
use spec::request::EnvironmentEntry;
use spec::secret::Secret;

pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Variables of the caller that the program gets, so that it finds executables and its own files.
const PASSED_VARIABLES: [&[u8]; 2] = [b"PATH", b"HOME"];

/// Runs `command` with `slug`, which must be valid, as its last argument and returns the output.
pub(super) fn read(
    command: &[String],
    slug: &str,
    context: Context<'_>,
    timeout: Duration,
) -> Result<Secret, Unusable> {
    if command.is_empty() {
        return Err(Unusable::NotStarted(
            std::io::ErrorKind::InvalidInput.into(),
        ));
    }
    let environment: Vec<EnvironmentEntry> = context
        .environment
        .iter()
        .filter(|(name, _)| PASSED_VARIABLES.contains(&name.as_slice()))
        .cloned()
        .collect();
    let output = program::run(&Invocation {
        argv: &[command, &[slug.to_owned()]].concat(),
        input: b"",
        environment: &environment,
        timeout,
        signals: context.signals,
        is_cancelled: &|| false,
    })?;
    if output.status.code() != Some(0) {
        return Err(Unusable::Ended(program::describe_status(output.status)));
    }
    let value = without_newline(output.stdout.into_bytes());
    if value.bytes().len() > VALUE_BYTES_MAX {
        return Err(Unusable::TooLong);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Instant;

    fn environment() -> [(Vec<u8>, Vec<u8>); 3] {
        [
            (b"PATH".to_vec(), b"/usr/bin:/bin".to_vec()),
            (b"HOME".to_vec(), b"/nonexistent".to_vec()),
            (b"OTHER".to_vec(), b"canary".to_vec()),
        ]
    }

    fn run_script(script: &str, timeout: Duration) -> Result<Secret, Unusable> {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("provider");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
        let command = [
            "/bin/sh".to_owned(),
            program.to_str().expect("a plain path").to_owned(),
            "first".to_owned(),
        ];
        let environment = environment();
        let context = Context {
            environment: &environment,
            signals: None,
        };
        read(&command, "prod/key", context, timeout)
    }

    fn value(script: &str) -> Result<Secret, Unusable> {
        run_script(script, TIMEOUT)
    }

    #[test]
    fn the_program_gets_its_arguments_and_the_slug_and_prints_the_value() {
        let secret = value("printf '%s %s\\n' \"$1\" \"$2\"").expect("a value");
        assert_eq!(secret.bytes(), b"first prod/key");
        let secret = value("printf 'two\\nlines\\n\\n'").expect("a value");
        assert_eq!(secret.bytes(), b"two\nlines\n");
    }

    #[test]
    fn the_program_has_two_variables_no_input_and_its_own_process_group() {
        let secret = value("env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD= | sort; cat");
        let text = String::from_utf8_lossy(secret.expect("a value").bytes()).into_owned();
        assert_eq!(text, "HOME=/nonexistent\nPATH=/usr/bin:/bin");
        let secret = value("test $$ = $(cut -d' ' -f5 /proc/$$/stat) && echo leader");
        assert_eq!(secret.expect("a value").bytes(), b"leader");
    }

    /// F-04: messages never contain the program's output.
    #[test]
    fn a_program_that_fails_gives_nothing_and_its_words_are_not_shown() {
        for (script, part) in [
            ("echo canary; echo canary >&2; exit 3", "exit code 3"),
            ("echo canary; kill -9 $$", "signal 9"),
            ("head -c 65537 /dev/zero | tr '\\0' x", "more than 64 KiB"),
            ("while :; do echo canary; done", "more than 64 KiB"),
        ] {
            let error = value(script).expect_err(script).to_string();
            assert!(error.contains(part), "{script}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
        let context = Context {
            environment: &[],
            signals: None,
        };
        for command in [&["/nonexistent/provider".to_owned()][..], &[]] {
            let error = read(command, "prod/key", context, TIMEOUT).expect_err("no program");
            assert!(matches!(error, Unusable::NotStarted(_)), "{error}");
        }
    }

    #[test]
    fn a_program_that_times_out_is_killed_with_its_process_group() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; echo canary; wait", at.display());
        let error = run_script(&script, Duration::from_secs(1)).expect_err("too slow");
        assert!(matches!(error, Unusable::TimedOut { .. }), "{error}");
        let pid = std::fs::read_to_string(&at).expect("written");
        let stat = format!("/proc/{}/stat", pid.trim());
        let started = Instant::now();
        // Gone, or a zombie that its new parent has not reaped yet.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(started.elapsed() < Duration::from_secs(30), "it lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn other_holders_of_the_output_pipe_are_not_waited_for() {
        let secret = value("sleep 600 & echo value").expect("a value");
        assert_eq!(secret.bytes(), b"value");
        let secret = run_script("exec >&-; sleep 600", Duration::from_secs(1));
        assert!(matches!(secret, Err(Unusable::TimedOut { .. })));
    }
}
