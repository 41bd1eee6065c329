//! Wrappers of kernel interfaces: one module each, plain arguments, no policy. Only this crate
//! makes raw system calls.
//!
//! A function without a section on errors returns the errno of the calls that it names.
#![allow(unsafe_code, reason = "the only crate that makes raw system calls")]

pub mod affinity;
pub mod allocator;
pub mod arena;
pub mod audit;
pub mod cgroup;
pub mod credentials;
pub mod datagram;
pub mod detach;
pub mod dropped;
pub mod file;
pub mod landlock;
pub mod link;
pub mod lock;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod netlink;
pub mod nofollow;
pub mod owner_map;
pub mod packet;
pub mod privileges;
pub mod probe;
pub mod proc;
pub mod process;
pub mod rlimit;
pub mod route;
pub mod seccomp;
pub mod signal;
pub mod signal_name;
pub mod socket;
pub mod stack;
pub mod stdio;
pub mod terminal;
pub mod trusted_links;
pub mod worker;
