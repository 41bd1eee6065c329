//! HTTP: time-outs, trusted certificates, same-origin credentials, retries.
//!
//! ureq implements the protocol, in a process without rights (`process`, `serving`): this process
//! decides which request is made with which credential, and checks what comes back (`message`). Proxy
//! variables of the environment are ignored, since a proxy would see plain HTTP.

mod attempt;
mod cancellation;
mod client;
mod headers;
mod message;
mod names;
mod overwriting;
mod process;
mod response;
mod retry;
mod roots;
mod serving;
mod tcp;
mod timeouts;
pub(crate) mod url;

pub(crate) use attempt::{AttemptError, check_retryable, format_tries, format_until};
pub(crate) use cancellation::Cancellation;
pub(crate) use client::{Client, TransferError, Upload};
pub use client::{FetcherAnswer, read_fetcher_answer};
pub(crate) use headers::{authorization, check_content_type, parse_number, parse_retry_after};
pub(crate) use response::Response;
pub(crate) use retry::{RetryError, retry};
pub(crate) use roots::{NO_ROOTS, RootsError, load_directory, load_file, load_host_roots};
pub use timeouts::Timeouts;
