//! What the processes say that read archives without unpacking them, checkouts, and other text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_reader_answer(bytes));
