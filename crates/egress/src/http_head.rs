//! The host that the first request of an HTTP/1 connection names. Pure; RFC 9112.
//!
//! Strict where parsers are known to differ: one Host, no folded lines, no bare CR or LF, no space before
//! a colon, no control characters, one body length only, a target in one of the four forms. Later bytes do
//! not change a refusal.

use std::net::IpAddr;

use crate::host::Host;
use crate::parsed::Parsed;
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

/// Maximum size of a head, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a method, in bytes: the longest registered method has 17.
const METHOD_BYTES_MAX: usize = 32;
const END: &[u8] = b"\r\n\r\n";

/// The relevant parts of a request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub method: String,
    /// The host of the Host header and, if the target names one, of the target: both are equal.
    pub host: Host,
    /// The port, if stated. CONNECT always has one.
    pub port: Option<u16>,
    pub target: String,
    /// Size of the body, in bytes, if Content-Length states it.
    pub content_bytes: Option<u64>,
    /// Whether the request has Transfer-Encoding; never together with `content_bytes`.
    pub has_transfer_encoding: bool,
    /// Size of the head, in bytes, with the empty line.
    pub bytes: usize,
}

/// Why the bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("not an HTTP/1 request")]
    NotHttp,
    #[error("the request head has more than 16 KiB")]
    TooLong,
    /// A line that parsers read differently.
    #[error("the request head is malformed")]
    Malformed,
    /// No Host, two, or an invalid one.
    #[error("the request does not name exactly one host")]
    BadHost,
    #[error("the request target and the Host header name different hosts")]
    TwoHosts,
}

/// Parses the bytes received so far.
///
/// # Errors
/// [`HeadError`]: no further byte can make the input acceptable.
pub fn parse(_permit: &ParsePermit, bytes: &[u8]) -> Result<Parsed<Head>, HeadError> {
    let start = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let end = find(start, END);
    // Partial and complete heads get the same two checks in the same order. A byte that fails the second
    // check comes after the method, so the first check is complete by then: verdicts do not change.
    let head = &start[..end.map_or(start.len(), |at| at + END.len())];
    check_method(head)?;
    check_bytes(head)?;
    let Some(end) = end else {
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(HeadError::TooLong);
        }
        return Ok(Parsed::Incomplete);
    };
    let mut lines = split_lines(&start[..end]);
    let line = read_request_line(lines.next().ok_or(HeadError::NotHttp)?)?;
    let fields = read_fields(lines)?;
    if fields.has_transfer_encoding && (fields.content_bytes.is_some() || line.is_1_0) {
        return Err(HeadError::Malformed);
    }
    let (host, port) = read_host(&line, &fields)?;
    Ok(Parsed::Complete(Head {
        method: line.method.to_owned(),
        host,
        port,
        target: line.target.to_owned(),
        content_bytes: fields.content_bytes,
        has_transfer_encoding: fields.has_transfer_encoding,
        bytes: head.len(),
    }))
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}

/// Checks the method, which is in capital letters, so that other protocols are refused at their first
/// bytes.
fn check_method(head: &[u8]) -> Result<(), HeadError> {
    let method = head.split(|byte| *byte == b' ').next().unwrap_or_default();
    if method.len() > METHOD_BYTES_MAX
        || !method
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || *byte == b'-')
    {
        return Err(HeadError::NotHttp);
    }
    Ok(())
}

/// Refuses control characters, and CR and LF except at the end of a line.
fn check_bytes(head: &[u8]) -> Result<(), HeadError> {
    let mut before = 0;
    for byte in head {
        let is_allowed = match *byte {
            b'\n' => before == b'\r',
            _ if before == b'\r' => false,
            b'\r' | b'\t' => true,
            byte => byte >= 0x20 && byte != 0x7f,
        };
        if !is_allowed {
            return Err(HeadError::Malformed);
        }
        before = *byte;
    }
    Ok(())
}

fn split_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(head);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = find(text, b"\r\n");
        rest = end.map(|at| &text[at + 2..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

struct RequestLine<'head> {
    method: &'head str,
    target: &'head str,
    is_1_0: bool,
}

fn read_request_line(line: &[u8]) -> Result<RequestLine<'_>, HeadError> {
    let text = str::from_utf8(line).map_err(|_not_text| HeadError::NotHttp)?;
    let mut words = text.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::NotHttp);
    };
    if method.is_empty() || target.is_empty() || target.contains('\t') {
        return Err(HeadError::NotHttp);
    }
    let is_1_0 = match version {
        "HTTP/1.0" => true,
        "HTTP/1.1" => false,
        _ => return Err(HeadError::NotHttp),
    };
    Ok(RequestLine {
        method,
        target,
        is_1_0,
    })
}

#[derive(Default)]
struct Fields<'head> {
    host: Option<&'head [u8]>,
    content_bytes: Option<u64>,
    has_transfer_encoding: bool,
}

fn read_fields<'head>(
    lines: impl Iterator<Item = &'head [u8]>,
) -> Result<Fields<'head>, HeadError> {
    let mut fields = Fields::default();
    for line in lines {
        let (name, value) = read_field(line)?;
        if name.eq_ignore_ascii_case(b"host") && fields.host.replace(value).is_some() {
            return Err(HeadError::BadHost);
        }
        // With two lengths, two parsers see different ends of the body.
        if name.eq_ignore_ascii_case(b"content-length")
            && fields.content_bytes.replace(read_length(value)?).is_some()
        {
            return Err(HeadError::Malformed);
        }
        fields.has_transfer_encoding |= name.eq_ignore_ascii_case(b"transfer-encoding");
    }
    Ok(fields)
}

/// The name of a field, and its value without surrounding white space. The value may contain non-ASCII
/// bytes, but no compared value may.
fn read_field(line: &[u8]) -> Result<(&[u8], &[u8]), HeadError> {
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = line.split_at(colon.ok_or(HeadError::Malformed)?);
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(token) {
        return Err(HeadError::Malformed);
    }
    // Skips the colon and trims: a line contains no other ASCII white space here.
    Ok((name, value[1..].trim_ascii()))
}

fn read_length(value: &[u8]) -> Result<u64, HeadError> {
    // `parse` alone accepts a sign.
    let digits = value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value)
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse().ok())
        .ok_or(HeadError::Malformed)
}

/// The host on which the Host header and the target agree.
fn read_host(
    line: &RequestLine<'_>,
    fields: &Fields<'_>,
) -> Result<(Host, Option<u16>), HeadError> {
    let header = fields.host.map(read_authority).transpose()?;
    let Some((authority, default_port)) = authority_of(line)? else {
        return header.ok_or(HeadError::BadHost);
    };
    let (host, port) = read_authority(authority.as_bytes())?;
    let is_connect = default_port.is_none();
    if is_connect && port.is_none() {
        return Err(HeadError::BadHost);
    }
    let Some((header_host, header_port)) = header else {
        // HTTP/1.0 requests and CONNECT requests of some clients have no Host.
        return if line.is_1_0 || is_connect {
            Ok((host, port))
        } else {
            Err(HeadError::BadHost)
        };
    };
    let default_port = default_port.or(port);
    if header_host != host || header_port.or(default_port) != port.or(default_port) {
        return Err(HeadError::TwoHosts);
    }
    Ok((host, port.or(header_port)))
}

/// The host and port that the target names (`http://host/…`, or the whole target of CONNECT), and the
/// default port of its scheme.
fn authority_of<'head>(
    line: &RequestLine<'head>,
) -> Result<Option<(&'head str, Option<u16>)>, HeadError> {
    if line.method == "CONNECT" {
        return Ok(Some((line.target, None)));
    }
    if line.target.starts_with('/') || (line.target == "*" && line.method == "OPTIONS") {
        return Ok(None);
    }
    // Not a valid form of a target: parsers read it differently.
    let (scheme, rest) = line.target.split_once("://").ok_or(HeadError::Malformed)?;
    let default_port = if scheme.eq_ignore_ascii_case("http") {
        80
    } else if scheme.eq_ignore_ascii_case("https") {
        443
    } else {
        return Err(HeadError::Malformed);
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    Ok(Some((authority, Some(default_port))))
}

fn read_authority(text: &[u8]) -> Result<(Host, Option<u16>), HeadError> {
    let text = str::from_utf8(text).map_err(|_not_text| HeadError::BadHost)?;
    let bracket = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, after) = match bracket {
        Some((address, after)) => {
            let address = address.parse().map_err(|_invalid| HeadError::BadHost)?;
            (Host::Address(IpAddr::V6(address)), after)
        }
        None => {
            let (host, after) = text.split_at(text.find(':').unwrap_or(text.len()));
            let host = match host.parse() {
                Ok(address) => Host::Address(IpAddr::V4(address)),
                Err(_) => Host::Name(
                    HostName::parse(host.as_bytes()).map_err(|_invalid| HeadError::BadHost)?,
                ),
            };
            (host, after)
        }
    };
    if after.is_empty() {
        return Ok((host, None));
    }
    let digits = after.strip_prefix(':').ok_or(HeadError::BadHost)?;
    // `parse` alone accepts a sign, and leading zeros, which other parsers read as octal.
    let is_plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|_| is_plain);
    Ok((host, Some(port.ok_or(HeadError::BadHost)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<Parsed<Head>, HeadError> {
        super::parse(&ParsePermit::for_trusted_text(), bytes)
    }

    fn named(text: &str) -> Host {
        Host::Name(HostName::parse(text.as_bytes()).expect(text))
    }

    fn head(text: &str) -> Result<Head, HeadError> {
        match parse(text.as_bytes())? {
            Parsed::Complete(head) => Ok(head),
            Parsed::Incomplete => panic!("{text:?} is incomplete"),
        }
    }

    #[test]
    fn the_host_is_found_in_partial_input() {
        let text = "GET /a?b HTTP/1.1\r\nAccept: */*\r\nhOsT:  API.example.com:80 \r\n\r\nrest";
        let head = head(text).expect("a head");
        assert_eq!(head.host, named("api.example.com"));
        assert_eq!((head.port, head.method.as_str()), (Some(80), "GET"));
        assert_eq!(&text[head.bytes..], "rest");
        for end in 0..head.bytes {
            assert_eq!(
                parse(&text.as_bytes()[..end]),
                Ok(Parsed::Incomplete),
                "{end}"
            );
        }
    }

    #[test]
    fn the_target_and_the_host_header_must_name_the_same_host() {
        let absolute = "GET http://a.com/x HTTP/1.1\r\nHost: a.com\r\n\r\n";
        assert_eq!(head(absolute).expect("a head").host, named("a.com"));
        let connect = "CONNECT a.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n";
        assert_eq!(head(connect).expect("a head").port, Some(443));
        for text in [
            "GET http://evil.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET http://a.com:81/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "CONNECT evil.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n",
        ] {
            assert_eq!(head(text), Err(HeadError::TwoHosts), "{text:?}");
        }
        let user = "GET http://a.com@evil.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n";
        assert_eq!(head(user), Err(HeadError::BadHost));
    }

    #[test]
    fn the_default_port_may_be_omitted() {
        for (text, port) in [
            ("GET http://a.com:80/ HTTP/1.1\r\nHost: a.com\r\n\r\n", 80),
            ("GET http://a.com/ HTTP/1.1\r\nHost: a.com:80\r\n\r\n", 80),
            ("GET HTTPS://a.com HTTP/1.1\r\nHost: a.com:443\r\n\r\n", 443),
            ("CONNECT a.com:99 HTTP/1.1\r\nHost: a.com\r\n\r\n", 99),
        ] {
            assert_eq!(head(text).expect(text).port, Some(port), "{text:?}");
        }
        let other = "GET https://a.com/ HTTP/1.1\r\nHost: a.com:80\r\n\r\n";
        assert_eq!(head(other), Err(HeadError::TwoHosts));
    }

    #[test]
    fn the_target_names_the_host_if_no_host_header_is_required() {
        for text in [
            "CONNECT a.com:443 HTTP/1.0\r\n\r\n",
            "CONNECT a.com:443 HTTP/1.1\r\n\r\n",
            "GET http://a.com/ HTTP/1.0\r\n\r\n",
        ] {
            assert_eq!(head(text).expect(text).host, named("a.com"), "{text:?}");
        }
        for text in [
            "GET http://a.com/ HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "CONNECT a.com HTTP/1.1\r\nHost: a.com:443\r\n\r\n",
        ] {
            assert_eq!(head(text), Err(HeadError::BadHost), "{text:?}");
        }
    }

    #[test]
    fn an_address_is_distinguished_from_a_name() {
        let text = "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n";
        let host = head(text).expect("a head").host;
        assert_eq!(host, Host::Address([10, 0, 0, 1].into()));
        let text = "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:DB8:0::1]:443\r\n\r\n";
        let head_read = head(text).expect("a head");
        assert_eq!(
            head_read.host,
            Host::Address("2001:db8::1".parse().expect("v6"))
        );
        assert_eq!(head_read.port, Some(443));
        for host in [
            "[::1",
            "::1",
            "[::1]x",
            "[::1]:",
            "[a.com]",
            "0x7f000001",
            "127.1",
            "a.com:",
            "a.com:+1",
            "a.com:65536",
            "a.com:1:2",
            "a.com/",
            "[fe80::1%25eth0]",
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(head(&text), Err(HeadError::BadHost), "{host}");
        }
    }

    #[test]
    fn an_ambiguous_content_length_is_refused() {
        let with = |fields: &str| {
            head(&format!(
                "POST / HTTP/1.1\r\nHost: a.com\r\n{fields}\r\n\r\n"
            ))
        };
        let plain = with("Content-Length: 3").expect("a head");
        assert_eq!(
            (plain.content_bytes, plain.has_transfer_encoding),
            (Some(3), false)
        );
        let chunked = with("Transfer-Encoding: chunked").expect("a head");
        assert_eq!(
            (chunked.content_bytes, chunked.has_transfer_encoding),
            (None, true)
        );
        for fields in [
            "Content-Length: +3",
            "Content-Length: -3",
            "Content-Length: 3, 3",
            "Content-Length:",
            "Content-Length: 0x3",
            "Content-Length: 99999999999999999999",
        ] {
            assert_eq!(with(fields), Err(HeadError::Malformed), "{fields}");
        }
    }

    #[test]
    fn invalid_bytes_are_refused_before_the_head_is_complete() {
        for text in [
            &b"GET / HTTP/1.1\n"[..],
            b"GET / HTTP/1.1\rX",
            b"GET / HTTP/1.1\r\r",
            b"GET /\0",
            b"GET / HTTP/1.1\r\nHost: a.com\x7f",
        ] {
            assert_eq!(parse(text), Err(HeadError::Malformed), "{text:?}");
        }
        assert_eq!(parse(b"GET / HTTP/1.1\r"), Ok(Parsed::Incomplete));
        assert_eq!(parse(b"\r"), Err(HeadError::NotHttp));
        assert_eq!(parse(&[b'A'; 33]), Err(HeadError::NotHttp));
    }

    #[test]
    fn a_value_may_contain_non_ascii_bytes_but_a_host_may_not() {
        let latin = b"GET /\xc3\xbc HTTP/1.1\r\nHost: a.com\r\nX: \xfc\r\n\r\n";
        assert!(matches!(parse(latin), Ok(Parsed::Complete(_))));
        let host = b"GET / HTTP/1.1\r\nHost: a\xfc.com\r\n\r\n";
        assert_eq!(parse(host), Err(HeadError::BadHost));
    }

    #[test]
    fn ambiguous_input_is_refused() {
        use HeadError::{BadHost, Malformed, NotHttp};
        for (text, error) in [
            ("GET / HTTP/1.1\r\n\r\n", BadHost),
            (
                "GET / HTTP/1.1\r\nHost: a.com\r\nHost: a.com\r\n\r\n",
                BadHost,
            ),
            ("GET / HTTP/1.1\r\nHost: a.com, b.com\r\n\r\n", BadHost),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", BadHost),
            ("GET / HTTP/1.1\r\nHost: a.com\r\n evil\r\n\r\n", Malformed),
            ("GET / HTTP/1.1\r\nHost : a.com\r\n\r\n", Malformed),
            ("GET / HTTP/1.1\r\nHost: a.com\nX: y\r\n\r\n", Malformed),
            ("GET / HTTP/1.1\r\nHost: a.com\rX: y\r\n\r\n", Malformed),
            ("GET / HTTP/1.1\r\nX\0: y\r\n\r\n", Malformed),
            (
                "GET / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Malformed,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n",
                Malformed,
            ),
            ("GET evil.com HTTP/1.1\r\nHost: a.com\r\n\r\n", Malformed),
            ("GET a.com HTTP/1.1\r\nHost: a.com\r\n\r\n", Malformed),
            (
                "GET x/y://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
                Malformed,
            ),
            (
                "GET ftp://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
                Malformed,
            ),
            ("GET * HTTP/1.1\r\nHost: a.com\r\n\r\n", Malformed),
            (
                "GET / HTTP/1.0\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n",
                Malformed,
            ),
            ("GET  / HTTP/1.1\r\nHost: a.com\r\n\r\n", NotHttp),
            ("GET / HTTP/2.0\r\nHost: a.com\r\n\r\n", NotHttp),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", NotHttp),
            ("GET /\r\nHost: a.com\r\n\r\n", NotHttp),
            ("\r\n\r\n", NotHttp),
            ("get / HTTP/1.1\r\nHost: a.com\r\n\r\n", NotHttp),
        ] {
            assert_eq!(head(text), Err(error), "{text:?}");
        }
        assert_eq!(parse(b"\x16\x03\x01"), Err(NotHttp));
        assert_eq!(parse(b"SSH-2.0-x\r\n"), Err(NotHttp));
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(long.as_bytes()), Err(HeadError::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes: Vec<u8>) {
            drop(parse(&bytes));
        }

        #[test]
        fn a_damaged_head_is_parsed_without_a_panic(at in 0_usize..60, byte: u8) {
            let mut bytes = b"GET http://a.com/x HTTP/1.1\r\nHost: a.com\r\nA: b\r\n\r\n".to_vec();
            let length = bytes.len();
            bytes[at % length] = byte;
            drop(parse(&bytes));
        }
    }
}
