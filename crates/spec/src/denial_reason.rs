//! Why the relay denies a request of the body: one table for reports, messages, schema and
//! `docs/egress.md`.
//!
//! A new reason is a variant and its [`Row`]. Code that depends on the reason matches without
//! wildcards: the hint of a denial, and the answer of the proxy.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why something was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename_all = "kebab-case"))]
pub enum DenialReason {
    /// The name is not in the egress list. A DNS query has no port.
    NameNotAllowed,
    /// The name is allowed at other ports only.
    PortNotAllowed,
    /// An address that is neither in the egress list nor the synthetic address of a name.
    IpLiteral,
    /// The name has no public address.
    ResolvesToPrivate,
    /// The TLS server name differs from the name that the body connected to.
    SniMismatch,
    /// The TLS ClientHello has no server name.
    NoSni,
    /// A connection to port 443 without TLS.
    NotTls,
    /// The Host header differs from the name that the body connected to.
    HostMismatch,
    /// The policy refuses an encrypted ClientHello.
    Ech,
    /// An allowed port without a listener.
    PortNotCaptured,
    /// Neither TCP nor a DNS query.
    #[cfg_attr(test, schemars(rename = "proto"))]
    Protocol,
    /// A limit of the relay was reached.
    Limit,
}

/// The texts of a reason.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The value in reports.
    pub code: &'static str,
    /// The reason in the message on standard error.
    pub words: &'static str,
}

impl DenialReason {
    /// In the order of `docs/egress.md`.
    pub const ALL: [Self; 12] = [
        Self::NameNotAllowed,
        Self::PortNotAllowed,
        Self::IpLiteral,
        Self::ResolvesToPrivate,
        Self::SniMismatch,
        Self::NoSni,
        Self::NotTls,
        Self::HostMismatch,
        Self::Ech,
        Self::PortNotCaptured,
        Self::Protocol,
        Self::Limit,
    ];

    /// Its row of the table: how reports and messages name it.
    #[must_use]
    pub const fn row(self) -> Row {
        let (code, words) = match self {
            Self::NameNotAllowed => ("name-not-allowed", "not in network.egress"),
            Self::PortNotAllowed => ("port-not-allowed", "not in network.egress at this port"),
            Self::IpLiteral => ("ip-literal", "an address that is not in network.egress"),
            Self::ResolvesToPrivate => ("resolves-to-private", "its address is not public"),
            Self::SniMismatch => ("sni-mismatch", "TLS for another name"),
            Self::NoSni => ("no-sni", "TLS without a name"),
            Self::NotTls => ("not-tls", "no TLS on port 443"),
            Self::HostMismatch => ("host-mismatch", "HTTP for another host"),
            Self::Ech => ("ech", "an encrypted TLS hello"),
            Self::PortNotCaptured => (
                "port-not-captured",
                "without nf_tables only 80, 443 and listed ports are reached",
            ),
            Self::Protocol => ("proto", "only TCP leaves the sandbox"),
            Self::Limit => ("limit", "a limit of the relay"),
        };
        Row { code, words }
    }
}

impl Serialize for DenialReason {
    fn serialize<Into: Serializer>(&self, into: Into) -> Result<Into::Ok, Into::Error> {
        into.serialize_str(self.row().code)
    }
}

impl<'de> Deserialize<'de> for DenialReason {
    fn deserialize<From: Deserializer<'de>>(from: From) -> Result<Self, From::Error> {
        let code = String::deserialize(from)?;
        let mut reasons = Self::ALL.into_iter();
        let reason = reasons.find(|reason| reason.row().code == code);
        reason.ok_or_else(|| de::Error::custom("unknown reason"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_and_the_guide_list_every_code() {
        let schema = schemars::schema_for!(DenialReason);
        let variants = schema.get("oneOf").and_then(|list| list.as_array());
        let variants = variants.expect("a list of variants");
        let in_schema: Vec<&str> = variants
            .iter()
            .filter_map(|variant| variant["const"].as_str())
            .collect();
        let mut codes = DenialReason::ALL.map(|reason| reason.row().code);
        let guide = include_str!("../../../docs/egress.md");
        let rows: Vec<&str> = guide
            .split("| reason | what happened | what to do |")
            .nth(1)
            .expect("the table of reasons")
            .lines()
            .skip(2)
            .map_while(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        assert_eq!(rows, codes, "docs/egress.md");
        let mut in_schema = in_schema;
        in_schema.sort_unstable();
        codes.sort_unstable();
        assert_eq!(in_schema, codes, "the schema");
    }
}
