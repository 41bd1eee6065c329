//! Each value of the host policy, and the files that decided it.
//!
//! The files are merged one after the other: a file decided a value if merging it changed the value.
//! So only [`merge`] has the rules.

use std::path::Path;

use crate::host_config::{HostPath, Statement, WrittenFlags};
use crate::host_policy::{HostPolicy, merge, names};
use crate::oci_policy::OciPolicy;
use crate::path::escape;
use crate::plan_report::{DEFAULT, PolicyValue};
use crate::preparation::{IndexPolicy, PreparationPolicy};
use crate::sources_policy::SecretsProvider;

/// Lists the values of the merged policy, each with its files. `statements` are ordered earliest
/// first.
#[must_use]
pub fn policy_values(statements: &[Statement]) -> Vec<PolicyValue> {
    let mut before = values(&merge(&[]).0);
    let mut decided: Vec<Vec<String>> = before.iter().map(|_| Vec::new()).collect();
    for (index, statement) in statements.iter().enumerate() {
        let now = values(&merge(&statements[..=index]).0);
        for ((old, new), files) in before.iter().zip(&now).zip(&mut decided) {
            if old != new {
                files.push(statement.origin.clone());
            }
        }
        before = now;
    }
    before
        .into_iter()
        .zip(decided)
        .map(|((key, value), files)| PolicyValue {
            key: key.to_owned(),
            value,
            decided_by: if files.is_empty() {
                vec![DEFAULT.to_owned()]
            } else {
                files
            },
        })
        .collect()
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        "none".to_owned()
    } else {
        items.join(", ")
    }
}

fn path(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

fn optional(text: Option<String>, absent: &str) -> String {
    text.unwrap_or_else(|| absent.to_owned())
}

/// Every key in the order of the documentation, with a short value. The keys are the same for every
/// policy.
fn values(policy: &HostPolicy) -> Vec<(&'static str, String)> {
    let secrets = &policy.secrets;
    let provider = secrets.provider.as_ref().map(|provider| match provider {
        SecretsProvider::Directory(directory) => format!("directory {}", path(directory)),
        SecretsProvider::Environment { prefix } => {
            format!("environment {}", escape(prefix.as_bytes()))
        }
        // The arguments may be confidential.
        SecretsProvider::Command(words) => {
            let program = words.first().map_or("", String::as_str);
            format!("command {}", escape(program.as_bytes()))
        }
    });
    let egress = policy.egress.allow.as_ref();
    let mut values = vec![
        (
            "maxima.memory",
            policy.maxima.memory_bytes.value.to_string(),
        ),
        (
            "maxima.timeout",
            format!("{}ms", policy.maxima.wall_time.value.as_millis()),
        ),
        (
            "maxima.processes",
            policy.maxima.processes.value.to_string(),
        ),
        ("grants", list(names(policy.grants).map(str::to_owned))),
        (
            "deny_grants",
            list(names(policy.deny_grants).map(str::to_owned)),
        ),
        (
            "uid_range",
            format!("{}-{}", policy.uid_range.first, policy.uid_range.last),
        ),
        (
            "cgroup_parent",
            optional(
                policy.cgroup_parent.as_ref().map(|p| escape(p.as_bytes())),
                "found",
            ),
        ),
        (
            "interpreters",
            list(policy.interpreters.iter().map(|prefix| path(prefix))),
        ),
        ("unpack.archive", policy.unpack.archive_bytes.to_string()),
        ("unpack.unpacked", policy.unpack.unpacked_bytes.to_string()),
        ("unpack.entries", policy.unpack.entries.to_string()),
        (
            "runtime_directory",
            optional(policy.runtime_directory.as_deref().map(path), "found"),
        ),
        (
            "egress.allow",
            optional(
                egress.map(|rules| list(rules.iter().map(ToString::to_string))),
                "unbounded",
            ),
        ),
        (
            "egress.private_ranges",
            list(policy.egress.private_ranges.iter().map(ToString::to_string)),
        ),
        ("egress.refuse_ech", policy.egress.refuse_ech.to_string()),
        ("secrets.provider", optional(provider, "none")),
        (
            "secrets.inventory",
            optional(secrets.inventory.as_deref().map(path), "none"),
        ),
        (
            "refs",
            list(policy.refs.keys().map(|slug| escape(slug.as_bytes()))),
        ),
        (
            "images",
            list(
                policy
                    .images
                    .iter()
                    .map(|image| escape(image.id.as_bytes())),
            ),
        ),
    ];
    values.extend(cache_and_github(policy));
    values.extend(oci(&policy.oci));
    values.push(("require_pin", policy.require_pin.to_string()));
    values.extend(preparation(&policy.preparation));
    values.push(("syscalls", policy.syscalls.name().to_owned()));
    values.push(("audit", policy.audit.name().to_owned()));
    values.extend(flags(&policy.flags));
    values
}

fn preparation(policy: &PreparationPolicy) -> [(&'static str, String); 8] {
    const OF_IMAGE: &str = "the image's own";
    let index = |index: &Option<IndexPolicy>| {
        let url = index.as_ref().map(|index| index.url.text.as_bytes());
        optional(url.map(escape), "none")
    };
    let trusted_keys = policy
        .apt
        .as_ref()
        .and_then(|apt| apt.trusted_keys.as_deref());
    let reach = [&policy.npm, &policy.pip].into_iter().flatten();
    let reach = reach.flat_map(|index| &index.reach);
    let mut reach: Vec<String> = policy
        .apt
        .iter()
        .flat_map(|apt| &apt.reach)
        .chain(reach)
        .map(ToString::to_string)
        .collect();
    reach.sort();
    reach.dedup();
    let limits = policy.limits;
    [
        (
            "preparation.apt",
            match &policy.apt {
                None => "none".to_owned(),
                Some(apt) if apt.sources.is_empty() => "the image's own lists".to_owned(),
                Some(apt) => list(
                    apt.sources
                        .iter()
                        .map(|source| escape(source.line.as_bytes())),
                ),
            },
        ),
        (
            "preparation.apt.trusted_keys",
            optional(trusted_keys.map(path), OF_IMAGE),
        ),
        ("preparation.npm", index(&policy.npm)),
        ("preparation.pip", index(&policy.pip)),
        ("preparation.allow", list(reach.into_iter())),
        (
            "preparation.allow_private",
            list(policy.allow_private.iter().map(ToString::to_string)),
        ),
        (
            "preparation.ca_file",
            optional(policy.ca_file.as_deref().map(path), OF_IMAGE),
        ),
        (
            "preparation.limits",
            format!(
                "memory {}, timeout {}ms, disk {}",
                limits.memory_bytes,
                limits.wall_time.as_millis(),
                limits.disk_bytes
            ),
        ),
    ]
}

fn cache_and_github(policy: &HostPolicy) -> [(&'static str, String); 8] {
    [
        (
            "cache.directory",
            optional(policy.cache.directory.as_deref().map(path), "found"),
        ),
        ("cache.size", policy.cache.size_bytes.to_string()),
        (
            "cache.bundles.directory",
            optional(policy.cache.bundles.directory.as_deref().map(path), "found"),
        ),
        (
            "cache.bundles.size",
            optional(
                policy.cache.bundles.size_bytes.map(|size| size.to_string()),
                "a part of its file system",
            ),
        ),
        ("cache.bundles.off", policy.cache.bundles.off.to_string()),
        ("cache.bundles.copy", policy.cache.bundles.copy.to_string()),
        ("github.base_url", escape(policy.github.base_url.as_bytes())),
        (
            "github.token",
            optional(
                policy
                    .github
                    .token
                    .as_ref()
                    .map(|from| escape(from.as_bytes())),
                "none",
            ),
        ),
    ]
}

fn flags(flags: &WrittenFlags) -> [(&'static str, String); 3] {
    let paths = |paths: &[HostPath]| list(paths.iter().map(|path| escape(path.0.as_bytes())));
    [
        ("flags.ro", paths(&flags.ro)),
        ("flags.rw", paths(&flags.rw)),
        (
            "flags.allow_net",
            list(flags.allow_net.iter().map(ToString::to_string)),
        ),
    ]
}

fn oci(oci: &OciPolicy) -> [(&'static str, String); 10] {
    let size = oci.size_bytes.map(|size| size.to_string());
    let insecure = oci.insecure.iter().map(|name| escape(name.as_bytes()));
    let registry = oci.default_registry.as_deref().map(str::as_bytes);
    let registry = registry.map(escape);
    [
        (
            "oci.directory",
            optional(oci.directory.as_deref().map(path), "found"),
        ),
        ("oci.size", optional(size, "a part of its file system")),
        ("oci.layer", oci.archive_bytes.to_string()),
        ("oci.unpacked", oci.unpacked_bytes.to_string()),
        ("oci.entries", oci.entries.to_string()),
        (
            "oci.ca_file",
            optional(oci.ca_file.as_deref().map(path), "none"),
        ),
        ("oci.insecure", list(insecure)),
        ("oci.default_registry", optional(registry, "none")),
        ("oci.copy", oci.copy.to_string()),
        ("oci.root_read_only", oci.root_read_only.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_config::{AtLine, Size, WrittenMaxima};
    use crate::host_policy::grants_named;

    #[test]
    fn a_value_names_the_files_that_decided_it() {
        let stating = |origin: &str, memory_bytes, grant: &str| Statement {
            origin: origin.to_owned(),
            maxima: WrittenMaxima {
                memory: Some(AtLine {
                    value: Size(memory_bytes),
                    line: 1,
                }),
                ..WrittenMaxima::default()
            },
            grants: grants_named(grant).expect("a name"),
            ..Statement::default()
        };
        let values = policy_values(&[
            stating("host", 2 << 30, "env"),
            stating("user", 8 << 30, "env"),
            stating("flag", 1 << 30, "egress"),
        ]);
        let found = |key: &str| {
            let value = values.iter().find(|value| value.key == key).expect(key);
            (value.value.as_str(), value.decided_by.join(" "))
        };
        assert_eq!(found("maxima.memory"), ("1073741824", "host flag".into()));
        assert_eq!(found("grants"), ("egress, env", "host flag".into()));
        assert_eq!(found("maxima.processes"), ("4096", DEFAULT.into()));
    }

    #[test]
    fn each_key_of_a_configuration_is_listed() {
        let values = values(&HostPolicy::default());
        let schema = schemars::schema_for!(Statement);
        let properties = |schema: &serde_json::Value| -> Vec<String> {
            let keys = schema["properties"]
                .as_object()
                .map(|map| map.keys().cloned());
            keys.into_iter().flatten().collect()
        };
        for key in properties(schema.as_value()) {
            let reference = &schema.as_value()["properties"][&key]["$ref"];
            let name = reference.as_str().unwrap_or_default().rsplit('/').next();
            let parts = properties(&schema.as_value()["$defs"][name.unwrap_or_default()]);
            let paths: Vec<String> = match parts.as_slice() {
                [] => vec![key],
                parts => parts.iter().map(|part| format!("{key}.{part}")).collect(),
            };
            for path in paths {
                let is_listed = values.iter().any(|(listed, _)| listed.starts_with(&path));
                assert!(is_listed, "{path}");
            }
        }
    }

    #[test]
    fn the_keys_are_the_same_for_every_policy() {
        let keys = |policy: &HostPolicy| -> Vec<&str> {
            values(policy).into_iter().map(|(key, _)| key).collect()
        };
        let mut other = HostPolicy::default();
        other.egress.allow = Some(Vec::new());
        other.github.token = Some("env:TOKEN".to_owned());
        assert_eq!(keys(&other), keys(&HostPolicy::default()));
    }
}
