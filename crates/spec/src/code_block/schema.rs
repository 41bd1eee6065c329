//! The schemas of `code` and of sources.

use serde_json::{Value as Json, json};

use super::{CODE, GITHUB, INLINE, LOCAL};
use crate::manifest::fields::object;
use crate::manifest::schema::{described, form, merged, reference};

pub(crate) fn schema() -> Json {
    json!({
        "description": "The path of a code-workspace, or a list of sources; later ones lie over \
                        earlier ones.",
        "oneOf": [
            {
                "description": "The path of a code-workspace in the workspace; `@` is refused.",
                "allOf": [reference("folder"), {"pattern": "^[^@]*$"}],
            },
            object("A list of sources.", &CODE),
        ],
    })
}

/// The schema of a source: of `code` or, if `is_lean`, of the lean form.
pub(crate) fn source_schema(is_lean: bool) -> Json {
    let (paths, folders) = if is_lean {
        ("besidePath", "besideFolder")
    } else {
        ("localPath", "folder")
    };
    let mut local = object("A path with options.", &LOCAL);
    let of_path = local["properties"]["path"].take();
    local["properties"]["path"] = merged(of_path, reference(paths));
    let folder = described("The folder of the code-workspace.", reference(folders));
    let by_path = form("path", "A path.", folder);
    let inline = object("A file with its content.", &INLINE);
    let github = object("Files of a repository.", &GITHUB);
    let mut kinds = json!({
        "inline": inline,
        "local": {"description": "Files of the workspace.", "oneOf": [reference(paths), local]},
        "github": github,
        "ref": {
            "description": "The sources of another code-workspace.",
            "oneOf": [reference(folders), by_path],
        },
    });
    let mut about = "One source: exactly one of the four.";
    if is_lean {
        about = "The lean form: one source, or `origin`. Paths are relative to the folder of the \
                 manifest.";
        let origin = "The origin of the manifest itself, such as `workspace`. No effect.";
        kinds["origin"] = described(origin, reference("line"));
    }
    json!({
        "description": about,
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": false,
        "properties": kinds,
    })
}
