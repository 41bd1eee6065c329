//! The files of `packaging/kubernetes`: what their manifests state is made into a container of an OCI runtime, in which
//! bundles run. There is no cluster here: kubelet and its runtime are not tested.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod container;
mod doctor;
mod documentation;
mod image;
mod manifest;
mod runs;
mod schemas;
mod seccomp;
mod worker;
