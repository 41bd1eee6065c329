//! `resolve`, `bundle` and `define_code`: a workspace of files, and repositories from a map.

use std::cell::RefCell;
use std::path::Path;

use bundler::files::DirectoryFiles;
use bundler::locate::locate;
use bundler::manifests::Registry;
use bundler::resolve::{Resolution, ResolveRequest};
use bundler::{BundleError, DefineCode, GatherOptions, Gathered};
use serde_json::{Map, Value, json};
use sources::github::{FetchedTree, GitHub, GitHubError, RefShape, ResolvedRef};
use spec::digest::Digest;
use spec::host_policy::{HostPolicy, UnpackCaps};
use spec::manifest::{self, Format};
use spec::path::RelPath;

use crate::actions::{PERMIT, codes, manifest_text, of_manifest, open, told, unpack_bytes};
use crate::ground;
use crate::outcome::{Outcome, Told};
use crate::vector::{Caps, Vector};

/// A workspace on disk and its surroundings.
struct Workspace {
    directory: tempfile::TempDir,
    /// The files of the host's slugs.
    registry_directory: tempfile::TempDir,
    registry: Registry,
    repositories: Repositories,
}

impl Workspace {
    fn new(vector: &Vector) -> Self {
        Self::with_files(vector, &vector.files)
    }

    /// The same workspace again: created in another order, in another place, at another time.
    fn second_checkout(vector: &Vector) -> Self {
        let mut reversed = Map::new();
        for (name, spec) in vector.files.iter().rev() {
            reversed.insert(name.clone(), spec.clone());
        }
        Self::with_files(vector, &reversed)
    }

    fn with_files(vector: &Vector, files: &Map<String, Value>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // Below a folder, so that a path outside the workspace refers to an empty place.
        let root = directory.path().join("workspace");
        std::fs::create_dir(&root).expect("made");
        ground::make(&root, files);
        if vector.manifest.is_some() {
            let (file, text) = manifest_text(vector);
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let registry_directory = tempfile::tempdir().expect("a directory");
        let mut registry = Registry::new();
        for (number, (slug, text)) in vector.host.refs.iter().enumerate() {
            let path = registry_directory.path().join(format!("{number}.md"));
            std::fs::write(&path, ground::text(text)).expect("written");
            registry.insert(slug.clone(), path);
        }
        Self {
            directory,
            registry_directory,
            registry,
            repositories: Repositories::new(&vector.github),
        }
    }

    fn root(&self) -> std::path::PathBuf {
        assert!(self.registry_directory.path().exists());
        self.directory.path().join("workspace")
    }

    fn files(&self) -> DirectoryFiles {
        DirectoryFiles::open_root(&self.root()).expect("opened")
    }

    /// The manifest of a name or a path.
    fn located(&self, subject: &str) -> Result<RelPath, Told> {
        let path = if subject.contains('/') {
            self.root().join(subject)
        } else {
            subject.into()
        };
        locate(&path, Some(&self.root()), None)
            .map(|located| located.manifest)
            .map_err(|error| of_bundle(&error))
    }

    fn resolution(&self, vector: &Vector, files: &DirectoryFiles) -> Result<Resolution, Told> {
        let manifest = match &vector.subject {
            Some(subject) => self.located(subject)?,
            None => RelPath::parse(manifest_text(vector).0.as_bytes()).expect("a path"),
        };
        let request = ResolveRequest {
            manifest: &manifest,
            registry: &self.registry,
            require_pin: vector.host.require_pin,
        };
        bundler::resolve(request, files).map_err(|error| of_bundle(&error))
    }
}

fn caps(caps: Caps) -> UnpackCaps {
    let default = HostPolicy::default().unpack;
    UnpackCaps {
        archive_bytes: caps.archive_bytes.unwrap_or(default.archive_bytes),
        unpacked_bytes: caps.unpacked_bytes.unwrap_or(default.unpacked_bytes),
        entries: caps.entries.unwrap_or(default.entries),
    }
}

fn of_resolution(resolution: &Resolution) -> Outcome {
    // The resolved manifest is a valid manifest with the same requests.
    let text = resolution.manifest.to_string();
    let read = manifest::parse(
        &PERMIT,
        text.as_bytes(),
        Format::Json,
        ".runner/manifest.json",
    )
    .unwrap_or_else(|error| panic!("the resolved manifest is none: {error}\n{text}"));
    Outcome {
        asks: Some(crate::asked::asks(&read)),
        provenance: resolution
            .manifest
            .pointer("/metadata/runner/provenance")
            .cloned(),
        manifest: Some(resolution.manifest.clone()),
        warnings: codes(&resolution.warnings),
        ..Outcome::default()
    }
}

pub(crate) fn resolve(vector: &Vector) -> Result<Outcome, Told> {
    let workspace = Workspace::new(vector);
    let files = workspace.files();
    let resolution = workspace.resolution(vector, &files)?;
    Ok(of_resolution(&resolution))
}

/// The bundle and its properties.
struct Bundled {
    archive: Vec<u8>,
    content_digest: String,
    outcome: Outcome,
}

fn bundled(vector: &Vector, workspace: &Workspace) -> Result<Bundled, Told> {
    let files = workspace.files();
    let resolution = workspace.resolution(vector, &files)?;
    let root = workspace.root();
    let options = GatherOptions {
        caps: caps(vector.host.caps),
        follow_symlinks: vector.options.follow_symlinks,
        workspace: Some(&root),
        exclude: Vec::new(),
        lock: None,
    };
    let gathered = bundler::gather(
        &resolution.layers,
        Some(&resolution.manifest),
        &files,
        Some(&workspace.repositories),
        &options,
    )
    .map_err(|error| of_bundle(&error))?;
    let mut archive = Vec::new();
    let written =
        bundler::write(&gathered, &files, &mut archive).map_err(|error| of_bundle(&error))?;
    let mut outcome = of_resolution(&resolution);
    outcome.warnings.extend(codes(&gathered.warnings));
    outcome.resolved = Some(fetched(&gathered));
    Ok(Bundled {
        archive,
        content_digest: written.content_digest.to_string(),
        outcome,
    })
}

/// For every bundle: the archive matches its description, a second checkout gives the same bytes,
/// and nothing in it reveals where the workspace is.
pub(crate) fn bundle(vector: &Vector) -> Result<Outcome, Told> {
    let workspace = Workspace::new(vector);
    let Bundled {
        archive,
        content_digest,
        mut outcome,
    } = bundled(vector, &workspace)?;
    let again = bundled(vector, &Workspace::second_checkout(vector))?;
    assert!(
        archive == again.archive,
        "a second checkout gives other bytes"
    );
    let unpacked = unpack_bytes(&archive, Caps::default())?;
    assert_eq!(
        unpacked.digest,
        Some(content_digest),
        "what was written is what is read"
    );
    outcome.digest = unpacked.digest;
    outcome.tree = unpacked.tree;
    let inside = outcome.tree.remove(&b".runner/manifest.json"[..]);
    let Some(crate::outcome::Found::File { bytes, .. }) = inside else {
        panic!("no .runner/manifest.json");
    };
    let text = String::from_utf8(bytes).expect("text");
    let place = workspace.directory.path().display().to_string();
    assert!(!text.contains(&place), "the manifest tells a place: {text}");
    outcome.manifest = Some(serde_json::from_str(&text).expect("JSON"));
    Ok(outcome)
}

/// Repository, reference and commit of each fetched source.
fn fetched(gathered: &Gathered) -> Value {
    let commits = gathered.commits().into_iter();
    commits
        .map(
            |commit| json!({"repo": commit.repository, "ref": commit.reference, "sha": commit.sha}),
        )
        .collect()
}

pub(crate) fn define_code(vector: &Vector) -> Result<Outcome, Told> {
    let workspace = Workspace::new(vector);
    let files = workspace.files();
    let root = workspace.root();
    let text = json!({"code": vector.code.as_ref().expect("sources")}).to_string();
    let manifest = manifest::parse(&PERMIT, text.as_bytes(), Format::Json, "code")
        .map_err(|error| of_manifest(&error))?;
    let args = DefineCode {
        code: &manifest.code,
        workspace_root: Some(&root),
        github: &workspace.repositories,
        files: &files,
        registry: &workspace.registry,
        follow_symlinks: vector.options.follow_symlinks,
        caps: caps(vector.host.caps),
    };
    let mut archive = Vec::new();
    let written = runner::define_code(args, &mut archive).map_err(|error| of_bundle(&error))?;
    let mut outcome = unpack_bytes(&archive, Caps::default())?;
    outcome.digest = Some(written.content_digest.to_string());
    Ok(outcome)
}

fn of_bundle(error: &BundleError) -> Told {
    let at = match error {
        BundleError::At { at, .. } => Some(at.pointer.clone()),
        BundleError::Manifest(errors) => errors.first().and_then(|first| first.pointer.clone()),
        _ => None,
    };
    told(error.code(), at, error, error.hint())
}

/// The repositories of a vector: commits by their digits, tags and branches.
struct Repositories {
    by_name: Map<String, Value>,
    /// The directory of fetched files.
    directories: RefCell<Vec<tempfile::TempDir>>,
}

impl Repositories {
    fn new(by_name: &Map<String, Value>) -> Self {
        Self {
            by_name: by_name.clone(),
            directories: RefCell::new(Vec::new()),
        }
    }

    fn commits(&self, repository: &str) -> Result<&[Value], GitHubError> {
        match self.by_name.get(repository) {
            Some(Value::Array(commits)) => Ok(commits),
            Some(other) => panic!("a list of commits: {other}"),
            None => Err(GitHubError::RepositoryNotFound {
                repository: repository.to_owned(),
                service: "a vector".to_owned(),
                with_token: false,
            }),
        }
    }
}

impl GitHub for Repositories {
    fn resolve_ref(&self, repository: &str, reference: &str) -> Result<ResolvedRef, GitHubError> {
        let is_named = |commit: &&Value| {
            let lists = [commit.get("tags"), commit.get("branches")];
            let named = lists
                .into_iter()
                .flatten()
                .filter_map(Value::as_array)
                .flatten()
                .any(|name| name == reference);
            named || commit["sha"] == reference
        };
        let commit = self.commits(repository)?.iter().find(is_named);
        let shape = RefShape::of(reference);
        match commit {
            Some(commit) => Ok(ResolvedRef {
                sha: ground::text(&commit["sha"]).to_owned(),
                shape,
                cached: false,
                warnings: Vec::new(),
            }),
            None => Err(GitHubError::RefNotFound {
                repository: repository.to_owned(),
                reference: reference.to_owned(),
                shape,
                near: None,
            }),
        }
    }

    fn fetch(
        &self,
        repository: &str,
        sha: &str,
        path: Option<&RelPath>,
    ) -> Result<FetchedTree, GitHubError> {
        let commit = self
            .commits(repository)?
            .iter()
            .find(|commit| commit["sha"] == sha)
            .expect("a commit that was resolved");
        let directory = tempfile::tempdir().expect("a directory");
        let files = commit["files"].as_object().expect("files");
        ground::make(directory.path(), files);
        let folder = path.map_or_else(|| Path::new("").to_owned(), |path| path.to_string().into());
        let folder = directory.path().join(folder);
        if !folder.is_dir() {
            return Err(GitHubError::FolderNotFound {
                repository: repository.to_owned(),
                sha: sha.to_owned(),
                path: path.expect("the top is there").clone(),
                problem: "is not there".to_owned(),
            });
        }
        let opened = open(&folder);
        self.directories.borrow_mut().push(directory);
        Ok(FetchedTree::of_directory(opened, 0, Digest::of(b"")))
    }
}
