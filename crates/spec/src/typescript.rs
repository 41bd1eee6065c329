//! Selects the interpreter for TypeScript, or tells what is missing.

use crate::detection::{BUNDLED_TSX, BundleView, Interpreter, Interpreters, NodeVersion, is_file};
use crate::path::RelPath;

/// The registry that npm's programs download from, from the body's environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NpmRegistry {
    /// Not set; there is no default.
    #[default]
    Unnamed,
    /// This `HOST:PORT` is not in the egress list of the run.
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
            NpmRegistry::Refused(place) => Some(Self::Host(place.clone())),
            NpmRegistry::Allowed => None,
        }
    }

    pub(super) fn why(&self) -> String {
        match self {
            Self::Npx => "no tsx, no Node that strips types (22.18 and later; of .tsx none does), \
                          and no npx that could fetch tsx"
                .to_owned(),
            Self::Registry => "npx could fetch tsx, and no registry is named for it".to_owned(),
            Self::Host(place) => {
                format!("npx could fetch tsx from {place}, where this run may not go")
            }
        }
    }

    pub(super) fn hint(&self) -> String {
        let fetch = match self {
            Self::Npx => return OWN_TSX.to_owned(),
            Self::Registry => "-e npm_config_registry=URL --allow-net HOST:PORT".to_owned(),
            Self::Host(place) => format!("--allow-net {place}"),
        };
        format!("let it be fetched: {fetch}; or {OWN_TSX}")
    }
}

const OWN_TSX: &str =
    "pack tsx with the bundle (npm install tsx), or use Node 22.18 or later for .ts";

/// Selects the interpreter. Node strips types but does not support JSX, so `.tsx` needs `tsx`.
pub(super) fn typescript(
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
