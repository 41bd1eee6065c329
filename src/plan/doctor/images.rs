//! What runs with an image want of a host.

use crate::plan::doctor::{Facts, call_mend, item, with_mend};
use spec::diagnosis::{Item, Need};

/// The call that there is something else for, but where mounts are put into an image's root.
pub(super) const OPENAT2: &str = "openat2";

pub(super) fn overlayfs(facts: &Facts) -> Item {
    match &facts.overlayfs {
        Ok(()) => item(
            "overlayfs",
            true,
            Need::Convenience,
            "a kept bundle lies below what its body changes",
        ),
        Err(errno) => with_mend(
            item(
                "overlayfs",
                false,
                Need::Convenience,
                format!("each body gets a copy of a kept bundle ({errno})"),
            ),
            "modprobe overlay # and Linux 6.6 or later",
        ),
    }
}

pub(super) fn images(facts: &Facts) -> Item {
    const MEND: &str = "modprobe overlay # and Linux 6.6 or later";
    let hidden = |(name, _, there): &&(&str, &str, bool)| *name == OPENAT2 && !there;
    if let Some((_, since, _)) = facts.calls.iter().find(hidden) {
        let effect = format!("no run with an image is started ({OPENAT2}(2) is missing or hidden)");
        return with_mend(
            item("images", false, Need::Convenience, effect),
            &call_mend(OPENAT2, since),
        );
    }
    match (&facts.overlayfs, &facts.read_only_overlayfs) {
        (Ok(()), _) => item(
            "images",
            true,
            Need::Convenience,
            "a body may have the root of an image, and write it for its own run",
        ),
        (Err(errno), Ok(())) => with_mend(
            item(
                "images",
                false,
                Need::Convenience,
                format!("a body may have the root of an image, and cannot write it ({errno})"),
            ),
            MEND,
        ),
        (Err(_), Err(errno)) => with_mend(
            item(
                "images",
                false,
                Need::Convenience,
                format!("no run with an image is started ({errno})"),
            ),
            MEND,
        ),
    }
}
