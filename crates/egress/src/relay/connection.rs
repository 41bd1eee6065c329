//! One connection from accept to close: a sequence of stages, each of which can end it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use crate::denials::Protocol;
use crate::host::Host;
use crate::link::DialReply;
use crate::relay::flow::Flow;
use crate::relay::host_check::{FIRST_BYTES_MAX, HostCheck, check_first_bytes};
use crate::relay::proxy::{self, ProxyProtocol};
use crate::relay::shared::Shared;
use crate::relay::slots::{Key, Side, Token};
use crate::socket::EDGE;
use spec::body_network::QUESTION_PORT;
use spec::denial_reason::DenialReason;
use spec::egress_report::UnreachableCause;

/// How long the first bytes of a connection may take.
pub(super) const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(5);
/// A DNS connection without queries is closed after this time.
pub(super) const DNS_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of reads in one step, where the input is answered or discarded.
pub(super) const READS_PER_STEP: usize = 16;
/// Size of small buffers; the kernel uses twice as much (socket(7)).
const SMALL_BUFFER_BYTES: usize = 64 << 10;

/// What a connection needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for an event or the deadline.
    Wait,
    Again,
    Done,
}

/// How a connection arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The body dialled the destination itself.
    Dialled,
    /// The body dialled the proxy and has not sent a request yet.
    Proxy,
    /// The body has sent a request to the proxy, which is not answered yet.
    ProxyRequest(ProxyProtocol),
    /// The proxy has answered that the connection is established.
    ProxyConnected,
    /// From outside, to a published port of the body.
    Published(u16),
}

#[derive(Debug)]
pub(super) enum Stage {
    DnsQueries,
    /// The client of the proxy sends its request. `is_greeted`: the SOCKS greeting is answered.
    ProxyRequest {
        is_greeted: bool,
    },
    /// The first bytes must name the host. `far`: the connection of a client of the proxy.
    FirstBytes {
        far: Option<OwnedFd>,
    },
    /// The supervisor resolves and dials the host.
    Dial {
        id: i32,
    },
    /// Its reply, with the socket if it is connected.
    Dialled(DialReply, Option<OwnedFd>),
    /// A socket inside the namespace was requested.
    SocketRequest {
        id: i32,
        is_v6: bool,
    },
    /// The socket inside is connecting.
    ConnectInside {
        socket: OwnedFd,
        is_v6: bool,
    },
    Flow(Box<Flow>),
    /// The final answer was sent; further input is discarded.
    Closing,
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) near: OwnedFd,
    pub(super) origin: Origin,
    /// The destination.
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) stage: Stage,
    /// Bytes that were received and are not processed yet.
    pub(super) received: Vec<u8>,
    /// How many bytes may follow `received`, if limited.
    pub(super) limit: Option<u64>,
    pub(super) deadline: Option<Instant>,
    /// Whether the connection is queued for another step.
    pub(super) is_queued: bool,
    /// Whether the kernel may not grow the buffers of the sockets.
    pub(super) has_small_buffers: bool,
}

/// The transition to the next stage.
pub(super) enum Next {
    /// Stay in this stage until an event.
    Stay(Stage, Step),
    /// Enter another stage immediately.
    Go(Stage),
    Denied(DenialReason),
    /// The address must not be dialled; holds the first such address.
    Private(IpAddr),
    /// Allowed, but the destination is unreachable.
    Unreachable(UnreachableCause),
    /// Close without a reset.
    Closed,
    /// Close with a reset.
    Reset,
}

impl Connection {
    /// A connection that the body dialled itself. `None`: already denied and reset.
    pub(super) fn dialled(
        near: OwnedFd,
        dialled: SocketAddr,
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Self> {
        let host = shared.names.host_at(dialled.ip());
        let port = dialled.port();
        let (stage, timeout) = if port == QUESTION_PORT {
            (Stage::DnsQueries, DNS_IDLE_TIMEOUT)
        } else if let Some(reason) = shared.rules.allowed.denial(&host, port) {
            let attempt = host.attempt(Protocol::Tcp, Some(port), reason);
            shared.ledger.add_denial(attempt, now);
            reset(&near);
            return None;
        } else {
            (Stage::FirstBytes { far: None }, FIRST_BYTES_TIMEOUT)
        };
        let destination = (host, port);
        Some(Self::new(
            near,
            Origin::Dialled,
            destination,
            stage,
            now + timeout,
        ))
    }

    pub(super) fn new(
        near: OwnedFd,
        origin: Origin,
        (host, port): (Host, u16),
        stage: Stage,
        deadline: Instant,
    ) -> Self {
        Self {
            near,
            origin,
            host,
            port,
            stage,
            received: Vec::new(),
            limit: None,
            deadline: Some(deadline),
            is_queued: false,
            has_small_buffers: false,
        }
    }

    pub(super) fn near(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    /// When to step the connection if no event arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            // The supervisor has a timeout.
            Stage::Dial { .. } => None,
            _ => self.deadline,
        }
    }

    /// Whether all bytes that the body had sent before it ended are forwarded.
    pub(super) fn is_drained(&self) -> bool {
        match &self.stage {
            Stage::Flow(flow) => flow.is_drained(self.side_of_body()),
            Stage::Closed => true,
            _ => self.is_published(),
        }
    }

    fn side_of_body(&self) -> Side {
        if self.is_published() {
            Side::Far
        } else {
            Side::Near
        }
    }

    /// Records an event.
    pub(super) fn record_event(&mut self, side: Side, events: EventFlags) {
        // Every other stage retries its call.
        if let Stage::Flow(flow) = &mut self.stage {
            flow.record_event(side, events);
        }
    }

    /// Records the traffic, and closes. If the body's data is incomplete, the connection is reset, so
    /// that the peer does not take the data as complete.
    pub(super) fn end(self, shared: &mut Shared) {
        let (body, is_published) = (self.side_of_body(), self.is_published());
        if let Stage::Flow(flow) = self.stage {
            if flow.is_broken() || !flow.is_drained(body) {
                reset(&self.near);
                reset(flow.far());
            }
            let (sent, received) = flow.end(&mut shared.buffers);
            if !is_published {
                shared
                    .ledger
                    .add_traffic(self.host.to_string(), self.port, sent, received);
            }
        }
    }

    /// Records the denial. `address` is a denied address of the name. Returns the answer for a client of
    /// the proxy.
    fn deny(
        &self,
        reason: DenialReason,
        address: Option<IpAddr>,
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let mut attempt = self.host.attempt(Protocol::Tcp, Some(self.port), reason);
        attempt.address = attempt.address.or(address);
        shared.ledger.add_denial(attempt, now);
        let protocol = self.unanswered_protocol()?;
        Some(proxy::denied(
            protocol,
            &self.host.to_string(),
            self.port,
            reason,
        ))
    }

    /// Advances the connection as far as possible.
    pub(super) fn step(&mut self, shared: &mut Shared, now: Instant) -> Step {
        loop {
            if let Stage::Flow(flow) = &mut self.stage {
                return flow.turn(&self.near, &mut shared.buffers);
            }
            let next = match std::mem::replace(&mut self.stage, Stage::Closed) {
                Stage::DnsQueries => self.answer_dns_queries(shared, now),
                Stage::ProxyRequest { is_greeted } => {
                    self.read_proxy_request(is_greeted, shared, now)
                }
                Stage::FirstBytes { far } => self.read_first_bytes(far, shared, now),
                Stage::Dial { id } => Next::Stay(Stage::Dial { id }, Step::Wait),
                Stage::Dialled(reply, far) => self.dialled_outside(reply, far, now),
                Stage::SocketRequest { id, is_v6 } if !self.is_late(now) => {
                    Next::Stay(Stage::SocketRequest { id, is_v6 }, Step::Wait)
                }
                Stage::SocketRequest { .. } => Next::Reset,
                Stage::ConnectInside { socket, is_v6 } => {
                    self.connect_inside(socket, is_v6, shared, now)
                }
                Stage::Closing => self.discard_input(shared, now),
                Stage::Flow(_) | Stage::Closed => Next::Closed,
            };
            if let Some(step) = self.follow(next, shared, now) {
                return step;
            }
        }
    }

    /// `None`: continue with the next stage.
    fn follow(&mut self, next: Next, shared: &mut Shared, now: Instant) -> Option<Step> {
        let answer = match next {
            Next::Stay(stage, step) => {
                self.stage = stage;
                return Some(step);
            }
            Next::Go(stage) => {
                self.stage = stage;
                return None;
            }
            Next::Closed => return Some(Step::Done),
            Next::Reset => None,
            Next::Denied(reason) => self.deny(reason, None, shared, now),
            Next::Private(address) => {
                self.deny(DenialReason::ResolvesToPrivate, Some(address), shared, now)
            }
            Next::Unreachable(cause) => {
                let host = self.host.to_string();
                let answer = self
                    .unanswered_protocol()
                    .map(|protocol| proxy::unreachable(protocol, &host, self.port, cause));
                shared.ledger.add_unreachable(host, self.port, cause);
                answer
            }
        };
        match answer {
            Some(answer) => {
                self.stage = self.send_final_answer(&answer, now);
                None
            }
            None => {
                reset(&self.near);
                Some(Step::Done)
            }
        }
    }

    /// The protocol of a proxy request without an answer.
    fn unanswered_protocol(&self) -> Option<ProxyProtocol> {
        match self.origin {
            Origin::ProxyRequest(protocol) => Some(protocol),
            Origin::Dialled | Origin::Proxy | Origin::ProxyConnected | Origin::Published(_) => None,
        }
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn start_dial(&self, shared: &mut Shared) -> Next {
        let id = shared.request_dial(&self.host, self.port);
        Next::Go(Stage::Dial { id })
    }

    /// Whether it waits for the reply to this request.
    pub(super) fn awaits(&self, request: i32) -> bool {
        match self.stage {
            Stage::Dial { id } | Stage::SocketRequest { id, .. } => id == request,
            _ => false,
        }
    }

    /// Takes the reply to a dial; the caller steps the connection afterwards.
    pub(super) fn take_reply(
        &mut self,
        reply: DialReply,
        socket: Option<OwnedFd>,
        shared: &mut Shared,
        key: Key,
    ) {
        if !matches!(self.stage, Stage::Dial { .. }) {
            return;
        }
        let far = Token::Connection(key, Side::Far);
        let socket = socket.filter(|socket| shared.watch(far).add(socket.as_fd(), EDGE).is_ok());
        self.stage = Stage::Dialled(reply, socket);
    }

    /// Reads the first bytes, which name the host at some ports.
    fn read_first_bytes(
        &mut self,
        far: Option<OwnedFd>,
        shared: &mut Shared,
        now: Instant,
    ) -> Next {
        let (permit, refuse_ech) = (&shared.permit, shared.rules.refuse_ech);
        let check = |connection: &Self, is_last| {
            let Self {
                received,
                host,
                port,
                ..
            } = connection;
            check_first_bytes(permit, received, host, *port, refuse_ech, is_last)
        };
        let mut result = check(self, false);
        if result == HostCheck::Incomplete {
            let Ok(read) = self.read_more(FIRST_BYTES_MAX) else {
                return Next::Closed;
            };
            if read == Read::Ended && self.received.is_empty() {
                return Next::Closed;
            }
            result = check(self, read == Read::Ended || self.is_late(now));
        }
        match (result, far) {
            (HostCheck::Incomplete, far) => Next::Stay(Stage::FirstBytes { far }, Step::Wait),
            (HostCheck::Denied(reason), _) => Next::Denied(reason),
            (HostCheck::Passed, Some(far)) => self.start_flow(far),
            (HostCheck::Passed, None) => self.start_dial(shared),
        }
    }

    fn dialled_outside(&mut self, reply: DialReply, socket: Option<OwnedFd>, now: Instant) -> Next {
        match (reply, socket) {
            // Here, too, the limit of open files can be reached.
            (DialReply::NoDescriptor, _) | (DialReply::Connected, None) => {
                Next::Denied(DenialReason::Limit)
            }
            (DialReply::Private(address), _) => Next::Private(address),
            (DialReply::Unreachable(cause), _) => Next::Unreachable(cause),
            (DialReply::Connected, Some(far)) => {
                let Origin::ProxyRequest(protocol) = self.origin else {
                    return self.start_flow(far);
                };
                self.origin = Origin::ProxyConnected;
                if !self.send(&proxy::connected(protocol)) {
                    return Next::Reset;
                }
                if protocol == ProxyProtocol::Http {
                    return self.start_flow(far);
                }
                self.deadline = Some(now + FIRST_BYTES_TIMEOUT);
                Next::Go(Stage::FirstBytes { far: Some(far) })
            }
        }
    }

    pub(super) fn start_flow(&mut self, far: OwnedFd) -> Next {
        self.deadline = None;
        let is_set =
            sockopt::set_tcp_nodelay(&self.near, true).and_then(|()| self.limit_buffers(&far));
        if is_set.is_err() {
            return Next::Reset;
        }
        let first = std::mem::take(&mut self.received);
        Next::Go(Stage::Flow(Box::new(Flow::new(far, first, self.limit))))
    }

    /// Before data is copied, the buffers have their initial size.
    fn limit_buffers(&self, far: &OwnedFd) -> Result<(), Errno> {
        if self.has_small_buffers {
            for socket in [&self.near, far] {
                sockopt::set_socket_recv_buffer_size(socket, SMALL_BUFFER_BYTES)?;
                sockopt::set_socket_send_buffer_size(socket, SMALL_BUFFER_BYTES)?;
            }
        }
        Ok(())
    }

    /// Returns whether all bytes were sent. Only for short, expected messages.
    pub(super) fn send(&self, bytes: &[u8]) -> bool {
        bytes.is_empty()
            || rustix::net::send(&self.near, bytes, SendFlags::NOSIGNAL) == Ok(bytes.len())
    }

    /// Reads until the read would block or `bytes_max` bytes are buffered.
    pub(super) fn read_more(&mut self, bytes_max: usize) -> Result<Read, Errno> {
        let mut buffer = [0; 4_096];
        while self.received.len() < bytes_max {
            let room = buffer.len().min(bytes_max - self.received.len());
            match rustix::io::read(&self.near, &mut buffer[..room]) {
                Ok(0) => return Ok(Read::Ended),
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                Err(Errno::AGAIN) => return Ok(Read::Blocked),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Read::Full)
    }
}

/// Why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Ended,
    Blocked,
    Full,
}

/// Makes close send a reset.
pub(super) fn reset(socket: &OwnedFd) {
    // If this fails, the socket is closed normally: the connection ends in both cases.
    sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    fn pair() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        (listener.accept().expect("accepted").0.into(), client)
    }

    /// H-12: data that nobody reads.
    #[test]
    fn the_kernel_does_not_grow_small_buffers() {
        let sizes = |has_small_buffers| {
            let ((near, _body), (far, _host)) = (pair(), pair());
            let host = Host::Address(Ipv4Addr::LOCALHOST.into());
            let mut connection = Connection::new(
                near,
                Origin::Dialled,
                (host, 1),
                Stage::Closed,
                Instant::now(),
            );
            connection.has_small_buffers = has_small_buffers;
            let Next::Go(Stage::Flow(flow)) = connection.start_flow(far) else {
                panic!("it does not start");
            };
            [connection.near.as_fd(), flow.far().as_fd()].map(|socket| {
                let received = sockopt::socket_recv_buffer_size(socket).expect("a socket");
                (
                    received,
                    sockopt::socket_send_buffer_size(socket).expect("a socket"),
                )
            })
        };
        let small = 2 * SMALL_BUFFER_BYTES;
        assert_eq!(sizes(true), [(small, small); 2]);
        assert_ne!(sizes(false), sizes(true));
    }
}
