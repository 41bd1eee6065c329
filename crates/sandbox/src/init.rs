//! Init: starts the body, reaps whatever becomes its child, passes signals on, and ends with it.
//!
//! When init ends, the kernel ends everything else in the pid namespace: nothing outlives it.

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::child::{give_up_as, note, number};
use crate::steps::{ChildStep, LaunchSteps, StepError, Streams, message};
use sys::arena::Arena;
use sys::link::{self, Message, Received};
use sys::namespace::kind;
use sys::signal::{self, SignalSet};
use sys::{landlock, namespace, privileges, process, rlimit, seccomp, terminal};

/// The mask of file modes that the body starts with, whatever the caller's is.
const BODY_UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// What init needs to start the body.
pub(super) struct Start<'a> {
    pub(super) arena: &'a Arena,
    pub(super) launch: LaunchSteps<'a>,
    pub(super) received: Received,
    pub(super) ruleset: Option<OwnedFd>,
    pub(super) terminal: Option<OwnedFd>,
    pub(super) streams: Streams,
    /// Descriptors that init keeps open until it ends.
    pub(super) claims: &'a [Option<OwnedFd>],
    pub(super) link: BorrowedFd<'a>,
    pub(super) stack: *mut [u8],
}

/// Most descriptors that init keeps: the claims, the link, the signals.
const KEPT_MAX: usize = 8;

fn at(step: ChildStep) -> impl Fn(Errno) -> StepError {
    move |errno| StepError {
        step,
        index: 0,
        errno,
    }
}

/// What the body's first process finds in the memory that it shares with init until its exec.
struct BodyStart<'a> {
    arena: &'a Arena,
    launch: &'a LaunchSteps<'a>,
    received: &'a Received,
    ruleset: Option<&'a OwnedFd>,
    terminal: Option<&'a OwnedFd>,
    streams: Streams,
    failed: Cell<Option<StepError>>,
    /// All steps were done, and nothing but the exec is left.
    confined: Cell<bool>,
}

/// Starts the body and serves until it ends. Never returns but with an error before the body was
/// executed; of one after that the supervisor is told as [`message::LOST`].
pub(super) fn start_and_serve(start: &mut Start<'_>) -> Result<Infallible, StepError> {
    signal::set_mask(SignalSet::ALL).map_err(at(ChildStep::Signals))?;
    let children =
        signal::descriptor(SignalSet::of(&[libc::SIGCHLD])).map_err(at(ChildStep::Signals))?;
    let body = start_body(start)?;
    note(start.arena, ChildStep::Execute);
    // As init's first act: the body has been executed some microseconds before, and init is
    // non-dumpable meanwhile. Init kept its capabilities because the body needed one to leave the
    // cgroup namespace.
    if let Err(errno) = privileges::drop_all() {
        give_up_as(
            message::LOST,
            start.link,
            at(ChildStep::Capabilities)(errno),
        );
    }
    // It too has to die soon, and to reap what dies before.
    process::run_soon_when_woken();
    let link = start.link;
    let mut kept = [-1; KEPT_MAX];
    let mut count = 0;
    for claim in start.claims.iter().flatten().take(KEPT_MAX - 2) {
        kept[count] = claim.as_raw_fd();
        count += 1;
    }
    kept[count] = link.as_raw_fd();
    kept[count + 1] = children.as_raw_fd();
    let keep = &mut kept[..count + 2];
    keep.sort_unstable();
    // Descriptors are closed behind their owners from here on: no owner may be dropped any more.
    match serve_alone(body, keep, link, children.as_fd()) {
        Ok(never) => match never {},
        Err(failed) => give_up_as(message::LOST, link, failed),
    }
}

/// Closes everything but `keep`, says that the body was started, and serves.
fn serve_alone(
    body: i32,
    keep: &[RawFd],
    link: BorrowedFd<'_>,
    children: BorrowedFd<'_>,
) -> Result<Infallible, StepError> {
    // Pipes above all: while init holds the body's end, nobody sees that the body closed it.
    process::close_all_but(keep).map_err(at(ChildStep::CloseDescriptors))?;
    let started = Message {
        kind: message::STARTED,
        values: [0; 3],
    };
    link::send(link, started, &[]).map_err(at(ChildStep::Wait))?;
    serve(body, link, children)
}

fn start_body(start: &mut Start<'_>) -> Result<i32, StepError> {
    let body_start = BodyStart {
        arena: start.arena,
        launch: &start.launch,
        received: &start.received,
        ruleset: start.ruleset.as_ref(),
        terminal: start.terminal.as_ref(),
        streams: start.streams,
        failed: Cell::new(None),
        confined: Cell::new(false),
    };
    let argument = (&raw const body_start).cast_mut().cast::<c_void>();
    let body = init_vfork(start.stack, argument).map_err(at(ChildStep::StartBody))?;
    match body_start.failed.get() {
        None if body_start.confined.get() => Ok(body),
        // Somebody killed it on its way, such as a host that is out of memory. That it was the
        // body that ended would be wrong; the end of init is what the supervisor has words for.
        None => process::exit_now(4),
        Some(failed) => Err(failed),
    }
}

#[expect(
    unsafe_code,
    reason = "the one place where the body's first process is started"
)]
fn init_vfork(stack: *mut [u8], argument: *mut c_void) -> Result<i32, Errno> {
    // SAFETY: the stack was handed to init alone, and init runs only on its own.
    let stack = unsafe { &mut *stack };
    // SAFETY: `body_main` neither returns nor unwinds, and changes only the Cells of its argument,
    // which lives until this call has returned.
    unsafe { process::vfork_onto(stack, body_main, argument) }
}

/// The body's first process until its exec, in init's memory.
extern "C" fn body_main(argument: *mut c_void) -> c_int {
    #[expect(unsafe_code, reason = "the argument of clone(2) is a bare pointer")]
    // SAFETY: `start_body` passes a `BodyStart` that lives until this process has left its memory.
    let start = unsafe { &*argument.cast_const().cast::<BodyStart<'_>>() };
    let failed = confine_and_execute(start);
    start.failed.set(Some(failed));
    process::exit_now(127)
}

/// Everything between clone and exec. Returns only what went wrong.
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
    note(start.arena, ChildStep::StartBody);
    let joins = start
        .received
        .iter()
        .flatten()
        .skip(launch.trees)
        .take(launch.joins);
    for (index, group) in (0..).zip(joins) {
        // `0` means the writer: joining oneself by `tasks` needs no lock over all threads.
        rustix::io::write(group, b"0").map_err(|errno| StepError {
            step: ChildStep::JoinCgroup,
            index,
            errno,
        })?;
    }
    // After joining: the namespace's root is the group at that moment. Before the capabilities
    // are gone: it needs one.
    namespace::leave(kind::CGROUP).map_err(at(ChildStep::CgroupNamespace))?;
    note(start.arena, ChildStep::JoinCgroup);
    privileges::drop_all().map_err(at(ChildStep::Capabilities))?;
    rustix::process::setsid().map_err(at(ChildStep::Session))?;
    for (index, limit) in (0..).zip(launch.limits) {
        rlimit::set(limit.resource, limit.value).map_err(|errno| StepError {
            step: ChildStep::ResourceLimit,
            index,
            errno,
        })?;
    }
    connect_streams(start)?;
    if let Some(ruleset) = start.ruleset {
        landlock::restrict_self(ruleset.as_fd()).map_err(at(ChildStep::Landlock))?;
    }
    process::close_all_but(&[0, 1, 2]).map_err(at(ChildStep::CloseDescriptors))?;
    // After closing: `/proc/self/fd/N` would lead to a directory of the host (CVE-2024-21626).
    rustix::process::chdir(launch.working_directory).map_err(at(ChildStep::WorkingDirectory))?;
    // What the caller ignores, and SIGPIPE, which we do, is none of the body's.
    signal::default_dispositions().map_err(at(ChildStep::Signals))?;
    signal::set_mask(SignalSet::NONE).map_err(at(ChildStep::Signals))?;
    rustix::process::umask(BODY_UMASK);
    note(start.arena, ChildStep::WorkingDirectory);
    if !launch.second_filter.is_empty() {
        seccomp::load(launch.second_filter).map_err(at(ChildStep::Seccomp))?;
    }
    seccomp::load(launch.filter).map_err(at(ChildStep::Seccomp))?;
    // The clock is read without a system call, so that the filter is not asked.
    note(start.arena, ChildStep::Seccomp);
    Ok(())
}

fn connect_streams(start: &BodyStart<'_>) -> Result<(), StepError> {
    let terminal = number(start.terminal);
    let sources: [RawFd; 3] = if 0 <= terminal {
        [terminal; 3]
    } else {
        [
            start.streams.stdin,
            start.streams.stdout,
            start.streams.stderr,
        ]
    };
    // The supervisor has made sure that the sources are above 2, so none is overwritten.
    let nothing;
    let mut sources = sources;
    if start.launch.null_stdin && start.terminal.is_none() {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(rustix::fs::CWD, c"/dev/null", flags, Mode::empty());
        nothing = opened.map_err(at(ChildStep::Streams))?;
        sources[0] = nothing.as_raw_fd();
    }
    for (target, source) in (0..).zip(sources) {
        process::duplicate_onto(source, target).map_err(at(ChildStep::Streams))?;
    }
    if let Some(slave) = start.terminal {
        terminal::make_controlling(slave.as_fd()).map_err(at(ChildStep::Terminal))?;
    }
    Ok(())
}

fn execute(launch: &LaunchSteps<'_>) -> StepError {
    let mut answer = Errno::NOENT;
    for program in launch.programs {
        #[expect(unsafe_code, reason = "execve takes bare pointers")]
        // SAFETY: both arrays were laid out with a null pointer at their end.
        let errno =
            unsafe { process::execve(program, launch.argv.as_ptr(), launch.environment.as_ptr()) };
        // As execvp(3): what is not there is skipped; what is there and cannot be executed is
        // remembered while the rest is tried.
        match errno {
            Errno::NOENT | Errno::NOTDIR => (),
            Errno::ACCESS => answer = errno,
            other => {
                answer = other;
                break;
            }
        }
    }
    at(ChildStep::Execute)(answer)
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
        let spoken = !watched[0].revents().is_empty();
        let ended = !watched[1].revents().is_empty();
        if ended {
            while signal::take(children)
                .map_err(at(ChildStep::Wait))?
                .is_some()
            {}
            reap(body, link)?;
        }
        if spoken {
            obey(body, link)?;
        }
    }
}

/// Takes every child that has ended; ends with the body's first process.
fn reap(body: i32, link: BorrowedFd<'_>) -> Result<(), StepError> {
    loop {
        match process::wait(-1, false) {
            Ok(Some(ended)) if ended.pid == body => {
                let values = [ended.raw_status, 0, 0];
                link::send(
                    link,
                    Message {
                        kind: message::ENDED,
                        values,
                    },
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

/// Does the one thing that the supervisor says, out of two: a signal for the body's process group,
/// a connection to its loopback. The end of the link is the supervisor's end.
fn obey(body: i32, link: BorrowedFd<'_>) -> Result<(), StepError> {
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
                // The group is empty, though something of the body may still run elsewhere.
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
        )) => answer(link, id, connect(is_v6 != 0, port)),
        Some(_) => Err(at(ChildStep::Wait)(Errno::BADMSG)),
    }
}

/// A socket that is connected, or about to be, to a port of the body's own loopback. Never waits.
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

fn answer(
    link: BorrowedFd<'_>,
    id: i32,
    connected: Result<OwnedFd, Errno>,
) -> Result<(), StepError> {
    let errno = match &connected {
        Ok(_) => 0,
        Err(errno) => errno.raw_os_error(),
    };
    let says = |errno: i32| Message {
        kind: message::CONNECTED,
        values: [id, errno, 0],
    };
    let sent = match &connected {
        Ok(socket) => match link::send(link, says(errno), &[socket.as_fd()]) {
            // Descriptors that are under way are counted for all processes of a uid together, so
            // the body can see to it that init sends none. That ends one connection, not init.
            Err(errno @ (Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                link::send(link, says(errno.raw_os_error()), &[])
            }
            other => other,
        },
        Err(_) => link::send(link, says(errno), &[]),
    };
    sent.map_err(at(ChildStep::Wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Word, hear};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// What init answers when it is asked for a connection.
    fn asked(is_v6: bool, port: i32) -> Result<OwnedFd, Errno> {
        let (supervisor, init) = link::pair().expect("a pair");
        let values = [7, i32::from(is_v6), port];
        let kind = message::CONNECT;
        link::send(supervisor.as_fd(), Message { kind, values }, &[]).expect("sent");
        assert!(obey(1, init.as_fd()).is_ok());
        match hear(supervisor.as_fd()) {
            Ok(Word::Connected(7, socket)) => socket,
            other => panic!("{other:?}"),
        }
    }

    /// E-01: the second line, should the death signal not come. In a process of its own, which ends.
    #[test]
    fn init_ends_when_the_supervisor_s_end_of_the_link_is_gone() {
        const NAME: &str = "init::tests::init_ends_when_the_supervisor_s_end_of_the_link_is_gone";
        if std::env::var_os("RUNNER_TESTS_INSIDE").is_some() {
            let (supervisor, init) = link::pair().expect("a pair");
            drop(supervisor);
            let stayed = obey(1, init.as_fd());
            panic!("init is still there: {stayed:?}");
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
    fn init_connects_to_a_port_of_its_own_loopback_and_hands_the_socket_over() {
        for (address, is_v6) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let listener = TcpListener::bind(address).expect("bound");
            let port = listener.local_addr().expect("bound").port();
            let socket = asked(is_v6, port.into()).expect("connected or about to be");
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
    fn where_nobody_listens_init_says_so_and_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        match asked(false, port.into()) {
            Err(errno) => assert_eq!(errno, Errno::CONNREFUSED),
            Ok(socket) => {
                let told = rustix::net::sockopt::socket_error(&socket).expect("told");
                assert_eq!(told, Err(Errno::CONNREFUSED));
            }
        }
        for port in [-1, 1 << 16, i32::MAX] {
            assert_eq!(asked(false, port).expect_err("no port"), Errno::INVAL);
        }
    }

    #[test]
    fn init_knows_two_verbs_and_no_other() {
        let (supervisor, init) = link::pair().expect("a pair");
        for kind in [0, message::LAUNCH, message::ENDED, message::CONNECTED, 99] {
            let said = Message {
                kind,
                values: [0; 3],
            };
            link::send(supervisor.as_fd(), said, &[]).expect("sent");
            let refused = obey(1, init.as_fd()).expect_err("no verb of its own");
            assert_eq!(refused, at(ChildStep::Wait)(Errno::BADMSG), "{kind}");
        }
    }
}
