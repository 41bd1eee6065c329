//! DNS queries of bodies and their answers. Pure: no query is ever forwarded.
//!
//! A message has one question, as all resolver libraries send it. A compressed name in a question, a
//! second question or an answer section is refused as malformed (FORMERR).

use std::net::Ipv4Addr;

use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

/// Maximum size of a query over TCP; queries over UDP are far shorter.
pub const QUERY_BYTES_MAX: usize = 4_096;
/// Bytes of the header (RFC 1035, 4.1.1).
const HEADER_BYTES: usize = 12;
/// Type A: an IPv4 address.
pub const TYPE_A: u16 = 1;
/// Type PTR: the name of an address (RFC 1035, 3.5).
pub(crate) const TYPE_PTR: u16 = 12;
pub(crate) const CLASS_IN: u16 = 1;
const TYPE_OPT: u16 = 41;
/// Maximum number of additional records in a query: OPT and a signature.
const ADDITIONAL_MAX: u8 = 2;
/// Maximum size of a name in a message, with length bytes and terminator (RFC 1035, 2.3.4).
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// UDP payload size that OPT advertises, in bytes: fits all paths unfragmented.
pub(crate) const DATAGRAM_BYTES_MAX: u16 = 1_232;
/// TTL of a synthetic address, in seconds: the address is valid for the whole run.
const TTL_S: u32 = 300;

/// A parsed query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'message> {
    start: HeaderStart,
    /// The question as received, with its case: resolvers compare it (draft-vixie-dnsext-dns0x20).
    question: &'message [u8],
    /// The name, if it is a valid host name.
    pub name: Option<HostName>,
    /// The record type: [`TYPE_A`] or another.
    pub kind: u16,
    /// Whether the class is IN.
    pub is_internet: bool,
    edns: Option<Edns>,
}

/// The header fields that an answer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeaderStart {
    id: [u8; 2],
    opcode: u8,
    recursion_desired: bool,
}

/// The OPT record of the query (RFC 6891): an answer then has one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edns {
    /// The DO bit, which an answer repeats (RFC 3225).
    wants_signatures: bool,
}

/// Why bytes are not a valid query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// Cannot be answered: shorter than a header, or itself an answer.
    Silent,
    /// The encoded FORMERR, NOTIMP or BADVERS answer.
    Answerable(Vec<u8>),
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Address(Ipv4Addr),
    /// The name of the address in the query.
    Name(HostName),
    /// The name is allowed but has no record of this type.
    NoData,
    NoName,
    /// Too many queries: the library may retry later.
    ServerFailure,
}

/// Parses a complete query; no bytes may follow the announced records.
///
/// # Errors
/// [`Malformed`], with the answer to send.
pub fn parse<'message>(
    _permit: &ParsePermit,
    message: &'message [u8],
) -> Result<Query<'message>, Malformed> {
    let Some((header, rest)) = message.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Malformed::Silent);
    };
    let [one, two, flags, _, counts @ ..] = *header;
    if flags & 0x80 != 0 {
        return Err(Malformed::Silent);
    }
    let start = HeaderStart {
        id: [one, two],
        opcode: flags & 0x78,
        recursion_desired: flags & 0x01 != 0,
    };
    let refuse = |code| Malformed::Answerable(start.response(code, [0; 3]).to_vec());
    if start.opcode != 0 {
        return Err(refuse(Code::NotImplemented));
    }
    // One question, no answer, no authority, a few additional records.
    let [0, 1, 0, 0, 0, 0, 0, additional] = counts else {
        return Err(refuse(Code::FormatError));
    };
    if additional > ADDITIONAL_MAX || message.len() > QUERY_BYTES_MAX {
        return Err(refuse(Code::FormatError));
    }
    let parsed = read_question(rest, start)
        .and_then(|(query, after)| Some((query, read_additional(after, additional)?)));
    match parsed {
        None => Err(refuse(Code::FormatError)),
        Some((mut query, EdnsVersion::Known(edns))) => {
            query.edns = edns;
            Ok(query)
        }
        Some((_, EdnsVersion::Unknown)) => {
            let mut answer = start.response(Code::NoError, [0, 0, 1]).to_vec();
            // BADVERS, 16: its low four bits are in the header.
            answer.extend_from_slice(&opt_record(1, false));
            Err(Malformed::Answerable(answer))
        }
    }
}

fn read_question(bytes: &[u8], start: HeaderStart) -> Option<(Query<'_>, &[u8])> {
    let (labels, name_bytes) = read_name(bytes)?;
    let (question, after) = bytes.split_at_checked(name_bytes + 4)?;
    let [.., kind_high, kind_low, class_high, class_low] = *question else {
        return None;
    };
    let query = Query {
        start,
        question,
        name: HostName::from_labels(labels).ok(),
        kind: u16::from_be_bytes([kind_high, kind_low]),
        is_internet: u16::from_be_bytes([class_high, class_low]) == CLASS_IN,
        edns: None,
    };
    Some((query, after))
}

enum EdnsVersion {
    Known(Option<Edns>),
    Unknown,
}

/// Reads the records after the question; `None` unless they are exactly `count` with at most one OPT.
fn read_additional(mut bytes: &[u8], count: u8) -> Option<EdnsVersion> {
    let mut edns = None;
    let mut is_known = true;
    for _ in 0..count {
        let (labels, name_bytes) = read_name(bytes)?;
        let (fixed, after) = bytes.get(name_bytes..)?.split_first_chunk::<10>()?;
        let [kind_high, kind_low, _, _, _, version, flags, _, high, low] = *fixed;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (data, after) = after.split_at_checked(length)?;
        bytes = after;
        if u16::from_be_bytes([kind_high, kind_low]) != TYPE_OPT {
            continue;
        }
        if edns.is_some() || !labels.is_empty() || !are_options(data) {
            return None;
        }
        is_known = version == 0;
        edns = Some(Edns {
            wants_signatures: flags & 0x80 != 0,
        });
    }
    match (bytes, is_known) {
        ([], true) => Some(EdnsVersion::Known(edns)),
        ([], false) => Some(EdnsVersion::Unknown),
        _ => None,
    }
}

/// Whether the data is a list of options: code, length and value.
fn are_options(mut data: &[u8]) -> bool {
    while let Some(([_, _, high, low], after)) = data.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((_, after)) = after.split_at_checked(length) else {
            return false;
        };
        data = after;
    }
    data.is_empty()
}

/// The labels of an uncompressed name, and its size in bytes with the terminator.
fn read_name(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let mut labels = Vec::new();
    let mut at = 0;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels, at));
        }
        // The two high bits mark a pointer or an unused form. The terminator takes one byte.
        if length > 63 || at + length + 1 > NAME_BYTES_MAX {
            return None;
        }
        labels.push(bytes.get(at..at + length)?);
        at += length;
    }
}

impl Query<'_> {
    /// The name as received, even if it is not a valid host name: labels joined by dots. Special
    /// characters, and dots inside a label, are written as `\x..`.
    #[must_use]
    pub(crate) fn written_name(&self) -> String {
        use std::fmt::Write as _;
        let (labels, _) = read_name(self.question).unwrap_or_default();
        let mut text = String::new();
        for label in labels {
            if !text.is_empty() {
                text.push('.');
            }
            for byte in label {
                if byte.is_ascii_graphic() && !matches!(byte, b'.' | b'\\') {
                    text.push(char::from(*byte));
                } else {
                    let _written = write!(text, "\\x{byte:02x}");
                }
            }
        }
        if text.is_empty() {
            text.push('.');
        }
        text
    }

    /// Encodes the answer message.
    #[must_use]
    pub fn answer(&self, answer: Answer) -> Vec<u8> {
        let (code, record) = match answer {
            Answer::Address(address) => (Code::NoError, Some((TYPE_A, address.octets().to_vec()))),
            Answer::Name(name) => (Code::NoError, Some((TYPE_PTR, encode_name(&name)))),
            Answer::NoData => (Code::NoError, None),
            Answer::NoName => (Code::NameError, None),
            Answer::ServerFailure => (Code::ServerFailure, None),
        };
        let counts = [1, u8::from(record.is_some()), u8::from(self.edns.is_some())];
        let mut message = self.start.response(code, counts).to_vec();
        message.extend_from_slice(self.question);
        if let Some((kind, data)) = record {
            // The name: a pointer to the question.
            message.extend_from_slice(&[0xc0, 0x0c]);
            message.extend_from_slice(&kind.to_be_bytes());
            message.extend_from_slice(&CLASS_IN.to_be_bytes());
            message.extend_from_slice(&TTL_S.to_be_bytes());
            // An address or a name: 255 bytes at most.
            message.extend_from_slice(&[0, u8::try_from(data.len()).unwrap_or(u8::MAX)]);
            message.extend_from_slice(&data);
        }
        if let Some(edns) = self.edns {
            message.extend_from_slice(&opt_record(0, edns.wants_signatures));
        }
        message
    }
}

#[derive(Clone, Copy)]
enum Code {
    NoError,
    FormatError,
    ServerFailure,
    NameError,
    NotImplemented,
}

impl HeaderStart {
    /// A header with these counts of questions, answers and additional records.
    fn response(self, code: Code, counts: [u8; 3]) -> [u8; HEADER_BYTES] {
        let code = match code {
            Code::NoError => 0,
            Code::FormatError => 1,
            Code::ServerFailure => 2,
            Code::NameError => 3,
            Code::NotImplemented => 4,
        };
        // QR, the opcode of the query, AA, RD of the query; RA.
        let first = 0x84 | self.opcode | u8::from(self.recursion_desired);
        let second = 0x80 | code;
        let [one, two] = self.id;
        let [questions, answers, additional] = counts;
        [
            one, two, first, second, 0, questions, 0, answers, 0, 0, 0, additional,
        ]
    }
}

/// The message with its length prefix, as it is sent over TCP (RFC 1035, 4.2.2). Messages of the relay are
/// shorter than 64 KiB.
pub(crate) fn with_length(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(0);
    [&length.to_be_bytes(), message].concat()
}

/// Encodes a name: length-prefixed labels and a terminator.
pub(crate) fn encode_name(name: &HostName) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(NAME_BYTES_MAX);
    for label in name.as_str().split('.') {
        // A label of a host name has at most 63 bytes.
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The OPT record: the root name, type 41, the UDP payload size, the high bits of the code, version 0,
/// flags, no options.
pub(crate) fn opt_record(code_high: u8, wants_signatures: bool) -> [u8; 11] {
    let [_, kind] = TYPE_OPT.to_be_bytes();
    let [high, low] = DATAGRAM_BYTES_MAX.to_be_bytes();
    let flags = u8::from(wants_signatures) << 7;
    [0, 0, kind, high, low, code_high, 0, flags, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(message: &[u8]) -> Result<Query<'_>, Malformed> {
        super::parse(&ParsePermit::for_trusted_text(), message)
    }

    fn query(name: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name {
            message.push(u8::try_from(label.len()).expect("short"));
            message.extend_from_slice(label);
        }
        message.push(0);
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&[0, 1]);
        message
    }

    #[test]
    fn an_answer_repeats_the_question_and_has_one_address() {
        let message = query(&[b"API", b"example", b"com"], TYPE_A);
        let query = parse(&message).expect("a query");
        assert_eq!(
            query.name.as_ref().map(HostName::as_str),
            Some("api.example.com")
        );
        let answer = query.answer(Answer::Address(Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(answer[..4], [0xab, 0xcd, 0x85, 0x80]);
        assert_eq!(answer[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..message.len()], message[12..]);
        assert_eq!(answer[answer.len() - 4..], [198, 18, 0, 1]);
    }

    #[test]
    fn the_answer_to_a_reverse_query_has_the_encoded_name() {
        let message = query(&[b"16", b"0", b"18", b"198", b"in-addr", b"arpa"], TYPE_PTR);
        let query = parse(&message).expect("a query");
        let name = HostName::parse(b"api.example.com").expect("a name");
        let answer = query.answer(Answer::Name(name));
        assert_eq!(answer[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
        let record = &answer[message.len()..];
        assert_eq!(record[..4], [0xc0, 0x0c, 0, 12]);
        assert_eq!(record[10..], *b"\0\x11\x03api\x07example\x03com\0");
        let longest = [&[b'a'; 63][..]; 4].join(&b'.');
        let longest = HostName::parse(&longest[..253]).expect("a name");
        let answer = query.answer(Answer::Name(longest));
        assert_eq!(answer[message.len() + 10..][..2], [0, 255]);
        assert_eq!(answer.len(), message.len() + 12 + 255);
    }

    #[test]
    fn negative_answers_differ_only_in_their_code() {
        let message = query(&[b"a", b"b"], 28);
        let query = parse(&message).expect("a query");
        for (answer, code) in [
            (Answer::NoData, 0),
            (Answer::NoName, 3),
            (Answer::ServerFailure, 2),
        ] {
            let message = query.answer(answer);
            assert_eq!(message[3] & 0x0f, code);
            assert_eq!(message[7], 0);
        }
    }

    #[test]
    fn only_messages_with_one_question_are_queries() {
        let good = query(&[b"a", b"com"], TYPE_A);
        let with = |at: usize, byte: u8| {
            let mut message = good.clone();
            message[at] = byte;
            message
        };
        let mut pointer = good[..12].to_vec();
        pointer.extend_from_slice(&[0xc0, 0x0c, 0, 1, 0, 1]);
        let mut long = good[..12].to_vec();
        for _ in 0..5 {
            long.push(63);
            long.extend_from_slice(&[b'a'; 63]);
        }
        long.extend_from_slice(&[0, 0, 1, 0, 1]);
        for (what, message, code) in [
            ("two questions", with(5, 2), 1),
            ("no question", with(5, 0), 1),
            ("an answer inside", with(7, 1), 1),
            ("another opcode", with(2, 0x28), 4),
            ("a name that points at itself", pointer, 1),
            ("a name beyond 255 bytes", long, 1),
            ("a name without an end", good[..14].to_vec(), 1),
            ("no type", good[..good.len() - 3].to_vec(), 1),
        ] {
            match parse(&message) {
                Err(Malformed::Answerable(answer)) => {
                    assert_eq!(answer[3] & 0x0f, code, "{what}");
                    assert_eq!(answer[..2], message[..2], "{what}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        assert_eq!(parse(&with(2, 0x81)), Err(Malformed::Silent));
        assert_eq!(parse(&good[..11]), Err(Malformed::Silent));
    }

    /// The query with these additional records and this count.
    fn with_additional(records: &[u8], count: u8) -> Vec<u8> {
        let mut message = query(&[b"a", b"com"], TYPE_A);
        message[11] = count;
        message.extend_from_slice(records);
        message
    }

    const OPT: &[u8] = &[0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0];

    #[test]
    fn the_answer_to_a_query_with_edns_has_edns_and_repeats_the_do_bit() {
        let message = with_additional(OPT, 1);
        let query = parse(&message).expect("a query");
        let address = Answer::Address(Ipv4Addr::new(198, 18, 0, 16));
        for answer in [address, Answer::NoData, Answer::NoName] {
            let answer = query.answer(answer);
            assert_eq!(answer[10..12], [0, 1]);
            assert_eq!(
                answer[answer.len() - 11..],
                [0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0]
            );
        }
        let plain = with_additional(&[], 0);
        let answer = parse(&plain).expect("a query").answer(Answer::NoData);
        assert_eq!(answer[10..12], [0, 0]);
        assert_eq!(answer.len(), plain.len());
    }

    #[test]
    fn the_bytes_after_the_question_must_be_the_announced_records() {
        let mut unknown = OPT.to_vec();
        unknown[6] = 1;
        match parse(&with_additional(&unknown, 1)) {
            // BADVERS is 16: 0 in the header and 1 in OPT.
            Err(Malformed::Answerable(answer)) => {
                assert_eq!((answer[3] & 0x0f, answer[12 + 5]), (0, 1));
            }
            other => panic!("{other:?}"),
        }
        let mut with_option = OPT.to_vec();
        with_option[10] = 5;
        let cut = with_option.clone();
        with_option.extend_from_slice(&[0, 10, 0, 1, 7]);
        let mut short = with_option.clone();
        short[14] = 2;
        let signature = [
            &[3, b'k', b'e', b'y', 0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 1][..],
            &[7],
        ]
        .concat();
        let signed = [OPT, &signature].concat();
        let twice = [OPT, OPT].concat();
        let thrice = [&signature[..], &signature, &signature].concat();
        let named = [&[1, b'a'][..], OPT].concat();
        for (what, message, is_query) in [
            ("an option", with_additional(&with_option, 1), true),
            ("a signature behind it", with_additional(&signed, 2), true),
            ("an option cut short", with_additional(&short, 1), false),
            ("OPT twice", with_additional(&twice, 2), false),
            ("OPT with a name", with_additional(&named, 1), false),
            ("an option beyond the end", with_additional(&cut, 1), false),
            ("three records", with_additional(&thrice, 3), false),
            ("fewer than announced", with_additional(OPT, 2), false),
            ("more than announced", with_additional(OPT, 0), false),
            ("one byte more", with_additional(&[0], 0), false),
        ] {
            assert_eq!(parse(&message).is_ok(), is_query, "{what}");
        }
        let mut authority = with_additional(&[], 0);
        authority[9] = 1;
        assert!(parse(&authority).is_err());
    }

    #[test]
    fn a_name_may_have_255_bytes_and_a_label_63() {
        let labels = |last: usize| {
            let long = [b'a'; 63];
            let message = query(&[&long, &long, &long, &long[..last]], TYPE_A);
            parse(&message).map(|query| query.name.map(|name| name.as_str().len()))
        };
        assert_eq!(labels(61), Ok(Some(253)));
        assert!(labels(62).is_err());
        let mut label = query(&[&[b'a'; 63]], TYPE_A);
        label[12] = 64;
        label.insert(13, b'a');
        assert!(parse(&label).is_err());
    }

    #[test]
    fn a_refusal_repeats_the_opcode() {
        let mut message = query(&[b"a"], TYPE_A);
        message[2] = 0x29;
        match parse(&message) {
            Err(Malformed::Answerable(answer)) => assert_eq!(answer[2..4], [0xad, 0x84]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_query_for_an_invalid_host_name_has_no_name() {
        for (label, written) in [
            (&b"a\0b"[..], "a\\x00b.com"),
            (b"a/b", "a/b.com"),
            (b"a b", "a\\x20b.com"),
            (b"-", "-.com"),
            (b"a.b", "a\\x2eb.com"),
            (b"a\\b", "a\\x5cb.com"),
            ("\u{430}".as_bytes(), "\\xd0\\xb0.com"),
        ] {
            let message = query(&[label, b"com"], TYPE_A);
            let read = parse(&message).expect("a query");
            assert_eq!(read.name, None, "{label:?}");
            assert_eq!(read.written_name(), written);
        }
        let message = query(&[], TYPE_A);
        let root = parse(&message).expect("the root");
        assert_eq!(
            (root.name.as_ref(), root.written_name().as_str()),
            (None, ".")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic_and_answers_keep_the_id(message: Vec<u8>) {
            match parse(&message) {
                Ok(query) => prop_assert_eq!(&query.answer(Answer::NoName)[..2], &message[..2]),
                Err(Malformed::Answerable(answer)) => {
                    prop_assert_eq!(&answer[..2], &message[..2]);
                    prop_assert_eq!(answer.len(), HEADER_BYTES);
                }
                Err(Malformed::Silent) => (),
            }
        }
    }
}
