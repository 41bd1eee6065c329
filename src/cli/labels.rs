//! Resolves `--label-file` and `--label`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::cli::environment::{entries_of, read_file};
use crate::cli::request::RequestError;
use spec::labels::Labels;
use spec::report::ErrorReport;

/// The labels of the files in order, then those of the flags.
///
/// # Errors
/// A file cannot be read, or these are no labels.
pub(super) fn read_labels(files: &[PathBuf], flags: &[OsString]) -> Result<Labels, ErrorReport> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    for file in files {
        let bytes = read_file("--label-file", file);
        let bytes = bytes.map_err(|error| RequestError::from(error).report())?;
        words.extend(entries_of(&bytes).map(|(_number, entry)| entry.to_vec()));
    }
    words.extend(flags.iter().map(|flag| flag.as_bytes().to_vec()));
    Labels::parse(words.iter().map(Vec::as_slice)).map_err(|error| ErrorReport {
        code: "label_invalid".to_owned(),
        message: error.to_string(),
        hint: None,
        source_line: None,
    })
}
