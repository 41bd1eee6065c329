//! `runner source build`: from a directory or a checkout of git to a source artifact.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::cli::args::with_variable;
use crate::cli::found::{FoundFlags, text};
use crate::cli::print::Printer;
use crate::cli::source::ending::{Heeding, Held};
use crate::cli::source::error::SourceError;
use crate::cli::source::push::{Target, keep_name, push, target};
use crate::cli::surroundings::Surroundings;
use bundler::files::FileIdentity;
use bundler::source::{BuildHost, BuildRequest, Snapshot, SourceDirectory, documents};
use bundler::write::WrittenBundle;
use sources::oci::error::OciError;
use sources::oci::opening::Terms;
use sources::oci::push::StoredArtifact;
use sources::oci::store::{Store, StoreError};
use spec::digest::Digest;
use spec::host_policy::UnpackCaps;
use spec::path::{RelPath, escape};
use spec::source_built::{BuiltLayer, LeftOutEntry, SourceBuilt};
use spec::utc::text_of_seconds;

/// What `runner source build --help` says besides its flags.
pub(crate) const BUILD_HELP: &str = "\
`.git`, `.hg`, `.svn` and `.stax` are always left out, and what a .staxignore names (the syntax is
that of .gitignore). Links, devices and files that look like credentials are left out with a
warning; --strict refuses instead.

The artifact lies in the store afterwards, as NAME:VERSION. With SOURCE_DATE_EPOCH that is when it
was created, else when the commit was: the same sources are the same artifact.

Examples:
  runner source build ./models
  runner source build . --name models --version 1.2.0

Exit codes: 0 done; 125 refused, failed or wrong usage, and nothing was written.";

/// Make a source artifact of a directory or a checkout of git.
#[derive(Debug, clap::Args)]
// Each is one flag of the command line.
#[expect(clippy::struct_excessive_bools, reason = "flags that are given or not")]
#[command(mut_args = with_variable)]
pub struct Build {
    /// A directory, or one in a checkout of git
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// What it is called [default: the name of the directory]
    #[arg(long)]
    pub name: Option<String>,
    /// Which version of it this is [default: day and number of the commit]
    #[arg(long)]
    pub version: Option<String>,
    /// What it is, for people
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Write it into this directory in the OCI layout too
    #[arg(short, long, value_name = "DIR.oci")]
    pub output: Option<PathBuf>,
    /// Send it there too, HOST/REPOSITORY or HOST/REPOSITORY:TAG; without a tag its version is one
    #[arg(long, value_name = "REF")]
    pub push: Option<String>,
    /// Only this file or directory of it; may be repeated
    #[arg(long, value_name = "PATH")]
    pub sparse: Vec<OsString>,
    /// Take this although it looks like credentials; may be repeated
    #[arg(long, value_name = "PATH")]
    pub include: Vec<OsString>,
    /// Take the files of submodules too
    #[arg(long)]
    pub submodules: bool,
    /// Refuse where something would be left out that no .staxignore names
    #[arg(long)]
    pub strict: bool,
    /// Take it as a directory, whatever git knows of it
    #[arg(long)]
    pub no_git: bool,
    /// Speak plain HTTP to the registry
    #[arg(long)]
    pub insecure: bool,
    /// What the other verbs have too.
    #[command(flatten)]
    pub flags: FoundFlags,
}

/// Builds it; what is to be printed on standard output.
pub(super) fn build(
    args: &Build,
    surroundings: &Surroundings,
    terms: &Terms<'_>,
    printer: &Printer,
) -> Result<String, SourceError> {
    let target = target(args.push.as_deref())?;
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
        created_s: created_s(surroundings)?,
        exclude: written_to(args, &store),
    };
    let directory = SourceDirectory::open(&args.directory)?;
    let snapshot = directory.gather(
        &request,
        &BuildHost {
            caps: UnpackCaps {
                archive_bytes: oci.archive_bytes,
                unpacked_bytes: oci.unpacked_bytes,
                entries: oci.entries,
            },
            path: &caller.path,
            temporary_directory: &caller.temporary_directory,
            caller_uid: surroundings.uid,
        },
    )?;
    printer.warnings(&snapshot.warnings);
    let held = Held::back().map_err(SourceError::Signals)?;
    let mut built = keep(&snapshot, &store)?;
    if let Some(output) = &args.output {
        let version = &snapshot.config.version;
        find(&store, &built.digest)?.write_layout(output, version, terms.observer.as_ref())?;
        built.layout = Some(escape(output.as_os_str().as_bytes()));
    }
    if let Some(target) = target {
        let target = target.or_tag(&snapshot.config.version);
        let artifact = find(&store, &built.digest)?;
        let digest = built.digest;
        push(artifact, &target, terms)?;
        keep_name(&store, &target.tagged(), &digest)?;
        built.reference = Some(target.pinned(&digest));
    }
    drop(held);
    Ok(text(args.flags.json, &built, plain))
}

/// Puts the artifact into the store.
fn keep(snapshot: &Snapshot<'_>, store: &Store) -> Result<SourceBuilt, SourceError> {
    let of_store = |error: StoreError| SourceError::from(OciError::from(error));
    let mut draft = store.draft().map_err(of_store)?;
    let layer = {
        let mut heeding = Heeding::new(&mut draft);
        snapshot.write(&mut heeding, "the store")?
    };
    draft.finish().map_err(of_store)?;
    let documents = documents(&snapshot.config, &layer, snapshot.created_s)
        .map_err(bundler::BundleError::from)?;
    store.put(&documents.config).map_err(of_store)?;
    let digest = store.put(&documents.manifest).map_err(of_store)?;
    let name = format!("{}:{}", snapshot.config.name, snapshot.config.version);
    keep_name(store, &name, &digest)?;
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

/// What is written to lies perhaps in the directory, from an earlier build.
fn written_to(args: &Build, store: &Store) -> Vec<FileIdentity> {
    let places = args
        .output
        .iter()
        .map(PathBuf::as_path)
        .chain([store.path()]);
    places
        .filter_map(|place| FileIdentity::at(place).ok())
        .collect()
}

/// Paths beneath the directory, as people type them: `./a/`.
fn paths(flag: &'static str, written: &[OsString]) -> Result<Vec<RelPath>, SourceError> {
    written
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

/// What `SOURCE_DATE_EPOCH` says: seconds since 1970.
fn created_s(surroundings: &Surroundings) -> Result<Option<i64>, SourceError> {
    let Some(value) = surroundings.variable("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = value.to_str().and_then(|value| value.parse::<u32>().ok());
    let refused = || SourceError::Epoch {
        found: escape(value.as_bytes()),
    };
    seconds.map(i64::from).map(Some).ok_or_else(refused)
}

fn plain(built: &SourceBuilt) -> String {
    let config = &built.config;
    let layer = &built.layer;
    let mut lines = vec![
        format!("name       {}", config.name),
        format!("version    {}", config.version),
        format!("digest     {}", built.digest),
        format!(
            "snapshot   {} files, {} bytes in {}",
            config
                .snapshot
                .as_ref()
                .and_then(|snapshot| snapshot.file_count)
                .unwrap_or_default(),
            layer.bytes,
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
    /// The same, with this tag where it has none.
    fn or_tag(mut self, version: &str) -> Self {
        self.tag.get_or_insert_with(|| version.to_owned());
        self
    }
}
