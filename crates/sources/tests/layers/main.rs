//! Layers of images, hostile and valid, above each other: what may be created, what overlayfs
//! shows, and what the program itself reads in it.
//!
//! Layers are made byte by byte, or by `umoci`, `skopeo` and `tar` if installed. After each one the canary
//! tree beside the layers must be unchanged, and the layer may contain only what the reader promises.

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
