//! A query of the body.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_dns_query(bytes));
