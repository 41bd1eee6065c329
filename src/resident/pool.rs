//! The caller's side: a pool of sandboxes that were never used.

use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use crate::resident::launcher::{Greeting, VERSION};
use crate::resident::line::{Silence, hear, hear_once, message_pair, say};
use crate::resident::spare::Errand;
use crate::resident::wire::unframed;
use crate::spec::report::{ErrorReport, Report};
use crate::spec::request::{BundleArgument, Caller, Request, Subject};
use crate::spec::secret::overwrite;

/// Most supervisors that wait: each offer is in flight until it is taken, and the kernel counts
/// descriptors in flight.
const SPARES_MAX: u16 = 64;

/// Longest greeting: it has the caller's environment.
const GREETING_BYTES_MAX: u64 = 16 << 20;

/// How a pool is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOptions {
    /// The `runner` program, of the version of this library.
    pub program: PathBuf,
    /// A configuration file, as `runner exec --policy` takes it. The host's own and the user's are
    /// read as well.
    pub policy: Option<PathBuf>,
    /// How many sandboxes wait to be used; at most 64.
    pub spares: u16,
    /// How many runs there are at once; further ones wait for their turn.
    pub runs_at_once: u32,
    /// How long a sandbox waits before another one takes its place.
    pub spare_age_max: Duration,
}

impl PoolOptions {
    /// Four spares, 256 runs at once, five minutes.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            policy: None,
            spares: 4,
            runs_at_once: 256,
            spare_age_max: Duration::from_secs(300),
        }
    }
}

/// What a run gets from its caller besides its request.
#[derive(Debug, Default)]
pub struct Passed<'caller> {
    /// Standard input, where the request passes it on; this process's own where it is `None`.
    pub stdin: Option<BorrowedFd<'caller>>,
    /// Standard output, where it is not captured; likewise.
    pub stdout: Option<BorrowedFd<'caller>>,
    /// Standard error, where it is not captured; likewise.
    pub stderr: Option<BorrowedFd<'caller>>,
    /// What ends the run before its time.
    pub cancel: Option<&'caller Cancel>,
}

/// Ends runs from another thread: those that were given it, and those that are given it later.
#[derive(Debug)]
pub struct Cancel(OwnedFd);

impl Cancel {
    /// Nothing is cancelled yet.
    ///
    /// # Errors
    /// The errno of eventfd(2).
    pub fn new() -> Result<Self, Errno> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Asks the bodies to end, as SIGTERM to `runner exec` does.
    ///
    /// # Errors
    /// The errno of write(2).
    pub fn cancel(&self) -> Result<(), Errno> {
        match rustix::io::write(&self.0, &1_u64.to_ne_bytes()) {
            // Said more often than can be counted.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The program cannot be started.
    #[error("cannot start the launcher {program}")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// What was started is not this version of the program.
    #[error("{program} is not {VERSION}")]
    OtherProgram {
        /// The program.
        program: String,
    },
    /// No run can be begun on this host, or with this configuration.
    #[error("the launcher refuses: {}", .0.message)]
    Refused(ErrorReport),
    /// A system call failed.
    #[error("cannot {act}")]
    Call {
        /// What was to be done.
        act: &'static str,
        /// Why not.
        #[source]
        errno: Errno,
    },
    /// The launcher has ended. The run did not begin; no other one will.
    #[error("the launcher has ended; the run did not begin")]
    LauncherGone,
    /// The run's supervisor ended without a report. The body has been killed.
    #[error("the supervisor of the run ended without a report")]
    SupervisorGone,
    /// Cancelled before it began.
    #[error("cancelled before the run began")]
    Cancelled,
}

/// Sandboxes that were never used, each for one run.
///
/// `run` may be called from many threads at once. Dropping the pool ends what is left of it and
/// waits until nothing of it is on the host.
///
/// ```no_run
/// use runner::resident::{Pool, PoolOptions};
/// use runner::spec::request::{Request, Subject};
///
/// let pool = Pool::start(&PoolOptions::new("/usr/bin/runner"))?;
/// let argv = vec![b"echo".to_vec(), b"hello".to_vec()];
/// let request = Request::captured(Subject::Command(argv), pool.caller().clone());
/// let report = pool.run(&request)?;
/// assert_eq!(report.stdout.text(), Some("hello\n"));
/// # Ok::<(), runner::resident::PoolError>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    /// `None` while it is being dropped.
    offers: Option<OwnedFd>,
    launcher: Child,
    caller: Caller,
}

impl Pool {
    /// Starts the launcher and waits until it has looked at the host. The sandboxes are made
    /// while this function's caller goes on.
    ///
    /// The launcher is a program of its own, so neither the memory nor the threads of this
    /// process cost a run anything, and nothing of them is in it. It sees this process's
    /// environment and working directory as they are now.
    ///
    /// # Errors
    /// [`PoolError::Start`], [`PoolError::OtherProgram`], [`PoolError::Refused`].
    pub fn start(options: &PoolOptions) -> Result<Self, PoolError> {
        let failed = |act| move |errno| PoolError::Call { act, errno };
        let program = || options.program.display().to_string();
        let (offers, theirs) = message_pair().map_err(failed("make a socket pair"))?;
        let mut command = Command::new(&options.program);
        command
            .arg("resident")
            .arg(format!("--spares={}", options.spares.clamp(1, SPARES_MAX)))
            .arg(format!("--runs-at-once={}", options.runs_at_once.max(1)))
            .arg(format!(
                "--spare-age-max={}ms",
                options.spare_age_max.as_millis().max(1)
            ))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped());
        if let Some(policy) = &options.policy {
            command.arg("--policy").arg(policy);
        }
        let mut launcher = command.spawn().map_err(|source| PoolError::Start {
            program: program(),
            source,
        })?;
        drop(command);
        match greeting(&mut launcher) {
            Some(Greeting { version, caller }) if version == VERSION => match caller {
                Ok(caller) => Ok(Self {
                    offers: Some(offers),
                    launcher,
                    caller,
                }),
                Err(error) => {
                    reap(&mut launcher)?;
                    Err(PoolError::Refused(error))
                }
            },
            _ => {
                drop(offers);
                reap(&mut launcher)?;
                Err(PoolError::OtherProgram { program: program() })
            }
        }
    }

    /// The facts of this process that requests are made with: a request whose `caller` names
    /// another cgroup or another runtime directory runs, but not in a sandbox of the pool.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// One run, to its end. What the request passes on is this process's own standard streams.
    ///
    /// # Errors
    /// [`PoolError`] where there is no report. A body that fails and a request that is refused
    /// have one.
    pub fn run(&self, request: &Request) -> Result<Report, PoolError> {
        self.run_with(request, &Passed::default())
    }

    /// One run, to its end.
    ///
    /// # Errors
    /// As [`Pool::run`]; [`PoolError::Cancelled`] where it had not begun.
    pub fn run_with(&self, request: &Request, passed: &Passed<'_>) -> Result<Report, PoolError> {
        let (descriptors, streams) = streams_of(request, passed);
        let errand = Errand {
            request: request.clone(),
            streams,
        };
        loop {
            let line = self.offer(passed.cancel)?;
            match say(line.as_fd(), &errand, &descriptors) {
                Ok(()) => return report(&line, passed.cancel),
                // It ended, or would wait no longer, before it had the whole request: nothing ran.
                Err(Errno::PIPE | Errno::CONNRESET) => (),
                Err(errno) => {
                    let act = "send the request";
                    return Err(PoolError::Call { act, errno });
                }
            }
        }
    }

    /// Waits for a supervisor that has served nobody.
    fn offer(&self, cancel: Option<&Cancel>) -> Result<OwnedFd, PoolError> {
        let offers = self.offers.as_ref().ok_or(PoolError::LauncherGone)?;
        let act = "wait for a sandbox";
        loop {
            let mut flags = RecvFlags::empty();
            if let Some(Cancel(cancelled)) = cancel {
                flags = RecvFlags::DONTWAIT;
                let mut watched = [
                    PollFd::new(offers, PollFlags::IN),
                    PollFd::new(cancelled, PollFlags::IN),
                ];
                wait(&mut watched).map_err(|errno| PoolError::Call { act, errno })?;
                if !watched[1].revents().is_empty() {
                    return Err(PoolError::Cancelled);
                }
            }
            let mut pid = [0; 4];
            match hear_once(offers.as_fd(), &mut pid, flags) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(PoolError::LauncherGone),
                Ok((_, lines)) => {
                    if let Some(line) = lines.into_iter().next() {
                        return Ok(line);
                    }
                }
                // Another thread was faster.
                Err(Errno::AGAIN) => (),
                Err(errno) => return Err(PoolError::Call { act, errno }),
            }
        }
    }

    /// Takes back what was offered and not taken.
    fn untaken(offers: &OwnedFd) -> Vec<OwnedFd> {
        let mut lines = Vec::new();
        let mut pid = [0; 4];
        while let Ok((1.., more)) = hear_once(offers.as_fd(), &mut pid, RecvFlags::DONTWAIT) {
            lines.extend(more);
        }
        lines
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Some(offers) = self.offers.take() else {
            return;
        };
        let lines = Self::untaken(&offers);
        drop(offers);
        for line in &lines {
            // A supervisor that ended is no loss here.
            match rustix::net::shutdown(line, Shutdown::Write) {
                Ok(()) | Err(_) => (),
            }
        }
        let reaped = self.launcher.wait();
        debug_assert!(reaped.is_ok(), "wait for a child of ours");
        // A launcher that was killed waited for nobody: the ends of the lines tell.
        for line in lines {
            drop(hear(line.as_fd()));
        }
    }
}

fn reap(launcher: &mut Child) -> Result<(), PoolError> {
    let failed = |error: std::io::Error| PoolError::Call {
        act: "wait for the launcher",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    };
    launcher.kill().map_err(failed)?;
    launcher.wait().map(|_status| ()).map_err(failed)
}

/// What the launcher says on its standard output; `None` where that is something else.
fn greeting(launcher: &mut Child) -> Option<Greeting> {
    let stdout = launcher.stdout.take()?;
    let mut all = Vec::new();
    stdout.take(GREETING_BYTES_MAX).read_to_end(&mut all).ok()?;
    unframed(all.get(size_of::<u64>()..)?).ok()
}

/// Which of the standard streams the run needs, and from where.
fn streams_of<'caller>(
    request: &Request,
    passed: &Passed<'caller>,
) -> (Vec<BorrowedFd<'caller>>, Vec<(u8, bool)>) {
    let reads = request.streams.interactive
        || request.streams.terminal
        || matches!(request.subject, Subject::Bundle(BundleArgument::Stdin));
    let writes = !request.streams.capture;
    let mut descriptors = Vec::new();
    let mut streams = Vec::new();
    for (number, is_needed, given, own) in [
        (0, reads, passed.stdin, rustix::stdio::stdin()),
        (1, writes, passed.stdout, rustix::stdio::stdout()),
        (2, writes, passed.stderr, rustix::stdio::stderr()),
    ] {
        streams.push((number, is_needed));
        if is_needed {
            descriptors.push(given.unwrap_or(own));
        }
    }
    (descriptors, streams)
}

/// Waits for the report; the patience may end before.
fn report(line: &OwnedFd, cancel: Option<&Cancel>) -> Result<Report, PoolError> {
    let act = "wait for the report";
    if let Some(Cancel(cancelled)) = cancel {
        let mut watched = [
            PollFd::new(line, PollFlags::IN),
            PollFd::new(cancelled, PollFlags::IN),
        ];
        wait(&mut watched).map_err(|errno| PoolError::Call { act, errno })?;
        if watched[0].revents().is_empty() {
            // The supervisor sees it, ends the body and still says what became of it.
            match rustix::net::shutdown(line, Shutdown::Write) {
                Ok(()) | Err(Errno::NOTCONN) => (),
                Err(errno) => return Err(PoolError::Call { act, errno }),
            }
        }
    }
    match hear(line.as_fd()) {
        Ok((mut bytes, _)) => {
            let report = unframed(&bytes);
            overwrite(&mut bytes);
            report.map_err(|_garbled| PoolError::Call {
                act: "read the report",
                errno: Errno::BADMSG,
            })
        }
        Err(Silence::Ended | Silence::Failed(Errno::CONNRESET)) => Err(PoolError::SupervisorGone),
        Err(Silence::Failed(errno)) => Err(PoolError::Call { act, errno }),
    }
}

fn wait(watched: &mut [PollFd<'_>]) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| poll(watched, None)).map(|_count| ())
}
