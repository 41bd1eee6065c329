//! Media types of documents and layers: OCI (image-spec, media-types.md), Docker (manifest version 2,
//! schema 2), and stax source artifacts.

/// A manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// A list of manifests, one per platform.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The config of an image.
pub const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// An uncompressed layer.
pub const LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";
/// A gzip layer.
pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// A zstd layer.
pub const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// The empty descriptor: two bytes, `{}`.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Docker's manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's list of manifests.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's config of an image.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's gzip layer.
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Docker's uncompressed layer.
pub const DOCKER_LAYER_PLAIN: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// The artifact type of a source artifact.
pub const SOURCE: &str = "application/vnd.stax.source.v1";
/// The config of a source artifact.
pub const SOURCE_CONFIG: &str = "application/vnd.stax.source.config.v1+json";
/// The one layer of a source artifact.
pub const SOURCE_SNAPSHOT: &str = "application/vnd.stax.source.snapshot.v1.tar+gzip";

/// Document types that a request for a manifest accepts.
pub const MANIFESTS: [&str; 4] = [MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_LIST];

/// Maximum size of a manifest or index: the distribution specification requires registries to accept
/// this size.
pub const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// Whether a document of this type lists manifests.
#[must_use]
pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, INDEX | DOCKER_LIST)
}
