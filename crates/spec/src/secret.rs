//! A value that must not be shown: no text is made of it, and its memory is overwritten.

use std::fmt;

/// The value of a secret.
///
/// There is no `Display`, `Debug` shows nothing, and the bytes are overwritten when it is dropped.
/// That is best effort: a copy that somebody makes of [`Secret::bytes`] is not overwritten, nor is
/// a page that the kernel has swapped out.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes over: the caller keeps no copy.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The value itself, for whoever passes it on or looks for it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value, for whoever changes it and then makes a [`Secret`] of it again.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        overwrite(&mut self.0);
    }
}

/// Overwrites bytes that were a secret. What lies behind them in the vector is overwritten too.
pub fn overwrite(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.capacity(), 0);
    bytes.fill(0);
    // The memory is not read again, so that the compiler would leave the stores out.
    std::hint::black_box(bytes.as_slice());
    bytes.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_secret_shows_in_debug_output() {
        let secret = Secret::new(b"canary-7f3a".to_vec());
        for text in [
            format!("{secret:?}"),
            format!("{secret:#?}"),
            format!("{:?}", Some(&secret)),
        ] {
            assert!(!text.contains("canary") && !text.contains("99"), "{text}");
        }
    }

    /// F-12: where they lay, and behind their end, which the vector itself shows to nobody.
    #[test]
    fn overwritten_bytes_are_gone() {
        use std::os::unix::fs::FileExt as _;
        let memory = std::fs::File::open("/proc/self/mem").expect("this process's own");
        let mut bytes = b"canary-and-another-canary".to_vec();
        bytes.truncate(6);
        let (place, held) = (bytes.as_ptr().addr() as u64, bytes.capacity());
        let seen = || {
            let mut seen = vec![1; held];
            memory.read_exact_at(&mut seen, place).expect("read");
            seen
        };
        assert_eq!(seen(), b"canary-and-another-canary");
        overwrite(&mut bytes);
        assert!(bytes.is_empty());
        assert_eq!(seen(), [0; 25]);
    }
}
