//! Errors of the store.

use rustix::io::Errno;

use spec::digest::Digest;
use store::CacheError;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store of artifacts cannot be used")]
    Cache(#[from] CacheError),
    /// The blob has fewer bytes than the descriptor states, also after retries.
    #[error("{place}: blob {digest} ends after {found_bytes} of {bytes} bytes")]
    Truncated {
        place: String,
        digest: Digest,
        found_bytes: u64,
        bytes: u64,
        /// The read error, or `None` for an end of file.
        #[source]
        source: Option<std::io::Error>,
    },
    #[error("{place}: blob {digest} has {found}, its descriptor says {bytes} bytes")]
    Size {
        place: String,
        digest: Digest,
        found: String,
        bytes: u64,
    },
    #[error("{place}: expected blob {digest}, found bytes with {found}")]
    Digest {
        place: String,
        digest: Digest,
        found: Digest,
    },
    /// The blob disappeared, or another process keeps removing it.
    #[error("blob {digest} is not in the store")]
    Gone { digest: Digest },
    #[error("the store has no artifact named {name}")]
    Unnamed { name: String },
}

impl StoreError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Cache(CacheError::Call(error)) => Some(error.errno),
            _ => None,
        }
    }

    /// Whether the disk or quota is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.errno().is_some_and(sys::file::is_full)
    }

    #[must_use]
    pub(crate) fn is_wrong_digest(&self) -> bool {
        matches!(self, Self::Digest { .. })
    }

    /// Whether the received bytes are wrong. A later attempt cannot resume from them.
    pub(super) fn is_wrong_content(&self) -> bool {
        matches!(self, Self::Size { .. } | Self::Digest { .. })
    }

    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Cache(CacheError::Unsafe { .. }) => "store_unsafe",
            Self::Cache(_) if self.is_full() => "store_full",
            Self::Cache(_) if self.errno() == Some(Errno::ROFS) => "store_read_only",
            Self::Cache(_) => "store_unusable",
            Self::Truncated { .. } => "store_blob_truncated",
            Self::Size { .. } => "store_blob_wrong_size",
            Self::Digest { .. } => "store_blob_wrong_digest",
            Self::Gone { .. } => "store_blob_gone",
            Self::Unnamed { .. } => "store_unnamed",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self.code() {
            _ if matches!(self, Self::Cache(CacheError::Locked { .. })) => {
                "try again when the other process, or the body, has ended"
            }
            "store_unsafe" | "store_unusable" => {
                "set oci.directory to a directory of this user on a disk"
            }
            "store_full" => {
                "`runner source gc --all` removes unused objects; oci.directory sets another directory"
            }
            "store_read_only" => {
                "existing artifacts can be used; set oci.directory to a writable directory"
            }
            "store_blob_truncated" => "repeat the command: it resumes the download",
            "store_blob_wrong_size" | "store_blob_wrong_digest" => {
                "nothing of it was used; the publisher must push it again"
            }
            "store_blob_gone" => "pull it again",
            "store_unnamed" => "`runner source list` shows the artifacts",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_store_is_not_to_be_moved() {
        let path = "/store/1/lock".to_owned();
        let error = StoreError::from(CacheError::Locked { path });
        assert_eq!(error.code(), "store_unusable");
        let hint = error.hint().expect("a hint");
        assert!(
            hint.contains("try again") && !hint.contains("oci."),
            "{hint}"
        );
    }
}
