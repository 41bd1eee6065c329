//! The flags about images and workspace sources.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::cli::args::OciFlags;
use crate::cli::request::{RequestError, absolute};
use crate::cli::surroundings::Surroundings;
use spec::host_policy::HostPolicy;
use spec::oci::reference::Place;
use spec::path::escape;
use spec::request::OciOptions;

/// What the flags about images and sources say; a short name is of the host's default registry.
pub(super) fn read(
    flags: OciFlags,
    surroundings: &Surroundings,
    policy: &HostPolicy,
) -> Result<OciOptions, RequestError> {
    let registry = policy.oci.default_registry.as_deref();
    Ok(OciOptions {
        image: flags
            .image
            .map(|given| image(&given, surroundings, registry))
            .transpose()?,
        allow_tags: flags.allow_tags,
        insecure: flags.insecure,
    })
}

fn image(
    given: &OsStr,
    surroundings: &Surroundings,
    default_registry: Option<&str>,
) -> Result<Place, RequestError> {
    let text = given.to_str().ok_or_else(|| RequestError::Flag {
        flag: "image",
        found: escape(given.as_bytes()),
        expected: "a text",
    })?;
    Ok(match Place::parse_with(text, default_registry)? {
        Place::Layout { directory, which } => Place::Layout {
            directory: absolute("image", &directory, surroundings)?,
            which,
        },
        registry @ Place::Registry(_) => registry,
    })
}
