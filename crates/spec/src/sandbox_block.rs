//! The `sandbox` block (AIP-36): provider, limits, environment, egress, mounts, life cycle.

use serde_json::{Value as Json, json};

use crate::credential;
use crate::document::Node;
use crate::inventory::{self, Inventory};
use crate::limits::TIME_MS_MAX;
use crate::manifest::fields::{Field, Kind, LINE, Resolution, Text, VARIABLE, keys, object};
use crate::manifest::reader::Reader;
use crate::manifest::schema::{reference, whole_number};
use crate::manifest::secrets::{SecretReference, SecretRequest, slug_of_variable};
use crate::manifest::{EgressRequest, ManifestError, Problem, StatedLimit, is_slug, network};
pub use crate::mounts::MountRequest;
use crate::mounts::read_mounts;
use crate::path::RelPath;
pub use crate::provider::Provider;
use crate::provider::REGISTRY;
use crate::run_form::{TextForm, text_form};
use crate::runner_block::{limit_keys, read_limits};

/// The source of secrets that are requested by variable only.
pub(crate) const SANDBOX_AUTH: &str = "sandbox.env.auth";

/// The shell of `config.shell`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shell {
    #[default]
    Sh,
    Bash,
}

impl Shell {
    /// Path of the program.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Sh => "/bin/sh",
            Self::Bash => "/bin/bash",
        }
    }

    /// The words of a command. One word that [`text_form`] takes for a shell command is run by this
    /// shell; all else is a program with its arguments.
    #[must_use]
    pub fn words(self, command: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let text = match command {
            [text] => std::str::from_utf8(text).ok(),
            _ => None,
        };
        match text.filter(|text| text_form(text) == TextForm::Shell) {
            Some(text) => [self.path(), "-c", text].map(|word| word.into()).into(),
            None => command.to_vec(),
        }
    }
}

/// The `config` of `provider: local`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalConfig {
    /// Working directory below the workspace, or below the bundle if the workspace is not mounted;
    /// `None`: that directory itself.
    pub cwd: Option<RelPath>,
    pub shell: Option<Shell>,
}

/// A `sandbox` block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxBlock {
    pub provider: Provider,
    /// Default for other providers.
    pub local: LocalConfig,
    pub limits: Vec<StatedLimit>,
    pub passthrough: Vec<String>,
    pub secrets: Vec<SecretRequest>,
    pub egress: Vec<EgressRequest>,
    pub mounts: Vec<MountRequest>,
    pub read_only: bool,
    pub policy: bool,
    /// Event name of `lifecycle.pause_after_idle`. Of a sandbox that stays alone.
    pub pause_after_idle: Option<String>,
    /// Event name of `lifecycle.destroy_on`. Of a sandbox that stays alone.
    pub destroy_on: Option<String>,
}

pub(crate) const FIELDS: [Field<SandboxBlock>; 17] = [
    Field::new(
        "schema",
        "In a file of its own: the kind of document.",
        Kind::Other(
            || json!({"const": "sandbox/v1"}),
            |reader, node, _| reader.word(node, &[("sandbox/v1", ())]),
        ),
    )
    .resolved(Resolution::Dropped),
    Field::new(
        "id",
        "In a file of its own: how others refer to it.",
        Kind::Text(&SLUG, |_, _| ()),
    )
    .resolved(Resolution::Dropped),
    Field::new(
        "version",
        "In a file of its own: the version of that file.",
        Kind::Text(&LINE, |_, _| ()),
    )
    .resolved(Resolution::Dropped),
    Field::required(
        "provider",
        "Who runs commands. The `mastra-…` ones are external services: accepted here, refused by \
         `exec`.",
        Kind::Other(
            || json!({"enum": REGISTRY.each_ref().map(|entry| entry.name)}),
            already_read,
        ),
    ),
    Field::new(
        "config",
        "What the provider needs; its keys depend on the provider. For `local` and \
         `node-permission` it may be missing: then it is `{}`, with a warning.",
        Kind::Other(|| json!({"type": "object"}), already_read),
    )
    .resolved(Resolution::Rewritten),
    Field::new(
        "limits",
        "Limits of the run.",
        Kind::Map(
            limit_keys,
            || reference("limits"),
            |reader, node, block| {
                block.limits = read_limits(reader, node, "sandbox.limits")?;
                Ok(())
            },
        ),
    ),
    Field::new(
        "env",
        "The environment of commands. It has no values.",
        Kind::Map(
            || keys(&ENV),
            || object("The environment of commands. It has no values.", &ENV),
            |reader, node, block| reader.fields(node, &ENV, block),
        ),
    )
    .resolved(Resolution::Rewritten),
    Field::new(
        "network",
        "The hosts that commands may reach.",
        Kind::Other(
            || reference("network"),
            |reader, node, block| {
                block.egress = network::read(reader, node, "sandbox.network.egress")?;
                Ok(())
            },
        ),
    ),
    Field::new(
        "mounts",
        "Mounts of the workspace, parents before children.",
        Kind::Other(
            || json!({"type": "array", "items": reference("mount"), "default": []}),
            |reader, node, block| {
                block.mounts = read_mounts(reader, node)?;
                Ok(())
            },
        ),
    ),
    Field::new(
        "identity",
        "Who owns the processes (AIP-23). No effect.",
        Kind::Ignored,
    ),
    Field::new(
        "policy",
        "Who may do what (AIP-38). It restricts: refused unless granted.",
        Kind::Other(
            || json!({}),
            |_, _, block| {
                block.policy = true;
                Ok(())
            },
        ),
    ),
    Field::new(
        "lifecycle",
        "When the environment may pause or go. Advisory.",
        Kind::Map(|| keys(&LIFECYCLE), lifecycle_schema, read_lifecycle),
    )
    .resolved(Resolution::Rewritten),
    Field::new(
        "read_only",
        "Whether no command may run: then every run fails with `sandbox_read_only`.",
        Kind::Flag(Some(false), |block, read_only| block.read_only = read_only),
    ),
    Field::new(
        "metadata",
        "Data of other programs. No effect.",
        Kind::Other(
            || json!({"type": "object"}),
            |reader, node, _| {
                reader.map(node)?;
                reader.ignore(node);
                Ok(())
            },
        ),
    ),
    Field::unspecified("extraPorts"),
    Field::unspecified("extra_ports"),
    Field::unspecified("join"),
];

const ENV: [Field<SandboxBlock>; 3] = [
    Field::new(
        "auth",
        "Variables whose values come from the host's provider of secrets.",
        Kind::Other(
            || {
                object(
                    "Variables whose values come from the host's provider of secrets.",
                    &AUTH,
                )
            },
            |reader, node, block| {
                block.secrets = read_auth(reader, node)?;
                Ok(())
            },
        ),
    ),
    Field::new(
        "passthrough",
        "Variables of the caller to pass on.",
        Kind::Texts(&VARIABLE, |block, names| block.passthrough = names),
    ),
    Field::unspecified("autoPassthrough"),
];

const AUTH: [Field<Vec<String>>; 2] = [
    Field::new(
        "ref",
        "The inventory (SECRETS.md) that knows the names.",
        Kind::Text(&LINE, |_, _| ()),
    ),
    Field::new(
        "state",
        "What the commands get.",
        Kind::Other(
            || object("What the commands get.", &AUTH_STATE),
            |reader, node, variables| reader.fields(node, &AUTH_STATE, variables),
        ),
    ),
];

const AUTH_STATE: [Field<Vec<String>>; 1] = [Field::new(
    "env",
    "Variables whose values are secrets.",
    Kind::Texts(&VARIABLE, |variables, names| *variables = names),
)];

const LIFECYCLE: [Field<SandboxBlock>; 4] = [
    Field::new(
        "pause_after_idle",
        "The event after which to pause, such as `idle-600` (seconds).",
        Kind::Text(&LINE, |block, event| block.pause_after_idle = Some(event)),
    ),
    Field::new(
        "destroy_on",
        "The event after which to destroy, such as `workspace-close`.",
        Kind::Text(&LINE, |block, event| block.destroy_on = Some(event)),
    ),
    Field::deprecated(
        "pause_after_idle_ms",
        "The older spelling of `pause_after_idle`, in milliseconds.",
        Kind::Other(
            || whole_number(TIME_MS_MAX),
            |reader, node, block| {
                reader.warn("deprecated_field", node, LIFECYCLE_HINT);
                let idle_ms = reader.whole_number(node, TIME_MS_MAX)?;
                block.pause_after_idle = Some(format!("idle-{}", idle_ms.div_ceil(1_000)));
                Ok(())
            },
        ),
    ),
    Field::deprecated(
        "destroy_on_workspace_close",
        "The older spelling of `destroy_on: workspace-close`.",
        Kind::Other(
            || json!({"type": "boolean"}),
            |reader, node, block| {
                reader.warn("deprecated_field", node, LIFECYCLE_HINT);
                let destroys = reader.boolean(node)?;
                block.destroy_on = destroys.then(|| "workspace-close".to_owned());
                Ok(())
            },
        ),
    ),
];
const LIFECYCLE_HINT: &str = "write `pause_after_idle: idle-SECONDS` and `destroy_on: EVENT`";
/// Deprecated keys, each with the current one.
const LIFECYCLE_DEPRECATED: [(&str, &str); 2] = [
    ("pause_after_idle_ms", "pause_after_idle"),
    ("destroy_on_workspace_close", "destroy_on"),
];

static SLUG: Text = Text {
    schema: || {
        let segment = "[a-z0-9][a-z0-9._-]*";
        json!({"type": "string", "pattern": format!("^@{segment}(?:/{segment}){{1,2}}$")})
    },
    read: |reader, node| {
        let text = reader.name(node)?;
        if is_slug(text) {
            Ok(text.to_owned())
        } else {
            Err(reader.wrong_type(node, "text of the form @owner/name"))
        }
    },
};

pub(crate) fn schema() -> Json {
    let about = "The `sandbox` block (AIP-36): where commands run. Credentials in plain text are \
                 refused in every value.";
    let mut schema = object(about, &FIELDS);
    let of_providers = REGISTRY.each_ref().map(|entry| {
        let mut then = json!({"properties": {"config": entry.schema()}});
        if entry.provider == Provider::Remote {
            then["required"] = json!(["config"]);
        }
        let is_named =
            json!({"properties": {"provider": {"const": entry.name}}, "required": ["provider"]});
        json!({"if": is_named, "then": then})
    });
    schema["allOf"] = json!(of_providers);
    schema
}

fn lifecycle_schema() -> Json {
    let mut schema = object(
        "When the environment may pause or go. Advisory.",
        &LIFECYCLE,
    );
    let one_spelling =
        LIFECYCLE_DEPRECATED.map(|(old, new)| json!({"not": {"required": [new, old]}}));
    schema["allOf"] = json!(one_spelling);
    schema
}

pub(crate) fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<SandboxBlock, ManifestError> {
    let node = reader.block(node, "sandbox")?;
    // Checked first: unknown-key errors would not name the problem.
    refuse_cli_block(reader, node)?;
    reader.map(node)?;
    for (value, why) in credential::all(node) {
        reader.note(reader.error(value, Problem::PlaintextCredential { why }));
    }
    let mut block = SandboxBlock::default();
    if let Some(provider) = node.get("provider") {
        let read = read_provider(reader, node, provider, &mut block);
        reader.keep(read);
    }
    let read = reader.fields(node, &FIELDS, &mut block);
    reader.keep(read);
    if block.read_only {
        let value = node.get("read_only").unwrap_or(node);
        let refusal = reader.error(value, Problem::SandboxReadOnly);
        reader.refusals.push(refusal);
    }
    Ok(block)
}

/// For `provider` and `config`. `read_provider` reads both before the other keys, because the
/// provider decides the keys of `config`.
fn already_read<'document>(
    _: &mut Reader<'document>,
    _: &'document Node,
    _: &mut SandboxBlock,
) -> Result<(), ManifestError> {
    Ok(())
}

/// Refuses blocks of AIP-29, which have `fs`, `exec`, `env.pass` or `env.set`.
fn refuse_cli_block(reader: &Reader<'_>, node: &Node) -> Result<(), ManifestError> {
    let outer = ["fs", "exec"].into_iter().find_map(|name| node.entry(name));
    let inner = || {
        let env = node.get("env")?;
        ["pass", "set"].into_iter().find_map(|name| env.entry(name))
    };
    match outer.or_else(inner) {
        Some((key, value)) => Err(reader.error(
            value,
            Problem::CliSandbox {
                key: key.name.clone(),
            },
        )),
        None => Ok(()),
    }
}

fn read_provider<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    provider: &'document Node,
    block: &mut SandboxBlock,
) -> Result<(), ManifestError> {
    let words = REGISTRY.each_ref().map(|entry| (entry.name, entry));
    let entry = reader.word(provider, &words)?;
    block.provider = entry.provider;
    if let Some(why) = entry.unavailable {
        let refusal = reader.error(
            provider,
            Problem::ProviderUnavailable {
                provider: entry.name.to_owned(),
                why,
            },
        );
        reader.refusals.push(refusal);
    }
    match node.get("config") {
        Some(config) => reader.fields(config, entry.config, &mut block.local),
        None if entry.provider == Provider::Remote => {
            Err(reader.error(node, Problem::MissingKey { key: "config" }))
        }
        None => {
            reader.warn(
                "config_missing",
                node,
                "`config` is missing: `{}` is assumed",
            );
            Ok(())
        }
    }
}

fn read_auth<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<SecretRequest>, ManifestError> {
    let mut variables = Vec::new();
    let read = reader.fields(node, &AUTH, &mut variables);
    let document = reader.keep(reader.inventory(node)).flatten();
    let inventory = document.map(|document| {
        let entries = inventory::read(reader, document);
        Inventory::new(reader.file_of(document), entries)
    });
    reader.inventories.extend(inventory);
    read?;
    Ok(variables
        .into_iter()
        .map(|variable| SecretRequest {
            // An inventory may set another slug: see `Manifest::look_up_variables`.
            reference: SecretReference::Vault(slug_of_variable(&variable)),
            variable,
            source: SANDBOX_AUTH.to_owned(),
        })
        .collect())
}

fn read_lifecycle<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    block: &mut SandboxBlock,
) -> Result<(), ManifestError> {
    for (old, new) in LIFECYCLE_DEPRECATED {
        if node.get(old).is_some() && node.get(new).is_some() {
            let (one, other) = (new, old);
            reader.note(reader.error(node, Problem::Conflict { one, other }));
        }
    }
    reader.fields(node, &LIFECYCLE, block)?;
    reader.ignore(node);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_with_a_shell_s_signs_is_run_by_the_shell() {
        let words = |shell: Shell, command: &[&str]| {
            let command: Vec<Vec<u8>> = command.iter().map(|word| (*word).into()).collect();
            let words = shell.words(&command).into_iter();
            words
                .map(|word| String::from_utf8(word).expect("text"))
                .collect::<Vec<_>>()
        };
        for text in ["make && ./test", "echo $(id)", "a;b", "ls -l"] {
            assert_eq!(words(Shell::Sh, &[text]), ["/bin/sh", "-c", text]);
            assert_eq!(words(Shell::Bash, &[text]), ["/bin/bash", "-c", text]);
        }
        for command in [
            &["make"][..],
            &["./a"],
            &["a b", "c"],
            &["sh", "-c", "a;b"],
            &[],
        ] {
            assert_eq!(words(Shell::Sh, command), command);
        }
        let other = vec![b"\xff b".to_vec()];
        assert_eq!(Shell::Sh.words(&other), other);
    }

    #[test]
    fn the_schema_of_an_id_accepts_the_same_as_its_reader() {
        let validator = jsonschema::validator_for(&(SLUG.schema)()).expect("a schema");
        for id in [
            "@a/b", "@a/b_1.2", "@a/b/c", "@a/b/c/d", "@a", "@a/-b", "@A/b", "a/b",
        ] {
            assert_eq!(validator.is_valid(&json!(id)), is_slug(id), "{id}");
        }
    }
}
