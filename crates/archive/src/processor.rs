//! The features of the processor that decompression and digests use.

use std::hint::black_box;

use sha2::{Digest as _, Sha256};

/// Asks the processor for its features, whose answers a process that is forked later has. They are asked for at
/// first use otherwise: in a virtual machine each CPUID instruction takes 6 µs, and the questions 150 µs.
pub fn detect_processor_features() {
    #[cfg(target_arch = "x86_64")]
    black_box(std::arch::is_x86_feature_detected!("avx2"));
    black_box(Sha256::digest([]));
}
