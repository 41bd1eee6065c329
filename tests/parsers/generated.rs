//! Generated input: made by established libraries from generated names, by damaging the corpus, and
//! from fragments that parsers are known to read differently.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::{MessageBuilder, Name, StreamTarget, Ttl};
use domain::rdata::{A, Cname};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::properties;
use crate::properties::PERMIT;
use crate::recorded::{Check, MADE, corpus};
use egress::address::Family;
use egress::client_hello::{self, HELLO_BYTES_MAX, HelloError};
use egress::dns::{self, Answer, Malformed, QUERY_BYTES_MAX, TYPE_A};
use egress::http_head::{self, HEAD_BYTES_MAX};
use egress::parsed::Parsed;
use egress::resolver::answer;
use spec::host_name::HostName;

/// One change to the bytes.
#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => (any::<Index>(), vec(any::<u8>(), 1..5)).prop_map(|(at, new)| Damage::Insert(at, new)),
        2 => (any::<Index>(), 1_usize..40).prop_map(|(at, count)| Damage::Remove(at, count)),
        2 => (any::<Index>(), 1_usize..60).prop_map(|(at, count)| Damage::Repeat(at, count)),
        1 => any::<Index>().prop_map(Damage::Cut),
    ]
}

fn damaged(mut bytes: Vec<u8>, changes: &[Damage]) -> Vec<u8> {
    for change in changes {
        let length = bytes.len();
        if length == 0 {
            break;
        }
        match change {
            Damage::Set(at, byte) => bytes[at.index(length)] = *byte,
            Damage::Insert(at, new) => {
                let at = at.index(length);
                bytes.splice(at..at, new.iter().copied());
            }
            Damage::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..length.min(at + count));
            }
            Damage::Repeat(at, count) => {
                let at = at.index(length);
                let part = bytes[at..length.min(at + count)].to_vec();
                bytes.splice(at..at, part);
            }
            Damage::Cut(at) => bytes.truncate(at.index(length)),
        }
    }
    bytes
}

/// A file of the corpus with some changes.
fn damaged_corpus(folder: &str) -> impl Strategy<Value = Vec<u8>> {
    let files: Vec<Vec<u8>> = corpus(folder).into_iter().map(|(_, bytes)| bytes).collect();
    (select(files), vec(damage(), 0..5)).prop_map(|(bytes, changes)| damaged(bytes, &changes))
}

/// A label, and the separator after it.
fn labels(more: &str) -> impl Strategy<Value = String> {
    let label = "[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,12}[a-zA-Z0-9_])?";
    let pattern = format!("LABEL{more}").replace("LABEL", label);
    proptest::string::string_regex(&pattern).expect("a pattern")
}

/// Host names, and strings that are nearly host names.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => labels(r"(\.LABEL){1,3}"),
        1 => labels(r"(\.LABEL){0,2}\.?"),
        1 => "[a-z0-9.-]{1,20}",
    ]
}

/// The ClientHello of rustls for a name; `None` if rustls does not accept the name.
fn hello_of_rustls(name: &str) -> Option<Vec<u8>> {
    let server = ServerName::try_from(name.to_owned()).ok()?;
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), server).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a hello");
    Some(bytes)
}

/// The same handshake message, split into other records.
fn in_records(hello: &[u8], lengths: &[usize]) -> Vec<u8> {
    let mut rest = &hello[5..];
    let mut bytes = Vec::new();
    let mut lengths = lengths.iter().cycle();
    while !rest.is_empty() {
        let length = lengths
            .next()
            .map_or(rest.len(), |length| rest.len().min(*length));
        let (now, after) = rest.split_at(length);
        bytes.extend_from_slice(&[22, 3, 1]);
        bytes.extend_from_slice(&u16::try_from(length).expect("short").to_be_bytes());
        bytes.extend_from_slice(now);
        rest = after;
    }
    bytes
}

/// A hello with one more extension of this size, as large as tickets and key shares may be.
fn with_extension(hello: &[u8], kind: u16, content_bytes: usize) -> Vec<u8> {
    let mut message = hello[5..].to_vec();
    let session = 4 + 2 + 32;
    let suites = session + 1 + usize::from(message[session]);
    let suites_bytes = usize::from(u16::from_be_bytes([message[suites], message[suites + 1]]));
    let compression = suites + 2 + suites_bytes;
    let extensions = compression + 1 + usize::from(message[compression]);
    // At the front: a resumed TLS 1.3 hello has an extension that must be the last.
    let content = vec![0; content_bytes];
    let length = u16::try_from(content_bytes).expect("short").to_be_bytes();
    let new = [&kind.to_be_bytes(), length.as_slice(), &content].concat();
    message.splice(extensions + 2..extensions + 2, new);
    let extensions_bytes = u16::try_from(message.len() - extensions - 2).expect("short");
    message[extensions..extensions + 2].copy_from_slice(&extensions_bytes.to_be_bytes());
    let length = u32::try_from(message.len() - 4)
        .expect("short")
        .to_be_bytes();
    message[1..4].copy_from_slice(&length[1..]);
    in_records(&[&[0; 5], message.as_slice()].concat(), &[1 << 14])
}

fn dns_name(text: &str) -> Name<Vec<u8>> {
    text.parse().expect(text)
}

/// Names in the form of a DNS message that the other library accepts.
fn asked_name() -> impl Strategy<Value = String> {
    labels(r"(\.LABEL){0,3}\.[a-z]{2,6}")
}

/// A damaged file of one of the generated folders, and its property.
fn damaged_made() -> impl Strategy<Value = (Check, Vec<u8>)> {
    select(MADE.to_vec()).prop_flat_map(|(folder, check)| (Just(check), damaged_corpus(folder)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damaged_archives_documents_and_texts_have_their_properties(
        (check, bytes) in damaged_made(),
    ) {
        check(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_and_any_damage_are_read_as_others_read_them(
        query in damaged_corpus("dns_query"),
        answer in damaged_corpus("dns_answer"),
        hello in damaged_corpus("client_hello"),
        head in damaged_corpus("http_head"),
        packet in damaged_corpus("observed"),
        word in damaged_corpus("socks"),
        any in vec(any::<u8>(), 0..80),
    ) {
        for bytes in [&query, &any] {
            properties::dns_query::check(bytes);
        }
        for bytes in [&answer, &any] {
            properties::dns_answer::check(bytes);
        }
        for bytes in [&hello, &any] {
            properties::client_hello::check(bytes);
        }
        for bytes in [&head, &any] {
            properties::http_head::check(bytes);
        }
        for bytes in [&packet, &any] {
            properties::observed::check(bytes);
        }
        for bytes in [&word, &any] {
            properties::socks::check(bytes);
        }
    }

    #[test]
    fn a_hello_of_rustls_is_parsed_with_its_name(
        name in name(),
        lengths in vec(prop_oneof![Just(1), 1_usize..40, 200_usize..400], 1..4),
        changes in vec(damage(), 1..3),
    ) {
        let Some(bytes) = hello_of_rustls(&name) else {
            return Ok(());
        };
        let theirs = properties::client_hello::their_name(&bytes);
        prop_assert!(theirs.is_some(), "rustls does not read itself");
        let records = in_records(&bytes, &lengths);
        for bytes in [&bytes, &records] {
            match client_hello::parse(&PERMIT, bytes) {
                Ok(Parsed::Complete(hello)) => {
                    let ours = hello.server_name.map(|name| name.to_string());
                    let sent = name.trim_end_matches('.').to_ascii_lowercase();
                    // Clients send no server name for an address.
                    prop_assert_eq!(ours, name.parse::<IpAddr>().is_err().then_some(sent));
                }
                Ok(Parsed::Incomplete) => prop_assert!(false, "the hello is whole"),
                Err(why) => {
                    prop_assert_eq!(why, HelloError::BadName);
                    prop_assert!(HostName::parse(name.as_bytes()).is_err(), "{}", name);
                }
            }
            properties::client_hello::check(bytes);
        }
        properties::client_hello::check(&damaged(bytes, &changes));
        properties::client_hello::check(&damaged(records, &changes));
    }

    #[test]
    fn a_hello_may_be_as_long_as_the_limit_and_no_longer(
        kind in select(vec![21_u16, 51_000]),
        content_bytes in prop_oneof![0_usize..2_048, 15_000_usize..17_000],
    ) {
        let plain = hello_of_rustls("api.example.com").expect("a hello");
        let bytes = with_extension(&plain, kind, content_bytes);
        let fits = plain.len() - 5 + 4 + content_bytes <= HELLO_BYTES_MAX;
        match client_hello::parse(&PERMIT, &bytes) {
            Ok(Parsed::Complete(hello)) => {
                prop_assert!(fits);
                let name = hello.server_name.map(|name| name.to_string());
                prop_assert_eq!(name.as_deref(), Some("api.example.com"));
            }
            other => prop_assert!(!fits && other == Err(HelloError::TooLong), "{:?}", other),
        }
        properties::client_hello::check(&bytes);
    }

    #[test]
    fn a_query_of_another_library_is_understood(
        name in asked_name(),
        kind in prop_oneof![Just(1_u16), Just(28), Just(65), any::<u16>()],
        edns in proptest::option::of((any::<u16>(), any::<bool>(), vec(any::<u8>(), 0..40))),
        tail in vec(any::<u8>(), 1..4),
    ) {
        let mut builder = MessageBuilder::new_vec().question();
        builder.header_mut().set_rd(true);
        builder.push((dns_name(&name), Rtype::from_int(kind))).expect("room");
        let mut builder = builder.additional();
        if let Some((datagram_bytes, wants_signatures, option)) = &edns {
            builder
                .opt(|opt| {
                    opt.set_udp_payload_size(*datagram_bytes);
                    opt.set_dnssec_ok(*wants_signatures);
                    opt.push_raw_option(10.into(), option.len().try_into().expect("short"), |to| {
                        to.extend_from_slice(option);
                        Ok(())
                    })
                })
                .expect("room");
        }
        let bytes = builder.finish();
        let query = dns::parse(&PERMIT, &bytes).expect("a query");
        prop_assert_eq!(
            query.name.map(|name| name.to_string()),
            Some(name.to_ascii_lowercase())
        );
        prop_assert_eq!(query.kind, kind);
        properties::dns_query::check(&bytes);
        let longer = [bytes, tail].concat();
        let refused = matches!(dns::parse(&PERMIT, &longer), Err(Malformed::Answerable(_)));
        prop_assert!(refused, "bytes behind the last record");
    }

    #[test]
    fn an_answer_of_another_library_is_parsed_correctly(
        names in vec(asked_name(), 1..6),
        addresses in vec(any::<[u8; 4]>(), 0..6),
        is_reversed: bool,
    ) {
        let asked = HostName::parse(names[0].as_bytes()).expect("a name");
        let same = |other: &String| HostName::parse(other.as_bytes()).as_ref() == Ok(&asked);
        prop_assume!(!names[1..].iter().any(same));
        let target = StreamTarget::new_vec();
        let mut builder = MessageBuilder::from_target(domain::base::TreeCompressor::new(target))
            .expect("room")
            .question();
        builder.header_mut().set_id(7);
        builder.header_mut().set_qr(true);
        builder.header_mut().set_rcode(Rcode::NOERROR);
        builder.push((dns_name(&names[0]), Rtype::A)).expect("room");
        let mut builder = builder.answer();
        let ttl = Ttl::from_secs(60);
        let last = dns_name(names.last().expect("one"));
        let put_addresses = |builder: &mut domain::base::message_builder::AnswerBuilder<_>| {
            for address in &addresses {
                let data = A::new(Ipv4Addr::from(*address));
                builder.push((&last, Class::IN, ttl, data)).expect("room");
            }
        };
        if is_reversed {
            put_addresses(&mut builder);
        }
        for pair in names.windows(2) {
            let data = Cname::new(dns_name(&pair[1]));
            builder.push((dns_name(&pair[0]), Class::IN, ttl, data)).expect("room");
        }
        if !is_reversed {
            put_addresses(&mut builder);
        }
        let bytes = builder.finish().into_target().as_dgram_slice().to_vec();
        let expected: Vec<IpAddr> = addresses.iter().map(|octets| IpAddr::from(*octets)).collect();
        let read = answer::parse(&PERMIT, &bytes, 7, &asked, Family::V4);
        prop_assert_eq!(read, Ok(answer::Answer::Addresses(expected)));
        properties::dns_answer::check(&[&[0], bytes.as_slice()].concat());
    }

    #[test]
    fn queries_of_the_relay_are_parsed_correctly_by_another_library(name in asked_name(), id: u16, is_v6: bool) {
        let host = HostName::parse(name.as_bytes()).expect("a name");
        let family = if is_v6 { Family::V6 } else { Family::V4 };
        let bytes = answer::query(id, &host, family);
        let query = dns::parse(&PERMIT, &bytes).expect("a query");
        prop_assert_eq!(query.name.as_ref(), Some(&host));
        prop_assert_eq!(query.kind, if is_v6 { 28 } else { TYPE_A });
        properties::dns_query::check(&bytes);
        let answered = query.answer(Answer::NoName);
        let read = answer::parse(&PERMIT, &answered, id, &host, family);
        prop_assert_eq!(read, Ok(answer::Answer::NoName));
    }

    #[test]
    fn a_head_of_fragments_is_read_as_others_read_it(
        method in select(vec!["GET", "POST", "CONNECT", "OPTIONS", "get", "M-SEARCH", "", "PRI"]),
        target in select(vec![
            "/", "/a?b#c", "//b.com/", "*", "http://a.com/", "http://a.com:80", "https://a.com/",
            "http://a.com@b.com/", "http://b.com", "http://a.com\\@b.com/", "a.com:443", "a.com",
            "http:a.com", "ftp://a.com/", "http://[::1]:80/", "[::1]:443", "/\u{fc}", "HTTP://A.com?x",
        ]),
        version in select(vec![" HTTP/1.1", " HTTP/1.0", " HTTP/2.0", " HTTP/1.1 ", "", "\tHTTP/1.1"]),
        fields in vec(select(vec![
            "Host: a.com", "host:a.com:80", "Host: b.com", "Host : a.com", " Host: b.com", "Host:",
            "Host: a.com, b.com", "Host: a.com:443", "Host: [::1]", "Host: a.com.", "Host: user@a.com",
            "Host: a.com:+80", "Content-Length: 3", "Content-Length: +3", "Content-Length: 3, 3",
            "Transfer-Encoding: chunked", "X: \u{fc}", "X:\ty", "X", ": y", "X\0: y", "X: y\rz",
        ]), 0..4),
        end in select(vec!["\r\n", "\r\n", "\r\n", "\n", "\r"]),
        tail in "[ -~\r\n]{0,12}",
    ) {
        let mut text = format!("{method} {target}{version}{end}");
        for field in fields {
            text.push_str(field);
            text.push_str(end);
        }
        text.push_str(end);
        text.push_str(&tail);
        properties::http_head::check(text.as_bytes());
    }

    #[test]
    fn a_head_may_be_as_long_as_the_limit_and_no_longer(
        more in prop_oneof![Just(0_usize), 1_usize..300],
        is_longer: bool,
    ) {
        let start = "GET / HTTP/1.1\r\nHost: a.com\r\nX: ";
        let usual = HEAD_BYTES_MAX - start.len() - 4;
        let count = if is_longer { usual + more } else { usual - more };
        let text = format!("{start}{}\r\n\r\n", "y".repeat(count));
        let read = http_head::parse(&PERMIT, text.as_bytes());
        if text.len() <= HEAD_BYTES_MAX {
            prop_assert!(matches!(read, Ok(Parsed::Complete(_))), "{:?}", read);
        } else {
            prop_assert_eq!(read, Err(http_head::HeadError::TooLong));
        }
        properties::http_head::check(text.as_bytes());
    }
}

#[test]
fn a_frame_of_64_kib_is_answered_with_a_header_alone() {
    let mut frame = corpus("dns_query").swap_remove(0).1;
    frame.resize(65_535, 0);
    assert!(QUERY_BYTES_MAX < frame.len());
    match dns::parse(&PERMIT, &frame) {
        Err(Malformed::Answerable(answer)) => assert!(answer.len() <= 23),
        other => panic!("{other:?}"),
    }
    properties::dns_query::check(&frame);
}
