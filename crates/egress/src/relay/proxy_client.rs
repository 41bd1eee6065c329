//! Connections of the body to the compatibility proxy: the request, and the answer if it is refused.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::denials::{Attempt, Protocol};
use crate::host::Host;
use crate::http_head::HEAD_BYTES_MAX;
use crate::relay::connection::{
    Connection, FIRST_BYTES_TIMEOUT, Next, Origin, READS_PER_STEP, Read, Stage, Step, reset,
};
use crate::relay::host_check::HTTPS_PORT;
use crate::relay::proxy::{self, ClientInput, ProxyProtocol, ProxyRequest};
use crate::relay::shared::Shared;
use spec::denial_reason::DenialReason;

/// How long a client may take to read the final answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Connection {
    pub(super) fn to_proxy(near: OwnedFd, dialled: SocketAddr, now: Instant) -> Self {
        let destination = (Host::Address(dialled.ip()), dialled.port());
        let stage = Stage::ProxyRequest { is_greeted: false };
        Self::new(
            near,
            Origin::Proxy,
            destination,
            stage,
            now + FIRST_BYTES_TIMEOUT,
        )
    }

    pub(super) fn read_proxy_request(
        &mut self,
        mut is_greeted: bool,
        shared: &mut Shared,
        now: Instant,
    ) -> Next {
        let Ok(read) = self.read_more(HEAD_BYTES_MAX) else {
            return Next::Closed;
        };
        #[cfg(feature = "planted-bugs")]
        confinement::planted::trigger("relay", &self.received);
        loop {
            match proxy::parse(&shared.permit, &self.received, is_greeted) {
                ClientInput::Incomplete if read != Read::Blocked || self.is_late(now) => {
                    return Next::Reset;
                }
                ClientInput::Incomplete => {
                    return Next::Stay(Stage::ProxyRequest { is_greeted }, Step::Wait);
                }
                ClientInput::Greeting(used) => {
                    self.received.drain(..used);
                    is_greeted = true;
                    if !self.send(&proxy::SOCKS_METHOD) {
                        return Next::Reset;
                    }
                }
                ClientInput::Refused(answer) => {
                    return Next::Go(self.send_final_answer(&answer, now));
                }
                ClientInput::Request(request) => {
                    return self.start_request(request, shared, now);
                }
            }
        }
    }

    fn start_request(&mut self, request: ProxyRequest, shared: &mut Shared, now: Instant) -> Next {
        let ProxyRequest {
            protocol,
            host,
            port,
            first,
            limit,
        } = request;
        self.origin = Origin::ProxyRequest(protocol);
        self.port = port;
        self.received = first;
        self.limit = limit;
        self.host = match host {
            Ok(Host::Address(address)) => shared.names.host_at(address),
            Ok(name) => name,
            Err(bytes) => {
                let name = proxy::escape_name(&bytes);
                let reason = DenialReason::NameNotAllowed;
                return self.deny_name(protocol, name, reason, shared, now);
            }
        };
        if let Some(reason) = shared.rules.allowed.denial(&self.host, port) {
            return Next::Denied(reason);
        }
        // Treated as a transparent connection to port 443 that does not speak TLS.
        if protocol == ProxyProtocol::Http && port == HTTPS_PORT {
            return Next::Denied(DenialReason::NotTls);
        }
        if let Err(name) = shared.count_name(&self.host) {
            return self.deny_name(protocol, name, DenialReason::Limit, shared, now);
        }
        self.start_dial(shared)
    }

    /// Denies a request whose name in the report is `name`.
    fn deny_name(
        &mut self,
        protocol: ProxyProtocol,
        name: String,
        reason: DenialReason,
        shared: &mut Shared,
        now: Instant,
    ) -> Next {
        let answer = proxy::denied(protocol, &name, self.port, reason);
        let attempt = Attempt {
            protocol: Protocol::Tcp,
            host: Some(name),
            address: None,
            port: Some(self.port),
            reason,
        };
        shared.ledger.add_denial(attempt, now);
        Next::Go(self.send_final_answer(&answer, now))
    }

    /// Sends the final answer. Further input is read and discarded: closing with unread input would reset
    /// the connection before the client reads the answer.
    pub(super) fn send_final_answer(&mut self, answer: &[u8], now: Instant) -> Stage {
        let is_sent = self.send(answer)
            && matches!(
                rustix::net::shutdown(&self.near, Shutdown::Write),
                Ok(()) | Err(Errno::NOTCONN)
            );
        if !is_sent {
            reset(&self.near);
            return Stage::Closed;
        }
        self.deadline = Some(now + CLOSE_TIMEOUT);
        Stage::Closing
    }

    pub(super) fn discard_input(&mut self, shared: &mut Shared, now: Instant) -> Next {
        if self.is_late(now) {
            return Next::Closed;
        }
        for _ in 0..READS_PER_STEP {
            match rustix::io::read(&self.near, &mut *shared.buffers.scratch) {
                Ok(0) => return Next::Closed,
                Ok(_) | Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => return Next::Stay(Stage::Closing, Step::Wait),
                Err(_) => return Next::Closed,
            }
        }
        Next::Stay(Stage::Closing, Step::Again)
    }
}
