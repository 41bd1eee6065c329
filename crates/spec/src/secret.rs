//! A secret value: never formatted, and overwritten in memory.

use std::fmt;

/// The value of a secret.
///
/// It has no `Display`, `Debug` omits the value, and dropping overwrites the bytes. Copies of
/// [`Secret::bytes`] and pages in swap are not overwritten.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes ownership of the bytes, without a copy.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The value.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, which are not overwritten any more.
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

/// Overwrites bytes of a secret, including the unused capacity of the vector.
pub fn overwrite(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.capacity(), 0);
    bytes.fill(0);
    // Prevents the compiler from removing the writes.
    std::hint::black_box(bytes.as_slice());
    bytes.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_omits_the_secret() {
        let secret = Secret::new(b"canary-7f3a".to_vec());
        for text in [
            format!("{secret:?}"),
            format!("{secret:#?}"),
            format!("{:?}", Some(&secret)),
        ] {
            assert!(!text.contains("canary") && !text.contains("99"), "{text}");
        }
    }

    /// F-12: the whole allocation, including the unused capacity.
    #[test]
    fn overwritten_bytes_are_gone() {
        use std::os::unix::fs::FileExt as _;
        let memory = std::fs::File::open("/proc/self/mem").expect("this process's own");
        let mut bytes = b"canary-and-another-canary".to_vec();
        bytes.truncate(6);
        let (address, capacity) = (bytes.as_ptr().addr() as u64, bytes.capacity());
        let read = || {
            let mut allocation = vec![1; capacity];
            memory
                .read_exact_at(&mut allocation, address)
                .expect("read");
            allocation
        };
        assert_eq!(read(), b"canary-and-another-canary");
        overwrite(&mut bytes);
        assert!(bytes.is_empty());
        assert_eq!(read(), [0; 25]);
    }
}
