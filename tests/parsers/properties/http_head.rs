//! The head of an HTTP/1 request, compared with httparse, and with `http` for the target.

use super::{PERMIT, incremental};
use egress::host::Host;
use egress::http_head::{self, Head};
use egress::parsed::Parsed;
use spec::host_name::HostName;

/// An accepted head is the same request for the same host to an established parser.
pub(crate) fn check(bytes: &[u8]) {
    let ours = incremental(
        bytes,
        |bytes| http_head::parse(&PERMIT, bytes),
        |verdict| *verdict == Ok(Parsed::Incomplete),
    );
    match ours {
        Ok(Parsed::Complete(head)) => check_head(bytes, &head),
        Ok(Parsed::Incomplete) => assert!(bytes.len() < http_head::HEAD_BYTES_MAX),
        Err(_) => (),
    }
}

fn check_head(bytes: &[u8], head: &Head) {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    let mut fields = vec![httparse::EMPTY_HEADER; lines];
    let mut request = httparse::Request::new(&mut fields);
    let read = request.parse(bytes).expect("a request");
    assert_eq!(read, httparse::Status::Complete(head.bytes));
    assert!(head.bytes <= http_head::HEAD_BYTES_MAX);
    assert_eq!(request.method, Some(head.method.as_str()));
    assert_eq!(request.path, Some(head.target.as_str()));
    let values = |name: &str| -> Vec<String> {
        let is_named = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name);
        let found = request.headers.iter().filter(is_named);
        found
            .map(|field| String::from_utf8_lossy(field.value).trim().to_owned())
            .collect()
    };
    let lengths = values("content-length");
    let length = head.content_bytes.map(|bytes| bytes.to_string());
    let without_zeros = |text: &String| match text.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    };
    assert!(lengths.iter().map(without_zeros).eq(length));
    assert_eq!(
        head.has_transfer_encoding,
        !values("transfer-encoding").is_empty()
    );
    assert!(!head.has_transfer_encoding || head.content_bytes.is_none());
    let hosts = values("host");
    assert!(hosts.len() <= 1, "two hosts");
    for host in &hosts {
        check_same(head, host);
    }
    let names_host = !head.target.starts_with('/') && head.target != "*";
    assert!(names_host || !hosts.is_empty(), "no host at all");
    if !names_host {
        return;
    }
    // If the other parser of targets refuses one, no parser reads another host in it.
    if let Some(authority) = head
        .target
        .parse::<http::Uri>()
        .ok()
        .and_then(|uri| uri.into_parts().authority)
    {
        check_same(head, authority.as_str());
    }
}

/// The host of `authority`, parsed in the simplest way, equals the host of the head.
fn check_same(head: &Head, authority: &str) {
    let end = match authority.rfind(']') {
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    match &head.host {
        Host::Name(name) => assert_eq!(HostName::parse(host.as_bytes()).as_ref(), Ok(name)),
        Host::Address(address) => {
            let text = host.trim_start_matches('[').trim_end_matches(']');
            assert_eq!(text.parse().as_ref(), Ok(address));
        }
    }
    if let Some(port) = port.strip_prefix(':') {
        let usual = head.port.or(Some(80)).into_iter().chain([80, 443]);
        let port: u16 = port.parse().expect("a port");
        assert!(usual.into_iter().any(|usual| usual == port));
    }
}
