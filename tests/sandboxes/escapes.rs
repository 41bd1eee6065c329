//! The escape attempts of `tests/escapes`, each as a later command of a sandbox that stays. The program of
//! the test says how it starts commands.

use support::Case;

#[path = "../escapes/attempts.rs"]
mod attempts;
#[path = "../escapes/descriptors.rs"]
mod descriptors;
#[path = "../escapes/devices.rs"]
mod devices;
#[path = "../escapes/files.rs"]
mod files;
#[path = "../escapes/identity.rs"]
mod identity;
#[path = "../escapes/mounts.rs"]
mod mounts;
#[path = "../escapes/namespaces.rs"]
mod namespaces;
#[path = "../escapes/objects.rs"]
mod objects;
#[path = "../escapes/processes.rs"]
mod processes;
#[path = "../escapes/self_confinement.rs"]
mod self_confinement;
#[path = "../escapes/setuid.rs"]
mod setuid;
#[path = "../escapes/sockets.rs"]
mod sockets;
#[path = "../escapes/syscalls.rs"]
mod syscalls;

/// Uid and gid of a body.
const ID: u32 = 1000;
/// Whether a body is in the Landlock domain of init: then the kernel lets it send signals there.
const SHARES_DOMAIN_OF_INIT: bool = true;
/// Whether these attempts are later commands of a sandbox, and `escapes` makes them as first ones.
const IS_LATER: bool = true;

/// Runs the case as a later command.
fn surround(case: &mut Case<'_>) {
    let script = include_str!("../bodies/sandboxes/later.py");
    case.behind(&["/usr/bin/python3", "-c", script, super::COMMANDS_OF_ESCAPES]);
}
