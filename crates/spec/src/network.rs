//! The caller's network flags after parsing.

use core::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crate::egress::{EgressRule, parse_port};
use crate::host_name::{HostName, HostNameError};

/// What the network flags of the command line request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkOptions {
    pub allow: Vec<EgressRule>,
    /// In order. Host ports other than 0 are unique.
    pub publish: Vec<PublishedPort>,
    pub publish_file: Option<PathBuf>,
    pub added_hosts: Vec<AddedHost>,
    /// `--report-denials`: report denials even if nothing is allowed.
    pub report_denials: bool,
    pub capture: CaptureChoice,
    pub learning: HostLearning,
}

/// What `runner learn` does with the hosts that the manifest of a bundle asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostLearning {
    /// The run is not learned from.
    #[default]
    Off,
    /// They are closed, and need no grant.
    Closed,
    /// `--learn-net`: every public name is allowed, and names need no grant.
    Public,
}

/// `--publish HOST_PORT:BODY_PORT`, ordered by the host's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedPort {
    /// Port on 127.0.0.1 of the host; 0: any free port.
    pub host_port: u16,
    /// Port on the body's loopback; never 0.
    pub body_port: u16,
}

/// `runner sandbox forward [[ADDRESS:]HOST_PORT:]PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardedPort {
    /// Where the host listens.
    pub address: IpAddr,
    pub ports: PublishedPort,
}

/// `--add-host HOST:IP`: the external address of a name. It overrides the host's hosts file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedHost {
    pub name: HostName,
    /// Connected to only if the address is allowed.
    pub address: IpAddr,
}

/// The requested [`Capture`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CaptureChoice {
    /// [`Capture::Tproxy`] if the kernel accepts the rules, else [`Capture::AnyIp`].
    #[default]
    Auto,
    /// The run is refused if the kernel does not accept the rules.
    Tproxy,
    AnyIp,
}

/// How connections of the body are redirected to the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// An nf_tables rule redirects connections to any port to one listener per address family.
    Tproxy,
    /// Listeners on all addresses, one per address family and known port.
    AnyIp,
}

/// Why the value of a network flag is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFlagError {
    #[error("expected HOST_PORT:BODY_PORT, such as 8080:80")]
    NoPorts,
    #[error("the port is not a number from 1 to 65535")]
    Port,
    #[error(
        "expected HOST:IP, such as api.example.com:203.0.113.7 or api.example.com:[2001:db8::7]"
    )]
    NoAddedHost,
    #[error("the text before the first `:` is not a host name: {0}")]
    Name(HostNameError),
    #[error("the text after the first `:` is not an IP address")]
    Address,
}

impl PublishedPort {
    /// Parses `HOST_PORT:BODY_PORT`.
    ///
    /// # Errors
    /// [`NetworkFlagError::NoPorts`], [`NetworkFlagError::Port`].
    pub fn parse(text: &str) -> Result<Self, NetworkFlagError> {
        let (host, body) = text.split_once(':').ok_or(NetworkFlagError::NoPorts)?;
        let port = |text| parse_port(text).ok_or(NetworkFlagError::Port);
        Ok(Self {
            host_port: if host == "0" { 0 } else { port(host)? },
            body_port: port(body)?,
        })
    }
}

impl ForwardedPort {
    /// Parses `[[ADDRESS:]HOST_PORT:]PORT`; an IPv6 address is in brackets, and no HOST_PORT before a colon is 0.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, body_port) = text.rsplit_once(':').unwrap_or((text, text));
        let (address, host_port) = match host.rsplit_once(':') {
            Some((address, host_port)) => (parse_address(address)?, host_port),
            None => (Ipv4Addr::LOCALHOST.into(), host),
        };
        Some(Self {
            address,
            ports: PublishedPort {
                host_port: match host_port {
                    "" | "0" => 0,
                    host_port => parse_port(host_port)?,
                },
                body_port: parse_port(body_port)?,
            },
        })
    }
}

fn parse_address(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    }
}

impl std::fmt::Display for PublishedPort {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.host_port, self.body_port)
    }
}

impl AddedHost {
    /// Parses `HOST:IP`. Brackets around an IPv6 address are optional.
    ///
    /// # Errors
    /// [`NetworkFlagError`]: the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, NetworkFlagError> {
        let (name, address) = text.split_once(':').ok_or(NetworkFlagError::NoAddedHost)?;
        let name = HostName::parse(name.as_bytes()).map_err(NetworkFlagError::Name)?;
        let inner = address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let parsed: IpAddr = inner
            .unwrap_or(address)
            .parse()
            .map_err(|_no_address| NetworkFlagError::Address)?;
        if inner.is_some() && parsed.is_ipv4() {
            return Err(NetworkFlagError::Address);
        }
        Ok(Self {
            name,
            // Turns an IPv4-mapped address into an IPv4 address.
            address: parsed.to_canonical(),
        })
    }
}

impl std::fmt::Display for AddedHost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.name, self.address)
    }
}

impl CaptureChoice {
    /// The value of `--egress-capture`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tproxy => "tproxy",
            Self::AnyIp => "anyip",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_port_has_a_port_and_an_address_of_the_host() {
        for (text, at, port) in [
            ("80", "127.0.0.1:80", 80),
            ("8080:80", "127.0.0.1:8080", 80),
            ("0:80", "127.0.0.1:0", 80),
            (":80", "127.0.0.1:0", 80),
            ("0.0.0.0:8080:80", "0.0.0.0:8080", 80),
            ("[::1]::65535", "[::1]:0", 65535),
        ] {
            let parsed = ForwardedPort::parse(text).expect(text);
            let found = (parsed.address, parsed.ports.host_port);
            assert_eq!(std::net::SocketAddr::from(found).to_string(), at);
            assert_eq!(parsed.ports.body_port, port, "{text}");
        }
        for text in [
            "",
            ":",
            "0",
            "65536",
            "-1",
            "+80",
            "080",
            " 80",
            "80 ",
            "http",
            "80:",
            "80:0",
            "1:2:3",
            ":1:2",
            "::1:2:3",
            "[::1:2:3",
            "[127.0.0.1]:1:2",
            "localhost:1:2",
            "65536:80",
            "00:80",
            "80/tcp",
        ] {
            assert_eq!(ForwardedPort::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_published_port_is_two_decimal_numbers() {
        let ports = PublishedPort::parse("8080:80").expect("two");
        assert_eq!((ports.host_port, ports.body_port), (8080, 80));
        assert_eq!(ports.to_string(), "8080:80");
        let chosen = PublishedPort::parse("0:80").expect("one");
        assert_eq!((chosen.host_port, chosen.body_port), (0, 80));
        for (text, error) in [
            ("", NetworkFlagError::NoPorts),
            ("8080", NetworkFlagError::NoPorts),
            (":80", NetworkFlagError::Port),
            ("80:", NetworkFlagError::Port),
            ("00:80", NetworkFlagError::Port),
            ("80:0", NetworkFlagError::Port),
            ("080:80", NetworkFlagError::Port),
            ("+80:80", NetworkFlagError::Port),
            ("65536:80", NetworkFlagError::Port),
            ("80:80:80", NetworkFlagError::Port),
            ("127.0.0.1:80", NetworkFlagError::Port),
            ("80-90:80", NetworkFlagError::Port),
        ] {
            assert_eq!(PublishedPort::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn an_added_host_is_a_name_and_an_address_of_either_family() {
        for (text, written) in [
            ("A.example.COM:93.184.216.34", "a.example.com:93.184.216.34"),
            ("a:[2001:DB8::1]", "a:2001:db8::1"),
            ("a:2001:db8::1", "a:2001:db8::1"),
            ("a:::1", "a:::1"),
            ("a:::ffff:10.1.2.3", "a:10.1.2.3"),
        ] {
            assert_eq!(AddedHost::parse(text).expect(text).to_string(), written);
        }
        for (text, error) in [
            ("", NetworkFlagError::NoAddedHost),
            ("a.example.com", NetworkFlagError::NoAddedHost),
            ("a.example.com:", NetworkFlagError::Address),
            ("a.example.com:b.example.com", NetworkFlagError::Address),
            ("a.example.com:127.1", NetworkFlagError::Address),
            ("a.example.com:[127.0.0.1]", NetworkFlagError::Address),
            ("a.example.com:[::1", NetworkFlagError::Address),
            ("a.example.com:fe80::1%eth0", NetworkFlagError::Address),
            (
                ":127.0.0.1",
                NetworkFlagError::Name(HostNameError::EmptyLabel),
            ),
            (
                "*.example.com:127.0.0.1",
                NetworkFlagError::Name(HostNameError::Character),
            ),
            (
                "127.0.0.1:127.0.0.1",
                NetworkFlagError::Name(HostNameError::Numeric),
            ),
        ] {
            assert_eq!(AddedHost::parse(text), Err(error), "{text}");
        }
    }
}
