//! Files in an object store, by the digests of their contents. Whoever reads one computes its digest.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_nats::jetstream::object_store::{
    GetErrorKind, InfoErrorKind, Object, ObjectInfo, ObjectStore,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use sha2::{Digest as _, Sha256};
use spec::digest::Digest;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::engine::EngineError;
use crate::messages::ObjectDigest;

/// A read that takes longer is one of a connection that is gone.
const READ_TIME: Duration = Duration::from_secs(30);
/// To open an object.
const OPEN_TIME: Duration = Duration::from_secs(2);
const CHUNK_BYTES: usize = 128 << 10;

/// Why a file was not fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("there is no object {0}")]
    Missing(Digest),
    #[error("the object {digest} has more than {max_bytes} bytes, which is --max-file")]
    TooLarge { digest: Digest, max_bytes: u64 },
    #[error("the object {0} has other content")]
    OtherContent(Digest),
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl FetchError {
    /// Whether another worker would fail, too.
    pub(crate) const fn is_of_sender(&self) -> bool {
        match self {
            Self::Missing(_) | Self::TooLarge { .. } | Self::OtherContent(_) => true,
            Self::Write { .. } | Self::Engine(_) => false,
        }
    }
}

/// An object store whose names are digests.
pub(crate) struct Objects {
    pub(crate) store: ObjectStore,
    /// How long an object is kept; zero: until it is removed.
    pub(crate) max_age: Duration,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Objects")
    }
}

impl Objects {
    /// Puts a file, unless it is there, and not to be removed soon. Returns its digest and its length.
    pub(crate) async fn put(&self, path: &Path) -> Result<(ObjectDigest, u64), EngineError> {
        let call = EngineError::local::<io::Error>("read the file");
        let hashed = path.to_owned();
        let hashed = tokio::task::spawn_blocking(move || hash(hashed)).await;
        let (digest, bytes) = hashed
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(call)?;
        if !self.has(&digest).await? {
            let name = digest.to_string();
            let mut file = File::open(path)
                .await
                .map_err(EngineError::local("read the file"))?;
            let put = self.store.put(name.as_str(), &mut file).await;
            let info = put.map_err(EngineError::call("put an object"))?;
            if !is_of(&info, &digest) {
                let removed = self.store.delete(name).await;
                removed.map_err(EngineError::call("remove an object"))?;
                let problem = format!("{}: it was changed meanwhile", path.display());
                return Err(EngineError::local("put an object")(problem));
            }
        }
        Ok((ObjectDigest(digest), bytes))
    }

    async fn has(&self, digest: &Digest) -> Result<bool, EngineError> {
        match self.store.info(digest.to_string()).await {
            Ok(info) => {
                let age = info.modified.map(|time| SystemTime::from(time).elapsed());
                let age = age.and_then(Result::ok).unwrap_or_default();
                Ok(is_of(&info, digest) && !is_old(age, self.max_age))
            }
            Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(false),
            Err(error) => Err(EngineError::call("look for an object")(error)),
        }
    }

    /// The object, if its meta data are those of this digest.
    async fn open(&self, digest: Digest, max_bytes: u64) -> Result<Object, FetchError> {
        let name = digest.to_string();
        let info = match self.store.info(&name).await {
            Ok(info) if info.deleted => return Err(FetchError::Missing(digest)),
            Ok(info) => info,
            Err(error) if error.kind() == InfoErrorKind::NotFound => {
                return Err(FetchError::Missing(digest));
            }
            Err(error) => return Err(EngineError::call("fetch an object")(error).into()),
        };
        if info.size as u64 > max_bytes {
            return Err(FetchError::TooLarge { digest, max_bytes });
        }
        if !is_of(&info, &digest) {
            return Err(FetchError::OtherContent(digest));
        }
        // What was no link may be one now, and links are followed without end.
        match timeout(OPEN_TIME, self.store.get(&name)).await {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(error)) if error.kind() == GetErrorKind::NotFound => {
                Err(FetchError::Missing(digest))
            }
            Ok(Err(error)) => Err(EngineError::call("fetch an object")(error).into()),
            Err(elapsed) => Err(EngineError::call("fetch an object")(elapsed).into()),
        }
    }

    /// Writes the object to `path`, which does not exist, if it has at most so many bytes.
    pub(crate) async fn fetch(
        &self,
        digest: Digest,
        path: &Path,
        max_bytes: u64,
    ) -> Result<(), FetchError> {
        let write = |source: io::Error| FetchError::Write {
            path: path.display().to_string(),
            source,
        };
        let mut object = self.open(digest, max_bytes).await?;
        let mut file = File::create_new(path).await.map_err(write)?;
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            // It checks a digest, too, but that which the bucket states.
            let read = timeout(READ_TIME, object.read(&mut chunk)).await;
            let read = read.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
            let count = read.map_err(EngineError::call("fetch an object"))?;
            if count == 0 {
                break;
            }
            bytes += count as u64;
            if bytes > max_bytes {
                return Err(FetchError::TooLarge { digest, max_bytes });
            }
            hasher.update(&chunk[..count]);
            file.write_all(&chunk[..count]).await.map_err(write)?;
        }
        file.flush().await.map_err(write)?;
        match Digest::from_hasher(hasher) == digest {
            true => Ok(()),
            false => Err(FetchError::OtherContent(digest)),
        }
    }
}

/// Whether an object of this age is put again: whoever needs it may do so for as long as its results are kept.
fn is_old(age: Duration, max_age: Duration) -> bool {
    !max_age.is_zero() && max_age / 2 < age
}

/// Whether the meta data are those of an object with this content, and no link.
fn is_of(info: &ObjectInfo, digest: &Digest) -> bool {
    let is_link = info
        .options
        .as_ref()
        .is_some_and(|options| options.link.is_some());
    let stated = info.digest.as_deref();
    let stated = stated.and_then(|stated| stated.strip_prefix("SHA-256="));
    !info.deleted && !is_link && stated == Some(&URL_SAFE.encode(digest.bytes()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_put_again_when_half_of_its_time_is_over() {
        let day = Duration::from_secs(24 * 60 * 60);
        for (age, max_age, expected) in [
            (Duration::ZERO, 7 * day, false),
            (3 * day, 7 * day, false),
            (4 * day, 7 * day, true),
            (900 * day, Duration::ZERO, false),
        ] {
            assert_eq!(is_old(age, max_age), expected, "{age:?} of {max_age:?}");
        }
    }
}
