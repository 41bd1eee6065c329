//! `define_io` (AIP-16): completes the four IO blocks and validates inputs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::access_mode::AccessMode;
use crate::define::{DefineError, read};
use crate::did_you_mean::nearest;
use crate::document::{excerpt, pointer_step};
use crate::io::FileEntry;
use crate::io::contract::{Contract, Mismatch};
use crate::io::fs_root::{FS_ROOT, FsRootError, declare_fs_root, inject_fs_root};
use crate::manifest::{IO_KEYS, ManifestError, Problem, did_you_mean};
use crate::parse_permit::ParsePermit;

const FUNCTION: &str = "define_io";

/// The complete IO blocks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IoHandle {
    /// JSON Schema of the structured input; default `{}`, which accepts everything. With declared
    /// files it has `_workflowFsRoot`.
    pub inputs: Value,
    pub outputs: Value,
    pub inputs_files: BTreeMap<String, FileContract>,
    pub outputs_files: BTreeMap<String, FileContract>,
    #[serde(skip)]
    input: Contract,
    #[serde(skip)]
    output: Contract,
}

/// A declared file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileContract {
    pub path: String,
    /// `ro` or `rw`: a convention between author and body.
    pub mode: Option<&'static str>,
    /// MIME type. Informational.
    pub content_type: Option<String>,
    pub required: bool,
}

/// Completes the four IO blocks of `definition`. It does no I/O.
///
/// With declared files, `_workflowFsRoot` is added to the properties of `inputs`, unless it is
/// declared.
///
/// # Errors
/// [`DefineError`]: an unknown key, an invalid file entry or token, `_workflowFsRoot` with a type
/// other than text, an invalid schema.
pub fn define_io(definition: &Value) -> Result<IoHandle, DefineError> {
    let entries = entries(definition)?;
    let blocks = read(FUNCTION, entries).map_err(without_place)?.io;
    let empty = || Value::Object(Map::new());
    let mut inputs = blocks.inputs.unwrap_or_else(empty);
    let outputs = blocks.outputs.unwrap_or_else(empty);
    if !(blocks.input_files.is_empty() && blocks.output_files.is_empty()) {
        declare_fs_root(&mut inputs).map_err(|_error| fs_root_type())?;
    }
    // The definition is the caller's.
    let permit = ParsePermit::for_trusted_text();
    let compile = |block: &'static str, schema: &Value| {
        Contract::compile(&permit, schema).map_err(|error| DefineError::Schema { block, error })
    };
    Ok(IoHandle {
        input: compile("inputs", &inputs)?,
        output: compile("outputs", &outputs)?,
        inputs,
        outputs,
        inputs_files: files(&blocks.input_files),
        outputs_files: files(&blocks.output_files),
    })
}

impl IoHandle {
    /// Validates an input and returns it unchanged, without coercion or defaults. With declared
    /// files, call [`IoHandle::with_fs_root`] first: the body gets its result.
    ///
    /// # Errors
    /// All mismatches. Missing and unknown fields have their own JSON Pointer.
    pub fn validate_input(&self, value: Value) -> Result<Value, Vec<Mismatch>> {
        if self.has_files() && !value.is_object() {
            return Err(vec![Mismatch {
                pointer: String::new(),
                message: FsRootError::InputNotObject.to_string(),
            }]);
        }
        self.input.validate_all(&value)?;
        Ok(value)
    }

    /// Validates an output, like [`IoHandle::validate_input`].
    pub fn validate_output(&self, value: Value) -> Result<Value, Vec<Mismatch>> {
        self.output.validate_all(&value)?;
        Ok(value)
    }

    /// Sets `_workflowFsRoot` to `root` if files are declared, else removes it. A value from the
    /// caller is never used.
    ///
    /// # Errors
    /// [`FsRootError::InputNotObject`].
    pub fn with_fs_root(&self, mut value: Value, root: &str) -> Result<Value, FsRootError> {
        if self.has_files() {
            inject_fs_root(&mut value, root)?;
        } else if let Some(object) = value.as_object_mut() {
            object.shift_remove(FS_ROOT);
        }
        Ok(value)
    }

    fn has_files(&self) -> bool {
        !(self.inputs_files.is_empty() && self.outputs_files.is_empty())
    }
}

/// Refuses other keys of a manifest.
fn entries(definition: &Value) -> Result<Map<String, Value>, ManifestError> {
    let refuse = |pointer: String, problem: Problem| ManifestError {
        file: FUNCTION.to_owned(),
        place: None,
        pointer: Some(pointer),
        problem: Box::new(problem),
    };
    let Some(entries) = definition.as_object() else {
        let problem = Problem::WrongType {
            found: excerpt(&definition.to_string()),
            expected: "a map".to_owned(),
            hint: Some("give the four blocks, each of them optional".to_owned()),
        };
        return Err(refuse(String::new(), problem));
    };
    match entries.keys().find(|key| !IO_KEYS.contains(&key.as_str())) {
        None => Ok(entries.clone()),
        Some(key) => {
            let problem = Problem::UnknownKey {
                key: excerpt(key),
                known: IO_KEYS.to_vec(),
                hint: nearest(key, IO_KEYS).map(did_you_mean),
            };
            Err(refuse(format!("/{}", pointer_step(key)), problem))
        }
    }
}

/// Removes the place: the definition has no source text.
fn without_place(mut error: ManifestError) -> ManifestError {
    error.place = None;
    error
}

fn fs_root_type() -> ManifestError {
    ManifestError {
        file: FUNCTION.to_owned(),
        place: None,
        pointer: Some(format!("/inputs/properties/{FS_ROOT}")),
        problem: Box::new(Problem::FsRootType),
    }
}

fn files(entries: &[FileEntry]) -> BTreeMap<String, FileContract> {
    let contract = |entry: &FileEntry| FileContract {
        path: entry.path.to_string(),
        mode: entry.mode.map(AccessMode::short),
        content_type: entry.content_type.clone(),
        required: entry.required,
    };
    entries
        .iter()
        .map(|entry| (entry.key.to_string(), contract(entry)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(definition: &Value) -> (String, String) {
        match define_io(definition) {
            Ok(handle) => panic!("accepted: {handle:?}"),
            Err(error) => (error.code().to_owned(), error.pointer()),
        }
    }

    #[test]
    fn an_empty_definition_has_four_empty_blocks() {
        let handle = define_io(&json!({})).expect("defined");
        assert_eq!(
            serde_json::to_value(&handle).expect("written"),
            json!({"inputs": {}, "outputs": {}, "inputsFiles": {}, "outputsFiles": {}})
        );
        // Empty maps and absent fields are equivalent.
        let empty = json!({"inputsFiles": {}, "outputsFiles": {}, "inputs": {}});
        let handle = define_io(&empty).expect("defined");
        assert_eq!(handle.inputs, json!({}));
    }

    #[test]
    fn file_entries_are_complete_and_keep_their_tokens() {
        let handle = define_io(&json!({
            "inputsFiles": {"data.csv": {"path": "in/data.csv", "mode": "ro"}},
            "outputsFiles": {"report.pdf": {
                "path": "out/<toolId>/<runId>-<isoDate>.pdf",
                "contentType": "application/pdf",
                "required": true,
            }},
        }))
        .expect("defined");
        assert_eq!(
            serde_json::to_value(&handle).expect("written"),
            json!({
                "inputs": {"properties": {"_workflowFsRoot": {"type": "string"}}},
                "outputs": {},
                "inputsFiles": {"data.csv": {
                    "path": "in/data.csv", "mode": "ro", "contentType": null, "required": false,
                }},
                "outputsFiles": {"report.pdf": {
                    "path": "out/<toolId>/<runId>-<isoDate>.pdf",
                    "mode": null, "contentType": "application/pdf", "required": true,
                }},
            })
        );
    }

    #[test]
    fn the_scratch_root_is_declared_with_files_unless_it_is_declared() {
        let files = json!({"a": {"path": "a"}});
        let strict =
            json!({"type": "object", "additionalProperties": false, "properties": {"n": {}}});
        for key in ["inputsFiles", "outputsFiles"] {
            let handle = define_io(&json!({"inputs": strict, key: files})).expect("defined");
            assert_eq!(
                handle.inputs["properties"][FS_ROOT],
                json!({"type": "string"})
            );
        }
        let handle = define_io(&json!({"inputs": strict})).expect("defined");
        assert_eq!(handle.inputs, strict);
        let own = json!({"properties": {FS_ROOT: {"type": "string", "minLength": 2}}});
        let handle = define_io(&json!({"inputs": own, "inputsFiles": files})).expect("defined");
        assert_eq!(handle.inputs, own);
        for declared in [
            json!({"type": "number"}),
            json!({"type": ["string", "null"]}),
        ] {
            let definition =
                json!({"inputs": {"properties": {FS_ROOT: declared}}, "outputsFiles": files});
            let expected = (
                "fs_root_declared".to_owned(),
                "/inputs/properties/_workflowFsRoot".to_owned(),
            );
            assert_eq!(refused(&definition), expected);
        }
    }

    #[test]
    fn a_refusal_names_the_place_in_the_definition() {
        for (definition, code, pointer) in [
            (json!([]), "wrong_type", ""),
            (json!({"input": {}}), "unknown_key", "/input"),
            (json!({"run": "x.py"}), "unknown_key", "/run"),
            (json!({"inputs": []}), "wrong_type", "/inputs"),
            (
                json!({"inputs": {"type": "objekt"}}),
                "schema_invalid",
                "/inputs",
            ),
            (
                json!({"outputs": {"$ref": "https://x/y"}}),
                "schema_invalid",
                "/outputs",
            ),
            (
                json!({"inputsFiles": {"a": {}}}),
                "missing_key",
                "/inputsFiles/a",
            ),
            (
                json!({"inputsFiles": {"a/b": {"path": "x"}}}),
                "file_key_refused",
                "/inputsFiles/a~1b",
            ),
            (
                json!({"inputsFiles": {"a": {"path": "../x"}}}),
                "path_refused",
                "/inputsFiles/a/path",
            ),
            (
                json!({"outputsFiles": {"a": {"path": "<runID>/x"}}}),
                "token_unknown",
                "/outputsFiles/a/path",
            ),
            (
                json!({"outputsFiles": {"a": {"path": "x", "mode": "wr"}}}),
                "unknown_value",
                "/outputsFiles/a/mode",
            ),
        ] {
            assert_eq!(
                refused(&definition),
                (code.to_owned(), pointer.to_owned()),
                "{definition}"
            );
        }
        let error = define_io(&json!({"inputFiles": {}})).expect_err("a misspelt key");
        assert_eq!(error.hint().as_deref(), Some("did you mean `inputsFiles`?"));
    }

    fn pointers(handle: &IoHandle, value: Value) -> Vec<String> {
        match handle.validate_input(value.clone()) {
            Ok(same) => {
                assert_eq!(same, value);
                Vec::new()
            }
            Err(found) => found.into_iter().map(|one| one.pointer).collect(),
        }
    }

    #[test]
    fn each_invalid_field_has_its_pointer_and_nothing_is_coerced() {
        let handle = define_io(&json!({"inputs": {
            "type": "object",
            "required": ["name", "count"],
            "additionalProperties": false,
            "properties": {
                "name": {"type": "string"},
                "count": {"type": "integer", "default": 1},
                "a/b": {"type": "array", "items": {"type": "number"}},
                "deep": {"type": "object", "required": ["x"]},
            },
        }}))
        .expect("defined");
        for (value, expected) in [
            (json!({"name": "n", "count": 1}), &[][..]),
            (json!({"name": "n", "count": "1"}), &["/count"]),
            (json!({}), &["/count", "/name"]),
            (
                json!({"name": 1, "count": 1.5, "a/b": [1, "2", null], "deep": {}, "zz": 1, "y": 2}),
                &[
                    "/a~1b/1", "/a~1b/2", "/count", "/deep/x", "/name", "/y", "/zz",
                ],
            ),
            (json!([]), &[""]),
            (json!(null), &[""]),
        ] {
            let mut found = pointers(&handle, value.clone());
            found.sort_unstable();
            assert_eq!(found, expected, "{value}");
        }
        let many: Map<String, Value> = (0..50)
            .map(|index| (format!("k{index}"), json!(1)))
            .collect();
        assert_eq!(pointers(&handle, Value::Object(many)).len(), 52);
    }

    #[test]
    fn a_scratch_root_from_the_caller_is_replaced_or_removed() {
        let with_files = define_io(&json!({"inputsFiles": {"a": {"path": "a"}}})).expect("defined");
        let forged = json!({"_workflowFsRoot": 7, "n": 1});
        assert_eq!(pointers(&with_files, forged.clone()), ["/_workflowFsRoot"]);
        let input = with_files
            .with_fs_root(forged.clone(), "/scratch")
            .expect("an object");
        assert_eq!(input, json!({"_workflowFsRoot": "/scratch", "n": 1}));
        assert!(pointers(&with_files, input).is_empty());
        assert_eq!(pointers(&with_files, json!([1])), [""]);
        assert_eq!(
            with_files.with_fs_root(json!([1]), "/scratch"),
            Err(FsRootError::InputNotObject)
        );
        let without_files = define_io(&json!({})).expect("defined");
        assert_eq!(
            without_files.with_fs_root(forged, "/scratch"),
            Ok(json!({"n": 1}))
        );
        assert!(pointers(&without_files, json!([1])).is_empty());
    }

    #[test]
    fn an_output_is_validated_and_not_coerced() {
        let handle = define_io(&json!({"outputs": {"properties": {"n": {"type": "integer"}}}}))
            .expect("defined");
        assert!(handle.validate_output(json!({"n": 1})).is_ok());
        let found = handle.validate_output(json!({"n": "1"})).expect_err("text");
        assert_eq!(found[0].pointer, "/n");
    }
}
