//! The escape attempts of `tests/escapes` that use `attempts`, in an image whose user is 0.

use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::json;

use super::layout;
use support::{Case, Ground};

#[path = "../escapes/attempts.rs"]
mod attempts;
#[path = "../escapes/descriptors.rs"]
mod descriptors;
#[path = "../escapes/devices.rs"]
mod devices;
#[path = "../escapes/namespaces.rs"]
mod namespaces;
#[path = "../escapes/processes.rs"]
mod processes;
#[path = "../escapes/sockets.rs"]
mod sockets;
#[path = "../escapes/syscalls.rs"]
mod syscalls;
#[path = "../escapes/terminal.rs"]
mod terminal;

/// Uid and gid of a body.
const ID: u32 = 0;
/// Whether a body is in the Landlock domain of init: then the kernel lets it send signals there.
const SHARES_DOMAIN_OF_INIT: bool = false;
/// Whether these attempts are later commands of a sandbox, and `escapes` makes them as first ones.
const IS_LATER: bool = false;

/// The image, and its store.
static IMAGE: LazyLock<Option<(Ground, PathBuf)>> = LazyLock::new(|| {
    let base = layout::base()?;
    let ground = Ground::new();
    let image = layout::image(&ground, "image", &[base], json!({ "User": "0" }));
    Some((ground, image))
});

/// The settings of every attempt.
fn surround(case: &mut Case<'_>) {
    let (ground, image) = IMAGE.as_ref().expect("busybox was made or fetched");
    case.command
        .env("RUNNER_OPT_IMAGE", layout::place(image))
        .env("RUNNER_OPT_OCI_DIRECTORY", ground.path("oci"));
}
