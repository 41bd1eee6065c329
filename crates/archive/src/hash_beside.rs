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
pub(crate) struct HashBeside<'scope> {
    piece: Vec<u8>,
    place: Place<'scope>,
}

enum Place<'scope> {
    Here(Box<Sha256>),
    Beside {
        full: SyncSender<Vec<u8>>,
        empty: Receiver<Vec<u8>>,
        handle: ScopedJoinHandle<'scope, Sha256>,
    },
}

impl<'scope> HashBeside<'scope> {
    /// Creates an empty digest.
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
                    // The send fails after the sender is finished: pending buffers are still hashed.
                    drop(returned.send(piece));
                }
                hasher
            });
        let place = match started {
            Ok(handle) => {
                let fresh = || Vec::with_capacity(PIECE_BYTES);
                let are_sent = (1..PIECES).all(|_| used.send(fresh()).is_ok());
                debug_assert!(are_sent, "there is room for all of them");
                Place::Beside {
                    full,
                    empty,
                    handle,
                }
            }
            Err(_) => Place::Here(Box::default()),
        };
        Self {
            piece: Vec::with_capacity(PIECE_BYTES),
            place,
        }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        match &mut self.place {
            Place::Here(hasher) => {
                hasher.update(&self.piece);
                self.piece.clear();
            }
            Place::Beside { full, empty, .. } => {
                let ended = || io::Error::other("the thread that hashes has ended");
                let next = empty.recv().map_err(|_gone| ended())?;
                let piece = std::mem::replace(&mut self.piece, next);
                full.send(piece).map_err(|_gone| ended())?;
            }
        }
        Ok(())
    }

    /// The digest of all written bytes. Joins the thread.
    ///
    /// # Errors
    /// If the thread is gone.
    ///
    /// # Panics
    /// If the thread panicked.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        self.pass_on()?;
        let hasher = match self.place {
            Place::Here(hasher) => *hasher,
            Place::Beside {
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

impl Write for HashBeside<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if PIECE_BYTES < self.piece.len() + bytes.len() {
            self.pass_on()?;
        }
        let taken = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.piece.extend_from_slice(taken);
        Ok(taken.len())
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
                let mut hash = HashBeside::new(scope);
                for piece in bytes.chunks(size) {
                    hash.write_all(piece).expect("taken");
                }
                hash.finish().expect("hashed")
            });
            assert_eq!(digest, Digest::of(&bytes), "{size}");
        }
    }
}
