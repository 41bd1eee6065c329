//! The name servers and the search list of `resolv.conf` (resolv.conf(5)). Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use spec::host_name::HostName;

/// The limit of the C library (`MAXNS`).
const SERVERS_MAX: usize = 3;
const PORT: u16 = 53;

/// Domains in which names with few dots are looked up first.
const DOMAINS_MAX: usize = 6;
const DOTS_MAX: usize = 15;

/// The search list of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchList {
    domains: Vec<String>,
    /// Names with as many dots are looked up as they are first.
    dots: usize,
}

/// Returns the last search list that the file names.
#[must_use]
pub fn search_list(text: &[u8]) -> SearchList {
    let mut list = SearchList {
        domains: Vec::new(),
        dots: 1,
    };
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = str::from_utf8(line) else {
            continue;
        };
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("search" | "domain") => {
                list.domains = words.take(DOMAINS_MAX).map(str::to_owned).collect();
            }
            Some("options") => {
                let mut dots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                list.dots = dots.next_back().unwrap_or(list.dots).min(DOTS_MAX);
            }
            _ => (),
        }
    }
    list
}

impl SearchList {
    /// The names to look up for `host`, in order. A dot at its end makes it the only one.
    #[must_use]
    pub fn candidates(&self, host: &str) -> Vec<HostName> {
        let as_it_is = HostName::parse(host.as_bytes()).ok();
        if host.ends_with('.') {
            return as_it_is.into_iter().collect();
        }
        let below = |domain: &String| HostName::parse(format!("{host}.{domain}").as_bytes()).ok();
        let below = self.domains.iter().filter_map(below);
        let dots = host.bytes().filter(|byte| *byte == b'.').count();
        if dots >= self.dots {
            as_it_is.into_iter().chain(below).collect()
        } else {
            below.chain(as_it_is).collect()
        }
    }
}

/// Returns the servers in query order; localhost if the file names none.
#[must_use]
pub fn name_servers(text: &[u8]) -> Vec<SocketAddr> {
    let mut servers = named_servers(text);
    if servers.is_empty() {
        servers.push(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)));
    }
    servers
}

/// Returns the servers that the file names, without lines that are invalid or repeated.
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

    #[test]
    fn names_with_few_dots_are_looked_up_in_the_domains_first() {
        let candidates = |text: &str, host: &str| -> Vec<String> {
            let found = search_list(text.as_bytes()).candidates(host);
            found.iter().map(ToString::to_string).collect()
        };
        let search = "search b.com\ndomain x.com\nsearch a.com corp\noptions edns0 ndots:2\n";
        for (text, host, names) in [
            ("", "r", &["r"][..]),
            (search, "r", &["r.a.com", "r.corp", "r"]),
            (search, "r.b", &["r.b.a.com", "r.b.corp", "r.b"]),
            (search, "r.b.c", &["r.b.c", "r.b.c.a.com", "r.b.c.corp"]),
            (search, "r.", &["r"]),
            ("domain a.com", "r.b", &["r.b", "r.b.a.com"]),
            ("search .", "r", &["r"]),
            ("search a..b -x", "r", &["r"]),
            ("options ndots:99 ndots:x", "r.b", &["r.b"]),
        ] {
            assert_eq!(candidates(text, host), names, "{text} {host}");
        }
    }
}
