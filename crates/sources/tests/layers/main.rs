//! Layers of images, hostile and honest, one over the other: what may be made, what overlayfs shows
//! of it, and what the program itself sees in it.
//!
//! Every layer is made here, byte by byte, or by `umoci`, `skopeo` and `tar` where they are. After
//! each one the canary tree beside the layers must be as it was, and nothing in the layer may be more
//! than the reader promises.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "support code of tests stops at the first surprise"
)]

mod debs;
mod entries;
mod images;
mod links;
mod mounted;
mod properties;
mod real;
mod stack;
mod streams;
mod whiteouts;
