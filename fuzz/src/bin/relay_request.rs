//! What the relay asks the supervisor for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_relay_request(bytes));
