//! The requests of a manifest, in the form that README.md defines under `asks`.

use serde_json::{Map, Value, json};
use spec::access_mode::AccessMode;
use spec::code_block::{CodeSource, SourceTarget};
use spec::io::FileEntry;
use spec::manifest::{Kind, Manifest, SecretReference};
use spec::run_form::Run;
use spec::runner_block::{Engine, Language};
use spec::sandbox_block::{Provider, Shell};

pub(crate) fn asks(manifest: &Manifest) -> Value {
    let limits: Vec<Value> = manifest
        .limits
        .iter()
        .map(|limit| json!({"name": limit.limit.name(), "value": limit.value, "source": limit.source}))
        .collect();
    let mut egress: Vec<String> = manifest
        .egress
        .iter()
        .map(|request| request.rule.to_string())
        .collect();
    egress.dedup();
    let mounts: Vec<Value> = manifest
        .mounts
        .iter()
        .map(|mount| json!({"at": mount.target.as_str(), "writable": mount.mode.is_writable()}))
        .collect();
    let restrictions: Vec<&str> = manifest
        .restrictions
        .iter()
        .map(|restriction| restriction.source)
        .collect();
    let refusals: Vec<&str> = manifest
        .refusals
        .iter()
        .map(spec::manifest::ManifestError::code)
        .filter(|code| *code != "code_unresolved")
        .collect();
    json!({
        "kind": match manifest.kind {
            Kind::Tool => "tool",
            Kind::Workflow => "workflow",
            Kind::CodeWorkspace => "code-workspace",
        },
        "id": manifest.id,
        "name": manifest.name,
        "run": manifest.run.as_ref().map(run),
        "sources": manifest.code.iter().map(source).collect::<Vec<_>>(),
        "runner": {
            "engine": match manifest.runner.engine {
                Engine::Subprocess => "subprocess",
                Engine::Sandbox => "sandbox",
            },
            "downgraded": manifest.runner.downgraded,
            "image": manifest.runner.image,
            "needs": {
                "language": manifest.runner.needs.language.map(language),
                "native": manifest.runner.needs.native,
                "npm": manifest.runner.needs.npm,
                "pip": manifest.runner.needs.pip,
            },
        },
        "limits": limits,
        "egress": egress,
        "secrets": secrets(manifest),
        "passthrough": manifest.env_passthrough,
        "mounts": mounts,
        "sandbox": sandbox(manifest),
        "inputs": manifest.io.inputs,
        "outputs": manifest.io.outputs,
        "inputsFiles": files(&manifest.io.input_files),
        "outputsFiles": files(&manifest.io.output_files),
        "restrictions": restrictions,
        "refusals": refusals,
        "ignored": manifest.ignored,
    })
}

fn run(run: &Run) -> Value {
    match run {
        Run::Text(text) => json!(text),
        Run::Array(words) => json!(words),
        Run::File(path) => json!({"file": path}),
        Run::Exec(words) => json!({"exec": words}),
        Run::Shell(text) => json!({"shell": text}),
    }
}

fn source(source: &CodeSource) -> Value {
    let target = |target: &SourceTarget| match target {
        SourceTarget::Same => Value::Null,
        SourceTarget::Top => json!("."),
        SourceTarget::Path { path, .. } => json!(path.to_string()),
    };
    match source {
        CodeSource::Inline { path, content } => {
            json!({"inline": {"path": path.to_string(), "content": content}})
        }
        CodeSource::Local {
            path,
            target: to,
            glob,
            ..
        } => json!({"local": {"path": path.to_string(), "as": target(to), "glob": glob}}),
        CodeSource::GitHub {
            repository,
            reference,
            path,
            target: to,
        } => json!({"github": {
            "repo": repository,
            "ref": reference,
            "path": path.as_ref().map(ToString::to_string),
            "as": target(to),
        }}),
        CodeSource::Reference { path } => json!({"ref": {"path": path.to_string()}}),
    }
}

fn language(language: Language) -> &'static str {
    match language {
        Language::Node => "node",
        Language::Python => "python",
        Language::Multi => "multi",
    }
}

fn secrets(manifest: &Manifest) -> Value {
    let entry = |reference: &SecretReference| match reference {
        SecretReference::Vault(name) => json!({"vault": name}),
        SecretReference::OAuth(provider) => json!({"oauth": provider}),
        SecretReference::Literal(value) => json!({"value": value}),
    };
    manifest
        .secrets
        .iter()
        .map(|secret| (secret.variable.clone(), entry(&secret.reference)))
        .collect::<Map<_, _>>()
        .into()
}

fn sandbox(manifest: &Manifest) -> Value {
    manifest.sandbox.as_ref().map_or(Value::Null, |block| {
        json!({
            "provider": match block.provider {
                Provider::Local => "local",
                Provider::NodePermission => "node-permission",
                Provider::Remote => "remote",
            },
            "cwd": block.local.cwd.as_ref().map(ToString::to_string),
            "shell": block.local.shell.map(|shell| match shell {
                Shell::Sh => "/bin/sh",
                Shell::Bash => "/bin/bash",
            }),
            "read_only": block.read_only,
            "pause_after_idle": block.pause_after_idle,
            "destroy_on": block.destroy_on,
        })
    })
}

fn files(files: &[FileEntry]) -> Value {
    let entry = |file: &FileEntry| {
        json!({
            "path": file.path.to_string(),
            "required": file.required,
            "mode": file.mode.map(AccessMode::short),
            "content_type": file.content_type,
        })
    };
    files
        .iter()
        .map(|file| (file.key.to_string(), entry(file)))
        .collect::<Map<_, _>>()
        .into()
}
