//! HMAC with SHA-256 (RFC 2104).

use sha2::{Digest as _, Sha256};

/// Bytes of a block of the hash.
const BLOCK: usize = 64;

pub(super) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let hash = |pad: u8, parts: &[&[u8]]| {
        let mut hash = Sha256::new();
        hash.update(block.map(|byte| byte ^ pad));
        for part in parts {
            hash.update(part);
        }
        <[u8; 32]>::from(hash.finalize())
    };
    hash(0x5c, &[&hash(0x36, parts)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Cases 1, 2 and 6 of RFC 4231.
    #[test]
    fn the_vectors_of_the_standard_are_met() {
        let larger = b"Test Using Larger Than Block-Size Key - Hash Key First";
        for (key, parts, expected) in [
            (
                &[0x0b; 20][..],
                &[&b"Hi "[..], b"There"][..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                &[b"what do ya want for nothing?"],
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                &[larger],
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&hmac_sha256(key, parts)), expected);
        }
    }
}
