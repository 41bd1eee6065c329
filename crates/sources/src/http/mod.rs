//! HTTP: time-outs, trust, where credentials may go, retries.
//!
//! The protocol is ureq's. Connections are our own (`wire`), so that waits can be cancelled. Proxy
//! variables of the environment are ignored, since a proxy would see plain HTTP.

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
pub use client::{Client, TransferError};
pub use fault::{Fault, RateLimit};
pub use headers::{expect_content, number, retry_after};
pub use patience::Patience;
pub use retry::{GaveUp, tried};
pub use roots::{RootsError, beside, of_file, of_host};
pub use watch::{Cancelled, Watch};
