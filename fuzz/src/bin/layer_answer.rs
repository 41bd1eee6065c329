//! What the process says that unpacks layers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_layer_answer(bytes));
