//! Answers of name servers to the relay, compared with `domain` of NLnet Labs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use domain::base::Message;
use domain::base::iana::Rcode;
use domain::base::name::ToLabelIter;
use domain::rdata::{A, Aaaa, Cname};

use super::PERMIT;
use egress::address::Family;
use egress::resolver::answer::{self, Answer, AnswerError};
use spec::host_name::HostName;

/// Maximum number of addresses of an answer.
const ADDRESSES_MAX: usize = 256;

/// The first byte selects the requested family, the rest is the answer. The requested name is the
/// one that the answer repeats, if any: other tests cover foreign answers.
pub(crate) fn check(bytes: &[u8]) {
    let Some((family, bytes)) = bytes.split_first() else {
        return;
    };
    let family = if family & 1 == 0 {
        Family::V4
    } else {
        Family::V6
    };
    let id = bytes
        .first_chunk()
        .map_or(0, |two| u16::from_be_bytes(*two));
    let usual = HostName::parse(b"a.com").expect("a name");
    let message = Message::from_octets(bytes).ok();
    let asked = message
        .as_ref()
        .and_then(|message| name_of(message.first_question()?.qname()));
    let name = asked.as_ref().unwrap_or(&usual);

    let read = answer::parse(&PERMIT, bytes, id, name, family);
    let Ok(found) = read else {
        return;
    };
    let message = message.expect("what was read is a message");
    let header = message.header();
    assert!(header.qr() && header.opcode().to_int() == 0);
    assert_eq!(asked.as_ref(), Some(name), "an answer to another question");
    match found {
        Answer::NoName => assert_eq!(header.rcode(), Rcode::NXDOMAIN),
        Answer::Truncated => assert!(header.tc()),
        Answer::Addresses(addresses) => {
            assert_eq!(header.rcode(), Rcode::NOERROR);
            assert!(addresses.len() <= ADDRESSES_MAX);
            let theirs = reachable(&message, name, family);
            for address in addresses {
                assert!(theirs.contains(&address), "{address} out of nowhere");
            }
        }
    }
    let other = id.wrapping_add(1);
    assert_eq!(
        answer::parse(&PERMIT, bytes, other, name, family),
        Err(AnswerError::Foreign)
    );
}

/// The addresses of all names that the aliases of `name` lead to, according to the other parser.
fn reachable(message: &Message<&[u8]>, name: &HostName, family: Family) -> BTreeSet<IpAddr> {
    let section = || message.answer().expect("an answer section");
    let mut names = BTreeSet::from([name.clone()]);
    loop {
        let before = names.len();
        for record in section().limit_to_in::<Cname<_>>().flatten() {
            let (owner, data) = record.into_owner_and_data();
            if name_of(&owner).is_some_and(|owner| names.contains(&owner)) {
                names.extend(name_of(&data.into_cname()));
            }
        }
        if names.len() == before {
            break;
        }
    }
    let is_wanted = |owner: Option<HostName>| owner.is_some_and(|owner| names.contains(&owner));
    match family {
        Family::V4 => section()
            .limit_to_in::<A>()
            .flatten()
            .filter(|record| is_wanted(name_of(record.owner())))
            .map(|record| IpAddr::V4(record.data().addr()))
            .collect(),
        Family::V6 => section()
            .limit_to_in::<Aaaa>()
            .flatten()
            .filter(|record| is_wanted(name_of(record.owner())))
            .map(|record| IpAddr::V6(record.data().addr()))
            .collect(),
    }
}

fn name_of(name: &impl ToLabelIter) -> Option<HostName> {
    let labels = name.iter_labels().filter(|label| !label.is_root());
    let labels: Vec<&[u8]> = labels.map(|label| label.as_slice()).collect();
    HostName::from_labels(labels).ok()
}
