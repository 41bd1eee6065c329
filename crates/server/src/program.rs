//! The program `runner` that this one was installed with.

use std::io;
use std::path::{Path, PathBuf};

/// Where `runner` is.
#[derive(Debug, Clone)]
pub(crate) struct Program(PathBuf);

impl Program {
    /// That in the directory of this program: never one of `PATH`, which may be of another version.
    pub(crate) fn beside_this_one() -> io::Result<Self> {
        let path = std::env::current_exe()?.with_file_name("runner");
        path.metadata().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}
