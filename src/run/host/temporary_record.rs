//! A record of temporary directories that a verb makes outside of a run.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::run::host::resources::runtime_directory;
use crate::staging::{COPY_PREFIX, GIT_PREFIX};
use sandbox::records::{Entry, RecordsError, RunRecord, RunRecords};
use spec::report::with_causes;
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
    pub(crate) fn begin(caller: &Caller) -> io::Result<Self> {
        let records = RunRecords::open(&runtime_directory(caller)).map_err(failed)?;
        let record = records.begin(&format!("temporary-{}", random_digits()?));
        Ok(Self(Some(record.map_err(failed)?)))
    }

    /// Chooses and records a name for a new directory in `directory`, an absolute path.
    ///
    /// # Errors
    /// Nothing may be made: that of the record, or of getrandom(2).
    pub(crate) fn choose_name(&mut self, directory: &Path, purpose: Purpose) -> io::Result<String> {
        let prefix = match purpose {
            Purpose::Copy => COPY_PREFIX,
            Purpose::Git => GIT_PREFIX,
        };
        let name = format!("{prefix}{}", random_digits()?);
        let entry = Entry::Temporary {
            directory: directory.to_owned(),
            name: OsString::from(&name),
        };
        if let Some(record) = &mut self.0 {
            record.record(&entry).map_err(failed)?;
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

fn failed(error: RecordsError) -> io::Error {
    io::Error::other(with_causes(&error))
}
