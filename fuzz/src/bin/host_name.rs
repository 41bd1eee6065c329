//! An egress list, and the names that a body asks for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_host_name(bytes));
