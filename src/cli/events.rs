//! The target of `--events`: opened before the run, written while it goes on.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;

use crate::cli::report_file::{Found, ReportFile};
use crate::cli::report_target::{self, TargetError};
use crate::run::events::{EventStream, LostEvents};
use spec::path::escape;
use spec::report::{Report, WarningReport};

const FLAG: &str = "events";

/// The events of a run and where they are written.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) stream: EventStream,
    /// The flag's value, escaped.
    name: String,
    /// `None`: it is no regular file.
    file: Option<(ReportFile, OwnedFd)>,
}

impl Events {
    /// Opens the value of `--events`. A file is emptied.
    ///
    /// # Errors
    /// [`TargetError`] if it cannot be written.
    pub(super) fn open(value: Option<&OsStr>) -> Result<Self, TargetError> {
        let Some(value) = value else {
            return Ok(Self::default());
        };
        let name = escape(value.as_bytes());
        let failed = |errno: Errno| TargetError::File {
            flag: FLAG,
            file: name.clone(),
            errno,
        };
        let (stream, file) = match report_target::open(FLAG, value)? {
            Found::Stream(fd) => (EventStream::to(fd.as_fd()).map_err(failed)?, None),
            Found::File(file) => {
                let written = file.open_in_place().map_err(failed)?;
                let stream = EventStream::to(written.as_fd()).map_err(failed)?;
                (stream, Some((file, written)))
            }
        };
        Ok(Self { stream, name, file })
    }

    /// Writes the last event. The report gets a warning if events are not where the caller looks for
    /// them.
    pub(super) fn end(&self, report: &mut Report) {
        let lost = self.stream.end(report).map(|lost| self.describe(&lost));
        let is_elsewhere =
            |(file, written): &(ReportFile, OwnedFd)| file.check_path(written.as_fd()).is_err();
        let elsewhere = self.file.as_ref().filter(|file| is_elsewhere(file));
        let elsewhere = elsewhere.map(|_file| {
            let name = &self.name;
            format!("the events are not at {name}: another file took its place during the run")
        });
        let warnings = lost.into_iter().chain(elsewhere);
        let warnings = warnings.map(|message| WarningReport::new("events_lost", message));
        report.warnings.extend(warnings);
    }

    fn describe(&self, lost: &LostEvents) -> String {
        let LostEvents { lost, total, errno } = lost;
        let cause = errno.map_or_else(
            || "the reader is too slow".to_owned(),
            |errno| errno.to_string(),
        );
        let name = &self.name;
        format!("{lost} of {total} events were not written to {name}: {cause}")
    }
}
