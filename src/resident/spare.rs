//! A supervisor: begins a run, offers itself, serves one request or none.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::kernel::{process, signal};
use crate::resident::launcher::{Orders, word};
use crate::resident::line::{Heard, Silence, hear, pair, say, say_once};
use crate::resident::wire::{unframed, wire_struct};
use crate::run::execute;
use crate::run::hold::Site;
use crate::run::warm::Warm;
use crate::spec::report::Report;
use crate::spec::request::Request;
use crate::spec::secret::overwrite;

/// What a supervisor is given.
pub(super) struct Duty<'launcher> {
    /// Where its run stands.
    pub(super) site: &'launcher Site,
    /// What holds for every run.
    pub(super) orders: &'launcher Orders,
    /// Where it speaks to the launcher.
    pub(super) nest: BorrowedFd<'launcher>,
    /// Its end says that the host has changed.
    pub(super) generation: BorrowedFd<'launcher>,
}

/// What goes to a supervisor.
#[derive(Debug)]
pub(super) struct Errand {
    /// What is asked.
    pub(super) request: Request,
    /// Which of the standard streams come along, in order.
    pub(super) streams: Vec<(u8, bool)>,
}
wire_struct!(Errand { request, streams });

/// The exit code: 0 where nothing is left behind.
pub(super) fn serve(duty: &Duty<'_>) -> i32 {
    match attend(duty) {
        Ok(()) => 0,
        Err(_errno) => 1,
    }
}

fn attend(duty: &Duty<'_>) -> Result<(), Errno> {
    let orders = duty.orders;
    // Where it cannot be begun, the run that is asked for begins anew and says why it cannot.
    let warm = Warm::begin(duty.site, &orders.caller, &orders.policy).ok();
    // After the child was cloned: a copy there would keep either end from being seen.
    let line = offer(duty.nest)?;
    let Some(errand) = await_errand(duty, warm.as_ref(), &line)? else {
        return give_back(warm);
    };
    tell(duty.nest, word::TAKEN, &[])?;
    let report = run(duty, warm, &line, errand)?;
    match say(line.as_fd(), &report, &[]) {
        // Nobody wants to know any more.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn give_back(warm: Option<Warm>) -> Result<(), Errno> {
    let left = warm.map(|warm| warm.discard().warnings.is_empty());
    match left {
        Some(false) => Err(Errno::BUSY),
        Some(true) | None => Ok(()),
    }
}

fn offer(nest: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (ours, theirs) = pair()?;
    tell(nest, word::OFFER, &[theirs.as_fd()])?;
    Ok(ours)
}

fn tell(nest: BorrowedFd<'_>, kind: u8, line: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let [first, second, third, fourth] = pid.to_ne_bytes();
    match say_once(nest, &[kind, first, second, third, fourth], line) {
        // A launcher that is gone needs no word, and what was asked for is done.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Waits for the one request. `None`: nobody will ask this supervisor.
fn await_errand(
    duty: &Duty<'_>,
    warm: Option<&Warm>,
    line: &OwnedFd,
) -> Result<Option<(Heard, PollFlags)>, Errno> {
    let begun = std::time::Instant::now();
    loop {
        let mut watched = vec![
            PollFd::new(line, PollFlags::IN),
            PollFd::from_borrowed_fd(duty.generation, PollFlags::IN),
        ];
        if let Some(warm) = warm {
            watched.push(PollFd::from_borrowed_fd(warm.signals(), PollFlags::IN));
        }
        let left = duty.orders.spare_age_max.saturating_sub(begun.elapsed());
        let timeout = Timespec::try_from(left.max(Duration::from_millis(1))).ok();
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) => (),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        let asked = !watched[0].revents().is_empty();
        let dismissed = watched[1..].iter().any(|fd| !fd.revents().is_empty());
        if !asked && !dismissed && !left.is_zero() {
            continue;
        }
        if !asked {
            // Whoever asks from now on gets EPIPE and asks another one; what was asked before is
            // in the socket and is still served.
            rustix::net::shutdown(line, Shutdown::Read)?;
        }
        return match hear(line.as_fd()) {
            // After this process's own shutdown the line looks like one whose caller has gone, until
            // both ends are shut.
            Ok(errand) if asked => Ok(Some((errand, PollFlags::RDHUP))),
            Ok(errand) => Ok(Some((errand, PollFlags::empty()))),
            // The caller dropped the offer, or gave up before all was said.
            Err(Silence::Ended | Silence::Failed(Errno::CONNRESET)) => Ok(None),
            Err(Silence::Failed(errno)) => Err(errno),
        };
    }
}

fn run(
    duty: &Duty<'_>,
    warm: Option<Warm>,
    line: &OwnedFd,
    ((mut bytes, descriptors), ended): (Heard, PollFlags),
) -> Result<Report, Errno> {
    let errand = unframed::<Errand>(&bytes);
    overwrite(&mut bytes);
    let Ok(Errand { request, streams }) = errand else {
        give_back(warm)?;
        return Err(Errno::BADMSG);
    };
    connect(&streams, descriptors)?;
    cancel_at_the_end_of(line, ended)?;
    let mut report = match warm {
        Some(warm) => warm.execute(&request, &duty.orders.policy),
        None => execute(&request, &duty.orders.policy),
    };
    report.warnings.extend(duty.orders.warnings.iter().cloned());
    Ok(report)
}

/// Puts what came along in the place of the standard streams; the rest is /dev/null.
fn connect(streams: &[(u8, bool)], descriptors: Vec<OwnedFd>) -> Result<(), Errno> {
    let mut descriptors = descriptors.into_iter();
    let mut came = [None, None, None];
    for (number, is_here) in streams {
        let place = came.get_mut(usize::from(*number)).ok_or(Errno::BADMSG)?;
        if *is_here {
            *place = Some(descriptors.next().ok_or(Errno::MFILE)?);
        }
    }
    let null = || {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open("/dev/null", flags, Mode::empty())
    };
    let [stdin, stdout, stderr] = came;
    rustix::stdio::dup2_stdin(stdin.map_or_else(null, Ok)?)?;
    rustix::stdio::dup2_stdout(stdout.map_or_else(null, Ok)?)?;
    if let Some(stderr) = stderr {
        rustix::stdio::dup2_stderr(stderr)?;
    }
    Ok(())
}

/// From now on the end of the caller, or of its patience, is a SIGTERM to this process.
/// `ended` are the events, besides a hang-up, that say that it has ended already.
fn cancel_at_the_end_of(line: &OwnedFd, ended: PollFlags) -> Result<(), Errno> {
    signal::at_change_of(line.as_fd(), libc::SIGTERM)?;
    let mut watched = [PollFd::new(line, ended)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // It may have ended before the signal was asked for.
    if poll(&mut watched, Some(&now))? != 0 {
        let this = rustix::process::getpid().as_raw_nonzero().get();
        process::kill(this, libc::SIGTERM)?;
    }
    Ok(())
}
