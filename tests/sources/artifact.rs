//! Source artifacts made byte by byte, valid or not.

use std::io::Cursor;
use std::path::Path;

use serde_json::{Value, json};
use sources::oci::registry::{Connection, Registry as Client};
use sources::oci::store::{Store, StorePlace};
use spec::digest::Digest;
use spec::oci::media;
use spec::oci::reference::{Reference, Which};

use support::tar::{Tar, gzip};

/// A manifest and its blobs.
pub(crate) struct Artifact {
    blobs: Vec<Vec<u8>>,
    manifest: Value,
}

impl Artifact {
    /// A source with these files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tar = Tar::new();
        for (name, contents) in files {
            let executable = contents.starts_with("#!");
            let mode: &[u8; 8] = if executable {
                b"0000755\0"
            } else {
                b"0000644\0"
            };
            tar = tar
                .with(b'0', name.as_bytes(), contents.len() as u64, |block| {
                    block[100..108].copy_from_slice(mode);
                })
                .data(contents.as_bytes());
        }
        Self::of_tar(tar)
    }

    /// A source whose layer is this tar.
    pub(crate) fn of_tar(tar: Tar) -> Self {
        Self::of_layer(gzip(&tar.end()))
    }

    /// A source with this layer.
    pub(crate) fn of_layer(layer: Vec<u8>) -> Self {
        let config = json!({
            "kind": "source", "name": "backend", "sourceType": "directory", "version": "1.0.0",
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media::MANIFEST,
            "artifactType": media::SOURCE,
            "config": descriptor(media::SOURCE_CONFIG, &config),
            "layers": [descriptor(media::SOURCE_SNAPSHOT, &layer)],
        });
        Self {
            blobs: vec![config, layer],
            manifest,
        }
    }

    /// The same source with another manifest.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.manifest);
        self
    }

    pub(crate) fn manifest(&self) -> Vec<u8> {
        self.manifest.to_string().into_bytes()
    }

    pub(crate) fn layer(&self) -> &[u8] {
        &self.blobs[1]
    }

    pub(crate) fn blob(&self, digest: &str) -> Option<&[u8]> {
        let mut blobs = self.blobs.iter();
        let found = blobs.find(|blob| Digest::of(blob).to_string() == digest);
        found.map(Vec::as_slice)
    }

    pub(crate) fn digest(&self) -> String {
        Digest::of(&self.manifest()).to_string()
    }

    pub(crate) fn layer_digest(&self) -> String {
        Digest::of(self.layer()).to_string()
    }

    /// A reference to it in a registry that does not exist.
    pub(crate) fn nowhere(&self) -> String {
        format!("registry.test/sources/backend@{}", self.digest())
    }

    /// Writes all of it into a store, as a pull does.
    pub(crate) fn keep(&self, directory: &Path) {
        let place = StorePlace {
            directory: directory.to_path_buf(),
            size_bytes: 1 << 30,
        };
        let store = Store::open(&place).expect("a store");
        for blob in self.blobs.iter().chain([&self.manifest()]) {
            store.put(blob).expect("kept");
        }
    }

    /// Pushes it to a registry without TLS, under this name and the tag `1`; returns the reference
    /// by digest.
    pub(crate) fn push(&self, name: &str) -> String {
        let reference = Reference::parse(&format!("{name}:1")).expect("a reference");
        let connection = Connection {
            insecure: true,
            ..Connection::default()
        };
        let client = Client::new(&reference, connection).expect("a client");
        for blob in &self.blobs {
            let digest = Digest::of(blob);
            client
                .push_blob(&digest, blob.len() as u64, &mut Cursor::new(blob))
                .expect("pushed");
        }
        let tag = Which::Tag("1".to_owned());
        client
            .push_manifest(&tag, &self.manifest(), media::MANIFEST)
            .expect("pushed");
        format!("{name}@{}", self.digest())
    }
}

pub(crate) fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({
        "mediaType": media_type,
        "digest": Digest::of(bytes).to_string(),
        "size": bytes.len(),
    })
}
