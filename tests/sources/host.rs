//! A ground with its own store, and bundles whose manifests name sources.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::artifact::Artifact;
use support::{Case, Done, Ground, random};

/// Ground and store.
pub(crate) struct Host {
    pub(crate) ground: Ground,
}

/// One entry of `workspaceSources`.
pub(crate) struct Wanted<'a> {
    pub(crate) reference: String,
    pub(crate) at: &'a str,
    /// Further keys, as YAML in one line.
    pub(crate) keys: &'a str,
}

impl Host {
    pub(crate) fn new() -> Self {
        let ground = Ground::new();
        let host = Self { ground };
        std::fs::create_dir(host.store()).expect("made");
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(host.store(), private).expect("set");
        host
    }

    /// A store that contains this artifact.
    pub(crate) fn with(artifact: &Artifact) -> Self {
        let host = Self::new();
        artifact.keep(&host.store());
        host
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.ground.path("store")
    }

    /// A directory with a manifest and a body.
    pub(crate) fn bundle(&self, sources: &[Wanted<'_>], body: &str) -> String {
        let mut manifest = "run: [./main.sh]\nworkspaceSources:\n".to_owned();
        for (number, source) in sources.iter().enumerate() {
            let Wanted {
                reference,
                at,
                keys,
            } = source;
            let comma = if keys.is_empty() { "" } else { ", " };
            writeln!(
                manifest,
                "- {{id: source-{number}, ref: '{reference}', mountPath: {at}{comma}{keys}}}"
            )
            .expect("written");
        }
        let body = format!("#!/bin/sh\necho ran\n{body}\n");
        let directory = self
            .ground
            .folder(&[("manifest.yaml", &manifest), ("main.sh", &body)]);
        directory.to_str().expect("plain").to_owned()
    }

    /// `runner WORDS…` with the store.
    pub(crate) fn command(&self, words: &[&str]) -> Case<'_> {
        let store = self.store();
        self.ground
            .command(words)
            .env("RUNNER_OPT_OCI_DIRECTORY", store.to_str().expect("plain"))
    }

    /// Runs `runner exec --grant=sources FLAGS… BUNDLE` to its end.
    pub(crate) fn exec(&self, flags: &[&str], bundle: &str) -> Done {
        let words = [&["exec", "--grant=sources"], flags, &[bundle]].concat();
        self.command(&words).done()
    }

    /// Writes a file with this text, for `--policy`.
    pub(crate) fn policy(&self, text: &str) -> String {
        let path = self
            .ground
            .write(&format!("policy-{}.yaml", random()), text);
        path.to_str().expect("plain").to_owned()
    }

    /// The unpacked snapshots in the store.
    pub(crate) fn trees(&self) -> Vec<PathBuf> {
        entries(&self.store().join("1/snapshots/1/trees"))
    }

    /// Files of pending or abandoned downloads.
    pub(crate) fn partial(&self) -> Vec<PathBuf> {
        entries(&self.store().join("1/partial"))
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    found.map(|one| one.expect("an entry").path()).collect()
}

/// The output of the body after its first word.
pub(crate) fn said(done: &Done) -> String {
    let text = done.text();
    let rest = text.strip_prefix("ran\n");
    rest.unwrap_or_else(|| panic!("{done:#?}")).to_owned()
}

/// One source, at `/workspace/backend`.
pub(crate) fn one<'a>(reference: impl Into<String>, keys: &'a str) -> [Wanted<'a>; 1] {
    [Wanted {
        reference: reference.into(),
        at: "/workspace/backend",
        keys,
    }]
}
