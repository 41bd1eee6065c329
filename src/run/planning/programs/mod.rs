//! Finds programs and interpreters of the host. Consumes a command or a run form, returns the program
//! and the paths to mount for it.

mod shims;
mod text_files;

pub(in crate::run) mod callers_program;
pub(in crate::run) mod heads;
pub(in crate::run) mod interpreters;
pub(in crate::run) mod invisible_arguments;
pub(in crate::run) mod line_ends;
pub(in crate::run) mod lookup;
pub(super) mod node_version;
