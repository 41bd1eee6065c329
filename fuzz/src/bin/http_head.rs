//! The head of an HTTP request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_http_head(bytes));
