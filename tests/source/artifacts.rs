//! Shared by these tests: a source, the call that builds it, and the artifact.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use support::bundling::{Archive, Ended, output_of};
use support::git::git;
use support::{Ground, runner};

/// The schema of what `--json` prints.
static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let text = include_str!("../../schemas/source-build.schema.json");
    let schema = serde_json::from_str(text).expect("JSON");
    jsonschema::validator_for(&schema).expect("a schema")
});

/// A source to build, and a store.
pub(crate) struct Source {
    pub(crate) ground: Ground,
}

/// An artifact in a layout.
pub(crate) struct Artifact {
    /// The call that made it.
    pub(crate) ended: Ended,
    /// What `--json` printed.
    pub(crate) report: Value,
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) layer: Vec<u8>,
    pub(crate) files: Archive,
}

impl Artifact {
    pub(crate) fn digest(&self) -> &str {
        self.report["digest"].as_str().expect("a digest")
    }

    pub(crate) fn config(&self) -> Value {
        serde_json::from_slice(&self.config).expect("JSON")
    }

    /// The message of the warning with this code.
    #[track_caller]
    pub(crate) fn warning(&self, code: &str) -> &str {
        self.find_warning(code)
            .unwrap_or_else(|| panic!("no {code}: {:#?}", self.report["warnings"]))
    }

    pub(crate) fn find_warning(&self, code: &str) -> Option<&str> {
        let warnings = self.report["warnings"].as_array().expect("a list");
        let found = warnings.iter().find(|warning| warning["code"] == code);
        found.and_then(|warning| warning["message"].as_str())
    }
}

impl Source {
    pub(crate) fn new() -> Self {
        Self {
            ground: Ground::new(),
        }
    }

    /// A directory with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let source = Self::new();
        for (name, text) in files {
            source.file(name, text);
        }
        source
    }

    /// A checkout with these files in one commit of a known time.
    pub(crate) fn checkout(files: &[(&str, &str)]) -> Self {
        let source = Self::with(files);
        source.git(&["init", "-q", "-b", "main"]);
        source.commit();
        source
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.ground.workspace()
    }

    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        self.ground.file(name, text)
    }

    /// `git WORDS…` in the source.
    #[track_caller]
    pub(crate) fn git(&self, words: &[&str]) -> String {
        git(&self.directory(), words)
    }

    /// Commits everything; the commit.
    pub(crate) fn commit(&self) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "m"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// `runner source build DIR WORDS…` with the store of this ground, not started.
    pub(crate) fn command(&self, directory: &Path, words: &[&str]) -> Command {
        let mut command = self.runner(&["source", "build"]);
        command.arg(directory).args(words);
        command
    }

    /// `runner WORDS…` with the store of this ground, not started.
    pub(crate) fn runner(&self, words: &[&str]) -> Command {
        let mut command = Command::new(runner());
        command
            .args(words)
            .current_dir(self.ground.path("."))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.ground.path("home"))
            .env("RUNNER_OPT_OCI_DIRECTORY", self.ground.path("oci"))
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", self.ground.path("run"));
        command
    }

    /// The number of blobs in the store, complete or not.
    pub(crate) fn stored(&self) -> usize {
        let count = |part: &str| {
            let at = self.ground.path("oci/1").join(part);
            std::fs::read_dir(at).map_or(0, Iterator::count)
        };
        count("blobs") + count("building")
    }

    /// Builds the source with the name `it` and version 1, unless `words` say otherwise.
    pub(crate) fn try_build(&self, words: &[&str]) -> Ended {
        output_of(&mut self.command(&self.directory(), &named(words)))
    }

    #[track_caller]
    pub(crate) fn build(&self, words: &[&str]) -> Artifact {
        self.artifact(self.command(&self.directory(), &named(words)))
    }

    /// The result of `runner source build`.
    #[track_caller]
    pub(crate) fn artifact(&self, mut command: Command) -> Artifact {
        let layout = tempfile::tempdir_in(self.ground.path(".")).expect("a directory");
        let ended = output_of(
            command
                .arg("--json")
                .arg("-o")
                .arg(layout.path().join("it.oci")),
        );
        ended.assert_done();
        let report = ended.json();
        let errors: Vec<String> = SCHEMA
            .iter_errors(&report)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        let blob = |digest: &Value| {
            let hex = digest.as_str().and_then(|digest| digest.split(':').nth(1));
            let name = format!("it.oci/blobs/sha256/{}", hex.expect("a digest"));
            let path = layout.path().join(name);
            (std::fs::read(&path).expect("a blob"), path)
        };
        let (manifest, _) = blob(&report["digest"]);
        let parsed: Value = serde_json::from_slice(&manifest).expect("JSON");
        let (layer, at) = blob(&parsed["layers"][0]["digest"]);
        Artifact {
            config: blob(&parsed["config"]["digest"]).0,
            files: Archive::read(&at),
            layer,
            manifest,
            report,
            ended,
        }
    }
}

fn named<'word>(words: &[&'word str]) -> Vec<&'word str> {
    let mut all = words.to_vec();
    if !words.contains(&"--name") {
        all.extend(["--name", "it"]);
    }
    if !words.contains(&"--version") && !words.contains(&"no-version") {
        all.extend(["--version", "1"]);
    }
    all.retain(|word| *word != "no-version");
    all
}
