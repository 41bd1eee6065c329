//! The store of artifacts and pulling into it: what came is what was asked for or nothing, whoever
//! was killed, however many pull at once, and whatever the place that it comes from sends.

#![expect(clippy::expect_used, reason = "a test says what went wrong by ending")]

mod artifacts;
mod collecting;
mod fetching;
mod ground;
mod places;
mod processes;
mod snapshots;
mod verbs;
