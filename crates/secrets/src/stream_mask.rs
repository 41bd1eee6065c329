//! Masks the values in a stream that passes in pieces.

use std::rc::Rc;

use crate::covered::Covered;
use crate::mask::{Finder, MASK, Masks};

impl Masks {
    /// The values as they are now, for streams that pass later.
    #[must_use]
    pub fn of_streams(&self) -> StreamMasks {
        let has_values = !self.is_empty();
        StreamMasks {
            finder: has_values.then(|| Rc::new(self.finder())),
        }
    }
}

/// Masks for any number of streams.
#[derive(Debug, Clone)]
pub struct StreamMasks {
    finder: Option<Rc<Finder>>,
}

impl StreamMasks {
    /// The mask of a stream that begins.
    #[must_use]
    pub fn begin(&self) -> StreamMask {
        StreamMask {
            finder: self.finder.clone(),
            held: Vec::new(),
            covered: 0,
        }
    }
}

/// The mask of one stream.
#[derive(Debug)]
pub struct StreamMask {
    finder: Option<Rc<Finder>>,
    /// The end of the stream, which may be the start of a value.
    held: Vec<u8>,
    /// How many of these bytes belong to a value that has ended.
    covered: usize,
}

impl StreamMask {
    /// Replaces the values in `piece`, after what was held. Holds the end if a value may begin there.
    pub fn pass(&mut self, piece: &mut Vec<u8>) {
        let Some(finder) = &self.finder else {
            return;
        };
        if !self.held.is_empty() {
            self.held.append(piece);
            std::mem::swap(&mut self.held, piece);
        }
        let mut covered = Covered::none_of(piece.len());
        if self.covered > 0 {
            covered.add(0, self.covered);
        }
        let depth = finder.cover(piece, &mut covered, self.covered);
        let cut = piece.len() - depth;
        self.held = piece.split_off(cut);
        self.covered = (cut..cut + depth)
            .take_while(|index| covered.has(*index))
            .count();
        replace(piece, &covered);
    }

    /// The stream has ended. Returns the rest, which is not the start of a value.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.held);
        if self.covered > 0 {
            let mut covered = Covered::none_of(rest.len());
            covered.add(0, self.covered);
            replace(&mut rest, &covered);
        }
        self.covered = 0;
        rest
    }
}

/// Replaces each run of covered bytes by one mask. The first and the last run may be parts of a value, and
/// shorter than the mask.
fn replace(text: &mut Vec<u8>, covered: &Covered) {
    let mut replaced = Vec::with_capacity(text.len() + 2 * MASK.len());
    for (index, byte) in text.iter().enumerate() {
        let is_inside = index > 0 && covered.has(index - 1);
        match covered.has(index) {
            false => replaced.push(*byte),
            true if is_inside => (),
            true => replaced.extend_from_slice(MASK.as_bytes()),
        }
    }
    text.fill(0);
    std::hint::black_box(&*text);
    *text = replaced;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(values: &[&str]) -> Masks {
        let mut masks = Masks::default();
        for value in values {
            assert!(masks.add(value.as_bytes()));
        }
        masks
    }

    fn pass(masks: &Masks, pieces: &[&[u8]]) -> String {
        let mut mask = masks.of_streams().begin();
        let mut passed = Vec::new();
        for piece in pieces {
            let mut piece = piece.to_vec();
            mask.pass(&mut piece);
            passed.extend(piece);
        }
        passed.extend(mask.finish());
        String::from_utf8(passed).expect("text")
    }

    #[test]
    fn a_value_is_masked_wherever_a_stream_is_cut() {
        let masks = masks(&["s3cret", "retro", "aaaa"]);
        let text = b"a s3cret, s3cre, s3cretro, s3cs3cret aaaaaa retr";
        let whole = pass(&masks, &[text]);
        assert_eq!(whole, "a ***, s3cre, ***, s3c*** *** retr");
        for first in 0..text.len() {
            for second in first..text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let mut passed = pass(&masks, &pieces);
                // A long run of values may have several masks.
                while passed.contains("******") {
                    passed = passed.replace("******", "***");
                }
                assert_eq!(passed, whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn the_end_is_held_only_while_a_value_may_begin_there() {
        let masks = masks(&["s3cret"]);
        let mut mask = masks.of_streams().begin();
        let mut piece = b"prompt> s3".to_vec();
        mask.pass(&mut piece);
        assert_eq!(piece, b"prompt> ");
        let mut piece = b"x".to_vec();
        mask.pass(&mut piece);
        assert_eq!(piece, b"s3x");
        // A flood of one repeated start holds no more than a value.
        let mut mask = self::masks(&["aaaab"]).of_streams().begin();
        for _ in 0..100 {
            let mut piece = vec![b'a'; 1000];
            mask.pass(&mut piece);
            assert!(mask.held.len() < 5);
        }
        assert_eq!(mask.finish(), b"aaaa");
        let none = Masks::default();
        assert_eq!(pass(&none, &[b"s3c", b"ret"]), "s3cret");
    }
}
