//! The parsers of the program and the properties that its tests check, for libFuzzer.

#![expect(
    dead_code,
    reason = "the parsers have more than the properties ask for"
)]

// Where the program has them: the files say `crate::egress::…` and `crate::spec::…`.
mod egress {
    pub(crate) use crate::{client_hello, denials, dns, http_head, observed, socks};
    pub(crate) mod resolver {
        pub(crate) use crate::answer;
    }
}
mod spec {
    pub(crate) use crate::host_name;
}

#[path = "../../src/egress/resolver/answer.rs"]
mod answer;
#[path = "../../src/egress/client_hello.rs"]
mod client_hello;
#[path = "../../src/egress/denials.rs"]
mod denials;
#[path = "../../src/egress/dns.rs"]
mod dns;
#[path = "../../src/spec/host_name.rs"]
mod host_name;
#[path = "../../src/egress/http_head.rs"]
mod http_head;
#[path = "../../src/egress/observed.rs"]
mod observed;
#[path = "../../tests/parsers/properties/mod.rs"]
mod properties;
#[path = "../../src/egress/socks.rs"]
mod socks;

/// The first message of a TLS connection.
pub fn check_client_hello(bytes: &[u8]) {
    properties::client_hello::check(bytes);
}

/// What a name server answers.
pub fn check_dns_answer(bytes: &[u8]) {
    properties::dns_answer::check(bytes);
}

/// A query of the body.
pub fn check_dns_query(bytes: &[u8]) {
    properties::dns_query::check(bytes);
}

/// The head of an HTTP request.
pub fn check_http_head(bytes: &[u8]) {
    properties::http_head::check(bytes);
}

/// What the kernel shows of packets that no listener gets.
pub fn check_observed(bytes: &[u8]) {
    properties::observed::check(bytes);
}

/// What a client of the compatibility proxy says.
pub fn check_socks(bytes: &[u8]) {
    properties::socks::check(bytes);
}
