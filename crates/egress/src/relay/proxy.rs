//! SOCKS5 and HTTP, which the compatibility proxy speaks on one port: requests and answers. Pure. Does
//! not decide what is allowed.

use std::fmt::Write as _;

use crate::host::Host;
use crate::http_head::{self, Head, HeadError};
use crate::parsed::Parsed;
use crate::relay::host_check::HTTP_PORT;
use crate::socks;
use spec::denial_reason::DenialReason;
use spec::egress_report::UnreachableCause;
use spec::parse_permit::ParsePermit;

/// The protocol of a request, which determines the form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyProtocol {
    Socks,
    Connect,
    /// An HTTP request with an absolute target.
    Http,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyRequest {
    pub(super) protocol: ProxyProtocol,
    /// The destination, or the bytes of an invalid name.
    pub(super) host: Result<Host, Vec<u8>>,
    pub(super) port: u16,
    /// Bytes to send to the host before those that the client sends from now on.
    pub(super) first: Vec<u8>,
    /// How many more bytes the client may send; `None`: unlimited.
    pub(super) limit: Option<u64>,
}

/// The bytes of a client that were received so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientInput {
    Incomplete,
    /// A SOCKS greeting of this many bytes, to be answered with [`SOCKS_METHOD`].
    Greeting(usize),
    Request(ProxyRequest),
    /// An invalid request, to be answered with these bytes and closed.
    Refused(Vec<u8>),
}

/// Selects "no authentication".
pub(super) const SOCKS_METHOD: [u8; 2] = [socks::VERSION, 0];
const SOCKS_NO_METHOD: [u8; 2] = [socks::VERSION, 0xff];
const SOCKS_DENIED: u8 = 2;
const SOCKS_UNREACHABLE: u8 = 4;

/// Parses the bytes of a client. `is_greeted`: the SOCKS greeting is already answered.
pub(super) fn parse(permit: &ParsePermit, received: &[u8], is_greeted: bool) -> ClientInput {
    match (received.first(), is_greeted) {
        (None, _) => ClientInput::Incomplete,
        (Some(&socks::VERSION), false) => match socks::greeting(permit, received) {
            Ok(Parsed::Incomplete) => ClientInput::Incomplete,
            Ok(Parsed::Complete(used)) => ClientInput::Greeting(used),
            Err(_) => ClientInput::Refused(SOCKS_NO_METHOD.to_vec()),
        },
        (Some(_), true) => match socks::request(permit, received) {
            Ok(Parsed::Incomplete) => ClientInput::Incomplete,
            Ok(Parsed::Complete(request)) => ClientInput::Request(ProxyRequest {
                protocol: ProxyProtocol::Socks,
                host: request.host,
                port: request.port,
                first: received.get(request.bytes..).unwrap_or_default().to_vec(),
                limit: None,
            }),
            Err(error) => ClientInput::Refused(socks_reply(error.code())),
        },
        (Some(_), false) => parse_http(permit, received),
    }
}

fn parse_http(permit: &ParsePermit, received: &[u8]) -> ClientInput {
    let head = match http_head::parse(permit, received) {
        Ok(Parsed::Incomplete) => return ClientInput::Incomplete,
        Ok(Parsed::Complete(head)) => head,
        Err(error @ HeadError::TooLong) => {
            return refuse("431 Request Header Fields Too Large", error);
        }
        Err(error) => return refuse("400 Bad Request", error),
    };
    let (written, rest) = received.split_at_checked(head.bytes).unwrap_or_default();
    if head.method == "CONNECT" {
        return ClientInput::Request(ProxyRequest {
            protocol: ProxyProtocol::Connect,
            host: Ok(head.host),
            port: head.port.unwrap_or_default(),
            first: rest.to_vec(),
            limit: None,
        });
    }
    let Some(path) = strip_scheme(&head.target) else {
        return refuse(
            "400 Bad Request",
            "the proxy accepts only CONNECT and request targets that begin with http://",
        );
    };
    if head.has_transfer_encoding {
        return refuse(
            "501 Not Implemented",
            "the proxy accepts a request body only with Content-Length; use CONNECT instead",
        );
    }
    let content_bytes = head.content_bytes.unwrap_or(0);
    let sent = usize::try_from(content_bytes).map_or(rest.len(), |bytes| bytes.min(rest.len()));
    let mut first = rewrite(written, &head, path);
    first.extend_from_slice(&rest[..sent]);
    ClientInput::Request(ProxyRequest {
        protocol: ProxyProtocol::Http,
        host: Ok(head.host),
        port: head.port.unwrap_or(HTTP_PORT),
        first,
        limit: Some(content_bytes - sent as u64),
    })
}

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    scheme.eq_ignore_ascii_case("http").then_some(rest)
}

/// Returns the head as the client would send it to the host directly, for one request only. Removes
/// hop-by-hop and proxy fields (RFC 9110, 7.6.1). `written` are the bytes of `head`.
fn rewrite(written: &[u8], head: &Head, authority_and_path: &str) -> Vec<u8> {
    let start = authority_and_path.find(['/', '?', '#']);
    let (authority, path) = authority_and_path.split_at(start.unwrap_or(authority_and_path.len()));
    let path = path.split('#').next().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut lines = written.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let version = match lines.next() {
        Some(line) if line.ends_with(b"1.0") => "1.0",
        _ => "1.1",
    };
    let mut first = format!(
        "{} {slash}{path} HTTP/{version}\r\nHost: {authority}\r\n",
        head.method
    )
    .into_bytes();
    let fields: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line))
        })
        .collect();
    for (name, line) in &fields {
        if !is_hop_by_hop(name, &fields) {
            first.extend_from_slice(line);
            first.extend_from_slice(b"\r\n");
        }
    }
    first.extend_from_slice(b"Connection: close\r\n\r\n");
    first
}

fn is_hop_by_hop(name: &[u8], fields: &[(&[u8], &[u8])]) -> bool {
    let always: [&[u8]; 8] = [
        b"host",
        b"connection",
        b"proxy-connection",
        b"proxy-authorization",
        b"keep-alive",
        b"te",
        b"trailer",
        b"upgrade",
    ];
    if always.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return true;
    }
    // A Connection field must not remove the field with the length of the request body.
    if name.eq_ignore_ascii_case(b"content-length") {
        return false;
    }
    fields
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case(b"connection"))
        .any(|(field, line)| {
            line[field.len() + 1..]
                .split(|byte| *byte == b',')
                .any(|named| named.trim_ascii().eq_ignore_ascii_case(name))
        })
}

fn refuse(status: &str, why: impl std::fmt::Display) -> ClientInput {
    ClientInput::Refused(page(status, &why.to_string()))
}

fn page(status: &str, why: &str) -> Vec<u8> {
    let text = format!("runner: {why}\n");
    let mut answer = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n");
    // Writing to a string does not fail.
    write!(
        answer,
        "Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
    .unwrap_or_default();
    answer.into_bytes()
}

fn socks_reply(code: u8) -> Vec<u8> {
    // The bound address is not disclosed: 0.0.0.0:0.
    vec![socks::VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// The answer after the connection is established. The host itself answers an HTTP request.
pub(super) fn connected(protocol: ProxyProtocol) -> Vec<u8> {
    match protocol {
        ProxyProtocol::Socks => socks_reply(0),
        ProxyProtocol::Connect => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
        ProxyProtocol::Http => Vec::new(),
    }
}

/// The answer if the destination is allowed but unreachable.
pub(super) fn unreachable(
    protocol: ProxyProtocol,
    host: &str,
    port: u16,
    cause: UnreachableCause,
) -> Vec<u8> {
    match protocol {
        ProxyProtocol::Socks => socks_reply(SOCKS_UNREACHABLE),
        ProxyProtocol::Connect | ProxyProtocol::Http => page(
            "502 Bad Gateway",
            &format!(
                "{} is allowed but unreachable ({})",
                destination(host, port),
                cause.in_words()
            ),
        ),
    }
}

/// The answer to a denied request, with a hint.
pub(super) fn denied(
    protocol: ProxyProtocol,
    host: &str,
    port: u16,
    reason: DenialReason,
) -> Vec<u8> {
    if protocol == ProxyProtocol::Socks {
        return socks_reply(SOCKS_DENIED);
    }
    let entry = destination(host, port);
    let why = match reason {
        DenialReason::NameNotAllowed | DenialReason::IpLiteral => format!(
            "{entry} is not in network.egress; add it there, or run with --allow-net {entry}"
        ),
        DenialReason::PortNotAllowed => format!(
            "{host} is in network.egress only at other ports; add {entry} there, or run with \
             --allow-net {entry}"
        ),
        DenialReason::ResolvesToPrivate => format!(
            "{host} is allowed but has no public address; the host policy can open addresses in \
             egress.private_ranges"
        ),
        DenialReason::Limit => format!("{entry}: a limit of this run was reached"),
        DenialReason::SniMismatch
        | DenialReason::NoSni
        | DenialReason::NotTls
        | DenialReason::HostMismatch
        | DenialReason::Ech
        | DenialReason::PortNotCaptured
        | DenialReason::Protocol => {
            format!("{entry} was denied ({})", reason.row().code)
        }
    };
    page("403 Forbidden", &why)
}

/// `HOST:PORT` as in the allowlist. An IPv6 address gets brackets, and quotes for YAML and shells.
fn destination(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("'[{host}]:{port}'")
    } else {
        format!("{host}:{port}")
    }
}

/// Returns a printable form of an invalid name, shortened. Escapes non-ASCII bytes, since letters of
/// other alphabets can look like ASCII letters.
pub(super) fn escape_name(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 128;
    let bytes = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use spec::host_name::HostName;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    fn request(bytes: &[u8]) -> ProxyRequest {
        match parse(&PERMIT, bytes, false) {
            ClientInput::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn status(bytes: &str) -> String {
        match parse(&PERMIT, bytes.as_bytes(), false) {
            ClientInput::Refused(answer) => String::from_utf8_lossy(&answer[9..12]).into_owned(),
            other => panic!("{bytes:?}: {other:?}"),
        }
    }

    #[test]
    fn a_request_is_rewritten_to_the_form_that_the_host_expects() {
        let request = request(
            b"POST http://a.com:8080?x=1#y HTTP/1.1\r\nHost: a.com:8080\r\nX-Own: 1\r\nUser: u\r\n\
              Proxy-Authorization: secret\r\nConnection: keep-alive, x-own, content-length\r\n\
              Content-Length: 5\r\n\r\nabcdefgh",
        );
        assert_eq!(request.protocol, ProxyProtocol::Http);
        assert_eq!((request.port, request.limit), (8080, Some(0)));
        assert_eq!(
            String::from_utf8_lossy(&request.first),
            "POST /?x=1 HTTP/1.1\r\nHost: a.com:8080\r\nUser: u\r\nContent-Length: 5\r\n\
             Connection: close\r\n\r\nabcde"
        );
    }

    /// H-12: the message for each case.
    #[test]
    fn connect_needs_a_host_or_address_with_a_port() {
        let tunnel = request(b"CONNECT a.com:443 HTTP/1.1\r\n\r\nhello");
        assert_eq!((tunnel.port, tunnel.first.as_slice()), (443, &b"hello"[..]));
        let literal = request(b"CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\n");
        let address = "2001:db8::1".parse().expect("one");
        assert_eq!(literal.host, Ok(Host::Address(address)));
        for (text, code) in [
            ("CONNECT a.com HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT a.com\0.evil.com:443 HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT 0x7f000001:443 HTTP/1.1\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: a.com\r\n\r\n", "400"),
            ("GET https://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n", "400"),
            ("GET http://a.com/ HTTP/1.1\r\nHost: b.com\r\n\r\n", "400"),
            ("GET http://a.com/ x HTTP/1.1\r\nHost: a.com\r\n\r\n", "400"),
            (
                "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\n\
                 Content-Length: 1\r\n\r\n",
                "400",
            ),
            (
                "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\n\
                 Transfer-Encoding: chunked\r\n\r\n",
                "400",
            ),
            (
                "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n",
                "501",
            ),
            ("\x04\x01\0", "400"),
        ] {
            assert_eq!(status(text), code, "{text:?}");
        }
        let long = format!("GET http://a.com/{} HTTP/1.1\r\n", "a".repeat(17_000));
        assert_eq!(status(&long), "431");
    }

    #[test]
    fn the_flag_in_an_answer_can_be_pasted() {
        for (host, flag) in [
            ("a.com", "--allow-net a.com:443\n"),
            ("2001:db8::1", "--allow-net '[2001:db8::1]:443'\n"),
        ] {
            let reason = DenialReason::IpLiteral;
            let page = denied(ProxyProtocol::Connect, host, 443, reason);
            assert!(
                page.ends_with(flag.as_bytes()),
                "{}",
                String::from_utf8_lossy(&page)
            );
        }
    }

    proptest! {
        #[test]
        fn a_forwarded_request_names_the_same_host_and_is_a_single_request(
            method in prop::sample::select(vec!["GET", "POST", "OPTIONS"]),
            path in prop::sample::select(vec!["", "/", "/a?b", "?b", "#c", "//b.com/", "/http://b.com/"]),
            port in prop::sample::select(vec!["", ":80", ":8080"]),
            fields in prop::collection::vec(prop::sample::select(vec![
                "Content-Length: 4", "Connection: content-length, host", "Connection: x", "X: y",
                "Proxy-Connection: keep-alive", "TE: trailers", "X-Host: b.com", "connection:",
            ]), 0..4),
            tail in "[a-z\r\n]{0,8}",
        ) {
            let mut text = format!("{method} http://A.com{port}{path} HTTP/1.1\r\nHost: a.com{port}\r\n");
            for field in fields {
                text.push_str(field);
                text.push_str("\r\n");
            }
            text.push_str("\r\n");
            let head_bytes = text.len();
            text.push_str(&tail);
            if let ClientInput::Request(request) = parse(&PERMIT, text.as_bytes(), false) {
                let forwarded = http_head::parse(&PERMIT, &request.first);
                let Ok(Parsed::Complete(head)) = forwarded else {
                    return Err(TestCaseError::fail(format!("{forwarded:?}")));
                };
                prop_assert_eq!(&head.host, &Host::Name(HostName::parse(b"a.com").expect("a name")));
                prop_assert_eq!(Ok(head.host), request.host);
                prop_assert_eq!(head.port.unwrap_or(80), request.port);
                prop_assert!(head.target.starts_with('/'));
                let body_bytes = (request.first.len() - head.bytes) as u64 + request.limit.unwrap_or(0);
                prop_assert_eq!(head.content_bytes.unwrap_or(0), body_bytes);
                prop_assert!(request.first.len() - head.bytes <= text.len() - head_bytes);
            } else {
                prop_assert!(text.matches("Content-Length").count() > 1, "{}", text);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes: Vec<u8>, is_greeted: bool, start in 0..4_usize) {
            let start = [
                &b""[..],
                b"\x05\x01\x00\x03",
                b"GET http://a.com/ HTTP/1.1\r\nHost: a.com\r\n",
                b"POST http://a.com HTTP/1.1\r\nHost: a.com\r\nContent-Length: 3\r\n\r\n",
            ][start];
            let bytes = [start, &bytes].concat();
            if let ClientInput::Request(request) = parse(&PERMIT, &bytes, is_greeted) {
                prop_assert!(request.first.len() <= bytes.len() + 64);
            }
        }
    }
}
