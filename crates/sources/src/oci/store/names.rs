//! Names of manifests: the references they were pulled or built as.

use serde::{Deserialize, Serialize};

use crate::oci::store::{BUILDING, NAMES, Store, StoreError, hexadecimal};
use spec::digest::Digest;

const NAME_BYTES_MAX: u64 = 16 << 10;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    digest: String,
}

impl Store {
    /// Records that `name` refers to the manifest `digest`.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn name(&self, name: &str, digest: &Digest) -> Result<(), StoreError> {
        if self.named(name)? == Some(*digest) {
            return Ok(());
        }
        for part in [NAMES, BUILDING] {
            self.make_part(part)?;
        }
        let to = file_of(name);
        let named = Named {
            name: name.to_owned(),
            digest: digest.to_string(),
        };
        let bytes = serde_json::to_vec(&named)
            .map_err(|_never| self.failed("write", &to)(rustix::io::Errno::INVAL))?;
        // The file that is being written has no lock; cleanup needs the lock on the names.
        let _names = self.shelf.lock_names()?;
        let draft = self.shelf.draft()?;
        self.shelf.write(&draft, &bytes)?;
        rustix::fs::renameat(self.root(), &draft, self.root(), &to)
            .map_err(self.failed("renameat", &to))
    }

    /// Returns the manifest that `name` last referred to.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn named(&self, name: &str) -> Result<Option<Digest>, StoreError> {
        let found = self.read_name(&file_of(name))?;
        Ok(found.and_then(|(found, digest)| (found == name).then_some(digest)))
    }

    /// Lists all names, sorted, with their digests.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn names(&self) -> Result<Vec<(String, Digest)>, StoreError> {
        let mut names = Vec::new();
        for file in self.shelf.names(NAMES)? {
            names.extend(self.read_name(&format!("{NAMES}/{file}"))?);
        }
        names.sort();
        Ok(names)
    }

    pub(super) fn forget_names(&self) -> Result<(), StoreError> {
        for file in self.shelf.names(NAMES)? {
            let file = format!("{NAMES}/{file}");
            match self.read_name(&file)? {
                Some((_, digest)) if self.has(&digest) => (),
                _ => self.unlink(&file)?,
            }
        }
        Ok(())
    }

    fn read_name(&self, file: &str) -> Result<Option<(String, Digest)>, StoreError> {
        let bytes = self.shelf.read(file, NAME_BYTES_MAX)?;
        Ok(bytes.and_then(|bytes| {
            let named: Named = serde_json::from_slice(&bytes).ok()?;
            let digest = Digest::parse(&named.digest)?;
            Some((named.name, digest))
        }))
    }
}

pub(super) fn file_of(name: &str) -> String {
    format!("{NAMES}/{}", hexadecimal(&Digest::of(name.as_bytes())))
}
