//! Many runs from one process: a pool of sandboxes that were never used, each for one run.
//!
//! ```text
//! your process ── Pool ──┐ takes an offer, writes the request to it, reads the report from it
//!                        │
//! launcher               │ `runner resident`: one thread, no request ever passes through it;
//!    │ forks             │ it keeps some supervisors ready and reaps them
//!    ▼                   │
//! supervisor ────────────┘ begins a run as far as no request decides it, offers itself,
//!    │ clones              serves one request or none, and exits
//!    ▼
//! init, body
//! ```
//!
//! A supervisor is forked before its request is known, from a launcher that knows none: what one
//! run was given is in no other's memory. It ends with its run, so nothing that a run changed (a
//! sandbox, a group, a file mode mask, a descriptor) is there for the next.
//!
//! Whoever dies, the others end what is left: a supervisor whose caller closes its socket cancels
//! its body, a launcher whose caller is gone waits for its supervisors, and a supervisor that was
//! killed is cleaned up after by the launcher. Where all of them are killed at once, the next
//! start finds the records, as it does for `runner exec`.

pub mod launcher;
mod line;
mod pool;
mod spare;
mod wire;
mod words;

pub use pool::{Cancel, Passed, Pool, PoolError, PoolOptions};
