//! SOCKS5 requests (RFC 1928) that the relay supports: CONNECT without authentication. Pure.

use std::net::IpAddr;

use crate::host::Host;
use crate::parsed::Parsed;
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

/// The first byte of each message: version 5.
pub const VERSION: u8 = 5;
/// Maximum size of a request, in bytes: a name of 255 bytes.
pub const REQUEST_BYTES_MAX: usize = 4 + 1 + 255 + 2;
/// "No authentication", the only method.
const METHOD_NONE: u8 = 0;
const COMMAND_CONNECT: u8 = 1;

/// A request to connect (RFC 1928, section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The destination, or the bytes of an invalid name: with a NUL, a space, a slash, or numbers that
    /// programs parse differently.
    pub host: Result<Host, Vec<u8>>,
    pub port: u16,
    /// Size of the request, in bytes.
    pub bytes: usize,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// Another version, or reserved bytes that are not zero.
    #[error("not SOCKS5")]
    NotSocks,
    #[error("the client does not offer the method \"no authentication\"")]
    NoMethod,
    #[error("the command is not CONNECT")]
    Command,
    #[error("the address type is not IPv4, IPv6 or domain name")]
    AddressType,
}

impl SocksError {
    /// The reply code for a request (RFC 1928, 6).
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::NotSocks | Self::NoMethod => 1,
            Self::Command => 7,
            Self::AddressType => 8,
        }
    }
}

/// Parses the greeting, which lists the methods that the client offers. Returns its size in bytes.
///
/// # Errors
/// [`SocksError`]: no further byte can make the input acceptable.
pub fn greeting(_permit: &ParsePermit, bytes: &[u8]) -> Result<Parsed<usize>, SocksError> {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(SocksError::NotSocks);
    }
    let [_, count, rest @ ..] = bytes else {
        return Ok(Parsed::Incomplete);
    };
    let Some(methods) = rest.get(..usize::from(*count)) else {
        return Ok(Parsed::Incomplete);
    };
    if methods.contains(&METHOD_NONE) {
        Ok(Parsed::Complete(2 + methods.len()))
    } else {
        Err(SocksError::NoMethod)
    }
}

/// Parses a request.
///
/// # Errors
/// [`SocksError`]: no further byte can make the input acceptable.
pub fn request(_permit: &ParsePermit, bytes: &[u8]) -> Result<Parsed<Request>, SocksError> {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(SocksError::NotSocks);
    }
    let [_, command, reserved, kind, rest @ ..] = bytes else {
        return Ok(Parsed::Incomplete);
    };
    if *reserved != 0 {
        return Err(SocksError::NotSocks);
    }
    if *command != COMMAND_CONNECT {
        return Err(SocksError::Command);
    }
    let (host, after) = match kind {
        1 => match rest.split_first_chunk::<4>() {
            Some((octets, after)) => (Ok(Host::Address(IpAddr::from(*octets))), after),
            None => return Ok(Parsed::Incomplete),
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((octets, after)) => (Ok(Host::Address(IpAddr::from(*octets))), after),
            None => return Ok(Parsed::Incomplete),
        },
        3 => {
            let Some((length, after)) = rest.split_first() else {
                return Ok(Parsed::Incomplete);
            };
            match after.split_at_checked(usize::from(*length)) {
                Some((name, after)) => (read_name(name), after),
                None => return Ok(Parsed::Incomplete),
            }
        }
        _ => return Err(SocksError::AddressType),
    };
    let Some((port, after)) = after.split_first_chunk::<2>() else {
        return Ok(Parsed::Incomplete);
    };
    Ok(Parsed::Complete(Request {
        host,
        port: u16::from_be_bytes(*port),
        bytes: bytes.len() - after.len(),
    }))
}

/// A name, or an address in text form.
fn read_name(name: &[u8]) -> Result<Host, Vec<u8>> {
    if let Ok(name) = HostName::parse(name) {
        return Ok(Host::Name(name));
    }
    match str::from_utf8(name).map(str::parse) {
        Ok(Ok(address)) => Ok(Host::Address(address)),
        _ => Err(name.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting(bytes: &[u8]) -> Result<Parsed<usize>, SocksError> {
        super::greeting(&ParsePermit::for_trusted_text(), bytes)
    }

    fn request(bytes: &[u8]) -> Result<Parsed<Request>, SocksError> {
        super::request(&ParsePermit::for_trusted_text(), bytes)
    }

    fn named(name: &[u8]) -> Vec<u8> {
        let length = u8::try_from(name.len()).expect("short");
        [&[5, 1, 0, 3, length], name, &[1, 187]].concat()
    }

    #[test]
    fn each_address_type_is_parsed_in_partial_input() {
        let name = HostName::parse(b"a.com").expect("a name");
        let v6 = [&[5, 1, 0, 4][..], &[0; 15], &[1, 0, 80]].concat();
        for (bytes, host, port) in [
            (named(b"A.com."), Host::Name(name), 443),
            (
                vec![5, 1, 0, 1, 8, 8, 8, 8, 1, 187],
                Host::Address(IpAddr::from([8, 8, 8, 8])),
                443,
            ),
            (v6, Host::Address("::1".parse().expect("one")), 80),
            (
                named(b"8.8.8.8"),
                Host::Address(IpAddr::from([8, 8, 8, 8])),
                443,
            ),
        ] {
            let complete = Ok(Parsed::Complete(Request {
                host: Ok(host),
                port,
                bytes: bytes.len(),
            }));
            assert_eq!(request(&bytes), complete);
            let more = [bytes.as_slice(), b"more"].concat();
            assert_eq!(request(&more), complete);
            for end in 0..bytes.len() {
                assert_eq!(
                    request(&bytes[..end]),
                    Ok(Parsed::Incomplete),
                    "{end} of {bytes:?}"
                );
            }
        }
    }

    #[test]
    fn an_invalid_name_is_not_a_host() {
        for name in [
            &b"a.com\0.evil.com"[..],
            b"a.com\0",
            b"a com",
            b"a.com/",
            b"a.com:443",
            b"127.1",
            b"0x7f.0.0.1",
            b"0177.0.0.1",
            b"2130706433",
            b"",
            b"\xff",
        ] {
            let expected = Request {
                host: Err(name.to_vec()),
                port: 443,
                bytes: name.len() + 7,
            };
            let parsed = request(&named(name));
            assert_eq!(parsed, Ok(Parsed::Complete(expected)), "{name:?}");
        }
    }

    #[test]
    fn only_connect_without_authentication_is_accepted() {
        assert_eq!(greeting(&[5, 2, 2, 0]), Ok(Parsed::Complete(4)));
        assert_eq!(greeting(&[5, 2, 2]), Ok(Parsed::Incomplete));
        assert_eq!(greeting(&[5, 1, 2]), Err(SocksError::NoMethod));
        assert_eq!(greeting(&[5, 0]), Err(SocksError::NoMethod));
        assert_eq!(greeting(&[4]), Err(SocksError::NotSocks));
        for (bytes, error) in [
            (&[5, 2, 0, 1][..], SocksError::Command),
            (&[5, 3, 0, 1], SocksError::Command),
            (&[5, 1, 0, 2], SocksError::AddressType),
            (&[5, 1, 1, 1], SocksError::NotSocks),
            (&[4, 1, 0, 80], SocksError::NotSocks),
        ] {
            assert_eq!(request(bytes), Err(error), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn later_bytes_do_not_change_a_result(
            bytes: Vec<u8>, start in 0..3_usize,
        ) {
            let bytes = [&[5, 1, 0][..start], &bytes].concat();
            for end in 0..=bytes.len() {
                match request(&bytes[..end]) {
                    Ok(Parsed::Incomplete) => (),
                    result => prop_assert_eq!(&result, &request(&bytes)),
                }
                match greeting(&bytes[..end]) {
                    Ok(Parsed::Incomplete) => (),
                    result => prop_assert_eq!(&result, &greeting(&bytes)),
                }
            }
        }
    }
}
