//! How a body reaches out, if at all: by name, through a relay, and nowhere else.
//!
//! The body's network has no way out but the supervisor. Every name that is allowed has one
//! synthetic address; a connection to it arrives at a listener that the supervisor holds, is
//! checked by name, and is dialled outside by the very name that was checked.
#![forbid(unsafe_code)]

pub mod address;
pub mod advice;
pub mod allow;
pub mod allowlist;
pub mod client_hello;
pub mod denials;
pub mod dns;
pub mod http_head;
pub mod names;
pub mod observed;
#[cfg(test)]
mod own_network;
pub mod relay;
pub mod resolver;
pub mod routes;
pub mod socks;
pub mod tap;
