//! The set of bytes to mask in a text.

use crate::mask::MASK;

/// The bytes of a text that belong to a value, one bit each, so that memory does not depend on the number
/// of values.
pub(crate) struct Covered {
    bits: Vec<u64>,
    bytes: usize,
    /// The last added range, merged with adjacent ranges: all its bits are set.
    last: std::ops::Range<usize>,
}

impl Covered {
    pub(crate) fn none_of(bytes: usize) -> Self {
        Self {
            bits: vec![0; bytes.div_ceil(64)],
            bytes,
            last: 0..0,
        }
    }

    /// Adds a range. Its end is not before the end of any earlier range.
    pub(crate) fn add(&mut self, from: usize, to: usize) {
        if from > self.last.end {
            self.set(from, to);
            self.last = from..to;
            return;
        }
        self.set(from, self.last.start);
        self.set(self.last.end, to);
        self.last = self.last.start.min(from)..to.max(self.last.end);
    }

    fn set(&mut self, from: usize, to: usize) {
        for index in from..to {
            self.bits[index / 64] |= 1 << (index % 64);
        }
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        index < self.bytes && self.bits[index / 64] & (1 << (index % 64)) != 0
    }

    /// Replaces each run of set bytes by one mask.
    pub(crate) fn replace_in(&self, text: &mut Vec<u8>) {
        let mask = MASK.as_bytes();
        let mut written = 0;
        let mut read = 0;
        while read < text.len() {
            if !self.has(read) {
                text[written] = text[read];
                written += 1;
                read += 1;
                continue;
            }
            let mut end = read;
            while self.has(end) {
                end += 1;
            }
            if end == text.len() {
                // A prefix of a value may be shorter than the mask.
                text[written..].fill(0);
                text.truncate(written);
                text.extend_from_slice(mask);
                return;
            }
            text[written..written + mask.len()].copy_from_slice(mask);
            written += mask.len();
            read = end;
        }
        text[written..].fill(0);
        text.truncate(written);
    }
}
