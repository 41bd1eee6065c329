//! HTTP: time-outs, trust, where credentials may go, retries.
//!
//! The protocol is ureq's. Connections are our own (`wire`), so that waits can be cancelled. Proxy
//! variables of the environment are ignored, since a proxy would see plain HTTP.

mod client;
mod fault;
mod headers;
mod response;
mod retry;
mod roots;
mod timeouts;
pub(crate) mod url;
mod watch;
mod wire;

pub(crate) use client::{Client, TransferError};
pub(crate) use fault::{Fault, check_retryable, tries_shown, until_shown};
pub(crate) use headers::{expect_content, number, retry_after};
pub(crate) use response::Response;
pub(crate) use retry::{GaveUp, retry};
pub(crate) use roots::{RootsError, beside, of_file, of_host};
pub use timeouts::Timeouts;
pub(crate) use watch::Watch;
