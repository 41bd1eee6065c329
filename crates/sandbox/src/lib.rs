//! The sandbox: prepare, launch, the child's steps, init, supervision.

mod binds;
pub mod cgroups;
mod child;
pub mod command;
pub mod error;
pub mod host;
pub mod image_root;
pub mod image_user;
mod init;
pub mod launch;
pub mod mounts;
pub mod network;
pub mod overlay;
pub mod prefork;
pub mod prepare;
pub mod records;
pub mod resources;
pub mod rlimits;
pub mod ruleset;
pub mod seccomp;
pub mod steps;
pub mod supervise;
pub mod unix_sockets;
pub mod view;
