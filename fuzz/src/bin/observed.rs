//! What the kernel shows of packets that no listener gets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_observed(bytes));
