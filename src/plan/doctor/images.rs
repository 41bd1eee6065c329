//! Overlayfs and images.

use crate::plan::doctor::{Facts, call_mend, check};
use spec::diagnosis::{Item, Need};

/// Needed only to mount into the root of an image; elsewhere there is a fallback.
pub(super) const OPENAT2: &str = "openat2";

const MEND: &str = "modprobe overlay # and Linux 6.6 or later";

pub(super) fn overlayfs(facts: &Facts) -> Item {
    let found = match &facts.overlayfs {
        Ok(()) => Ok("a body's changes lie in a layer above its kept bundle".to_owned()),
        Err(errno) => Err(format!(
            "each body gets a copy of its kept bundle ({errno})"
        )),
    };
    check("overlayfs", Need::Convenience, found, MEND)
}

pub(super) fn images(facts: &Facts) -> Item {
    let is_hidden =
        |(name, _, is_available): &&(&str, &str, bool)| *name == OPENAT2 && !is_available;
    let hidden = facts.calls.iter().find(is_hidden);
    let found = match (hidden, &facts.overlayfs, &facts.read_only_overlayfs) {
        (Some(_), ..) => Err(format!(
            "no run with an image is started ({OPENAT2}(2) is missing or filtered)"
        )),
        (None, Ok(()), _) => {
            Ok("a body may have the root of an image, writable for its own run".to_owned())
        }
        (None, Err(errno), Ok(())) => Err(format!(
            "a body may have the root of an image, read-only ({errno})"
        )),
        (None, Err(_), Err(errno)) => Err(format!("no run with an image is started ({errno})")),
    };
    let mend = hidden.map_or(MEND.to_owned(), |(_, since, _)| call_mend(OPENAT2, since));
    check("images", Need::Convenience, found, &mend)
}
