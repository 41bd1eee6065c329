//! Network access of a body: only to allowed hosts, only through a relay.
//!
//! The body's network namespace has no route to the outside except through the supervisor. Each allowed
//! name has one synthetic address. A connection to that address arrives at a listener of the supervisor,
//! is checked by name, and is dialled outside by the name that was checked.
#![forbid(unsafe_code)]

pub mod address;
pub mod advice;
pub mod allow;
pub mod allowlist;
pub mod client_hello;
pub mod denials;
pub mod dns;
pub mod host;
pub mod http_head;
pub mod names;
pub mod observed;
pub mod parsed;
pub mod relay;
pub mod resolver;
pub mod routes;
pub mod socks;
pub mod tap;
#[cfg(test)]
mod test_network;
