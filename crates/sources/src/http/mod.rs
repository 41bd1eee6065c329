//! What every conversation with a service over HTTP has in common: how long it is waited for, whom
//! it trusts, where a credential may go, and what is tried again.
//!
//! The protocol is ureq's. Connections are ours (`wire`): whoever waits on one can be told to end.
//! No proxy is taken from the environment, since it would see what is sent over plain HTTP.

mod answer;
mod client;
mod fault;
mod headers;
mod patience;
mod retry;
mod roots;
pub mod url;
mod watch;
mod wire;

pub use answer::{Answer, BodyProblem};
pub use client::{Client, Mishap};
pub use fault::{Fault, RateLimit};
pub use headers::{expect_content, number, retry_after};
pub use patience::Patience;
pub use retry::{GaveUp, tried};
pub use roots::{RootsError, beside, of_file, of_host};
pub use watch::{Cancelled, Watch};
