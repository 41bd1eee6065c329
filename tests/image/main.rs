//! Images as a body's root: hostile ones first, then what a body sees, may do and is in one.

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
mod life;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use support::{Case, Done, Ground, is_root};

/// A ground with a store of its own.
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

    /// What the host says from now on.
    pub fn policy(&self, text: &str) {
        self.ground.write("config/runner/config.yaml", text);
    }

    /// Where images are kept.
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

    /// The same to its end, invariants checked.
    pub fn run(&self, image: &Path, flags: &[&str], body: &[&str]) -> Done {
        self.case(image, flags, body).done()
    }
}

/// Root's runs read no configuration but the host's: they are shown another one, in a mount
/// namespace of their own.
fn in_place_of_etc_runner<'case>(case: Case<'case>, config: &Path) -> Case<'case> {
    const SHOW: &str = include_str!("../bodies/image/show.sh");
    let words = ["--mount", "sh", "-c", SHOW, "sh"].map(OsStr::new);
    case.through("unshare", &[&words[..], &[config.as_os_str()]].concat())
}
