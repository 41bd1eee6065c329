//! What the processes say that unpack snapshots and archives of repositories.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_snapshot_answer(bytes));
