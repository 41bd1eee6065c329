//! Init: starts the body, reaps children, forwards signals, and exits after the body. Then the
//! kernel kills everything else in the pid namespace. In a sandbox that stays there is no body: init
//! starts a command whenever the supervisor asks for one, and exits when it is told to.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use landlock::RulesetCreated;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::termios::Winsize;

use crate::built_in;
use crate::child::{exit_with_failure, store_timestamp};
use crate::first_process::{
    CommandStart, Domain, Leaves, join_groups, leave_cgroup_namespace, restrict, start_command,
};
use crate::session::kill_session;
use crate::steps::{ChildStep, CommandSteps, LaunchSteps, StepError, at, message, read_plan};
use spec::sandboxes::TerminalSize;
use sys::arena::Arena;
use sys::link::{self, Message, Received};
use sys::signal::{self, SignalSet};
use sys::{file, privileges, process, seccomp, terminal};

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

/// Maximum number of claims, plus the link, the signalfd and the listener.
const KEEP_MAX: usize = 9;

/// Most commands of a sandbox that run at once.
const COMMANDS_MAX: usize = 1024;

/// What init serves after the start.
struct Serving<'a> {
    /// Its first process. `None`: the sandbox stays.
    body: Option<i32>,
    commands: [Place; COMMANDS_MAX],
    arena: &'a Arena,
    stack: &'a mut [u8],
    link: BorrowedFd<'a>,
    children: BorrowedFd<'a>,
    #[cfg(feature = "planted-bugs")]
    planted: Option<attacker::SharedFile>,
}

/// A command, or a free place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Its first process; 0: free.
    leader: i32,
    /// Its session ends with its first process.
    is_ending: bool,
}

impl Place {
    const FREE: Self = Self::of(0);

    const fn of(leader: i32) -> Self {
        Self {
            leader,
            is_ending: false,
        }
    }
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
        let own = own.map_err(|error| at(ChildStep::Landlock)(file::errno_of(&error)))?;
        restrict(own, Domain::OfInit, start.launch.records)?;
    }
    // The end of the run waits for init to reap and exit. A child does not inherit this.
    process::request_short_slice();
    // Everything that init starts inherits the filter: loading it takes longer than most other steps.
    let listener = load_filter(&start.launch)?;
    let listener = if start.launch.is_traced {
        // The first calls of the body's process wait for an answer, before it has started.
        send_listener(message::LISTENER, start.link, &listener).map_err(at(ChildStep::Trace))?;
        None
    } else {
        Some(listener)
    };
    let body = match start.launch.command {
        Some(command) => Some(start_body(start, &command)?),
        None => {
            // Before dropping capabilities: what init starts is in its groups and namespaces.
            join_groups(joins(&start.launch, &start.received))?;
            leave_cgroup_namespace()?;
            None
        }
    };
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
    let mut serving = Serving {
        body,
        commands: [Place::FREE; COMMANDS_MAX],
        arena: start.arena,
        stack: &mut *start.stack,
        link: start.link,
        children: children.as_fd(),
        #[cfg(feature = "planted-bugs")]
        planted: planted::share(),
    };
    let link = start.link;
    let mut keep = [-1; KEEP_MAX];
    let mut count = 0;
    for claim in start.claims.iter().flatten().take(KEEP_MAX - 3) {
        keep[count] = claim.as_raw_fd();
        count += 1;
    }
    keep[count] = link.as_raw_fd();
    keep[count + 1] = children.as_raw_fd();
    count += 2;
    if let Some(Ok(listener)) = &listener {
        keep[count] = listener.as_raw_fd();
        count += 1;
    }
    let keep = &mut keep[..count];
    keep.sort_unstable();
    // From here on, descriptors are closed while their owners exist: never drop an owner.
    match close_and_serve(&mut serving, keep, listener) {
        Ok(never) => match never {},
        Err(failed) => exit_with_failure(message::LOST, link, failed),
    }
}

fn close_and_serve(
    serving: &mut Serving<'_>,
    keep: &[RawFd],
    listener: Option<Result<OwnedFd, Errno>>,
) -> Result<Infallible, StepError> {
    // A copy of the body's end of a pipe in init would hide from the reader that the body closed it.
    process::close_all_but(keep).map_err(at(ChildStep::CloseDescriptors))?;
    if serving.body.is_none() {
        occupy_standard_descriptors()?;
    }
    match &listener {
        Some(listener) => send_listener(message::STARTED, serving.link, listener),
        None => link::send(serving.link, Message::of(message::STARTED), &[]),
    }
    .map_err(at(ChildStep::Wait))?;
    // Only the supervisor may have it: when it ends, the calls that wait fail.
    drop(listener);
    if serving.body.is_some() {
        // The body runs by now and does not inherit it.
        seccomp::load(crate::seccomp::of_init()).map_err(at(ChildStep::Seccomp))?;
    }
    serving.serve()
}

/// Loads the filter, with a listener if there can be one. Returns the errno for which there is none.
fn load_filter(launch: &LaunchSteps<'_>) -> Result<Result<OwnedFd, Errno>, StepError> {
    let filter = launch.filter;
    let observed = if launch.is_traced {
        filter.traced
    } else {
        filter.observed
    };
    match seccomp::load_with_listener(observed) {
        Ok(listener) => Ok(Ok(listener)),
        // A filter of the caller has a listener, or the kernel is older than 5.19.
        Err(errno @ (Errno::BUSY | Errno::INVAL)) if launch.is_traced => {
            Err(at(ChildStep::Trace)(errno))
        }
        Err(errno @ (Errno::BUSY | Errno::INVAL)) => {
            let loaded = seccomp::load(filter.silent).map_err(at(ChildStep::Seccomp));
            loaded.map(|()| Err(errno))
        }
        Err(errno) => Err(at(ChildStep::Seccomp)(errno)),
    }
}

fn send_listener(
    kind: u32,
    link: BorrowedFd<'_>,
    listener: &Result<OwnedFd, Errno>,
) -> Result<(), Errno> {
    let message = |errno: i32| Message::with(kind, [errno, 0, 0]);
    match listener {
        Ok(listener) => link::send(link, message(0), &[listener.as_fd()]),
        Err(errno) => link::send(link, message(errno.raw_os_error()), &[]),
    }
}

/// Opens /dev/null as 0, 1 and 2: the streams of a command must arrive above them, to be copied there.
fn occupy_standard_descriptors() -> Result<(), StepError> {
    loop {
        let opened = rustix::fs::openat(rustix::fs::CWD, c"/dev/null", OFlags::RDWR, Mode::empty())
            .map_err(at(ChildStep::Streams))?;
        if opened.as_raw_fd() > 2 {
            return Ok(());
        }
        // Open until init ends.
        std::mem::forget(opened);
    }
}

fn start_body(start: &mut Start<'_>, command: &CommandSteps<'_>) -> Result<i32, StepError> {
    let leaves = Leaves {
        ruleset: &start.ruleset,
        records: start.launch.records,
    };
    let body_start = CommandStart {
        arena: start.arena,
        command,
        joins: joins(&start.launch, &start.received),
        leaves: Some(leaves),
        terminal: start.terminal.as_ref(),
        streams: start.streams,
        failed: Cell::new(None),
        confined: Cell::new(false),
    };
    match start_command(&body_start, start.stack)? {
        Some(body) => Ok(body),
        // The exit code of init reports it.
        None => process::exit_now(4),
    }
}

/// The files of the groups to join, behind the trees.
fn joins<'a>(launch: &LaunchSteps<'_>, received: &'a Received) -> &'a [Option<OwnedFd>] {
    let end = launch.trees.saturating_add(launch.joins);
    received.get(launch.trees..end).unwrap_or(&[])
}

impl Serving<'_> {
    fn serve(&mut self) -> Result<Infallible, StepError> {
        loop {
            let mut watched = [
                PollFd::new(&self.link, PollFlags::IN),
                PollFd::new(&self.children, PollFlags::IN),
            ];
            match rustix::event::poll(&mut watched, None) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => return Err(at(ChildStep::Wait)(errno)),
            }
            let has_message = !watched[0].revents().is_empty();
            let ended = !watched[1].revents().is_empty();
            if ended {
                while signal::take(self.children)
                    .map_err(at(ChildStep::Wait))?
                    .is_some()
                {}
                self.reap()?;
            }
            if has_message {
                self.handle_message()?;
            }
        }
    }

    /// Reaps every ended child; exits with the body's first process.
    fn reap(&mut self) -> Result<(), StepError> {
        loop {
            match process::wait(-1, false) {
                Ok(Some(ended)) if Some(ended.pid) == self.body => {
                    self.send(message::ENDED, [ended.raw_status, 0, 0])?;
                    process::exit_now(0)
                }
                Ok(Some(ended)) => {
                    #[cfg(feature = "planted-bugs")]
                    planted::take_over(ended.raw_status, self.planted.as_mut());
                    // Not of a process that a command left behind.
                    if let Some(place) = self.place_of(ended.pid) {
                        let is_ending = std::mem::replace(place, Place::FREE).is_ending;
                        if is_ending {
                            self.kill_session(ended.pid);
                        }
                        self.send(message::COMMAND_ENDED, [ended.pid, ended.raw_status, 0])?;
                    }
                }
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(errno) => return Err(at(ChildStep::Wait)(errno)),
            }
        }
    }

    fn send(&self, kind: u32, values: [i32; 3]) -> Result<(), StepError> {
        link::send(self.link, Message { kind, values }, &[]).map_err(at(ChildStep::Wait))
    }

    fn place_of(&mut self, leader: i32) -> Option<&mut Place> {
        let mut commands = self.commands.iter_mut();
        commands.find(|command| command.leader == leader)
    }

    fn kill_session(&self, leader: i32) {
        match kill_session(leader) {
            // Without /proc the process group alone was killed.
            Ok(()) | Err(_) => (),
        }
    }

    /// Sends a signal to the process group of the body or of a command, or ends the command's session.
    fn signal(&mut self, [signal, command, ends]: [i32; 3]) -> Result<(), StepError> {
        let leader = match command {
            0 => self.body,
            pid => self.place_of(pid).map(|place| {
                place.is_ending |= ends != 0;
                place.leader
            }),
        };
        let Some(leader) = leader else {
            return Ok(());
        };
        if ends != 0 && signal == libc::SIGKILL {
            self.kill_session(leader);
            return Ok(());
        }
        match process::kill(-leader, signal) {
            // The process group is empty; other processes of the body may still run.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(at(ChildStep::Wait)(errno)),
        }
    }

    /// Handles a message of the supervisor. Exits if the supervisor is gone.
    fn handle_message(&mut self) -> Result<(), StepError> {
        let Some((Message { kind, values }, received)) =
            link::receive(self.link).map_err(at(ChildStep::Wait))?
        else {
            process::exit_now(3)
        };
        match (kind, self.body) {
            (message::SIGNAL, _) => self.signal(values),
            (message::CONNECT, _) => {
                let [id, is_v6, port] = values;
                send_connected(self.link, id, connect(is_v6 != 0, port))
            }
            (message::COMMAND, None) => self.start_next(&received),
            (message::END, None) => {
                self.send(message::ENDED, [0; 3])?;
                process::exit_now(0)
            }
            _ => Err(at(ChildStep::Wait)(Errno::BADMSG)),
        }
    }

    /// Starts the command in the arena with the received streams, in the cgroups behind them.
    fn start_next(&mut self, received: &Received) -> Result<(), StepError> {
        let [Some(stdin), Some(stdout), Some(stderr), joins @ ..] = received else {
            return Err(at(ChildStep::Wait)(Errno::BADMSG));
        };
        match self.try_start([stdin, stdout, stderr].map(AsFd::as_fd), joins) {
            Ok((pid, terminal)) => {
                if let Some(place) = self.place_of(0) {
                    *place = Place::of(pid);
                }
                let started = Message::with(message::COMMAND_STARTED, [pid, 0, 0]);
                let sent = match &terminal {
                    Some(terminal) => link::send(self.link, started, &[terminal.as_fd()]),
                    None => link::send(self.link, started, &[]),
                };
                sent.map_err(at(ChildStep::Wait))
            }
            Err(failed) => self.send(message::COMMAND_FAILED, failed.to_values()),
        }
    }

    /// Returns the pid, and the supervisor's end of the terminal.
    fn try_start(
        &mut self,
        streams: [BorrowedFd<'_>; 3],
        joins: &[Option<OwnedFd>],
    ) -> Result<(i32, Option<OwnedFd>), StepError> {
        if self.place_of(0).is_none() {
            return Err(at(ChildStep::StartBody)(Errno::AGAIN));
        }
        let command: CommandSteps<'_> = read_plan(self.arena);
        let terminal = command.terminal.map(open_terminal).transpose();
        let (master, slave) = terminal.map_err(at(ChildStep::Terminal))?.unzip();
        let start = CommandStart {
            arena: self.arena,
            command: &command,
            joins,
            leaves: None,
            terminal: slave.as_ref(),
            streams,
            failed: Cell::new(None),
            confined: Cell::new(false),
        };
        let started = match command.built_in {
            Some((run, words)) => Some(built_in::start(&start, run, words)?),
            None => start_command(&start, self.stack)?,
        };
        match started {
            Some(pid) => Ok((pid, master)),
            None => Err(at(ChildStep::StartBody)(Errno::CANCELED)),
        }
    }
}

/// A pseudo-terminal of the body's devpts.
fn open_terminal(size: TerminalSize) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (master, slave) = terminal::open_pair(c"/dev/pts/ptmx")?;
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&master, size)?;
    Ok((master, slave))
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

/// Init reads nothing of the body but exit statuses: one of them stands for a bug that runs what the
/// body has written, to a file of which init has a mapping.
#[cfg(feature = "planted-bugs")]
mod planted {
    use attacker::SharedFile;

    /// Exit code 213.
    const RAW_STATUS: i32 = 213 << 8;

    /// As what the body has written. `None`: it has no such directory.
    pub(super) fn share() -> Option<SharedFile> {
        SharedFile::create("/tmp/attack").ok()
    }

    pub(super) fn take_over(raw_status: i32, shared: Option<&mut SharedFile>) {
        if let (RAW_STATUS, Some(shared)) = (raw_status, shared) {
            shared.trigger("init");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{InitMessage, receive};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn handle(body: Option<i32>, link: BorrowedFd<'_>) -> Result<(), StepError> {
        let mut serving = Serving {
            body,
            commands: [Place::FREE; COMMANDS_MAX],
            arena: &Arena::new(1 << 16).expect("mapped"),
            stack: &mut [],
            link,
            children: link,
            #[cfg(feature = "planted-bugs")]
            planted: None,
        };
        serving.handle_message()
    }

    fn request(is_v6: bool, port: i32) -> Result<OwnedFd, Errno> {
        let (supervisor, init) = link::pair().expect("a pair");
        let values = [7, i32::from(is_v6), port];
        let kind = message::CONNECT;
        link::send(supervisor.as_fd(), Message { kind, values }, &[]).expect("sent");
        assert!(handle(Some(1), init.as_fd()).is_ok());
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
            let result = handle(Some(1), init.as_fd());
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
        for kind in [
            0,
            message::LAUNCH,
            message::ENDED,
            message::CONNECTED,
            message::COMMAND,
            message::END,
            99,
        ] {
            link::send(supervisor.as_fd(), Message::of(kind), &[]).expect("sent");
            let refused = handle(Some(1), init.as_fd()).expect_err("refused");
            assert_eq!(refused, at(ChildStep::Wait)(Errno::BADMSG), "{kind}");
        }
    }
}
