//! The store of artifacts, and pulling into it: every stored blob is the requested one, whichever
//! process is killed, however many pull at the same time, and whatever the registry sends.

#![expect(clippy::expect_used, reason = "a test says what went wrong by ending")]

mod artifacts;
mod collecting;
mod fetching;
mod ground;
mod places;
mod processes;
mod snapshots;
mod verbs;
