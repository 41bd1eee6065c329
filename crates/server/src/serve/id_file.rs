//! How `runner sandbox exec --id-file` tells the id of a command that has started.

use std::ffi::OsString;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::error::ApiError;
use super::workspace::Workspace;

const NAME: &str = "id";
/// A number of 64 bits, and its end of line.
const LINE_BYTES_MAX: usize = 21;

/// A pipe with a name that a child opens: no descriptor is inherited, which would also be by other children.
#[derive(Debug)]
pub(super) struct IdFile {
    directory: TempDir,
    /// Open for writing, too: so it has no end while nobody has opened it.
    pipe: pipe::Receiver,
    line: Vec<u8>,
}

impl IdFile {
    /// # Errors
    /// 500.
    pub(super) fn make(workspace: &Workspace) -> Result<Self, ApiError> {
        let failed = |error: std::io::Error| {
            ApiError::failed(format!("cannot make a pipe for the id: {error}"))
        };
        let directory = workspace.make()?;
        let path = directory.path().join(NAME);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(|errno| failed(errno.into()))?;
        let opened = pipe::OpenOptions::new()
            .read_write(true)
            .open_receiver(&path);
        Ok(Self {
            directory,
            pipe: opened.map_err(failed)?,
            line: Vec::new(),
        })
    }

    /// The flag of `runner sandbox exec`.
    pub(super) fn word(&self) -> OsString {
        let mut word = OsString::from("--id-file=");
        word.push(self.directory.path().join(NAME));
        word
    }

    /// Waits until it has been written.
    pub(super) async fn id(&mut self) -> u64 {
        let mut buffer = [0; LINE_BYTES_MAX];
        loop {
            if let Some(id) = self.parsed() {
                return id;
            }
            match self.pipe.read(&mut buffer).await {
                Ok(count @ 1..) => self.line.extend_from_slice(&buffer[..count]),
                // Only `runner` writes there, so it comes no more.
                Ok(0) | Err(_) => std::future::pending().await,
            }
        }
    }

    /// What has been written, without waiting.
    pub(super) fn written(&mut self) -> Option<u64> {
        let mut buffer = [0; LINE_BYTES_MAX];
        while let Ok(count @ 1..) = rustix::io::read(&self.pipe, &mut buffer) {
            self.line.extend_from_slice(&buffer[..count]);
        }
        self.parsed()
    }

    fn parsed(&self) -> Option<u64> {
        let line = self.line.strip_suffix(b"\n")?;
        std::str::from_utf8(line).ok()?.parse().ok()
    }
}
