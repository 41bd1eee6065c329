//! The published schemas of manifests and of sandbox blocks, made from the tables of their keys.

use serde_json::{Map, Value as Json, json};

use crate::io::{SCHEMA_BYTES_MAX, file_schema};
use crate::limits::Limit;
use crate::manifest::fields::object;
use crate::manifest::{legacy, network, run, secrets, top_level, workspace_sources};
use crate::run_form::ARGUMENT_BYTES_MAX;
use crate::runner_block::{self, limits_with_keys};
use crate::{code_block, mounts, sandbox_block};

const PATH_SEGMENT: &str = r"(?!\.{1,2}(?:/|$))[^/\\$\x00]{1,255}";
/// The start of a path that no shell and no URL parser reads as something else.
const PATH_START: &str = r"(?!~|file:|[^\x00]*://)(?:\./)?";

/// The schema of manifests, as JSON.
#[must_use]
pub fn of_manifest() -> String {
    published("manifest", "Manifest", top_level::schema())
}

/// The schema of sandbox blocks, as JSON.
#[must_use]
pub fn of_sandbox() -> String {
    let about = "A `sandbox` block (AIP-36): the front matter of a SANDBOX.md, or the value of \
                 `sandbox` in a manifest without `inline`, `ref` and `file`.";
    published(
        "sandbox",
        "SANDBOX.md",
        described(about, reference("sandboxBlock")),
    )
}

/// Adds a head and the definitions that `schema` refers to.
fn published(name: &str, title: &str, schema: Json) -> String {
    let mut definitions = Map::new();
    define(&schema, &mut definitions);
    definitions.sort_keys();
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("urn:runner:schema:{name}"),
        "title": title,
    });
    let schema = merged(merged(head, schema), json!({"$defs": definitions}));
    format!("{schema:#}\n")
}

fn define(schema: &Json, definitions: &mut Map<String, Json>) {
    match schema {
        Json::Object(entries) => {
            let target = entries.get("$ref").and_then(Json::as_str);
            let name = target.and_then(|target| target.strip_prefix("#/$defs/"));
            if let Some(name) = name.filter(|name| !definitions.contains_key(*name)) {
                let definition = definition(name);
                definitions.insert(name.to_owned(), definition.clone());
                define(&definition, definitions);
            }
            entries
                .values()
                .for_each(|value| define(value, definitions));
        }
        Json::Array(items) => items.iter().for_each(|item| define(item, definitions)),
        _ => (),
    }
}

fn definition(name: &str) -> Json {
    match name {
        "runnerBlock" => block("runner", "The block of another document."),
        "runner" => object(
            "The `runner` block (AIP-17): the process boundary.",
            &runner_block::FIELDS,
        ),
        "sandboxBlock" => sandbox_block::schema(),
        "runtimeLegacy" => legacy::schema(),
        "legacyFiles" => legacy::files_schema(),
        "network" => network::schema(),
        "secrets" => secrets::schema(),
        "mount" => mounts::schema(),
        "workspaceSource" => workspace_sources::schema(),
        "code" => code_block::schema(),
        "source" => code_block::source_schema(false),
        "leanSource" => code_block::source_schema(true),
        "run" => run::schema(),
        "command" => run::command_schema(),
        "file" => file_schema(),
        "limits" => limits(),
        "files" => json!({
            "description": "Files by their name inside: each is at /scratch/KEY.",
            "type": "object",
            "propertyNames": {"pattern": r"^(?!\.{1,2}$)[^/\x00-\x1f\x7f-\x9f]{1,255}$"},
            "additionalProperties": reference("file"),
            "default": {},
        }),
        "ioSchema" => json!({
            "description": format!("A JSON Schema (2020-12), at most {SCHEMA_BYTES_MAX} bytes."),
            "type": "object",
        }),
        scalar => text(scalar),
    }
}

fn text(name: &str) -> Json {
    let path = format!("{PATH_START}{PATH_SEGMENT}(?:/{PATH_SEGMENT})*");
    let shorter = |most: u32, pattern: &str| json!({"maxLength": most, "pattern": pattern});
    let or_dot = |description: &str, other: &str| json!({"description": description, "anyOf": [{"enum": [".", "./"]}, reference(other)]});
    let pattern = |description: &str, pattern: &str| json!({"description": description, "type": "string", "pattern": pattern});
    match name {
        "line" => pattern(
            "One line of text that is not empty.",
            r"^(?=[^\x00]*\S)[^\x00-\x1f\x7f-\x9f]*$",
        ),
        "text" => pattern("Text without a NUL character.", r"^[^\x00]*$"),
        "variable" => pattern(
            "The name of an environment variable.",
            "^[A-Za-z_][A-Za-z0-9_]*$",
        ),
        "argument" => merged(
            pattern("At most 131,071 bytes, without NUL.", r"^[^\x00]*$"),
            json!({"maxLength": ARGUMENT_BYTES_MAX}),
        ),
        "runText" => merged(
            pattern(
                "A command line or the path of a file.",
                r"^(?=[^\x00]*\S)[^\x00]*$",
            ),
            json!({"maxLength": ARGUMENT_BYTES_MAX}),
        ),
        "path" => merged(
            pattern(
                "A path below the folder that the key names: relative, one leading `./` allowed, \
                 without `..`, `.`, empty segments, `~`, `$`, backslashes; at most 4,095 bytes.",
                &format!("^{path}$"),
            ),
            json!({"anyOf": [{"maxLength": 4095}, shorter(4097, r"^\./")]}),
        ),
        "folder" => merged(
            pattern(
                "A path like `path`, which may end in `/`: then only a directory is accepted.",
                &format!("^{path}/?$"),
            ),
            json!({"anyOf": [
                {"maxLength": 4095},
                shorter(4096, "/$"),
                shorter(4097, r"^\./"),
                shorter(4098, r"^\./[^\x00]*/$"),
            ]}),
        ),
        "besideFolder" => json!({
            "description": "A path like `folder`, relative to the folder of the manifest; it may \
                            begin with `../` and stays in the workspace.",
            "anyOf": [
                reference("folder"),
                {
                    "type": "string",
                    "pattern": format!(r"^(?:\./)?(?:(?:\.\./)*\.\.|(?:\.\./)+(?:{path}/?)?)$"),
                },
            ],
        }),
        "localPath" => or_dot(
            "A path like `folder`, or `.` for the whole workspace.",
            "folder",
        ),
        "besidePath" => or_dot(
            "A path like `besideFolder`, or `.` for the folder of the manifest.",
            "besideFolder",
        ),
        "target" => or_dot(
            "The place of the files in the bundle; `.` strips the path of the source. Default: \
             the same path.",
            "folder",
        ),
        "tokenPath" => {
            let segment =
                r"(?!\.{1,2}(?:/|$))(?:[^/<\\$\x00]|<(?:runId|workflowId|toolId|isoDate)>)+";
            merged(
                pattern(
                    "A path in the workspace, which may contain `<runId>`, `<workflowId>`, \
                     `<toolId>`, `<isoDate>`.",
                    &format!("^{PATH_START}{segment}(?:/{segment})*$"),
                ),
                json!({"anyOf": [{"maxLength": 4095}, shorter(4097, r"^\./")]}),
            )
        }
        "mountTarget" => merged(
            pattern(
                "An absolute path inside, without `..`, `.` and empty segments; not at or below \
                 /proc /dev /sys /usr /bin /sbin /lib* /etc /runner, and not / /bundle /scratch \
                 /tmp /home /home/runner themselves.",
                r"^(?!/(?:proc|dev|sys|usr|bin|sbin|etc|runner)(?:/|$))(?!/lib)(?!/(?:bundle|scratch|tmp|home(?:/runner)?)$)(?:/(?!\.{1,2}(?:/|$))[^/\x00]{1,255})+$",
            ),
            json!({"maxLength": 4096}),
        ),
        "egressRule" => merged(
            pattern(
                "`host`, `host:port`, `*.host` (one or more labels, not the host itself), or an \
                 IP address. No URL, no range, no bare `*`.",
                &egress_rule(),
            ),
            json!({"maxLength": 262}),
        ),
        _ => unreachable!("no definition has the name {name}"),
    }
}

fn egress_rule() -> String {
    let port = "(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|\
                6553[0-5]))?";
    let label = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?";
    // A last label of digits is an address in another notation.
    let last_label = format!("(?!(?:[0-9]+|0[xX][0-9A-Fa-f]*)(?::|$)){label}");
    let name = format!(r"(?:\*\.(?=[^:]*\.))?(?:{label}\.)*{last_label}");
    let byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let version_4 = format!(r"(?:{byte}\.){{3}}{byte}");
    let bracketed = r"\[(?=[^\]]*:)[0-9A-Fa-f:.]{2,45}\]";
    let bare = "(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]{2,45}";
    let version_6 = format!(r"(?!\[?::[fF]{{4}}:)(?:{bracketed}{port}|{bare})");
    format!("^(?:{name}{port}|{version_4}{port}|{version_6})$")
}

fn limits() -> Json {
    let keys: Map<String, Json> = limits_with_keys()
        .map(|(of_key, key)| {
            (
                key.name.to_owned(),
                described(key.description, limit(of_key)),
            )
        })
        .collect();
    json!({
        "description": "Limits. The strictest of several wins.",
        "type": "object",
        "additionalProperties": false,
        "properties": keys,
    })
}

/// The block `name`, in the manifest or in another document.
pub(crate) fn block(name: &str, other: &str) -> Json {
    let line = |description: &str| described(description, reference("line"));
    let inline = described("The block itself.", reference(name));
    let slug = "A path relative to the folder of the manifest (`./…`, `../…`), or a slug \
                `@owner/name` that `refs` of the host's configuration maps to a file.";
    let path = "A path relative to the folder of the manifest, inside the workspace.";
    json!({
        "description": "The block, written here or in another document.",
        "oneOf": [
            reference(name),
            form("inline", "The block in one more map.", inline),
            form("ref", other, line(slug)),
            form("file", other, line(path)),
        ],
    })
}

/// A map with the one key `key`.
pub(crate) fn form(key: &str, description: &str, value: Json) -> Json {
    json!({
        "description": description,
        "type": "object",
        "required": [key],
        "additionalProperties": false,
        "properties": {key: value},
    })
}

/// A reference to the definition `name`.
pub(crate) fn reference(name: &str) -> Json {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// `schema` with another description.
pub(crate) fn described(description: &str, schema: Json) -> Json {
    let description = json!({"description": description});
    merged(merged(description.clone(), schema), description)
}

/// The keys of both schemas. Those of `other` win.
pub(crate) fn merged(mut schema: Json, other: Json) -> Json {
    if let (Json::Object(entries), Json::Object(other)) = (&mut schema, other) {
        entries.extend(other);
    }
    schema
}

/// A whole number from 1 to `most`.
pub(crate) fn whole_number(most: u64) -> Json {
    json!({"type": "integer", "minimum": 1, "maximum": most})
}

/// The value of the key of `limit`.
pub(crate) fn limit(limit: Limit) -> Json {
    whole_number(limit.row().key.map_or(0, |key| key.max))
}
