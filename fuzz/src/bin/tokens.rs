//! Paths with tokens, sizes, durations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_tokens(bytes));
