//! Downloads missing blobs. One process downloads a blob, the others wait. Interrupted downloads
//! are resumed.

use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use crate::oci::error::OciError;
use crate::oci::hashing::HashingFile;
use crate::oci::observer::Observer;
use crate::oci::origin::Origin;
use crate::oci::store::{Blob, BlobDescriptor, PARTIAL, Store, StoreError, wait};
use crate::progress::Progress;
use store::CacheError;
use sys::file::errno_of;
use sys::lock::release_file;

const PIECE_BYTES: usize = 256 << 10;
/// Most attempts in a row without a new byte.
const FRUITLESS_MAX: u32 = 5;
/// Most attempts in all, for a server that sends one byte per response.
const TRIES_MAX: u32 = 64;
/// Delay after an attempt with new bytes. It doubles with each attempt in a row without.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
        descriptor: &BlobDescriptor,
        origin: &dyn Origin,
        observer: &dyn Observer,
    ) -> Result<Blob, OciError> {
        if let Some(blob) = self.find_blob(descriptor)? {
            return Ok(blob);
        }
        let root = self.directory.root();
        root.make_directory(PARTIAL)?;
        let name = format!("{PARTIAL}/{}", descriptor.digest.hexadecimal());
        let file = loop {
            if let Some(file) = self.directory.try_claim(&name)? {
                break HashingFile::new(File::from(file));
            }
            wait(observer, POLL_INTERVAL)?;
            if let Some(blob) = self.find_blob(descriptor)? {
                return Ok(blob);
            }
        };
        // The previous holder may have finished between the check and the claim.
        if let Some(blob) = self.find_blob(descriptor)? {
            root.unlink(&name)?;
            return Ok(blob);
        }
        let mut download = Download {
            store: self,
            descriptor,
            origin,
            observer,
            name,
            file,
        };
        let fetched = download.fetch();
        observer.progress(&Progress::Done);
        let is_discarded = match &fetched {
            Ok(_) => false,
            Err(OciError::Store(error)) if error.is_full() || error.is_wrong_content() => true,
            // Garbage collection counts bytes and would ignore an empty file.
            Err(_) => download.is_empty().unwrap_or(false),
        };
        if is_discarded {
            // `fetched` is the error to report, and the next download checks a file that is left.
            let _left = root.unlink(&download.name);
        }
        fetched
    }
}

/// Dropping it ends the claim on the partial file, which stays for the next download.
struct Download<'call> {
    store: &'call Store,
    descriptor: &'call BlobDescriptor,
    origin: &'call dyn Origin,
    observer: &'call dyn Observer,
    name: String,
    file: HashingFile,
}

impl Drop for Download<'_> {
    fn drop(&mut self) {
        // If this fails, the lock ends with the last descriptor.
        let _closed = release_file(self.file.file.as_fd());
    }
}

impl Download<'_> {
    fn fetch(&mut self) -> Result<Blob, OciError> {
        let resumed = self.resume()?;
        self.receive()?;
        let mut found = self.file.digest();
        if found != self.descriptor.digest && resumed {
            // The partial file is damaged or of another blob.
            self.restart()?;
            self.receive()?;
            found = self.file.digest();
        }
        if found != self.descriptor.digest {
            return Err(StoreError::Digest {
                place: self.origin.name(),
                digest: self.descriptor.digest,
                found,
            }
            .into());
        }
        let (file, bytes) = (self.file.file.as_fd(), self.file.bytes());
        let digest = &self.descriptor.digest;
        Ok(self.store.publish(&self.name, digest, file, bytes)?)
    }

    /// Checks the file, because not all of it may be hashed.
    fn is_empty(&self) -> Result<bool, StoreError> {
        let status = rustix::fs::fstat(&self.file.file).map_err(self.failed("fstat"))?;
        Ok(status.st_size == 0)
    }

    /// Hashes the partial file. Returns whether it has bytes.
    fn resume(&mut self) -> Result<bool, OciError> {
        let status = rustix::fs::fstat(&self.file.file).map_err(self.failed("fstat"))?;
        let left = u64::try_from(status.st_size).unwrap_or(u64::MAX);
        if left > self.descriptor.bytes {
            self.restart()?;
            return Ok(false);
        }
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            self.observer.check("reading a partial blob")?;
            match self.file.file.read(&mut buffer) {
                Ok(0) => return Ok(self.file.bytes() > 0),
                Ok(count) => self.file.update(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
                Err(error) => return Err(self.failed("read")(errno_of(&error)).into()),
            }
        }
    }

    fn restart(&mut self) -> Result<(), StoreError> {
        let restarted = self.file.restart();
        Ok(restarted.map_err(|error| self.failed("ftruncate")(errno_of(&error)))?)
    }

    fn receive(&mut self) -> Result<(), OciError> {
        let (mut fruitless, mut tries) = (0, 0);
        while self.file.bytes() < self.descriptor.bytes {
            let before = self.file.bytes();
            let read_error = self.receive_once()?;
            if self.file.bytes() == self.descriptor.bytes {
                break;
            }
            fruitless = if self.file.bytes() > before {
                0
            } else {
                fruitless + 1
            };
            tries += 1;
            if fruitless == FRUITLESS_MAX || tries == TRIES_MAX {
                return Err(self.truncated(read_error));
            }
            let pause = FIRST_DELAY * 2_u32.pow(fruitless);
            let during = "waiting to resume a download";
            self.observer
                .pause("the download broke off", pause, during)?;
        }
        Ok(())
    }

    /// Reads one response of the origin to its end. Returns the read error, if one ended it.
    fn receive_once(&mut self) -> Result<Option<std::io::Error>, OciError> {
        let origin = self.origin;
        let mut stream = match origin.blob(&self.descriptor.digest, self.file.bytes()) {
            Ok(stream) => stream,
            Err(error) => return self.classify(error.into_read()).map(Some),
        };
        if stream.starts_at != self.file.bytes() {
            self.restart()?;
        }
        if stream.starts_at != self.file.bytes() {
            let problem = format!("it starts at byte {}", stream.starts_at);
            return Ok(Some(std::io::Error::other(problem)));
        }
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            self.observer.check("receiving a blob")?;
            let count = match stream.reader.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return self.classify(error).map(Some),
            };
            self.append(&buffer[..count])?;
            self.observer.progress(&Progress::Receiving {
                digest: &self.descriptor.digest,
                bytes: self.file.bytes(),
                of_bytes: self.descriptor.bytes,
            });
        }
    }

    /// Returns an error of the origin that a retry may solve. Fails with any other.
    fn classify(&self, error: std::io::Error) -> Result<std::io::Error, OciError> {
        match OciError::of_read(error) {
            Ok(error) if error.is_temporary() => Ok(error.into_read()),
            Ok(error) => Err(error),
            Err(error) => Ok(error),
        }
    }

    fn append(&mut self, piece: &[u8]) -> Result<(), OciError> {
        let missing = self.descriptor.bytes - self.file.bytes();
        if piece.len() as u64 > missing {
            return Err(StoreError::Size {
                place: self.origin.name(),
                digest: self.descriptor.digest,
                found: "more".to_owned(),
                bytes: self.descriptor.bytes,
            }
            .into());
        }
        let written = self.file.write_all(piece);
        Ok(written.map_err(|error| self.failed("write")(errno_of(&error)))?)
    }

    fn truncated(&self, source: Option<std::io::Error>) -> OciError {
        // An error of the origin is more precise than "truncated".
        let source = match source.map(OciError::of_read) {
            Some(Ok(error)) => return error,
            Some(Err(error)) => Some(error),
            None => None,
        };
        StoreError::Truncated {
            place: self.origin.name(),
            digest: self.descriptor.digest,
            found_bytes: self.file.bytes(),
            bytes: self.descriptor.bytes,
            source,
        }
        .into()
    }

    fn failed(&self, call: &'static str) -> impl Fn(rustix::io::Errno) -> CacheError {
        self.store.directory.root().failed(call, &self.name)
    }
}
