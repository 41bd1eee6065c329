//! The registry client and the OCI layouts: against Debian's `docker-registry` and skopeo, and
//! against a service of the test's own that does everything wrong that a registry can.

#![expect(
    clippy::expect_used,
    unreachable_pub,
    reason = "test code: a failure is a panic"
)]

mod credentials;
mod faults;
mod layouts;
mod pushing;
mod real;
mod scripted;
mod tokens;
