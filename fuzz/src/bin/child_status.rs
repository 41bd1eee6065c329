//! What the child says to the supervisor.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_child_status(bytes));
