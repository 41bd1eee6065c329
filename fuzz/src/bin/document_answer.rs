//! What the process says that parses documents.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_document_answer(bytes));
