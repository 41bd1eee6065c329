//! `runner source build`: makes a source artifact of a directory or a git checkout.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::cli::context::ProcessContext;
use crate::cli::output::{OutputFlags, render};
use crate::cli::print::Printer;
use crate::cli::source::cancel::CancellableWriter;
use crate::cli::source::error::SourceError;
use crate::cli::source::push::{Target, parse_target, push, set_name};
use crate::run::host::temporary_record::{Purpose, TemporaryRecord};
use bundler::files::FileIdentity;
use bundler::output::BlockedSignals;
use bundler::source::{BuildHost, BuildRequest, Snapshot, SourceDirectory, documents};
use bundler::write::WrittenBundle;
use sources::oci::error::OciError;
use sources::oci::opening::Terms;
use sources::oci::push::StoredArtifact;
use sources::oci::store::{Store, StoreError};
use spec::digest::Digest;
use spec::host_policy::UnpackCaps;
use spec::path::{RelPath, escape, escape_path};
use spec::source_built::{BuiltLayer, LeftOutEntry, SourceBuilt};
use spec::units::count;
use spec::utc::text_of_seconds;

pub(crate) const BUILD_HELP: &str = "\
`.git`, `.hg`, `.svn` and `.stax` are always left out, and files that a .staxignore names (in the
syntax of .gitignore). Links, devices and files that look like credentials are left out with a
warning; --strict refuses instead.

The artifact is NAME:VERSION in the store. Its time of creation is SOURCE_DATE_EPOCH, else that of
the commit: the same sources give the same artifact.

Examples:
  runner source build ./models
  runner source build . --name models --version 1.2.0

Exit codes: 0 done; 125 refused, failed or wrong usage, and nothing was written.";

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct Build {
    /// A directory, which may be in a git checkout
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Its name [default: the name of the directory]
    #[arg(long)]
    pub name: Option<String>,
    /// Its version [default: day and number of the commit]
    #[arg(long)]
    pub version: Option<String>,
    /// A description for people
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Write it also into this directory, in the OCI layout
    #[arg(short, long, value_name = "DIR.oci")]
    pub output: Option<PathBuf>,
    /// Push it also to HOST/REPOSITORY or HOST/REPOSITORY:TAG; without a tag the version is the tag
    #[arg(long, value_name = "REF")]
    pub push: Option<String>,
    /// Only this file or directory of it; may be repeated
    #[arg(long, value_name = "PATH")]
    pub sparse: Vec<OsString>,
    /// Include this file although it looks like credentials; may be repeated
    #[arg(long, value_name = "PATH")]
    pub include: Vec<OsString>,
    /// Include the files of submodules
    #[arg(long)]
    pub submodules: bool,
    /// Refuse to leave out anything that no .staxignore names
    #[arg(long)]
    pub strict: bool,
    /// Treat it as a plain directory, without git
    #[arg(long)]
    pub no_git: bool,
    /// Use plain HTTP for the registry
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

/// Returns the text for standard output.
pub(super) fn build(
    args: &Build,
    context: &ProcessContext,
    terms: &Terms<'_>,
    printer: &Printer,
) -> Result<String, SourceError> {
    let target = args.push.as_deref().map(parse_target).transpose()?;
    let (store, caller, oci) = (terms.store()?, terms.caller, &terms.policy.oci);
    let request = BuildRequest {
        name: args.name.as_deref(),
        version: args.version.as_deref(),
        description: args.description.as_deref(),
        sparse: paths("--sparse", &args.sparse)?,
        submodules: args.submodules,
        include: paths("--include", &args.include)?,
        strict: args.strict,
        no_git: args.no_git,
        created_s: created_s(context)?,
        exclude: output_directories(args, &store),
    };
    let directory = SourceDirectory::open(&args.directory)?;
    let above = &caller.temporary_directory;
    let mut record = TemporaryRecord::begin(caller)?;
    let git_directory = above.join(record.choose_name(above, Purpose::Git)?);
    let snapshot = directory.gather(
        &request,
        &BuildHost {
            caps: UnpackCaps {
                archive_bytes: oci.archive_bytes,
                unpacked_bytes: oci.unpacked_bytes,
                entries: oci.entries,
            },
            path: &caller.path,
            git_directory: &git_directory,
            caller_uid: context.uid,
        },
    )?;
    // The git directory is removed.
    drop(record);
    printer.warnings(&snapshot.warnings);
    let blocked = BlockedSignals::block().map_err(SourceError::Signals)?;
    let mut built = store_snapshot(&snapshot, &store)?;
    if let Some(output) = &args.output {
        let version = &snapshot.config.version;
        find(&store, &built.digest)?.write_layout(output, version, terms.observer.as_ref())?;
        built.layout = Some(escape_path(output));
    }
    if let Some(target) = target {
        let target = target.or_tag(&snapshot.config.version);
        let artifact = find(&store, &built.digest)?;
        let digest = built.digest;
        push(artifact, &target, terms)?;
        set_name(&store, &target.name(&digest), &digest)?;
        built.reference = Some(target.pinned(&digest));
    }
    drop(blocked);
    Ok(render(args.flags.json, &built, to_text))
}

fn store_snapshot(snapshot: &Snapshot<'_>, store: &Store) -> Result<SourceBuilt, SourceError> {
    let of_store = |error: StoreError| SourceError::from(OciError::from(error));
    let mut draft = store.draft().map_err(of_store)?;
    let layer = {
        let mut writer = CancellableWriter::new(&mut draft);
        snapshot.write(&mut writer, "the store")?
    };
    draft.finish().map_err(of_store)?;
    let documents = documents(&snapshot.config, &layer, snapshot.created_s)
        .map_err(bundler::BundleError::from)?;
    store.put(&documents.config).map_err(of_store)?;
    let digest = store.put(&documents.manifest).map_err(of_store)?;
    let name = format!("{}:{}", snapshot.config.name, snapshot.config.version);
    set_name(store, &name, &digest)?;
    Ok(report(
        snapshot,
        &layer,
        name,
        digest,
        documents.config_digest,
    ))
}

fn report(
    snapshot: &Snapshot<'_>,
    layer: &WrittenBundle,
    name: String,
    digest: Digest,
    config_digest: Digest,
) -> SourceBuilt {
    let left_out = snapshot.left_out.entries.iter().map(|entry| LeftOutEntry {
        path: entry.path.to_string(),
        what: entry.what.clone(),
    });
    SourceBuilt {
        name,
        digest,
        reference: None,
        layout: None,
        created: text_of_seconds(snapshot.created_s),
        config: snapshot.config.clone(),
        config_digest,
        layer: BuiltLayer {
            digest: layer.archive_digest,
            content_digest: layer.content_digest,
            archive_bytes: layer.archive_bytes,
            bytes: layer.bytes,
            entries: layer.entries,
        },
        left_out: left_out.collect(),
        left_out_count: snapshot.left_out.count,
        warnings: snapshot.warnings.clone(),
    }
}

pub(super) fn find(store: &Store, digest: &Digest) -> Result<StoredArtifact, SourceError> {
    let found = StoredArtifact::find(store, digest)?;
    found.ok_or_else(|| OciError::from(StoreError::Gone { digest: *digest }).into())
}

/// Directories that are written and may be in the source directory, from an earlier build.
fn output_directories(args: &Build, store: &Store) -> Vec<FileIdentity> {
    let output = args.output.iter().map(PathBuf::as_path);
    output
        .chain([store.path()])
        .filter_map(|path| FileIdentity::at(path).ok())
        .collect()
}

/// Paths beneath the directory, as typed, such as `./a/`.
fn paths(flag: &'static str, typed: &[OsString]) -> Result<Vec<RelPath>, SourceError> {
    typed
        .iter()
        .map(|path| {
            let plain: PathBuf = Path::new(path).components().collect();
            let bytes = plain.as_os_str().as_bytes();
            let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
            RelPath::parse(bytes).map_err(|error| SourceError::Path {
                flag,
                found: escape(path.as_bytes()),
                error,
            })
        })
        .collect()
}

/// `SOURCE_DATE_EPOCH`, in seconds since 1970.
fn created_s(context: &ProcessContext) -> Result<Option<i64>, SourceError> {
    let Some(value) = context.variable("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = value.to_str().and_then(|value| value.parse::<u32>().ok());
    let refused = || SourceError::Epoch {
        found: escape(value.as_bytes()),
    };
    seconds.map(i64::from).map(Some).ok_or_else(refused)
}

fn to_text(built: &SourceBuilt) -> String {
    let config = &built.config;
    let layer = &built.layer;
    let snapshot = config.snapshot.as_ref();
    let files = snapshot.and_then(|snapshot| snapshot.file_count);
    let mut lines = vec![
        format!("name       {}", config.name),
        format!("version    {}", config.version),
        format!("digest     {}", built.digest),
        format!(
            "snapshot   {}, {} in {}",
            count(files.unwrap_or_default(), "file"),
            count(layer.bytes, "byte"),
            layer.archive_bytes
        ),
    ];
    lines.extend(
        built
            .layout
            .iter()
            .map(|layout| format!("layout     {layout}")),
    );
    lines.push(match &built.reference {
        Some(reference) => format!("reference  {reference}"),
        None => format!("reference  none yet: runner source push {} REF", built.name),
    });
    lines.push(String::new());
    lines.join("\n")
}

impl Target {
    /// Uses this tag if it has none.
    fn or_tag(mut self, version: &str) -> Self {
        self.tag.get_or_insert_with(|| version.to_owned());
        self
    }
}
