//! HTTP: time-outs, trusted certificates, same-origin credentials, retries.
//!
//! ureq implements the protocol. `tcp` opens the connections, so that waits can be cancelled. Proxy
//! variables of the environment are ignored, since a proxy would see plain HTTP.

mod attempt;
mod cancellation;
mod client;
mod headers;
mod response;
mod retry;
mod roots;
mod tcp;
mod timeouts;
pub(crate) mod url;

pub(crate) use attempt::{AttemptError, check_retryable, format_tries, format_until};
pub(crate) use cancellation::Cancellation;
pub(crate) use client::{Client, TransferError};
pub(crate) use headers::{authorization, check_content_type, parse_number, parse_retry_after};
pub(crate) use response::Response;
pub(crate) use retry::{RetryError, retry};
pub(crate) use roots::{NO_ROOTS, RootsError, load_directory, load_file, load_host_roots};
pub use timeouts::Timeouts;
