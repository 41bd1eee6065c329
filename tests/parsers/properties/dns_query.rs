//! DNS queries of a body and the answers, compared with `domain` of NLnet Labs.

use std::net::{IpAddr, Ipv4Addr};

use domain::base::Message;
use domain::base::iana::Rcode;
use domain::base::name::ToLabelIter;
use domain::rdata::{A, Ptr};

use super::PERMIT;
use egress::address::Family;
use egress::dns::{self, Answer, Malformed, Query, TYPE_A};
use egress::resolver::answer;
use spec::host_name::HostName;

/// Maximum size of an answer beyond the question: the header, a record of [`HOST`], OPT.
const ANSWER_BYTES_BESIDES: usize = 12 + (12 + HOST.len() + 2) + 11;
/// The host of an address, for reverse queries.
const HOST: &str = "a.example";

/// An accepted query is the same question to an established parser, and the answer is an answer to it.
pub(crate) fn check(bytes: &[u8]) {
    match dns::parse(&PERMIT, bytes) {
        Ok(query) => {
            check_query(bytes, &query);
            let address = Answer::Address(Ipv4Addr::new(198, 18, 0, 16));
            for answer in [
                address,
                Answer::Name(HostName::parse(HOST.as_bytes()).expect("a name")),
                Answer::NoData,
                Answer::NoName,
                Answer::ServerFailure,
            ] {
                check_answer(bytes, &query, &answer);
            }
        }
        Err(Malformed::Silent) => {
            assert!(
                bytes.len() < 12 || bytes[2] & 0x80 != 0,
                "a query is answered"
            );
        }
        Err(Malformed::Answerable(answer)) => check_refusal(bytes, &answer),
    }
}

fn check_query(bytes: &[u8], query: &Query<'_>) {
    assert!(bytes.len() <= dns::QUERY_BYTES_MAX);
    let message = Message::from_octets(bytes).expect("a message");
    assert!(!message.header().qr() && message.header().opcode().to_int() == 0);
    let question = message.sole_question().expect("one question");
    assert_eq!(query.name, name_of(question.qname()));
    assert_eq!(query.kind, question.qtype().to_int());
    assert_eq!(query.is_internet, question.qclass().to_int() == 1);
    let counts = message.header_counts();
    assert_eq!((counts.ancount(), counts.nscount()), (0, 0));
    let mut additional = message.additional().expect("an additional section");
    assert!(additional.by_ref().all(|record| record.is_ok()));
    if let Some(opt) = message.opt() {
        assert_eq!(opt.version(), 0);
    }
}

fn check_answer(bytes: &[u8], query: &Query<'_>, answer: &Answer) {
    let answered = query.answer(answer.clone());
    let asked = Message::from_octets(bytes).expect("a message");
    let message = Message::from_octets(answered.as_slice()).expect("a message");
    // The answer repeats the id and the question.
    assert!(message.is_answer(&asked));
    let header = message.header();
    assert!(header.aa() && header.ra() && !header.tc());
    assert_eq!(header.rd(), asked.header().rd());
    let question = message.sole_question().expect("one question");
    let question_bytes = question.qname().iter_labels().map(|label| label.len() + 1);
    let question_end = 12 + question_bytes.sum::<usize>() + 4;
    assert_eq!(answered[12..question_end], bytes[12..question_end]);
    assert!(answered.len() <= question_end + ANSWER_BYTES_BESIDES - 12);
    let code = match answer {
        Answer::Address(_) | Answer::Name(_) | Answer::NoData => Rcode::NOERROR,
        Answer::NoName => Rcode::NXDOMAIN,
        Answer::ServerFailure => Rcode::SERVFAIL,
    };
    assert_eq!(header.rcode(), code);
    let section = message.answer().expect("an answer section");
    let found: Vec<Ipv4Addr> = section
        .limit_to::<A>()
        .map(|record| {
            let record = record.expect("a record");
            assert!(record.owner() == question.qname(), "an answer for another");
            record.data().addr()
        })
        .collect();
    let expected = match answer {
        Answer::Address(address) => vec![*address],
        _ => Vec::new(),
    };
    assert_eq!(found, expected);
    let hosts: Vec<String> = section
        .limit_to::<Ptr<_>>()
        .map(|record| record.expect("a record").data().ptrdname().to_string())
        .collect();
    let is_name = matches!(answer, Answer::Name(_));
    assert_eq!(hosts, if is_name { vec![HOST] } else { Vec::new() });
    let opt = |message: &Message<&[u8]>| message.opt().map(|opt| opt.dnssec_ok());
    assert_eq!(opt(&message), opt(&asked));
    check_own_resolver(bytes, &answered, query, answer);
}

/// The relay's resolver reads the relay's own answer correctly.
fn check_own_resolver(bytes: &[u8], answered: &[u8], query: &Query<'_>, answer: &Answer) {
    let Some(name) = query
        .name
        .as_ref()
        .filter(|_| query.kind == TYPE_A && query.is_internet)
    else {
        return;
    };
    let id = u16::from_be_bytes([bytes[0], bytes[1]]);
    let expected = match answer {
        Answer::Address(address) => Ok(answer::Answer::Addresses(vec![IpAddr::V4(*address)])),
        // The answer to an address query contains no name.
        Answer::Name(_) => return,
        Answer::NoData => Ok(answer::Answer::Addresses(Vec::new())),
        Answer::NoName => Ok(answer::Answer::NoName),
        Answer::ServerFailure => Err(answer::AnswerError::Code(2)),
    };
    assert_eq!(
        answer::parse(&PERMIT, answered, id, name, Family::V4),
        expected
    );
}

fn check_refusal(bytes: &[u8], answer: &[u8]) {
    let asked = Message::from_octets(bytes).expect("a message");
    let message = Message::from_octets(answer).expect("a message");
    let header = message.header();
    assert!(header.qr());
    assert_eq!(header.id(), asked.header().id());
    assert_eq!(header.opcode(), asked.header().opcode());
    match message.opt() {
        // BADVERS.
        Some(opt) => assert_eq!(opt.rcode(header).to_int(), 16),
        None => assert!([Rcode::FORMERR, Rcode::NOTIMP].contains(&header.rcode())),
    }
    assert!(answer.len() <= 12 + 11);
}

/// The labels that the other parser found, as a canonical name.
fn name_of(name: &impl ToLabelIter) -> Option<HostName> {
    let labels = name.iter_labels().filter(|label| !label.is_root());
    let labels: Vec<&[u8]> = labels.map(|label| label.as_slice()).collect();
    HostName::from_labels(labels).ok()
}
