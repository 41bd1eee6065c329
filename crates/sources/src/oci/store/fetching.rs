//! Downloads missing blobs: one process downloads, the others wait. Interrupted downloads are
//! resumed.

use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use sha2::Digest as _;

use crate::oci::error::OciError;
use crate::oci::listener::Listener;
use crate::oci::origin::Origin;
use crate::oci::store::{Blob, PARTIAL, Store, StoreError, Wanted, wait};
use crate::progress::Progress;
use spec::digest::Digest;
use store::{CacheError, errno_of};

const PIECE_BYTES: usize = 256 << 10;
/// Most attempts in a row without a new byte.
const FRUITLESS_MAX: u32 = 5;
/// Most attempts in all: bounds a server that sends one byte per response.
const TRIES_MAX: u32 = 64;
/// Delay before the second attempt in a row; it doubles for each later one.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const ASKED_EVERY: Duration = Duration::from_millis(50);

impl Store {
    /// Opens the blob, or downloads it from `origin`. Concurrent processes download it once.
    ///
    /// The bytes are hashed as they arrive. An interrupted download is resumed, by this or a later
    /// process. On a full disk the partial file is removed.
    ///
    /// # Errors
    /// [`OciError::Store`]: wrong size or digest, full disk; the origin; [`OciError::Cancelled`].
    pub fn fetch(
        &self,
        wanted: &Wanted,
        origin: &dyn Origin,
        listener: &dyn Listener,
    ) -> Result<Blob, OciError> {
        if let Some(blob) = self.wanted(wanted)? {
            return Ok(blob);
        }
        let root = self.directory.root();
        root.make_directory(PARTIAL)?;
        let name = format!("{PARTIAL}/{}", wanted.digest.hexadecimal());
        let file = loop {
            if let Some(file) = self.directory.try_claim(&name)? {
                break File::from(file);
            }
            wait(listener, ASKED_EVERY)?;
            if let Some(blob) = self.wanted(wanted)? {
                return Ok(blob);
            }
        };
        // The previous holder may have finished between the check and the claim.
        if let Some(blob) = self.wanted(wanted)? {
            root.unlink(&name)?;
            return Ok(blob);
        }
        let mut download = Download {
            store: self,
            wanted,
            origin,
            listener,
            name,
            file,
            hasher: sha2::Sha256::new(),
            bytes: 0,
        };
        let fetched = download.fetch();
        listener.progress(&Progress::Done);
        let is_useless = match &fetched {
            Ok(_) => false,
            Err(OciError::Store(error)) if error.is_full() || error.is_about_bytes() => true,
            // Remove an empty file: garbage collection counts by bytes and would not see it.
            Err(_) => download.is_empty()?,
        };
        if is_useless {
            root.unlink(&download.name)?;
        }
        fetched
    }
}

struct Download<'call> {
    store: &'call Store,
    wanted: &'call Wanted,
    origin: &'call dyn Origin,
    listener: &'call dyn Listener,
    name: String,
    file: File,
    hasher: sha2::Sha256,
    bytes: u64,
}

impl Download<'_> {
    fn fetch(&mut self) -> Result<Blob, OciError> {
        let resumed = self.take_up()?;
        self.receive()?;
        let mut found = self.digest();
        if found != self.wanted.digest && resumed {
            // The partial file is damaged or of another blob.
            self.begin_anew()?;
            self.receive()?;
            found = self.digest();
        }
        if found != self.wanted.digest {
            return Err(StoreError::Digest {
                place: self.origin.shown(),
                digest: self.wanted.digest,
                found,
            }
            .into());
        }
        let file = self.file.as_fd();
        let digest = &self.wanted.digest;
        Ok(self.store.publish(&self.name, digest, file, self.bytes)?)
    }

    /// Checks the file, since not all of it may be hashed.
    fn is_empty(&self) -> Result<bool, StoreError> {
        let status = rustix::fs::fstat(&self.file).map_err(self.failed("fstat"))?;
        Ok(status.st_size == 0)
    }

    fn digest(&self) -> Digest {
        Digest::from_hasher(self.hasher.clone())
    }

    fn take_up(&mut self) -> Result<bool, OciError> {
        let status = rustix::fs::fstat(&self.file).map_err(self.failed("fstat"))?;
        let left = u64::try_from(status.st_size).unwrap_or(u64::MAX);
        if self.wanted.bytes < left {
            self.begin_anew()?;
            return Ok(false);
        }
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            self.go_on("reading what is there of a blob")?;
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(0 < self.bytes),
                Ok(count) => {
                    self.hasher.update(&buffer[..count]);
                    self.bytes += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
                Err(error) => return Err(self.failed("read")(errno_of(&error)).into()),
            }
        }
    }

    fn begin_anew(&mut self) -> Result<(), StoreError> {
        rustix::fs::ftruncate(&self.file, 0).map_err(self.failed("ftruncate"))?;
        let sought = self.file.seek(SeekFrom::Start(0));
        sought.map_err(|error| self.failed("lseek")(errno_of(&error)))?;
        self.hasher = sha2::Sha256::new();
        self.bytes = 0;
        Ok(())
    }

    fn receive(&mut self) -> Result<(), OciError> {
        let (mut fruitless, mut tries) = (0, 0);
        while self.bytes < self.wanted.bytes {
            let before = self.bytes;
            let ended = self.receive_once()?;
            if self.bytes == self.wanted.bytes {
                break;
            }
            fruitless = if before < self.bytes {
                0
            } else {
                fruitless + 1
            };
            tries += 1;
            if fruitless == FRUITLESS_MAX || tries == TRIES_MAX {
                return Err(self.truncated(ended));
            }
            self.wait(FIRST_DELAY * 2_u32.pow(fruitless))?;
        }
        Ok(())
    }

    /// Reads one response of the origin to its end. Returns the read error, if one ended it.
    fn receive_once(&mut self) -> Result<Option<std::io::Error>, OciError> {
        let origin = self.origin;
        let mut stream = match origin.blob(&self.wanted.digest, self.bytes) {
            Ok(stream) => stream,
            Err(error) if error.is_passing() => return Ok(Some(error.into_read())),
            Err(error) => return Err(error),
        };
        if stream.starts_at != self.bytes {
            self.begin_anew()?;
        }
        if stream.starts_at != self.bytes {
            let problem = format!("it starts at byte {}", stream.starts_at);
            return Ok(Some(std::io::Error::other(problem)));
        }
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            self.go_on("receiving a blob")?;
            let count = match stream.reader.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return self.broken(error).map(Some),
            };
            self.keep(&buffer[..count])?;
            self.listener.progress(&Progress::Receiving {
                digest: &self.wanted.digest,
                bytes: self.bytes,
                of_bytes: self.wanted.bytes,
            });
        }
    }

    /// Sorts an error within a body: returns one that a retry may solve, fails with any other.
    fn broken(&self, error: std::io::Error) -> Result<std::io::Error, OciError> {
        match OciError::of_read(error) {
            Ok(error) if error.is_passing() => Ok(error.into_read()),
            Ok(error) => Err(error),
            Err(error) => Ok(error),
        }
    }

    fn keep(&mut self, piece: &[u8]) -> Result<(), OciError> {
        let room = self.wanted.bytes - self.bytes;
        if room < piece.len() as u64 {
            return Err(StoreError::Size {
                place: self.origin.shown(),
                digest: self.wanted.digest,
                found: "more".to_owned(),
                bytes: self.wanted.bytes,
            }
            .into());
        }
        let written = self.file.write_all(piece);
        written.map_err(|error| self.failed("write")(errno_of(&error)))?;
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn truncated(&self, source: Option<std::io::Error>) -> OciError {
        // An error of the origin is more precise than "truncated".
        let source = match source.map(OciError::of_read) {
            Some(Ok(error)) => return error,
            Some(Err(error)) => Some(error),
            None => None,
        };
        StoreError::Truncated {
            place: self.origin.shown(),
            digest: self.wanted.digest,
            found_bytes: self.bytes,
            bytes: self.wanted.bytes,
            source,
        }
        .into()
    }

    fn wait(&self, pause: Duration) -> Result<(), OciError> {
        self.listener.progress(&Progress::Waiting {
            cause: "the download broke off",
            pause,
        });
        let mut left = pause;
        while !left.is_zero() {
            self.go_on("waiting to go on with a download")?;
            let now = left.min(ASKED_EVERY);
            std::thread::sleep(now);
            left -= now;
        }
        Ok(())
    }

    fn go_on(&self, during: &'static str) -> Result<(), OciError> {
        match self.listener.is_cancelled() {
            true => Err(OciError::Cancelled { during }),
            false => Ok(()),
        }
    }

    fn failed(&self, call: &'static str) -> impl Fn(rustix::io::Errno) -> CacheError {
        self.store.directory.root().failed(call, &self.name)
    }
}
