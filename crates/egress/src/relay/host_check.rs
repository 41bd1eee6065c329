//! Checks that the first bytes of a connection name its destination.

use crate::client_hello;
use crate::host::Host;
use crate::http_head;
use crate::parsed::Parsed;
use spec::denial_reason::DenialReason;
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

pub(super) const HTTP_PORT: u16 = 80;
pub(super) const HTTPS_PORT: u16 = 443;
/// Maximum number of bytes that are read before a verdict.
pub(super) const FIRST_BYTES_MAX: usize =
    if client_hello::WIRE_BYTES_MAX > http_head::HEAD_BYTES_MAX {
        client_hello::WIRE_BYTES_MAX
    } else {
        http_head::HEAD_BYTES_MAX
    };

/// The result for the bytes received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostCheck {
    /// More bytes are needed.
    Incomplete,
    /// They name the destination, or the port has no protocol that names one.
    Passed,
    Denied(DenialReason),
}

/// Checks the first bytes. `is_last`: no further bytes are expected.
pub(super) fn check_first_bytes(
    permit: &ParsePermit,
    received: &[u8],
    host: &Host,
    port: u16,
    refuse_ech: bool,
    is_last: bool,
) -> HostCheck {
    let (Host::Name(name), HTTP_PORT | HTTPS_PORT) = (host, port) else {
        return HostCheck::Passed;
    };
    #[cfg(feature = "planted-bugs")]
    confinement::planted::trigger("relay", received);
    let (check, otherwise) = if port == HTTPS_PORT {
        (
            check_hello(permit, received, name, refuse_ech),
            DenialReason::NotTls,
        )
    } else {
        (
            check_head(permit, received, name),
            DenialReason::HostMismatch,
        )
    };
    if check == HostCheck::Incomplete && (is_last || received.len() >= FIRST_BYTES_MAX) {
        return HostCheck::Denied(otherwise);
    }
    check
}

fn check_hello(
    permit: &ParsePermit,
    received: &[u8],
    name: &HostName,
    refuse_ech: bool,
) -> HostCheck {
    match client_hello::parse(permit, received) {
        Ok(Parsed::Incomplete) => HostCheck::Incomplete,
        Ok(Parsed::Complete(hello)) => match hello.server_name {
            Some(named) if named != *name => HostCheck::Denied(DenialReason::SniMismatch),
            Some(_) if hello.has_encrypted_hello && refuse_ech => {
                HostCheck::Denied(DenialReason::Ech)
            }
            Some(_) => HostCheck::Passed,
            None => HostCheck::Denied(DenialReason::NoSni),
        },
        Err(client_hello::HelloError::BadName) => HostCheck::Denied(DenialReason::SniMismatch),
        Err(_) => HostCheck::Denied(DenialReason::NotTls),
    }
}

fn check_head(permit: &ParsePermit, received: &[u8], name: &HostName) -> HostCheck {
    match http_head::parse(permit, received) {
        Ok(Parsed::Incomplete) => HostCheck::Incomplete,
        Ok(Parsed::Complete(head)) if head.host == Host::Name(name.clone()) => HostCheck::Passed,
        Ok(Parsed::Complete(_)) | Err(_) => HostCheck::Denied(DenialReason::HostMismatch),
    }
}
