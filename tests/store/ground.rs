//! A store for a test, artifacts made byte by byte, and a scripted source of blobs.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use archive::UnpackLimits;
use serde_json::{Value, json};
use sources::oci::error::OciError;
use sources::oci::observer::{NoObserver, Observer};
use sources::oci::origin::{BlobStream, FetchedManifest, Origin};
use sources::oci::store::{BlobDescriptor, Store, StoreError, StorePlace};
use sources::progress::Progress;
use spec::digest::Digest;
use spec::oci::media;
use spec::oci::reference::Which;

use support::tar::{Tar, gzip};

pub(crate) const LARGE: u64 = 1 << 40;

/// A directory with a store.
pub(crate) struct Ground {
    directory: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("store-").tempdir();
        Self {
            directory: directory.expect("a directory"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory of the store.
    pub(crate) fn place(&self) -> StorePlace {
        StorePlace {
            directory: self.path("oci"),
            size_bytes: LARGE,
        }
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.place()).expect("opened")
    }

    pub(crate) fn store_of(&self, size_bytes: u64) -> Store {
        let place = StorePlace {
            size_bytes,
            ..self.place()
        };
        Store::open(&place).expect("opened")
    }

    /// The file of a blob, existing or not.
    pub(crate) fn blob_file(&self, digest: &Digest) -> PathBuf {
        self.path("oci/1/blobs").join(hex(digest))
    }

    /// The file of a download.
    pub(crate) fn partial_file(&self, digest: &Digest) -> PathBuf {
        self.path("oci/1/partial").join(hex(digest))
    }

    /// Asserts that every blob in the store matches its digest; returns their number.
    pub(crate) fn assert_untorn(&self) -> usize {
        assert_untorn(&self.path("oci"))
    }
}

/// Asserts that every blob in the store at `directory` matches its digest; returns their number.
pub(crate) fn assert_untorn(directory: &Path) -> usize {
    let Ok(blobs) = std::fs::read_dir(directory.join("1/blobs")) else {
        return 0;
    };
    let mut count = 0;
    for blob in blobs {
        let path = blob.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let bytes = std::fs::read(&path).expect("read");
        assert_eq!(name, Some(&*hex(&Digest::of(&bytes))), "a torn blob");
        count += 1;
    }
    count
}

pub(crate) fn hex(digest: &Digest) -> String {
    digest.to_string().trim_start_matches("sha256:").to_owned()
}

pub(crate) fn wanted(bytes: &[u8]) -> BlobDescriptor {
    BlobDescriptor {
        digest: Digest::of(bytes),
        bytes: bytes.len() as u64,
    }
}

pub(crate) fn limits() -> UnpackLimits {
    UnpackLimits {
        compressed_bytes: LARGE,
        unpacked_bytes: LARGE,
        entries: 100_000,
    }
}

/// Reproducible bytes that compress badly.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// An artifact: documents and blobs by their digest.
#[derive(Clone, Default)]
pub(crate) struct Artifact {
    pub(crate) manifests: BTreeMap<Digest, Vec<u8>>,
    pub(crate) blobs: BTreeMap<Digest, Vec<u8>>,
    /// The manifest, or the index.
    pub(crate) top: Option<Digest>,
}

impl Artifact {
    pub(crate) fn digest(&self) -> Digest {
        self.top.expect("a manifest")
    }

    pub(crate) fn which(&self) -> Which {
        Which::Digest(self.digest())
    }

    pub(crate) fn with_blob(mut self, bytes: &[u8]) -> Self {
        self.blobs.insert(Digest::of(bytes), bytes.to_vec());
        self
    }

    pub(crate) fn with_manifest(mut self, document: &Value) -> Self {
        let bytes = serde_json::to_vec(document).expect("JSON");
        let digest = Digest::of(&bytes);
        self.manifests.insert(digest, bytes);
        self.top = Some(digest);
        self
    }

    /// The size of the only layer that is not the config.
    pub(crate) fn layer(&self) -> BlobDescriptor {
        let largest = self.blobs.values().max_by_key(|bytes| bytes.len());
        wanted(largest.expect("a layer"))
    }

    /// Writes it as a layout to `path`.
    pub(crate) fn write(&self, path: &Path, name: Option<&str>) {
        use sources::oci::layout::{LayoutEntry, LayoutWriter};
        let mut writer = LayoutWriter::create(path).expect("begun");
        for bytes in self.blobs.values().chain(self.manifests.values()) {
            writer.add_blob(&mut &bytes[..]).expect("added");
        }
        let digest = self.digest();
        let entry = LayoutEntry {
            digest,
            bytes: self.manifests[&digest].len() as u64,
            media_type: media::MANIFEST.to_owned(),
            artifact_type: Some(media::SOURCE.to_owned()),
            name: name.map(str::to_owned),
        };
        writer.finish(&entry, &NoObserver).expect("finished");
    }
}

pub(crate) fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len() })
}

pub(crate) fn config(files: u64) -> Vec<u8> {
    let config = json!({
        "kind": "source", "name": "backend", "version": "1.2.3", "sourceType": "directory",
        "snapshot": { "fileCount": files }, "specVersion": "1.0.0",
    });
    serde_json::to_vec(&config).expect("JSON")
}

/// The manifest of a source with these blobs.
pub(crate) fn source_manifest(config: &[u8], layer: &[u8]) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": media::MANIFEST,
        "artifactType": media::SOURCE,
        "config": descriptor(media::SOURCE_CONFIG, config),
        "layers": [descriptor(media::SOURCE_SNAPSHOT, layer)],
        "annotations": { "org.opencontainers.image.title": "backend" },
    })
}

/// A source whose snapshot is `layer`.
pub(crate) fn source_of(layer: &[u8], files: u64) -> Artifact {
    let config = config(files);
    Artifact::default()
        .with_blob(&config)
        .with_blob(layer)
        .with_manifest(&source_manifest(&config, layer))
}

/// A tar.gz of files.
pub(crate) fn snapshot(files: &[(&str, &[u8])]) -> Vec<u8> {
    let tar = files
        .iter()
        .fold(Tar::new(), |tar, (name, contents)| tar.file(name, contents));
    gzip(&tar.end())
}

/// A source with two files, one of which has `bytes` random bytes.
pub(crate) fn source(seed: u64, bytes: usize) -> Artifact {
    let noise = noise(seed, bytes);
    let files: [(&str, &[u8]); 2] = [("a/noise", &noise), ("b.txt", b"text\n")];
    source_of(&snapshot(&files), 2)
}

/// How the scripted source sends a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sends {
    /// Completely, from the requested offset.
    Whole,
    /// At most this many bytes per answer, then a normal end.
    AtMost(usize),
    /// At most this many bytes per answer, then a connection error.
    Breaks(usize),
    /// Completely from the start, whatever the requested offset.
    FromStart,
    /// Completely, and one byte more.
    More,
    /// Other bytes of the same number.
    Other,
    /// Two KiB per millisecond.
    Slowly,
    /// Nothing, without an end.
    Nothing,
}

/// A scripted source of blobs that counts requests.
pub(crate) struct Fake {
    artifact: Artifact,
    sends: Sends,
    pub(crate) manifests_asked: AtomicUsize,
    pub(crate) blobs_asked: AtomicUsize,
    pub(crate) bytes_sent: AtomicUsize,
}

impl Fake {
    pub(crate) fn new(artifact: &Artifact, sends: Sends) -> Self {
        Self {
            artifact: artifact.clone(),
            sends,
            manifests_asked: AtomicUsize::new(0),
            blobs_asked: AtomicUsize::new(0),
            bytes_sent: AtomicUsize::new(0),
        }
    }

    pub(crate) fn asked(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        (count(&self.manifests_asked), count(&self.blobs_asked))
    }

    pub(crate) fn sent(&self) -> usize {
        self.bytes_sent.load(Ordering::SeqCst)
    }
}

fn gone(digest: &Digest) -> OciError {
    OciError::from(StoreError::Gone { digest: *digest })
}

impl Origin for Fake {
    fn name(&self) -> String {
        "registry.test/team/backend".to_owned()
    }

    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        self.manifests_asked.fetch_add(1, Ordering::SeqCst);
        let digest = match which {
            Which::Digest(digest) => *digest,
            Which::Tag(_) | Which::Unnamed => self.artifact.digest(),
        };
        let bytes = self.artifact.manifests.get(&digest);
        let bytes = bytes.ok_or_else(|| gone(&digest))?.clone();
        Ok(FetchedManifest { bytes, digest })
    }

    fn blob(&self, digest: &Digest, from_byte: u64) -> Result<BlobStream<'_>, OciError> {
        self.blobs_asked.fetch_add(1, Ordering::SeqCst);
        let bytes = self.artifact.blobs.get(digest);
        let mut bytes = bytes.ok_or_else(|| gone(digest))?.clone();
        let from = usize::try_from(from_byte).expect("small");
        let starts_at = match self.sends {
            Sends::FromStart => 0,
            _ => from,
        };
        match self.sends {
            Sends::More => bytes.push(b'!'),
            Sends::Other => bytes = noise(99, bytes.len()),
            Sends::AtMost(count) | Sends::Breaks(count) => bytes.truncate(starts_at + count),
            _ => (),
        }
        Ok(BlobStream {
            starts_at: starts_at as u64,
            reader: Box::new(Sending {
                fake: self,
                bytes: bytes[starts_at.min(bytes.len())..].to_vec(),
                at: 0,
            }),
        })
    }
}

struct Sending<'fake> {
    fake: &'fake Fake,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for Sending<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = &self.bytes[self.at..];
        let mut count = left.len().min(buffer.len());
        match self.fake.sends {
            Sends::Slowly => {
                std::thread::sleep(Duration::from_millis(1));
                count = count.min(2048);
            }
            Sends::Nothing => {
                std::thread::sleep(Duration::from_millis(1));
                return Err(io::ErrorKind::Interrupted.into());
            }
            Sends::Breaks(_) if count == 0 => return Err(io::ErrorKind::ConnectionReset.into()),
            _ => (),
        }
        buffer[..count].copy_from_slice(&left[..count]);
        self.at += count;
        self.fake.bytes_sent.fetch_add(count, Ordering::SeqCst);
        Ok(count)
    }
}

/// Requests to stop after it is told to, or after this many bytes.
#[derive(Default)]
pub(crate) struct Ending {
    pub(crate) now: AtomicBool,
    pub(crate) after_bytes: Option<u64>,
    pub(crate) heard: AtomicUsize,
}

impl Observer for Ending {
    fn progress(&self, now: &Progress<'_>) {
        self.heard.fetch_add(1, Ordering::SeqCst);
        if let Progress::Receiving { bytes, .. } | Progress::Unpacking { bytes, .. } = now
            && self.after_bytes.is_some_and(|after| after <= *bytes)
        {
            self.now.store(true, Ordering::SeqCst);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.now.load(Ordering::SeqCst)
    }
}
