//! `runner source push`: sends an artifact of the store or of an OCI layout to a registry.

use std::path::Path;

use crate::cli::output::{OutputFlags, render};
use crate::cli::source::build::find;
use crate::cli::source::error::SourceError;
use bundler::output::BlockedSignals;
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

pub(crate) const PUSH_HELP: &str = "\
NAME:VERSION is what `runner source list` shows. A layout is a directory that holds a file
oci-layout; DIR:NAME and DIR@sha256:… select one of its artifacts.

Examples:
  runner source push models:1.2.0 registry.example.com/team/models

Exit codes: 0 done; 125 refused, failed or wrong usage.";

#[derive(Debug, clap::Args)]
pub struct Push {
    /// An artifact of the store, or a directory in the OCI layout
    #[arg(value_name = "NAME:VERSION|DIR.oci")]
    pub what: String,
    /// HOST/REPOSITORY or HOST/REPOSITORY:TAG; without a tag the version is the tag
    #[arg(value_name = "REF")]
    pub reference: String,
    /// Use plain HTTP for the registry
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

/// The repository that an artifact is sent to, and its tag there.
#[derive(Debug, Clone)]
pub(super) struct Target {
    reference: Reference,
    pub(super) tag: Option<String>,
}

impl Target {
    /// `HOST/REPOSITORY@sha256:…`, for a manifest.
    pub(super) fn pinned(&self, digest: &Digest) -> String {
        let Self { reference, .. } = self;
        format!("{}/{}@{digest}", reference.registry, reference.repository)
    }

    /// `HOST/REPOSITORY:TAG`, or without a tag as [`Self::pinned`]: the name in the store.
    pub(super) fn name(&self, digest: &Digest) -> String {
        let Self { reference, tag } = self;
        match tag {
            Some(tag) => format!("{}/{}:{tag}", reference.registry, reference.repository),
            None => self.pinned(digest),
        }
    }
}

pub(super) fn parse_target(text: &str) -> Result<Target, SourceError> {
    let reference = Reference::parse(text.strip_prefix("docker://").unwrap_or(text))?;
    if reference.digest.is_some() {
        return Err(SourceError::TargetPinned {
            found: escape(text.as_bytes()),
        });
    }
    Ok(Target {
        tag: reference.tag.clone(),
        reference,
    })
}

/// Returns the text for standard output.
pub(super) fn push_stored(args: &Push, terms: &Terms<'_>) -> Result<String, SourceError> {
    let mut target = parse_target(&args.reference)?;
    let store = terms.store()?;
    let blocked = BlockedSignals::block().map_err(SourceError::Signals)?;
    let digest = store_artifact(&args.what, &store, terms)?;
    let artifact = find(&store, &digest)?;
    if target.tag.is_none() {
        target.tag = artifact.version();
    }
    push(artifact, &target, terms)?;
    set_name(&store, &target.name(&digest), &digest)?;
    drop(blocked);
    let pushed = SourcePushed {
        digest,
        reference: target.pinned(&digest),
        tag: target.tag.unwrap_or_default(),
    };
    let to_text = |pushed: &SourcePushed| format!("{}\n", pushed.reference);
    Ok(render(args.flags.json, &pushed, to_text))
}

/// Finds the artifact in the store, or copies it from a layout into the store.
fn store_artifact(what: &str, store: &Store, terms: &Terms<'_>) -> Result<Digest, SourceError> {
    if let Some(digest) = store.named(what).map_err(OciError::from)? {
        return Ok(digest);
    }
    let path = what.strip_prefix("oci:").unwrap_or(what);
    let (directory, which) = match Place::parse(&format!("oci:{path}"))? {
        Place::Layout { directory, which } if is_layout(&directory) => (directory, which),
        _ => {
            return Err(SourceError::NotStored {
                found: escape(what.as_bytes()),
            });
        }
    };
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

pub(super) fn push(
    artifact: StoredArtifact,
    target: &Target,
    terms: &Terms<'_>,
) -> Result<(), SourceError> {
    let registry = terms.registry(&target.reference)?;
    Ok(artifact.push(&registry, target.tag.as_deref())?)
}

/// Names an artifact in the store.
pub(super) fn set_name(store: &Store, name: &str, digest: &Digest) -> Result<(), SourceError> {
    store
        .set_name(name, digest)
        .map_err(|error| OciError::from(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_that_is_pushed_without_a_tag_is_not_named_latest() {
        let digest = Digest::of(b"x");
        for (text, expected) in [
            ("r.test/a:1", "r.test/a:1".to_owned()),
            ("r.test/a", format!("r.test/a@{digest}")),
        ] {
            let target = parse_target(text).expect("a target");
            assert_eq!(target.name(&digest), expected);
        }
    }
}
