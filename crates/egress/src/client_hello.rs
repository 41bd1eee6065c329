//! The server name in the first message of a TLS connection. Pure; RFC 8446, RFC 6066.
//!
//! Reads only the records that carry the ClientHello, and its `server_name` extension. Input that two
//! parsers could read differently (two names, a duplicate extension, inconsistent lengths) is refused.

use crate::parsed::Parsed;
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

/// Maximum size of a ClientHello, in bytes, over all its records.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// Maximum size of the records that carry it, in bytes, with headers: enough for a typical ClientHello in
/// records of one byte each.
pub const WIRE_BYTES_MAX: usize = 2 * HELLO_BYTES_MAX;
/// Maximum size of a plaintext record (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
const RECORD_HEADER_BYTES: usize = 5;
const CONTENT_HANDSHAKE: u8 = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
/// Type and length of a handshake message.
const MESSAGE_HEADER_BYTES: usize = 4;
/// The major version of all versions of TLS.
const VERSION_MAJOR: u8 = 3;
/// The minor version of TLS 1.3, the last one.
const VERSION_MINOR_MAX: u8 = 4;
const EXTENSION_SERVER_NAME: u16 = 0;

/// The relevant parts of a ClientHello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The name in `server_name`; `None` without that extension.
    pub server_name: Option<HostName>,
    /// Whether it contains an encrypted inner ClientHello, whose name only the server can read.
    pub has_encrypted_hello: bool,
}

/// Why the bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    #[error("not TLS")]
    NotTls,
    #[error("the ClientHello has more than 16 KiB, or its records more than 32 KiB")]
    TooLong,
    /// Inconsistent lengths or a duplicate.
    #[error("the ClientHello is malformed")]
    Malformed,
    /// Not a valid name: an address, a NUL character, more than one name.
    #[error("the server name is not exactly one host name")]
    BadName,
}

/// Parses the bytes received so far.
///
/// # Errors
/// [`HelloError`]: no further byte can make the input acceptable.
pub fn parse(_permit: &ParsePermit, bytes: &[u8]) -> Result<Parsed<ClientHello>, HelloError> {
    let start = &bytes[..bytes.len().min(WIRE_BYTES_MAX)];
    let parsed = read_records(start)?;
    if parsed == Parsed::Incomplete && bytes.len() >= WIRE_BYTES_MAX {
        return Err(HelloError::TooLong);
    }
    Ok(parsed)
}

/// Joins the payloads of the records until the ClientHello is complete.
fn read_records(bytes: &[u8]) -> Result<Parsed<ClientHello>, HelloError> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        // Checked byte by byte: the first byte already shows that input is not TLS.
        check_record_start(rest)?;
        let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Parsed::Incomplete);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // Empty handshake fragments are forbidden (RFC 8446, 5.1).
        if length == 0 || length > RECORD_BYTES_MAX {
            return Err(HelloError::NotTls);
        }
        let available = length.min(after.len());
        let before = message.len();
        message.extend_from_slice(&after[..available]);
        if let Some(kind) = message.first()
            && *kind != MESSAGE_CLIENT_HELLO
        {
            return Err(HelloError::NotTls);
        }
        if let Some([_, high, middle, low]) = message.first_chunk::<MESSAGE_HEADER_BYTES>().copied()
        {
            let body_bytes = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            let end = MESSAGE_HEADER_BYTES + body_bytes;
            if end > HELLO_BYTES_MAX {
                return Err(HelloError::TooLong);
            }
            // The record contains a second message, possibly another ClientHello.
            if before + length > end {
                return Err(HelloError::Malformed);
            }
            if let Some(hello) = message.get(MESSAGE_HEADER_BYTES..end) {
                return read_hello(hello).map(Parsed::Complete);
            }
        }
        if available < length {
            return Ok(Parsed::Incomplete);
        }
        rest = &after[length..];
    }
}

fn check_record_start(bytes: &[u8]) -> Result<(), HelloError> {
    let expected = [CONTENT_HANDSHAKE, VERSION_MAJOR];
    let differs = bytes
        .iter()
        .zip(expected)
        .any(|(found, byte)| *found != byte);
    if differs || bytes.get(2).is_some_and(|minor| *minor > VERSION_MINOR_MAX) {
        return Err(HelloError::NotTls);
    }
    Ok(())
}

struct Cursor<'bytes>(&'bytes [u8]);

impl<'bytes> Cursor<'bytes> {
    fn take(&mut self, count: usize) -> Result<&'bytes [u8], HelloError> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<usize, HelloError> {
        Ok(usize::from(self.take(1)?[0]))
    }

    fn two_bytes(&mut self) -> Result<u16, HelloError> {
        let two = self.take(2)?;
        Ok(u16::from_be_bytes([two[0], two[1]]))
    }

    /// A vector with a length prefix of one byte.
    fn short_vector(&mut self) -> Result<Self, HelloError> {
        let count = self.byte()?;
        self.take(count).map(Self)
    }

    /// A vector with a length prefix of two bytes.
    fn vector(&mut self) -> Result<Self, HelloError> {
        let count = usize::from(self.two_bytes()?);
        self.take(count).map(Self)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn read_hello(body: &[u8]) -> Result<ClientHello, HelloError> {
    let mut body = Cursor(body);
    // Version and random.
    body.take(2 + 32)?;
    if body.short_vector()?.0.len() > 32 {
        return Err(HelloError::Malformed);
    }
    let suites = body.vector()?.0.len();
    if suites == 0 || suites % 2 != 0 || body.short_vector()?.is_empty() {
        return Err(HelloError::Malformed);
    }
    let mut hello = ClientHello {
        server_name: None,
        has_encrypted_hello: false,
    };
    if body.is_empty() {
        return Ok(hello);
    }
    let mut extensions = body.vector()?;
    if !body.is_empty() {
        return Err(HelloError::Malformed);
    }
    let mut seen = Vec::new();
    while !extensions.is_empty() {
        let kind = extensions.two_bytes()?;
        let content = extensions.vector()?;
        if seen.contains(&kind) {
            return Err(HelloError::Malformed);
        }
        seen.push(kind);
        match kind {
            EXTENSION_SERVER_NAME => hello.server_name = Some(read_server_name(content)?),
            kind if is_encrypted_hello(kind) => hello.has_encrypted_hello = true,
            _ => (),
        }
    }
    Ok(hello)
}

/// Encrypted Client Hello (RFC 9849), its drafts, and its predecessor, the encrypted server name.
const fn is_encrypted_hello(kind: u16) -> bool {
    matches!(kind, 0xfe08..=0xfe0d | 0xff02..=0xff04 | 0xffce)
}

fn read_server_name(mut content: Cursor<'_>) -> Result<HostName, HelloError> {
    let mut list = content.vector()?;
    if !content.is_empty() {
        return Err(HelloError::Malformed);
    }
    // Type 0, host_name, is the only defined type; a second entry would be a second name.
    if list.byte()? != 0 {
        return Err(HelloError::BadName);
    }
    let name = list.vector()?;
    // RFC 6066: no trailing dot.
    if !list.is_empty() || name.0.ends_with(b".") {
        return Err(HelloError::BadName);
    }
    HostName::parse(name.0).map_err(|_invalid| HelloError::BadName)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<Parsed<ClientHello>, HelloError> {
        super::parse(&ParsePermit::for_trusted_text(), bytes)
    }

    fn vector(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short");
        [&length.to_be_bytes(), content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [kind.to_be_bytes().to_vec(), vector(content)].concat()
    }

    fn server_name(names: &[&[u8]]) -> Vec<u8> {
        let entries: Vec<u8> = names
            .iter()
            .flat_map(|name| [vec![0], vector(name)].concat())
            .collect();
        extension(0, &vector(&entries))
    }

    fn handshake(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend_from_slice(&[7; 32]);
        body.push(0);
        body.extend_from_slice(&vector(&[0x13, 0x01]));
        body.extend_from_slice(&[1, 0]);
        body.extend_from_slice(&vector(extensions));
        let length = u32::try_from(body.len()).expect("short").to_be_bytes();
        [&[1, length[1], length[2], length[3]], body.as_slice()].concat()
    }

    fn record(content: &[u8]) -> Vec<u8> {
        [vec![22, 3, 1], vector(content)].concat()
    }

    fn hello(names: &[&[u8]]) -> Vec<u8> {
        record(&handshake(&server_name(names)))
    }

    fn name_of(bytes: &[u8]) -> Option<String> {
        match parse(bytes) {
            Ok(Parsed::Complete(hello)) => hello.server_name.map(|name| name.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_name_is_found_in_partial_input_and_across_records() {
        let whole = hello(&[b"API.example.com"]);
        assert_eq!(name_of(&whole).as_deref(), Some("api.example.com"));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Ok(Parsed::Incomplete), "{end} bytes");
        }
        let message = handshake(&server_name(&[b"api.example.com"]));
        for cut in 1..message.len() {
            let split = [record(&message[..cut]), record(&message[cut..])].concat();
            assert_eq!(name_of(&split).as_deref(), Some("api.example.com"), "{cut}");
        }
    }

    #[test]
    fn a_hello_may_have_no_name_and_an_encrypted_hello_is_detected() {
        assert_eq!(name_of(&record(&handshake(&[]))), None);
        let both = [server_name(&[b"outer.example"]), extension(0xfe0d, b"x")].concat();
        match parse(&record(&handshake(&both))) {
            Ok(Parsed::Complete(hello)) => assert!(hello.has_encrypted_hello),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn drafts_of_the_encrypted_hello_are_distinguished_from_other_extensions() {
        for (kind, is_encrypted) in [
            (0xfe0d, true),
            (0xfe0a, true),
            (0xff03, true),
            (0xffce, true),
            (0x0a0a, false),
            (0xff01, false),
            (35, false),
        ] {
            let both = [server_name(&[b"a.com"]), extension(kind, b"x")].concat();
            match parse(&record(&handshake(&both))) {
                Ok(Parsed::Complete(hello)) => {
                    assert_eq!(hello.has_encrypted_hello, is_encrypted, "{kind:x}");
                }
                other => panic!("{kind:x}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_size_of_all_records_is_limited() {
        let of_one_byte =
            |message: &[u8]| -> Vec<u8> { message.chunks(1).flat_map(record).collect() };
        let padded = |bytes: usize| {
            let padding = extension(21, &vec![0; bytes]);
            handshake(&[server_name(&[b"a.com"]), padding].concat())
        };
        assert_eq!(
            name_of(&of_one_byte(&padded(5_000))).as_deref(),
            Some("a.com")
        );
        let long = of_one_byte(&padded(6_000));
        assert_eq!(parse(&long), Err(HelloError::TooLong));
        assert_eq!(parse(&long[..WIRE_BYTES_MAX - 1]), Ok(Parsed::Incomplete));
        assert_eq!(parse(&long[..WIRE_BYTES_MAX]), Err(HelloError::TooLong));
    }

    #[test]
    fn ambiguous_input_is_refused() {
        let twice = [server_name(&[b"a.com"]), server_name(&[b"b.com"])].concat();
        let mut long_inside = server_name(&[b"a.com"]);
        long_inside[5] += 1;
        let empty = extension(0, &vector(&[]));
        let mut zero_record = vec![22, 3, 1, 0, 0];
        zero_record.extend_from_slice(&hello(&[b"a.com"]));
        for (what, bytes, error) in [
            (
                "two names",
                hello(&[b"a.com", b"b.com"]),
                HelloError::BadName,
            ),
            (
                "an address",
                hello(&[b"93.184.216.34"]),
                HelloError::BadName,
            ),
            ("a NUL", hello(&[b"a.com\0.evil.com"]), HelloError::BadName),
            ("a dot at the end", hello(&[b"a.com."]), HelloError::BadName),
            ("an empty name", hello(&[b""]), HelloError::BadName),
            (
                "the extension twice",
                record(&handshake(&twice)),
                HelloError::Malformed,
            ),
            (
                "a length beyond",
                record(&handshake(&long_inside)),
                HelloError::Malformed,
            ),
            (
                "an empty list",
                record(&handshake(&empty)),
                HelloError::Malformed,
            ),
            (
                "another type of name",
                record(&handshake(&extension(0, &vector(&[1, 0, 1, b'a'])))),
                HelloError::BadName,
            ),
            (
                "another type of name behind it",
                record(&handshake(&extension(
                    0,
                    &vector(&[0, 0, 1, b'a', 1, 0, 1, b'b']),
                ))),
                HelloError::BadName,
            ),
            (
                "another hello in the record",
                record(&[handshake(&[]), handshake(&[])].concat()),
                HelloError::Malformed,
            ),
            ("an empty record", zero_record, HelloError::NotTls),
            ("SSH", b"SSH-2.0-x\r\n".to_vec(), HelloError::NotTls),
            ("HTTP", b"GET / HTTP/1.1\r\n".to_vec(), HelloError::NotTls),
            (
                "a record of SSL 2",
                vec![0x80, 0x2e, 1, 3, 1],
                HelloError::NotTls,
            ),
            (
                "another message",
                record(&[2, 0, 0, 1, 0]),
                HelloError::NotTls,
            ),
            ("too long", record(&[1, 0, 0x40, 0x01]), HelloError::TooLong),
        ] {
            assert_eq!(parse(&bytes), Err(error), "{what}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes: Vec<u8>) {
            drop(parse(&bytes));
        }

        #[test]
        fn a_damaged_hello_is_parsed_without_a_panic(at in 0_usize..90, byte: u8, cut in 0_usize..90) {
            let mut bytes = hello(&[b"api.example.com"]);
            let length = bytes.len();
            bytes[at % length] = byte;
            drop(parse(&bytes));
            drop(parse(&bytes[..cut % length]));
        }

        #[test]
        fn more_bytes_never_change_a_verdict(bytes: Vec<u8>, tail: Vec<u8>) {
            let start = [hello(&[b"a.com"]), bytes].concat();
            let verdict = parse(&start);
            if verdict != Ok(Parsed::Incomplete) {
                prop_assert_eq!(parse(&[start, tail].concat()), verdict);
            }
        }
    }
}
