//! What a client of the compatibility proxy says.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_socks(bytes));
