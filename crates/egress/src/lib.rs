//! Network access of a body: only to allowed hosts, only through a relay.
//!
//! The body's network namespace has no route to the outside except through the relay. Each allowed name
//! has one synthetic address. A connection to that address arrives at a listener of the relay, is checked
//! by name, and is dialled outside by the name that was checked.
//!
//! What strangers wrote is parsed in processes without rights: [`relay`] reads what the body sends,
//! [`resolver`] what name servers answer. [`dialler`] is the supervisor's side, which trusts neither.
#![forbid(unsafe_code)]

pub mod address;
pub mod advice;
pub mod allow;
pub mod allowlist;
pub mod client_hello;
pub mod denials;
pub mod dialler;
pub mod dns;
pub mod host;
pub mod http_head;
pub(crate) mod link;
pub mod names;
pub mod observed;
pub mod outcome;
pub mod parsed;
pub(crate) mod rate_limit;
pub mod relay;
pub mod resolver;
pub mod routes;
pub(crate) mod socket;
pub mod socks;
pub mod tap;
#[cfg(test)]
mod test_network;
