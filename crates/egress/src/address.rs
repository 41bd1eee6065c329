//! Classification of addresses as public or not. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use spec::sources_policy::IpRange;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// Both families.
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Blocks of IPv4 that are not public: RFC 6890 and its successors, and one metadata service.
const PRIVATE_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    // A metadata service of a cloud, on an address that looks public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

/// The only IPv6 block from which public addresses are allocated (RFC 4291, IANA). It excludes local,
/// link-local, site-local, multicast and discard-only addresses.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Blocks inside [`GLOBAL_V6`] that are not public: special purposes and documentation. They include
/// Teredo, whose embedded IPv4 addresses are not looked at.
const PRIVATE_V6: [(Ipv6Addr, u32); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether an address belongs to the public network. An IPv6 address that embeds an IPv4 address
/// (mapped, compatible, 6to4, NAT64 with `64:ff9b::/96`) is classified by the embedded address.
#[must_use]
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => is_public_v4(inner),
            None => {
                let (global, global_bits) = GLOBAL_V6;
                has_prefix_v6(address, global, global_bits)
                    && !PRIVATE_V6
                        .iter()
                        .any(|(block, bits)| has_prefix_v6(address, *block, *bits))
            }
        },
    }
}

/// Whether an address may be dialled, as far as is known without the routes of the host.
///
/// A loopback address belongs to the host: only a range of exactly that address permits it.
#[must_use]
pub fn may_be_dialled(address: IpAddr, private_ranges: &[IpRange]) -> bool {
    let permits = |range: &IpRange| {
        if address.is_loopback() {
            range.is_exactly(address)
        } else {
            range.contains(address)
        }
    };
    is_public(address) || private_ranges.iter().any(permits)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !PRIVATE_V4
        .iter()
        .any(|(block, bits)| has_prefix_v4(address, *block, *bits))
}

/// The IPv4 address that an IPv6 address embeds.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let join = |high: u16, low: u16| {
        let [one, two] = high.to_be_bytes();
        let [three, four] = low.to_be_bytes();
        Some(Ipv4Addr::new(one, two, three, four))
    };
    match [a, b, c, d, e, f] {
        // `::1` and `::` embed no IPv4 address.
        [0, 0, 0, 0, 0, 0] if (high, low) != (0, 0) && (high, low) != (0, 1) => join(high, low),
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => join(high, low),
        [0x2002, ..] => join(b, c),
        _ => None,
    }
}

fn has_prefix_v4(address: Ipv4Addr, prefix: Ipv4Addr, bits: u32) -> bool {
    let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
    (address.to_bits() ^ prefix.to_bits()) & mask == 0
}

fn has_prefix_v6(address: Ipv6Addr, prefix: Ipv6Addr, bits: u32) -> bool {
    let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
    (address.to_bits() ^ prefix.to_bits()) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_classified_by_their_block() {
        for (text, public) in [
            ("93.184.216.34", true),
            ("8.8.8.8", true),
            ("1.1.1.1", true),
            ("9.255.255.255", true),
            ("11.0.0.0", true),
            ("172.15.255.255", true),
            ("172.32.0.0", true),
            ("100.63.255.255", true),
            ("100.128.0.0", true),
            ("2606:2800:220:1::1", true),
            ("::ffff:93.184.216.34", true),
            ("64:ff9b::93.184.216.34", true),
            ("2002:5db8:d822::1", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.1.2.3", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("127.255.255.255", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.192", false),
            ("192.0.2.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("198.19.255.255", false),
            ("198.51.100.1", false),
            ("203.0.113.7", false),
            ("224.0.0.251", false),
            ("239.255.255.250", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("168.63.129.16", false),
            ("::", false),
            ("::1", false),
            ("::127.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::10.0.0.1", false),
            ("2002:7f00:1::", false),
            ("2002:a9fe:a9fe::", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("ff02::fb", false),
            ("2001:db8::1", false),
            ("2001::1", false),
            ("100::1", false),
            ("192.88.99.1", false),
            ("::ffff:10.0.0.1", false),
            ("::10.0.0.1", false),
            ("64:ff9b::169.254.169.254", false),
            ("64:ff9b:1::8.8.8.8", false),
            ("64:ff9b:1:ffff::1", false),
            ("64:ff9b:2::1", false),
            ("2002:a00:1::1", false),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", false),
            ("3fff::1", false),
            ("fec0::1", false),
            ("5f00::1", false),
            ("4000::1", false),
            ("ff0e::1", false),
            ("2a00:1450:4001:80b::200e", true),
            ("3ffe::1", true),
        ] {
            let address: IpAddr = text.parse().expect(text);
            assert_eq!(is_public(address), public, "{text}");
        }
    }
}
