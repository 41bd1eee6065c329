//! Config and manifest of a source artifact, as canonical JSON.

use serde_json::json;

use crate::write::WrittenBundle;
use spec::digest::Digest;
use spec::oci::canonical_json::canonical_json;
use spec::oci::media::{MANIFEST, SOURCE, SOURCE_CONFIG, SOURCE_SNAPSHOT};
use spec::oci::source_config::{SPEC_VERSION, SourceConfig};
use spec::utc::text_of_seconds;

/// Documents of an artifact and their digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactDocuments {
    pub config: Vec<u8>,
    pub config_digest: Digest,
    pub manifest: Vec<u8>,
    pub digest: Digest,
}

/// Creates the documents for a snapshot written as `layer`; `created_s` is in seconds since 1970.
///
/// # Errors
/// The error of serde_json, which these values do not cause.
pub fn documents(
    config: &SourceConfig,
    layer: &WrittenBundle,
    created_s: i64,
) -> Result<ArtifactDocuments, serde_json::Error> {
    let config_bytes = config.to_json()?;
    let config_digest = Digest::of(&config_bytes);
    let manifest = canonical_json(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": SOURCE,
        "config": {
            "mediaType": SOURCE_CONFIG,
            "digest": config_digest,
            "size": config_bytes.len(),
        },
        "layers": [{
            "mediaType": SOURCE_SNAPSHOT,
            "digest": layer.archive_digest,
            "size": layer.archive_bytes,
        }],
        "annotations": {
            "dev.stax.spec.version": SPEC_VERSION,
            "org.opencontainers.image.created": text_of_seconds(created_s),
            "org.opencontainers.image.title": config.name,
            "org.opencontainers.image.version": config.version,
        },
    }))?;
    Ok(ArtifactDocuments {
        config: config_bytes,
        config_digest,
        digest: Digest::of(&manifest),
        manifest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::oci::source_config::SourceType;

    #[test]
    fn a_manifest_is_the_same_bytes_everywhere() {
        let config = SourceConfig::new("a".to_owned(), "1".to_owned(), SourceType::Directory);
        let layer = WrittenBundle {
            content_digest: Digest::of(b"tar"),
            archive_digest: Digest::of(b"tar.gz"),
            archive_bytes: 6,
            bytes: 3,
            entries: 1,
        };
        let documents = documents(&config, &layer, 1_700_000_000).expect("written");
        let text = String::from_utf8(documents.manifest).expect("UTF-8");
        assert_eq!(
            text,
            r#"{"annotations":{"dev.stax.spec.version":"1.0.0","org.opencontainers.image.created":"2023-11-14T22:13:20Z","org.opencontainers.image.title":"a","org.opencontainers.image.version":"1"},"artifactType":"application/vnd.stax.source.v1","config":{"digest":"CONFIG","mediaType":"application/vnd.stax.source.config.v1+json","size":89},"layers":[{"digest":"LAYER","mediaType":"application/vnd.stax.source.snapshot.v1.tar+gzip","size":6}],"mediaType":"application/vnd.oci.image.manifest.v1+json","schemaVersion":2}"#
                .replace("CONFIG", &Digest::of(&documents.config).to_string())
                .replace("LAYER", &Digest::of(b"tar.gz").to_string())
        );
        assert_eq!(documents.digest, Digest::of(text.as_bytes()));
    }
}
