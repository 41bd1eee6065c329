//! DNS queries to name servers and their answers (RFC 1035). Pure; answers are untrusted, so all fields
//! are checked and bounded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::Family;
use crate::dns::{CLASS_IN, NAME_BYTES_MAX, TYPE_A, encode_name, opt_record};
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

/// Maximum number of aliases in the chain of a name.
const ALIASES_MAX: usize = 16;
/// Maximum number of records of an answer that are read.
const RECORDS_MAX: usize = 256;
/// Maximum number of compression pointers in a name: a name has at most 127 labels.
const POINTERS_MAX: usize = 128;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;

/// The record type of the addresses of a family.
const fn record_type(family: Family) -> u16 {
    match family {
        Family::V4 => TYPE_A,
        Family::V6 => TYPE_AAAA,
    }
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The addresses in the server's order; empty if the name has none of this family.
    Addresses(Vec<IpAddr>),
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// The answer is truncated and must be requested over TCP.
    Truncated,
}

/// Why bytes are not a usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It has another id or question, or is not an answer: ignore it and wait for another message.
    #[error("the message does not answer the query")]
    Foreign,
    /// The server returned an error code: query the next server.
    #[error("the server returned the error code {0}")]
    Code(u8),
    /// Inconsistent lengths or circular pointers.
    #[error("the answer is malformed")]
    Malformed,
}

/// Returns the query for the addresses of `name`.
#[must_use]
pub fn query(id: u16, name: &HostName, family: Family) -> Vec<u8> {
    let mut message = Vec::with_capacity(64);
    message.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question, one additional record.
    message.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    message.extend_from_slice(&encode_name(name));
    message.extend_from_slice(&record_type(family).to_be_bytes());
    message.extend_from_slice(&CLASS_IN.to_be_bytes());
    message.extend_from_slice(&opt_record(0, false));
    message
}

/// Parses the answer to the query with this id.
///
/// # Errors
/// [`AnswerError`].
pub fn parse(
    _permit: &ParsePermit,
    message: &[u8],
    id: u16,
    name: &HostName,
    family: Family,
) -> Result<Answer, AnswerError> {
    let header = message.first_chunk::<12>().ok_or(AnswerError::Foreign)?;
    let header_u16 = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let flags = header_u16(2);
    if header_u16(0) != id || flags & 0x8000 == 0 || flags & 0x7800 != 0 || header_u16(4) != 1 {
        return Err(AnswerError::Foreign);
    }
    let mut at = 12;
    let question = read_name(message, &mut at)?;
    let kind = read_u16(message, &mut at)?;
    let class = read_u16(message, &mut at)?;
    if question.as_ref() != Some(name) || kind != record_type(family) || class != CLASS_IN {
        return Err(AnswerError::Foreign);
    }
    match flags & 0x000f {
        0 => (),
        3 => return Ok(Answer::NoName),
        code => return Err(AnswerError::Code(u8::try_from(code).unwrap_or(15))),
    }
    if flags & 0x0200 != 0 {
        return Ok(Answer::Truncated);
    }
    let records = usize::from(header_u16(6)).min(RECORDS_MAX);
    addresses(message, at, records, name, family).map(Answer::Addresses)
}

enum Record {
    Alias(HostName, HostName),
    Address(HostName, IpAddr),
    Other,
}

/// Returns the addresses of `name` or of its alias. The records may have any order.
fn addresses(
    message: &[u8],
    mut at: usize,
    records: usize,
    name: &HostName,
    family: Family,
) -> Result<Vec<IpAddr>, AnswerError> {
    let mut aliases = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..records {
        match read_record(message, &mut at, family)? {
            Record::Alias(from, to) => aliases.push((from, to)),
            Record::Address(of, address) => addresses.push((of, address)),
            Record::Other => (),
        }
    }
    let mut current = name;
    for _ in 0..=ALIASES_MAX {
        let own: Vec<IpAddr> = addresses
            .iter()
            .filter(|(of, _)| of == current)
            .map(|(_, address)| *address)
            .collect();
        let next = aliases.iter().find(|(from, _)| from == current);
        match next {
            Some((_, to)) if own.is_empty() => current = to,
            _ => return Ok(own),
        }
    }
    Err(AnswerError::Malformed)
}

fn read_record(message: &[u8], at: &mut usize, family: Family) -> Result<Record, AnswerError> {
    let owner = read_name(message, at)?;
    let kind = read_u16(message, at)?;
    let class = read_u16(message, at)?;
    // The time to live is ignored, since an address is used once, immediately.
    take(message, at, 4)?;
    let length = usize::from(read_u16(message, at)?);
    let start = *at;
    let data = take(message, at, length)?;
    let Some(owner) = owner.filter(|_| class == CLASS_IN) else {
        return Ok(Record::Other);
    };
    if kind == TYPE_CNAME {
        let mut inside = start;
        let target = read_name(message, &mut inside)?;
        if inside != *at {
            return Err(AnswerError::Malformed);
        }
        return Ok(target.map_or(Record::Other, |target| Record::Alias(owner, target)));
    }
    if kind != record_type(family) {
        return Ok(Record::Other);
    }
    let address = match (family, data) {
        (Family::V4, [a, b, c, d]) => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
        (Family::V6, data) => {
            let octets: [u8; 16] = data.try_into().map_err(|_| AnswerError::Malformed)?;
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return Err(AnswerError::Malformed),
    };
    Ok(Record::Address(owner, address))
}

fn take<'message>(
    message: &'message [u8],
    at: &mut usize,
    count: usize,
) -> Result<&'message [u8], AnswerError> {
    let end = at.checked_add(count).ok_or(AnswerError::Malformed)?;
    let taken = message.get(*at..end).ok_or(AnswerError::Malformed)?;
    *at = end;
    Ok(taken)
}

fn read_u16(message: &[u8], at: &mut usize) -> Result<u16, AnswerError> {
    let bytes = take(message, at, 2)?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Reads a name and advances `at` past it. `None` if it is not a valid host name. Pointers must lead
/// backwards, which excludes cycles, and their number is limited.
fn read_name(message: &[u8], at: &mut usize) -> Result<Option<HostName>, AnswerError> {
    let mut labels: Vec<&[u8]> = Vec::new();
    // The terminator takes one byte.
    let mut bytes = 1;
    let mut pointers = 0;
    let mut cursor = *at;
    let mut earliest = *at;
    let mut end = None;
    loop {
        let length = take(message, &mut cursor, 1)?[0];
        match length {
            0 => break,
            1..=63 => {
                bytes += usize::from(length) + 1;
                if bytes > NAME_BYTES_MAX {
                    return Err(AnswerError::Malformed);
                }
                labels.push(take(message, &mut cursor, usize::from(length))?);
            }
            0xc0.. => {
                let low = take(message, &mut cursor, 1)?[0];
                end.get_or_insert(cursor);
                let target = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                pointers += 1;
                if target >= earliest || pointers > POINTERS_MAX {
                    return Err(AnswerError::Malformed);
                }
                earliest = target;
                cursor = target;
            }
            _ => return Err(AnswerError::Malformed),
        }
    }
    *at = end.unwrap_or(cursor);
    Ok(HostName::from_labels(labels).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text.as_bytes()).expect(text)
    }

    /// An answer to a query for `a.com` with these encoded records.
    fn answer(records: &[&[u8]]) -> Vec<u8> {
        let mut message = query(7, &name("a.com"), Family::V4);
        message.truncate(12 + 7 + 4);
        message[2] = 0x81;
        message[3] = 0x80;
        message[7] = u8::try_from(records.len()).expect("few");
        message[11] = 0;
        for record in records {
            message.extend_from_slice(record);
        }
        message
    }

    fn read(message: &[u8]) -> Result<Answer, AnswerError> {
        parse(
            &ParsePermit::for_trusted_text(),
            message,
            7,
            &name("a.com"),
            Family::V4,
        )
    }

    const ADDRESS: &[u8] = &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 93, 184, 216, 34];
    /// `a.com` is an alias of `b.com`, compressed with the pointer at `com`.
    const ALIAS: &[u8] = &[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'b', 0xc0, 14];
    const ALIASED: &[u8] = &[
        1, b'b', 3, b'c', b'o', b'm', 0, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4,
    ];

    #[test]
    fn addresses_are_found_under_the_name_and_its_aliases() {
        let found = |records: &[&[u8]]| match read(&answer(records)) {
            Ok(Answer::Addresses(addresses)) => addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<String>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(found(&[ADDRESS]), ["93.184.216.34"]);
        assert_eq!(found(&[ALIAS, ALIASED]), ["1.2.3.4"]);
        assert_eq!(found(&[ALIASED, ALIAS]), ["1.2.3.4"]);
        assert!(found(&[ALIASED]).is_empty(), "b.com was not queried");
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn a_message_that_does_not_answer_the_query_is_foreign() {
        let good = answer(&[ADDRESS]);
        let with = |at: usize, byte: u8| {
            let mut message = good.clone();
            message[at] = byte;
            message
        };
        for (what, message) in [
            ("another id", with(1, 8)),
            ("a question", with(2, 0x01)),
            ("another name", with(13, b'x')),
            ("another type", with(20, 28)),
            ("another class", with(22, 3)),
            ("no question", with(5, 0)),
            ("nothing", Vec::new()),
        ] {
            assert_eq!(read(&message), Err(AnswerError::Foreign), "{what}");
        }
        assert_eq!(read(&with(3, 0x83)), Ok(Answer::NoName));
        assert_eq!(read(&with(2, 0x83)), Ok(Answer::Truncated));
        assert_eq!(read(&with(3, 0x82)), Err(AnswerError::Code(2)));
    }

    #[test]
    fn a_chain_of_too_many_pointers_is_malformed() {
        // A record of another type with the chain in its data, and one whose owner is the end of the
        // chain.
        let chain = |links: usize| {
            let mut data = vec![0, 0];
            let start = answer(&[]).len() + 12;
            for link in 0..links {
                let back = u16::try_from(start + 2 * link).expect("short") | 0xc000;
                data.extend_from_slice(&back.to_be_bytes());
            }
            let length = u16::try_from(data.len()).expect("short").to_be_bytes();
            let mut carrier = vec![0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 9];
            carrier.extend_from_slice(&[length.as_slice(), &data].concat());
            let owner = u16::try_from(start + 2 * links).expect("short") | 0xc000;
            let mut record = owner.to_be_bytes().to_vec();
            record.extend_from_slice(&ADDRESS[2..]);
            read(&answer(&[&carrier, &record]))
        };
        assert_eq!(chain(POINTERS_MAX - 1), Ok(Answer::Addresses(Vec::new())));
        assert_eq!(chain(POINTERS_MAX), Err(AnswerError::Malformed));
    }

    #[test]
    fn cycles_and_inconsistent_lengths_are_malformed() {
        let mut circle = ALIAS.to_vec();
        let start = u8::try_from(answer(&[]).len()).expect("short");
        circle[14] = 0xc0;
        circle[15] = start + 12;
        let mut long = ADDRESS.to_vec();
        long[11] = 5;
        let mut to_itself = ALIAS.to_vec();
        to_itself[10..].copy_from_slice(&[0, 2, 0xc0, 12, 0, 0]);
        for (what, message) in [
            ("a pointer in a circle", answer(&[&circle])),
            ("a length beyond the end", answer(&[&long])),
            ("an alias of itself", answer(&[&to_itself[..14]])),
            ("cut in a record", answer(&[&ADDRESS[..9]])),
        ] {
            assert_eq!(read(&message), Err(AnswerError::Malformed), "{what}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_parsed_without_a_panic(tail: Vec<u8>, count: u8) {
            let mut message = answer(&[&tail]);
            message[7] = count;
            drop(read(&message));
            drop(read(&tail));
        }
    }
}
