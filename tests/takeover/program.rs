//! The program, built with the feature `planted-bugs`.

#![no_main]

#[path = "../../src/main.rs"]
#[expect(unused_attributes, reason = "those of the crate are above")]
mod program;
