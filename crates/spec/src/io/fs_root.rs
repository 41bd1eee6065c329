//! `_workflowFsRoot`: the directory of the scratch files, in the structured input of the body.

use serde_json::{Map, Value, json};

pub(crate) const FS_ROOT: &str = "_workflowFsRoot";

/// Why `_workflowFsRoot` cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FsRootError {
    #[error("`_workflowFsRoot` is declared with a type other than string")]
    DeclaredType,
    #[error("the structured input is not an object, so `_workflowFsRoot` cannot be added")]
    InputNotObject,
}

/// Adds `_workflowFsRoot` to `inputs.properties` as an optional string, unless it is declared.
///
/// # Errors
/// [`FsRootError::DeclaredType`]: it is declared with a type other than `string`.
pub fn declare_fs_root(schema: &mut Value) -> Result<(), FsRootError> {
    let Some(schema) = schema.as_object_mut() else {
        return Ok(());
    };
    let properties = schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(properties) = properties.as_object_mut() else {
        return Ok(());
    };
    match properties.get(FS_ROOT) {
        None => {
            properties.insert(FS_ROOT.to_owned(), json!({"type": "string"}));
            Ok(())
        }
        Some(declared) if accepts_string(declared) => Ok(()),
        Some(_) => Err(FsRootError::DeclaredType),
    }
}

/// Sets `_workflowFsRoot` to `root`. A value from the caller is overwritten.
pub fn inject_fs_root(input: &mut Value, root: &str) -> Result<(), FsRootError> {
    let object = input.as_object_mut().ok_or(FsRootError::InputNotObject)?;
    object.insert(FS_ROOT.to_owned(), Value::from(root));
    Ok(())
}

/// A declaration without a type accepts text too.
fn accepts_string(declared: &Value) -> bool {
    match declared.get("type") {
        Some(name) => name.as_str() == Some("string"),
        None => declared != &Value::Bool(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_from_the_caller_is_overwritten() {
        let mut input = json!({"_workflowFsRoot": "/etc", "a": 1});
        inject_fs_root(&mut input, "/scratch").expect("an object");
        assert_eq!(input, json!({"_workflowFsRoot": "/scratch", "a": 1}));
        assert_eq!(
            inject_fs_root(&mut json!([1]), "/scratch"),
            Err(FsRootError::InputNotObject)
        );
    }

    #[test]
    fn a_declaration_is_added_but_never_replaced() {
        let mut schema = json!({"type": "object", "additionalProperties": false});
        declare_fs_root(&mut schema).expect("declared");
        assert_eq!(schema["properties"][FS_ROOT], json!({"type": "string"}));
        let mut schema = json!({"properties": {FS_ROOT: {"type": "string", "minLength": 1}}});
        let before = schema.clone();
        declare_fs_root(&mut schema).expect("kept");
        assert_eq!(schema, before);
        for declared in [
            json!({"type": "number"}),
            json!({"type": ["string", "null"]}),
            json!(false),
        ] {
            let mut schema = json!({"properties": {FS_ROOT: declared}});
            assert_eq!(declare_fs_root(&mut schema), Err(FsRootError::DeclaredType));
        }
    }
}
