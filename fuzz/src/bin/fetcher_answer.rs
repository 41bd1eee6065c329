//! What the process says that speaks HTTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_fetcher_answer(bytes));
