//! Looks names up without the C library, whose look-up opens files: the client reads them before it
//! forks, the fetcher asks the name servers.

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use egress::resolver::servers::{SearchList, name_servers, search_list};
use egress::resolver::{hosts, look_up};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getsockname, socket_with};
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::{Error, Timeout};

use crate::http::tcp::deadline;
use crate::http::url::{bare_host, port};

const ADDRESSES_MAX: usize = 16;
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The host's settings of names.
#[derive(Debug, Clone)]
pub(super) struct NameSettings {
    hosts: Vec<u8>,
    servers: Vec<SocketAddr>,
    search: SearchList,
}

impl NameSettings {
    /// Reads the files of the host. A file that cannot be read counts as empty, as for the C library.
    pub(super) fn of_host() -> Self {
        let resolv_conf = read("/etc/resolv.conf");
        Self {
            hosts: read("/etc/hosts"),
            servers: name_servers(&resolv_conf),
            search: search_list(&resolv_conf),
        }
    }

    #[cfg(test)]
    pub(super) fn of_server(server: SocketAddr, hosts: &[u8], resolv_conf: &[u8]) -> Self {
        Self {
            hosts: hosts.to_vec(),
            servers: vec![server],
            search: search_list(resolv_conf),
        }
    }
}

/// Looks names up as these settings say.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) settings: NameSettings,
    pub(super) permit: ParsePermit,
}

impl Names {
    fn look_up(&self, host: &str, until: Option<Instant>) -> Result<Vec<IpAddr>, Error> {
        let Self { settings, permit } = self;
        let name = HostName::parse(host.as_bytes()).map_err(|_invalid| Error::HostNotFound)?;
        let found = hosts::look_up(&settings.hosts, &name);
        if !found.is_empty() {
            return Ok(found);
        }
        for name in settings.search.candidates(host) {
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Error::Timeout(Timeout::Resolve));
            }
            let found = look_up(permit, name, &settings.servers, ids()?, until).map_err(io)?;
            match found {
                Some(found) if found.is_empty() => (),
                Some(found) => return Ok(found),
                // No server answers, about other names neither.
                None => break,
            }
        }
        Err(match until {
            Some(until) if until <= Instant::now() => Error::Timeout(Timeout::Resolve),
            _ => Error::HostNotFound,
        })
    }
}

fn read(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path).map(|file| file.take(FILE_BYTES_MAX));
    // What was read before an error counts, as for the C library.
    let _result = file.and_then(|mut file| file.read_to_end(&mut bytes));
    bytes
}

/// Unpredictable ids for the two queries of a look-up.
fn ids() -> Result<[u16; 2], Error> {
    let mut bytes = [0; 4];
    let flags = rustix::rand::GetRandomFlags::empty();
    let count = rustix::rand::getrandom(&mut bytes, flags).map_err(io)?;
    if count < bytes.len() {
        return Err(io(Errno::IO));
    }
    let [a, b, c, d] = bytes;
    Ok([u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])])
}

fn io(errno: Errno) -> Error {
    Error::Io(errno.into())
}

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let (host, port) = (bare_host(uri), port(uri));
        let found = match host.parse::<IpAddr>() {
            Ok(ip) => vec![ip],
            Err(_) => {
                let mut found = self.look_up(host, deadline(timeout))?;
                found.sort_by_key(|ip| Preference::of(*ip, source_towards(*ip)));
                found
            }
        };
        let mut result = self.empty();
        for ip in found.into_iter().take(ADDRESSES_MAX) {
            result.push(SocketAddr::new(ip, port));
        }
        if result.is_empty() {
            return Err(Error::HostNotFound);
        }
        Ok(result)
    }
}

/// The order in which addresses are tried: the main rules of RFC 6724, 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    /// IPv6 with a source address of the same kind.
    V6,
    V4,
    /// IPv6 with a source of another kind: a unique local address does not lead outside.
    V6Elsewhere,
    NoRoute,
}

impl Preference {
    fn of(to: IpAddr, source: Option<IpAddr>) -> Self {
        match (to, source) {
            (_, None) => Self::NoRoute,
            (IpAddr::V6(to), Some(IpAddr::V6(source))) if Scope::of(to) == Scope::of(source) => {
                Self::V6
            }
            (IpAddr::V6(_), _) => Self::V6Elsewhere,
            (IpAddr::V4(_), _) => Self::V4,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Scope {
    Loopback,
    Link,
    UniqueLocal,
    Global,
}

impl Scope {
    fn of(ip: Ipv6Addr) -> Self {
        if ip.is_loopback() {
            Self::Loopback
        } else if ip.is_unicast_link_local() {
            Self::Link
        } else if ip.is_unique_local() {
            Self::UniqueLocal
        } else {
            Self::Global
        }
    }
}

/// The source address that the kernel takes towards `to`; `None` without a route. Sends nothing.
fn source_towards(to: IpAddr) -> Option<IpAddr> {
    let family = match to {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    // Any port: connect(2) of a datagram socket only looks the route up.
    connect(&socket, &SocketAddr::new(to, 443)).ok()?;
    let source = SocketAddr::try_from(getsockname(&socket).ok()?).ok()?;
    Some(source.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_a_route_come_first_and_ipv6_before_ipv4() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let order = |to: &str, source: Option<&str>| Preference::of(ip(to), source.map(ip));
        let v6 = order("2606:2800::1", Some("2606:2800::2"));
        let v4 = order("93.184.216.34", Some("10.0.0.2"));
        let local = order("2606:2800::1", Some("fd00::2"));
        let none = order("2606:2800::1", None);
        assert!(v6 < v4 && v4 < local && local < none);
        assert_eq!(order("::1", Some("::1")), v6);
        assert_eq!(order("fd00::1", Some("fd00::2")), v6);
        assert_eq!(order("93.184.216.34", None), none);
        assert_eq!(source_towards(ip("127.0.0.1")), Some(ip("127.0.0.1")));
    }
}
