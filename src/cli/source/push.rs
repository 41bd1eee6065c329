//! `runner source push`: an artifact of the store, or of a layout, to a registry.

use std::path::Path;

use crate::cli::args::with_variable;
use crate::cli::found::{FoundFlags, text};
use crate::cli::source::build::find;
use crate::cli::source::ending::Held;
use crate::cli::source::error::SourceError;
use sources::oci::error::OciError;
use sources::oci::layout::Layout;
use sources::oci::opening::Terms;
use sources::oci::pull::{Tags, artifact};
use sources::oci::push::StoredArtifact;
use sources::oci::store::Store;
use spec::digest::Digest;
use spec::oci::reference::{Place, Reference};
use spec::path::escape;
use spec::source_report::SourcePushed;

/// What `runner source push --help` says besides its flags.
pub(crate) const PUSH_HELP: &str = "\
NAME:VERSION is what `runner source list` shows. A layout is a directory that holds a file
oci-layout; DIR:NAME and DIR@sha256:… say which of its artifacts.

Examples:
  runner source push models:1.2.0 registry.example.com/team/models

Exit codes: 0 done; 125 refused, failed or wrong usage.";

/// Send a source artifact to a registry.
#[derive(Debug, clap::Args)]
#[command(mut_args = with_variable)]
pub struct Push {
    /// An artifact of the store, or a directory in the OCI layout
    #[arg(value_name = "NAME:VERSION|DIR.oci")]
    pub what: String,
    /// Where to, HOST/REPOSITORY or HOST/REPOSITORY:TAG; without a tag its version is one
    #[arg(value_name = "REF")]
    pub reference: String,
    /// Speak plain HTTP to the registry
    #[arg(long)]
    pub insecure: bool,
    /// What the other verbs have too.
    #[command(flatten)]
    pub flags: FoundFlags,
}

/// Where an artifact is sent, with the tag that it gets there.
#[derive(Debug, Clone)]
pub(super) struct Target {
    reference: Reference,
    pub(super) tag: Option<String>,
}

impl Target {
    /// `HOST/REPOSITORY@sha256:…`: what a manifest names.
    pub(super) fn pinned(&self, digest: &Digest) -> String {
        let Reference {
            registry,
            repository,
            ..
        } = &self.reference;
        format!("{registry}/{repository}@{digest}")
    }

    /// `HOST/REPOSITORY:TAG`.
    pub(super) fn tagged(&self) -> String {
        let Reference {
            registry,
            repository,
            ..
        } = &self.reference;
        let tag = self.tag.as_deref().unwrap_or("latest");
        format!("{registry}/{repository}:{tag}")
    }
}

/// Where a reference says that something is to be sent.
pub(super) fn target(written: Option<&str>) -> Result<Option<Target>, SourceError> {
    let Some(written) = written else {
        return Ok(None);
    };
    let plain = written.strip_prefix("docker://").unwrap_or(written);
    let reference = Reference::parse(plain)?;
    if reference.digest.is_some() {
        return Err(SourceError::TargetPinned {
            found: escape(written.as_bytes()),
        });
    }
    Ok(Some(Target {
        tag: reference.tag.clone(),
        reference,
    }))
}

/// Pushes it; what is to be printed on standard output.
pub(super) fn push_stored(args: &Push, terms: &Terms<'_>) -> Result<String, SourceError> {
    let mut target = target(Some(&args.reference))?.ok_or(SourceError::Nothing)?;
    let store = terms.store()?;
    let held = Held::back().map_err(SourceError::Signals)?;
    let digest = stored(&args.what, &store, terms)?;
    let artifact = find(&store, &digest)?;
    if target.tag.is_none() {
        target.tag = artifact.version();
    }
    push(artifact, &target, terms)?;
    keep_name(&store, &target.tagged(), &digest)?;
    drop(held);
    let pushed = SourcePushed {
        digest,
        reference: target.pinned(&digest),
        tag: target.tag.unwrap_or_default(),
    };
    let plain = |pushed: &SourcePushed| format!("{}\n", pushed.reference);
    Ok(text(args.flags.json, &pushed, plain))
}

/// The artifact that is meant, with all its parts in the store.
fn stored(what: &str, store: &Store, terms: &Terms<'_>) -> Result<Digest, SourceError> {
    if let Some(digest) = store.named(what).map_err(OciError::from)? {
        return Ok(digest);
    }
    let written = what.strip_prefix("oci:").unwrap_or(what);
    let place = Place::parse(&format!("oci:{written}"))?;
    let Place::Layout { directory, which } = place else {
        return Err(SourceError::NotStored {
            found: escape(what.as_bytes()),
        });
    };
    if !is_layout(&directory) {
        return Err(SourceError::NotStored {
            found: escape(what.as_bytes()),
        });
    }
    let layout = Layout::open(&directory)?;
    let observer = terms.observer.as_ref();
    let found = artifact(store, &layout, &which, Tags::Allowed, observer)?;
    let limits = terms.layer_limits();
    StoredArtifact::fetch(store, &found.manifest, &layout, &limits, observer)?;
    Ok(found.digest)
}

fn is_layout(directory: &Path) -> bool {
    directory.join("oci-layout").is_file()
}

/// Sends an artifact.
pub(super) fn push(
    artifact: StoredArtifact,
    target: &Target,
    terms: &Terms<'_>,
) -> Result<(), SourceError> {
    let registry = terms.registry(&target.reference)?;
    Ok(artifact.push(&registry, target.tag.as_deref())?)
}

/// Remembers what a name stands for.
pub(super) fn keep_name(store: &Store, name: &str, digest: &Digest) -> Result<(), SourceError> {
    store
        .set_name(name, digest)
        .map_err(|error| OciError::from(error).into())
}
