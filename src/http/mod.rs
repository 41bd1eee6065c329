//! What every conversation with a service over HTTP has in common: how long it is waited for, whom
//! it trusts, where a credential may go, and what is tried again.

mod patience;

pub use patience::Patience;
