//! What the kernel records of Landlock.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_audit_record(bytes));
