//! Sources and images end to end: Debian's `docker-registry` on loopback, `skopeo` and `umoci` as
//! other readers and writers, images made from packages.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure is a panic, a skip is printed"
)]

mod foreign;
mod host;
mod images;
#[expect(dead_code, reason = "the tests of needs use the rest")]
#[path = "../needs/index.rs"]
mod index;
mod needs;
mod parts;
mod sources;
