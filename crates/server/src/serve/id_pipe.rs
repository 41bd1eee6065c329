//! How `runner sandbox exec --id-file` tells the id of a command that has started.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::error::ApiError;

/// A number of 64 bits, and its end of line.
const LINE_BYTES_MAX: usize = 21;

pub(super) fn no_pipe(error: &std::io::Error) -> ApiError {
    ApiError::failed(format!("cannot make a pipe: {error}"))
}

/// A pipe, and the end that a child inherits.
///
/// # Errors
/// The process has no descriptors left.
pub(super) fn pipe_from_child() -> Result<(pipe::Receiver, OwnedFd), ApiError> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| no_pipe(&error.into()))?;
    let reader = pipe::Receiver::from_owned_fd(reader).map_err(|error| no_pipe(&error))?;
    Ok((reader, writer))
}

/// The server's end of the pipe that gets the id.
#[derive(Debug)]
pub(super) struct IdPipe {
    pipe: pipe::Receiver,
    line: Vec<u8>,
}

impl IdPipe {
    /// Adds the flag of `runner sandbox exec`, and returns the end that it inherits as well.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub(super) fn make(flags: &mut Vec<OsString>) -> Result<(Self, OwnedFd), ApiError> {
        let (pipe, end) = pipe_from_child()?;
        flags.push(format!("--id-file=fd:{}", end.as_raw_fd()).into());
        let line = Vec::new();
        Ok((Self { pipe, line }, end))
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
