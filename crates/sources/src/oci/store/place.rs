//! Location and size limit of the store.

use std::path::PathBuf;

use crate::oci::store::StoreError;
use spec::host_policy::HostPolicy;
use spec::request::Caller;
use store::file_system;

const DEFAULT_SIZE_BYTES: u64 = 20 << 30;
/// The default size limit is at most the size of the file system divided by this number.
const DISK_DIVISOR: u64 = 4;

/// Location and size limit of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePlace {
    pub directory: PathBuf,
    pub size_bytes: u64,
}

impl StorePlace {
    /// Selects the directory of the caller, else of the host policy, else `oci` in the cache
    /// directory of the caller.
    ///
    /// # Errors
    /// [`StoreError::Cache`]: the file system cannot be inspected.
    pub fn choose(caller: &Caller, policy: &HostPolicy) -> Result<Self, StoreError> {
        let stated = caller.oci_directory.as_ref();
        let stated = stated.or(policy.oci.directory.as_ref());
        let directory = stated.map_or_else(|| caller.cache_directory.join("oci"), Clone::clone);
        let size_bytes = match policy.oci.size_bytes {
            Some(bytes) => bytes,
            None => {
                let (_, total_bytes) = file_system(&directory)?.unwrap_or((false, u64::MAX));
                DEFAULT_SIZE_BYTES.min(total_bytes / DISK_DIVISOR)
            }
        };
        Ok(Self {
            directory,
            size_bytes,
        })
    }
}
