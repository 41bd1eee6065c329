//! The first message of a TLS connection; against rustls.

use rustls::server::Acceptor;

use super::incremental;
use egress::client_hello;
use egress::parsed::Parsed;

/// Whatever rustls takes with a name is read here as the same name, or refused; never as another
/// one, and never as none.
pub(crate) fn check(bytes: &[u8]) {
    let ours = incremental(bytes, client_hello::parse, |verdict| {
        *verdict == Ok(Parsed::Incomplete)
    });
    match (&ours, their_name(bytes)) {
        (Ok(Parsed::Complete(hello)), Some(theirs)) => {
            let ours = hello.server_name.as_ref().map(ToString::to_string);
            assert_eq!(ours, theirs.map(|name| name.to_ascii_lowercase()));
        }
        (Ok(Parsed::Incomplete), Some(theirs)) => {
            panic!("rustls has read a hello for {theirs:?}, and we wait for more")
        }
        (Ok(Parsed::Incomplete), None) => assert!(bytes.len() < client_hello::WIRE_BYTES_MAX),
        // What rustls refuses nobody serves; what we refuse goes nowhere.
        (Ok(Parsed::Complete(_)), None) | (Err(_), _) => (),
    }
}

/// The name that rustls reads, where it takes the hello at all.
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
