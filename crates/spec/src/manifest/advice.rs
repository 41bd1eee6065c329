//! Hints about invalid keys and values of a manifest.

use crate::document::{Node, Value, excerpt};
use crate::manifest::is_variable_name;

/// Blocks, each with keys that authors put elsewhere by mistake.
const BLOCKS: [(&str, &[&str]); 8] = [
    ("runner", &["engine", "image", "needs", "limits"]),
    ("runner.needs", &["language", "native", "npm", "pip"]),
    ("runner.limits", &["memory_mb", "cpu_ms"]),
    ("network", &["egress"]),
    (
        "sandbox",
        &["provider", "config", "mounts", "lifecycle", "read_only"],
    ),
    ("sandbox.config", &["cwd", "shell"]),
    ("sandbox.env", &["passthrough", "auth"]),
    ("code", &["sources"]),
];
const TOP_LEVEL: [&str; 12] = [
    "run",
    "code",
    "runner",
    "network",
    "secrets",
    "sandbox",
    "inputs",
    "outputs",
    "inputsFiles",
    "outputsFiles",
    "workspaceSources",
    "timeout_ms",
];

/// A hint that names the block of `key`, which is in another map with the keys `known`.
pub(super) fn block_of(key: &str, known: &[&'static str]) -> Option<String> {
    if known.contains(&key) {
        return None;
    }
    if key == "env" {
        let hint = if known.contains(&"state") {
            "write `state: {env: [NAME]}`"
        } else {
            "pass variables with `-e NAME=VALUE`, or name them in `sandbox.env.passthrough`"
        };
        return Some(hint.to_owned());
    }
    if let Some((block, _)) = BLOCKS.iter().find(|(_, keys)| keys.contains(&key)) {
        let steps: Vec<&str> = block.split('.').collect();
        let open = steps.join(": {");
        let close = "}".repeat(steps.len());
        return Some(format!(
            "`{key}` belongs to `{block}`: write `{open}: {{{key}: …{close}`"
        ));
    }
    TOP_LEVEL
        .contains(&key)
        .then(|| format!("`{key}` belongs to the top level of the manifest"))
}

/// A hint for the value `node`, which is not `expected`.
pub(super) fn hint_for_type(node: &Node, expected: &str, pointer: &str) -> Option<String> {
    let text = match &node.value {
        Value::Number(_) if expected.contains("text") => "put it in quotes",
        Value::Null if is_secret(pointer) => "write `{vault: NAME}`, or remove the key",
        Value::Null => "write a value, or remove the key",
        Value::Text(text) if expected.starts_with("true") && is_yaml_1_1_boolean(text) => {
            "booleans of YAML 1.2 are `true` and `false`"
        }
        Value::Text(text) if expected.contains("whole") && is_plain_number(text) => {
            "remove the quotes"
        }
        Value::Text(text) if expected.contains("whole") => return without_unit(text, pointer),
        Value::List(_) if expected.ends_with("`sources`") => {
            "write the list under the key `sources`"
        }
        Value::Text(text) if pointer.ends_with("/sources") => {
            return Some(format!("write a list: `[{{local: {}}}]`", as_scalar(text)));
        }
        _ if expected == "a list" && pointer.ends_with("/mounts") => {
            "write a list: `[{source: …, at: …}]`"
        }
        _ if expected == "a list" && pointer.ends_with("/workspaceSources") => {
            "write a list: `[{id: …, ref: …, mountPath: …}]`"
        }
        Value::Text(text) | Value::Number(text) if expected == "a list" => {
            return Some(format!("write a list: `[{}]`", as_scalar(text)));
        }
        Value::Map(_) if expected == "a list" => {
            "write a list: `[{…}]`, or `- ` before its first key on a line of its own"
        }
        Value::Text(text) if expected == "a map" => return as_map(text, pointer),
        Value::List(entries) if expected == "a map" => return list_as_map(entries, pointer),
        _ => return None,
    };
    Some(text.to_owned())
}

/// Whether `text` is a number without quotes too: `007` and `+7` are not.
fn is_plain_number(text: &str) -> bool {
    text.parse::<u64>()
        .is_ok_and(|number| number.to_string() == text)
}

fn as_scalar(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let is_other_type = text.starts_with(|first: char| first.is_ascii_digit())
        || ["true", "false", "null"].contains(&text.to_ascii_lowercase().as_str());
    if text.bytes().all(is_plain) && !text.starts_with('-') && !is_other_type && !text.is_empty() {
        excerpt(text)
    } else {
        format!("'{}'", excerpt(&text.replace('\'', "''")))
    }
}

/// A hint with the number in the unit of the key: `512m` of `memory_mb` is 512.
fn without_unit(text: &str, pointer: &str) -> Option<String> {
    let key = pointer.rsplit('/').next()?;
    let (name, units): (&str, &[(&str, u64)]) = if key.ends_with("_mb") {
        (
            "MiB",
            &[
                ("", 1),
                ("m", 1),
                ("mb", 1),
                ("mib", 1),
                ("g", 1024),
                ("gb", 1024),
                ("gib", 1024),
            ],
        )
    } else if key.ends_with("_ms") {
        (
            "milliseconds",
            &[
                ("", 1),
                ("ms", 1),
                ("s", 1_000),
                ("m", 60_000),
                ("min", 60_000),
                ("h", 3_600_000),
            ],
        )
    } else {
        return None;
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_lowercase();
    let number = number.parse::<u64>().ok().and_then(|number| {
        let (_, factor) = units.iter().find(|(known, _)| *known == unit)?;
        number.checked_mul(*factor)
    });
    Some(match number {
        Some(number) => format!("`{key}` counts {name} and has no unit: write `{number}`"),
        None => format!("`{key}` counts {name} and has no unit"),
    })
}

/// A hint for a list that should be a map: its first entry as a map entry.
fn list_as_map(entries: &[Node], pointer: &str) -> Option<String> {
    match &entries.first()?.value {
        Value::Text(text) => as_map(text, pointer),
        Value::Map(_) if matches!(pointer, "/inputsFiles" | "/outputsFiles") => {
            Some("write a map, each file by its name: `{NAME: {path: …}}`".to_owned())
        }
        _ => None,
    }
}

fn is_secret(pointer: &str) -> bool {
    let name = pointer.strip_prefix("/secrets/");
    name.is_some_and(|name| !name.contains('/'))
}

/// A hint for text that should be a map: the path of a file, or a key without a space after its
/// colon.
fn as_map(text: &str, pointer: &str) -> Option<String> {
    match pointer {
        "/inputsFiles" | "/outputsFiles" => {
            return Some(format!("write `{{NAME: {{path: {}}}}}`", as_scalar(text)));
        }
        "/network" => return Some(format!("write `{{egress: [{}]}}`", as_scalar(text))),
        "/inputs" | "/outputs" => {
            let field = "write `{type: object, properties: {NAME: {type: string}}}`";
            return Some(field.to_owned());
        }
        "/secrets" if is_variable_name(text) => {
            return Some(format!("write `{{{text}: {{vault: NAME}}}}`"));
        }
        "/secrets" => {
            let forms = "write `{VARIABLE: {vault: NAME}}`, or `{ref: FILE}` of an inventory";
            return Some(forms.to_owned());
        }
        _ if is_source(pointer) => return Some(format!("write `{{local: {}}}`", as_scalar(text))),
        _ => (),
    }
    let file = pointer
        .strip_prefix("/inputsFiles/")
        .or_else(|| pointer.strip_prefix("/outputsFiles/"));
    if file.is_some() {
        return Some(format!("write `{{path: {}}}`", as_scalar(text)));
    }
    let (key, value) = text.split_once(':')?;
    let is_key = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_url = value.starts_with("//");
    (is_key && !is_url).then(|| {
        let (key, value) = (excerpt(key), excerpt(value.trim()));
        format!("write a space after the colon: `{key}: {value}`")
    })
}

fn is_source(pointer: &str) -> bool {
    let index = pointer.strip_prefix("/code/sources/");
    index.is_some_and(|index| index.parse::<usize>().is_ok())
}

fn is_yaml_1_1_boolean(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "y" | "yes" | "on" | "n" | "no" | "off"
    )
}

#[cfg(test)]
mod tests {
    use crate::document::{self, Format};
    use crate::manifest::{BlockDocuments, parse_with};
    use crate::parse_permit::PERMIT;

    #[test]
    fn a_hint_can_be_followed() {
        for (text, expected) in [
            ("secrets: A_KEY", "write `{A_KEY: {vault: NAME}}`"),
            (
                "secrets: ./SECRETS.md",
                "write `{VARIABLE: {vault: NAME}}`, or `{ref: FILE}` of an inventory",
            ),
            (
                "env: {A: b}",
                "pass variables with `-e NAME=VALUE`, or name them in `sandbox.env.passthrough`",
            ),
            (
                "sandbox: {provider: local, config: {}, env: {auth: {env: [A]}}}",
                "write `state: {env: [NAME]}`",
            ),
            ("network: {egress: '7'}", "write a list: `['7']`"),
            (
                "network: {egress: a.example}",
                "write a list: `[a.example]`",
            ),
            ("timeout_ms: '7'", "remove the quotes"),
            (
                "timeout_ms: '007'",
                "`timeout_ms` counts milliseconds and has no unit: write `7`",
            ),
            (
                "runner: engine:sandbox",
                "write a space after the colon: `engine: sandbox`",
            ),
            ("runner: docker://node", ""),
            (
                "runner: {limits: {timeout: 5}}",
                "did you mean `timeout_ms`?",
            ),
            ("runner: {limits: {memory: 5}}", "did you mean `memory_mb`?"),
            (
                "code: {sources: [{local: a, ref: b}]}",
                "write an entry of the list for each",
            ),
            (
                "source: {local: a, ref: b}",
                "write `code: {sources: […]}` instead, with an entry for each",
            ),
            ("approval: policy:a b", "did you mean `policy:NAME`?"),
        ] {
            let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document");
            let errors = parse_with(&root, "m.yaml", BlockDocuments::EMPTY).errors;
            let hints: Vec<String> = errors.iter().filter_map(|error| error.hint()).collect();
            assert_eq!(hints.concat(), expected, "{text}");
        }
    }
}
