//! The host that the first request of an HTTP/1 connection names. Pure; RFC 9112.
//!
//! Strict where readers have been known to differ: exactly one Host, no folded lines, no bare CR
//! or LF, no space before a colon, no control characters, no two lengths of one body.

use crate::spec::host_name::HostName;

/// Longest head, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// What the bytes so far say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Too little to say anything.
    More,
    /// The whole head was read.
    Head(Head),
}

/// A request's head, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What the request does: `GET`, `CONNECT`.
    pub method: String,
    /// The host of the Host header; the target's own where the target names one, which must be
    /// the same.
    pub host: HostName,
    /// The port, where one is written.
    pub port: Option<u16>,
    /// The target as it stands.
    pub target: String,
    /// Bytes of the head, its empty line included.
    pub bytes: usize,
}

/// Why the bytes are not what is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// No request of HTTP/1.
    #[error("this is not a request of HTTP/1")]
    NotHttp,
    /// More than 16 KiB.
    #[error("the head of the request has more than 16 KiB")]
    TooLong,
    /// A line that readers read differently.
    #[error("the head of the request is malformed")]
    Malformed,
    /// No Host, two, or one that is no host name.
    #[error("the request does not name one host")]
    BadHost,
    /// The target names another host than the Host header.
    #[error("the target of the request and its Host header name two hosts")]
    TwoHosts,
}

/// Reads what has arrived so far.
///
/// # Errors
/// [`HeadError`]: no further byte can make it acceptable.
pub fn parse(bytes: &[u8]) -> Result<Progress, HeadError> {
    let looked_at = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let Some(end) = find(looked_at, b"\r\n\r\n") else {
        check_start(looked_at)?;
        if HEAD_BYTES_MAX <= bytes.len() {
            return Err(HeadError::TooLong);
        }
        return Ok(Progress::More);
    };
    let mut lines = split_lines(&looked_at[..end]);
    let request = lines.next().ok_or(HeadError::NotHttp)?;
    let (method, target) = read_request_line(request)?;
    let mut hosts = Vec::new();
    let mut has_length = false;
    let mut has_encoding = false;
    for line in lines {
        let (name, value) = read_field(line)?;
        if name.eq_ignore_ascii_case("host") {
            hosts.push(value);
        }
        // Two lengths: two readers see two ends.
        if name.eq_ignore_ascii_case("content-length") {
            if has_length {
                return Err(HeadError::Malformed);
            }
            has_length = true;
        }
        has_encoding |= name.eq_ignore_ascii_case("transfer-encoding");
    }
    if has_length && has_encoding {
        return Err(HeadError::Malformed);
    }
    let [host] = hosts.as_slice() else {
        return Err(HeadError::BadHost);
    };
    let (host, port) = read_authority(host)?;
    if let Some(authority) = authority_of(method, target)
        && read_authority(authority)? != (host.clone(), port)
    {
        return Err(HeadError::TwoHosts);
    }
    Ok(Progress::Head(Head {
        method: method.to_owned(),
        host,
        port,
        target: target.to_owned(),
        bytes: end + 4,
    }))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// What cannot become a request is known before the head is whole: a method is capital letters.
fn check_start(bytes: &[u8]) -> Result<(), HeadError> {
    let method = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
    if 32 < method.len()
        || !method
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || *byte == b'-')
    {
        return Err(HeadError::NotHttp);
    }
    Ok(())
}

fn split_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(head);
    std::iter::from_fn(move || {
        let text = rest?;
        match find(text, b"\r\n") {
            Some(at) => {
                rest = Some(&text[at + 2..]);
                Some(&text[..at])
            }
            None => {
                rest = None;
                Some(text)
            }
        }
    })
}

fn text_of(line: &[u8]) -> Option<&str> {
    let plain = line
        .iter()
        .all(|byte| *byte == b'\t' || (0x20..0x7f).contains(byte) || 0x7f < *byte);
    if !plain {
        return None;
    }
    // Values may hold bytes beyond ASCII; nothing that is compared here may.
    str::from_utf8(line).ok()
}

fn read_request_line(line: &[u8]) -> Result<(&str, &str), HeadError> {
    let text = text_of(line).ok_or(HeadError::NotHttp)?;
    let mut words = text.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::NotHttp);
    };
    check_start(method.as_bytes())?;
    let plain_target = target.bytes().all(|byte| byte.is_ascii_graphic());
    if method.is_empty() || target.is_empty() || !plain_target {
        return Err(HeadError::NotHttp);
    }
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return Err(HeadError::NotHttp);
    }
    Ok((method, target))
}

fn read_field(line: &[u8]) -> Result<(&str, &str), HeadError> {
    let text = text_of(line).ok_or(HeadError::Malformed)?;
    let (name, value) = text.split_once(':').ok_or(HeadError::Malformed)?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(HeadError::Malformed);
    }
    Ok((name, value.trim_matches([' ', '\t'])))
}

/// The host that the target itself names: `http://host/…`, or the whole of it for CONNECT.
fn authority_of<'target>(method: &str, target: &'target str) -> Option<&'target str> {
    if method == "CONNECT" {
        return Some(target);
    }
    if target.starts_with('/') || target == "*" {
        return None;
    }
    let rest = match target.split_once("://") {
        Some((_, rest)) => rest,
        // No form that a request may have: read as a host, it is compared and differs.
        None => target,
    };
    Some(rest.split(['/', '?', '#']).next().unwrap_or(rest))
}

fn read_authority(text: &str) -> Result<(HostName, Option<u16>), HeadError> {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|_| digits);
            (host, Some(number.ok_or(HeadError::BadHost)?))
        }
        None => (text, None),
    };
    let name = HostName::parse(host.as_bytes()).map_err(|_not_one| HeadError::BadHost)?;
    Ok((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(text: &str) -> Result<Head, HeadError> {
        match parse(text.as_bytes())? {
            Progress::Head(head) => Ok(head),
            Progress::More => panic!("{text:?} is not whole"),
        }
    }

    #[test]
    fn the_host_is_found_whole_and_in_single_bytes() {
        let text = "GET /a?b HTTP/1.1\r\nAccept: */*\r\nhOsT:  API.example.com:80 \r\n\r\nrest";
        let head = head(text).expect("a head");
        assert_eq!(head.host.as_str(), "api.example.com");
        assert_eq!((head.port, head.method.as_str()), (Some(80), "GET"));
        assert_eq!(&text[head.bytes..], "rest");
        for end in 0..head.bytes {
            assert_eq!(parse(&text.as_bytes()[..end]), Ok(Progress::More), "{end}");
        }
    }

    #[test]
    fn a_target_that_names_a_host_names_the_same() {
        let absolute = "GET http://a.com/x HTTP/1.1\r\nHost: a.com\r\n\r\n";
        assert_eq!(head(absolute).expect("a head").host.as_str(), "a.com");
        let connect = "CONNECT a.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n";
        assert_eq!(head(connect).expect("a head").port, Some(443));
        for text in [
            "GET http://evil.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET http://a.com:81/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET evil.com HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "CONNECT evil.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n",
        ] {
            assert_eq!(head(text), Err(HeadError::TwoHosts), "{text:?}");
        }
        let user = "GET http://a.com@evil.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n";
        assert_eq!(head(user), Err(HeadError::BadHost));
    }

    #[test]
    fn what_readers_read_differently_is_refused() {
        use HeadError::{BadHost, Malformed, NotHttp};
        for (text, error) in [
            ("GET / HTTP/1.1\r\n\r\n", BadHost),
            (
                "GET / HTTP/1.1\r\nHost: a.com\r\nHost: a.com\r\n\r\n",
                BadHost,
            ),
            ("GET / HTTP/1.1\r\nHost: a.com, b.com\r\n\r\n", BadHost),
            ("GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", BadHost),
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
            ("GET  / HTTP/1.1\r\nHost: a.com\r\n\r\n", NotHttp),
            ("GET / HTTP/2.0\r\nHost: a.com\r\n\r\n", NotHttp),
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
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            drop(parse(&bytes));
        }

        #[test]
        fn a_damaged_head_is_read_without_a_panic(at in 0_usize..60, byte: u8) {
            let mut bytes = b"GET http://a.com/x HTTP/1.1\r\nHost: a.com\r\nA: b\r\n\r\n".to_vec();
            let length = bytes.len();
            bytes[at % length] = byte;
            drop(parse(&bytes));
        }
    }
}
