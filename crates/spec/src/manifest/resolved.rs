//! The resolved manifest: `.runner/manifest.json` of a bundle.
//!
//! Every block is inline and in the current form, without `code` and without references to other
//! documents. Reading it gives the same requests.

use serde_json::{Map, Value as Json, json};

use crate::access_mode::AccessMode;
use crate::document::{Key, Node, Value};
use crate::io::FileEntry;
use crate::manifest::blocks::reference_of;
use crate::manifest::fields::{Field, Resolution};
use crate::manifest::{
    BlockDocuments, Manifest, SecretReference, SecretRequest, legacy, slug_of_variable, top_level,
};
use crate::provider::{ProviderEntry, REGISTRY};
use crate::run_form::{Run, RunForm};
use crate::runner_block;
use crate::sandbox_block::{self, SANDBOX_AUTH};

/// Writes the resolved form of `manifest`, which was read from `root` and `blocks` without errors.
///
/// Keys are sorted. Numbers that JSON libraries cannot hold, possible only in ignored keys, are
/// left out.
#[must_use]
pub fn resolved(root: &Node, manifest: &Manifest, blocks: &BlockDocuments) -> Json {
    let mut resolved = copied(root, &top_level::FIELDS);
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            resolved.insert(key.to_owned(), value);
        }
    };
    put("kind", Some(json!(manifest.kind.word())));
    put("run", manifest.run.as_ref().map(run));
    put("runner", runner(root, manifest, blocks));
    put("network", network(manifest));
    put("secrets", secrets(manifest));
    let sandbox = root
        .get("sandbox")
        .map(|node| sandbox(unwrapped(node, "sandbox", blocks), manifest));
    put("sandbox", sandbox);
    put("inputsFiles", files(&manifest.io.input_files));
    put("outputsFiles", files(&manifest.io.output_files));
    let mut resolved = Json::Object(resolved);
    resolved.sort_all_objects();
    resolved
}

/// The entries of a map with [`Resolution::Copied`], without numbers that JSON libraries cannot hold.
fn copied<T>(node: &Node, fields: &[Field<T>]) -> Map<String, Json> {
    let Value::Map(entries) = &node.value else {
        return Map::new();
    };
    let is_copied = |key: &Key| {
        let field = fields.iter().find(|field| field.key == key.name);
        field.is_none_or(|field| field.resolution() == Resolution::Copied)
    };
    let entries = entries.iter().filter(|(key, _)| is_copied(key));
    entries.filter_map(lossy_entry).collect()
}

fn lossy_entry((key, value): &(Key, Node)) -> Option<(String, Json)> {
    Some((key.name.clone(), lossy_json(value)?))
}

fn lossy_json(node: &Node) -> Option<Json> {
    Some(match &node.value {
        Value::Map(entries) => Json::Object(entries.iter().filter_map(lossy_entry).collect()),
        Value::List(items) => Json::Array(items.iter().filter_map(lossy_json).collect()),
        _ => node.to_json().ok()?,
    })
}

fn unwrapped<'document>(
    node: &'document Node,
    block: &'static str,
    blocks: &'document BlockDocuments,
) -> &'document Node {
    if let Some(inner) = node.get("inline") {
        return inner;
    }
    reference_of(node, block)
        .and_then(|(reference, _)| blocks.get(&reference))
        .map_or(node, |document| &document.root)
}

fn run(run: &Run) -> Json {
    match run {
        Run::Text(text) => json!(text),
        Run::Array(arguments) => json!(arguments),
        Run::File(path) => json!({ RunForm::File.name(): path }),
        Run::Exec(arguments) => json!({ RunForm::Exec.name(): arguments }),
        Run::Shell(command) => json!({ RunForm::Shell.name(): command }),
    }
}

fn runner(root: &Node, manifest: &Manifest, blocks: &BlockDocuments) -> Option<Json> {
    let node = root.get("runner").or_else(|| root.get("runtime"))?;
    if root.get("runner").is_none() && legacy::is_legacy(node) {
        return legacy_runner(node, manifest);
    }
    let node = unwrapped(node, "runner", blocks);
    Some(Json::Object(copied(node, &runner_block::FIELDS)))
}

/// The runner of a legacy `runtime`. Unstated keys stay unset: a referenced workspace can set them.
fn legacy_runner(node: &Node, manifest: &Manifest) -> Option<Json> {
    let mut block = Map::new();
    if node.get("mode").is_some() {
        let engine = if manifest.runner.downgraded {
            runner_block::IN_PROCESS
        } else {
            manifest.runner.engine.name()
        };
        block.insert("engine".to_owned(), json!(engine));
    }
    let mut limits = Map::new();
    for limit in &manifest.runner.limits {
        if let Some(key) = limit.limit.row().key {
            limits.insert(key.name.to_owned(), json!(limit.value / key.unit));
        }
    }
    if !limits.is_empty() {
        block.insert("limits".to_owned(), Json::Object(limits));
    }
    (!block.is_empty()).then_some(Json::Object(block))
}

/// The requests of the manifest itself. Those of its sandbox stay in the sandbox.
fn network(manifest: &Manifest) -> Option<Json> {
    let mut hosts: Vec<String> = Vec::new();
    for request in &manifest.egress {
        let host = request.rule.to_string();
        if !request.source.starts_with("sandbox.") && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    (!hosts.is_empty()).then(|| json!({ "egress": hosts }))
}

fn secrets(manifest: &Manifest) -> Option<Json> {
    let entries: Map<String, Json> = manifest
        .secrets
        .iter()
        .filter(|request| !stays_in_sandbox(request))
        .map(|request| {
            let reference = match &request.reference {
                SecretReference::Vault(slug) => json!({ "vault": slug }),
                SecretReference::OAuth(connector) => json!({ "oauth": connector }),
                SecretReference::Literal(value) => json!({ "value": value }),
            };
            (request.variable.clone(), reference)
        })
        .collect();
    (!entries.is_empty()).then_some(Json::Object(entries))
}

/// Whether the request can stay in `sandbox.env.auth`: its slug is derived from the variable, so
/// reading it needs no inventory.
fn stays_in_sandbox(request: &SecretRequest) -> bool {
    let by_name = SecretReference::Vault(slug_of_variable(&request.variable));
    request.source == SANDBOX_AUTH && request.reference == by_name
}

fn sandbox(node: &Node, manifest: &Manifest) -> Json {
    let mut block = copied(node, &sandbox_block::FIELDS);
    block.insert("config".to_owned(), Json::Object(provider_config(node)));
    let mut env = Map::new();
    let variables: Vec<&str> = manifest
        .secrets
        .iter()
        .filter(|request| stays_in_sandbox(request))
        .map(|request| request.variable.as_str())
        .collect();
    if !variables.is_empty() {
        env.insert("auth".to_owned(), json!({ "state": { "env": variables } }));
    }
    if !manifest.env_passthrough.is_empty() {
        env.insert("passthrough".to_owned(), json!(manifest.env_passthrough));
    }
    if !env.is_empty() {
        block.insert("env".to_owned(), Json::Object(env));
    }
    let events = manifest.sandbox.iter().flat_map(|block| {
        [
            ("pause_after_idle", block.pause_after_idle.as_ref()),
            ("destroy_on", block.destroy_on.as_ref()),
        ]
    });
    let lifecycle: Map<String, Json> = events
        .filter_map(|(key, event)| Some((key.to_owned(), json!(event?))))
        .collect();
    if !lifecycle.is_empty() {
        block.insert("lifecycle".to_owned(), Json::Object(lifecycle));
    }
    Json::Object(block)
}

fn provider_config(sandbox: &Node) -> Map<String, Json> {
    let (Some(config), Some(provider)) = (sandbox.get("config"), sandbox.get("provider")) else {
        return Map::new();
    };
    let is_named = |entry: &&ProviderEntry| provider.value == Value::Text(entry.name.to_owned());
    let keys = REGISTRY.iter().find(is_named).map(|entry| entry.config);
    copied(config, keys.unwrap_or_default())
}

fn files(files: &[FileEntry]) -> Option<Json> {
    let entries: Map<String, Json> = files
        .iter()
        .map(|file| {
            let FileEntry {
                key,
                path,
                required,
                mode,
                content_type,
                source: _,
            } = file;
            let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
            let mut entry = Map::new();
            entry.insert("path".to_owned(), json!(path.written()));
            let mode = mode.map(AccessMode::short);
            entry.extend(mode.map(|mode| ("mode".to_owned(), json!(mode))));
            let mime = content_type.as_ref();
            entry.extend(mime.map(|mime| ("contentType".to_owned(), json!(mime))));
            entry.extend(required.then(|| ("required".to_owned(), json!(true))));
            (key, Json::Object(entry))
        })
        .collect();
    (!entries.is_empty()).then_some(Json::Object(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_permit::PERMIT;
    use std::collections::BTreeSet;

    use crate::document::{self, Format};
    use crate::io::IoBlocks;
    use crate::manifest::fields::Kind as FieldKind;
    use crate::manifest::{
        BlockDocument, BlockForm, BlockReference, Parsed, block_references, parse_with,
    };
    use crate::runner_block::RunnerBlock;
    use crate::sandbox_block::SandboxBlock;

    fn node(text: &str) -> Node {
        document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document")
    }

    fn read(root: &Node, blocks: &BlockDocuments) -> Manifest {
        let Parsed {
            manifest, errors, ..
        } = parse_with(root, "m.yaml", blocks);
        assert_eq!(errors, []);
        manifest.expect("a manifest")
    }

    /// The requests of a manifest, without the keys that state them. Every field of a manifest is
    /// named here, so that a new one is compared too.
    fn requests(manifest: &Manifest) -> String {
        let Manifest {
            kind,
            id,
            name,
            version,
            description,
            run,
            runner,
            limits,
            egress,
            secrets,
            env_passthrough,
            mounts,
            sandbox,
            io,
            workspace_sources,
            commits,
            restrictions,
            code: _,
            inventories: _,
            warnings: _,
            ignored: _,
            refusals: _,
        } = manifest;
        let RunnerBlock {
            engine,
            downgraded,
            image,
            needs,
            limits: _,
        } = runner;
        let sandbox = sandbox.as_ref().map(|block| {
            let SandboxBlock {
                provider,
                local,
                read_only,
                policy,
                pause_after_idle,
                destroy_on,
                limits: _,
                passthrough: _,
                secrets: _,
                egress: _,
                mounts: _,
            } = block;
            let lifecycle = (pause_after_idle, destroy_on);
            format!("{:?}", (provider, local, read_only, policy, lifecycle))
        });
        let IoBlocks {
            inputs,
            outputs,
            input_files,
            output_files,
        } = io;
        let mut limits: Vec<_> = limits
            .iter()
            .map(|limit| (limit.limit.name(), limit.value))
            .collect();
        limits.sort_unstable();
        let egress: Vec<_> = egress.iter().map(|one| one.rule.to_string()).collect();
        let mut secrets: Vec<_> = secrets
            .iter()
            .map(|one| format!("{} {:?}", one.variable, one.reference))
            .collect();
        secrets.sort();
        let mounts: Vec<_> = mounts
            .iter()
            .map(|one| (&one.target, one.mode.name()))
            .collect();
        let files = |files: &[FileEntry]| {
            let mut files = files.to_vec();
            files.iter_mut().for_each(|file| file.source.clear());
            files.sort_by_key(|file| file.key.to_string());
            files
        };
        format!(
            "{:?}",
            (
                (kind, id, name, version, description),
                run.as_ref().map(super::run),
                (engine, downgraded, image, needs, limits),
                (egress, secrets, env_passthrough, mounts, sandbox),
                (sorted(inputs.as_ref()), sorted(outputs.as_ref())),
                (files(input_files), files(output_files)),
                (workspace_sources, commits, restrictions),
            )
        )
    }

    fn sorted(schema: Option<&Json>) -> Option<String> {
        let mut schema = schema?.clone();
        schema.sort_all_objects();
        Some(schema.to_string())
    }

    /// The resolved form of a manifest, after a check that it has the same requests.
    fn checked(text: &str, blocks: &BlockDocuments) -> Json {
        let root = node(text);
        let manifest = read(&root, blocks);
        let resolved = resolved(&root, &manifest, blocks);
        let text = resolved.to_string();
        let again = document::parse(&PERMIT, text.as_bytes(), Format::Json).expect("JSON");
        let other = read(&again, &BlockDocuments::default());
        assert_eq!(requests(&other), requests(&manifest), "{text}");
        assert!(other.check_executable().is_ok(), "{text}");
        let deprecated = |code: &str| code.starts_with("deprecated") || code == "unspecified_key";
        assert!(
            !other.warnings.iter().any(|one| deprecated(&one.code)),
            "{:?}",
            other.warnings
        );
        assert_eq!(
            super::resolved(&again, &other, &BlockDocuments::default()),
            resolved
        );
        resolved
    }

    /// A value of each key that a manifest may have, by the path of the key.
    const SAMPLES: [(&str, &str); 62] = [
        ("schema", "code/v2"),
        ("kind", "workflow"),
        ("name", "n"),
        ("id", "i"),
        ("version", "'1'"),
        ("description", "d"),
        ("code", "./shared"),
        ("source", "{local: a}"),
        ("run", "x"),
        ("entry", "x.sh"),
        ("network", "{egress: [a.example]}"),
        ("secrets", "{A: {vault: a}}"),
        ("inputs", "{type: object}"),
        ("outputs", "{type: object}"),
        ("inputsFiles", "{a: {path: a}}"),
        ("outputsFiles", "{a: {path: a}}"),
        ("workspaceSources", "[{id: s, ref: r, mountPath: /m}]"),
        ("timeout_ms", "7"),
        ("approval", "always"),
        ("requiredCapabilities", "[a]"),
        ("runner/engine", "sandbox"),
        ("runner/image", "i"),
        ("runner/needs/language", "node"),
        ("runner/needs/native", "[a]"),
        ("runner/needs/npm", "[a]"),
        ("runner/needs/pip", "[a]"),
        ("runner/limits/memory_mb", "1"),
        ("runner/limits/timeout_ms", "1"),
        ("runner/limits/cpu_ms", "1"),
        ("runtime/mode", "in-process"),
        ("runtime/resources/timeoutMs", "1"),
        ("runtime/resources/memoryMb", "1"),
        ("runtime/resources/cpuMs", "1"),
        ("runtime/env", "[A]"),
        ("runtime/fs/read", "[a]"),
        ("runtime/fs/write", "[a]"),
        ("runtime/network", "{egress: [a.example]}"),
        ("runtime/cpu_ms_max", "1"),
        ("runtime/memory_mb_max", "1"),
        ("runtime/timeout_ms", "1"),
        ("runtime/timeout_ms_max", "1"),
        ("sandbox/schema", "sandbox/v1"),
        ("sandbox/id", "'@a/b'"),
        ("sandbox/version", "'1'"),
        ("sandbox/provider", "node-permission"),
        ("sandbox/config/cwd", "a"),
        ("sandbox/config/shell", "/bin/bash"),
        ("sandbox/limits/memory_mb", "1"),
        ("sandbox/limits/timeout_ms", "1"),
        ("sandbox/limits/cpu_ms", "1"),
        ("sandbox/env/auth", "{state: {env: [A]}}"),
        ("sandbox/env/passthrough", "[A]"),
        ("sandbox/env/autoPassthrough", "true"),
        ("sandbox/network", "{egress: [a.example]}"),
        ("sandbox/mounts", "[{source: workspace, at: /w}]"),
        ("sandbox/policy", "{ref: a}"),
        ("sandbox/lifecycle/pause_after_idle", "idle-1"),
        ("sandbox/lifecycle/destroy_on", "workspace-close"),
        ("sandbox/lifecycle/pause_after_idle_ms", "1"),
        ("sandbox/lifecycle/destroy_on_workspace_close", "true"),
        ("sandbox/read_only", "true"),
        ("sandbox/metadata", "{a: 1}"),
    ];
    /// Keys that name no request of the manifest itself.
    const WITHOUT_REQUEST: [&str; 8] = [
        "code",
        "source",
        "requiredCapabilities",
        "sandbox/schema",
        "sandbox/id",
        "sandbox/version",
        "sandbox/env/autoPassthrough",
        "sandbox/metadata",
    ];

    /// The paths of the keys of a table, without those that are ignored by their kind.
    fn paths<T>(parent: &str, fields: &[Field<T>]) -> Vec<String> {
        let has_effect = |field: &&Field<T>| {
            !matches!(
                field.kind,
                FieldKind::Ignored | FieldKind::Unspecified | FieldKind::OfDocument(_)
            )
        };
        let paths = fields.iter().filter(has_effect).flat_map(Field::paths);
        paths
            .map(|path| format!("{parent}{}", path.join("/")))
            .collect()
    }

    #[test]
    fn each_key_keeps_its_request() {
        let tables = [
            paths("", &top_level::FIELDS),
            paths("runner/", &runner_block::FIELDS),
            paths("runtime/", &legacy::FIELDS),
            paths("sandbox/", &sandbox_block::FIELDS),
            paths("sandbox/config/", REGISTRY[0].config),
        ];
        let mut keys: BTreeSet<String> = tables.into_iter().flatten().collect();
        for block in ["runner", "runtime", "sandbox", "sandbox/config"] {
            assert!(keys.remove(block), "{block}");
        }
        let sampled: BTreeSet<String> = SAMPLES.map(|(path, _)| path.to_owned()).into();
        let differences: Vec<_> = keys.symmetric_difference(&sampled).collect();
        assert_eq!(differences, [""; 0], "each key has a sample");
        let blocks = BlockDocuments::default();
        for (path, value) in SAMPLES {
            let keys: Vec<&str> = path.split('/').collect();
            let text = format!("{{{}: {value}{}", keys.join(": {"), "}".repeat(keys.len()));
            let (text, without) = match path.strip_prefix("sandbox/") {
                Some("provider") => (text, "{sandbox: {provider: local}}"),
                Some(_) => (
                    text.replacen("{sandbox: {", "{sandbox: {provider: local, ", 1),
                    "{sandbox: {provider: local}}",
                ),
                None => (text, "{}"),
            };
            let root = node(&text);
            let manifest = read(&root, &blocks);
            let resolved = resolved(&root, &manifest, &blocks).to_string();
            let other = read(&node(&resolved), &blocks);
            assert_eq!(requests(&other), requests(&manifest), "{text}: {resolved}");
            let has_request = requests(&manifest) != requests(&read(&node(without), &blocks));
            assert_eq!(has_request, !WITHOUT_REQUEST.contains(&path), "{text}");
        }
    }

    #[test]
    fn a_manifest_with_most_keys_has_the_same_requests_when_resolved() {
        let resolved = checked(
            "kind: workflow\nid: a\nname: B\nversion: 1.0.0\ndescription: d\n\
             run: {shell: 'a | b'}\ncode: ./shared\ntimeout_ms: 7\napproval: always\n\
             runner: {inline: {engine: in-process, needs: {language: multi, npm: [x@1]}, \
             limits: {memory_mb: 64, timeout_ms: 9, cpu_ms: 8}}}\n\
             network: {egress: [B.example, a.example, b.example, '[::1]:80']}\n\
             secrets: {K: {vault: k}, L: {oauth: github}, M: {value: ''}}\n\
             sandbox: {provider: local, config: {cwd: sub, shell: /bin/bash, installAdapters: 1}, \
             env: {auth: {ref: ./SECRETS.md, state: {env: [STRIPE_KEY]}}, passthrough: [P], \
             autoPassthrough: true}, network: {egress: [s.example]}, extraPorts: [1], \
             mounts: [{source: workspace, at: /w/x}, {source: workspace, at: /w, mode: read-only}], \
             lifecycle: {pause_after_idle_ms: 1500, destroy_on_workspace_close: true}, \
             policy: {ref: x}, metadata: {n: 1}}\n\
             inputs: {type: object, properties: {z: {type: number}, a: true}}\n\
             outputs: {enum: [2, 1]}\n\
             inputsFiles: {b: {path: ./in/é, mode: ro, contentType: text/x}, a: {path: x}}\n\
             outputsFiles: {o: {path: 'out/<runId>', required: true}}\n\
             workspaceSources: [{id: s, ref: r, mountPath: /m, subpath: p}]\n\
             metadata: {z: 1, a: {c: 1, b: 2}, huge: 1e999}\nidentity: {ref: 'operator://me'}\n",
            &BlockDocuments::default(),
        );
        let keys: Vec<&String> = resolved.as_object().expect("a map").keys().collect();
        let mut sorted = keys.clone();
        sorted.sort();
        assert_eq!(keys, sorted);
        assert!(!keys.iter().any(|key| *key == "code" || *key == "source"));
        assert_eq!(
            resolved["metadata"].to_string(),
            r#"{"a":{"b":2,"c":1},"z":1}"#
        );
        assert_eq!(
            resolved["sandbox"]["env"].to_string(),
            r#"{"auth":{"state":{"env":["STRIPE_KEY"]}},"passthrough":["P"]}"#
        );
    }

    #[test]
    fn deprecated_forms_are_translated() {
        let resolved = checked(
            "entry: './main.py'\nsource: {origin: ai-draft}\n\
             runtime: {mode: sandbox, env: [STRIPE_API_KEY], network: {egress: [a.example]}, \
             cpu_ms_max: 5, memory_mb_max: 6, timeout_ms_max: 7, \
             fs: {read: [in/a.csv, in/b.csv], write: {r: {path: out/r}}}}\n\
             secrets: {X: {vault: x}}\n",
            &BlockDocuments::default(),
        );
        assert_eq!(
            resolved.to_string(),
            r#"{"inputsFiles":{"a.csv":{"path":"in/a.csv"},"b.csv":{"path":"in/b.csv"}},"#
                .to_owned()
                + r#""kind":"tool","network":{"egress":["a.example"]},"#
                + r#""outputsFiles":{"r":{"path":"out/r"}},"run":{"file":"./main.py"},"#
                + r#""runner":{"engine":"subprocess","limits":{"cpu_ms":5,"memory_mb":6,"#
                + r#""timeout_ms":7}},"secrets":{"STRIPE_API_KEY":{"vault":"stripe-api-key"},"#
                + r#""X":{"vault":"x"}}}"#
        );
        let today = checked(
            "run: x\nruntime: {engine: subprocess, limits: {cpu_ms: 1}}\n",
            &BlockDocuments::default(),
        );
        assert_eq!(
            today["runner"].to_string(),
            r#"{"engine":"subprocess","limits":{"cpu_ms":1}}"#
        );
        assert_eq!(
            checked(
                "entry: x.sh\nruntime: {env: []}\n",
                &BlockDocuments::default()
            )
            .to_string(),
            r#"{"kind":"tool","run":{"file":"x.sh"}}"#,
            "what nobody states stays open"
        );
    }

    #[test]
    fn blocks_of_other_documents_are_inserted() {
        let text = "schema: code/v2\nid: '@acme/code/search'\nsource: {local: ./search.py}\n\
                    run: python search.py\nrunner: {ref: ./RUNNER.md}\n\
                    sandbox: {file: ./SANDBOX.md}\nsecrets: {ref: ./SECRETS.md}\n\
                    network: {egress: [api.example]}\n";
        let inventory = "secrets: [{slug: org/stripe, name: n, description: d, \
                         exposures: [{kind: env, name: STRIPE_KEY, field: v}]}]\n";
        let mut blocks = BlockDocuments::default();
        for (reference, text) in block_references(&node(text)).into_iter().zip([
            "schema: runner/v1\nid: '@a/b'\nversion: 1.0.0\nengine: subprocess\n\
             needs: {language: python}\n",
            "schema: sandbox/v1\nid: '@a/b'\nversion: 1.0.0\nprovider: local\n\
             env: {auth: {ref: ./SECRETS.md, state: {env: [STRIPE_KEY, OTHER_KEY]}}}\n",
            inventory,
        ]) {
            let file = format!("{}.md", reference.block);
            let root = node(text);
            blocks.insert(reference, BlockDocument { file, root });
        }
        let auth = BlockReference {
            block: "env.auth",
            form: BlockForm::Ref,
            text: "./SECRETS.md".to_owned(),
        };
        let document = BlockDocument {
            file: "SECRETS.md".to_owned(),
            root: node(inventory),
        };
        blocks.insert(auth, document);
        assert_eq!(
            checked(text, &blocks).to_string(),
            r#"{"id":"@acme/code/search","kind":"code-workspace","network":{"egress":["#.to_owned()
                + r#""api.example"]},"run":"python search.py","runner":{"engine":"subprocess","#
                + r#""needs":{"language":"python"}},"sandbox":{"config":{},"env":{"auth":"#
                + r#"{"state":{"env":["OTHER_KEY"]}}},"provider":"local"},"#
                + r#""secrets":{"STRIPE_KEY":{"vault":"org/stripe"}}}"#
        );
    }
}
