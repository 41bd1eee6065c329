//! A record of temporary directories that a verb makes outside of a run.

use std::ffi::OsString;
use std::path::Path;

use crate::run::error::RunError;
use crate::run::host::resources::open_records;
use crate::staging::{COPY_PREFIX, GIT_PREFIX};
use sandbox::records::{Entry, RunRecord};
use spec::request::Caller;
use sys::process::random_digits;

/// Records the names of temporary directories before they are made: the next start removes those of a
/// killed process. To be dropped after they are removed.
#[derive(Debug)]
pub(crate) struct TemporaryRecord(Option<RunRecord>);

/// What a temporary directory is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// Files that `sandbox cp` unpacks.
    Copy,
    /// The git directory of `source build`.
    Git,
}

impl TemporaryRecord {
    /// Begins a record without names.
    ///
    /// # Errors
    /// That of the runtime directory, or of getrandom(2).
    pub(crate) fn begin(caller: &Caller) -> Result<Self, RunError> {
        let records = open_records(caller)?;
        let record = records.begin(&format!("temporary-{}", digits()?))?;
        Ok(Self(Some(record)))
    }

    /// Chooses and records a name for a new directory in `directory`, an absolute path.
    ///
    /// # Errors
    /// Nothing may be made: that of the record, or of getrandom(2).
    pub(crate) fn choose_name(
        &mut self,
        directory: &Path,
        purpose: Purpose,
    ) -> Result<String, RunError> {
        let prefix = match purpose {
            Purpose::Copy => COPY_PREFIX,
            Purpose::Git => GIT_PREFIX,
        };
        let name = format!("{prefix}{}", digits()?);
        let entry = Entry::Temporary {
            directory: directory.to_owned(),
            name: OsString::from(&name),
        };
        if let Some(record) = &mut self.0 {
            record.record(&entry)?;
        }
        Ok(name)
    }
}

impl Drop for TemporaryRecord {
    fn drop(&mut self) {
        if let Some(record) = self.0.take() {
            // Harmless: the next start finds that nothing is left.
            record.finish().unwrap_or_default();
        }
    }
}

fn digits() -> Result<String, RunError> {
    random_digits().map_err(RunError::host("choose a name for a temporary directory"))
}
