//! Copies each declared input from the workspace into the scratch directory.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Mode, OFlags};

use crate::staging::FileLimits;
use crate::staging::copy::BUFFER_BYTES;
use crate::staging::destination::check_keys;
use crate::staging::error::{ScratchError, Unfit};
use crate::staging::source::{Allowance, Failed, HardLinks, Opened, open_regular};
use crate::staging::workspace::Workspace;
use spec::path::{RelPath, escape};
use spec::report::StagedReport;
use sys::credentials::{AssumedFileIds, HostIds};

/// A declared input: `path` of the workspace becomes `<scratch>/<key>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Its name in the scratch directory.
    pub key: String,
    /// Relative to the workspace.
    pub path: RelPath,
}

/// Copies all `inputs` into `scratch`; the run must not start if this fails.
///
/// Always copies, never links or mounts: the body may change its copy and never the original. The
/// workspace is read with the caller's ids, `scratch` is written with those of `body`. A copy has mode
/// 0755 if the owner may execute the input, else 0644. Hard links to an input are accepted: all names
/// of a file are equal. After an error the copies made so far stay; the caller discards `scratch` as a
/// whole.
///
/// # Errors
/// The first input that cannot be staged, see [`ScratchError::code`].
pub fn stage(
    workspace: &Workspace,
    inputs: &[InputFile],
    scratch: BorrowedFd<'_>,
    body: Option<HostIds>,
    limits: &FileLimits,
) -> Result<Vec<StagedReport>, ScratchError> {
    check_number_and_keys(inputs, limits)?;
    let mut allowance = Allowance::new(limits);
    let mut buffer = vec![0; BUFFER_BYTES];
    inputs
        .iter()
        .map(|input| stage_one(workspace, input, scratch, body, &mut allowance, &mut buffer))
        .collect()
}

/// Checks that all `inputs` could be staged now and returns their sizes. Copies nothing.
///
/// # Errors
/// The first input that cannot be staged, as from [`stage`].
pub(crate) fn check_inputs(
    workspace: &Workspace,
    inputs: &[InputFile],
    limits: &FileLimits,
) -> Result<Vec<u64>, ScratchError> {
    check_number_and_keys(inputs, limits)?;
    let mut allowance = Allowance::new(limits);
    let check = |input: &InputFile| {
        let bytes = open_input(workspace, input, &allowance)?.bytes;
        allowance.spend(bytes);
        Ok(bytes)
    };
    inputs.iter().map(check).collect()
}

fn check_number_and_keys(inputs: &[InputFile], limits: &FileLimits) -> Result<(), ScratchError> {
    if inputs.len() > limits.files {
        return Err(ScratchError::TooManyFiles {
            found: inputs.len(),
            limit: limits.files,
        });
    }
    check_keys(inputs.iter().map(|input| input.key.as_str()))
}

fn unfit(input: &InputFile, cause: Unfit) -> ScratchError {
    ScratchError::Input {
        key: escape(input.key.as_bytes()),
        path: input.path.to_string(),
        cause,
    }
}

fn open_input(
    workspace: &Workspace,
    input: &InputFile,
    allowance: &Allowance,
) -> Result<Opened, ScratchError> {
    let directory = workspace.as_fd();
    let source = open_regular(directory, input.path.as_bytes(), HardLinks::Accepted)
        .map_err(|cause| unfit(input, cause))?;
    allowance
        .check(source.bytes)
        .map_err(|cause| unfit(input, cause))?;
    Ok(source)
}

fn stage_one(
    workspace: &Workspace,
    input: &InputFile,
    scratch: BorrowedFd<'_>,
    body: Option<HostIds>,
    allowance: &mut Allowance,
    buffer: &mut [u8],
) -> Result<StagedReport, ScratchError> {
    let unwritable = |call| {
        move |errno| ScratchError::ScratchUnwritable {
            key: escape(input.key.as_bytes()),
            call,
            errno,
        }
    };
    let source = open_input(workspace, input, allowance)?;
    let copy = {
        let _as_body =
            AssumedFileIds::assume(body).map_err(|errno| ScratchError::FileIds { errno })?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(
            scratch,
            input.key.as_bytes(),
            flags,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(unwritable("openat"))?;
        // Not left to open(2), whose mode the umask changes.
        rustix::fs::fchmod(&made, source.mode).map_err(unwritable("fchmod"))?;
        made
    };
    let digest = source
        .copy_to(copy.as_fd(), buffer)
        .map_err(|failed| match failed {
            Failed::Source(cause) => unfit(input, cause),
            Failed::Sink(errno) => unwritable("write")(errno),
        })?;
    allowance.spend(source.bytes);
    Ok(StagedReport {
        key: input.key.clone(),
        path: input.path.to_string(),
        sha256: digest,
        bytes: source.bytes,
    })
}
