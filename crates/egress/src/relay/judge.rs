//! The decision about one connection: its destination, whether that is allowed, and whether the first
//! bytes name the same host.

use std::net::IpAddr;

use crate::allow::{Allowlist, Standing};
use crate::client_hello;
use crate::http_head;
use crate::names::Names;
use spec::denial_reason::DenialReason;
use spec::host_name::HostName;

pub(super) const HTTP_PORT: u16 = 80;
pub(super) const HTTPS_PORT: u16 = 443;
/// Maximum number of bytes that are read before a verdict.
pub(super) const FIRST_BYTES_MAX: usize =
    if client_hello::WIRE_BYTES_MAX < http_head::HEAD_BYTES_MAX {
        http_head::HEAD_BYTES_MAX
    } else {
        client_hello::WIRE_BYTES_MAX
    };

/// The requested destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Name(HostName),
    Address(IpAddr),
}

impl Wanted {
    /// The destination of a dialled address.
    pub(super) fn at(address: IpAddr, names: &Names) -> Self {
        let address = address.to_canonical();
        let name = match address {
            IpAddr::V4(synthetic) => names.name_of(synthetic),
            IpAddr::V6(_) => None,
        };
        name.map_or(Self::Address(address), |name| Self::Name(name.clone()))
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Self::Name(name) => name.to_string(),
            Self::Address(address) => address.to_string(),
        }
    }

    /// The reason for a denial at `port`; `None` if allowed.
    pub(super) fn refusal(&self, port: u16, allowed: &Allowlist) -> Option<DenialReason> {
        match self {
            Self::Name(name) if allowed.allows(name, port) => None,
            Self::Name(name) if allowed.standing(name) == Standing::Absent => {
                Some(DenialReason::NameNotAllowed)
            }
            Self::Name(_) => Some(DenialReason::PortNotAllowed),
            Self::Address(address) if allowed.allows_address(*address, port) => None,
            Self::Address(address) if allowed.names_address(*address) => {
                Some(DenialReason::PortNotAllowed)
            }
            Self::Address(_) => Some(DenialReason::IpLiteral),
        }
    }
}

/// The verdict on the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// More bytes are needed.
    More,
    /// They name the requested host, or the protocol of the port names none.
    Same,
    Denied(DenialReason),
}

/// Judges the first bytes. `is_last`: no further bytes are expected.
pub(super) fn first_bytes(
    received: &[u8],
    wanted: &Wanted,
    port: u16,
    refuse_ech: bool,
    is_last: bool,
) -> Judged {
    let (Wanted::Name(name), HTTP_PORT | HTTPS_PORT) = (wanted, port) else {
        return Judged::Same;
    };
    let (judged, otherwise) = if port == HTTPS_PORT {
        (hello(received, name, refuse_ech), DenialReason::NotTls)
    } else {
        (head(received, name), DenialReason::HostMismatch)
    };
    match judged {
        Judged::More if is_last || FIRST_BYTES_MAX <= received.len() => Judged::Denied(otherwise),
        judged => judged,
    }
}

fn hello(received: &[u8], name: &HostName, refuse_ech: bool) -> Judged {
    match client_hello::parse(received) {
        Ok(client_hello::Progress::More) => Judged::More,
        Ok(client_hello::Progress::Hello(hello)) => match hello.server_name {
            Some(named) if named != *name => Judged::Denied(DenialReason::SniMismatch),
            Some(_) if hello.has_encrypted && refuse_ech => Judged::Denied(DenialReason::Ech),
            Some(_) => Judged::Same,
            None => Judged::Denied(DenialReason::NoSni),
        },
        Err(client_hello::HelloError::BadName) => Judged::Denied(DenialReason::SniMismatch),
        Err(_) => Judged::Denied(DenialReason::NotTls),
    }
}

fn head(received: &[u8], name: &HostName) -> Judged {
    match http_head::parse(received) {
        Ok(http_head::Progress::More) => Judged::More,
        Ok(http_head::Progress::Head(head)) if head.host == http_head::Host::Name(name.clone()) => {
            Judged::Same
        }
        Ok(http_head::Progress::Head(_)) | Err(_) => Judged::Denied(DenialReason::HostMismatch),
    }
}
