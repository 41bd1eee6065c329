//! Finds invalid schemas in `inputs` and `outputs` of a manifest.

use crate::runnable::manifest_error;
use reader::{Question, Refused, WaitLimit, judge};
use spec::document::{Node, Value};
use spec::io::ContractError;
use spec::io::keywords;
use spec::manifest::{ManifestError, Problem};
use spec::path::RelPath;

/// Returns an error for each of the two schemas that a run would refuse. `root` is the manifest `path`.
pub(crate) fn invalid_schemas(path: &RelPath, root: &Node) -> Vec<ManifestError> {
    let blocks = ["inputs", "outputs"].into_iter();
    blocks
        .filter_map(|block| {
            let node = root.get(block)?;
            // Reading the manifest reports a value that is not a map.
            if !matches!(node.value, Value::Map(_)) {
                return None;
            }
            let (pointer, problem) = problem_of(block, node)?;
            Some(manifest_error(root, path, &pointer, problem))
        })
        .collect()
}

fn problem_of(block: &'static str, node: &Node) -> Option<(String, Problem)> {
    let schema = node.to_json().ok()?;
    let question = Question {
        block,
        schema: &schema,
        document: None,
    };
    let (code, problem, hint) = match judge(&[question], WaitLimit::default()) {
        Ok(()) => return None,
        Err(Refused::Schema { error, .. }) => {
            if let Some((pointer, message, hint)) = explain(node, &error) {
                let code = error.code();
                let problem = Problem::NotRunnable {
                    code,
                    message,
                    hint,
                };
                return Some((format!("/{block}{pointer}"), problem));
            }
            (error.code(), error.to_string(), error.hint())
        }
        Err(Refused::Host(errno)) => {
            let problem = format!("it cannot be validated here: {errno}");
            ("schema_unread", problem, "try again")
        }
        Err(Refused::Document(_) | Refused::Cancelled(_)) => (
            "schema_unread",
            "it was not validated".to_owned(),
            "try again",
        ),
    };
    let problem = Problem::NotRunnable {
        code,
        message: format!("the schema of `{block}` is not accepted: {problem}"),
        hint: Some(hint.to_owned()),
    };
    Some((format!("/{block}"), problem))
}

/// Explains an unknown `type`, and a string in place of a schema or a list: pointer, message and hint.
fn explain<'error>(
    schema: &Node,
    error: &'error ContractError,
) -> Option<(&'error str, String, Option<String>)> {
    let ContractError::Invalid { pointer, .. } = error else {
        return None;
    };
    let steps: Vec<&str> = pointer.split('/').skip(1).collect();
    let node = steps.iter().copied().try_fold(schema, Node::child)?;
    let (message, hint) = keywords::explain_text(node, &steps)
        .or_else(|| keywords::explain_type(node).filter(|_| pointer.ends_with("/type")))?;
    Some((pointer, message, hint))
}
