//! The files of one run: staged in before launch, synced out after the outcome.
#![forbid(unsafe_code)]
