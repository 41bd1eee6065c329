//! Creates the client for repositories from the host's settings.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::bundle::BundleHost;
use crate::error::BundleError;
use crate::layer::{Layer, LayerForm};
use crate::manifests::read_host_file;
use archive::UnpackLimits;
use sources::Timeouts;
use sources::github::{Client, ClientSettings, Token};
use spec::host_policy::UnpackCaps;
use spec::path::escape;
use spec::report::with_causes;

/// Creates a client for the service of the host's policy. Sends no request.
pub(crate) fn client(host: &BundleHost<'_>, layers: &[Layer]) -> Result<Client, BundleError> {
    let policy = host.policy;
    let has_repository = layers
        .iter()
        .any(|layer| matches!(layer.form, LayerForm::GitHub(_)));
    let client = Client::new(ClientSettings {
        base_url: policy.github.base_url.clone(),
        // Not read if no source needs it.
        token: match &policy.github.token {
            Some(reference) if has_repository => Some(read_token(reference, host)?),
            _ => None,
        },
        // Checked earlier, where the position of the source is known.
        require_pin: false,
        limits: unpack_limits(policy.unpack),
        cache_directory: host.cache_directory(),
        cache_size_bytes: policy.cache.size_bytes,
        timeouts: Timeouts::default(),
    })?;
    Ok(client)
}

/// Reads the token that `reference` names: `env:NAME` or `file:PATH`.
fn read_token(reference: &str, host: &BundleHost<'_>) -> Result<Token, BundleError> {
    let unusable = |problem: String| BundleError::Token { problem };
    let value = if let Some(name) = reference.strip_prefix("env:") {
        let value = (host.variable)(name).ok_or_else(|| {
            let name = escape(name.as_bytes());
            unusable(format!("the variable {name} is not set"))
        })?;
        value.as_bytes().to_vec()
    } else if let Some(path) = reference.strip_prefix("file:") {
        read_host_file(Path::new(path)).map_err(|unread| unusable(with_causes(&unread)))?
    } else {
        let found = escape(reference.as_bytes());
        return Err(unusable(format!(
            "found `{found}`, expected env:NAME or file:PATH"
        )));
    };
    // Most files with one secret end in a newline that is not part of it.
    let value = value.strip_suffix(b"\n").unwrap_or(&value);
    Ok(Token::new(value, reference.to_owned())?)
}

pub(crate) fn unpack_limits(caps: UnpackCaps) -> UnpackLimits {
    UnpackLimits {
        compressed_bytes: caps.archive_bytes,
        unpacked_bytes: caps.unpacked_bytes,
        entries: caps.entries,
    }
}
