//! The interpreters of this host.

use crate::run::planning::programs::lookup;
use crate::run::planning::programs::node_version::NodeVersions;
use spec::detection::{Interpreters, NodeVersion};
use spec::host_policy::HostPolicy;
use spec::request::Request;
use spec::run_form::Run;
use spec::typescript::NpmRegistry;

/// Every interpreter of the run forms.
pub(super) const NAMES: [&str; 6] = ["bash", "node", "npx", "python", "python3", "tsx"];

/// Finds the interpreters that the body will have: on the fixed PATH, or in a prefix of the policy or
/// on the caller's PATH, from which a program is mounted. Looks only for those that `run` may need.
///
/// The version of Node is read only for TypeScript.
#[must_use]
pub(in crate::run::planning) fn find(
    request: &Request,
    policy: &HostPolicy,
    run: &Run,
    versions: &NodeVersions,
    npm_registry: NpmRegistry,
) -> Interpreters {
    let candidates = candidates_for(run);
    let locate = |name: &str| {
        candidates
            .contains(&name)
            .then(|| lookup::locate_usable(name.as_ref(), &request.caller, &policy.interpreters))
            .flatten()
    };
    let has = |name: &str| locate(name).is_some();
    let node = locate("node").map(|path| {
        let unknown = NodeVersion { major: 0, minor: 0 };
        if !is_typescript(run) {
            return unknown;
        }
        versions.get(&path).unwrap_or(unknown)
    });
    Interpreters {
        node,
        python: has("python"),
        python3: has("python3"),
        bash: has("bash"),
        tsx: has("tsx"),
        npx: has("npx"),
        npm_registry,
    }
}

/// Interpreters that `run` may need. A text may be a file or a shell command, so it always includes
/// bash.
pub(in crate::run) fn candidates_for(run: &Run) -> &'static [&'static str] {
    match run {
        Run::Shell(_) => &["bash"],
        Run::Array(words) | Run::Exec(words) => match words.first().map(String::as_str) {
            Some("python") => &["python", "python3"],
            _ => &[],
        },
        Run::Text(text) | Run::File(text) => match text.rsplit_once('.') {
            Some((_, "py")) => &["bash", "python", "python3"],
            Some((_, "ts" | "tsx" | "mts" | "js" | "mjs" | "cjs")) => {
                &["bash", "node", "tsx", "npx"]
            }
            _ => &["bash"],
        },
    }
}

fn is_typescript(run: &Run) -> bool {
    match run {
        Run::Text(text) | Run::File(text) => [".ts", ".tsx", ".mts"]
            .iter()
            .any(|ending| text.ends_with(ending)),
        Run::Array(_) | Run::Exec(_) | Run::Shell(_) => false,
    }
}
