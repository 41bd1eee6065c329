//! Inflates ahead of whoever uses the bytes, in a thread of its own, so that neither waits for the
//! other.
//!
//! The bytes, and the place at which an error comes, are those of the reader: it is what runs in the
//! thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::UnpackError;
use crate::inflated::{Decoded, Inflated, Piece};

/// Pieces between the two sides: one is being used, one being filled, and one lies ready so that
/// neither waits while the other wakes up.
const PIECES: usize = 3;
/// The decoder's tables lie on the heap, and its calls are shallow.
const STACK_BYTES: usize = 256 * 1024;

/// The inflated bytes of a file: the first ones made where they are used, the rest ahead.
pub(crate) struct Ahead<'scope, 'env, 'source> {
    scope: &'scope Scope<'scope, 'env>,
    here: Option<&'env mut Decoded<'source>>,
    thread: Option<Thread<'scope>>,
    /// Inflated bytes from which on a thread pays.
    from_bytes: u64,
    given_bytes: u64,
}

/// The thread, and what came from it.
struct Thread<'scope> {
    full: Receiver<Result<Piece, UnpackError>>,
    empty: SyncSender<Piece>,
    piece: Option<Piece>,
    /// An empty piece came: nothing comes after it.
    is_at_end: bool,
    handle: ScopedJoinHandle<'scope, ()>,
}

impl<'scope, 'env, 'source> Ahead<'scope, 'env, 'source> {
    /// Inflates ahead once `from_bytes` bytes were given.
    pub(crate) fn new(
        scope: &'scope Scope<'scope, 'env>,
        source: &'env mut Decoded<'source>,
        from_bytes: u64,
    ) -> Self {
        Self {
            scope,
            here: Some(source),
            thread: None,
            from_bytes,
            given_bytes: 0,
        }
    }

    /// Ends the thread, and waits until it is gone: nobody may be cloned beside it.
    ///
    /// # Panics
    /// Where the thread did.
    pub(crate) fn end(self) {
        let Some(thread) = self.thread else {
            return;
        };
        // Whatever it waits for, it hears that nobody is there any more.
        drop((thread.full, thread.empty));
        if let Err(panic) = thread.handle.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Hands the reader to a thread. Where none is to be had it stays here.
    fn start(&mut self) {
        let (hand_over, handed) = sync_channel::<&'env mut Decoded<'source>>(1);
        let (full_sender, full) = sync_channel(PIECES + 1);
        let (empty, empties) = sync_channel(PIECES + 1);
        let started = Builder::new()
            .name("inflate".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(self.scope, move || {
                if let Ok(reader) = handed.recv() {
                    inflate_all(reader, &full_sender, &empties);
                }
            });
        self.from_bytes = u64::MAX;
        let (Ok(handle), Some(reader)) = (started, self.here.take()) else {
            return;
        };
        let are_sent = (0..PIECES).all(|_| empty.send(Piece::new()).is_ok());
        let is_handed = hand_over.send(reader).is_ok();
        debug_assert!(are_sent && is_handed, "it waits for these");
        self.thread = Some(Thread {
            full,
            empty,
            piece: None,
            is_at_end: false,
            handle,
        });
    }
}

/// What the thread does: to the end, to the first error, or until nobody wants more.
fn inflate_all(
    reader: &mut Decoded<'_>,
    full: &SyncSender<Result<Piece, UnpackError>>,
    empties: &Receiver<Piece>,
) {
    while let Ok(empty) = empties.recv() {
        let piece = reader.next_piece(empty);
        let is_last = piece
            .as_ref()
            .map_or(true, |piece| piece.bytes().is_empty());
        if full.send(piece).is_err() || is_last {
            return;
        }
    }
}

impl Inflated for Ahead<'_, '_, '_> {
    fn chunk(&mut self) -> Result<&[u8], UnpackError> {
        if self.from_bytes <= self.given_bytes {
            self.start();
        }
        match (&mut self.here, &mut self.thread) {
            (Some(reader), _) => reader.chunk(),
            (None, Some(thread)) => thread.chunk(),
            (None, None) => Ok(&[]),
        }
    }

    fn consume(&mut self, count: usize) {
        match (&mut self.here, &mut self.thread) {
            (Some(reader), _) => {
                reader.consume(count);
                self.given_bytes = self.given_bytes.saturating_add(count as u64);
            }
            (None, Some(thread)) => thread.consume(count),
            (None, None) => (),
        }
    }
}

impl Thread<'_> {
    fn chunk(&mut self) -> Result<&[u8], UnpackError> {
        let is_used = self
            .piece
            .as_ref()
            .is_none_or(|piece| piece.bytes().is_empty());
        let ended = || std::io::Error::other("the thread that inflates has ended");
        if is_used && !self.is_at_end {
            if let Some(used) = self.piece.take() {
                // Refused where it has ended: what it made last is received all the same.
                drop(self.empty.send(used));
            }
            let next = self.full.recv();
            let next = next.map_err(|_gone| UnpackError::Read(ended()))??;
            self.is_at_end = next.bytes().is_empty();
            self.piece = Some(next);
        }
        Ok(self.piece.as_ref().map_or(&[], Piece::bytes))
    }

    fn consume(&mut self, count: usize) {
        if let Some(piece) = &mut self.piece {
            piece.consume(count);
        }
    }
}
