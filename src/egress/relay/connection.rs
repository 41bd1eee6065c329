//! One connection of the body's, from its first packet to its last.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::egress::client_hello;
use crate::egress::denials::{Attempt, Protocol, Reason};
use crate::egress::dns::QUERY_BYTES_MAX;
use crate::egress::http_head;
use crate::egress::names::Names;
use crate::egress::relay::flow::{Direction, Progress};
use crate::egress::relay::lookup::{Found, Lookup};
use crate::egress::relay::questions::Pace;
use crate::egress::relay::{DIAL_PATIENCE, FIRST_BYTES_PATIENCE, Ledger, Settings};
use crate::egress::resolver::hosts;
use crate::spec::host_name::HostName;

/// What a connection may look at and write into while it is stepped.
pub(super) struct Look<'relay> {
    pub(super) settings: &'relay Settings,
    pub(super) names: &'relay mut Names,
    pub(super) ledger: &'relay mut Ledger,
    pub(super) pace: &'relay mut Pace,
}

/// What is to be done about a connection after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stepped {
    /// Wait for an event or the deadline.
    Waits,
    /// Step again soon.
    Again,
    /// It is over.
    Over,
}

/// Whom the body wants.
#[derive(Debug, Clone)]
enum Wanted {
    Name(HostName),
    Address(IpAddr),
}

#[derive(Debug)]
enum Stage {
    /// Questions for names, over a connection.
    Questions { received: Vec<u8> },
    /// The first bytes must name the host.
    First { received: Vec<u8> },
    /// The name is looked up.
    LookUp { received: Vec<u8>, lookup: Lookup },
    /// An address is dialled; the rest are tried after it.
    Dial {
        received: Vec<u8>,
        upstream: OwnedFd,
        rest: Vec<IpAddr>,
    },
    /// Bytes flow.
    Flow {
        upstream: OwnedFd,
        out: Direction,
        back: Direction,
        ended: [bool; 2],
    },
    /// Closed with a reset.
    Denied,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    body: OwnedFd,
    dialled: SocketAddr,
    wanted: Wanted,
    stage: Stage,
    deadline: Option<Instant>,
}

const DNS_PORT: u16 = 53;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// A connection for questions that nobody asks is closed after this.
const QUESTIONS_PATIENCE: Duration = Duration::from_secs(10);

impl Connection {
    /// Judges by destination. `None`: denied already, and reset.
    pub(super) fn begin(
        body: OwnedFd,
        dialled: SocketAddr,
        look: Look<'_>,
        now: Instant,
    ) -> Option<Self> {
        let port = dialled.port();
        let address = canonical(dialled.ip());
        if port == DNS_PORT {
            return Some(Self {
                body,
                dialled,
                wanted: Wanted::Address(address),
                stage: Stage::Questions {
                    received: Vec::new(),
                },
                deadline: Some(now + QUESTIONS_PATIENCE),
            });
        }
        let name = match address {
            IpAddr::V4(synthetic) => look.names.name_of(synthetic).cloned(),
            IpAddr::V6(_) => None,
        };
        let allowed = &look.settings.allowed;
        let (wanted, refused) = match name {
            Some(name) if allowed.allows(&name, port) => (Wanted::Name(name), None),
            Some(name) => (Wanted::Name(name), Some(Reason::PortNotAllowed)),
            None if allowed.allows_address(address, port) => (Wanted::Address(address), None),
            None if allowed.names_address(address) => {
                (Wanted::Address(address), Some(Reason::PortNotAllowed))
            }
            None => (Wanted::Address(address), Some(Reason::IpLiteral)),
        };
        let connection = Self {
            body,
            dialled,
            wanted,
            stage: Stage::First {
                received: Vec::new(),
            },
            deadline: Some(now + FIRST_BYTES_PATIENCE),
        };
        match refused {
            Some(reason) => {
                connection.deny(look.ledger, reason, now);
                None
            }
            None => Some(connection),
        }
    }

    pub(super) fn body(&self) -> BorrowedFd<'_> {
        self.body.as_fd()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::LookUp { lookup, .. } => Some(lookup.deadline()),
            _ => self.deadline,
        }
    }

    /// Takes note of what flowed; what is not over is closed.
    pub(super) fn end(self, ledger: &mut Ledger, _now: Instant) {
        if let Stage::Flow { out, back, .. } = &self.stage {
            ledger.traffic(&self.host(), out.bytes, back.bytes);
        }
    }

    fn host(&self) -> String {
        match &self.wanted {
            Wanted::Name(name) => name.to_string(),
            Wanted::Address(address) => address.to_string(),
        }
    }

    fn deny(&self, ledger: &mut Ledger, reason: Reason, now: Instant) {
        let (host, address) = match &self.wanted {
            Wanted::Name(name) => (Some(name.to_string()), None),
            Wanted::Address(address) => (None, Some(*address)),
        };
        let attempt = Attempt {
            protocol: Protocol::Tcp,
            host,
            address,
            port: Some(self.dialled.port()),
            reason,
        };
        ledger.deny(attempt, now);
        reset(&self.body);
    }

    /// Goes as far as it can. `watch` adds a socket to the event loop.
    pub(super) fn step(
        &mut self,
        mut look: Look<'_>,
        scratch: &mut [u8],
        ids: [u16; 2],
        now: Instant,
        watch: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Stepped {
        loop {
            let stage = std::mem::replace(&mut self.stage, Stage::Denied);
            let next = match stage {
                Stage::Questions { received } => self.questions(received, &mut look, now),
                Stage::First { received } => self.first(received, &look, ids, now, watch),
                Stage::LookUp { received, lookup } => {
                    self.look_up(received, lookup, &look, now, watch)
                }
                Stage::Dial {
                    received,
                    upstream,
                    rest,
                } => self.dial(received, upstream, rest, now, watch),
                Stage::Flow {
                    upstream,
                    out,
                    back,
                    ended,
                } => self.flow(upstream, out, back, ended, scratch),
                Stage::Denied => return Stepped::Over,
            };
            match next {
                Next::Stay(stage, stepped) => {
                    self.stage = stage;
                    return stepped;
                }
                Next::Go(stage) => self.stage = stage,
                Next::Denied(reason) => {
                    self.deny(look.ledger, reason, now);
                    return Stepped::Over;
                }
                Next::Unreachable => {
                    look.ledger.unreachable(self.host(), self.dialled.port());
                    reset(&self.body);
                    return Stepped::Over;
                }
                Next::Closed => return Stepped::Over,
            }
        }
    }

    /// Messages with their length in two bytes before each (RFC 7766).
    fn questions(&mut self, mut received: Vec<u8>, look: &mut Look<'_>, now: Instant) -> Next {
        let ended = match self.read_more(&mut received, QUERY_BYTES_MAX + 2) {
            Ok(ended) => ended,
            Err(_) => return Next::Closed,
        };
        while let Some((length, rest)) = received.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            if QUERY_BYTES_MAX < length {
                reset(&self.body);
                return Next::Closed;
            }
            let Some(message) = rest.get(..length) else {
                break;
            };
            if let Some(answer) = look.answer(message, now) {
                let length = u16::try_from(answer.len()).unwrap_or(0);
                let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
                // Answers are short and the body asked for them: a full buffer is its own doing.
                let sent = rustix::net::send(&self.body, &framed, SendFlags::NOSIGNAL);
                if sent != Ok(framed.len()) {
                    reset(&self.body);
                    return Next::Closed;
                }
            }
            received.drain(..2 + length);
            self.deadline = Some(now + QUESTIONS_PATIENCE);
        }
        if ended || self.is_late(now) {
            return Next::Closed;
        }
        Next::Stay(Stage::Questions { received }, Stepped::Waits)
    }

    /// Reads until it would block or `bytes_max` are there; whether the body has closed its half.
    fn read_more(&self, received: &mut Vec<u8>, bytes_max: usize) -> Result<bool, Errno> {
        let mut buffer = [0; 4_096];
        while received.len() < bytes_max {
            let room = buffer.len().min(bytes_max - received.len());
            match rustix::io::read(&self.body, &mut buffer[..room]) {
                Ok(0) => return Ok(true),
                Ok(read) => received.extend_from_slice(&buffer[..read]),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The bytes that say to whom the body speaks, where the port is one where they do.
    fn first(
        &mut self,
        mut received: Vec<u8>,
        look: &Look<'_>,
        ids: [u16; 2],
        now: Instant,
        watch: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Next {
        let Wanted::Name(name) = &self.wanted else {
            return self.begin_dial(received, look, Vec::new(), now, watch);
        };
        let bytes_max = client_hello::WIRE_BYTES_MAX.max(http_head::HEAD_BYTES_MAX);
        let judged = match self.dialled.port() {
            HTTPS_PORT | HTTP_PORT => {
                let Ok(ended) = self.read_more(&mut received, bytes_max) else {
                    return Next::Closed;
                };
                let judged = if self.dialled.port() == HTTPS_PORT {
                    judge_hello(&received, name, look.settings.refuse_ech)
                } else {
                    judge_head(&received, name)
                };
                match judged {
                    Judged::More if ended && received.is_empty() => return Next::Closed,
                    Judged::More if ended || self.is_late(now) => {
                        Judged::Denied(if self.dialled.port() == HTTPS_PORT {
                            Reason::NotTls
                        } else {
                            Reason::HostMismatch
                        })
                    }
                    judged => judged,
                }
            }
            _ => Judged::Same,
        };
        match judged {
            Judged::More => Next::Stay(Stage::First { received }, Stepped::Waits),
            Judged::Denied(reason) => Next::Denied(reason),
            Judged::Same => {
                let name = name.clone();
                self.deadline = Some(now + DIAL_PATIENCE);
                let known = hosts::look_up(&look.settings.hosts, &name);
                if !known.is_empty() {
                    return self.begin_dial(received, look, known, now, watch);
                }
                match Lookup::begin(name, &look.settings.servers, ids, now) {
                    Ok(lookup) if watch(lookup.socket().as_fd()).is_ok() => {
                        Next::Go(Stage::LookUp { received, lookup })
                    }
                    _ => Next::Unreachable,
                }
            }
        }
    }

    fn look_up(
        &mut self,
        received: Vec<u8>,
        mut lookup: Lookup,
        look: &Look<'_>,
        now: Instant,
        watch: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Next {
        if self.is_late(now) {
            return Next::Unreachable;
        }
        match lookup.turn(&look.settings.servers, now) {
            Ok((Found::Waits, renewed)) => {
                if renewed && watch(lookup.socket().as_fd()).is_err() {
                    return Next::Unreachable;
                }
                Next::Stay(Stage::LookUp { received, lookup }, Stepped::Waits)
            }
            Ok((Found::Addresses(addresses), _)) if addresses.is_empty() => Next::Unreachable,
            Ok((Found::Addresses(addresses), _)) => {
                self.begin_dial(received, look, addresses, now, watch)
            }
            Ok((Found::Nobody, _)) | Err(_) => Next::Unreachable,
        }
    }

    /// Throws out every address that is not to be dialled, and dials the first that is left.
    fn begin_dial(
        &mut self,
        received: Vec<u8>,
        look: &Look<'_>,
        addresses: Vec<IpAddr>,
        now: Instant,
        watch: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Next {
        let addresses = match &self.wanted {
            Wanted::Name(_) => addresses,
            Wanted::Address(address) => vec![*address],
        };
        let mut rest: Vec<IpAddr> = addresses
            .into_iter()
            .filter(|address| look.settings.is_dialable(*address))
            .collect();
        if rest.is_empty() {
            return Next::Denied(Reason::ResolvesToPrivate);
        }
        self.deadline = Some(now + DIAL_PATIENCE);
        rest.reverse();
        self.dial_next(received, rest, watch)
    }

    fn dial_next(
        &self,
        received: Vec<u8>,
        mut rest: Vec<IpAddr>,
        watch: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Next {
        while let Some(address) = rest.pop() {
            let Ok(upstream) = connect(SocketAddr::new(address, self.dialled.port())) else {
                continue;
            };
            if watch(upstream.as_fd()).is_err() {
                return Next::Unreachable;
            }
            return Next::Stay(
                Stage::Dial {
                    received,
                    upstream,
                    rest,
                },
                Stepped::Waits,
            );
        }
        Next::Unreachable
    }

    fn dial(
        &mut self,
        received: Vec<u8>,
        upstream: OwnedFd,
        rest: Vec<IpAddr>,
        now: Instant,
        watch: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Next {
        if self.is_late(now) {
            return Next::Unreachable;
        }
        match rustix::net::sockopt::socket_error(&upstream) {
            Ok(Ok(())) => (),
            Ok(Err(_)) | Err(_) => return self.dial_next(received, rest, watch),
        }
        match rustix::net::getpeername(&upstream) {
            Ok(Some(_)) => (),
            // Not yet.
            _ => {
                let stage = Stage::Dial {
                    received,
                    upstream,
                    rest,
                };
                return Next::Stay(stage, Stepped::Waits);
            }
        }
        self.deadline = None;
        Next::Go(Stage::Flow {
            upstream,
            out: Direction::with(received),
            back: Direction::default(),
            ended: [false, false],
        })
    }

    fn flow(
        &mut self,
        upstream: OwnedFd,
        mut out: Direction,
        mut back: Direction,
        mut ended: [bool; 2],
        scratch: &mut [u8],
    ) -> Next {
        let mut again = false;
        let directions = [
            (&mut out, &self.body, &upstream),
            (&mut back, &upstream, &self.body),
        ];
        let mut broken = false;
        for (index, (direction, source, sink)) in directions.into_iter().enumerate() {
            if ended[index] {
                continue;
            }
            match direction.pump(source, sink, scratch) {
                Ok(Progress::Waits) => (),
                Ok(Progress::Again) => again = true,
                Ok(Progress::Ended) => ended[index] = true,
                Err(_) => broken = true,
            }
        }
        if broken {
            // What broke one side is told the other one, as it would see it without us.
            reset(&self.body);
            reset(&upstream);
        }
        let over = broken || ended == [true, true];
        let stage = Stage::Flow {
            upstream,
            out,
            back,
            ended,
        };
        let stepped = match (over, again) {
            (true, _) => Stepped::Over,
            (false, true) => Stepped::Again,
            (false, false) => Stepped::Waits,
        };
        Next::Stay(stage, stepped)
    }
}

enum Next {
    /// This stage, until something happens.
    Stay(Stage, Stepped),
    /// Another stage, at once.
    Go(Stage),
    Denied(Reason),
    /// Allowed, and nobody answers outside.
    Unreachable,
    Closed,
}

enum Judged {
    More,
    Same,
    Denied(Reason),
}

fn judge_hello(received: &[u8], name: &HostName, refuses_encrypted: bool) -> Judged {
    match client_hello::parse(received) {
        Ok(client_hello::Progress::More) => Judged::More,
        Ok(client_hello::Progress::Hello(hello)) => match hello.server_name {
            Some(_) if hello.has_encrypted && refuses_encrypted => {
                Judged::Denied(Reason::SniMismatch)
            }
            Some(named) if named == *name => Judged::Same,
            Some(_) => Judged::Denied(Reason::SniMismatch),
            None => Judged::Denied(Reason::NoSni),
        },
        Err(client_hello::HelloError::BadName) => Judged::Denied(Reason::SniMismatch),
        Err(_) => Judged::Denied(Reason::NotTls),
    }
}

fn judge_head(received: &[u8], name: &HostName) -> Judged {
    match http_head::parse(received) {
        Ok(http_head::Progress::More) => Judged::More,
        Ok(http_head::Progress::Head(http_head::Head {
            host: http_head::Host::Name(named),
            ..
        })) if named == *name => Judged::Same,
        Ok(http_head::Progress::Head(_)) | Err(_) => Judged::Denied(Reason::HostMismatch),
    }
}

/// An IPv4 address that is written as IPv6 is that IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Closing sends a reset from now on.
pub(super) fn reset(socket: &OwnedFd) {
    // Where it fails an ordinary close is left: the connection is over in either way.
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap_or_default();
}

fn connect(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}
