//! `runner-server`: the program behind `runner serve` and `runner mcp`, which execute it.
//!
//! It is a program of its own, since it has threads and an asynchronous runtime, which a process that
//! clones a sandbox must not have. It has no rights of its own either: all that it does is to execute
//! `runner`, which lies beside it, as the same user.
#![forbid(unsafe_code)]

mod program;

fn main() {}
