//! Runs work on untrusted data in a child process with limits on time and memory.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::rlimit::{self, resource};
use super::{privileges, process, signal};

/// Limits of the child process.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLimits {
    /// Wall time. The limit of CPU time is the same, rounded up to seconds.
    pub time: Duration,
    /// Address space beyond that of the parent.
    pub memory_bytes: u64,
    pub answer_bytes: usize,
}

/// The child returned no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerError {
    TimedOut,
    /// The child ended without an answer, out of memory or stack.
    Exited,
    TooLong,
    /// A signal for the parent, read from the descriptor.
    Signal(i32),
    Host(Errno),
}

/// Runs `work` in a child process and returns its answer. An empty answer is
/// [`WorkerError::Exited`]. The child has the memory and rights of the parent; its standard output
/// and error are /dev/null.
///
/// `signals` is a signalfd(2). The child has ended when this returns.
pub fn run_in_child(
    limits: WorkerLimits,
    signals: Option<BorrowedFd<'_>>,
    work: &dyn Fn() -> Vec<u8>,
) -> Result<Vec<u8>, WorkerError> {
    let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC).map_err(WorkerError::Host)?;
    let mapped = mapped_bytes().map_err(WorkerError::Host)?;
    // SAFETY: the child computes, allocates (allowed after fork(3)), writes and exits; the
    // supervisor has one thread.
    let forked = unsafe { process::fork() }.map_err(WorkerError::Host)?;
    let Some(pid) = forked else {
        drop(read_end);
        run_child(&limits, mapped, &write_end, work);
    };
    drop(write_end);
    let answer = read_answer(&limits, &read_end, signals);
    // Kill the child in every case. If the caller ignores SIGCHLD, the kernel has reaped it.
    process::kill(pid, libc::SIGKILL)
        .and_then(|()| process::wait(pid, true).map(|_ended| ()))
        .or_else(|errno| match errno {
            Errno::CHILD | Errno::SRCH => Ok(()),
            errno => Err(WorkerError::Host(errno)),
        })?;
    answer
}

fn run_child(limits: &WorkerLimits, mapped: u64, pipe: &OwnedFd, work: &dyn Fn() -> Vec<u8>) -> ! {
    if confine(limits, mapped).is_err() {
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

fn confine(limits: &WorkerLimits, mapped: u64) -> Result<(), Errno> {
    privileges::die_with_parent()?;
    // Hide messages of the allocator and of the stack overflow handler.
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    rlimit::set(resource::CORE, 0)?;
    rlimit::set(resource::FILE_SIZE, 0)?;
    rlimit::set(resource::CPU, limits.time.as_secs() + 1)?;
    rlimit::set(
        resource::ADDRESS_SPACE,
        mapped.saturating_add(limits.memory_bytes),
    )
}

/// Address space of this process (proc_pid_statm(5), in pages).
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

fn read_answer(
    limits: &WorkerLimits,
    pipe: &OwnedFd,
    signals: Option<BorrowedFd<'_>>,
) -> Result<Vec<u8>, WorkerError> {
    let started = Instant::now();
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = limits.time.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(WorkerError::TimedOut);
        }
        let left = Timespec::try_from(left).map_err(|_range| WorkerError::Host(Errno::RANGE))?;
        let mut polled = vec![PollFd::new(pipe, PollFlags::IN)];
        polled.extend(signals.map(|signals| PollFd::from_borrowed_fd(signals, PollFlags::IN)));
        match poll(&mut polled, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(WorkerError::Host(errno)),
        }
        let has_answer = polled.first().is_some_and(|end| !end.revents().is_empty());
        drop(polled);
        if let Some(signals) = signals {
            while let Some(number) = signal::take(signals).map_err(WorkerError::Host)? {
                if signal::ends_a_run(number) {
                    return Err(WorkerError::Signal(number));
                }
            }
        }
        if !has_answer {
            continue;
        }
        match rustix::io::read(pipe.as_fd(), &mut part) {
            Ok(0) if answer.is_empty() => return Err(WorkerError::Exited),
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(WorkerError::Host(errno)),
        }
        if answer.len() > limits.answer_bytes {
            return Err(WorkerError::TooLong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WorkerLimits = WorkerLimits {
        time: Duration::from_secs(600),
        memory_bytes: 64 << 20,
        answer_bytes: 1000,
    };

    #[test]
    fn the_answer_arrives() {
        assert_eq!(
            run_in_child(LIMITS, None, &|| b"yes".to_vec()),
            Ok(b"yes".to_vec())
        );
    }

    #[test]
    fn a_worker_without_an_answer_is_an_error_with_its_reason() {
        let short = WorkerLimits {
            time: Duration::from_millis(1),
            ..LIMITS
        };
        let forever = || loop {
            std::thread::park();
        };
        assert_eq!(
            run_in_child(short, None, &forever),
            Err(WorkerError::TimedOut)
        );
        let much = || vec![1; 256 << 20];
        assert_eq!(run_in_child(LIMITS, None, &much), Err(WorkerError::Exited));
        assert_eq!(
            run_in_child(LIMITS, None, &|| vec![]),
            Err(WorkerError::Exited)
        );
        let long = || vec![1; 5000];
        assert_eq!(run_in_child(LIMITS, None, &long), Err(WorkerError::TooLong));
    }
}
