//! An entry of an egress allowlist: `host`, `host:port`, `*.host`, or an IP address.
//!
//! Names have one canonical form, [`HostName`], which checks, resolver and relay share. Numbers that C
//! libraries accept as addresses (`127.1`, `0x7f.1`, `0177.0.0.1`) are refused.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

use crate::host_name::{HostName, HostNameError, is_numeric};

/// `host`, `host:port`, `*.host` (one or more labels, not the host itself), or an IP address. No
/// URL, no range, no bare `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Rule", with = "String", extend("maxLength" = 262, "pattern" = r"^(?:(?:\*\.(?=[^:]*\.))?(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*(?!(?:[0-9]+|0[xX][0-9A-Fa-f]*)(?::|$))[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|(?!\[?::[fF]{4}:)(?:\[(?=[^\]]*:)[0-9A-Fa-f:.]{2,45}\](?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]{2,45}))$")))]
#[serde(try_from = "String")]
pub struct EgressRule {
    pub host: EgressHost,
    /// TCP port; `None`: every port.
    pub port: Option<u16>,
}

/// The host of an egress rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EgressHost {
    Name(HostName),
    /// All subdomains of this name, without the name itself.
    Below(HostName),
    Address(IpAddr),
}

/// Why a text is not an entry of an allowlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    #[error("the entry is empty")]
    Empty,
    /// `http://host`, `host/path`, `user@host`.
    #[error("this is a URL or a part of one, expected a host")]
    Url,
    /// `10.0.0.0/8`.
    #[error("a range of addresses is not accepted")]
    Range,
    /// `*`.
    #[error("`*` would allow every host")]
    Everything,
    /// `*.com`, `a.*.b`, `*host`.
    #[error("`*` is allowed only as the first label, before at least two others")]
    Wildcard,
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// `127.1`, `0x7f.1`, `0177.0.0.1`, `2130706433`.
    #[error("programs read this form of an address in different ways")]
    AmbiguousAddress,
    #[error("this is an IPv4 address written as IPv6")]
    MappedAddress,
    /// `fe80::1%eth0`, `[::1`.
    #[error("this is not an IPv6 address; a zone is refused, and a port needs brackets")]
    Ipv6,
    #[error("the name ends in a dot")]
    TrailingDot,
    #[error("this is not a host name: {0}")]
    Name(HostNameError),
    #[error("the name is not ASCII; write its `xn--` form")]
    NotAscii,
}

impl EgressRule {
    /// Parses an entry.
    ///
    /// # Errors
    /// [`EgressError`]: the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, EgressError> {
        if text.is_empty() {
            return Err(EgressError::Empty);
        }
        if !text.is_ascii() {
            return Err(EgressError::NotAscii);
        }
        if text == "*" || text.starts_with("*:") {
            return Err(EgressError::Everything);
        }
        refuse_url(text)?;
        if text.starts_with('[') || text.matches(':').count() > 1 {
            return Self::parse_ipv6(text);
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(parse_port(port).ok_or(EgressError::Port)?)),
            None => (text, None),
        };
        Ok(Self {
            host: parse_host(host)?,
            port,
        })
    }

    fn parse_ipv6(text: &str) -> Result<Self, EgressError> {
        let (address, port) = match text.strip_prefix('[') {
            Some(inner) => {
                let (address, rest) = inner.split_once(']').ok_or(EgressError::Ipv6)?;
                let port = match rest.strip_prefix(':') {
                    Some(port) => Some(parse_port(port).ok_or(EgressError::Port)?),
                    None if rest.is_empty() => None,
                    None => return Err(EgressError::Ipv6),
                };
                (address, port)
            }
            None => (text, None),
        };
        let address: Ipv6Addr = address.parse().map_err(|_invalid| EgressError::Ipv6)?;
        if address.to_ipv4_mapped().is_some() {
            return Err(EgressError::MappedAddress);
        }
        Ok(Self {
            host: EgressHost::Address(IpAddr::V6(address)),
            port,
        })
    }
}

impl EgressHost {
    /// Whether this host includes all of `other`. A name and an address never match: an entry allows
    /// a name, not its addresses.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(parent), Self::Name(name)) => name.is_below(parent),
            (Self::Below(parent), Self::Below(name)) => name == parent || name.is_below(parent),
            _ => self == other,
        }
    }
}

impl EgressRule {
    /// Returns what both rules allow: the narrower name and the narrower port; `None`: nothing.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let port = match (self.port, other.port) {
            (Some(left), Some(right)) if left != right => return None,
            (left, right) => left.or(right),
        };
        let host = match (self.host.covers(&other.host), other.host.covers(&self.host)) {
            (true, _) => other.host.clone(),
            (false, true) => self.host.clone(),
            (false, false) => return None,
        };
        Some(Self { host, port })
    }

    /// Whether the rule allows `name` at any port.
    #[must_use]
    pub fn names(&self, name: &HostName) -> bool {
        match &self.host {
            EgressHost::Name(allowed) => allowed == name,
            EgressHost::Below(parent) => name.is_below(parent),
            EgressHost::Address(_) => false,
        }
    }

    /// Whether this rule allows everything that `other` allows.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.intersection(other).as_ref() == Some(other)
    }
}

/// Suggests a valid entry for an invalid text: the host of a URL, or the name without its last dot.
#[must_use]
pub fn suggest(text: &str) -> Option<EgressRule> {
    let text = text.trim();
    if EgressRule::parse(text) == Err(EgressError::Range) {
        return None;
    }
    let text = text.split_once("://").map_or(text, |(_scheme, rest)| rest);
    let end = text.find(['/', '?', '#']).unwrap_or(text.len());
    let text = &text[..end];
    let text = text.rsplit_once('@').map_or(text, |(_user, host)| host);
    let text = text.strip_suffix(['.', ':']).unwrap_or(text);
    EgressRule::parse(text).ok()
}

/// Returns the intersection of two lists, in the order of the first, without redundant rules.
#[must_use]
pub fn intersect(left: &[EgressRule], right: &[EgressRule]) -> Vec<EgressRule> {
    intersect_lists(left, right, EgressRule::intersection)
}

/// Intersects two lists of sets. Sets inside other sets are left out.
pub(crate) fn intersect_lists<T: PartialEq>(
    left: &[T],
    right: &[T],
    intersection: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    let covers = |outer: &T, inner: &T| intersection(outer, inner).as_ref() == Some(inner);
    let mut both: Vec<T> = Vec::new();
    for item in left {
        for common in right.iter().filter_map(|other| intersection(item, other)) {
            if both.iter().any(|known| covers(known, &common)) {
                continue;
            }
            both.retain(|known| !covers(&common, known));
            both.push(common);
        }
    }
    both
}

/// Writes the form that [`EgressRule::parse`] reads.
impl std::fmt::Display for EgressRule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            EgressHost::Name(name) => write!(formatter, "{name}")?,
            EgressHost::Below(name) => write!(formatter, "*.{name}")?,
            EgressHost::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]")?,
            EgressHost::Address(address) => write!(formatter, "{address}")?,
        }
        match self.port {
            Some(port) => write!(formatter, ":{port}"),
            None => Ok(()),
        }
    }
}

fn refuse_url(text: &str) -> Result<(), EgressError> {
    if let Some((address, bits)) = text.split_once('/')
        && !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && address.parse::<IpAddr>().is_ok()
    {
        return Err(EgressError::Range);
    }
    if text.contains(['/', '@', '?', '#']) {
        return Err(EgressError::Url);
    }
    Ok(())
}

/// Parses a port from 1 to 65535 without a sign and leading zeros.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

fn parse_host(text: &str) -> Result<EgressHost, EgressError> {
    if text.is_empty() {
        return Err(EgressError::Empty);
    }
    if let Some(parent) = text.strip_prefix("*.") {
        if parent.contains('*') || !parent.contains('.') {
            return Err(EgressError::Wildcard);
        }
        return match parse_host(parent)? {
            EgressHost::Name(name) => Ok(EgressHost::Below(name)),
            _ => Err(EgressError::Wildcard),
        };
    }
    if text.contains('*') {
        return Err(EgressError::Wildcard);
    }
    if text.ends_with('.') {
        return Err(EgressError::TrailingDot);
    }
    let last = text.rsplit('.').next().unwrap_or(text);
    if is_numeric(last) {
        let address: Ipv4Addr = text
            .parse()
            .map_err(|_invalid| EgressError::AmbiguousAddress)?;
        return Ok(EgressHost::Address(IpAddr::V4(address)));
    }
    HostName::parse(text.as_bytes())
        .map(EgressHost::Name)
        .map_err(EgressError::Name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_displayed_in_its_canonical_form() {
        for (text, written) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.COM:443", "api.example.com:443"),
            ("*.Example.com", "*.example.com"),
            ("*.example.com:8443", "*.example.com:8443"),
            ("localhost", "localhost"),
            ("_sip.example.com", "_sip.example.com"),
            ("xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("2001:DB8::1", "[2001:db8::1]"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            let rule = EgressRule::parse(text).expect(text);
            assert_eq!(rule.to_string(), written);
            assert_eq!(EgressRule::parse(written), Ok(rule), "{text}");
        }
    }

    #[test]
    fn the_host_of_a_url_is_suggested() {
        for (text, entry) in [
            ("https://a.com/x", Some("a.com")),
            ("https://A.com:8443/x?y#z", Some("a.com:8443")),
            ("u:p@a.com/x", Some("a.com")),
            ("http://[::1]:80/", Some("[::1]:80")),
            (" a.com. ", Some("a.com")),
            ("a.com/", Some("a.com")),
            ("a.com:", Some("a.com")),
            ("https://", None),
            ("https://*/", None),
            ("*.com", None),
            ("10.0.0.0/8", None),
            ("m\u{fc}nchen.de", None),
        ] {
            let found = suggest(text).map(|rule| rule.to_string());
            assert_eq!(found.as_deref(), entry, "{text}");
        }
    }

    #[test]
    fn ambiguous_entries_are_refused() {
        for (text, error) in [
            ("", EgressError::Empty),
            (":443", EgressError::Empty),
            ("*", EgressError::Everything),
            ("*:443", EgressError::Everything),
            ("*.com", EgressError::Wildcard),
            ("*example.com", EgressError::Wildcard),
            ("a.*.com", EgressError::Wildcard),
            ("*.*.com", EgressError::Wildcard),
            ("*.0.0.1", EgressError::AmbiguousAddress),
            ("*.127.0.0.1", EgressError::Wildcard),
            (" host", EgressError::Name(HostNameError::Character)),
            ("host ", EgressError::Name(HostNameError::Character)),
            ("a\0b.com", EgressError::Name(HostNameError::Character)),
            ("a..b", EgressError::Name(HostNameError::EmptyLabel)),
            (".a", EgressError::Name(HostNameError::EmptyLabel)),
            ("-a.com", EgressError::Name(HostNameError::Hyphen)),
            ("host:", EgressError::Port),
            ("host:0", EgressError::Port),
            ("host:99999", EgressError::Port),
            ("host:0443", EgressError::Port),
            ("host:+443", EgressError::Port),
            ("host:0x1bb", EgressError::Port),
            ("http://h", EgressError::Url),
            ("h/", EgressError::Url),
            ("u@h", EgressError::Url),
            ("10.0.0.0/8", EgressError::Range),
            ("2001:db8::/32", EgressError::Range),
            ("H.", EgressError::TrailingDot),
            ("münchen.de", EgressError::NotAscii),
            ("fe80::1%eth0", EgressError::Ipv6),
            ("[::1", EgressError::Ipv6),
            ("[::1]x", EgressError::Ipv6),
            ("a:b:c", EgressError::Ipv6),
            ("[::ffff:127.0.0.1]", EgressError::MappedAddress),
            ("0x7f.1", EgressError::AmbiguousAddress),
            ("127.1", EgressError::AmbiguousAddress),
            ("0177.0.0.1", EgressError::AmbiguousAddress),
            ("2130706433", EgressError::AmbiguousAddress),
            ("0x7f000001", EgressError::AmbiguousAddress),
            ("256.0.0.1", EgressError::AmbiguousAddress),
        ] {
            assert_eq!(EgressRule::parse(text), Err(error), "{text}");
        }
        let long = format!("{}.com", "a".repeat(64));
        let error = EgressError::Name(HostNameError::LongLabel);
        assert_eq!(EgressRule::parse(&long), Err(error));
        let long = "a.".repeat(130) + "com";
        let error = EgressError::Name(HostNameError::Long);
        assert_eq!(EgressRule::parse(&long), Err(error));
    }

    #[test]
    fn two_rules_are_intersected() {
        for (one, two, both) in [
            ("a.com", "a.com", Some("a.com")),
            ("a.com", "b.com", None),
            ("A.com", "a.com", Some("a.com")),
            ("*.a.com", "x.a.com", Some("x.a.com")),
            ("*.a.com", "y.x.a.com", Some("y.x.a.com")),
            ("*.a.com", "a.com", None),
            ("*.a.com", "ba.com", None),
            ("*.a.com", "xa.com", None),
            ("*.a.com", "*.a.com", Some("*.a.com")),
            ("*.a.com", "*.x.a.com", Some("*.x.a.com")),
            ("*.a.com", "*.xa.com", None),
            ("*.a.com", "*.b.com", None),
            ("a.com", "a.com:443", Some("a.com:443")),
            ("a.com:80", "a.com:443", None),
            ("a.com:443", "a.com:443", Some("a.com:443")),
            ("*.a.com:443", "x.a.com", Some("x.a.com:443")),
            ("*.a.com", "x.a.com:443", Some("x.a.com:443")),
            ("*.a.com:443", "*.x.a.com:80", None),
            ("192.0.2.1", "192.0.2.1:80", Some("192.0.2.1:80")),
            ("192.0.2.1", "192.0.2.2", None),
            ("[2001:db8::1]", "2001:DB8::1", Some("[2001:db8::1]")),
            ("localhost", "127.0.0.1", None),
        ] {
            let rule = |text| EgressRule::parse(text).expect(text);
            let written = |rule: Option<EgressRule>| rule.map(|rule| rule.to_string());
            let expected = both.map(str::to_owned);
            let found = rule(one).intersection(&rule(two));
            assert_eq!(written(found), expected, "{one} and {two}");
            let found = rule(two).intersection(&rule(one));
            assert_eq!(written(found), expected, "{two} and {one}");
            assert!(rule(one).covers(&rule(one)), "{one}");
        }
    }

    #[test]
    fn two_lists_are_intersected() {
        for (one, two, both) in [
            ("", "a.com", ""),
            ("a.com", "", ""),
            ("a.com b.com", "b.com c.com", "b.com"),
            (
                "*.a.com b.com",
                "x.a.com y.a.com b.com:80",
                "x.a.com y.a.com b.com:80",
            ),
            ("*.a.com x.a.com", "*.a.com", "*.a.com"),
            ("x.a.com *.a.com", "*.a.com", "*.a.com"),
            ("a.com:80 a.com:443", "a.com", "a.com:80 a.com:443"),
            ("a.com:80 a.com", "a.com", "a.com"),
        ] {
            let list = |text: &str| -> Vec<EgressRule> {
                text.split_whitespace()
                    .map(|rule| EgressRule::parse(rule).expect(rule))
                    .collect()
            };
            let found: Vec<String> = intersect(&list(one), &list(two))
                .iter()
                .map(EgressRule::to_string)
                .collect();
            assert_eq!(found.join(" "), both, "{one} and {two}");
        }
    }
}
