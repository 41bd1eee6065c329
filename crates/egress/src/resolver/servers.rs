//! The name servers of `resolv.conf` (resolv.conf(5)). Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

/// The limit of the C library (`MAXNS`).
const SERVERS_MAX: usize = 3;
const PORT: u16 = 53;

/// The servers in query order; localhost if the file names none.
#[must_use]
pub fn name_servers(text: &[u8]) -> Vec<SocketAddr> {
    let mut servers = named_servers(text);
    if servers.is_empty() {
        servers.push(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)));
    }
    servers
}

/// The servers with a valid address.
#[must_use]
pub fn named_servers(text: &[u8]) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = str::from_utf8(line) else {
            continue;
        };
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        if let Some(server) = words.next().and_then(parse_server)
            && servers.len() < SERVERS_MAX
            && !servers.contains(&server)
        {
            servers.push(server);
        }
    }
    servers
}

/// Parses an address. The zone of a link-local address must be a number: interface names are not
/// resolved.
fn parse_server(text: &str) -> Option<SocketAddr> {
    if let Some((address, zone)) = text.split_once('%') {
        let IpAddr::V6(address) = address.parse().ok()? else {
            return None;
        };
        return Some(SocketAddrV6::new(address, PORT, 0, zone.parse().ok()?).into());
    }
    let address: IpAddr = text.parse().ok()?;
    Some(SocketAddr::new(address, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_servers_are_used_or_localhost() {
        for (text, servers) in [
            (&b""[..], &["127.0.0.1:53"][..]),
            (b"search a.com\n# nameserver 1.1.1.1\n;x\n", &["127.0.0.1:53"]),
            (
                b"nameserver 1.1.1.1\nnameserver bad\nnameserver\t2606:4700::1111 # x\nnameserver 1.1.1.1\n\
                  nameserver 8.8.8.8\nnameserver 9.9.9.9\n",
                &["1.1.1.1:53", "[2606:4700::1111]:53", "8.8.8.8:53"],
            ),
            (b"nameserver fe80::1%2\nnameserver fe80::1%eth0\n", &["[fe80::1%2]:53"]),
        ] {
            let shown: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
            assert_eq!(shown, servers, "{:?}", String::from_utf8_lossy(text));
        }
        // A host name is not an address, so the line is ignored.
        assert_eq!(named_servers(b"nameserver dns.example\nnameserver\n"), []);
        assert_eq!(named_servers(b"nameserver 127.0.0.1\n").len(), 1);
    }
}
