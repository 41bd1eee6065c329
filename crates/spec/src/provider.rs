//! The sandbox providers as data: which there are, what their `config` holds, why one is refused.

/// Who runs commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    Local,
    /// This program, and Node with its permission flags inside.
    NodePermission,
    /// A service that this program does not speak to; refused before anything is started.
    Remote,
}

/// What a key of `config` may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigValue {
    /// A directory below the workspace.
    Directory,
    /// `/bin/sh` or `/bin/bash`.
    Shell,
    /// One of a few words.
    OneOf(&'static [&'static str]),
    /// One line of text.
    Name,
}

/// One provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderEntry {
    /// As `sandbox.provider` says it.
    pub name: &'static str,
    pub provider: Provider,
    /// The keys of its `config`; all of them may be left out.
    pub config: &'static [(&'static str, ConfigValue)],
    /// Why it is not available, if it is not: completes "the provider is not available: …".
    pub unavailable: Option<&'static str>,
}

use ConfigValue::{Directory, Name, OneOf, Shell};

static REGIONS: [&str; 2] = ["us-east-1", "eu-west-1"];
const ELSEWHERE: Option<&str> =
    Some("it is a service elsewhere, and the runner starts bodies here");

/// Every provider that a manifest may name. A name that is not here is refused, never taken for
/// another.
pub static REGISTRY: [ProviderEntry; 6] = [
    ProviderEntry {
        name: "local",
        provider: Provider::Local,
        config: &[("cwd", Directory), ("shell", Shell)],
        unavailable: None,
    },
    ProviderEntry {
        name: "node-permission",
        provider: Provider::NodePermission,
        config: &[],
        unavailable: None,
    },
    ProviderEntry {
        name: "mastra-e2b",
        provider: Provider::Remote,
        config: &[
            ("template", Name),
            ("api_key_ref", Name),
            ("region", OneOf(&REGIONS)),
        ],
        unavailable: ELSEWHERE,
    },
    ProviderEntry {
        name: "mastra-modal",
        provider: Provider::Remote,
        config: &[
            ("app_name", Name),
            ("function_name", Name),
            ("api_token_ref", Name),
        ],
        unavailable: ELSEWHERE,
    },
    ProviderEntry {
        name: "mastra-daytona",
        provider: Provider::Remote,
        config: &[("workspace_id", Name), ("api_key_ref", Name)],
        unavailable: ELSEWHERE,
    },
    ProviderEntry {
        name: "mastra-blaxel",
        provider: Provider::Remote,
        config: &[("workspace", Name), ("api_key_ref", Name)],
        unavailable: ELSEWHERE,
    },
];

impl ProviderEntry {
    /// What the key `name` of `config` may hold; `None` where there is no such key.
    #[must_use]
    pub(crate) fn config_value(&self, name: &str) -> Option<ConfigValue> {
        let (_, value) = self.config.iter().find(|(known, _)| *known == name)?;
        Some(*value)
    }

    /// The keys of `config`.
    #[must_use]
    pub(crate) fn config_keys(&self) -> Vec<&'static str> {
        self.config.iter().map(|(name, _)| *name).collect()
    }
}

/// The provider of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ProviderEntry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_is_found_and_only_services_elsewhere_are_unavailable() {
        for entry in &REGISTRY {
            let found = find(entry.name).expect("in the registry");
            assert_eq!(found, entry);
            let remote = entry.provider == Provider::Remote;
            assert_eq!(entry.unavailable.is_some(), remote, "{}", entry.name);
            for name in entry.config_keys() {
                assert!(entry.config_value(name).is_some());
            }
        }
        assert!(find("docker").is_none() && find("").is_none());
    }
}
