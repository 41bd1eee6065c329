//! Inflates ahead of the consumer in a separate thread, so that both run in parallel.
//!
//! The bytes and the position of an error are those of the reader, which runs in the thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::UnpackError;
use crate::inflated::{Decoded, Inflated, Piece};

/// Number of buffers: one in use by the consumer, one being filled, and one ready, so that neither side
/// waits while the other wakes up.
const PIECES: usize = 3;
/// The decoder's tables are on the heap, and its calls are shallow.
const STACK_BYTES: usize = 256 * 1024;

/// The consumer inflates the first bytes of a file, the thread inflates the rest.
pub(crate) struct Ahead<'scope, 'env, 'source> {
    scope: &'scope Scope<'scope, 'env>,
    /// `None` after it was moved to the thread.
    reader: Option<&'env mut Decoded<'source>>,
    thread: Option<Thread<'scope>>,
    /// Number of inflated bytes after which the thread starts.
    from_bytes: u64,
    consumed_bytes: u64,
}

/// The thread, and its last buffer.
struct Thread<'scope> {
    full: Receiver<Result<Piece, UnpackError>>,
    empty: SyncSender<Piece>,
    piece: Option<Piece>,
    /// An empty buffer arrived, which marks the end.
    is_at_end: bool,
    handle: ScopedJoinHandle<'scope, ()>,
}

impl<'scope, 'env, 'source> Ahead<'scope, 'env, 'source> {
    pub(crate) fn new(
        scope: &'scope Scope<'scope, 'env>,
        source: &'env mut Decoded<'source>,
        from_bytes: u64,
    ) -> Self {
        Self {
            scope,
            reader: Some(source),
            thread: None,
            from_bytes,
            consumed_bytes: 0,
        }
    }

    /// Ends and joins the thread, and continues its panic. The process must be single-threaded before a
    /// clone.
    pub(crate) fn end(self) {
        let Some(thread) = self.thread else {
            return;
        };
        // Closing the channels wakes the thread.
        drop((thread.full, thread.empty));
        if let Err(panic) = thread.handle.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Moves the reader to a thread. If no thread can be started, the reader stays here.
    fn start(&mut self, stack_bytes: usize) {
        let (reader_sender, reader_receiver) = sync_channel::<&'env mut Decoded<'source>>(1);
        let (full_sender, full) = sync_channel(PIECES + 1);
        let (empty, empty_receiver) = sync_channel(PIECES + 1);
        let started = Builder::new()
            .name("inflate".to_owned())
            .stack_size(stack_bytes)
            .spawn_scoped(self.scope, move || {
                if let Ok(reader) = reader_receiver.recv() {
                    inflate_all(reader, &full_sender, &empty_receiver);
                }
            });
        self.from_bytes = u64::MAX;
        let Ok(handle) = started else {
            return;
        };
        let Some(reader) = self.reader.take() else {
            return;
        };
        let pieces_sent = (0..PIECES).all(|_| empty.send(Piece::of_output()).is_ok());
        let reader_sent = reader_sender.send(reader).is_ok();
        debug_assert!(pieces_sent && reader_sent, "the thread waits for these");
        self.thread = Some(Thread {
            full,
            empty,
            piece: None,
            is_at_end: false,
            handle,
        });
    }
}

/// The thread's loop: until the end, the first error, or a closed channel.
fn inflate_all(
    reader: &mut Decoded<'_>,
    full: &SyncSender<Result<Piece, UnpackError>>,
    empty: &Receiver<Piece>,
) {
    while let Ok(empty) = empty.recv() {
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
        if self.consumed_bytes >= self.from_bytes {
            self.start(STACK_BYTES);
        }
        match (&mut self.reader, &mut self.thread) {
            (Some(reader), _) => reader.chunk(),
            (None, Some(thread)) => thread.chunk(),
            (None, None) => Ok(&[]),
        }
    }

    fn consume(&mut self, count: usize) {
        match (&mut self.reader, &mut self.thread) {
            (Some(reader), _) => {
                reader.consume(count);
                self.consumed_bytes = self.consumed_bytes.saturating_add(count as u64);
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
                // Fails if the thread has ended; its last buffers are still received.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed::{Compression, decode};
    use spec::parse_permit::ParsePermit;

    #[test]
    fn without_a_thread_the_caller_inflates_the_rest() {
        let bytes = vec![7; 1_000_000];
        let limit_bytes = bytes.len() as u64;
        let permit = ParsePermit::for_trusted_text();
        let mut source = decode(&permit, bytes.as_slice(), Compression::Plain, limit_bytes);
        let read_bytes = std::thread::scope(|scope| {
            let mut ahead = Ahead::new(scope, &mut source, u64::MAX);
            // No address space has room for this stack.
            ahead.start(1 << 60);
            assert!(ahead.thread.is_none());
            let mut read_bytes = 0;
            loop {
                let count = ahead.chunk().expect("read").len();
                if count == 0 {
                    return read_bytes;
                }
                read_bytes += count;
                ahead.consume(count);
            }
        });
        assert_eq!(read_bytes, bytes.len());
    }
}
