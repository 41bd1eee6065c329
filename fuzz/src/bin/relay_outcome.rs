//! What the relay says at its end.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_relay_outcome(bytes));
