//! What a client says to the SOCKS5 half of the compatibility proxy.

use super::incremental;
use egress::socks::{self, Part, SocksError, Target};
use spec::host_name::HostName;

/// The first byte says whether the rest is a greeting or a request.
pub(crate) fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    if kind & 1 == 0 {
        if let Ok(Part::Whole((), used)) = whole(bytes, socks::greeting) {
            assert!(bytes[2..used].contains(&0), "without authentication");
        }
        return;
    }
    if let Ok(Part::Whole((target, port), used)) = whole(bytes, socks::request) {
        assert!(used <= socks::REQUEST_BYTES_MAX);
        assert_eq!(bytes[used - 2..used], port.to_be_bytes());
        let written = &bytes[4..used - 2];
        match target {
            Target::Name(name) => assert_eq!(HostName::parse(&written[1..]), Ok(name)),
            Target::Address(address) => {
                let octets = match address {
                    std::net::IpAddr::V4(address) => address.octets().to_vec(),
                    std::net::IpAddr::V6(address) => address.octets().to_vec(),
                };
                let text = String::from_utf8_lossy(written.get(1..).unwrap_or_default());
                assert!(written == octets || text.parse().as_ref() == Ok(&address));
            }
            Target::Unreadable(name) => assert_eq!(name, written[1..]),
        }
    }
}

type Read<Whole> = Result<Part<Whole>, SocksError>;

fn whole<Whole: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Read<Whole>,
) -> Read<Whole> {
    incremental(bytes, read, |verdict| *verdict == Ok(Part::More))
}
