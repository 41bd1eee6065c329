//! The first message of a TLS connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_client_hello(bytes));
