//! A separate runtime directory for a case, so that no other start removes its leftovers.

use std::path::PathBuf;

use support::invariants::groups_of;
use support::{Case, Ground, random};

/// A runtime directory, removed with the case.
pub struct Runtime {
    pub path: PathBuf,
}

impl Runtime {
    /// A directory that does not exist yet: the first start creates it.
    pub fn new() -> Self {
        // Outside the ground, which the body's uid cannot enter.
        let path = std::env::temp_dir().join(format!("runtime-{}", random()));
        Self { path }
    }

    /// `runner run FLAGS -- BODY` with this runtime directory.
    pub fn case<'ground>(
        &self,
        ground: &'ground Ground,
        flags: &[&str],
        body: &[&str],
    ) -> Case<'ground> {
        let words: Vec<&str> = [&["run"], flags, &["--"], body].concat();
        self.command(ground, &words)
    }

    /// `runner WORDS` with this runtime directory.
    pub fn command<'ground>(&self, ground: &'ground Ground, words: &[&str]) -> Case<'ground> {
        let path = self.path.to_str().expect("plain");
        ground
            .command(words)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", path)
    }

    /// Ids of the runs that are recorded.
    pub fn records(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path.join("runs")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.expect("readable").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            // Empty records, kept for the next run.
            .filter(|name| !name.starts_with('.'))
            .collect()
    }

    /// Asserts that nothing of these runs remains.
    #[track_caller]
    pub fn assert_nothing_left(&self, runs: &[String]) {
        assert_eq!(self.records(), Vec::<String>::new(), "records stay");
        for run in runs {
            assert_eq!(groups_of(run), Vec::<PathBuf>::new(), "cgroups stay");
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.path.exists()
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            println!("{}: {error}", self.path.display());
        }
    }
}
