//! Flags of images and workspace sources.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::cli::args::OciFlags;
use crate::cli::context::ProcessContext;
use crate::cli::request::{RequestError, absolute};
use spec::host_policy::HostPolicy;
use spec::oci::reference::Place;
use spec::path::escape;
use spec::request::OciOptions;

/// A short name of an image is in the host's default registry.
pub(super) fn options(
    flags: OciFlags,
    context: &ProcessContext,
    policy: &HostPolicy,
) -> Result<OciOptions, RequestError> {
    let registry = policy.oci.default_registry.as_deref();
    Ok(OciOptions {
        image: flags
            .image
            .map(|value| image(&value, context, registry))
            .transpose()?,
        allow_tags: flags.allow_tags,
        insecure: flags.insecure,
    })
}

fn image(
    value: &OsStr,
    context: &ProcessContext,
    default_registry: Option<&str>,
) -> Result<Place, RequestError> {
    let text = value.to_str().ok_or_else(|| RequestError::Flag {
        flag: "image",
        found: escape(value.as_bytes()),
        expected: "a reference in UTF-8",
    })?;
    Ok(match Place::parse_with(text, default_registry)? {
        Place::Layout { directory, which } => Place::Layout {
            directory: absolute("image", &directory, context)?,
            which,
        },
        registry @ Place::Registry(_) => registry,
    })
}
