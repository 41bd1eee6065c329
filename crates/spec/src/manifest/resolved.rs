//! The resolved manifest: `.runner/manifest.json` of a bundle.
//!
//! Every block is inline and in the current form, without `code` and without references to other
//! documents. Reading it gives the same requests.

use serde_json::{Map, Value as Json, json};

use crate::access_mode::AccessMode;
use crate::document::{Key, Node, Value};
use crate::io::FileEntry;
use crate::manifest::blocks::reference_of;
use crate::manifest::{
    BlockDocuments, Kind, Manifest, SecretReference, SecretRequest, legacy, slug_of_variable,
};
use crate::run_form::{Run, RunForm};
use crate::runner_block::Engine;

/// Keys that are written from the parsed manifest, or left out.
const REWRITTEN: [&str; 13] = [
    "schema",
    "kind",
    "source",
    "code",
    "run",
    "entry",
    "runner",
    "runtime",
    "network",
    "secrets",
    "sandbox",
    "inputsFiles",
    "outputsFiles",
];
/// Keys of a block in a document of its own that only identify the document.
const OF_DOCUMENTS: [&str; 3] = ["schema", "id", "version"];
/// Keys of a sandbox block that have no meaning here.
const DRIFT: [&str; 3] = ["extraPorts", "extra_ports", "join"];

/// Writes the resolved form of `manifest`, which was read from `root` and `blocks` without errors.
///
/// Keys are sorted. Numbers that JSON libraries cannot hold, possible only in ignored keys, are
/// left out.
#[must_use]
pub fn resolved(root: &Node, manifest: &Manifest, blocks: &BlockDocuments) -> Json {
    let mut resolved = plain_entries(root, &REWRITTEN);
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            resolved.insert(key.to_owned(), value);
        }
    };
    put("kind", Some(kind(manifest.kind)));
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

/// The entries of a map, without the keys of `but` and without numbers that JSON libraries cannot
/// hold.
fn plain_entries(node: &Node, but: &[&str]) -> Map<String, Json> {
    let Value::Map(entries) = &node.value else {
        return Map::new();
    };
    let entries = entries.iter();
    let kept = entries.filter(|(key, _)| !but.contains(&key.name.as_str()));
    kept.filter_map(plain_entry).collect()
}

fn plain_entry((key, value): &(Key, Node)) -> Option<(String, Json)> {
    Some((key.name.clone(), plain(value)?))
}

fn plain(node: &Node) -> Option<Json> {
    Some(match &node.value {
        Value::Map(entries) => Json::Object(entries.iter().filter_map(plain_entry).collect()),
        Value::List(items) => Json::Array(items.iter().filter_map(plain).collect()),
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

fn kind(kind: Kind) -> Json {
    json!(match kind {
        Kind::Tool => "tool",
        Kind::Workflow => "workflow",
        Kind::CodeWorkspace => "code-workspace",
    })
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
    Some(Json::Object(plain_entries(node, &OF_DOCUMENTS)))
}

/// The runner of a legacy `runtime`. Unstated keys stay open, so that a referenced workspace can
/// set them.
fn legacy_runner(node: &Node, manifest: &Manifest) -> Option<Json> {
    let mut block = Map::new();
    if node.get("mode").is_some() {
        let engine = match manifest.runner.engine {
            Engine::Subprocess if manifest.runner.downgraded => "in-process",
            Engine::Subprocess => "subprocess",
            Engine::Sandbox => "sandbox",
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

/// Whether `sandbox.env.auth` is enough: the slug is the one derived from the variable. The
/// inventory is not included.
fn stays_in_sandbox(request: &SecretRequest) -> bool {
    let by_name = SecretReference::Vault(slug_of_variable(&request.variable));
    request.source == "sandbox.env.auth" && request.reference == by_name
}

fn sandbox(node: &Node, manifest: &Manifest) -> Json {
    let but = [&OF_DOCUMENTS[..], &DRIFT, &["env", "lifecycle", "config"]].concat();
    let mut block = plain_entries(node, &but);
    let config = node
        .get("config")
        .map(|config| plain_entries(config, &["installAdapters"]));
    block.insert(
        "config".to_owned(),
        Json::Object(config.unwrap_or_default()),
    );
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

fn files(files: &[FileEntry]) -> Option<Json> {
    let entries: Map<String, Json> = files
        .iter()
        .map(|file| {
            let key = String::from_utf8_lossy(file.key.as_bytes()).into_owned();
            let mut entry = Map::new();
            entry.insert("path".to_owned(), json!(file.path.written()));
            let mode = file.mode.map(AccessMode::short);
            entry.extend(mode.map(|mode| ("mode".to_owned(), json!(mode))));
            let mime = file.content_type.as_ref();
            entry.extend(mime.map(|mime| ("contentType".to_owned(), json!(mime))));
            entry.extend(file.required.then(|| ("required".to_owned(), json!(true))));
            (key, Json::Object(entry))
        })
        .collect();
    (!entries.is_empty()).then_some(Json::Object(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};
    use crate::manifest::{
        BlockDocument, BlockForm, BlockReference, Parsed, block_references, parse_with,
    };

    fn node(text: &str) -> Node {
        document::parse(text.as_bytes(), Format::Yaml).expect("a document")
    }

    fn read(root: &Node, blocks: &BlockDocuments) -> Manifest {
        let Parsed { manifest, errors } = parse_with(root, "m.yaml", blocks);
        assert_eq!(errors, []);
        manifest.expect("a manifest")
    }

    /// What a manifest asks for, without the names of the keys that ask.
    fn wishes(manifest: &Manifest) -> String {
        let Manifest {
            limits,
            egress,
            secrets,
            mounts,
            io,
            ..
        } = manifest;
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
            let told = files.iter().map(|file| {
                let FileEntry {
                    key,
                    path,
                    required,
                    mode,
                    content_type,
                    ..
                } = file;
                format!("{key} {path:?} {required} {mode:?} {content_type:?}")
            });
            let mut told: Vec<String> = told.collect();
            told.sort();
            told
        };
        let runner = (
            manifest.runner.engine,
            manifest.runner.downgraded,
            &manifest.runner.image,
            &manifest.runner.needs,
        );
        let sandbox = manifest.sandbox.as_ref().map(|block| {
            (
                block.provider,
                &block.local,
                block.read_only,
                block.policy,
                &block.pause_after_idle,
                &block.destroy_on,
            )
        });
        format!(
            "{:?}",
            (
                (
                    manifest.kind,
                    &manifest.id,
                    &manifest.name,
                    &manifest.version
                ),
                (&manifest.description, run_parts(manifest), runner, limits),
                (egress, secrets, &manifest.env_passthrough, mounts, sandbox),
                (
                    sorted(io.inputs.as_ref()),
                    sorted(io.outputs.as_ref()),
                    files(&io.input_files),
                    files(&io.output_files)
                ),
                (&manifest.workspace_sources, &manifest.restrictions),
            )
        )
    }

    fn sorted(schema: Option<&Json>) -> Option<String> {
        let mut schema = schema?.clone();
        schema.sort_all_objects();
        Some(schema.to_string())
    }

    fn run_parts(manifest: &Manifest) -> Option<Json> {
        manifest.run.as_ref().map(super::run)
    }

    /// The resolved form of a manifest, after it has been seen to ask for the same.
    fn checked(text: &str, blocks: &BlockDocuments) -> Json {
        let root = node(text);
        let manifest = read(&root, blocks);
        let resolved = resolved(&root, &manifest, blocks);
        let text = resolved.to_string();
        let again = document::parse(text.as_bytes(), Format::Json).expect("JSON");
        let other = read(&again, &BlockDocuments::default());
        assert_eq!(wishes(&other), wishes(&manifest), "{text}");
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

    #[test]
    fn a_rich_manifest_asks_for_the_same_afterwards() {
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
    fn older_shapes_are_translated() {
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
    fn blocks_of_other_documents_stand_in_it() {
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
