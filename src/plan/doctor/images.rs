//! What runs with an image want of a host.

use crate::plan::doctor::{Facts, call_mend, check, or_else};
use spec::diagnosis::{Item, Need};

/// The call that there is something else for, but where mounts are put into an image's root.
pub(super) const OPENAT2: &str = "openat2";

const MEND: &str = "modprobe overlay # and Linux 6.6 or later";

pub(super) fn overlayfs(facts: &Facts) -> Item {
    let effect = "a kept bundle lies below what its body changes";
    let found = or_else(&facts.overlayfs, effect, |errno| {
        format!("each body gets a copy of a kept bundle ({errno})")
    });
    check("overlayfs", Need::Convenience, found, MEND.to_owned())
}

pub(super) fn images(facts: &Facts) -> Item {
    let is_hidden = |(name, _, is_there): &&(&str, &str, bool)| *name == OPENAT2 && !is_there;
    let hidden = facts.calls.iter().find(is_hidden);
    let found = match (hidden, &facts.overlayfs, &facts.read_only_overlayfs) {
        (Some(_), ..) => Err(format!(
            "no run with an image is started ({OPENAT2}(2) is missing or hidden)"
        )),
        (None, Ok(()), _) => {
            Ok("a body may have the root of an image, and write it for its own run".to_owned())
        }
        (None, Err(errno), Ok(())) => Err(format!(
            "a body may have the root of an image, and cannot write it ({errno})"
        )),
        (None, Err(_), Err(errno)) => Err(format!("no run with an image is started ({errno})")),
    };
    let mend = hidden.map_or(MEND.to_owned(), |(_, since, _)| call_mend(OPENAT2, since));
    check("images", Need::Convenience, found, mend)
}
