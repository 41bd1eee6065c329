//! Forks the child before the command line is read.

use crate::run::host::scope::has_version_2_alone;
use sandbox::prefork::Prefork;

/// Forks a child before the command line is read, so that its namespaces are created meanwhile.
///
/// `None` if it must be cloned into a cgroup, which is not known yet, or if clone fails: the run
/// itself then reports why. Dropping it leaves nothing behind.
///
/// The calling process must have one thread only: see [`Prefork::start`].
#[must_use]
pub(crate) fn prefork() -> Option<Prefork> {
    if has_version_2_alone() {
        return None;
    }
    Prefork::start(None).ok()
}
