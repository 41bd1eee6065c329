//! `runner source push`: an artifact of the store, or of a layout, to a registry.

use std::path::Path;
use std::sync::Arc;

use clap::builder::BoolishValueParser;

use crate::cli::args::{PolicyFile, VoiceFlags};
use crate::cli::print::Printer;
use crate::cli::source::build::find;
use crate::cli::source::ending::{Held, Watching};
use crate::cli::source::error::SourceError;
use crate::oci::error::OciError;
use crate::oci::layout::Layout;
use crate::oci::pull::{Tags, artifact};
use crate::oci::push::HeldArtifact;
use crate::oci::registry::{Connection, Registry};
use crate::oci::store::{Store, StorePlace};
use crate::spec::digest::Digest;
use crate::spec::host_policy::HostPolicy;
use crate::spec::oci::reference::{Place, Reference};
use crate::spec::path::escape;
use crate::spec::request::Caller;
use crate::spec::source_built::SourcePushed;

/// What `runner source push --help` says besides its flags.
pub const PUSH_HELP: &str = "\
NAME:VERSION is what `runner source list` shows. A layout is a directory that holds a file
oci-layout; DIR:NAME and DIR@sha256:… say which of its artifacts.

Exit codes: 0 done; 125 refused, failed or wrong usage.";

/// Send a source artifact to a registry.
#[derive(Debug, clap::Args)]
pub struct Push {
    /// An artifact of the store, or a directory in the OCI layout
    #[arg(value_name = "NAME:VERSION|DIR.oci")]
    pub what: String,
    /// Where to, HOST/REPOSITORY[:TAG]; without a tag its version is one
    #[arg(value_name = "REF")]
    pub reference: String,
    /// Speak plain HTTP to the registry
    #[arg(long, env = "RUNNER_OPT_INSECURE", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub insecure: bool,
    /// Print a JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// How to speak.
    #[command(flatten)]
    pub voice: VoiceFlags,
    /// Configuration.
    #[command(flatten)]
    pub policy: PolicyFile,
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
pub(super) fn push_stored(
    args: &Push,
    caller: &Caller,
    policy: &HostPolicy,
    printer: &Printer,
) -> Result<String, SourceError> {
    let mut target = target(Some(&args.reference))?.ok_or(SourceError::Nothing)?;
    let store = Store::open(&StorePlace::choose(caller, policy).map_err(OciError::from)?)
        .map_err(OciError::from)?;
    let held = Held::back().map_err(SourceError::Signals)?;
    let digest = stored(&args.what, &store, printer)?;
    let artifact = find(&store, &digest)?;
    if target.tag.is_none() {
        target.tag = artifact.version();
    }
    push(artifact, &target, args.insecure, caller, policy, printer)?;
    keep_name(&store, &target.tagged(), &digest)?;
    drop(held);
    let pushed = SourcePushed {
        digest,
        reference: target.pinned(&digest),
        tag: target.tag.unwrap_or_default(),
    };
    if !args.json {
        return Ok(format!("{}\n", pushed.reference));
    }
    let mut text = serde_json::to_string_pretty(&pushed).unwrap_or_default();
    text.push('\n');
    Ok(text)
}

/// The artifact that is meant, with all its parts in the store.
fn stored(what: &str, store: &Store, printer: &Printer) -> Result<Digest, SourceError> {
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
    let watching = Watching::new(*printer);
    let found = artifact(store, &layout, &which, Tags::Allowed, &watching)?;
    HeldArtifact::fetch(store, &found.manifest, &layout, &watching)?;
    Ok(found.digest)
}

fn is_layout(directory: &Path) -> bool {
    directory.join("oci-layout").is_file()
}

/// Sends an artifact.
pub(super) fn push(
    artifact: HeldArtifact,
    target: &Target,
    insecure: bool,
    caller: &Caller,
    policy: &HostPolicy,
    printer: &Printer,
) -> Result<(), SourceError> {
    let registry = &target.reference.registry;
    let connection = Connection {
        insecure: insecure || policy.oci.insecure.contains(registry),
        ca_file: policy.oci.ca_file.clone(),
        docker_config: caller.docker_config.clone(),
        environment: caller.environment.clone(),
        listener: Arc::new(Watching::new(*printer)),
        ..Connection::default()
    };
    let registry = Registry::new(&target.reference, connection)?;
    Ok(artifact.push(&registry, target.tag.as_deref())?)
}

/// Remembers what a name stands for.
pub(super) fn keep_name(store: &Store, name: &str, digest: &Digest) -> Result<(), SourceError> {
    store
        .name(name, digest)
        .map_err(|error| OciError::from(error).into())
}
