//! What the process says that unpacks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_archive_answer(bytes));
