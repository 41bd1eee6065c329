//! The files of one run: inputs are copied in before the launch, outputs are copied out after the end.
//!
//! In the order of a run:
//!
//! - [`check_outputs`] refuses, before launch, destinations that are executed later (`.git/hooks`,
//!   shell start-up files), and outputs that would overwrite each other.
//! - [`stage`] copies each declared input from the workspace to `<staging>/<key>`. An input that is
//!   missing, leads through a link, is not a regular file or is too large stops the run.
//! - [`sync`] copies each declared output from `<staging>/<key>` to the workspace. A failure concerns
//!   one output only; the caller decides whether the run fails without it.
//! - [`keep`] copies the scratch root of a finished run. The body may have filled it to attack the copy:
//!   100,000 levels deep, modes 000, directories swapped for links.
//!
//! Both sides are untrusted: the body chose what is in the scratch root, and other processes of the
//! host may rename files in the workspace. So each file is opened once, beneath a directory that is
//! already open, and checked, read and written through that descriptor.
#![forbid(unsafe_code)]

mod copy;
mod destination;
mod directory;
mod error;
mod keep;
mod source;
mod stage;
mod sync;
mod temporary;
mod workspace;

pub use destination::{OUTPUTS_MAX, check_destination, check_key, check_outputs};
pub use error::{Refusal, ScratchError, Unfit, Unwritable};
pub use keep::{Kept, keep};
pub(crate) use stage::check_inputs;
pub use stage::{InputFile, stage};
pub use sync::{OutputFile, sync};
pub(crate) use temporary::{
    COPY_PREFIX, GIT_PREFIX, is_directory_name, remove_temporary_directory,
};
pub use temporary::{Journal, SyncStep, TemporaryName, remove_temporary};
pub use workspace::Workspace;

/// How much one call may copy. Sizes are logical: holes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    pub files: usize,
    /// How long [`sync`] waits for another run that holds the lock of the workspace.
    pub lock_wait: std::time::Duration,
}

/// 1 GiB for one file and for all, as a bundle may unpack to; 10,000 files; 30 seconds for the lock,
/// which a sync holds only while it copies.
impl Default for FileLimits {
    fn default() -> Self {
        Self {
            file_bytes: 1 << 30,
            total_bytes: 1 << 30,
            files: OUTPUTS_MAX,
            lock_wait: std::time::Duration::from_secs(30),
        }
    }
}
