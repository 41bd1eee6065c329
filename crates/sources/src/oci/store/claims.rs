//! Single flight: one process does it, the others wait for it, and can be cancelled meanwhile.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::oci::error::OciError;
use crate::oci::listener::{Listener, Progress};
use crate::oci::store::{CLAIMS, Store, StoreError};
use sys::lock::try_claim_file;

/// How often a lock that somebody has is tried again. flock(2) knows no time limit, and a signal
/// that cancels is no interruption here.
const TRIED_EVERY: Duration = Duration::from_millis(50);

/// A claim on a name. It ends when it is dropped.
#[derive(Debug)]
pub struct Claim<'store> {
    store: &'store Store,
    name: String,
    _lock: OwnedFd,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Still locked: whoever waits for it sees that the name is gone, and makes another.
        if self.store.unlink(&self.name).is_err() {
            // An empty file stays; it says nothing.
        }
    }
}

impl Store {
    /// Claims `name`, which is plain, waiting for whoever has it.
    ///
    /// # Errors
    /// [`OciError::Cancelled`], [`OciError::Store`].
    pub fn claim(&self, name: &str, listener: &dyn Listener) -> Result<Claim<'_>, OciError> {
        self.make_part(CLAIMS)?;
        let name = format!("{CLAIMS}/{name}");
        let lock = loop {
            if let Some(lock) = self.claim_once(&name)? {
                break lock;
            }
            pause(listener)?;
        };
        Ok(Claim {
            store: self,
            name,
            _lock: lock,
        })
    }

    /// Removes claims of processes that were killed.
    pub(super) fn forget_claims(&self) -> Result<(), StoreError> {
        for name in self.shelf.names(CLAIMS)? {
            let name = format!("{CLAIMS}/{name}");
            if let Some(_claim) = self.claim_once(&name)? {
                self.unlink(&name)?;
            }
        }
        Ok(())
    }

    /// Opens `name` for writing, making it, and locks it; `None`: somebody else has it.
    pub(super) fn claim_once(&self, name: &str) -> Result<Option<OwnedFd>, StoreError> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let Some(file) = self.open_at(name, flags)? else {
            return Ok(None);
        };
        let is_free = try_claim_file(file.as_fd()).map_err(self.failed("flock", name))?;
        // Renamed or removed between the two calls: it is another's, or nobody's.
        Ok((is_free && self.is_still(&file, name)?).then_some(file))
    }
}

/// Waits a moment for another process.
pub(super) fn pause(listener: &dyn Listener) -> Result<(), OciError> {
    if listener.is_cancelled() {
        return Err(OciError::Cancelled {
            during: "waiting for another process that does the same",
        });
    }
    listener.progress(&Progress::Waiting {
        cause: "another process does the same",
        pause: TRIED_EVERY,
    });
    std::thread::sleep(TRIED_EVERY);
    Ok(())
}
