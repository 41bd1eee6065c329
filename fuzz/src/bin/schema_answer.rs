//! What the process says that validates by schemas.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_schema_answer(bytes));
