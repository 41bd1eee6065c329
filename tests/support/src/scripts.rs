//! Bundles with one shell script, and assertions about reports.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Done, Ground};

impl Ground {
    /// A bundle with this manifest whose `body.sh` is `body`.
    pub fn script(&self, manifest: &str, body: &str) -> PathBuf {
        self.bundle(&[("manifest.yaml", manifest), ("body.sh", body)])
    }

    /// Runs [`Ground::script`] with inputs and outputs in the workspace of this ground.
    pub fn exec_script(&self, flags: &[&str], manifest: &str, body: &str) -> Done {
        let workspace = self.workspace();
        let flags: Vec<&str> = ["--workspace", text(&workspace)]
            .iter()
            .chain(flags)
            .copied()
            .collect();
        self.exec(&flags, &self.script(manifest, body))
    }
}

impl Done {
    /// Whether the report has a warning with this code.
    pub fn warns(&self, code: &str) -> bool {
        let warnings = self.report["warnings"].as_array();
        warnings.is_some_and(|list| list.iter().any(|warning| warning["code"] == code))
    }

    /// The report of the output `key`.
    pub fn output(&self, key: &str) -> &Value {
        self.report["outputs"]
            .as_array()
            .and_then(|list| list.iter().find(|output| output["key"] == key))
            .unwrap_or(&Value::Null)
    }

    /// Asserts that the message of the error contains `part`.
    #[track_caller]
    pub fn assert_message(&self, part: &str) -> &Self {
        let message = self.report["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "no `{part}` in {message:?}");
        self
    }

    /// Asserts that the hint of the error contains `part`.
    #[track_caller]
    pub fn assert_hint(&self, part: &str) -> &Self {
        let hint = self.report["error"]["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(part), "no `{part}` in {hint:?}: {self:#?}");
        self
    }

    /// Asserts that the body did not run and that there is no output.
    #[track_caller]
    pub fn assert_nothing_ran(&self) -> &Self {
        assert!(self.report["exit"].is_null(), "{self:#?}");
        assert!(self.stdout.is_empty(), "{self:#?}");
        self
    }
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}
