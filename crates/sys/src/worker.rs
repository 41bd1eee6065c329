//! Runs work on untrusted data in a child process with limits on time and memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use spec::parse_permit::ParsePermit;

use super::process::ArgumentArea;
use super::rlimit::{self, resource};
use super::{file, process, signal};

/// Capacity of a pipe: a longer part would wait for the child in the middle.
const SENT_BYTES: usize = 64 << 10;
/// Of a part that is sent first: a small source must not touch the pages of a large one.
const SENT_FIRST_BYTES: usize = 4 << 10;
/// Room for the next part of the answer.
const RECEIVED_BYTES: usize = 4 << 10;
/// Of the length before a question and its answer.
const LENGTH_BYTES: usize = 4;
/// Time between two questions whether the caller cancelled, or a signal is pending.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// From the first byte of an answer: what has arrived then is the answer.
const REST_TIME: Duration = Duration::from_secs(10);
/// Time in which the child neither reads nor answers. It may decompress what a pipe holds and write it to a
/// slow disk; a limit on the whole time would depend on the speed of the network.
pub const STALL_MAX: Duration = Duration::from_secs(60);

/// Limits of the child process.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLimits {
    /// Wall time, and CPU time rounded up to seconds. `None`: unlimited.
    pub time: Option<Duration>,
    /// Address space beyond that of the parent.
    pub memory_bytes: u64,
    /// Bytes of all files that it writes; 0 if it writes none.
    pub file_bytes: u64,
    pub answer_bytes: usize,
}

/// The child returned no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerError {
    TimedOut,
    /// The child ended without an answer: out of memory or stack, or killed.
    Exited,
    TooLong,
    /// A signal for the parent, read from the descriptor.
    Signal(i32),
    /// The parent could not read what it was to send.
    Source(Errno),
    Host(Errno),
}

/// What the child does.
#[expect(missing_debug_implementations, reason = "closures")]
pub struct Work<'run> {
    /// Gives up rights, for the permission to parse, before anything untrusted is read. Gets the
    /// descriptors that it must leave open, in ascending order.
    pub confine: &'run dyn Fn(&[RawFd]) -> Result<ParsePermit, Errno>,
    /// Reads the bytes that the parent sends, and returns its answer. An empty one is
    /// [`WorkerError::Exited`]. It may send a first part before it has the rest.
    pub run: &'run dyn Fn(&ParsePermit, File, &Answer<'_>) -> Vec<u8>,
}

/// The child's end of the answer.
#[derive(Debug)]
pub struct Answer<'run>(&'run OwnedFd);

impl Answer<'_> {
    /// Sends the next part. The child ends if nobody reads it.
    pub fn send(&self, part: &[u8]) {
        let mut rest = part;
        while !rest.is_empty() {
            match rustix::io::write(self.0, rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => (),
                Err(_) => process::exit_now(1),
            }
        }
    }
}

/// What the parent sends to the child, to the end.
#[expect(missing_debug_implementations, reason = "a reader")]
pub struct Sent<'run> {
    pub source: &'run mut dyn Read,
    /// The descriptor that `source` reads: the parent hears the child while it waits for more.
    pub descriptor: Option<BorrowedFd<'run>>,
}

/// What ends the parent's wait for the child, apart from the time limit.
#[derive(Clone, Copy)]
enum Interrupt<'run> {
    /// A signal that ends a run, read from a signalfd(2). Without one, a blocked signal that is pending,
    /// which is left to the caller.
    Signals(Option<BorrowedFd<'run>>),
    Poll(&'run dyn Fn() -> bool),
}

/// Runs `work` in a child process and returns its answer. Meanwhile, the parent sends it `sent`.
///
/// `signals` is a signalfd(2). The child has ended when this returns.
pub fn run_in_child(
    limits: WorkerLimits,
    signals: Option<BorrowedFd<'_>>,
    sent: Sent<'_>,
    work: &Work<'_>,
) -> Result<Vec<u8>, WorkerError> {
    run(limits, Interrupt::Signals(signals), sent, work)
}

/// As [`run_in_child`], for a caller that learns otherwise that it is to stop: `is_cancelled` is called several
/// times a second. Once true, the error is [`WorkerError::Source`] with ECANCELED.
pub fn run_in_child_unless(
    is_cancelled: &dyn Fn() -> bool,
    limits: WorkerLimits,
    sent: Sent<'_>,
    work: &Work<'_>,
) -> Result<Vec<u8>, WorkerError> {
    run(limits, Interrupt::Poll(is_cancelled), sent, work)
}

fn run(
    limits: WorkerLimits,
    interrupt: Interrupt<'_>,
    sent: Sent<'_>,
    work: &Work<'_>,
) -> Result<Vec<u8>, WorkerError> {
    let (source_end, pipe) = pipe_with(PipeFlags::CLOEXEC).map_err(WorkerError::Host)?;
    let source = source_end.as_raw_fd();
    // The child's copy of the parent's end would keep the pipe open.
    let pipe = Cell::new(Some(pipe));
    let confine = |keep: &[RawFd]| {
        drop(pipe.take());
        (work.confine)(keep)
    };
    let run = |permit, answer: &Answer<'_>| (work.run)(&permit, File::from(source_end), answer);
    let worker = Worker::start(limits, &[source], confine, run).map_err(WorkerError::Host)?;
    let mut parent = Parent {
        until: until(limits.time),
        stall_max: STALL_MAX,
        interrupt,
        answer: &worker.answer,
    };
    let received = match pipe.into_inner().map(|pipe| parent.send(sent, pipe)) {
        Some(Ok(())) | None => parent.receive(limits.answer_bytes),
        Some(Err(error)) => Err(error),
    };
    worker.end().map_err(WorkerError::Host)?;
    received
}

fn until(time: Option<Duration>) -> Option<Instant> {
    time.and_then(|time| Instant::now().checked_add(time))
}

/// A child process at work. It is killed and reaped when this is dropped.
#[derive(Debug)]
pub struct Worker {
    /// `None`: reaped.
    pid: Option<i32>,
    answer: OwnedFd,
}

impl Worker {
    /// Starts a child that calls `confine` and then `run`, whose result is its answer. It has a copy of
    /// the parent's memory without the kernel's arguments and environment, and the parent's rights until
    /// `confine`; its standard streams are /dev/null.
    ///
    /// `confine` gets the descriptors that it must leave open, in ascending order: those of `keep` and
    /// the worker's own. In the parent, both closures are dropped with what they own.
    pub fn start(
        limits: WorkerLimits,
        keep: &[RawFd],
        confine: impl FnOnce(&[RawFd]) -> Result<ParsePermit, Errno>,
        run: impl FnOnce(ParsePermit, &Answer<'_>) -> Vec<u8>,
    ) -> Result<Self, Errno> {
        let (answer, answer_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let mapped = mapped_bytes()?;
        let arguments = ArgumentArea::of_this_process()?;
        // SAFETY: the child computes, allocates (allowed after fork(3)), writes and exits; the
        // supervisor has one thread.
        let Some(pid) = unsafe { process::fork() }? else {
            drop(answer);
            arguments.overwrite(b"");
            let mut keep = [&[0, 1, 2, answer_end.as_raw_fd()], keep].concat();
            keep.sort_unstable();
            let confined = limit(&limits, mapped).and_then(|()| confine(&keep));
            run_child(confined, &answer_end, run);
        };
        Ok(Self {
            pid: Some(pid),
            answer,
        })
    }

    /// Waits at most `time` for the answer, and ends the child.
    pub fn finish(self, time: Duration, bytes_max: usize) -> Result<Vec<u8>, WorkerError> {
        let mut parent = Parent {
            until: until(Some(time)),
            stall_max: STALL_MAX,
            interrupt: Interrupt::Signals(None),
            answer: &self.answer,
        };
        parent.receive(bytes_max)
    }

    /// Kills and reaps the child.
    fn end(mut self) -> Result<(), Errno> {
        self.reap()
    }

    fn reap(&mut self) -> Result<(), Errno> {
        let Some(pid) = self.pid.take() else {
            return Ok(());
        };
        // If the caller ignores SIGCHLD, the kernel has reaped it.
        match process::kill(pid, libc::SIGKILL).and_then(|()| process::wait(pid, true)) {
            Ok(_) | Err(Errno::CHILD | Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and the child dies with its parent.
        self.reap().unwrap_or_default();
    }
}

/// A child that answers one question after another. It is killed and reaped when this is dropped.
#[derive(Debug)]
pub struct Dialogue {
    worker: Worker,
    questions: OwnedFd,
}

impl Dialogue {
    /// Starts a child as [`Worker::start`] does, which calls `answer` for each question.
    pub fn start(
        limits: WorkerLimits,
        confine: &dyn Fn(&[RawFd]) -> Result<ParsePermit, Errno>,
        answer: &mut dyn FnMut(&ParsePermit, &[u8]) -> Vec<u8>,
    ) -> Result<Self, Errno> {
        let (asked, questions) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&questions, true)?;
        let keep = [asked.as_raw_fd()];
        let run = |permit: ParsePermit, told: &Answer<'_>| {
            let mut asked = File::from(asked);
            while let Some(question) = read_framed(&mut asked) {
                told.send(&framed(&answer(&permit, &question)));
            }
            Vec::new()
        };
        let worker = Worker::start(limits, &keep, confine, run)?;
        Ok(Self { worker, questions })
    }

    /// Returns the answer to `question`, of at most `bytes_max` bytes. After an error this must be dropped.
    pub fn ask(
        &mut self,
        question: &[u8],
        time: Duration,
        bytes_max: usize,
    ) -> Result<Vec<u8>, WorkerError> {
        let mut parent = Parent {
            until: until(Some(time)),
            stall_max: STALL_MAX,
            interrupt: Interrupt::Signals(None),
            answer: &self.worker.answer,
        };
        // A child that has ended may have answered before.
        parent
            .send_part(&framed(question), &self.questions)
            .map(drop)?;
        let prefix = parent.receive_exactly(LENGTH_BYTES)?;
        let length = length_in(&prefix).filter(|length| *length <= bytes_max);
        parent.receive_exactly(length.ok_or(WorkerError::TooLong)?)
    }
}

fn framed(part: &[u8]) -> Vec<u8> {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes(), part].concat()
}

fn length_in(prefix: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(prefix.try_into().ok()?);
    usize::try_from(length).ok()
}

/// `None` at the end.
fn read_framed(source: &mut File) -> Option<Vec<u8>> {
    let mut prefix = [0; LENGTH_BYTES];
    source.read_exact(&mut prefix).ok()?;
    let mut part = vec![0; length_in(&prefix)?];
    source.read_exact(&mut part).ok()?;
    Some(part)
}

fn run_child(
    confined: Result<ParsePermit, Errno>,
    answer: &OwnedFd,
    run: impl FnOnce(ParsePermit, &Answer<'_>) -> Vec<u8>,
) -> ! {
    let Ok(permit) = confined else {
        process::exit_now(1);
    };
    // A panic must not unwind into the code of the parent.
    let answer = Answer(answer);
    let run = std::panic::AssertUnwindSafe(|| run(permit, &answer));
    let Ok(bytes) = std::panic::catch_unwind(run) else {
        process::exit_now(1);
    };
    answer.send(&bytes);
    process::exit_now(0)
}

fn limit(limits: &WorkerLimits, mapped: u64) -> Result<(), Errno> {
    // Standard input may be the caller's; this also hides messages of the allocator and of the stack
    // overflow handler.
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    rlimit::set(resource::CORE, 0)?;
    rlimit::set(resource::FILE_SIZE, limits.file_bytes)?;
    if let Some(time) = limits.time {
        rlimit::set(resource::CPU, time.as_secs().saturating_add(1))?;
    }
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

/// The parent's side: sends, then waits for the answer, within the limits.
struct Parent<'run> {
    until: Option<Instant>,
    stall_max: Duration,
    interrupt: Interrupt<'run>,
    answer: &'run OwnedFd,
}

impl Parent<'_> {
    /// Sends until the end of the source. Stops early when the child answers or ends.
    fn send(&mut self, sent: Sent<'_>, pipe: OwnedFd) -> Result<(), WorkerError> {
        rustix::io::ioctl_fionbio(&pipe, true).map_err(WorkerError::Host)?;
        let mut part = vec![0; SENT_FIRST_BYTES];
        loop {
            if let Some(descriptor) = sent.descriptor
                && self.wait(Some((descriptor, PollFlags::IN)))?
            {
                return Ok(());
            }
            let count = match sent.source.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(WorkerError::Source(file::errno_of(&error))),
            };
            let part_sent = part.get(..count).unwrap_or_default();
            let is_full = part_sent.len() == part.len();
            if !self.send_part(part_sent, &pipe)? {
                return Ok(());
            }
            if is_full && part.len() < SENT_BYTES {
                part = vec![0; SENT_BYTES];
            }
        }
    }

    /// Returns whether all was sent: not if the child has answered or ended.
    fn send_part(&mut self, part: &[u8], pipe: &OwnedFd) -> Result<bool, WorkerError> {
        let mut rest = part;
        while !rest.is_empty() {
            match rustix::io::write(pipe, rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => (),
                // The child has ended; whether it has answered is seen later.
                Err(Errno::PIPE) => return Ok(false),
                Err(Errno::AGAIN) => {
                    if self.wait(Some((pipe.as_fd(), PollFlags::OUT)))? {
                        return Ok(false);
                    }
                }
                Err(errno) => return Err(WorkerError::Host(errno)),
            }
        }
        Ok(true)
    }

    /// Receives `bytes` bytes; what follows is not read.
    fn receive_exactly(&mut self, bytes: usize) -> Result<Vec<u8>, WorkerError> {
        let mut received = vec![0; bytes];
        let mut filled = 0;
        while let Some(rest) = received.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            self.wait(None)?;
            match rustix::io::read(self.answer, rest) {
                Ok(0) => return Err(WorkerError::Exited),
                Ok(count) => filled += count,
                Err(Errno::INTR) => (),
                Err(errno) => return Err(WorkerError::Host(errno)),
            }
        }
        Ok(received)
    }

    /// The answer may be cut: [`REST_TIME`].
    fn receive(&mut self, bytes_max: usize) -> Result<Vec<u8>, WorkerError> {
        let mut answer = Vec::new();
        let mut may_be_cut = false;
        loop {
            match self.wait(None) {
                Err(WorkerError::TimedOut) if may_be_cut => return Ok(answer),
                waited => waited?,
            };
            let is_first = answer.is_empty();
            answer.reserve(RECEIVED_BYTES);
            match rustix::io::read(self.answer, spare_capacity(&mut answer)) {
                Ok(0) if is_first => return Err(WorkerError::Exited),
                Ok(0) => return Ok(answer),
                Ok(_) => {
                    let rest_until = Instant::now() + REST_TIME;
                    if is_first && self.until.is_none_or(|until| rest_until < until) {
                        self.until = Some(rest_until);
                        may_be_cut = true;
                    }
                }
                Err(Errno::INTR) => (),
                Err(errno) => return Err(WorkerError::Host(errno)),
            }
            if answer.len() > bytes_max {
                return Err(WorkerError::TooLong);
            }
        }
    }

    /// Waits until the answer can be read, or `other` is ready. Returns whether it is the answer.
    fn wait(&mut self, other: Option<(BorrowedFd<'_>, PollFlags)>) -> Result<bool, WorkerError> {
        let is_childs_turn = other.is_none_or(|(_, flags)| flags.contains(PollFlags::OUT));
        let stalled = until(is_childs_turn.then_some(self.stall_max));
        loop {
            let left = self.left(stalled)?;
            let mut polled = vec![PollFd::new(self.answer, PollFlags::IN)];
            polled.extend(other.map(|(other, flags)| PollFd::from_borrowed_fd(other, flags)));
            let signals = match self.interrupt {
                Interrupt::Signals(signals) => signals,
                Interrupt::Poll(_) => None,
            };
            polled.extend(signals.map(|signals| PollFd::from_borrowed_fd(signals, PollFlags::IN)));
            match poll(&mut polled, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => return Err(WorkerError::Host(errno)),
            }
            let is_ready = |index: usize| {
                let end = polled.get(index);
                end.is_some_and(|end| !end.revents().is_empty())
            };
            let (has_answer, is_other) = (is_ready(0), other.is_some() && is_ready(1));
            if let Some(signals) = signals {
                while let Some(number) = signal::take(signals).map_err(WorkerError::Host)? {
                    if signal::ends_a_run(number) {
                        return Err(WorkerError::Signal(number));
                    }
                }
            }
            match self.interrupt {
                Interrupt::Poll(is_cancelled) if is_cancelled() => {
                    return Err(WorkerError::Source(Errno::CANCELED));
                }
                Interrupt::Signals(None) => {
                    if let Some(number) = signal::pending_end().map_err(WorkerError::Host)? {
                        return Err(WorkerError::Signal(number));
                    }
                }
                Interrupt::Poll(_) | Interrupt::Signals(Some(_)) => (),
            }
            if has_answer || is_other {
                return Ok(has_answer);
            }
        }
    }

    /// The time until the next thing to look at.
    fn left(&self, stalled: Option<Instant>) -> Result<Option<Timespec>, WorkerError> {
        let until = self.until.into_iter().chain(stalled).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(WorkerError::TimedOut);
        }
        let left = match self.interrupt {
            Interrupt::Signals(Some(_)) => left,
            Interrupt::Signals(None) | Interrupt::Poll(_) => {
                Some(left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL))
            }
        };
        // Beyond the kernel's range: wait without a limit.
        Ok(left.and_then(|left| Timespec::try_from(left).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WorkerLimits = WorkerLimits {
        time: None,
        memory_bytes: 64 << 20,
        file_bytes: 0,
        answer_bytes: 1000,
    };

    fn unpolled(source: &mut dyn Read) -> Sent<'_> {
        Sent {
            source,
            descriptor: None,
        }
    }

    fn confine(_keep: &[RawFd]) -> Result<ParsePermit, Errno> {
        Ok(ParsePermit::for_trusted_text())
    }

    fn run(
        limits: WorkerLimits,
        source: &mut dyn Read,
        run: &dyn Fn(File, &Answer<'_>) -> Vec<u8>,
    ) -> Result<Vec<u8>, WorkerError> {
        let work = Work {
            confine: &confine,
            run: &|_permit, source, answer| run(source, answer),
        };
        run_in_child(limits, None, unpolled(source), &work)
    }

    #[test]
    fn the_answer_arrives_after_what_was_sent() {
        let sent: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
        let echoed = |mut source: File, _: &Answer<'_>| {
            let mut bytes = Vec::new();
            source.read_to_end(&mut bytes).expect("read");
            vec![bytes.len().to_le_bytes()[2], bytes[256]]
        };
        assert_eq!(run(LIMITS, &mut &sent[..], &echoed), Ok(vec![16, 1]));
    }

    /// A child that reads, and neither answers nor ends.
    fn hang(mut source: File, _: &Answer<'_>) -> Vec<u8> {
        source.read_to_end(&mut Vec::new()).expect("read");
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_blocked_signal_ends_the_wait_for_a_child_and_stays_pending() {
        let blocked = signal::SignalSet::of(&[libc::SIGTERM, libc::SIGUSR1]);
        signal::set_mask(blocked).expect("blocked");
        let send = |number: i32| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            // SAFETY: no pointers.
            unsafe { libc::syscall(libc::SYS_tkill, thread, number) };
        };
        // Not one that ends a run.
        send(libc::SIGUSR1);
        let prompt = |_: File, _: &Answer<'_>| vec![1];
        assert_eq!(run(LIMITS, &mut io::empty(), &prompt), Ok(vec![1]));
        send(libc::SIGTERM);
        let ended = Err(WorkerError::Signal(libc::SIGTERM));
        assert_eq!(run(LIMITS, &mut io::empty(), &hang), ended);
        assert_eq!(signal::pending_end(), Ok(Some(libc::SIGTERM)));
        assert_eq!(signal::is_pending(blocked), Ok(true));
    }

    #[test]
    fn a_child_that_stalls_is_ended_and_a_slow_source_is_waited_for() {
        let stall_max = Duration::from_millis(200);
        let (nothing, answer_end) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let (full, filled) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        rustix::io::ioctl_fionbio(&filled, true).expect("set");
        let mut parent = Parent {
            until: None,
            stall_max,
            interrupt: Interrupt::Signals(None),
            answer: &nothing,
        };
        assert_eq!(parent.receive(1), Err(WorkerError::TimedOut));
        let more = vec![0; 1 << 20];
        assert_eq!(parent.send_part(&more, &filled), Err(WorkerError::TimedOut));
        let (slow, source_end) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let writer = std::thread::spawn(move || {
            std::thread::sleep(3 * stall_max);
            rustix::io::write(&source_end, b"x").expect("written");
        });
        let waited = parent.wait(Some((slow.as_fd(), PollFlags::IN)));
        assert_eq!(waited, Ok(false));
        writer.join().expect("ended");
        drop((answer_end, full));
    }

    #[test]
    fn a_child_answers_one_question_after_another_within_its_limits() {
        let time = Duration::from_secs(20);
        let mut count = 0_u8;
        let mut answer = |_: &ParsePermit, question: &[u8]| {
            count += 1;
            match question {
                b"hang" => loop {
                    std::thread::park();
                },
                b"end" => process::exit_now(0),
                _ => [&[count], question].concat(),
            }
        };
        let long = vec![7; 1 << 20];
        for (last, time, bytes_max, error) in [
            (
                &b"hang"[..],
                Duration::from_millis(20),
                9,
                WorkerError::TimedOut,
            ),
            (b"end", time, 9, WorkerError::Exited),
            (b"long", time, 4, WorkerError::TooLong),
        ] {
            let mut dialogue = Dialogue::start(LIMITS, &confine, &mut answer).expect("started");
            let asked = dialogue.ask(b"one", Duration::from_secs(20), 4);
            assert_eq!(asked, Ok(b"\x01one".to_vec()));
            let asked = dialogue.ask(&long, Duration::from_secs(20), 2 << 20);
            assert_eq!(asked, Ok([&[2], &long[..]].concat()));
            assert_eq!(dialogue.ask(last, time, bytes_max), Err(error));
        }
    }

    #[test]
    fn a_child_that_reads_nothing_may_answer() {
        let mut endless = io::repeat(0);
        assert_eq!(
            run(LIMITS, &mut endless, &|_source, _| b"no".to_vec()),
            Ok(b"no".to_vec())
        );
    }

    #[test]
    fn what_follows_the_first_part_has_a_time_limit_of_its_own() {
        let nothing = &mut io::empty();
        let whole = |_: File, answer: &Answer<'_>| {
            answer.send(b"first, ");
            b"rest".to_vec()
        };
        assert_eq!(run(LIMITS, nothing, &whole), Ok(b"first, rest".to_vec()));
        let hanging = |_: File, answer: &Answer<'_>| {
            answer.send(b"first");
            loop {
                std::thread::park();
            }
        };
        assert_eq!(run(LIMITS, nothing, &hanging), Ok(b"first".to_vec()));
        let dying = |_: File, answer: &Answer<'_>| {
            answer.send(b"first");
            vec![1; 256 << 20]
        };
        assert_eq!(run(LIMITS, nothing, &dying), Ok(b"first".to_vec()));
    }

    #[test]
    fn an_answer_is_heard_while_the_source_is_silent() {
        let (mut silent, _writer) = io::pipe().expect("a pipe");
        let descriptor = silent.try_clone().expect("copied");
        let sent = Sent {
            source: &mut silent,
            descriptor: Some(descriptor.as_fd()),
        };
        let work = Work {
            confine: &confine,
            run: &|_permit, _source, _| b"no".to_vec(),
        };
        assert_eq!(run_in_child(LIMITS, None, sent, &work), Ok(b"no".to_vec()));
    }

    #[test]
    fn a_caller_that_cancels_is_heard_while_the_child_is_silent() {
        let work = Work {
            confine: &confine,
            run: &|_permit, _source, _answer| loop {
                std::thread::park();
            },
        };
        for source in [&mut io::repeat(0) as &mut dyn Read, &mut io::empty()] {
            let asked = std::cell::Cell::new(0);
            let is_cancelled = || asked.replace(asked.get() + 1) > 1;
            let ended = run_in_child_unless(&is_cancelled, LIMITS, unpolled(source), &work);
            assert_eq!(ended, Err(WorkerError::Source(Errno::CANCELED)));
        }
    }

    /// A name look-up may outlive its time-out, and with it a thread that allocates.
    #[test]
    fn a_child_allocates_although_another_thread_held_the_lock_of_the_allocator() {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for size in [24, 100_000] {
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::black_box(vec![vec![1_u8; size]; 8]);
                    }
                });
            }
            let limits = WorkerLimits {
                time: Some(Duration::from_secs(20)),
                ..LIMITS
            };
            let allocates = |_source, _answer: &Answer<'_>| {
                let parts: Vec<Vec<u8>> = (1..200).map(|size| vec![1; size * 50]).collect();
                std::hint::black_box(parts).swap_remove(1)
            };
            let ended: Vec<_> = (0..100)
                .map(|_| run(limits, &mut io::empty(), &allocates))
                .filter(Result::is_err)
                .collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(ended, []);
        });
    }

    #[test]
    fn a_worker_without_an_answer_is_an_error_with_its_reason() {
        let nothing = &mut io::empty();
        let short = WorkerLimits {
            time: Some(Duration::from_millis(1)),
            ..LIMITS
        };
        let forever = |_: File, _: &Answer<'_>| loop {
            std::thread::park();
        };
        assert_eq!(run(short, nothing, &forever), Err(WorkerError::TimedOut));
        // Also while it is sent something.
        assert_eq!(
            run(short, &mut io::repeat(0), &forever),
            Err(WorkerError::TimedOut)
        );
        let much = |_: File, _: &Answer<'_>| vec![1; 256 << 20];
        assert_eq!(run(LIMITS, nothing, &much), Err(WorkerError::Exited));
        assert_eq!(
            run(LIMITS, nothing, &|_source, _| vec![]),
            Err(WorkerError::Exited)
        );
        let panics = |_: File, _: &Answer<'_>| panic!("in a child");
        assert_eq!(run(LIMITS, nothing, &panics), Err(WorkerError::Exited));
        let long = |_: File, _: &Answer<'_>| vec![1; 5000];
        assert_eq!(run(LIMITS, nothing, &long), Err(WorkerError::TooLong));
        let refuse = &|_keep: &[RawFd]| Err(Errno::PERM);
        let work = Work {
            confine: refuse,
            run: &|_permit, _source, _| vec![1],
        };
        assert_eq!(
            run_in_child(LIMITS, None, unpolled(nothing), &work),
            Err(WorkerError::Exited)
        );
    }
}
