//! Reports all errors of a manifest, its block documents and its code-workspaces. Of the files of sources
//! it reads only ignore files and possible credentials.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::BundleError;
use crate::files::DirectoryFiles;
use crate::folders::folder_at;
use crate::gather::{GatherOptions, gather};
use crate::layer::{Layer, LayerForm};
use crate::manifests::{
    ManifestDocuments, RESOLVED_MANIFEST, Registry, blocks_of, read_documents, text_of,
};
use crate::origin::{SourceKind, SourceOrigin};
use crate::resolve::{
    Resolution, ResolveRequest, SOURCES_MAX, check_chain, folder_name, referenced_manifest, resolve,
};
use crate::runnable::{check_manifest, check_run, parse_resolved};
use crate::schemas::invalid_schemas;
use sources::github::RefShape;
use spec::check::{CheckError, CheckReport, add_source_lines};
use spec::document::{self, Node, Value, excerpt};
use spec::host_policy::HostPolicy;
use spec::io::keywords::{self, UnknownKeyword};
use spec::manifest::{
    CodeReference, ERRORS_MAX, Format, Kind, Manifest, ManifestError, code_references,
    github_references, parse_io, parse_with,
};
use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape};
use spec::report::{WarningReport, with_causes};

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
        is_incomplete: false,
    };
    checker.check_document(request.manifest);
    let Checker {
        mut report,
        is_incomplete,
        ..
    } = checker;
    if is_incomplete {
        report.errors.push(CheckError {
            code: "more_errors".to_owned(),
            message: "other code-workspaces were not checked".to_owned(),
            hint: Some("correct the listed errors first".to_owned()),
            ..CheckError::default()
        });
    }
    // Contradictions between the blocks of a manifest are not visible in a single block document.
    let is_part = block_of(request.manifest).is_some() || is_io(request.manifest);
    if report.errors.is_empty() && !is_part {
        match resolve(request, files) {
            Ok(resolution) => {
                if let Err(error) = check_runnable(&resolution, files, policy) {
                    add_new(&mut report.errors, errors_of(&error));
                }
                report.warnings.extend(resolution.warnings);
            }
            Err(error) => add_new(&mut report.errors, errors_of(&error)),
        }
    }
    let mut reported = BTreeSet::new();
    let is_new = |new: &WarningReport| reported.insert((new.code.clone(), new.message.clone()));
    report.warnings.retain(is_new);
    report.valid = report.errors.is_empty();
    add_source_lines(&mut report.errors, &|file| text_of(files, file));
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

/// Whether `runner bundle` wrote the manifest.
fn is_resolved(path: &RelPath) -> bool {
    let folder = path.as_bytes().strip_suffix(RESOLVED_MANIFEST.as_bytes());
    folder.is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"))
}

fn is_io(path: &RelPath) -> bool {
    path.file_name() == b"IO.md"
}

/// Reports what `bundle` or `exec` would refuse. With repository sources the files are unknown, so
/// a missing file of `run` is not reported.
fn check_runnable(
    resolution: &Resolution,
    files: &DirectoryFiles,
    policy: &HostPolicy,
) -> Result<(), BundleError> {
    let manifest = parse_resolved(resolution)?;
    check_manifest(resolution, &manifest, &policy.images)?;
    let options = GatherOptions {
        caps: policy.unpack,
        follow_symlinks: false,
        workspace: None,
        exclude: Vec::new(),
        lock: None,
    };
    let gathered = gather(&resolution.layers, None, files, None, &options)?;
    let is_repository = |layer: &Layer| matches!(layer.form, LayerForm::GitHub(_));
    if resolution.layers.iter().any(is_repository) {
        return Ok(());
    }
    check_run(resolution, &manifest, &gathered.tree)
}

struct Checker<'call> {
    files: &'call DirectoryFiles,
    registry: &'call Registry,
    require_pin: bool,
    /// Stack of the manifests being checked, outermost first.
    open: Vec<RelPath>,
    /// Whether each checked manifest is a code-workspace.
    seen: BTreeMap<RelPath, bool>,
    report: CheckReport,
    /// Some code-workspaces were not checked.
    is_incomplete: bool,
}

impl Checker<'_> {
    fn add(&mut self, errors: impl IntoIterator<Item = CheckError>) {
        add_new(&mut self.report.errors, errors);
    }

    fn add_error(&mut self, error: &BundleError) {
        self.add(errors_of(error));
    }

    fn check_document(&mut self, path: &RelPath) {
        // `true` until its kind is known: prevents a second error about the kind.
        self.seen.insert(path.clone(), true);
        if let Some(block) = block_of(path).filter(|_| self.open.is_empty()) {
            return self.check_block(path, block);
        }
        let documents = match read_documents(self.files, path, self.registry) {
            Ok(documents) => documents,
            Err(error) => return self.add_error(&error),
        };
        let ManifestDocuments { root, blocks } = &documents;
        let has_text = |key: &str, expected: &str| {
            let value = root.get(key).map(|node| &node.value);
            matches!(value, Some(Value::Text(text)) if text == expected)
        };
        let is_code_workspace = has_text("kind", "code-workspace") || has_text("schema", "code/v2");
        self.seen.insert(path.clone(), is_code_workspace);
        let parsed = if is_io(path) {
            parse_io(root, &path.to_string())
        } else {
            parse_with(root, &path.to_string(), blocks)
        };
        self.add(parsed.errors.iter().map(CheckError::from));
        self.report.warnings.extend(parsed.warnings);
        let is_outermost = self.open.is_empty();
        if let Some(manifest) = &parsed.manifest {
            self.report_manifest(path, root, manifest, is_outermost);
        }
        self.check_schemas(path, root);
        self.check_pins(path, root);
        self.open.push(path.clone());
        for reference in code_references(root) {
            if self.report.errors.len() > ERRORS_MAX {
                self.is_incomplete = true;
                break;
            }
            if let Err(error) = self.check_reference(path, &reference) {
                let pointer = reference.pointer.clone();
                let origin = origin(path, reference.node, pointer, SourceKind::Reference);
                self.add_error(&error.at(&origin));
            }
        }
        self.open.pop();
    }

    /// Reads a block document like a manifest in the same folder.
    fn check_block(&mut self, path: &RelPath, block: &str) {
        let name = serde_json::Value::from(escape(path.file_name()));
        let text = format!("{block}: {{file: {name}}}");
        let permit = ParsePermit::for_trusted_text();
        let root = match document::parse(&permit, text.as_bytes(), Format::Yaml) {
            Ok(root) => root,
            Err(error) => {
                let error = ManifestError::of_document(&path.to_string(), error);
                return self.add_error(&BundleError::Manifest(vec![error]));
            }
        };
        let blocks = blocks_of(self.files, path, &root, self.registry);
        let parsed = parse_with(&root, &path.to_string(), &blocks);
        self.add(parsed.errors.iter().map(CheckError::from));
        self.report.warnings.extend(parsed.warnings);
        if parsed.manifest.is_some() {
            self.report.name = Some(path.to_string());
        }
    }

    fn report_manifest(
        &mut self,
        path: &RelPath,
        root: &Node,
        manifest: &Manifest,
        is_outermost: bool,
    ) {
        for refusal in &manifest.refusals {
            if refusal.code() == "code_unresolved" {
                // `bundle` resolves the sources, and has done so of a manifest that it wrote.
                if is_resolved(path) {
                    self.add([CheckError::from(refusal)]);
                }
            } else {
                let warning = WarningReport::new(refusal.code(), refusal.to_string());
                self.report.warnings.push(warning);
            }
        }
        let with_file = |pointer: &String| {
            if is_outermost || pointer.contains('#') {
                pointer.clone()
            } else {
                format!("{path}#{pointer}")
            }
        };
        let ignored = manifest.ignored.iter().map(with_file);
        self.report.ignored.extend(ignored);
        if !is_outermost {
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

    fn check_schemas(&mut self, path: &RelPath, root: &Node) {
        for block in ["inputs", "outputs"] {
            let Some(node) = root.get(block) else {
                continue;
            };
            // Reading the manifest reports a value that is not a map.
            if !matches!(node.value, Value::Map(_)) {
                continue;
            }
            for word in keywords::unknown_keywords(node) {
                let UnknownKeyword { key, advice } = word;
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
        }
        let errors = invalid_schemas(path, root);
        self.add(errors.iter().map(CheckError::from));
    }

    fn check_pins(&mut self, path: &RelPath, root: &Node) {
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
                self.add_error(&problem.at(&origin));
            }
        }
    }

    /// Checks the manifest of a referenced code-workspace, once.
    fn check_reference(
        &mut self,
        holder: &RelPath,
        reference: &CodeReference<'_>,
    ) -> Result<(), BundleError> {
        let base = holder.parent().filter(|_| reference.is_lean);
        let folder = folder_at(base.as_ref(), &reference.path)?;
        let (path, warnings) = referenced_manifest(self.files, folder.as_ref())?;
        check_chain(&self.open, &path)?;
        if !self.seen.contains_key(&path) {
            if self.seen.len() >= SOURCES_MAX {
                let limit = SOURCES_MAX;
                return Err(BundleError::TooManySources { limit });
            }
            self.report.warnings.extend(warnings);
            self.check_document(&path);
        }
        if self.seen.get(&path) == Some(&false) {
            let found = "of another kind";
            return Err(BundleError::NotCodeWorkspace { path, found });
        }
        Ok(())
    }
}

fn origin(file: &RelPath, node: &Node, pointer: String, kind: SourceKind) -> SourceOrigin {
    SourceOrigin {
        file: file.to_string(),
        place: Some(node.place),
        pointer,
        kind,
    }
}

fn add_new(list: &mut Vec<CheckError>, more: impl IntoIterator<Item = CheckError>) {
    for error in more {
        if !list.contains(&error) {
            list.push(error);
        }
    }
}

/// An error of the report, with the position only.
fn error_at(at: &SourceOrigin) -> CheckError {
    CheckError {
        file: Some(at.file.clone()),
        line: at.place.map(|place| place.line),
        column: at.place.map(|place| place.column),
        pointer: Some(at.pointer.clone()),
        ..CheckError::default()
    }
}

/// Converts to the errors of the report: one for each error of a manifest.
#[must_use]
pub fn errors_of(error: &BundleError) -> Vec<CheckError> {
    let (place, cause) = match error {
        BundleError::Manifest(errors) => return errors.iter().map(CheckError::from).collect(),
        BundleError::At { at, error } => (error_at(at), error.as_ref()),
        other => (CheckError::default(), other),
    };
    vec![CheckError {
        code: error.code().to_owned(),
        message: with_causes(cause),
        hint: error.hint(),
        ..place
    }]
}
