//! The sandbox before the body runs: prepare, launch, the child's checklist, init.

pub mod cgroups;
mod child;
pub mod error;
pub mod filter;
pub mod image_root;
pub mod image_user;
mod init;
pub mod launch;
mod lent;
pub mod network;
pub mod overlay;
pub mod prepare;
pub mod registry;
pub mod ruleset;
pub mod seed;
pub mod steps;
pub mod supervise;
pub mod view;
