//! The sandbox before the body runs: prepare, launch, the child's checklist, init.
pub mod cgroups;
pub mod registry;
