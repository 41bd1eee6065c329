//! Reports all errors of a manifest, its block documents and its code-workspaces. It reads ignore
//! files, but no other byte of a source.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::BundleError;
use crate::files::DirectoryFiles;
use crate::folders::folder_at;
use crate::gather::{GatherOptions, gather};
use crate::layer::{Layer, LayerForm};
use crate::manifests::{ManifestText, Registry, blocks_of, read_text_of};
use crate::origin::{SourceKind, SourceOrigin};
use crate::resolve::{
    REFERENCE_DEPTH_MAX, Resolution, ResolveRequest, folder_name, referenced_manifest, resolve,
};
use crate::runnable::{check_manifest, check_run, read_manifest_of};
use reader::{Question, Refused, judge};
use sources::github::{FetchedTree, GitHub, GitHubError, RefShape, ResolvedRef};
use spec::check::{CheckError, CheckReport};
use spec::document::{self, Node, Value, excerpt};
use spec::host_policy::HostPolicy;
use spec::io::ContractError;
use spec::io::keywords::{self, Meaningless};
use spec::manifest::{
    CodeReference, ERRORS_MAX, Format, Kind, Manifest, ManifestError, code_references,
    github_references, parse_io, parse_with,
};
use spec::path::{RelPath, escape};
use spec::report::{WarningReport, with_causes};

const MANIFESTS_MAX: usize = 1_000;

/// Checks the manifest `manifest` of the workspace and every document that it refers to.
#[must_use]
pub fn check(
    request: ResolveRequest<'_>,
    files: &DirectoryFiles,
    policy: &HostPolicy,
) -> CheckReport {
    let mut checker = Checker {
        files,
        registry: request.registry,
        require_pin: request.require_pin,
        open: Vec::new(),
        seen: BTreeMap::new(),
        report: CheckReport::default(),
        is_cut: false,
    };
    checker.manifest(request.manifest);
    let Checker {
        mut report, is_cut, ..
    } = checker;
    if is_cut {
        report.errors.push(CheckError {
            code: "more_errors".to_owned(),
            message: "other code-workspaces were not looked at".to_owned(),
            hint: Some("mend those that are listed first".to_owned()),
            ..CheckError::default()
        });
    }
    // Contradictions between the blocks of a manifest are not visible in a single block document.
    let is_part = block_of(request.manifest).is_some() || is_io(request.manifest);
    if report.errors.is_empty() && !is_part {
        match resolve(request, files) {
            Ok(resolution) => {
                if let Err(error) = runnable(&resolution, files, policy) {
                    add_new(&mut report.errors, of_compose(&error));
                }
                report.warnings.extend(resolution.warnings);
            }
            Err(error) => add_new(&mut report.errors, of_compose(&error)),
        }
    }
    let mut told = BTreeSet::new();
    let is_new = |one: &WarningReport| told.insert((one.code.clone(), one.message.clone()));
    report.warnings.retain(is_new);
    report.valid = report.errors.is_empty();
    report
}

fn block_of(path: &RelPath) -> Option<&'static str> {
    match path.file_name() {
        b"SANDBOX.md" => Some("sandbox"),
        b"RUNNER.md" => Some("runner"),
        b"SECRETS.md" => Some("secrets"),
        _ => None,
    }
}

fn is_io(path: &RelPath) -> bool {
    path.file_name() == b"IO.md"
}

/// Reports what `bundle` or `exec` would refuse. With repository sources the files are unknown, so
/// a missing file of `run` is not reported.
fn runnable(
    resolution: &Resolution,
    files: &DirectoryFiles,
    policy: &HostPolicy,
) -> Result<(), BundleError> {
    let manifest = read_manifest_of(resolution)?;
    check_manifest(resolution, &manifest, &policy.images)?;
    let is_here = |layer: &&Layer| !matches!(layer.form, LayerForm::GitHub(_));
    let layers: Vec<Layer> = resolution.layers.iter().filter(is_here).cloned().collect();
    let options = GatherOptions {
        caps: policy.unpack,
        follow_symlinks: false,
        workspace: None,
        exclude: Vec::new(),
    };
    let gathered = gather(&layers, None, files, &Offline, &options)?;
    match layers.len() == resolution.layers.len() {
        true => check_run(resolution, &manifest, &gathered.tree),
        false => Ok(()),
    }
}

struct Offline;

impl GitHub for Offline {
    fn resolve_ref(&self, repository: &str, reference: &str) -> Result<ResolvedRef, GitHubError> {
        Err(GitHubError::NotLocked {
            repository: escape(repository.as_bytes()),
            reference: escape(reference.as_bytes()),
        })
    }

    fn fetch(
        &self,
        repository: &str,
        sha: &str,
        _path: Option<&RelPath>,
    ) -> Result<FetchedTree, GitHubError> {
        Err(GitHubError::NotLocked {
            repository: escape(repository.as_bytes()),
            reference: escape(sha.as_bytes()),
        })
    }
}

struct Checker<'call> {
    files: &'call DirectoryFiles,
    registry: &'call Registry,
    require_pin: bool,
    /// Stack of the manifests being checked, outermost first.
    open: Vec<RelPath>,
    seen: BTreeMap<RelPath, bool>,
    report: CheckReport,
    is_cut: bool,
}

impl Checker<'_> {
    fn error(&mut self, error: &BundleError) {
        add_new(&mut self.report.errors, of_compose(error));
    }

    fn manifest(&mut self, path: &RelPath) {
        // `true` prevents a second error about its kind.
        self.seen.insert(path.clone(), true);
        if let Some(block) = block_of(path).filter(|_| self.open.is_empty()) {
            return self.block(path, block);
        }
        let text = match read_text_of(self.files, path, self.registry) {
            Ok(text) => text,
            Err(error) => return self.error(&error),
        };
        let ManifestText { root, blocks } = &text;
        let says = |key: &str, word: &str| {
            let value = root.get(key).map(|node| &node.value);
            matches!(value, Some(Value::Text(text)) if text == word)
        };
        let may_be_used = says("kind", "code-workspace") || says("schema", "code/v2");
        self.seen.insert(path.clone(), may_be_used);
        let parsed = match is_io(path) {
            true => parse_io(root, &path.to_string()),
            false => parse_with(root, &path.to_string(), blocks),
        };
        let errors = parsed.errors.iter().map(CheckError::from).collect();
        add_new(&mut self.report.errors, errors);
        let is_own = self.open.is_empty();
        if let Some(manifest) = &parsed.manifest {
            self.told(path, root, manifest, is_own);
        }
        self.schemas(path, root);
        self.pins(path, root);
        self.open.push(path.clone());
        for reference in code_references(root) {
            if ERRORS_MAX < self.report.errors.len() {
                self.is_cut = true;
                break;
            }
            self.reference(path, &reference);
        }
        self.open.pop();
    }

    /// Reads a block document as a manifest beside it would.
    fn block(&mut self, path: &RelPath, block: &str) {
        let name = serde_json::Value::from(escape(path.file_name()));
        let text = format!("{block}: {{file: {name}}}");
        let root = match document::parse(text.as_bytes(), Format::Yaml) {
            Ok(root) => root,
            Err(error) => {
                let error = ManifestError::of_document(&path.to_string(), error);
                return self.error(&BundleError::Manifest(vec![error]));
            }
        };
        let blocks = blocks_of(self.files, path, &root, self.registry);
        let parsed = parse_with(&root, &path.to_string(), &blocks);
        let errors = parsed.errors.iter().map(CheckError::from).collect();
        add_new(&mut self.report.errors, errors);
        if let Some(manifest) = &parsed.manifest {
            let warnings = manifest.warnings.iter().cloned();
            self.report.warnings.extend(warnings);
            self.report.name = Some(path.to_string());
        }
    }

    fn told(&mut self, path: &RelPath, root: &Node, manifest: &Manifest, is_own: bool) {
        let warnings = &mut self.report.warnings;
        warnings.extend(manifest.warnings.iter().cloned());
        for refusal in &manifest.refusals {
            // `bundle` resolves the sources.
            if refusal.code() != "code_unresolved" {
                warnings.push(WarningReport::new(refusal.code(), refusal.to_string()));
            }
        }
        let elsewhere = |pointer: &String| match is_own || pointer.contains('#') {
            true => pointer.clone(),
            false => format!("{path}#{pointer}"),
        };
        let ignored = manifest.ignored.iter().map(elsewhere);
        self.report.ignored.extend(ignored);
        if !is_own {
            return;
        }
        let stated = manifest.name.as_ref().or(manifest.id.as_ref());
        self.report.name =
            Some(stated.map_or_else(|| folder_name(path), |name| escape(name.as_bytes())));
        if is_io(path) {
            self.report.name = Some(path.to_string());
        } else if manifest.run.is_none() && manifest.kind != Kind::CodeWorkspace {
            let message = format!(
                "{path}:{}: `run` is missing: `exec` needs --run",
                root.place
            );
            let warning = WarningReport::new("run_missing", message);
            self.report.warnings.push(warning);
        }
    }

    fn schemas(&mut self, path: &RelPath, root: &Node) {
        for block in ["inputs", "outputs"] {
            let Some(node) = root.get(block) else {
                continue;
            };
            // Reading the manifest reports a value that is not a map.
            if !matches!(node.value, Value::Map(_)) {
                continue;
            }
            for word in keywords::meaningless(node) {
                let Meaningless { key, advice } = word;
                let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
                let message = format!(
                    "{path}:{}: `{}` of `{block}` is not a keyword of JSON Schema and checks \
                     nothing{advice}",
                    key.place,
                    excerpt(&key.name)
                );
                let warning = WarningReport::new("schema_keyword_unknown", message);
                self.report.warnings.push(warning);
            }
            let Ok(schema) = node.to_json() else {
                continue;
            };
            let question = Question {
                block,
                schema: &schema,
                document: None,
            };
            let (code, problem, hint) = match judge(&[question], None, None) {
                Ok(()) => continue,
                Err(Refused::Schema { error, .. }) => {
                    if let Some(wrong) = wrong_type_of(path, block, node, &error) {
                        add_new(&mut self.report.errors, vec![wrong]);
                        continue;
                    }
                    (error.code(), error.to_string(), error.hint())
                }
                Err(other) => ("schema_unread", format!("{other:?}"), "try again"),
            };
            let error = CheckError {
                code: code.to_owned(),
                message: format!("`{block}` is not a schema that is accepted: {problem}"),
                file: Some(path.to_string()),
                line: Some(node.place.line),
                column: Some(node.place.column),
                pointer: Some(format!("/{block}")),
                hint: Some(hint.to_owned()),
            };
            add_new(&mut self.report.errors, vec![error]);
        }
    }

    fn pins(&mut self, path: &RelPath, root: &Node) {
        if !self.require_pin {
            return;
        }
        for found in github_references(root) {
            let shape = RefShape::of(found.reference);
            if shape != RefShape::Commit {
                let problem = BundleError::PinRequired {
                    repository: escape(found.repository.as_bytes()),
                    reference: escape(found.reference.as_bytes()),
                    shape,
                };
                let origin = origin(path, found.node, found.pointer, SourceKind::GitHub);
                self.error(&problem.at(&origin));
            }
        }
    }

    fn reference(&mut self, holder: &RelPath, reference: &CodeReference<'_>) {
        let CodeReference {
            path,
            beside,
            node,
            pointer,
        } = reference;
        let origin = origin(holder, node, pointer.clone(), SourceKind::Reference);
        let base = holder.parent().filter(|_| *beside);
        let found = folder_at(base.as_ref(), path)
            .and_then(|folder| referenced_manifest(self.files, folder.as_ref()))
            .map_err(|error| error.at(&origin));
        let (manifest, warnings) = match found {
            Ok(found) => found,
            Err(error) => return self.error(&error),
        };
        let names = self.open.iter().map(folder_name);
        let problem = if let Some(first) = self.open.iter().position(|open| *open == manifest) {
            let chain = names.skip(first).chain([folder_name(&manifest)]).collect();
            Some(BundleError::Cycle { chain })
        } else if REFERENCE_DEPTH_MAX < self.open.len() {
            Some(BundleError::Depth {
                chain: names.chain([folder_name(&manifest)]).collect(),
                limit: REFERENCE_DEPTH_MAX,
            })
        } else if MANIFESTS_MAX <= self.seen.len() && !self.seen.contains_key(&manifest) {
            let limit = MANIFESTS_MAX;
            Some(BundleError::TooManySources { limit })
        } else {
            None
        };
        if let Some(problem) = problem {
            return self.error(&problem.at(&origin));
        }
        if !self.seen.contains_key(&manifest) {
            self.report.warnings.extend(warnings);
            self.manifest(&manifest);
        }
        if self.seen.get(&manifest) == Some(&false) {
            let problem = BundleError::NotCodeWorkspace {
                path: manifest,
                found: "of another kind",
            };
            self.error(&problem.at(&origin));
        }
    }
}

/// Reports an unknown `type`, and a string in place of a schema or a list.
fn wrong_type_of(
    path: &RelPath,
    block: &str,
    schema: &Node,
    error: &ContractError,
) -> Option<CheckError> {
    let ContractError::Invalid { pointer, .. } = error else {
        return None;
    };
    let steps: Vec<&str> = pointer.split('/').skip(1).collect();
    let node = steps.iter().copied().try_fold(schema, Node::child)?;
    let (message, hint) = keywords::wrong_text(node, &steps)
        .or_else(|| keywords::wrong_type(node).filter(|_| pointer.ends_with("/type")))?;
    Some(CheckError {
        code: error.code().to_owned(),
        message,
        file: Some(path.to_string()),
        line: Some(node.place.line),
        column: Some(node.place.column),
        pointer: Some(format!("/{block}{pointer}")),
        hint,
    })
}

fn origin(file: &RelPath, node: &Node, pointer: String, kind: SourceKind) -> SourceOrigin {
    SourceOrigin {
        file: file.to_string(),
        place: Some(node.place),
        pointer,
        kind,
    }
}

fn add_new<T: PartialEq>(list: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !list.contains(&one) {
            list.push(one);
        }
    }
}

/// Converts to the errors of the report: one for each error of a manifest.
#[must_use]
pub fn of_compose(error: &BundleError) -> Vec<CheckError> {
    let plain = |message: String| CheckError {
        code: error.code().to_owned(),
        message,
        hint: error.hint(),
        ..CheckError::default()
    };
    match error {
        BundleError::Manifest(errors) => errors.iter().map(CheckError::from).collect(),
        BundleError::At { at, error } => vec![CheckError {
            file: Some(at.file.clone()),
            line: at.place.map(|place| place.line),
            column: at.place.map(|place| place.column),
            pointer: Some(at.pointer.clone()),
            ..plain(with_causes(error.as_ref()))
        }],
        other => vec![plain(with_causes(other))],
    }
}
