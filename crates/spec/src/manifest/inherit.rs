//! Inheritance of a manifest from the code-workspaces that it refers to (AIP-26).
//!
//! `runner` is merged by field, `secrets` by variable; `network.egress` is a union. A later
//! workspace wins over an earlier one, and the manifest over all. Other keys are not inherited.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::manifest::run::contradiction;
use crate::manifest::{ManifestError, Problem};
use crate::path::escape;
use crate::report::WarningReport;
use crate::run_form::Run;
use crate::runner_block::{Language, limits_with_keys};

/// Keys of the runner that are inherited, besides those of its limits.
const FIELDS: [&[&str]; 6] = [
    &["engine"],
    &["image"],
    &["needs", "language"],
    &["needs", "native"],
    &["needs", "npm"],
    &["needs", "pip"],
];

/// The keys of the runner that are inherited.
fn fields() -> impl Iterator<Item = Vec<&'static str>> {
    let limits = limits_with_keys().map(|(_, key)| vec!["limits", key.name]);
    FIELDS.into_iter().map(<[_]>::to_vec).chain(limits)
}

/// Keys of a workspace that affect a run but are not inherited.
const NOT_INHERITED: [&str; 4] = ["sandbox", "timeout_ms", "approval", "workspaceSources"];

/// A manifest in its resolved form.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    pub file: String,
    /// From [`crate::manifest::resolved`].
    pub resolved: Json,
}

/// A manifest with its inherited values.
#[derive(Debug, Clone, PartialEq)]
pub struct Inherited {
    /// In its resolved form, keys sorted.
    pub manifest: Json,
    /// JSON Pointer of each value to the file that decided it: per key of the root, per field of
    /// `runner`, per variable of `secrets` and per host of `network.egress`.
    pub provenance: BTreeMap<String, String>,
    pub warnings: Vec<WarningReport>,
}

/// Merges `own` over `workspaces`, which are in the order of the references. Each level includes
/// what the workspace itself inherits.
///
/// # Errors
/// [`Problem::NeedsContradictRun`]: `run` starts a program in another language than the merged
/// `needs.language`.
pub fn inherit(own: Level, workspaces: &[Level]) -> Result<Inherited, ManifestError> {
    let mut merged = Merged::default();
    for workspace in workspaces {
        merged.warn_about_the_rest(workspace);
        merged.add(workspace, Whose::Workspace);
    }
    merged.drop_secrets_that_the_sandbox_names(&own);
    merged.add(&own, Whose::Own);
    merged.refuse_contradiction(&own)?;
    let Merged {
        runner,
        secrets,
        egress,
        mut warnings,
    } = merged;
    let mut provenance = BTreeMap::new();
    let mut manifest = match own.resolved {
        Json::Object(entries) => entries,
        _ => Map::new(),
    };
    for replaced in ["runner", "secrets", "network"] {
        manifest.shift_remove(replaced);
    }
    for key in manifest.keys() {
        provenance.insert(pointer(&[key]), own.file.clone());
    }
    let mut block = Map::new();
    for (field, decided) in runner {
        provenance.insert(pointer(&[&["runner"][..], &field].concat()), decided.file);
        insert(&mut block, &field, decided.value);
    }
    let variables: Map<String, Json> = secrets
        .into_iter()
        .map(|(variable, decided)| {
            provenance.insert(pointer(&["secrets", &variable]), decided.file);
            (variable, decided.value)
        })
        .collect();
    let hosts: Vec<Json> = egress
        .into_iter()
        .enumerate()
        .map(|(index, decided)| {
            provenance.insert(format!("/network/egress/{index}"), decided.file);
            decided.value
        })
        .collect();
    if !block.is_empty() {
        manifest.insert("runner".to_owned(), Json::Object(block));
    }
    if !variables.is_empty() {
        manifest.insert("secrets".to_owned(), Json::Object(variables));
    }
    if !hosts.is_empty() {
        manifest.insert("network".to_owned(), json!({ "egress": hosts }));
    }
    let mut manifest = Json::Object(manifest);
    manifest.sort_all_objects();
    warnings.dedup();
    Ok(Inherited {
        manifest,
        provenance,
        warnings,
    })
}

impl Inherited {
    /// Replaces `workspace` by the original file for values that it inherits. `provenance` is that
    /// of `workspace`.
    pub fn trace(&mut self, workspace: &Level, provenance: &BTreeMap<String, String>) {
        const HOSTS: &str = "/network/egress";
        let here = &self.manifest;
        for (pointer, decider) in &mut self.provenance {
            if *decider != workspace.file {
                continue;
            }
            // The index of a host differs between the lists.
            let there = if pointer.starts_with(HOSTS) {
                let host = here.pointer(pointer);
                let list = workspace.resolved.pointer(HOSTS).and_then(Json::as_array);
                let index = list.and_then(|list| list.iter().position(|one| Some(one) == host));
                index.map(|index| format!("{HOSTS}/{index}"))
            } else {
                Some(pointer.clone())
            };
            if let Some(deeper) = there.and_then(|there| provenance.get(&there)) {
                decider.clone_from(deeper);
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Decided {
    value: Json,
    file: String,
    whose: Whose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Own,
    Workspace,
}

#[derive(Debug, Default)]
struct Merged {
    runner: BTreeMap<Vec<&'static str>, Decided>,
    secrets: BTreeMap<String, Decided>,
    egress: Vec<Decided>,
    warnings: Vec<WarningReport>,
}

impl Merged {
    fn add(&mut self, level: &Level, whose: Whose) {
        let decided = |value: &Json| Decided {
            value: value.clone(),
            file: level.file.clone(),
            whose,
        };
        let resolved = &level.resolved;
        for field in fields() {
            let said = field
                .iter()
                .try_fold(&resolved["runner"], |block, step| block.get(step));
            if let Some(value) = said {
                let earlier = self.runner.insert(field.clone(), decided(value));
                self.warn_about_disagreement(
                    &format!("runner.{}", field.join(".")),
                    earlier,
                    level,
                    value,
                    whose,
                );
            }
        }
        for (variable, value) in resolved["secrets"].as_object().into_iter().flatten() {
            let earlier = self.secrets.insert(variable.clone(), decided(value));
            self.warn_about_disagreement(
                &format!("secrets.{variable}"),
                earlier,
                level,
                value,
                whose,
            );
        }
        for host in resolved["network"]["egress"]
            .as_array()
            .into_iter()
            .flatten()
        {
            if !self.egress.iter().any(|known| known.value == *host) {
                self.egress.push(decided(host));
            }
        }
    }

    fn warn_about_disagreement(
        &mut self,
        what: &str,
        earlier: Option<Decided>,
        level: &Level,
        value: &Json,
        whose: Whose,
    ) {
        let Some(earlier) = earlier else {
            return;
        };
        let both_inherited = earlier.whose == Whose::Workspace && whose == Whose::Workspace;
        if both_inherited && earlier.value != *value {
            let (later, first) = (shown(&level.file), shown(&earlier.file));
            let message = format!(
                "`{what}` is stated by {first} and otherwise by {later}: the later reference wins"
            );
            let code = "workspaces_disagree";
            self.warnings.push(WarningReport::new(code, message));
        }
    }

    fn warn_about_the_rest(&mut self, workspace: &Level) {
        for key in NOT_INHERITED {
            if workspace.resolved.get(key).is_some() {
                let file = shown(&workspace.file);
                let message = format!(
                    "`{key}` of {file} is not inherited: runner, secrets and network.egress are"
                );
                self.warnings
                    .push(WarningReport::new("not_inherited", message));
            }
        }
    }

    /// A variable has one source: that of the manifest's own sandbox wins.
    fn drop_secrets_that_the_sandbox_names(&mut self, own: &Level) {
        let env = &own.resolved["sandbox"]["env"];
        for list in [&env["passthrough"], &env["auth"]["state"]["env"]] {
            for variable in list
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Json::as_str)
            {
                self.secrets.remove(variable);
            }
        }
    }

    fn refuse_contradiction(&self, own: &Level) -> Result<(), ManifestError> {
        let run = match &own.resolved["run"] {
            Json::String(text) => Run::Text(text.clone()),
            other => match other.get("file").and_then(Json::as_str) {
                Some(path) => Run::File(path.to_owned()),
                None => return Ok(()),
            },
        };
        let Some(decided) = self.runner.get(&["needs", "language"][..]) else {
            return Ok(());
        };
        let language = match decided.value.as_str() {
            Some("node") => Some(Language::Node),
            Some("python") => Some(Language::Python),
            _ => None,
        };
        let Some((language, program)) = contradiction(&run, language) else {
            return Ok(());
        };
        let decided_by = Some(shown(&decided.file));
        Err(ManifestError {
            file: own.file.clone(),
            place: None,
            pointer: Some("/run".to_owned()),
            problem: Box::new(Problem::NeedsContradictRun {
                language,
                decided_by,
                program,
            }),
        })
    }
}

fn shown(file: &str) -> String {
    escape(file.as_bytes())
}

/// A JSON Pointer (RFC 6901), not shortened: it is data, not a message.
fn pointer(steps: &[&str]) -> String {
    steps
        .iter()
        .map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1")))
        .collect()
}

fn insert(block: &mut Map<String, Json>, field: &[&str], value: Json) {
    match field {
        [name] => {
            block.insert((*name).to_owned(), value);
        }
        [group, name] => {
            let group = block
                .entry((*group).to_owned())
                .or_insert_with(|| Json::Object(Map::new()));
            if let Some(group) = group.as_object_mut() {
                group.insert((*name).to_owned(), value);
            }
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};
    use crate::manifest::{BlockDocuments, parse_with, resolved};

    fn level(file: &str, text: &str) -> Level {
        let root = document::parse(text.as_bytes(), Format::Yaml).expect("a document");
        let blocks = BlockDocuments::default();
        let parsed = parse_with(&root, file, &blocks);
        assert_eq!(parsed.errors, [], "{text}");
        let manifest = parsed.manifest.expect("a manifest");
        Level {
            file: file.to_owned(),
            resolved: resolved(&root, &manifest, &blocks),
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
    fn told(inherited: &Inherited) -> Vec<String> {
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
    fn each_field_of_the_runner_comes_from_whoever_is_nearest() {
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
        for (field, own, expected) in rows {
            let text = format!("run: {{exec: [x]}}\nrunner: {{{own}}}\n");
            let inherited = merged(&text, &[all]);
            let told = told(&inherited);
            assert_eq!(told.len(), fields().count(), "{field}");
            for line in told {
                let is_own = line.starts_with(&format!("/runner/{field}="));
                let from = if is_own { " < own" } else { " < a" };
                assert!(line.ends_with(from), "{field}: {line}");
                assert!(!is_own || line.starts_with(expected), "{line}");
            }
            assert_eq!(inherited.provenance["/run"], "own");
        }
        assert_eq!(told(&merged("run: x\n", &[])), [""; 0]);
    }

    #[test]
    fn secrets_are_merged_and_hosts_united() {
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
            told(&inherited),
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
    fn of_several_workspaces_the_later_wins_and_the_rest_of_them_is_not_inherited() {
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
            told(&inherited),
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
            message.contains("`runner.engine` is stated by a"),
            "{message}"
        );
    }

    #[test]
    fn what_a_workspace_has_inherited_itself_is_traced_to_where_it_was_said() {
        let deep = level(
            "deep",
            "runner: {engine: sandbox}\nnetwork: {egress: [d.example]}\n",
        );
        let middle = level(
            "middle",
            "runner: {image: i}\nnetwork: {egress: [m.example]}\n",
        );
        let other = level("other", "network: {egress: [o.example]}\n");
        let middle = inherit(middle, &[deep]).expect("merged");
        let levels = [
            other,
            Level {
                file: "middle".to_owned(),
                resolved: middle.manifest,
            },
        ];
        let own = level("own", "run: x\n");
        let mut inherited = inherit(own, &levels).expect("merged");
        inherited.trace(&levels[1], &middle.provenance);
        assert_eq!(
            told(&inherited),
            [
                r#"/network/egress/0="o.example" < other"#,
                r#"/network/egress/1="d.example" < deep"#,
                r#"/network/egress/2="m.example" < middle"#,
                r#"/runner/engine="sandbox" < deep"#,
                r#"/runner/image="i" < middle"#,
            ]
        );
    }

    #[test]
    fn a_variable_that_the_sandbox_of_the_manifest_names_is_not_inherited() {
        let inherited = merged(
            "run: x\nsandbox: {provider: local, config: {}, env: {passthrough: [P], \
             auth: {state: {env: [S]}}}}\n",
            &["secrets: {P: {vault: p}, S: {vault: other}, T: {vault: t}}\n"],
        );
        assert_eq!(told(&inherited), [r#"/secrets/T={"vault":"t"} < a"#]);
    }

    #[test]
    fn a_language_that_the_program_is_not_written_in_is_refused() {
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
