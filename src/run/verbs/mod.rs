//! The verbs of the command line that are no run: `runner doctor`, `runner cache`, `runner source`. Each
//! returns its report.

pub(crate) mod cache_verbs;
pub(crate) mod doctor;
pub(crate) mod history;
pub(crate) mod ports;
pub(crate) mod sandbox_list;
pub(crate) mod sandboxes;
pub(crate) mod source_verbs;
