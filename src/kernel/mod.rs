//! One module per primitive of the kernel: plain arguments, no policy, the only room with raw system calls.
#![allow(unsafe_code, reason = "the one room where raw system calls are made")]

pub mod cgroup;
pub mod credentials;
pub mod file;
pub mod seccomp;
pub mod stdio;
