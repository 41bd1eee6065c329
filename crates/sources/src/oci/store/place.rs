//! Where the store lies: on a disk, never in memory.

use std::path::PathBuf;

use crate::oci::store::StoreError;
use spec::host_policy::HostPolicy;
use spec::request::Caller;
use store::place::file_system;

/// Most that it takes, unless somebody states a size.
const SIZE_BYTES: u64 = 20 << 30;
/// The part of its file system that it takes at most, unless somebody states a size.
const PART_OF_DISK: u64 = 4;

/// Where the store lies and how much it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePlace {
    pub directory: PathBuf,
    /// Bytes of all that is in it.
    pub size_bytes: u64,
}

impl StorePlace {
    /// For this caller: what he says, else what the host says, else `oci` in his cache directory.
    ///
    /// # Errors
    /// [`StoreError::Cache`] where the file system cannot be looked at.
    pub fn choose(caller: &Caller, policy: &HostPolicy) -> Result<Self, StoreError> {
        let stated = caller.oci_directory.as_ref();
        let stated = stated.or(policy.oci.directory.as_ref());
        let directory = stated.map_or_else(|| caller.cache_directory.join("oci"), Clone::clone);
        let size_bytes = match policy.oci.size_bytes {
            Some(bytes) => bytes,
            None => {
                let (_, total_bytes) = file_system(&directory)?.unwrap_or((false, u64::MAX));
                SIZE_BYTES.min(total_bytes / PART_OF_DISK)
            }
        };
        Ok(Self {
            directory,
            size_bytes,
        })
    }
}
