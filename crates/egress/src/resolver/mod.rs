//! Names outside: how the address of an allowed name is found, without the C library's resolver,
//! which a static program cannot load.
//!
//! The host's `hosts` file first, then the name servers of its `resolv.conf`, one question for
//! each family. The name is already allowed and complete: search lists are not used.

pub mod answer;
pub mod hosts;
pub mod servers;
