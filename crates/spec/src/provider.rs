//! The table of sandbox providers: names, keys of `config`, and availability.

use serde_json::{Value as Json, json};

use crate::manifest::fields::{Field, Kind, LINE, object};
use crate::manifest::schema::reference;
use crate::sandbox_block::{LocalConfig, Shell};

/// A sandbox provider that a manifest can name (AIP-36).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Provider {
    #[default]
    Local,
    /// This program, with Node's permission flags inside the sandbox.
    NodePermission,
    /// An external service; refused before anything is started.
    Remote,
}

pub(crate) struct ProviderEntry {
    pub(crate) name: &'static str,
    pub(crate) provider: Provider,
    description: &'static str,
    /// The keys of its `config`.
    pub(crate) config: &'static [Field<LocalConfig>],
    /// Why it is unavailable. Completes "the provider is not available: …".
    pub(crate) unavailable: Option<&'static str>,
}

const EXTERNAL: &str = "it is an external service; the runner starts bodies on this host only";
const REGIONS: [(&str, ()); 2] = [("us-east-1", ()), ("eu-west-1", ())];
const SHELLS: [(&str, Shell); 2] = [
    (Shell::Sh.path(), Shell::Sh),
    (Shell::Bash.path(), Shell::Bash),
];

/// Every known provider. Unknown names are refused.
pub(crate) static REGISTRY: [ProviderEntry; 6] = [
    ProviderEntry {
        name: "local",
        provider: Provider::Local,
        description: "this program",
        config: &[CWD, SHELL, INSTALL_ADAPTERS],
        unavailable: None,
    },
    ProviderEntry {
        name: "node-permission",
        provider: Provider::NodePermission,
        description: "this program, with the permission flags of Node inside",
        config: &[INSTALL_ADAPTERS],
        unavailable: None,
    },
    remote(
        "mastra-e2b",
        &[
            name("template", "Id of the template."),
            name("api_key_ref", KEY),
            REGION,
            INSTALL_ADAPTERS,
        ],
    ),
    remote(
        "mastra-modal",
        &[
            name("app_name", "Name of the app."),
            name("function_name", "Name of the function."),
            name("api_token_ref", "Slug of the secret with the token."),
            INSTALL_ADAPTERS,
        ],
    ),
    remote(
        "mastra-daytona",
        &[
            name("workspace_id", "Id of the workspace."),
            name("api_key_ref", KEY),
            INSTALL_ADAPTERS,
        ],
    ),
    remote(
        "mastra-blaxel",
        &[
            name("workspace", "Name of the workspace."),
            name("api_key_ref", KEY),
            INSTALL_ADAPTERS,
        ],
    ),
];

const KEY: &str = "Slug of the secret with the key.";

const CWD: Field<LocalConfig> = Field::new(
    "cwd",
    "Working directory of commands below the workspace. Default: the workspace itself, if it is mounted.",
    Kind::Other(
        || json!({"anyOf": [{"enum": [".", "./"]}, reference("path")]}),
        |reader, node, local| {
            local.cwd = match reader.text(node)? {
                "." | "./" => None,
                _ => Some(reader.path(node)?),
            };
            Ok(())
        },
    ),
);

const SHELL: Field<LocalConfig> = Field::new(
    "shell",
    "Shell of commands that are text.",
    Kind::Other(
        || json!({"enum": SHELLS.map(|(path, _)| path), "default": Shell::default().path()}),
        |reader, node, local| {
            local.shell = Some(reader.word(node, &SHELLS)?);
            Ok(())
        },
    ),
);

const REGION: Field<LocalConfig> = Field::new(
    "region",
    "Where it runs.",
    Kind::Other(
        || json!({"enum": REGIONS.map(|(region, ())| region)}),
        |reader, node, _| reader.word(node, &REGIONS),
    ),
);

const INSTALL_ADAPTERS: Field<LocalConfig> = Field::unspecified("installAdapters");

const fn name(key: &'static str, description: &'static str) -> Field<LocalConfig> {
    Field::new(key, description, Kind::Text(&LINE, |_, _| ()))
}

const fn remote(name: &'static str, config: &'static [Field<LocalConfig>]) -> ProviderEntry {
    ProviderEntry {
        name,
        provider: Provider::Remote,
        description: "an external service, which is refused before anything is started",
        config,
        unavailable: Some(EXTERNAL),
    }
}

impl ProviderEntry {
    pub(crate) fn schema(&self) -> Json {
        let Self {
            name, description, ..
        } = self;
        let description = format!("`config` of the provider `{name}`: {description}.");
        object(&description, self.config)
    }
}
