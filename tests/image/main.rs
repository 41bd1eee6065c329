//! Images as the root of a body: hostile ones, and what a body in one sees and may do.

#![allow(
    unreachable_pub,
    missing_debug_implementations,
    missing_docs,
    clippy::new_without_default,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod escapes;
mod exec;
mod hostile;
mod inside;
mod layout;
mod learn;
mod life;
mod snapshots;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use support::{Case, Done, Ground, is_root};

/// A ground with its own store.
pub struct Stored {
    pub ground: Ground,
    store: PathBuf,
}

impl Stored {
    pub fn new() -> Self {
        let ground = Ground::new();
        let store = ground.path("oci");
        Self { ground, store }
    }

    /// Sets the host configuration from now on.
    pub fn policy(&self, text: &str) {
        self.ground.write("config/runner/config.yaml", text);
    }

    /// The directory of images.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// `runner WORDS…`, not started.
    pub fn command(&self, words: &[&str]) -> Case<'_> {
        let mut case = self.ground.command(words);
        let config = self.ground.path("config");
        if is_root() && config.exists() {
            case = in_place_of_etc_runner(case, &config);
        }
        case.command
            .env("RUNNER_OPT_OCI_DIRECTORY", &self.store)
            .env("XDG_CONFIG_HOME", config);
        case
    }

    /// `runner run --image IMAGE FLAGS… -- BODY…`, not started.
    pub fn case(&self, image: &Path, flags: &[&str], body: &[&str]) -> Case<'_> {
        let place = layout::place(image);
        let words: Vec<&str> = ["run", "--image", &place]
            .into_iter()
            .chain(flags.iter().copied())
            .chain(["--"])
            .chain(body.iter().copied())
            .collect();
        self.command(&words)
    }

    /// Runs the same to its end and checks the invariants.
    pub fn run(&self, image: &Path, flags: &[&str], body: &[&str]) -> Done {
        self.case(image, flags, body).done()
    }
}

/// Runs of root read only the host's configuration: another file is mounted over it in a separate
/// mount namespace.
fn in_place_of_etc_runner<'case>(case: Case<'case>, config: &Path) -> Case<'case> {
    const SHOW: &str = include_str!("../bodies/image/show.sh");
    let words = ["--mount", "sh", "-c", SHOW, "sh"].map(OsStr::new);
    case.through("unshare", &[&words[..], &[config.as_os_str()]].concat())
}
