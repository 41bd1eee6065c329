//! The command provider: a program of the host that prints the value of a slug.

use std::time::Duration;

use crate::error::Unusable;
use crate::program::{self, Question};
use crate::{Around, VALUE_BYTES_MAX, without_newline};
use spec::request::EnvironmentEntry;
use spec::secret::Secret;

/// Timeout for the program.
const DEADLINE: Duration = Duration::from_secs(10);
/// Variables of the caller that are passed to the program, so that it finds executables and its own
/// files.
const PASSED: [&[u8]; 2] = [b"PATH", b"HOME"];

/// Runs `words` with `slug`, which must be valid, and returns the output.
pub(super) fn ask(words: &[String], slug: &str, around: Around<'_>) -> Result<Secret, Unusable> {
    ask_within(words, slug, around, DEADLINE)
}

fn ask_within(
    words: &[String],
    slug: &str,
    around: Around<'_>,
    deadline: Duration,
) -> Result<Secret, Unusable> {
    if words.is_empty() {
        return Err(Unusable::NotStarted(
            std::io::ErrorKind::InvalidInput.into(),
        ));
    }
    let words = [words, &[slug.to_owned()]].concat();
    let environment: Vec<EnvironmentEntry> = around
        .environment
        .iter()
        .filter(|(name, _)| PASSED.contains(&name.as_slice()))
        .cloned()
        .collect();
    let said = program::ask(&Question {
        words: &words,
        input: b"",
        environment: &environment,
        deadline,
        signals: around.signals,
        is_over: &|| false,
    })?;
    if said.status.code() != Some(0) {
        return Err(Unusable::Ended(program::described(said.status)));
    }
    let value = without_newline(said.output.into_bytes());
    if VALUE_BYTES_MAX < value.bytes().len() {
        return Err(Unusable::TooLong);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Instant;

    fn around() -> [(Vec<u8>, Vec<u8>); 3] {
        [
            (b"PATH".to_vec(), b"/usr/bin:/bin".to_vec()),
            (b"HOME".to_vec(), b"/nonexistent".to_vec()),
            (b"OTHER".to_vec(), b"canary".to_vec()),
        ]
    }

    fn asked(script: &str, slug: &str, deadline: Duration) -> Result<Secret, Unusable> {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("ask");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
        let words = [
            "/bin/sh".to_owned(),
            program.to_str().expect("a plain path").to_owned(),
            "first".to_owned(),
        ];
        let environment = around();
        let around = Around {
            environment: &environment,
            signals: None,
        };
        ask_within(&words, slug, around, deadline)
    }

    fn value(script: &str) -> Result<Secret, Unusable> {
        asked(script, "prod/key", DEADLINE)
    }

    #[test]
    fn the_program_gets_its_words_and_the_slug_and_prints_the_value() {
        let told = value("printf '%s %s\\n' \"$1\" \"$2\"").expect("a value");
        assert_eq!(told.bytes(), b"first prod/key");
        let told = value("printf 'two\\nlines\\n\\n'").expect("a value");
        assert_eq!(told.bytes(), b"two\nlines\n");
    }

    #[test]
    fn the_program_has_two_variables_no_input_and_a_group_of_its_own() {
        let told = value("env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD= | sort; cat");
        let text = String::from_utf8_lossy(told.expect("a value").bytes()).into_owned();
        assert_eq!(text, "HOME=/nonexistent\nPATH=/usr/bin:/bin");
        let told = value("test $$ = $(cut -d' ' -f5 /proc/$$/stat) && echo leader");
        assert_eq!(told.expect("a value").bytes(), b"leader");
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
        let around = Around {
            environment: &[],
            signals: None,
        };
        for words in [&["/nonexistent/ask".to_owned()][..], &[]] {
            let error = ask(words, "prod/key", around).expect_err("no program");
            assert!(matches!(error, Unusable::NotStarted(_)), "{error}");
        }
    }

    #[test]
    fn a_program_that_is_too_slow_is_killed_with_its_whole_group() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; echo canary; wait", at.display());
        let error = asked(&script, "prod/key", Duration::from_secs(1)).expect_err("too slow");
        assert!(matches!(error, Unusable::Late { .. }), "{error}");
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
    fn a_program_that_leaves_somebody_at_its_output_is_not_waited_for() {
        let told = value("sleep 600 & echo value").expect("a value");
        assert_eq!(told.bytes(), b"value");
        let told = asked("exec >&-; sleep 600", "prod/key", Duration::from_secs(1));
        assert!(matches!(told, Err(Unusable::Late { .. })));
    }
}
