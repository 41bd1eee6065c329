//! The first message of a TLS connection, compared with rustls.

use rustls::server::Acceptor;

use super::{PERMIT, incremental};
use egress::client_hello;
use egress::parsed::Parsed;

/// If rustls accepts a hello with a name, it is parsed with the same name or refused; never with
/// another or no name.
pub(crate) fn check(bytes: &[u8]) {
    let ours = incremental(
        bytes,
        |bytes| client_hello::parse(&PERMIT, bytes),
        |verdict| *verdict == Ok(Parsed::Incomplete),
    );
    match (&ours, their_name(bytes)) {
        (Ok(Parsed::Complete(hello)), Some(theirs)) => {
            let ours = hello.server_name.as_ref().map(ToString::to_string);
            assert_eq!(ours, theirs.map(|name| name.to_ascii_lowercase()));
        }
        (Ok(Parsed::Incomplete), Some(theirs)) => {
            panic!("rustls has read a hello for {theirs:?}, and we wait for more")
        }
        (Ok(Parsed::Incomplete), None) => assert!(bytes.len() < client_hello::WIRE_BYTES_MAX),
        // Servers refuse what rustls refuses, and the relay forwards nothing that it refuses.
        (Ok(Parsed::Complete(_)), None) | (Err(_), _) => (),
    }
}

/// The server name that rustls reads, if it accepts the hello.
#[expect(
    clippy::option_option,
    reason = "no hello, and a hello without a name, are two things"
)]
pub(crate) fn their_name(bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    loop {
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                return Some(accepted.client_hello().server_name().map(str::to_owned));
            }
            Ok(None) => (),
            Err(_) => return None,
        }
        match acceptor.read_tls(&mut rest) {
            Ok(0) | Err(_) => return None,
            Ok(_) => (),
        }
    }
}
