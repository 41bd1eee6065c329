//! Overlayfs and images.

use crate::plan::doctor::{Facts, blocked_by, call_control, check};
use spec::diagnosis::{Item, Need};

/// Needed only to mount into the root of an image; elsewhere there is a fallback.
pub(super) const OPENAT2: &str = "openat2";

const MEND: &str = "modprobe overlay # and Linux 6.6 or later";

pub(super) fn overlayfs(facts: &Facts) -> Item {
    let found = match &facts.overlayfs {
        Ok(()) => Ok("a run writes to a layer above its cached bundle".to_owned()),
        Err(errno) => Err(format!("each run copies its cached bundle ({errno})")),
    };
    check("overlayfs", Need::Convenience, found, MEND)
}

pub(super) fn images(facts: &Facts) -> Item {
    let is_hidden =
        |(name, _, found): &&(&str, &str, Result<(), String>)| *name == OPENAT2 && found.is_err();
    let hidden = facts.calls.iter().find(is_hidden);
    let found = match (hidden, &facts.overlayfs, &facts.read_only_overlayfs) {
        (Some(_), ..) => Err(format!(
            "no run with an image starts: {OPENAT2}(2) is not available"
        )),
        (None, Ok(()), _) => Ok("a run can have an image as its root, writable".to_owned()),
        (None, Err(errno), Ok(())) => Err(format!(
            "a run can have an image as its root, read-only ({errno})"
        )),
        (None, Err(_), Err(errno)) => Err(format!("no run with an image starts ({errno})")),
    };
    let control = hidden.map(|(_, since, _)| call_control(&facts.surroundings, OPENAT2, since));
    let mend = control.as_ref().map_or(MEND, |control| &control.mend);
    let item = check("images", Need::Convenience, found, mend);
    blocked_by(item, control.map(|control| control.why))
}
