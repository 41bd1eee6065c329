//! The launcher: one thread that forks supervisors, offers them to the caller, and reaps them.
//!
//! No request and no report passes through it: a supervisor that it forks later has nothing of
//! one that it forked before.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::kernel::signal::{self, SignalSet};
use crate::kernel::{process, rlimit};
use crate::resident::line::{hear_once, message_pair, say_if_room};
use crate::resident::spare::{self, Duty};
use crate::resident::wire::{framed, wire_struct};
use crate::run::error::RunError;
use crate::run::hold::{Site, collect};
use crate::spec::host_policy::HostPolicy;
use crate::spec::report::{ErrorReport, WarningReport};
use crate::spec::request::Caller;

/// What a supervisor says to the launcher, before its pid.
pub(super) mod word {
    /// It is ready; its caller's end of the line comes along.
    pub(in crate::resident) const OFFER: u8 = 1;
    /// It was given a request.
    pub(in crate::resident) const TAKEN: u8 = 2;
}

/// How long no supervisor is forked after one that died unused, so that whatever kills them does
/// not keep a processor busy.
const PAUSE_AFTER_DEATH: Duration = Duration::from_millis(200);

/// What a launcher is to do.
#[derive(Debug)]
pub struct Orders {
    /// The facts of the caller that runs stand on.
    pub caller: Caller,
    /// What holds for every run.
    pub policy: HostPolicy,
    /// What every report says besides its own.
    pub warnings: Vec<WarningReport>,
    /// How many supervisors wait.
    pub spares: usize,
    /// How many serve at once.
    pub runs_at_once: usize,
    /// How long one waits before it is replaced.
    pub spare_age_max: Duration,
}

/// What the launcher says once, on its standard output, before anything else.
#[derive(Debug)]
pub(super) struct Greeting {
    /// [`VERSION`] of the program.
    pub(super) version: String,
    /// The caller's facts, or why there will be no runs.
    pub(super) caller: Result<Caller, ErrorReport>,
}
wire_struct!(Greeting { version, caller });

/// Only the same version writes and reads the same bytes.
pub(super) const VERSION: &str = concat!("runner ", env!("CARGO_PKG_VERSION"), " resident 2");

/// Serves until the caller is gone: standard input is the socket to it, standard output takes one
/// greeting. The exit code.
///
/// To be called by a process of one thread that has nothing else to do.
#[must_use]
pub fn serve(orders: Result<Orders, ErrorReport>) -> u8 {
    let begun = orders.and_then(|orders| {
        let launcher = Launcher::begin(&orders).map_err(|error| error.report())?;
        Ok((orders, launcher))
    });
    let greeting = Greeting {
        version: VERSION.to_owned(),
        caller: match &begun {
            Ok((orders, _)) => Ok(orders.caller.clone()),
            Err(error) => Err(error.clone()),
        },
    };
    let said = std::io::stdout().write_all(framed(&greeting).bytes());
    let flushed = said.and_then(|()| std::io::stdout().flush());
    let (Ok((orders, launcher)), Ok(())) = (begun, flushed) else {
        return 1;
    };
    match launcher.serve(&orders) {
        Ok(()) => 0,
        Err(_errno) => 1,
    }
}

struct Launcher {
    site: Site,
    /// To the caller; closed by a supervisor before it begins.
    caller: OwnedFd,
    /// Signals to the launcher, SIGCHLD above all.
    signals: OwnedFd,
    /// Where supervisors speak, and where the launcher hears them.
    nest: (OwnedFd, OwnedFd),
    /// Each supervisor waits for its end; the launcher closes it where they are out of date.
    generation: (OwnedFd, OwnedFd),
    /// Readable (POLLPRI) once the host's mounts have changed.
    mounts: OwnedFd,
    living: BTreeMap<i32, Role>,
    pause_until: Option<Instant>,
    /// An offer for which the caller's socket has no room. Nobody is heard until it has: a caller
    /// that takes nothing for hours would else keep the launcher from reaping and from ending.
    untaken: Option<([u8; 4], OwnedFd)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Being made, or offered.
    Spare,
    /// It has a request.
    Serving,
}

impl Launcher {
    fn begin(orders: &Orders) -> Result<Self, RunError> {
        let failed = RunError::host;
        // What the caller leaked to us is none of a run's business.
        process::close_all_but(&[0, 1, 2]).map_err(failed("close what is inherited"))?;
        // A signal of the caller's terminal is the caller's.
        rustix::process::setsid().map_err(failed("begin a session"))?;
        // The init of a supervisor that was killed becomes ours: its end is when nothing of the run
        // is claimed any more.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(failed("become the parent of orphans"))?;
        rlimit::raise(rlimit::resource::OPEN_FILES)
            .map_err(failed("raise the limit of open descriptors"))?;
        let caller = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
            .map_err(failed("keep the socket to the caller"))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("open /dev/null"))?;
        rustix::stdio::dup2_stdin(&null).map_err(failed("close standard input"))?;
        let set = SignalSet::of(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
        signal::own_dispositions().map_err(failed("listen for signals"))?;
        signal::set_mask(set).map_err(failed("listen for signals"))?;
        let mounts = rustix::fs::open(
            "/proc/self/mountinfo",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed("watch the mounts"))?;
        let site = Site::look(&orders.caller)?;
        // What cannot be removed is told by the next `runner gc`; it keeps no run from starting.
        drop(collect(&site.registry)?);
        Ok(Self {
            site,
            caller,
            signals: signal::descriptor(set).map_err(failed("listen for signals"))?,
            nest: message_pair().map_err(failed("make a socket pair"))?,
            generation: rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .map_err(failed("make a pipe"))?,
            mounts,
            living: BTreeMap::new(),
            pause_until: None,
            untaken: None,
        })
    }

    fn serve(mut self, orders: &Orders) -> Result<(), Errno> {
        // The greeting is complete once nobody has its pipe any more.
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdout(&null)?;
        drop(null);
        loop {
            self.fill_up(orders)?;
            let [caller, room, nest, signals, mounts] = self.await_word()?;
            if mounts {
                self.begin_generation(orders)?;
            }
            if room && let Some((pid, line)) = self.untaken.take() {
                self.offer(pid, line)?;
            }
            if nest {
                self.hear()?;
            }
            if signals && self.take_signals()? || caller {
                return self.end();
            }
        }
    }

    /// Forks as many supervisors as are missing.
    fn fill_up(&mut self, orders: &Orders) -> Result<(), Errno> {
        if self.pause_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        self.pause_until = None;
        loop {
            let serving = self.count(Role::Serving);
            let wanted = orders
                .spares
                .min(orders.runs_at_once.saturating_sub(serving));
            if wanted <= self.count(Role::Spare) {
                return Ok(());
            }
            #[expect(unsafe_code, reason = "the one place where a supervisor is forked")]
            // SAFETY: the launcher has one thread.
            match unsafe { process::fork() } {
                Ok(Some(pid)) => {
                    self.living.insert(pid, Role::Spare);
                }
                Ok(None) => self.become_spare(orders),
                // At a limit of processes or memory: the next word or the pause brings us back.
                Err(Errno::AGAIN | Errno::NOMEM) => {
                    self.pause_until = Some(Instant::now() + PAUSE_AFTER_DEATH);
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    fn become_spare(&mut self, orders: &Orders) -> ! {
        // Whoever has the socket to the caller keeps it from seeing the launcher's end.
        for ours in [
            &self.caller,
            &self.signals,
            &self.nest.1,
            &self.generation.1,
            &self.mounts,
        ] {
            process::close_quietly(ours.as_raw_fd());
        }
        if let Some((_, line)) = &self.untaken {
            process::close_quietly(line.as_raw_fd());
        }
        let code = spare::serve(&Duty {
            site: &self.site,
            orders,
            nest: self.nest.0.as_fd(),
            generation: self.generation.0.as_fd(),
        });
        process::exit_now(code)
    }

    fn count(&self, role: Role) -> usize {
        self.living.values().filter(|has| **has == role).count()
    }

    /// Whether something came from the caller (its end), whether it has room for the offer that
    /// waits; whether something came from the nest, as a signal; whether the mounts changed.
    fn await_word(&self) -> Result<[bool; 5], Errno> {
        let (of_caller, of_nest) = match &self.untaken {
            Some(_) => (PollFlags::IN | PollFlags::OUT, PollFlags::empty()),
            None => (PollFlags::IN, PollFlags::IN),
        };
        let mut watched = [
            PollFd::new(&self.caller, of_caller),
            PollFd::new(&self.nest.1, of_nest),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.mounts, PollFlags::PRI),
        ];
        let timeout = self
            .pause_until
            .map(|until| until.saturating_duration_since(Instant::now()))
            .and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {
                let [caller, nest, signals, mounts] = watched.map(|fd| fd.revents());
                Ok([
                    !caller.difference(PollFlags::OUT).is_empty(),
                    caller.contains(PollFlags::OUT),
                    !nest.is_empty(),
                    !signals.is_empty(),
                    !mounts.is_empty(),
                ])
            }
            Err(errno) => Err(errno),
        }
    }

    /// The host is not the one that the spares were made on: they are replaced.
    fn begin_generation(&mut self, orders: &Orders) -> Result<(), Errno> {
        // A host that cannot be looked at now is looked at by each run, which then says so.
        if let Ok(site) = Site::look(&orders.caller) {
            self.site = site;
        }
        self.generation = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok(())
    }

    /// Takes one word of a supervisor, and passes an offer on.
    fn hear(&mut self) -> Result<(), Errno> {
        let mut bytes = [0; 5];
        let hearing = hear_once(self.nest.1.as_fd(), &mut bytes, RecvFlags::DONTWAIT);
        let (count, mut lines) = match hearing {
            Ok(heard) => heard,
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let [kind, pid @ ..] = bytes;
        match (kind, lines.pop()) {
            (word::OFFER, Some(line)) if count == bytes.len() => self.offer(pid, line),
            (word::TAKEN, None) if count == bytes.len() => {
                if let Some(role) = self.living.get_mut(&i32::from_ne_bytes(pid)) {
                    *role = Role::Serving;
                }
                Ok(())
            }
            _ => Err(Errno::BADMSG),
        }
    }

    /// Passes an offer on. That the caller is gone is seen at its socket.
    fn offer(&mut self, pid: [u8; 4], line: OwnedFd) -> Result<(), Errno> {
        match say_if_room(self.caller.as_fd(), &pid, &[line.as_fd()]) {
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(Errno::AGAIN) => {
                self.untaken = Some((pid, line));
                Ok(())
            }
            // Descriptors under way are counted for all processes of the uid together, bodies
            // included. The line is dropped, its supervisor ends, and another one is made later.
            Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                self.pause_until = Some(Instant::now() + PAUSE_AFTER_DEATH);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Reaps; `true` where the launcher itself is to end.
    fn take_signals(&mut self) -> Result<bool, Errno> {
        let mut ends = false;
        let mut killed = false;
        while let Some(number) = signal::take(self.signals.as_fd())? {
            ends |= number != libc::SIGCHLD;
        }
        while let Ok(Some(ended)) = process::wait(-1, false) {
            match self.living.remove(&ended.pid) {
                // An orphan: what is left of its run can be removed now.
                None => killed = true,
                Some(role) if ended.raw_status != 0 => {
                    killed = true;
                    if role == Role::Spare {
                        self.pause_until = Some(Instant::now() + PAUSE_AFTER_DEATH);
                    }
                }
                Some(_) => (),
            }
        }
        if killed {
            // What stays is in its record, for the next start.
            drop(collect(&self.site.registry));
        }
        Ok(ends)
    }

    /// Ends all that lives, and waits for it.
    fn end(mut self) -> Result<(), Errno> {
        // One signal asks, another one insists.
        for number in [libc::SIGTERM, libc::SIGHUP] {
            for (pid, _) in self
                .living
                .iter()
                .filter(|(_, role)| **role == Role::Serving)
            {
                match process::kill(*pid, number) {
                    Ok(()) | Err(Errno::SRCH) => (),
                    Err(errno) => return Err(errno),
                }
            }
        }
        drop(self.caller);
        drop(self.untaken);
        // Spares go: their lines end with the caller, their generation here.
        drop(self.generation);
        drop(self.nest.1);
        let mut unclean = false;
        // Orphans too.
        loop {
            match process::wait(-1, true) {
                Ok(Some(ended)) => {
                    let is_ours = self.living.remove(&ended.pid).is_some();
                    unclean |= !is_ours || ended.raw_status != 0;
                }
                Ok(None) | Err(Errno::CHILD) => break,
                Err(errno) => return Err(errno),
            }
        }
        if unclean {
            drop(collect(&self.site.registry));
        }
        Ok(())
    }
}
