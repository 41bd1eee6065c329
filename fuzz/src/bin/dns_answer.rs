//! What a name server answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_dns_answer(bytes));
