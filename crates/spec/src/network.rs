//! What the caller says about the network: the flags after reading.

use core::net::IpAddr;
use std::path::PathBuf;

use crate::egress::EgressRule;
use crate::host_name::HostName;

/// The flags about the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkOptions {
    /// `--allow-net`, in order.
    pub allow: Vec<EgressRule>,
    /// `--publish`, in order; no host port twice but 0.
    pub publish: Vec<PublishedPort>,
    /// `--publish-file`: where the ports are told, absolute.
    pub publish_file: Option<PathBuf>,
    /// `--add-host`, in order.
    pub added_hosts: Vec<AddedHost>,
    /// `--report-denials`: attempts are reported although nothing is allowed.
    pub report_denials: bool,
    /// `--egress-capture`.
    pub capture: CaptureChoice,
}

/// `--publish HOST_PORT:BODY_PORT`. Ordered by the host's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedPort {
    /// On 127.0.0.1 of the host; 0 where the run chooses one that is free.
    pub host_port: u16,
    /// On the body's loopback; never 0.
    pub body_port: u16,
}

/// `--add-host HOST:IP`: the outside address of a name, before the host's hosts file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedHost {
    pub name: HostName,
    /// Where it is dialled, if that address may be dialled at all.
    pub address: IpAddr,
}

/// How connections of the body come to the relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CaptureChoice {
    /// By nf_tables where the kernel takes its rules, else by listeners.
    #[default]
    Auto,
    /// By nf_tables, every port; refused where the kernel does not take its rules.
    Tproxy,
    /// By listeners on single ports.
    AnyIp,
}

/// How connections of the body do come to the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// A rule of nf_tables leads every connection to one listener for each family.
    Tproxy,
    /// Listeners on every address, for each family and each port that is known.
    AnyIp,
}

/// Why a text is not a value of a flag about the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFlagError {
    /// No `:` between two ports.
    #[error("expected HOST_PORT:BODY_PORT, such as 8080:80")]
    NoPorts,
    /// A port that is no number from 1 to 65535, or has a leading zero.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// No `:` between a name and an address.
    #[error(
        "expected HOST:IP, such as api.example.com:203.0.113.7 or api.example.com:[2001:db8::7]"
    )]
    NoAddedHost,
    /// The part before the first `:` is not a host name.
    #[error("the text before the first `:` is not a host name of letters, digits, `-` and `_`")]
    Name,
    /// The part behind it is not an address.
    #[error("the text after the first `:` is not an IP address")]
    Address,
}

impl PublishedPort {
    /// Reads `HOST_PORT:BODY_PORT`.
    ///
    /// # Errors
    /// [`NetworkFlagError::NoPorts`], [`NetworkFlagError::Port`].
    pub fn parse(text: &str) -> Result<Self, NetworkFlagError> {
        let (host, body) = text.split_once(':').ok_or(NetworkFlagError::NoPorts)?;
        Ok(Self {
            host_port: match host {
                "0" => 0,
                host => port(host)?,
            },
            body_port: port(body)?,
        })
    }
}

impl std::fmt::Display for PublishedPort {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.host_port, self.body_port)
    }
}

impl AddedHost {
    /// Reads `HOST:IP`. An IPv6 address stands in brackets or bare.
    ///
    /// # Errors
    /// [`NetworkFlagError`]: the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, NetworkFlagError> {
        let (name, address) = text.split_once(':').ok_or(NetworkFlagError::NoAddedHost)?;
        let name = HostName::parse(name.as_bytes()).map_err(|_no_name| NetworkFlagError::Name)?;
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
            // One address has one form: what is IPv4 is dialled as IPv4.
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
    /// As the flag names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tproxy => "tproxy",
            Self::AnyIp => "anyip",
        }
    }
}

fn port(text: &str) -> Result<u16, NetworkFlagError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse()
        .ok()
        .filter(|_| plain)
        .ok_or(NetworkFlagError::Port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_port_is_two_plain_numbers() {
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
            (":127.0.0.1", NetworkFlagError::Name),
            ("*.example.com:127.0.0.1", NetworkFlagError::Name),
            ("127.0.0.1:127.0.0.1", NetworkFlagError::Name),
        ] {
            assert_eq!(AddedHost::parse(text), Err(error), "{text}");
        }
    }
}
