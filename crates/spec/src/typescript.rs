//! Selects the interpreter for TypeScript.

use crate::detection::{BUNDLED_TSX, BundleView, Interpreter, Interpreters, NodeVersion, is_file};
use crate::path::RelPath;

/// The npm registry in the body's environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NpmRegistry {
    /// Not set; there is no default.
    #[default]
    Unnamed,
    /// The egress list of the run does not have this `HOST:PORT`.
    Refused(String),
    Allowed,
}

/// Why `npx` cannot download `tsx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TsxLack {
    Npx,
    Registry,
    Host(String),
}

impl TsxLack {
    fn of(host: &Interpreters) -> Option<Self> {
        match &host.npm_registry {
            _ if !host.npx => Some(Self::Npx),
            NpmRegistry::Unnamed => Some(Self::Registry),
            NpmRegistry::Refused(host) => Some(Self::Host(host.clone())),
            NpmRegistry::Allowed => None,
        }
    }

    pub(super) fn why(&self) -> String {
        match self {
            Self::Npx => {
                "found neither tsx, nor a Node that strips types (22.18 or later, and not \
                          for .tsx), nor npx to download tsx"
                    .to_owned()
            }
            Self::Registry => "npx could download tsx, but no npm registry is set".to_owned(),
            Self::Host(host) => {
                format!("npx could download tsx from {host}, but the egress list denies that host")
            }
        }
    }

    pub(super) fn hint(&self) -> String {
        let flags = match self {
            Self::Npx => return BUNDLE_TSX.to_owned(),
            Self::Registry => "-e npm_config_registry=URL --allow-net HOST:PORT".to_owned(),
            Self::Host(host) => format!("--allow-net {host}"),
        };
        format!("allow the download: {flags}; or {BUNDLE_TSX}")
    }
}

const BUNDLE_TSX: &str =
    "add tsx to the bundle (npm install tsx), or use Node 22.18 or later for .ts";

/// Selects the interpreter and its command. Node strips types but does not support JSX, so `.tsx` needs
/// `tsx`.
pub(super) fn select_typescript(
    extension: &str,
    bundle: &dyn BundleView,
    host: &Interpreters,
) -> Result<(Vec<&'static str>, Interpreter), TsxLack> {
    let bundled = RelPath::parse(BUNDLED_TSX.as_bytes()).is_ok_and(|path| is_file(bundle, &path));
    if bundled {
        return Ok((vec![BUNDLED_TSX], Interpreter::Tsx));
    }
    if host.tsx {
        return Ok((vec!["tsx"], Interpreter::Tsx));
    }
    if extension != "tsx" && host.node.is_some_and(NodeVersion::strips_types) {
        return Ok((vec!["node"], Interpreter::Node));
    }
    match TsxLack::of(host) {
        None => Ok((vec!["npx", "--yes", "tsx"], Interpreter::Npx)),
        Some(lack) => Err(lack),
    }
}
