//! Single flight: one process does the work, the others wait and can be cancelled.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::oci::error::OciError;
use crate::oci::listener::{Listener, Progress};
use crate::oci::store::{CLAIMS, Store, StoreError};
use sys::lock::try_claim_file;

/// Interval between attempts on a held lock. flock(2) has no time limit, and cancellation does not
/// interrupt it.
const TRIED_EVERY: Duration = Duration::from_millis(50);

/// An exclusive claim on a name. Dropping it ends the claim.
#[derive(Debug)]
pub struct Claim<'store> {
    store: &'store Store,
    name: String,
    _lock: OwnedFd,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Unlinked while locked: a waiting process notices that the name is gone and makes a new
        // file.
        if self.store.unlink(&self.name).is_err() {
            // The empty file that remains is harmless.
        }
    }
}

impl Store {
    /// Claims `name`, a plain file name; waits while another process holds it.
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

    pub(super) fn forget_claims(&self) -> Result<(), StoreError> {
        for name in self.shelf.names(CLAIMS)? {
            let name = format!("{CLAIMS}/{name}");
            if let Some(_claim) = self.claim_once(&name)? {
                self.unlink(&name)?;
            }
        }
        Ok(())
    }

    /// Creates or opens `name` for writing and locks it; `None` if another process holds the lock.
    pub(super) fn claim_once(&self, name: &str) -> Result<Option<OwnedFd>, StoreError> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let Some(file) = self.open_at(name, flags)? else {
            return Ok(None);
        };
        let is_free = try_claim_file(file.as_fd()).map_err(self.failed("flock", name))?;
        // The file may have been renamed or removed between open and lock.
        Ok((is_free && self.is_still(&file, name)?).then_some(file))
    }
}

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
