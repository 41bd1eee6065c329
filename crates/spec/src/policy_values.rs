//! Each value of the host policy, and the files that decided it.
//!
//! The files are merged one after the other: a file decided a value if merging it changed the value.
//! So only [`merge`] has the rules.

use std::collections::BTreeSet;
use std::path::Path;

use crate::host_config::Statement;
use crate::host_policy::{HostPolicy, merge, names};
use crate::oci_policy::OciPolicy;
use crate::path::{escape, escape_path};
use crate::plan_report::{DEFAULT, PolicyValue};
use crate::preparation::{IndexPolicy, PreparationPolicy};
use crate::sources_policy::SecretsProvider;

const PART_OF_FILE_SYSTEM: &str = "a part of its file system";

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

/// Rows of a key and a short value.
#[derive(Default)]
struct Values(Vec<(&'static str, String)>);

impl Values {
    fn text(&mut self, key: &'static str, value: impl ToString) {
        self.0.push((key, value.to_string()));
    }

    /// `absent` says what an absent value means.
    fn optional(&mut self, key: &'static str, value: Option<impl ToString>, absent: &str) {
        match value {
            Some(value) => self.text(key, value),
            None => self.text(key, absent),
        }
    }

    fn list(&mut self, key: &'static str, items: impl IntoIterator<Item = impl ToString>) {
        self.text(key, list(items));
    }
}

fn list(items: impl IntoIterator<Item = impl ToString>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.is_empty() {
        true => "none".to_owned(),
        false => items.join(", "),
    }
}

fn text(text: impl AsRef<str>) -> String {
    escape(text.as_ref().as_bytes())
}

fn path(path: impl AsRef<Path>) -> String {
    escape_path(path.as_ref())
}

/// Every key in the order of the documentation, with a short value. The keys are the same for every
/// policy.
fn values(policy: &HostPolicy) -> Vec<(&'static str, String)> {
    let mut values = Values::default();
    let (maxima, unpack, uids) = (&policy.maxima, &policy.unpack, &policy.uid_range);
    values.text("maxima.memory", maxima.memory_bytes.value);
    let timeout_ms = maxima.wall_time.value.as_millis();
    values.text("maxima.timeout", format!("{timeout_ms}ms"));
    values.text("maxima.processes", maxima.processes.value);
    values.list("grants", names(policy.grants));
    values.list("deny_grants", names(policy.deny_grants));
    values.text("uid_range", format!("{}-{}", uids.first, uids.last));
    let parent = policy.cgroup_parent.as_ref().map(text);
    values.optional("cgroup_parent", parent, "found");
    values.list("interpreters", policy.interpreters.iter().map(path));
    values.text("unpack.archive", unpack.archive_bytes);
    values.text("unpack.unpacked", unpack.unpacked_bytes);
    values.text("unpack.entries", unpack.entries);
    let directory = policy.runtime_directory.as_ref().map(path);
    values.optional("runtime_directory", directory, "found");
    let egress = &policy.egress;
    let allow = egress.allow.as_ref().map(list);
    values.optional("egress.allow", allow, "unbounded");
    values.list("egress.private_ranges", &egress.private_ranges);
    values.text("egress.refuse_ech", egress.refuse_ech);
    let secrets = &policy.secrets;
    values.optional(
        "secrets.provider",
        secrets.provider.as_ref().map(provider),
        "none",
    );
    values.optional(
        "secrets.inventory",
        secrets.inventory.as_ref().map(path),
        "none",
    );
    values.list("refs", policy.refs.keys().map(text));
    values.list("images", policy.images.iter().map(|image| text(&image.id)));
    cache_and_github(&mut values, policy);
    oci(&mut values, &policy.oci);
    values.text("require_pin", policy.require_pin);
    preparation(&mut values, &policy.preparation);
    values.text("syscalls", policy.syscalls.name());
    values.text("audit", policy.audit.name());
    let flags = &policy.flags;
    values.list("flags.ro", flags.ro.iter().map(|path| text(&path.0)));
    values.list("flags.rw", flags.rw.iter().map(|path| text(&path.0)));
    values.list("flags.allow_net", &flags.allow_net);
    values.0
}

fn provider(provider: &SecretsProvider) -> String {
    match provider {
        SecretsProvider::Directory(directory) => format!("directory {}", path(directory)),
        SecretsProvider::Environment { prefix } => format!("environment {}", text(prefix)),
        // The arguments may be confidential.
        SecretsProvider::Command(words) => {
            let program = words.first().map(text).unwrap_or_default();
            format!("command {program}")
        }
    }
}

fn preparation(values: &mut Values, policy: &PreparationPolicy) {
    const OF_IMAGE: &str = "the image's own";
    let url = |index: &IndexPolicy| text(&index.url.text);
    let apt = match &policy.apt {
        None => "none".to_owned(),
        Some(apt) if apt.sources.is_empty() => "the image's own lists".to_owned(),
        Some(apt) => list(apt.sources.iter().map(|source| text(&source.line))),
    };
    values.text("preparation.apt", apt);
    let apt = policy.apt.as_ref();
    let trusted_keys = apt.and_then(|apt| apt.trusted_keys.as_ref());
    values.optional(
        "preparation.apt.trusted_keys",
        trusted_keys.map(path),
        OF_IMAGE,
    );
    values.optional("preparation.npm", policy.npm.as_ref().map(url), "none");
    values.optional("preparation.pip", policy.pip.as_ref().map(url), "none");
    let indexes = [&policy.npm, &policy.pip].into_iter().flatten();
    let reach = indexes.flat_map(|index| &index.reach);
    let reach = reach.chain(apt.iter().flat_map(|apt| &apt.reach));
    let reach: BTreeSet<String> = reach.map(ToString::to_string).collect();
    values.list("preparation.allow", reach);
    values.list("preparation.allow_private", &policy.allow_private);
    let ca_file = policy.ca_file.as_ref().map(path);
    values.optional("preparation.ca_file", ca_file, OF_IMAGE);
    let limits = policy.limits;
    let limits = format!(
        "memory {}, timeout {}ms, disk {}",
        limits.memory_bytes,
        limits.wall_time.as_millis(),
        limits.disk_bytes
    );
    values.text("preparation.limits", limits);
}

fn cache_and_github(values: &mut Values, policy: &HostPolicy) {
    let (cache, github) = (&policy.cache, &policy.github);
    values.optional(
        "cache.directory",
        cache.directory.as_ref().map(path),
        "found",
    );
    values.text("cache.size", cache.size_bytes);
    let bundles = &cache.bundles;
    let directory = bundles.directory.as_ref().map(path);
    values.optional("cache.bundles.directory", directory, "found");
    values.optional(
        "cache.bundles.size",
        bundles.size_bytes,
        PART_OF_FILE_SYSTEM,
    );
    values.text("cache.bundles.off", bundles.off);
    values.text("cache.bundles.copy", bundles.copy);
    values.text("github.base_url", text(&github.base_url));
    values.optional("github.token", github.token.as_ref().map(text), "none");
}

fn oci(values: &mut Values, oci: &OciPolicy) {
    values.optional("oci.directory", oci.directory.as_ref().map(path), "found");
    values.optional("oci.size", oci.size_bytes, PART_OF_FILE_SYSTEM);
    values.text("oci.layer", oci.archive_bytes);
    values.text("oci.unpacked", oci.unpacked_bytes);
    values.text("oci.entries", oci.entries);
    values.optional("oci.ca_file", oci.ca_file.as_ref().map(path), "none");
    values.list("oci.insecure", oci.insecure.iter().map(text));
    let registry = oci.default_registry.as_ref().map(text);
    values.optional("oci.default_registry", registry, "none");
    values.text("oci.copy", oci.copy);
    values.text("oci.root_read_only", oci.root_read_only);
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
