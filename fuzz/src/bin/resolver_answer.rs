//! What the process says that queries name servers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_resolver_answer(bytes));
