//! The sandbox providers as data: names, keys of `config`, and why one is refused.

/// A sandbox provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    Local,
    /// This program, with Node's permission flags inside.
    NodePermission,
    /// An external service; refused before anything is started.
    Remote,
}

/// The type of a `config` key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigValue {
    Directory,
    Shell,
    OneOf(&'static [&'static str]),
    Name,
}

/// An entry of the provider list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderEntry {
    pub name: &'static str,
    pub provider: Provider,
    /// The keys of its `config`, all optional.
    pub config: &'static [(&'static str, ConfigValue)],
    /// Why it is unavailable: completes "the provider is not available: …".
    pub unavailable: Option<&'static str>,
}

use ConfigValue::{Directory, Name, OneOf, Shell};

static REGIONS: [&str; 2] = ["us-east-1", "eu-west-1"];
const ELSEWHERE: Option<&str> =
    Some("it is a service elsewhere, and the runner starts bodies here");

/// Every known provider. Unknown names are refused.
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
    #[must_use]
    pub(crate) fn config_value(&self, name: &str) -> Option<ConfigValue> {
        let (_, value) = self.config.iter().find(|(known, _)| *known == name)?;
        Some(*value)
    }

    #[must_use]
    pub(crate) fn config_keys(&self) -> Vec<&'static str> {
        self.config.iter().map(|(name, _)| *name).collect()
    }
}

/// Finds a provider by name.
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
