//! SOCKS5 requests (RFC 1928) that the relay supports: CONNECT without authentication. Pure, total
//! functions.

use std::net::IpAddr;

use spec::host_name::HostName;

/// The first byte of each message: version 5.
pub const VERSION: u8 = 5;
/// Maximum size of a request, in bytes: a name of 255 bytes.
pub const REQUEST_BYTES_MAX: usize = 4 + 1 + 255 + 2;
/// "No authentication", the only method.
const METHOD_NONE: u8 = 0;
const COMMAND_CONNECT: u8 = 1;

/// Result of parsing a message that may be incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<Whole> {
    /// More bytes are needed.
    More,
    /// The parsed message, and its size in bytes.
    Whole(Whole, usize),
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Name(HostName),
    Address(IpAddr),
    /// Bytes that are not a host name: with a NUL, a space, a slash, or numbers that programs parse
    /// differently.
    Unreadable(Vec<u8>),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// Another version, or reserved bytes that are not zero.
    #[error("this is not SOCKS5")]
    NotSocks,
    /// The client does not offer "no authentication".
    #[error("the client does not offer to go without authentication")]
    NoMethod,
    #[error("only connecting is possible")]
    Command,
    /// The address type is not IPv4, IPv6 or name.
    #[error("the kind of address is none of IPv4, IPv6 and name")]
    AddressKind,
}

impl SocksError {
    /// The reply code for a request (RFC 1928, 6).
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::NotSocks | Self::NoMethod => 1,
            Self::Command => 7,
            Self::AddressKind => 8,
        }
    }
}

/// Parses the greeting: the methods that the client offers.
///
/// # Errors
/// [`SocksError`]: no further byte can make the input acceptable.
pub fn greeting(bytes: &[u8]) -> Result<Part<()>, SocksError> {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(SocksError::NotSocks);
    }
    let [_, count, rest @ ..] = bytes else {
        return Ok(Part::More);
    };
    let Some(methods) = rest.get(..usize::from(*count)) else {
        return Ok(Part::More);
    };
    if methods.contains(&METHOD_NONE) {
        Ok(Part::Whole((), 2 + methods.len()))
    } else {
        Err(SocksError::NoMethod)
    }
}

/// Parses a request: the destination and its port.
///
/// # Errors
/// [`SocksError`]: no further byte can make the input acceptable.
pub fn request(bytes: &[u8]) -> Result<Part<(Target, u16)>, SocksError> {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(SocksError::NotSocks);
    }
    let [_, command, reserved, kind, rest @ ..] = bytes else {
        return Ok(Part::More);
    };
    if *reserved != 0 {
        return Err(SocksError::NotSocks);
    }
    if *command != COMMAND_CONNECT {
        return Err(SocksError::Command);
    }
    let (target, after) = match kind {
        1 => match rest.split_first_chunk::<4>() {
            Some((octets, after)) => (Target::Address(IpAddr::from(*octets)), after),
            None => return Ok(Part::More),
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((octets, after)) => (Target::Address(IpAddr::from(*octets)), after),
            None => return Ok(Part::More),
        },
        3 => {
            let Some((length, after)) = rest.split_first() else {
                return Ok(Part::More);
            };
            match after.split_at_checked(usize::from(*length)) {
                Some((name, after)) => (read_name(name), after),
                None => return Ok(Part::More),
            }
        }
        _ => return Err(SocksError::AddressKind),
    };
    let Some((port, after)) = after.split_first_chunk::<2>() else {
        return Ok(Part::More);
    };
    let used = bytes.len() - after.len();
    Ok(Part::Whole((target, u16::from_be_bytes(*port)), used))
}

/// A name, or an address in text form.
fn read_name(name: &[u8]) -> Target {
    if let Ok(name) = HostName::parse(name) {
        return Target::Name(name);
    }
    match str::from_utf8(name).map(str::parse::<IpAddr>) {
        Ok(Ok(address)) => Target::Address(address),
        _ => Target::Unreadable(name.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(name: &[u8]) -> Vec<u8> {
        let length = u8::try_from(name.len()).expect("short");
        [&[5, 1, 0, 3, length], name, &[1, 187]].concat()
    }

    #[test]
    fn the_three_kinds_of_address_are_read_whole_and_in_single_bytes() {
        let name = HostName::parse(b"a.com").expect("a name");
        let v6 = [&[5, 1, 0, 4][..], &[0; 15], &[1, 0, 80]].concat();
        for (bytes, target, port) in [
            (named(b"A.com."), Target::Name(name), 443),
            (
                vec![5, 1, 0, 1, 8, 8, 8, 8, 1, 187],
                Target::Address(IpAddr::from([8, 8, 8, 8])),
                443,
            ),
            (v6, Target::Address("::1".parse().expect("one")), 80),
            (
                named(b"8.8.8.8"),
                Target::Address(IpAddr::from([8, 8, 8, 8])),
                443,
            ),
        ] {
            let whole = Ok(Part::Whole((target, port), bytes.len()));
            assert_eq!(request(&bytes), whole);
            let more = [bytes.as_slice(), b"more"].concat();
            assert_eq!(request(&more), whole);
            for end in 0..bytes.len() {
                assert_eq!(request(&bytes[..end]), Ok(Part::More), "{end} of {bytes:?}");
            }
        }
    }

    #[test]
    fn bytes_that_no_host_name_has_are_not_read_as_one() {
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
            let read = request(&named(name));
            let unreadable = Target::Unreadable(name.to_vec());
            let bytes = name.len() + 7;
            assert_eq!(read, Ok(Part::Whole((unreadable, 443), bytes)), "{name:?}");
        }
    }

    #[test]
    fn whatever_is_not_connect_without_a_password_is_refused() {
        assert_eq!(greeting(&[5, 2, 2, 0]), Ok(Part::Whole((), 4)));
        assert_eq!(greeting(&[5, 2, 2]), Ok(Part::More));
        assert_eq!(greeting(&[5, 1, 2]), Err(SocksError::NoMethod));
        assert_eq!(greeting(&[5, 0]), Err(SocksError::NoMethod));
        assert_eq!(greeting(&[4]), Err(SocksError::NotSocks));
        for (bytes, error) in [
            (&[5, 2, 0, 1][..], SocksError::Command),
            (&[5, 3, 0, 1], SocksError::Command),
            (&[5, 1, 0, 2], SocksError::AddressKind),
            (&[5, 1, 1, 1], SocksError::NotSocks),
            (&[4, 1, 0, 80], SocksError::NotSocks),
        ] {
            assert_eq!(request(bytes), Err(error), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_no_further_byte_changes_what_is_whole(
            bytes: Vec<u8>, start in 0..3_usize,
        ) {
            let bytes = [&[5, 1, 0][..start], &bytes].concat();
            for end in 0..=bytes.len() {
                match request(&bytes[..end]) {
                    Ok(Part::More) => (),
                    whole => prop_assert_eq!(&whole, &request(&bytes)),
                }
                match greeting(&bytes[..end]) {
                    Ok(Part::More) => (),
                    whole => prop_assert_eq!(&whole, &greeting(&bytes)),
                }
            }
        }
    }
}
