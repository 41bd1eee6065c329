//! Names of manifests: the references they were pulled or built as.

use serde::{Deserialize, Serialize};

use crate::oci::store::{NAMES, Store, StoreError};
use crate::to_json;
use spec::digest::Digest;

const NAME_BYTES_MAX: u64 = 16 << 10;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    digest: Digest,
}

impl Store {
    /// Records that `name` refers to the manifest `digest`.
    pub fn set_name(&self, name: &str, digest: &Digest) -> Result<(), StoreError> {
        if self.named(name)? == Some(*digest) {
            return Ok(());
        }
        let bytes = to_json(&Named {
            name: name.to_owned(),
            digest: *digest,
        });
        Ok(self.directory.write(NAMES, &file_of(name), &bytes)?)
    }

    /// Returns the manifest that `name` last referred to.
    pub fn named(&self, name: &str) -> Result<Option<Digest>, StoreError> {
        let found = self.read_name(&file_of(name))?;
        Ok(found.and_then(|(found, digest)| (found == name).then_some(digest)))
    }

    /// Lists all names, sorted, with their digests.
    pub fn names(&self) -> Result<Vec<(String, Digest)>, StoreError> {
        let mut names = Vec::new();
        for file in self.directory.root().names(NAMES)? {
            names.extend(self.read_name(&file)?);
        }
        names.sort();
        Ok(names)
    }

    /// Removes the names of missing manifests.
    pub(super) fn remove_stale_names(&self) -> Result<(), StoreError> {
        let _names = self.directory.lock_names()?;
        for file in self.directory.root().names(NAMES)? {
            match self.read_name(&file)? {
                Some((_, digest)) if self.has(&digest) => (),
                _ => self.remove_name(&file)?,
            }
        }
        Ok(())
    }

    pub(super) fn remove_name(&self, file: &str) -> Result<(), StoreError> {
        Ok(self.directory.root().unlink(&format!("{NAMES}/{file}"))?)
    }

    fn read_name(&self, file: &str) -> Result<Option<(String, Digest)>, StoreError> {
        let file = format!("{NAMES}/{file}");
        let bytes = self.directory.root().read(&file, NAME_BYTES_MAX)?;
        Ok(bytes.and_then(|bytes| {
            let named: Named = serde_json::from_slice(&bytes).ok()?;
            Some((named.name, named.digest))
        }))
    }
}

pub(super) fn file_of(name: &str) -> String {
    Digest::of(name.as_bytes()).hexadecimal()
}
