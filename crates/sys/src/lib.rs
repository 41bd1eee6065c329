//! Wrappers of kernel interfaces: one module each, plain arguments, no policy. Only this crate
//! makes raw system calls.
#![allow(unsafe_code, reason = "the one room where raw system calls are made")]

pub mod affinity;
pub mod allocator;
pub mod arena;
pub mod cgroup;
pub mod credentials;
pub mod datagram;
pub mod dropped;
pub mod file;
pub mod landlock;
pub mod link;
pub mod lock;
pub mod mount;
pub mod name_lookup;
pub mod namespace;
pub mod netlink;
pub mod own_links;
pub mod owner_map;
pub mod packet;
pub mod place;
pub mod privileges;
pub mod probe;
pub mod proc;
pub mod process;
pub mod reader;
pub mod rlimit;
pub mod route;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod stack;
pub mod stdio;
pub mod terminal;
