//! What a registry says of an image.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner_fuzz::check_image_documents(bytes));
