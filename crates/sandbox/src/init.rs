//! Init: starts the body, reaps children, forwards signals, and exits after the body. Then the
//! kernel kills everything else in the pid namespace.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use landlock::{RulesetCreated, RulesetCreatedAttr, RulesetStatus};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::child::{exit_with_failure, store_timestamp};
use crate::steps::{ChildStep, LaunchSteps, StepError, at, at_index, message};
use filter::bpf::Instruction;
use sys::arena::Arena;
use sys::link::{self, Message, Received};
use sys::namespace::kind;
use sys::signal::{self, SignalSet};
use sys::{file, landlock as kernel_landlock, namespace, privileges, process, rlimit, seccomp};

/// umask of the body, independent of the caller's.
const BODY_UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

pub(super) struct Start<'a> {
    pub(super) arena: &'a Arena,
    pub(super) launch: LaunchSteps<'a>,
    pub(super) received: Received,
    pub(super) ruleset: Cell<Option<RulesetCreated>>,
    pub(super) terminal: Option<OwnedFd>,
    pub(super) streams: [BorrowedFd<'a>; 3],
    /// Descriptors that init keeps open until it ends.
    pub(super) claims: &'a [Option<OwnedFd>],
    pub(super) link: BorrowedFd<'a>,
    pub(super) stack: &'a mut [u8],
}

/// Maximum number of claims, plus the link and the signalfd.
const KEEP_MAX: usize = 8;

/// Data of the body's first process, in memory that it shares with init until the exec.
struct BodyStart<'a> {
    arena: &'a Arena,
    launch: &'a LaunchSteps<'a>,
    received: &'a Received,
    ruleset: &'a Cell<Option<RulesetCreated>>,
    terminal: Option<&'a OwnedFd>,
    streams: [BorrowedFd<'a>; 3],
    failed: Cell<Option<StepError>>,
    /// All steps are done except the exec.
    confined: Cell<bool>,
}

/// Starts the body and serves until it ends. Returns only errors before the exec; later ones are
/// reported as [`message::LOST`].
pub(super) fn start_and_serve(start: &mut Start<'_>) -> Result<Infallible, StepError> {
    signal::set_mask(SignalSet::ALL).map_err(at(ChildStep::Signals))?;
    let children =
        signal::descriptor(SignalSet::of(&[libc::SIGCHLD])).map_err(at(ChildStep::Signals))?;
    if let Some(ruleset) = start.ruleset.get_mut() {
        // Before the body, which enters a second domain below this one: then init can signal it, and
        // it can neither signal nor trace init. Everything that init starts inherits this domain.
        let own = ruleset.try_clone();
        restrict(own.map_err(|error| at(ChildStep::Landlock)(file::errno_of(&error)))?)?;
    }
    let body = start_body(start)?;
    store_timestamp(start.arena, ChildStep::Execute);
    // Init kept its capabilities until here because the body's process needed one to leave the
    // cgroup namespace. Meanwhile init is non-dumpable.
    if let Err(errno) = privileges::drop_all() {
        exit_with_failure(
            message::LOST,
            start.link,
            at(ChildStep::Capabilities)(errno),
        );
    }
    // The end of the run waits for init to reap and exit.
    process::request_short_slice();
    let link = start.link;
    let mut keep = [-1; KEEP_MAX];
    let mut count = 0;
    for claim in start.claims.iter().flatten().take(KEEP_MAX - 2) {
        keep[count] = claim.as_raw_fd();
        count += 1;
    }
    keep[count] = link.as_raw_fd();
    keep[count + 1] = children.as_raw_fd();
    let keep = &mut keep[..count + 2];
    keep.sort_unstable();
    // From here on, descriptors are closed while their owners exist: never drop an owner.
    let filter = start.launch.filter;
    match confine_and_serve(body, keep, filter, link, children.as_fd()) {
        Ok(never) => match never {},
        Err(failed) => exit_with_failure(message::LOST, link, failed),
    }
}

fn confine_and_serve(
    body: i32,
    keep: &[RawFd],
    filter: &[Instruction],
    link: BorrowedFd<'_>,
    children: BorrowedFd<'_>,
) -> Result<Infallible, StepError> {
    // A copy of the body's end of a pipe in init would hide from the reader that the body closed it.
    process::close_all_but(keep).map_err(at(ChildStep::CloseDescriptors))?;
    // The body's: what init starts later inherits it, and nothing that init does needs more. Not
    // before the body's start, because the body's process leaves the cgroup namespace.
    seccomp::load(filter).map_err(at(ChildStep::Seccomp))?;
    let started = Message::of(message::STARTED);
    link::send(link, started, &[]).map_err(at(ChildStep::Wait))?;
    serve(body, link, children)
}

fn start_body(start: &mut Start<'_>) -> Result<i32, StepError> {
    let body_start = BodyStart {
        arena: start.arena,
        launch: &start.launch,
        received: &start.received,
        ruleset: &start.ruleset,
        terminal: start.terminal.as_ref(),
        streams: start.streams,
        failed: Cell::new(None),
        confined: Cell::new(false),
    };
    #[expect(
        unsafe_code,
        reason = "the one place where the body's first process is started"
    )]
    // SAFETY: `body_main` changes only the Cells of its argument.
    let body = unsafe { process::vfork_onto(start.stack, body_main, &body_start) };
    let body = body.map_err(at(ChildStep::StartBody))?;
    match body_start.failed.get() {
        None if body_start.confined.get() => Ok(body),
        // Killed before the exec, for example out of memory. The exit code of init reports it.
        None => process::exit_now(4),
        Some(failed) => Err(failed),
    }
}

/// The body's first process until its exec, in init's memory.
fn body_main(start: &BodyStart<'_>) -> ! {
    start.failed.set(Some(confine_and_execute(start)));
    process::exit_now(127)
}

fn confine_and_execute(start: &BodyStart<'_>) -> StepError {
    match confine(start) {
        Ok(()) => {
            start.confined.set(true);
            execute(start.launch)
        }
        Err(failed) => failed,
    }
}

fn confine(start: &BodyStart<'_>) -> Result<(), StepError> {
    let launch = start.launch;
    store_timestamp(start.arena, ChildStep::StartBody);
    let joins = start
        .received
        .iter()
        .flatten()
        .skip(launch.trees)
        .take(launch.joins);
    for (index, group) in (0..).zip(joins) {
        // `0` is the writing thread; joining through `tasks` takes no lock over all threads.
        rustix::io::write(group, b"0").map_err(at_index(ChildStep::JoinCgroup, index))?;
    }
    // After joining, because the current cgroup becomes the namespace's root. Before dropping
    // capabilities.
    namespace::unshare(kind::CGROUP).map_err(at(ChildStep::CgroupNamespace))?;
    store_timestamp(start.arena, ChildStep::JoinCgroup);
    privileges::drop_all().map_err(at(ChildStep::Capabilities))?;
    rustix::process::setsid().map_err(at(ChildStep::Session))?;
    for (index, limit) in (0..).zip(launch.limits) {
        rlimit::set(limit.resource, limit.value)
            .map_err(at_index(ChildStep::ResourceLimit, index))?;
    }
    connect_streams(start)?;
    if let Some(ruleset) = start.ruleset.take() {
        restrict(ruleset)?;
    }
    process::close_all_but(&[0, 1, 2]).map_err(at(ChildStep::CloseDescriptors))?;
    // After closing descriptors: a working directory `/proc/self/fd/N` could be a directory of the
    // host (CVE-2024-21626).
    rustix::process::chdir(launch.working_directory).map_err(at(ChildStep::WorkingDirectory))?;
    // Reset signals that the caller ignores, SIGPIPE and SIGXFSZ, which init ignores.
    signal::default_dispositions().map_err(at(ChildStep::Signals))?;
    signal::set_mask(SignalSet::NONE).map_err(at(ChildStep::Signals))?;
    rustix::process::umask(BODY_UMASK);
    store_timestamp(start.arena, ChildStep::WorkingDirectory);
    if !launch.second_filter.is_empty() {
        seccomp::load(launch.second_filter).map_err(at(ChildStep::Seccomp))?;
    }
    seccomp::load(launch.filter).map_err(at(ChildStep::Seccomp))?;
    // Reads the clock without a system call, because the filter might refuse one.
    store_timestamp(start.arena, ChildStep::Seccomp);
    Ok(())
}

fn restrict(ruleset: RulesetCreated) -> Result<(), StepError> {
    // no_new_privs is already set.
    let restricted = ruleset.no_new_privs(false).restrict_self();
    let status =
        restricted.map_err(|error| at(ChildStep::Landlock)(kernel_landlock::errno_in(&error)))?;
    if status.ruleset == RulesetStatus::FullyEnforced {
        Ok(())
    } else {
        Err(at(ChildStep::Landlock)(Errno::OPNOTSUPP))
    }
}

fn connect_streams(start: &BodyStart<'_>) -> Result<(), StepError> {
    let null;
    let [stdin, stdout, stderr] = match start.terminal {
        Some(terminal) => [terminal.as_fd(); 3],
        None if start.launch.null_stdin => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(rustix::fs::CWD, c"/dev/null", flags, Mode::empty());
            null = opened.map_err(at(ChildStep::Streams))?;
            let [_, stdout, stderr] = start.streams;
            [null.as_fd(), stdout, stderr]
        }
        None => start.streams,
    };
    // Sources are above 2, so none is overwritten.
    dup2_stdin(stdin)
        .and_then(|()| dup2_stdout(stdout))
        .and_then(|()| dup2_stderr(stderr))
        .map_err(at(ChildStep::Streams))?;
    if let Some(terminal) = start.terminal {
        rustix::process::ioctl_tiocsctty(terminal).map_err(at(ChildStep::Terminal))?;
    }
    Ok(())
}

fn execute(launch: &LaunchSteps<'_>) -> StepError {
    let mut failure = Errno::NOENT;
    for program in launch.programs {
        // As execvp(3): skip missing files, remember a file that cannot be executed, and try the
        // rest.
        match process::execve(program, launch.argv, launch.environment) {
            Errno::NOENT | Errno::NOTDIR => (),
            Errno::ACCESS => failure = Errno::ACCESS,
            other => {
                failure = other;
                break;
            }
        }
    }
    at(ChildStep::Execute)(failure)
}

fn serve(
    body: i32,
    link: BorrowedFd<'_>,
    children: BorrowedFd<'_>,
) -> Result<Infallible, StepError> {
    loop {
        let mut watched = [
            PollFd::new(&link, PollFlags::IN),
            PollFd::new(&children, PollFlags::IN),
        ];
        match rustix::event::poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(at(ChildStep::Wait)(errno)),
        }
        let has_message = !watched[0].revents().is_empty();
        let ended = !watched[1].revents().is_empty();
        if ended {
            while signal::take(children)
                .map_err(at(ChildStep::Wait))?
                .is_some()
            {}
            reap(body, link)?;
        }
        if has_message {
            handle_message(body, link)?;
        }
    }
}

/// Reaps every ended child; exits with the body's first process.
fn reap(body: i32, link: BorrowedFd<'_>) -> Result<(), StepError> {
    loop {
        match process::wait(-1, false) {
            Ok(Some(ended)) if ended.pid == body => {
                link::send(
                    link,
                    Message::with(message::ENDED, [ended.raw_status, 0, 0]),
                    &[],
                )
                .map_err(at(ChildStep::Wait))?;
                process::exit_now(0)
            }
            Ok(Some(_)) => (),
            Ok(None) | Err(Errno::CHILD) => return Ok(()),
            Err(errno) => return Err(at(ChildStep::Wait)(errno)),
        }
    }
}

/// Handles a message of the supervisor: a signal for the body's process group, or a request for a
/// connection to its loopback. Exits if the supervisor is gone.
fn handle_message(body: i32, link: BorrowedFd<'_>) -> Result<(), StepError> {
    match link::receive(link).map_err(at(ChildStep::Wait))? {
        None => process::exit_now(3),
        Some((
            Message {
                kind: message::SIGNAL,
                values: [signal, ..],
            },
            _,
        )) => {
            match process::kill(-body, signal) {
                // The process group is empty; other processes of the body may still run.
                Ok(()) | Err(Errno::SRCH) => Ok(()),
                Err(errno) => Err(at(ChildStep::Wait)(errno)),
            }
        }
        Some((
            Message {
                kind: message::CONNECT,
                values: [id, is_v6, port],
            },
            _,
        )) => send_connected(link, id, connect(is_v6 != 0, port)),
        Some(_) => Err(at(ChildStep::Wait)(Errno::BADMSG)),
    }
}

/// Returns a socket that is connected or connecting to a port of the body's loopback. Never blocks.
fn connect(is_v6: bool, port: i32) -> Result<OwnedFd, Errno> {
    let port = u16::try_from(port).map_err(|_range| Errno::INVAL)?;
    let (family, to) = if is_v6 {
        (
            AddressFamily::INET6,
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        )
    } else {
        (
            AddressFamily::INET,
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        )
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn send_connected(
    link: BorrowedFd<'_>,
    id: i32,
    connected: Result<OwnedFd, Errno>,
) -> Result<(), StepError> {
    let message = |errno: i32| Message::with(message::CONNECTED, [id, errno, 0]);
    let sent = match connected {
        Ok(socket) => match link::send(link, message(0), &[socket.as_fd()]) {
            // Descriptors in transit count per uid, so the body can exhaust them. Fail this
            // connection only.
            Err(errno @ (Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                link::send(link, message(errno.raw_os_error()), &[])
            }
            other => other,
        },
        Err(errno) => link::send(link, message(errno.raw_os_error()), &[]),
    };
    sent.map_err(at(ChildStep::Wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{InitMessage, receive};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn request(is_v6: bool, port: i32) -> Result<OwnedFd, Errno> {
        let (supervisor, init) = link::pair().expect("a pair");
        let values = [7, i32::from(is_v6), port];
        let kind = message::CONNECT;
        link::send(supervisor.as_fd(), Message { kind, values }, &[]).expect("sent");
        assert!(handle_message(1, init.as_fd()).is_ok());
        match receive(supervisor.as_fd()) {
            Ok(InitMessage::Connected(7, socket)) => socket,
            other => panic!("{other:?}"),
        }
    }

    /// E-01: the fallback without a death signal. Runs in a separate process, because it exits.
    #[test]
    fn init_ends_when_the_supervisor_s_end_of_the_link_is_gone() {
        const NAME: &str = "init::tests::init_ends_when_the_supervisor_s_end_of_the_link_is_gone";
        if std::env::var_os("RUNNER_TESTS_INSIDE").is_some() {
            let (supervisor, init) = link::pair().expect("a pair");
            drop(supervisor);
            let result = handle_message(1, init.as_fd());
            panic!("init is still there: {result:?}");
        }
        let program = std::env::current_exe().expect("our own path");
        let output = std::process::Command::new(program)
            .args(["--exact", NAME, "--nocapture"])
            .env("RUNNER_TESTS_INSIDE", "1")
            .output()
            .expect("started");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }

    #[test]
    fn init_connects_to_a_port_of_its_loopback_and_sends_the_socket() {
        for (address, is_v6) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let listener = TcpListener::bind(address).expect("bound");
            let port = listener.local_addr().expect("bound").port();
            let socket = request(is_v6, port.into()).expect("connected or about to be");
            let flags = rustix::fs::fcntl_getfl(&socket).expect("known");
            assert!(flags.contains(OFlags::NONBLOCK));
            let (mut body, from) = listener.accept().expect("accepted");
            assert!(from.ip().is_loopback());
            body.write_all(b"x").expect("written");
            rustix::io::ioctl_fionbio(&socket, false).expect("set");
            let mut byte = [0];
            TcpStream::from(socket).read_exact(&mut byte).expect("read");
        }
    }

    #[test]
    fn init_reports_a_refused_connection_and_continues() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        match request(false, port.into()) {
            Err(errno) => assert_eq!(errno, Errno::CONNREFUSED),
            Ok(socket) => {
                let error = rustix::net::sockopt::socket_error(&socket).expect("an error");
                assert_eq!(error, Err(Errno::CONNREFUSED));
            }
        }
        for port in [-1, 1 << 16, i32::MAX] {
            assert_eq!(request(false, port).expect_err("no port"), Errno::INVAL);
        }
    }

    #[test]
    fn init_refuses_other_messages_than_signal_and_connect() {
        let (supervisor, init) = link::pair().expect("a pair");
        for kind in [0, message::LAUNCH, message::ENDED, message::CONNECTED, 99] {
            link::send(supervisor.as_fd(), Message::of(kind), &[]).expect("sent");
            let refused = handle_message(1, init.as_fd()).expect_err("refused");
            assert_eq!(refused, at(ChildStep::Wait)(Errno::BADMSG), "{kind}");
        }
    }
}
