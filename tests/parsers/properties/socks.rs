//! SOCKS5 messages of clients of the compatibility proxy.

use super::{PERMIT, incremental};
use egress::host::Host;
use egress::parsed::Parsed;
use egress::socks::{self, SocksError};
use spec::host_name::HostName;

/// The first byte selects whether the rest is a greeting or a request.
pub(crate) fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    if kind & 1 == 0 {
        if let Ok(Parsed::Complete(used)) = parse(bytes, |bytes| socks::greeting(&PERMIT, bytes)) {
            assert!(bytes[2..used].contains(&0), "without authentication");
        }
        return;
    }
    if let Ok(Parsed::Complete(request)) = parse(bytes, |bytes| socks::request(&PERMIT, bytes)) {
        let used = request.bytes;
        assert!(used <= socks::REQUEST_BYTES_MAX);
        assert_eq!(bytes[used - 2..used], request.port.to_be_bytes());
        let written = &bytes[4..used - 2];
        match request.host {
            Ok(Host::Name(name)) => assert_eq!(HostName::parse(&written[1..]), Ok(name)),
            Ok(Host::Address(address)) => {
                let octets = match address {
                    std::net::IpAddr::V4(address) => address.octets().to_vec(),
                    std::net::IpAddr::V6(address) => address.octets().to_vec(),
                };
                let text = String::from_utf8_lossy(written.get(1..).unwrap_or_default());
                assert!(written == octets || text.parse().as_ref() == Ok(&address));
            }
            Err(name) => assert_eq!(name, written[1..]),
        }
    }
}

type Outcome<Message> = Result<Parsed<Message>, SocksError>;

fn parse<Message: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    parser: impl Fn(&[u8]) -> Outcome<Message>,
) -> Outcome<Message> {
    incremental(bytes, parser, |outcome| *outcome == Ok(Parsed::Incomplete))
}
