//! Escape attempts: hostile bodies, one module per technique, each attempt with the errno, kill or
//! absence that it must meet.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

#[path = "../../crates/sandbox/tests/filter/policies.rs"]
mod policies;
#[path = "../../crates/sandbox/tests/filter/vectors.rs"]
#[expect(dead_code, reason = "what the tests of the filter need alone")]
mod vectors;

mod attempts;
mod clocks;
mod denials;
mod descriptors;
mod devices;
mod environment;
mod files;
mod host_wide;
mod identity;
mod mounts;
mod namespaces;
mod objects;
mod passing;
mod prober;
mod processes;
mod races;
mod second_line;
mod self_confinement;
mod setuid;
mod sockets;
mod strict;
mod syscalls;
mod terminal;

/// Uid and gid of a body.
const ID: u32 = 1000;
/// Whether a body is in the Landlock domain of init: then the kernel lets it send signals there.
const SHARES_DOMAIN_OF_INIT: bool = false;
/// Whether these attempts are later commands of a sandbox, and `escapes` makes them as first ones.
const IS_LATER: bool = false;

/// No additions: the settings of a run without an image.
fn surround(_case: &mut support::Case<'_>) {}
