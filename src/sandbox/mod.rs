//! The sandbox before the body runs: prepare, launch, the child's checklist, init.

pub mod cgroups;
mod child;
pub mod error;
mod init;
pub mod launch;
mod lent;
pub mod network;
pub mod overlay;
pub mod prepare;
pub mod registry;
pub mod seed;
pub mod steps;
