//! Contradictions between the texts, schemas and guides of the specifications: each row of the list
//! of disagreements is a test of the decision, through the public parser or the program.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod blocks;
mod bundles;
mod runs;
