//! Inheritance of a manifest from the code-workspaces that it refers to (AIP-26).
//!
//! `runner` is merged by field, `secrets` by variable; `network.egress` is a union. A later
//! workspace wins over an earlier one, and the manifest over all. Other keys are not inherited.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::{Map, Value as Json, json};

use crate::document::escape_pointer_step;
use crate::manifest::fields::{Inheritance, Resolution};
use crate::manifest::run::contradiction;
use crate::manifest::{ManifestError, Problem, top_level};
use crate::parse_permit::ParsePermit;
use crate::path::escape;
use crate::report::WarningReport;
use crate::run_form::Run;
use crate::runner_block::{self, Language};

/// The paths of the keys of `runner` that are inherited.
fn runner_paths() -> impl Iterator<Item = Vec<String>> {
    let fields = runner_block::FIELDS.into_iter();
    let inherited = fields.filter(|field| field.resolution() != Resolution::Dropped);
    inherited.flat_map(|field| field.paths()).map(|path| {
        let steps = ["runner"].into_iter().chain(path);
        steps.map(str::to_owned).collect()
    })
}

/// The keys of a manifest that are inherited as `inheritance`.
fn top_level_keys(inheritance: Inheritance) -> impl Iterator<Item = &'static str> {
    let fields = top_level::FIELDS.into_iter();
    let inherited = fields.filter(move |field| field.inheritance() == inheritance);
    inherited.map(|field| field.key)
}

/// A manifest in its resolved form.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    pub file: String,
    /// From [`crate::manifest::resolved()`], or [`Inherited::manifest`] of a workspace.
    pub resolved: Json,
    /// [`Inherited::provenance`] of a workspace. `file` states the values that it does not list.
    pub provenance: BTreeMap<String, String>,
}

/// A manifest with its inherited values.
#[derive(Debug, Clone, PartialEq)]
pub struct Inherited {
    /// In its resolved form, keys sorted.
    pub manifest: Json,
    /// The file that states each value, by the JSON Pointer of the value: a key of the root, a
    /// field of `runner`, a variable of `secrets` or a host of `network.egress`.
    pub provenance: BTreeMap<String, String>,
    /// A workspace that is referenced twice repeats its warnings.
    pub warnings: Vec<WarningReport>,
}

/// Merges `own` over `workspaces`, which are in the order of the references. The level of a
/// workspace includes the values that it inherits itself.
///
/// # Errors
/// [`Problem::NeedsContradictRun`]: `run` starts a program in another language than the merged
/// `needs.language`.
pub fn inherit(own: Level, workspaces: &[Level]) -> Result<Inherited, ManifestError> {
    let mut merged = MergedBlocks::default();
    let mut warnings = Vec::new();
    for workspace in workspaces {
        warnings.extend(not_inherited(workspace));
        warnings.extend(merged.add(workspace));
    }
    merged.remove_secrets_of_sandbox(&own);
    // The manifest may replace every inherited value.
    merged.add(&own);
    merged.refuse_contradiction(&own)?;
    let mut provenance = BTreeMap::new();
    let mut manifest = match own.resolved {
        Json::Object(entries) => entries,
        _ => Map::new(),
    };
    for key in top_level_keys(Inheritance::Merged) {
        manifest.shift_remove(key);
    }
    for key in manifest.keys() {
        provenance.insert(pointer(std::slice::from_ref(key)), own.file.clone());
    }
    let mut manifest = Json::Object(manifest);
    for (path, entry) in merged.entries {
        provenance.insert(pointer(&path), entry.file);
        let value = path.iter().fold(&mut manifest, |map, step| &mut map[step]);
        *value = entry.value;
    }
    for (index, entry) in merged.hosts.iter().enumerate() {
        provenance.insert(format!("{HOSTS}/{index}"), entry.file.clone());
    }
    if !merged.hosts.is_empty() {
        let hosts = merged.hosts.into_iter().map(|entry| entry.value);
        manifest["network"] = json!({ "egress": hosts.collect::<Vec<_>>() });
    }
    manifest.sort_all_objects();
    Ok(Inherited {
        manifest,
        provenance,
        warnings,
    })
}

const HOSTS: &str = "/network/egress";

/// A value and the file that states it.
#[derive(Debug)]
struct Entry {
    value: Json,
    file: String,
}

#[derive(Debug, Default)]
struct MergedBlocks {
    /// The keys of `runner` and the variables of `secrets`, by their paths in the manifest.
    entries: BTreeMap<Vec<String>, Entry>,
    hosts: Vec<Entry>,
}

impl MergedBlocks {
    /// Adds the values of `level`, which win over earlier ones. Returns a warning for each value
    /// that they replace by another one.
    fn add(&mut self, level: &Level) -> Vec<WarningReport> {
        let entry = |pointer: &str, value: &Json| Entry {
            value: value.clone(),
            file: level.provenance.get(pointer).unwrap_or(&level.file).clone(),
        };
        let resolved = &level.resolved;
        let secrets = resolved["secrets"].as_object().into_iter().flatten();
        let secrets = secrets.map(|(variable, _)| vec!["secrets".to_owned(), variable.clone()]);
        let mut warnings = Vec::new();
        for path in runner_paths().chain(secrets) {
            let Some(value) = path.iter().try_fold(resolved, |map, step| map.get(step)) else {
                continue;
            };
            let later = entry(&pointer(&path), value);
            if let Some(earlier) = self.entries.get(&path)
                && earlier.value != later.value
            {
                let name = path.join(".");
                let files = [&earlier.file, &later.file].map(|file| escape(file.as_bytes()));
                let message = format!(
                    "`{name}` has different values in {}: the later reference wins",
                    files.join(" and ")
                );
                warnings.push(WarningReport::new("workspaces_disagree", message));
            }
            self.entries.insert(path, later);
        }
        let hosts = level.resolved.pointer(HOSTS).and_then(Json::as_array);
        for (index, host) in hosts.into_iter().flatten().enumerate() {
            if !self.hosts.iter().any(|known| known.value == *host) {
                self.hosts.push(entry(&format!("{HOSTS}/{index}"), host));
            }
        }
        warnings
    }

    /// Removes the secrets of the variables that the sandbox of `own` sets: a variable has one
    /// source.
    fn remove_secrets_of_sandbox(&mut self, own: &Level) {
        let env = &own.resolved["sandbox"]["env"];
        let lists = [&env["passthrough"], &env["auth"]["state"]["env"]];
        let variables = lists.into_iter().filter_map(Json::as_array).flatten();
        for variable in variables.filter_map(Json::as_str) {
            let path = ["secrets", variable].map(str::to_owned);
            self.entries.remove(&path[..]);
        }
    }

    fn refuse_contradiction(&self, own: &Level) -> Result<(), ManifestError> {
        let path = ["runner", "needs", "language"].map(str::to_owned);
        let Some(entry) = self.entries.get(&path[..]) else {
            return Ok(());
        };
        let language = Language::deserialize(&entry.value).ok();
        // Written by this process.
        let permit = ParsePermit::for_trusted_text();
        let run = Run::from_json(&permit, &own.resolved["run"].to_string()).ok();
        let Some((language, program)) = run.and_then(|run| contradiction(&run, language)) else {
            return Ok(());
        };
        Err(ManifestError {
            file: own.file.clone(),
            place: None,
            pointer: Some("/run".to_owned()),
            problem: Box::new(Problem::NeedsContradictRun {
                language,
                decided_by: Some(escape(entry.file.as_bytes())),
                program,
            }),
        })
    }
}

fn not_inherited(workspace: &Level) -> impl Iterator<Item = WarningReport> {
    let keys = top_level_keys(Inheritance::Warned);
    let present = keys.filter(|key| workspace.resolved.get(key).is_some());
    present.map(|key| {
        let file = escape(workspace.file.as_bytes());
        let message = format!(
            "`{key}` of {file} is not inherited: only runner, secrets and network.egress are"
        );
        WarningReport::new("not_inherited", message)
    })
}

/// The JSON Pointer of `path`, not shortened: it is data, not a message.
fn pointer(path: &[String]) -> String {
    let escaped = path.iter().map(|step| escape_pointer_step(step));
    escaped.map(|step| format!("/{step}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};
    use crate::manifest::{BlockDocuments, parse_with, resolved};
    use crate::parse_permit::PERMIT;

    fn level(file: &str, text: &str) -> Level {
        let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document");
        let blocks = BlockDocuments::default();
        let parsed = parse_with(&root, file, &blocks);
        assert_eq!(parsed.errors, [], "{text}");
        let manifest = parsed.manifest.expect("a manifest");
        Level {
            file: file.to_owned(),
            resolved: resolved(&root, &manifest, &blocks),
            provenance: BTreeMap::new(),
        }
    }

    /// The level of a workspace that inherits from `deep`.
    fn middle(text: &str, deep: Level) -> Level {
        let inherited = inherit(level("middle", text), &[deep]).expect("merged");
        Level {
            file: "middle".to_owned(),
            resolved: inherited.manifest,
            provenance: inherited.provenance,
        }
    }

    fn merged(own: &str, workspaces: &[&str]) -> Inherited {
        let levels: Vec<Level> = workspaces
            .iter()
            .zip(["a", "b", "c"])
            .map(|(text, file)| level(file, &format!("kind: code-workspace\n{text}")))
            .collect();
        inherit(level("own", own), &levels).expect("merged")
    }

    /// `pointer=value < file` of runner, secrets and network.
    fn merged_values(inherited: &Inherited) -> Vec<String> {
        let block = |pointer: &&String| {
            ["/runner/", "/secrets/", "/network/"]
                .iter()
                .any(|start| pointer.starts_with(start))
        };
        let pointers = inherited.provenance.keys().filter(block);
        pointers
            .map(|pointer| {
                let value = inherited.manifest.pointer(pointer).expect("a value");
                format!("{pointer}={value} < {}", inherited.provenance[pointer])
            })
            .collect()
    }

    #[test]
    fn each_key_of_the_runner_is_inherited_unless_the_manifest_states_it() {
        let all = "runner: {engine: sandbox, image: i, needs: {language: node, native: [x], \
                   npm: [y], pip: [z]}, limits: {memory_mb: 1, timeout_ms: 2, cpu_ms: 3}}\n";
        let rows = [
            (
                "engine",
                "engine: subprocess",
                r#"/runner/engine="subprocess""#,
            ),
            ("image", "image: j", r#"/runner/image="j""#),
            (
                "needs/language",
                "needs: {language: python}",
                r#"/runner/needs/language="python""#,
            ),
            (
                "needs/native",
                "needs: {native: []}",
                "/runner/needs/native=[]",
            ),
            (
                "needs/npm",
                "needs: {npm: [q]}",
                r#"/runner/needs/npm=["q"]"#,
            ),
            (
                "needs/pip",
                "needs: {pip: [q]}",
                r#"/runner/needs/pip=["q"]"#,
            ),
            (
                "limits/memory_mb",
                "limits: {memory_mb: 9}",
                "/runner/limits/memory_mb=9",
            ),
            (
                "limits/timeout_ms",
                "limits: {timeout_ms: 9}",
                "/runner/limits/timeout_ms=9",
            ),
            (
                "limits/cpu_ms",
                "limits: {cpu_ms: 9}",
                "/runner/limits/cpu_ms=9",
            ),
        ];
        assert_eq!(rows.len(), runner_paths().count(), "each key has a row");
        for (field, own, expected) in rows {
            let text = format!("run: {{exec: [x]}}\nrunner: {{{own}}}\n");
            let inherited = merged(&text, &[all]);
            let values = merged_values(&inherited);
            assert_eq!(values.len(), runner_paths().count(), "{field}");
            for line in values {
                let is_own = line.starts_with(&format!("/runner/{field}="));
                let from = if is_own { " < own" } else { " < a" };
                assert!(line.ends_with(from), "{field}: {line}");
                assert!(!is_own || line.starts_with(expected), "{line}");
            }
            assert_eq!(inherited.provenance["/run"], "own");
        }
        assert_eq!(merged_values(&merged("run: x\n", &[])), [""; 0]);
    }

    /// `inherit` has code for each merged key.
    #[test]
    fn the_merged_keys_are_runner_network_and_secrets() {
        let merged: Vec<_> = top_level_keys(Inheritance::Merged).collect();
        assert_eq!(merged, ["runner", "network", "secrets"]);
    }

    #[test]
    fn secrets_are_merged_by_variable_and_hosts_are_a_union() {
        let inherited = merged(
            "run: x\nsecrets: {B: {vault: mine}, C: {value: c}}\n\
             network: {egress: [b.example, own.example]}\n",
            &[
                "secrets: {A: {vault: a}, B: {vault: theirs}}\n\
                 network: {egress: [A.example, b.example]}\n",
                "secrets: {A: {oauth: later}}\nnetwork: {egress: [a.example, c.example:443]}\n",
            ],
        );
        assert_eq!(
            merged_values(&inherited),
            [
                r#"/network/egress/0="a.example" < a"#,
                r#"/network/egress/1="b.example" < a"#,
                r#"/network/egress/2="c.example:443" < b"#,
                r#"/network/egress/3="own.example" < own"#,
                r#"/secrets/A={"oauth":"later"} < b"#,
                r#"/secrets/B={"vault":"mine"} < own"#,
                r#"/secrets/C={"value":"c"} < own"#,
            ]
        );
        let codes: Vec<&str> = inherited
            .warnings
            .iter()
            .map(|one| one.code.as_str())
            .collect();
        assert_eq!(codes, ["workspaces_disagree"]);
    }

    #[test]
    fn the_later_workspace_wins_and_other_keys_are_not_inherited() {
        let inherited = merged(
            "run: x\n",
            &[
                "run: a.sh\nrunner: {engine: sandbox, limits: {memory_mb: 1}}\n\
                 sandbox: {provider: local, config: {}, network: {egress: [s.example]}}\n\
                 timeout_ms: 5\nmetadata: {x: 1}\n",
                "runner: {engine: subprocess}\n",
            ],
        );
        assert_eq!(
            merged_values(&inherited),
            [
                r#"/runner/engine="subprocess" < b"#,
                "/runner/limits/memory_mb=1 < a"
            ]
        );
        assert_eq!(
            inherited.manifest.to_string(),
            r#"{"kind":"tool","run":"x","runner":{"engine":"subprocess","limits":{"memory_mb":1}}}"#
        );
        let codes: Vec<&str> = inherited
            .warnings
            .iter()
            .map(|one| one.code.as_str())
            .collect();
        assert_eq!(
            codes,
            ["not_inherited", "not_inherited", "workspaces_disagree"]
        );
        let message = &inherited.warnings[2].message;
        assert!(
            message.contains("`runner.engine` has different values in a and b"),
            "{message}"
        );
    }

    #[test]
    fn an_inherited_value_of_a_workspace_has_the_file_that_states_it() {
        let deep = level(
            "deep",
            "runner: {engine: sandbox}\nnetwork: {egress: [d.example]}\n",
        );
        let levels = [
            level(
                "other",
                "runner: {engine: subprocess}\nnetwork: {egress: [o.example]}\n",
            ),
            middle("runner: {image: i}\nnetwork: {egress: [m.example]}\n", deep),
        ];
        let inherited = inherit(level("own", "run: x\n"), &levels).expect("merged");
        assert_eq!(
            merged_values(&inherited),
            [
                r#"/network/egress/0="o.example" < other"#,
                r#"/network/egress/1="d.example" < deep"#,
                r#"/network/egress/2="m.example" < middle"#,
                r#"/runner/engine="sandbox" < deep"#,
                r#"/runner/image="i" < middle"#,
            ]
        );
        let message = &inherited.warnings[0].message;
        assert!(message.contains("in other and deep"), "{message}");
        let deep = level("deep", "runner: {needs: {language: node}}\n");
        let levels = [middle("runner: {image: i}\n", deep)];
        let error = inherit(level("own", "run: tool.py\n"), &levels).expect_err("contradiction");
        let message = error.to_string();
        assert!(message.contains("node, as deep says"), "{message}");
    }

    #[test]
    fn a_variable_of_the_own_sandbox_is_not_inherited() {
        let inherited = merged(
            "run: x\nsandbox: {provider: local, config: {}, env: {passthrough: [P], \
             auth: {state: {env: [S]}}}}\n",
            &["secrets: {P: {vault: p}, S: {vault: other}, T: {vault: t}}\n"],
        );
        assert_eq!(
            merged_values(&inherited),
            [r#"/secrets/T={"vault":"t"} < a"#]
        );
    }

    #[test]
    fn an_inherited_language_that_contradicts_run_is_refused() {
        let node = level("ws/manifest.yaml", "runner: {needs: {language: node}}\n");
        for run in ["tool.py", "{file: tool.py}"] {
            let own = level("tool/manifest.yaml", &format!("run: {run}\n"));
            let error = inherit(own, std::slice::from_ref(&node)).expect_err("contradiction");
            assert_eq!(error.code(), "needs_contradict_run");
            let message = error.to_string();
            assert_eq!(
                message,
                "tool/manifest.yaml at /run: `needs.language` is node, as ws/manifest.yaml says, \
                 but `run` starts `tool.py`"
            );
            assert!(error.hint().is_some());
        }
        for own in [
            "run: tool.js\n",
            "run: [python, tool.py]\n",
            "runner: {needs: {language: python}}\nrun: tool.py\n",
        ] {
            assert!(inherit(level("own", own), std::slice::from_ref(&node)).is_ok());
        }
    }
}
