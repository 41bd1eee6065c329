//! `define_sandbox` (AIP-36): provider, limits, environment, egress and mounts, complete.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::define::runner::stated;
use crate::define::{
    DefineError, error_in_definition, read, texts, unwrapped, warnings_in_definition,
};
use crate::limits::{Limit, WALL_TIME_SANDBOX_DEFAULT_MS};
use crate::manifest::ManifestError;
use crate::report::WarningReport;
use crate::sandbox_block::LocalConfig;

const FUNCTION: &str = "define_sandbox";

/// A complete `sandbox` block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SandboxHandle {
    /// `sandbox/v1`, in a file of its own.
    pub schema: Option<String>,
    /// `@owner/name`, in a file of its own.
    pub id: Option<String>,
    pub version: Option<String>,
    /// A name of the built-in list of providers.
    pub provider: String,
    pub config: ProviderConfig,
    pub limits: SandboxLimits,
    pub env: SandboxEnvironment,
    pub network: SandboxNetwork,
    pub mounts: Vec<MountHandle>,
    pub identity: Option<Value>,
    /// As declared. The run needs a grant for it.
    pub policy: Option<Value>,
    pub lifecycle: SandboxLifecycle,
    pub read_only: bool,
    pub metadata: Map<String, Value>,
    pub warnings: Vec<WarningReport>,
    #[serde(skip)]
    refusals: Vec<ManifestError>,
}

/// Options of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ProviderConfig {
    Local {
        /// Working directory below the workspace; `.` is the workspace itself.
        cwd: String,
        /// `/bin/sh` or `/bin/bash`.
        shell: String,
    },
    NodePermission {},
    E2b {
        template: Option<String>,
        api_key_ref: Option<String>,
        region: Option<String>,
    },
    Modal {
        app_name: Option<String>,
        function_name: Option<String>,
        api_token_ref: Option<String>,
    },
    Daytona {
        workspace_id: Option<String>,
        api_key_ref: Option<String>,
    },
    Blaxel {
        workspace: Option<String>,
        api_key_ref: Option<String>,
    },
}

/// Limits of each command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SandboxLimits {
    /// Wall time; 30,000 by default.
    pub timeout_ms: u64,
    /// MiB; `None`: the value of the `runner` block.
    pub memory_mb: Option<u64>,
    pub cpu_ms: Option<u64>,
}

/// Environment variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxEnvironment {
    pub auth: SandboxAuth,
    pub passthrough: Vec<String>,
}

/// Variables whose values are secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SandboxAuth {
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    pub state: AuthState,
}

/// Which variables are secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuthState {
    pub env: Vec<String>,
}

/// Network access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxNetwork {
    pub egress: Vec<String>,
}

/// A mount of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountHandle {
    /// `workspace`, or the declared storage.
    pub source: Value,
    pub at: String,
    /// `read-write` or `read-only`.
    pub mode: &'static str,
}

/// Hints by event name, from both spellings of the specification. They have no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxLifecycle {
    /// `idle-SECONDS`.
    pub pause_after_idle: Option<String>,
    /// `workspace-close`.
    pub destroy_on: Option<String>,
}

/// Completes the `sandbox` block `definition`. It does no I/O.
///
/// Valid blocks that this program cannot use (another provider, `read_only`) get a handle too:
/// [`SandboxHandle::check_command`] returns the error of a command.
///
/// # Errors
/// [`DefineError`]: an invalid key or value, an unknown provider, a credential in plain text, a
/// reference.
pub fn define_sandbox(definition: &Value) -> Result<SandboxHandle, DefineError> {
    let entries = Map::from_iter([("sandbox".to_owned(), definition.clone())]);
    let manifest =
        read(FUNCTION, entries).map_err(|error| error_in_definition(error, "sandbox"))?;
    let definition = unwrapped(definition);
    let block = manifest.sandbox.unwrap_or_default();
    let text = |key: &str| definition.get(key)?.as_str().map(str::to_owned);
    let provider = text("provider").unwrap_or_default();
    let declared_mounts = definition.get("mounts");
    let mounts = block
        .mounts
        .iter()
        .map(|mount| MountHandle {
            source: last_index(&mount.source)
                .and_then(|index| declared_mounts?.get(index)?.get("source"))
                .cloned()
                .unwrap_or(Value::Null),
            at: mount.target.as_str().to_owned(),
            mode: mount.mode.name(),
        })
        .collect();
    Ok(SandboxHandle {
        schema: text("schema"),
        id: text("id"),
        version: text("version"),
        config: config(&provider, &block.local, definition.get("config")),
        provider,
        limits: SandboxLimits {
            timeout_ms: stated(&block.limits, Limit::WallTime)
                .unwrap_or(WALL_TIME_SANDBOX_DEFAULT_MS),
            memory_mb: stated(&block.limits, Limit::Memory).map(|bytes| bytes >> 20),
            cpu_ms: stated(&block.limits, Limit::CpuTime),
        },
        env: SandboxEnvironment {
            auth: auth(definition.pointer("/env/auth")),
            passthrough: block.passthrough,
        },
        network: SandboxNetwork {
            egress: block
                .egress
                .iter()
                .map(|request| request.rule.to_string())
                .collect(),
        },
        mounts,
        identity: definition.get("identity").cloned(),
        policy: definition.get("policy").cloned(),
        lifecycle: SandboxLifecycle {
            pause_after_idle: block.pause_after_idle,
            destroy_on: block.destroy_on,
        },
        read_only: block.read_only,
        metadata: definition
            .get("metadata")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default(),
        warnings: warnings_in_definition(FUNCTION, &manifest.warnings, "sandbox"),
        refusals: manifest
            .refusals
            .into_iter()
            .map(|error| error_in_definition(error, "sandbox"))
            .collect(),
    })
}

impl SandboxHandle {
    /// Checks that a command may run in this sandbox on this host. Call it before preparing
    /// anything.
    ///
    /// # Errors
    /// `sandbox_read_only`, `provider_unavailable`, `storage_unsupported`.
    pub fn check_command(&self) -> Result<(), ManifestError> {
        self.refusals.first().cloned().map_or(Ok(()), Err)
    }
}

fn last_index(pointer: &str) -> Option<usize> {
    pointer.rsplit('/').next()?.parse().ok()
}

fn config(provider: &str, local: &LocalConfig, declared: Option<&Value>) -> ProviderConfig {
    let text = |key: &str| declared?.get(key)?.as_str().map(str::to_owned);
    match provider {
        "node-permission" => ProviderConfig::NodePermission {},
        "mastra-e2b" => ProviderConfig::E2b {
            template: text("template"),
            api_key_ref: text("api_key_ref"),
            region: text("region"),
        },
        "mastra-modal" => ProviderConfig::Modal {
            app_name: text("app_name"),
            function_name: text("function_name"),
            api_token_ref: text("api_token_ref"),
        },
        "mastra-daytona" => ProviderConfig::Daytona {
            workspace_id: text("workspace_id"),
            api_key_ref: text("api_key_ref"),
        },
        "mastra-blaxel" => ProviderConfig::Blaxel {
            workspace: text("workspace"),
            api_key_ref: text("api_key_ref"),
        },
        _ => ProviderConfig::Local {
            cwd: local
                .cwd
                .as_ref()
                .map_or_else(|| ".".to_owned(), ToString::to_string),
            shell: local.shell.unwrap_or_default().path().to_owned(),
        },
    }
}

fn auth(declared: Option<&Value>) -> SandboxAuth {
    let Some(declared) = declared else {
        return SandboxAuth::default();
    };
    SandboxAuth {
        reference: declared
            .get("ref")
            .and_then(Value::as_str)
            .map(str::to_owned),
        state: AuthState {
            env: texts(declared.pointer("/state/env")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn defined(definition: &Value) -> SandboxHandle {
        define_sandbox(definition).unwrap_or_else(|error| panic!("{definition}: {error}"))
    }

    fn written(definition: &Value) -> Value {
        serde_json::to_value(defined(definition)).expect("written")
    }

    #[test]
    fn the_smallest_block_has_every_field_with_its_default() {
        assert_eq!(
            written(&json!({"provider": "local", "config": {}})),
            json!({
                "schema": null, "id": null, "version": null,
                "provider": "local",
                "config": {"cwd": ".", "shell": "/bin/sh"},
                "limits": {"timeout_ms": 30_000, "memory_mb": null, "cpu_ms": null},
                "env": {"auth": {"ref": null, "state": {"env": []}}, "passthrough": []},
                "network": {"egress": []},
                "mounts": [],
                "identity": null, "policy": null,
                "lifecycle": {"pause_after_idle": null, "destroy_on": null},
                "read_only": false,
                "metadata": {},
                "warnings": [],
            })
        );
    }

    #[test]
    fn the_block_example_of_the_specification_is_complete() {
        let handle = defined(&json!({
            "provider": "local",
            "config": {"cwd": "./src", "shell": "/bin/bash"},
            "limits": {"timeout_ms": 30_000, "memory_mb": 1024, "cpu_ms": 30_000},
            "env": {
                "auth": {
                    "ref": "./SECRETS.md",
                    "state": {"env": ["OPENAI_API_KEY", "STRIPE_SECRET"]},
                },
                "passthrough": ["NODE_ENV", "DEBUG"],
            },
            "network": {"egress": ["api.openai.com", "*.anthropic.com"]},
            "mounts": [
                {"source": "workspace", "at": "/workspace/deep", "mode": "read-only"},
                {"source": "workspace", "at": "/workspace"},
            ],
            "identity": {"ref": "bot://agentik"},
            "lifecycle": {"pause_after_idle": "idle-600", "destroy_on": "workspace-close"},
            "read_only": false,
        }));
        assert_eq!(handle.check_command(), Ok(()));
        let written = serde_json::to_value(&handle).expect("written");
        assert_eq!(
            written["config"],
            json!({"cwd": "src", "shell": "/bin/bash"})
        );
        assert_eq!(written["env"]["auth"]["ref"], "./SECRETS.md");
        assert_eq!(
            written["env"]["auth"]["state"]["env"],
            json!(["OPENAI_API_KEY", "STRIPE_SECRET"])
        );
        assert_eq!(
            written["network"]["egress"],
            json!(["api.openai.com", "*.anthropic.com"])
        );
        // Parents first.
        assert_eq!(
            written["mounts"],
            json!([
                {"source": "workspace", "at": "/workspace", "mode": "read-write"},
                {"source": "workspace", "at": "/workspace/deep", "mode": "read-only"},
            ])
        );
        assert_eq!(written["identity"], json!({"ref": "bot://agentik"}));
        assert_eq!(
            written["lifecycle"],
            json!({"pause_after_idle": "idle-600", "destroy_on": "workspace-close"})
        );
    }

    /// The text's own example, which its published schema refuses.
    #[test]
    fn the_standalone_example_of_the_specification_is_valid_but_unavailable() {
        let handle = defined(&json!({
            "schema": "sandbox/v1",
            "id": "@acme-corp/shared-modal-policy",
            "version": "1.0.0",
            "provider": "mastra-modal",
            "config": {
                "app_name": "agentik-sandbox",
                "function_name": "code_runner",
                "api_token_ref": "org/acme/modal-token",
            },
            "limits": {"timeout_ms": 120_000, "memory_mb": 4096},
            "lifecycle": {"pause_after_idle_ms": 300_000, "destroy_on_workspace_close": false},
            "read_only": false,
        }));
        assert_eq!(handle.id.as_deref(), Some("@acme-corp/shared-modal-policy"));
        assert_eq!(
            handle.lifecycle.pause_after_idle.as_deref(),
            Some("idle-300")
        );
        assert_eq!(handle.lifecycle.destroy_on, None);
        assert_eq!(
            handle.config,
            ProviderConfig::Modal {
                app_name: Some("agentik-sandbox".to_owned()),
                function_name: Some("code_runner".to_owned()),
                api_token_ref: Some("org/acme/modal-token".to_owned()),
            }
        );
        let codes: Vec<&str> = handle
            .warnings
            .iter()
            .map(|one| one.code.as_str())
            .collect();
        assert_eq!(codes, ["deprecated_field", "deprecated_field"]);
        let refusal = handle.check_command().expect_err("a service elsewhere");
        assert_eq!(refusal.code(), "provider_unavailable");
        assert_eq!(refusal.pointer.as_deref(), Some("/provider"));
    }

    #[test]
    fn a_valid_block_that_cannot_run_a_command_is_refused_by_check_command() {
        let e2b = json!({"inline": {
            "provider": "mastra-e2b",
            "config": {"template": "code-interpreter-v3"},
            "limits": {"timeout_ms": 60_000, "memory_mb": 2048},
            "network": {"egress": ["api.openai.com"]},
        }});
        let storage = json!({"provider": "local", "config": {}, "mounts": [
            {"source": {"ref": "@agentik/python-libs"}, "at": "/vendor/python-libs"},
        ]});
        let read_only = json!({"provider": "local", "config": {}, "read_only": true});
        for (definition, code) in [
            (e2b, "provider_unavailable"),
            (storage, "storage_unsupported"),
            (read_only, "sandbox_read_only"),
        ] {
            let handle = defined(&definition);
            let refusal = handle.check_command().expect_err("refused");
            assert_eq!(refusal.code(), code);
        }
    }

    #[test]
    fn a_warning_about_the_whole_block_has_no_pointer() {
        let message = &defined(&json!({"provider": "local"})).warnings[0].message;
        let expected = "define_sandbox: `config` is missing: `{}` is assumed";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_refusal_names_the_place_in_the_definition() {
        for (definition, code, pointer) in [
            (json!({}), "missing_key", ""),
            (
                json!({"provider": "docker", "config": {}}),
                "unknown_value",
                "/provider",
            ),
            (json!({"provider": "mastra-e2b"}), "missing_key", ""),
            (
                json!({"provider": "local", "config": {"api_key_ref": "x"}}),
                "unknown_key",
                "/config/api_key_ref",
            ),
            (
                json!({"provider": "node-permission", "config": {"shell": "/bin/sh"}}),
                "unknown_key",
                "/config/shell",
            ),
            (
                json!({"provider": "mastra-e2b", "config": {"region": "eu-west-9"}}),
                "unknown_value",
                "/config/region",
            ),
            (
                json!({"provider": "local", "config": {"shell": "/bin/zsh"}}),
                "unknown_value",
                "/config/shell",
            ),
            (
                json!({"provider": "local", "config": {"cwd": "../x"}}),
                "path_refused",
                "/config/cwd",
            ),
            (
                json!({"provider": "mastra-e2b", "config": {"api_key": "hunter2hunter2"}}),
                "plaintext_credential",
                "/config/api_key",
            ),
            (
                json!({"provider": "local", "readOnly": true}),
                "unknown_key",
                "/readOnly",
            ),
            (
                json!({"ref": "@acme-corp/x"}),
                "sandbox_ref_unresolvable",
                "/ref",
            ),
            (
                json!({"inline": {"provider": "local"}, "ref": "x"}),
                "unknown_key",
                "/ref",
            ),
            (
                json!({"provider": "local", "mounts": [{"source": "workspace", "at": "/a/../etc"}]}),
                "mount_refused",
                "/mounts/0/at",
            ),
            (
                json!({"provider": "local", "network": {"egress": ["https://x"]}}),
                "egress_invalid",
                "/network/egress/0",
            ),
            (
                json!({"provider": "local", "exec": {}}),
                "sandbox_is_cli_block",
                "/exec",
            ),
        ] {
            let error = define_sandbox(&definition).expect_err("refused");
            assert_eq!(
                (error.code(), error.pointer().as_str()),
                (code, pointer),
                "{definition}: {error}"
            );
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
