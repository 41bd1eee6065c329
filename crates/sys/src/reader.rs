//! A process of its own for what a stranger wrote: it may take too long, take too much or fall over,
//! and the process that asked goes on.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::rlimit::{self, resource};
use super::{privileges, process, signal};

/// What the process may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Wall time, and processor time rounded up to seconds.
    pub time: Duration,
    /// Address space beyond what the process that asks has mapped.
    pub memory_bytes: u64,
    /// Bytes of its answer.
    pub answer_bytes: usize,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// It took longer than [`Bounds::time`].
    Late,
    /// It said nothing: it ended for want of memory or of stack.
    Ended,
    /// Its answer is longer than [`Bounds::answer_bytes`].
    Long,
    /// A signal for the process that asks came, by its number. It is taken from the descriptor.
    Signal(i32),
    /// A call of the process that asks failed.
    Host(Errno),
}

/// Does `work` in a child and returns what it answers, which is never empty. What the child reads it
/// has by the fork; it has the rights of the process that asks, and no way to say anything to a
/// terminal.
///
/// `signals` is a descriptor of signalfd(2). The child is gone when this returns.
///
/// # Errors
/// [`NoAnswer`].
pub fn read_apart(
    bounds: Bounds,
    signals: Option<BorrowedFd<'_>>,
    work: &dyn Fn() -> Vec<u8>,
) -> Result<Vec<u8>, NoAnswer> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(NoAnswer::Host)?;
    let mapped = mapped_bytes().map_err(NoAnswer::Host)?;
    // SAFETY: the child computes, allocates, which fork(3) of the C library leaves usable, writes
    // and exits; the supervisor has one thread.
    let forked = unsafe { process::fork() }.map_err(NoAnswer::Host)?;
    let Some(pid) = forked else {
        drop(ours);
        answer(&bounds, mapped, &theirs, work);
    };
    drop(theirs);
    let answer = follow(&bounds, &ours, signals);
    // Whatever came of it, nothing of it is left. A caller that ignores SIGCHLD has it reaped by the
    // kernel.
    process::kill(pid, libc::SIGKILL)
        .and_then(|()| process::wait(pid, true).map(|_ended| ()))
        .or_else(|errno| match errno {
            Errno::CHILD | Errno::SRCH => Ok(()),
            errno => Err(NoAnswer::Host(errno)),
        })?;
    answer
}

fn answer(bounds: &Bounds, mapped: u64, pipe: &OwnedFd, work: &dyn Fn() -> Vec<u8>) -> ! {
    if confine(bounds, mapped).is_err() {
        process::exit_now(1);
    }
    let bytes = work();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match rustix::io::write(pipe, rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(_) => process::exit_now(1),
        }
    }
    process::exit_now(0)
}

fn confine(bounds: &Bounds, mapped: u64) -> Result<(), Errno> {
    privileges::die_with_parent()?;
    // What the allocator, or the handler of an overflown stack, says is not for the caller's eyes.
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    rlimit::set(resource::CORE, 0)?;
    rlimit::set(resource::FILE_SIZE, 0)?;
    rlimit::set(resource::CPU, bounds.time.as_secs() + 1)?;
    rlimit::set(
        resource::ADDRESS_SPACE,
        mapped.saturating_add(bounds.memory_bytes),
    )
}

/// The address space of this process (proc_pid_statm(5), in pages).
fn mapped_bytes() -> Result<u64, Errno> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open("/proc/self/statm", flags, rustix::fs::Mode::empty())?;
    let mut text = [0; 128];
    let count = rustix::io::read(&file, &mut text)?;
    let pages = std::str::from_utf8(text.get(..count).unwrap_or_default())
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .ok_or(Errno::IO)?;
    let page = u64::try_from(rustix::param::page_size()).map_err(|_range| Errno::RANGE)?;
    Ok(pages.saturating_mul(page))
}

fn follow(
    bounds: &Bounds,
    pipe: &OwnedFd,
    signals: Option<BorrowedFd<'_>>,
) -> Result<Vec<u8>, NoAnswer> {
    let started = Instant::now();
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = bounds.time.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(NoAnswer::Late);
        }
        let left = Timespec::try_from(left).map_err(|_range| NoAnswer::Host(Errno::RANGE))?;
        let mut polled = vec![PollFd::new(pipe, PollFlags::IN)];
        polled.extend(signals.map(|signals| PollFd::from_borrowed_fd(signals, PollFlags::IN)));
        match poll(&mut polled, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(NoAnswer::Host(errno)),
        }
        let has_answer = polled.first().is_some_and(|end| !end.revents().is_empty());
        drop(polled);
        if let Some(signals) = signals {
            while let Some(number) = signal::take(signals).map_err(NoAnswer::Host)? {
                if signal::ends_a_run(number) {
                    return Err(NoAnswer::Signal(number));
                }
            }
        }
        if !has_answer {
            continue;
        }
        match rustix::io::read(pipe.as_fd(), &mut part) {
            Ok(0) if answer.is_empty() => return Err(NoAnswer::Ended),
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(NoAnswer::Host(errno)),
        }
        if bounds.answer_bytes < answer.len() {
            return Err(NoAnswer::Long);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        time: Duration::from_secs(600),
        memory_bytes: 64 << 20,
        answer_bytes: 1000,
    };

    #[test]
    fn what_is_answered_arrives() {
        assert_eq!(
            read_apart(BOUNDS, None, &|| b"yes".to_vec()),
            Ok(b"yes".to_vec())
        );
    }

    #[test]
    fn a_reader_without_an_answer_is_told_apart_and_ends() {
        let short = Bounds {
            time: Duration::from_millis(1),
            ..BOUNDS
        };
        let forever = || loop {
            std::thread::park();
        };
        assert_eq!(read_apart(short, None, &forever), Err(NoAnswer::Late));
        let much = || vec![1; 256 << 20];
        assert_eq!(read_apart(BOUNDS, None, &much), Err(NoAnswer::Ended));
        assert_eq!(read_apart(BOUNDS, None, &|| vec![]), Err(NoAnswer::Ended));
        let long = || vec![1; 5000];
        assert_eq!(read_apart(BOUNDS, None, &long), Err(NoAnswer::Long));
    }
}
