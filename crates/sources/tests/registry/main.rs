//! The registry client and the OCI layouts: with Debian's `docker-registry` and skopeo, and with a
//! scripted service that makes every error that a registry can make.

#![expect(
    clippy::expect_used,
    unreachable_pub,
    reason = "test code: a failure is a panic"
)]

mod credentials;
mod faults;
mod fetcher;
mod layouts;
mod pushing;
mod real;
mod scripted;
mod tokens;
