//! Resolution of allowed names outside, without the resolver of the C library, which a static program
//! cannot load.
//!
//! Reads the host's `hosts` file first, then queries the name servers of its `resolv.conf`, with one
//! query for each family. Names are fully qualified: search lists are not used.

pub mod answer;
pub mod hosts;
pub mod servers;
