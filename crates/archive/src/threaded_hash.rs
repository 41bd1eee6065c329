//! A SHA-256 that a separate thread computes while the data is being read.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use sha2::{Digest as _, Sha256};

use spec::digest::Digest;

const PIECE_BYTES: usize = 256 * 1024;
/// Number of buffers: one being filled, one being hashed, one in transit.
const PIECES: usize = 3;
const STACK_BYTES: usize = 128 * 1024;

/// Hashes bytes in a separate thread or, if none can be started, in the calling thread.
pub(crate) struct ThreadedHash<'scope> {
    piece: Vec<u8>,
    hasher: Hasher<'scope>,
}

enum Hasher<'scope> {
    InCaller(Box<Sha256>),
    InThread {
        full: SyncSender<Vec<u8>>,
        empty: Receiver<Vec<u8>>,
        handle: ScopedJoinHandle<'scope, Sha256>,
    },
}

impl<'scope> ThreadedHash<'scope> {
    pub(crate) fn new(scope: &'scope Scope<'scope, '_>) -> Self {
        let (full, filled) = sync_channel::<Vec<u8>>(PIECES);
        let (used, empty) = sync_channel::<Vec<u8>>(PIECES);
        let returned = used.clone();
        let started = Builder::new()
            .name("hash".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || {
                let mut hasher = Sha256::new();
                while let Ok(mut piece) = filled.recv() {
                    hasher.update(&piece);
                    piece.clear();
                    // Fails after the sender has ended; the buffers in transit are still hashed.
                    drop(returned.send(piece));
                }
                hasher
            });
        let hasher = match started {
            Ok(handle) => {
                let new_piece = || Vec::with_capacity(PIECE_BYTES);
                let pieces_sent = (1..PIECES).all(|_| used.send(new_piece()).is_ok());
                debug_assert!(pieces_sent, "the channel has room for all of them");
                Hasher::InThread {
                    full,
                    empty,
                    handle,
                }
            }
            Err(_) => Hasher::InCaller(Box::default()),
        };
        Self {
            piece: Vec::with_capacity(PIECE_BYTES),
            hasher,
        }
    }

    fn hash_piece(&mut self) -> io::Result<()> {
        match &mut self.hasher {
            Hasher::InCaller(hasher) => {
                hasher.update(&self.piece);
                self.piece.clear();
            }
            Hasher::InThread { full, empty, .. } => {
                let ended = || io::Error::other("the thread that hashes has ended");
                let next = empty.recv().map_err(|_gone| ended())?;
                let piece = std::mem::replace(&mut self.piece, next);
                full.send(piece).map_err(|_gone| ended())?;
            }
        }
        Ok(())
    }

    /// The digest of all written bytes. Joins the thread, and continues its panic.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        self.hash_piece()?;
        let hasher = match self.hasher {
            Hasher::InCaller(hasher) => *hasher,
            Hasher::InThread {
                full,
                empty,
                handle,
            } => {
                drop((full, empty));
                handle
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        };
        Ok(Digest::from_hasher(hasher))
    }
}

impl Write for ThreadedHash<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() + bytes.len() > PIECE_BYTES {
            self.hash_piece()?;
        }
        let accepted = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.piece.extend_from_slice(accepted);
        Ok(accepted.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..2_000_000_u32)
            .map(|number| (number % 251).to_le_bytes()[0])
            .collect();
        for size in [
            1_000,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            900_000,
        ] {
            let digest = std::thread::scope(|scope| {
                let mut hash = ThreadedHash::new(scope);
                for piece in bytes.chunks(size) {
                    hash.write_all(piece).expect("written");
                }
                hash.finish().expect("hashed")
            });
            assert_eq!(digest, Digest::of(&bytes), "{size}");
        }
    }
}
