//! Where the specifications' texts, schemas and guides disagree: each row of the list of
//! disagreements is a test of what was decided, through the public parser or the program.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod blocks;
mod bundles;
mod runs;
