//! `runner`: runs untrusted bundles confined and limited, and reports what happened.

pub mod bundle;
pub mod cli;
pub mod kernel;
pub mod plan;
pub mod run;
pub mod sandbox;
pub mod scratch;
pub mod spec;
pub mod supervise;
