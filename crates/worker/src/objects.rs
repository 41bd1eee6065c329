//! Files in an object store, by the digests of their contents. Whoever reads one computes its digest.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream::object_store::{GetErrorKind, InfoErrorKind, ObjectStore};
use sha2::{Digest as _, Sha256};
use spec::digest::Digest;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::engine::EngineError;
use crate::messages::ObjectDigest;

/// A read that takes longer is one of a connection that is gone.
const READ_TIME: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 128 << 10;

/// Why a file was not fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("there is no object {0}")]
    Missing(Digest),
    #[error("the object {digest} has {bytes} bytes, and --max-file is {most}")]
    TooLarge {
        digest: Digest,
        bytes: u64,
        most: u64,
    },
    #[error("the object {expected} has other content: {found}")]
    Other { expected: Digest, found: Digest },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// An object store whose names are digests.
pub(crate) struct Objects(pub(crate) ObjectStore);

impl std::fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Objects")
    }
}

impl Objects {
    /// Puts a file, unless it is there. Returns its digest and its length.
    pub(crate) async fn put(&self, path: &Path) -> Result<(ObjectDigest, u64), EngineError> {
        let call = EngineError::call::<io::Error>("read the file");
        let hashed = path.to_owned();
        let hashed = tokio::task::spawn_blocking(move || hash(hashed)).await;
        let (digest, bytes) = hashed
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(call)?;
        if !self.has(&digest).await? {
            let mut file = File::open(path)
                .await
                .map_err(EngineError::call("read the file"))?;
            let name = digest.to_string();
            self.0
                .put(name.as_str(), &mut file)
                .await
                .map_err(EngineError::call("put an object"))?;
        }
        Ok((ObjectDigest(digest), bytes))
    }

    async fn has(&self, digest: &Digest) -> Result<bool, EngineError> {
        match self.0.info(digest.to_string()).await {
            Ok(info) => Ok(!info.deleted),
            Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(false),
            Err(error) => Err(EngineError::call("look for an object")(error)),
        }
    }

    /// Writes the object to `path`, which does not exist, if it has at most so many bytes.
    pub(crate) async fn fetch(
        &self,
        digest: Digest,
        path: &Path,
        most: u64,
    ) -> Result<(), FetchError> {
        let write = |source: io::Error| FetchError::Write {
            path: path.display().to_string(),
            source,
        };
        let mut object = match self.0.get(digest.to_string()).await {
            Ok(object) => object,
            Err(error) if error.kind() == GetErrorKind::NotFound => {
                return Err(FetchError::Missing(digest));
            }
            Err(error) => return Err(EngineError::call("fetch an object")(error).into()),
        };
        let mut file = File::create_new(path).await.map_err(write)?;
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            // It checks a digest, too, but that which the bucket states.
            let read = timeout(READ_TIME, object.read(&mut piece)).await;
            let read = read.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
            let count = read.map_err(EngineError::call("fetch an object"))?;
            if count == 0 {
                break;
            }
            bytes += count as u64;
            if bytes > most {
                let bytes = object.info().size as u64;
                return Err(FetchError::TooLarge {
                    digest,
                    bytes,
                    most,
                });
            }
            hasher.update(&piece[..count]);
            file.write_all(&piece[..count]).await.map_err(write)?;
        }
        file.flush().await.map_err(write)?;
        let found = Digest::from_hasher(hasher);
        match found == digest {
            true => Ok(()),
            false => Err(FetchError::Other {
                expected: digest,
                found,
            }),
        }
    }
}

fn hash(path: PathBuf) -> io::Result<(Digest, u64)> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let bytes = io::copy(&mut file, &mut HashWriter(&mut hasher))?;
    Ok((Digest::from_hasher(hasher), bytes))
}

struct HashWriter<'hasher>(&'hasher mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
