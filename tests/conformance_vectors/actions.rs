//! Each action, through the public interface that does it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use ::archive::{UnpackLimits, unpack, unpack_directory};
use serde_json::{Value, json};
use spec::define::{DefineError, RunnerSurroundings, define_io, define_runner, define_sandbox};
use spec::detection::{self, BundleView, EntryKind, Interpreters, NodeVersion};
use spec::document;
use spec::image::ImageTemplate;
use spec::io::Mismatch;
use spec::manifest::{self, BlockDocuments, Format, ManifestError};
use spec::path::RelPath;
use spec::report::WarningReport;
use spec::run_form::Run;
use spec::runner_block::Language;
use spec::tokens::{TokenPath, TokenValues};
use spec::typescript::NpmRegistry;

use crate::outcome::{Outcome, Told};
use crate::vector::{Action, Caps, Image, Vector};
use crate::{archive, asked, ground, sources};
use spec::parse_permit::ParsePermit;

/// For texts of these tests.
pub(crate) const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

/// Does what the vector states.
pub(crate) fn run(vector: &Vector) -> Outcome {
    let done = match vector.action {
        Action::Parse => parse(vector),
        Action::Check => Ok(check(vector)),
        Action::ExecForm => exec_form(vector),
        Action::Unpack => unpacked(vector),
        Action::Digest => digest(vector),
        Action::Tokens => tokens(vector),
        Action::DefineRunner => runner_handle(vector),
        Action::DefineIo => io_handle(vector),
        Action::DefineSandbox => sandbox_handle(vector),
        Action::Resolve => sources::resolve(vector),
        Action::Bundle => sources::bundle(vector),
        Action::DefineCode => sources::define_code(vector),
    };
    done.unwrap_or_else(Outcome::refused)
}

/// The manifest as text, and the name of its file.
pub(crate) fn manifest_text(vector: &Vector) -> (String, String) {
    let file = vector.manifest_file.as_deref().unwrap_or("manifest.yaml");
    let text = match vector.manifest.as_ref().expect("a manifest") {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (file.to_owned(), text)
}

fn format_of(file: &str) -> Format {
    match Path::new(file).extension().and_then(|last| last.to_str()) {
        Some("json") => Format::Json,
        Some("md") => Format::FrontMatter,
        _ => Format::Yaml,
    }
}

fn parse(vector: &Vector) -> Result<Outcome, Told> {
    let (file, text) = manifest_text(vector);
    let manifest =
        manifest::parse(&PERMIT, text.as_bytes(), format_of(&file), &file).map_err(|error| {
            let message = error.to_string();
            let place = error.place.expect("a line and a column");
            let start = format!("{file}:{place}");
            assert!(message.starts_with(&start), "{message}");
            of_manifest(&error)
        })?;
    Ok(Outcome {
        warnings: codes(&manifest.warnings),
        asks: Some(asked::asks(&manifest)),
        ..Outcome::default()
    })
}

fn check(vector: &Vector) -> Outcome {
    let (file, text) = manifest_text(vector);
    let root = document::parse(&PERMIT, text.as_bytes(), format_of(&file)).expect("a document");
    let parsed = manifest::parse_with(&root, &file, &BlockDocuments::default());
    Outcome {
        errors: parsed.errors.iter().map(of_manifest).collect(),
        ..Outcome::default()
    }
}

struct Files(BTreeMap<RelPath, EntryKind>);

impl BundleView for Files {
    fn kind(&self, path: &RelPath) -> Option<EntryKind> {
        self.0.get(path).copied()
    }

    fn paths(&self) -> Box<dyn Iterator<Item = &RelPath> + '_> {
        Box::new(self.0.keys())
    }
}

fn exec_form(vector: &Vector) -> Result<Outcome, Told> {
    let mut files = Files(BTreeMap::new());
    for (name, spec) in &vector.files {
        let path = RelPath::parse(name.as_bytes()).expect("a path");
        let mut above = path.parent();
        while let Some(parent) = above {
            above = parent.parent();
            files.0.insert(parent, EntryKind::Directory);
        }
        let executable = ground::mode_of(spec) & 0o100 != 0;
        files.0.insert(path, EntryKind::File { executable });
    }
    let programs = &vector.host_programs;
    let host = Interpreters {
        node: programs
            .node
            .as_ref()
            .map(|version| NodeVersion::parse(version).expect("a version")),
        python: programs.python,
        python3: programs.python3,
        bash: programs.bash,
        tsx: programs.tsx,
        npx: programs.npx,
        npm_registry: match programs.npm_registry {
            true => NpmRegistry::Allowed,
            false => NpmRegistry::Unnamed,
        },
    };
    let arguments: Vec<Vec<u8>> = vector
        .arguments
        .iter()
        .map(|argument| argument.clone().into_bytes())
        .collect();
    let resolved = match &vector.run {
        None => Err(detection::missing(&files)),
        Some(value) => Run::from_json(&PERMIT, &value.to_string())
            .map_err(Into::into)
            .and_then(|run| detection::resolve(&run, &files, &host, &arguments)),
    };
    let resolved = resolved.map_err(|error| told(error.code(), None, &error, error.hint()))?;
    let form = resolved.form.name();
    let argv = resolved
        .argv
        .iter()
        .map(|word| String::from_utf8(word.clone()).expect("text"))
        .collect();
    Ok(Outcome {
        form: Some(form.to_owned()),
        argv: Some(argv),
        warnings: codes(&resolved.warnings),
        ..Outcome::default()
    })
}

fn limits(caps: Caps) -> UnpackLimits {
    let default = UnpackLimits::default();
    UnpackLimits {
        compressed_bytes: caps.archive_bytes.unwrap_or(default.compressed_bytes),
        unpacked_bytes: caps.unpacked_bytes.unwrap_or(default.unpacked_bytes),
        entries: caps.entries.unwrap_or(default.entries),
    }
}

/// Opens a directory.
pub(crate) fn open(path: &Path) -> OwnedFd {
    std::fs::File::open(path).expect("opened").into()
}

fn unpacked(vector: &Vector) -> Result<Outcome, Told> {
    unpack_bytes(
        &archive::build(&vector.archive, &vector.damage),
        vector.host.caps,
    )
}

/// Unpacks an archive and lists the result.
pub(crate) fn unpack_bytes(archive: &[u8], caps: Caps) -> Result<Outcome, Told> {
    let into = tempfile::tempdir().expect("a directory");
    let directory = open(into.path());
    let unpacked = unpack(&PERMIT, archive, directory.as_fd(), &limits(caps))
        .map_err(|error| told(error.code(), None, &error, error.hint()))?;
    Ok(Outcome {
        tree: ground::look(into.path()),
        digest: Some(unpacked.content_digest.to_string()),
        warnings: codes(&unpacked.warnings),
        ..Outcome::default()
    })
}

fn digest(vector: &Vector) -> Result<Outcome, Told> {
    let from = tempfile::tempdir().expect("a directory");
    let into = tempfile::tempdir().expect("a directory");
    ground::make(from.path(), &vector.files);
    let (source, target) = (open(from.path()), open(into.path()));
    let limits = limits(vector.host.caps);
    let unpacked = unpack_directory(source.as_fd(), target.as_fd(), &limits)
        .map_err(|error| told(error.code(), None, &error, error.hint()))?;
    Ok(Outcome {
        tree: ground::look(into.path()),
        digest: Some(unpacked.content_digest.to_string()),
        warnings: codes(&unpacked.warnings),
        ..Outcome::default()
    })
}

fn tokens(vector: &Vector) -> Result<Outcome, Told> {
    let values = vector.values.as_ref().expect("values");
    let values = TokenValues {
        run_id: &values.run_id,
        manifest_id: &values.manifest_id,
        start_unix_s: values.unix_s,
    };
    let path = TokenPath::parse(vector.path.as_deref().expect("a path"))
        .and_then(|path| path.resolve(values))
        .map_err(|error| told(error.code(), None, &error, error.hint()))?;
    Ok(Outcome {
        path: Some(path.to_string()),
        ..Outcome::default()
    })
}

fn definition(vector: &Vector) -> &Value {
    vector.definition.as_ref().expect("a definition")
}

fn template(image: &Image) -> ImageTemplate {
    let language = |name: &String| match name.as_str() {
        "node" => Language::Node,
        "python" => Language::Python,
        "multi" => Language::Multi,
        other => panic!("{other}"),
    };
    ImageTemplate {
        id: image.id.clone(),
        languages: image.languages.iter().map(language).collect(),
        native: image.native.clone(),
        npm: Vec::new(),
        pip: Vec::new(),
        cost_tier: image.cost_tier,
        source: None,
    }
}

fn runner_handle(vector: &Vector) -> Result<Outcome, Told> {
    let images: Vec<ImageTemplate> = vector.host.images.iter().map(template).collect();
    let surroundings = RunnerSurroundings {
        images: &images,
        ..RunnerSurroundings::default()
    };
    let handle =
        define_runner(definition(vector), &surroundings).map_err(|error| of_definition(&error))?;
    let handle = match &vector.origin {
        Some(origin) => json!(handle.resolve_for_origin(origin)),
        None => json!(handle),
    };
    Ok(Outcome {
        handle: Some(handle),
        ..Outcome::default()
    })
}

fn io_handle(vector: &Vector) -> Result<Outcome, Told> {
    let handle = define_io(definition(vector)).map_err(|error| of_definition(&error))?;
    let mut outcome = Outcome {
        handle: Some(json!(handle)),
        ..Outcome::default()
    };
    if let Some(input) = &vector.validate {
        let judged = handle.validate_input(input.clone());
        outcome.valid = Some(judged.is_ok());
        if let Err(mismatches) = judged {
            outcome.error = Some(of_mismatches(&mismatches));
        }
    }
    Ok(outcome)
}

fn of_mismatches(mismatches: &[Mismatch]) -> Told {
    let lines: Vec<String> = mismatches
        .iter()
        .map(|mismatch| format!("{}: {}", mismatch.pointer, mismatch.message))
        .collect();
    Told {
        code: "invalid-input".to_owned(),
        at: mismatches.first().map(|first| first.pointer.clone()),
        message: lines.join("\n"),
    }
}

fn sandbox_handle(vector: &Vector) -> Result<Outcome, Told> {
    let handle = define_sandbox(definition(vector)).map_err(|error| of_definition(&error))?;
    Ok(Outcome {
        handle: Some(json!(handle)),
        ..Outcome::default()
    })
}

fn of_definition(error: &DefineError) -> Told {
    told(error.code(), Some(error.pointer()), error, error.hint())
}

/// A refusal of a manifest.
pub(crate) fn of_manifest(error: &ManifestError) -> Told {
    told(error.code(), error.pointer.clone(), error, error.hint())
}

/// A refusal with all its causes.
pub(crate) fn told(
    code: &str,
    at: Option<String>,
    error: &dyn std::error::Error,
    hint: Option<String>,
) -> Told {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    Told {
        code: code.to_owned(),
        at,
        message: format!("{message}\n{}", hint.unwrap_or_default()),
    }
}

/// The codes of warnings.
pub(crate) fn codes(warnings: &[WarningReport]) -> Vec<String> {
    warnings
        .iter()
        .map(|warning| warning.code.clone())
        .collect()
}
