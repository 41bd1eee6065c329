//! Early: the child of a run of which nothing is known yet.

use crate::run::scope::has_version_2_alone;
use sandbox::prefork::Prefork;

/// Sows a child before the command line is read, so that its namespaces are made meanwhile.
///
/// `None` where it has to be cloned into its group, which is not known yet, and where it cannot be
/// cloned at all: the run itself then finds out why. Dropped, it leaves nothing.
///
/// The calling process must have one thread only: see [`Prefork::start`].
#[must_use]
pub fn prefork() -> Option<Prefork> {
    if has_version_2_alone() {
        return None;
    }
    Prefork::start(None).ok()
}
