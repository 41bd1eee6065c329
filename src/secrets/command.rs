//! The command provider: a program of the host's that prints the value of a slug.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::kernel::process::kill;
use crate::kernel::signal;
use crate::secrets::error::Unusable;
use crate::secrets::{Around, VALUE_BYTES_MAX, without_newline};
use crate::spec::secret::{Secret, overwrite};

/// How long the program has.
const DEADLINE: Duration = Duration::from_secs(10);
/// Variables of the caller that the program gets: to be found, and to find its own files.
const PASSED: [&[u8]; 2] = [b"PATH", b"HOME"];

/// What `words` and `slug`, which must be one, print.
///
/// The program is in a process group of its own and has no input; what it writes to standard error
/// is thrown away, since it may quote the value.
pub(super) fn ask(words: &[String], slug: &str, around: Around<'_>) -> Result<Secret, Unusable> {
    ask_within(words, slug, around, DEADLINE)
}

fn ask_within(
    words: &[String],
    slug: &str,
    around: Around<'_>,
    deadline: Duration,
) -> Result<Secret, Unusable> {
    let mut asked = start(words, slug, around)?;
    // Room for all of it at once: a vector that grows leaves copies behind.
    let mut bytes = Vec::with_capacity(VALUE_BYTES_MAX + 1);
    let followed = asked.follow(&mut bytes, around.signals, deadline);
    // Whatever came of it, the group is not there any longer when this returns.
    let ended = asked.end();
    let outcome = followed.and(ended).and_then(|status| match status.code() {
        Some(0) => Ok(()),
        _ => Err(Unusable::Ended(described(status))),
    });
    if let Err(cause) = outcome {
        overwrite(&mut bytes);
        return Err(cause);
    }
    let value = without_newline(bytes);
    if VALUE_BYTES_MAX < value.bytes().len() {
        return Err(Unusable::TooLong);
    }
    Ok(value)
}

/// A started program.
struct Asked {
    child: Child,
    pid: i32,
    pidfd: OwnedFd,
    output: File,
}

fn start(words: &[String], slug: &str, around: Around<'_>) -> Result<Asked, Unusable> {
    let (program, rest) = words
        .split_first()
        .ok_or_else(|| Unusable::NotStarted(std::io::ErrorKind::InvalidInput.into()))?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .arg(slug)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    for (name, value) in around.environment {
        if PASSED.contains(&name.as_slice()) {
            command.env(
                std::ffi::OsStr::from_bytes(name),
                std::ffi::OsStr::from_bytes(value),
            );
        }
    }
    let mut child = command.spawn().map_err(Unusable::NotStarted)?;
    let pid = i32::try_from(child.id()).map_err(|_range| Unusable::Lost(Errno::RANGE))?;
    let output = child.stdout.take().map(OwnedFd::from);
    let followed = Pid::from_raw(pid)
        .ok_or(Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .and_then(|pidfd| {
            let output = output.ok_or(Errno::BADF)?;
            rustix::io::ioctl_fionbio(&output, true)?;
            Ok((pidfd, output))
        });
    match followed {
        Ok((pidfd, output)) => Ok(Asked {
            child,
            pid,
            pidfd,
            output: File::from(output),
        }),
        Err(errno) => {
            // Not followed, so not left behind either.
            let ended = kill(-pid, libc::SIGKILL)
                .and_then(|()| child.wait().map_err(|error| errno_of(&error)));
            Err(Unusable::Lost(ended.err().unwrap_or(errno)))
        }
    }
}

impl Asked {
    /// Reads until the program has ended, says too much, is too slow, or the caller's signal comes.
    fn follow(
        &mut self,
        bytes: &mut Vec<u8>,
        signals: Option<BorrowedFd<'_>>,
        deadline: Duration,
    ) -> Result<(), Unusable> {
        let started = Instant::now();
        let mut open = true;
        loop {
            let left = deadline.saturating_sub(started.elapsed());
            if left.is_zero() {
                let seconds = deadline.as_secs();
                return Err(Unusable::Late { seconds });
            }
            let ready = self.wait(open, signals, left).map_err(Unusable::Lost)?;
            if let (true, Some(signals)) = (ready.signal, signals) {
                heed(signals)?;
            }
            if ready.output && self.take(bytes)? == Taken::End {
                open = false;
            }
            if ready.ended {
                // What it wrote before its end is all there. Who else holds the pipe is not asked.
                while open && self.take(bytes)? == Taken::Bytes {}
                return Ok(());
            }
        }
    }

    fn wait(
        &self,
        open: bool,
        signals: Option<BorrowedFd<'_>>,
        left: Duration,
    ) -> Result<Ready, Errno> {
        let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
        if open {
            fds.push(PollFd::new(&self.output, PollFlags::IN));
        }
        if let Some(signals) = signals {
            fds.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
        let is_ready = |index: usize| {
            fds.get(index)
                .is_some_and(|fd: &PollFd<'_>| !fd.revents().is_empty())
        };
        Ok(Ready {
            ended: is_ready(0),
            output: open && is_ready(1),
            signal: is_ready(usize::from(open) + 1),
        })
    }

    /// Takes what is there.
    fn take(&mut self, bytes: &mut Vec<u8>) -> Result<Taken, Unusable> {
        let mut chunk = [0; 4_096];
        let read = self.output.read(&mut chunk);
        let taken = match read {
            Ok(0) => Ok(Taken::End),
            // Never beyond what was reserved.
            Ok(count) if bytes.capacity() - bytes.len() < count => Err(Unusable::TooLong),
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                Ok(Taken::Bytes)
            }
            Err(error) => match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {
                    Ok(Taken::Nothing)
                }
                _ => Err(Unusable::Lost(errno_of(&error))),
            },
        };
        chunk.fill(0);
        std::hint::black_box(&chunk);
        taken
    }

    /// Ends the whole group and reaps the program, whose pid names the group until then.
    fn end(&mut self) -> Result<ExitStatus, Unusable> {
        match kill(-self.pid, libc::SIGKILL) {
            Ok(()) | Err(Errno::SRCH) => self.child.wait(),
            // A program that became somebody else cannot be ended by us: it is not waited for.
            Err(errno) => self
                .child
                .try_wait()
                .and_then(|status| status.ok_or_else(|| errno.into())),
        }
        .map_err(|error| Unusable::Lost(errno_of(&error)))
    }
}

/// What a look at the output found.
#[derive(PartialEq, Eq)]
enum Taken {
    Bytes,
    Nothing,
    End,
}

/// What a wait was ended by.
struct Ready {
    ended: bool,
    output: bool,
    signal: bool,
}

/// Takes the signals that are there; one that cancels the run is an error.
fn heed(signals: BorrowedFd<'_>) -> Result<(), Unusable> {
    while let Some(number) = signal::take(signals).map_err(Unusable::Lost)? {
        // The size of a terminal says nothing about the run.
        if number != libc::SIGWINCH {
            return Err(Unusable::Cancelled { signal: number });
        }
    }
    Ok(())
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

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

    /// F-04: what it wrote is in no message, whatever it did besides.
    #[test]
    fn a_program_that_fails_gives_nothing_and_its_words_are_not_shown() {
        for (script, part) in [
            ("echo canary; echo canary >&2; exit 3", "exit code 3"),
            ("echo canary; kill -9 $$", "signal 9"),
            (
                "head -c 65537 /dev/zero | tr '\\0' x",
                "more than 65536 bytes",
            ),
            ("while :; do echo canary; done", "more than 65536 bytes"),
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
        // Gone, or a zombie that its new parent has not waited for yet.
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
