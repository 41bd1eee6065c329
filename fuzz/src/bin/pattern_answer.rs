//! What the process says that matches patterns.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_pattern_answer(bytes));
