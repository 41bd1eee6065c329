//! Opens images: a run pulls a missing one, a plan only looks in the store.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::run::artifacts::{UntilSignal, terms};
use crate::run::error::RunError;
use crate::run::progress::Act;
use sources::oci::error::OciError;
use sources::oci::layers::{self, Image};
use sources::oci::layout::Layout;
use sources::oci::observer::{NoObserver, Observer};
use sources::oci::opening::{StoreAlone, layer_limits};
use sources::oci::origin::Origin;
use sources::oci::pull::{self, Tags};
use sources::oci::store::{Store, StorePlace};
use sources::progress::Progress;
use spec::host_policy::HostPolicy;
use spec::oci::reference::{Place, Which};
use spec::request::Request;

/// How images are accessed.
#[derive(Debug, Clone, Copy)]
pub enum Access<'run> {
    /// Pulls missing images until one of these signals arrives.
    Fetch {
        /// The descriptor of the signals that cancel a run.
        signals: BorrowedFd<'run>,
    },
    /// Pulls nothing and creates nothing.
    Look,
}

/// The image at `place`; `None` if it is missing and may not be pulled.
///
/// # Errors
/// [`RunError::ImagePull`], [`RunError::Cancelled`].
pub(super) fn have(
    place: &Place,
    access: Access<'_>,
    request: &Request,
    policy: &HostPolicy,
) -> Result<Option<Image>, RunError> {
    let Access::Fetch { signals } = access else {
        return look(place, request, policy).map_err(failed(place));
    };
    let act = Act::begin(format!("image {place}"));
    let until = Arc::new(UntilSignal::new(signals, act)?);
    let had = fetch(place, &until, request, policy);
    match until.cancelled_by() {
        Some(signal) => Err(RunError::Cancelled { signal }),
        None => {
            let image = had.map_err(failed(place))?;
            until.act.succeeded(how(image.cached));
            Ok(Some(image))
        }
    }
}

/// How the report names the origin.
pub(in crate::run) const fn how(cached: bool) -> &'static str {
    if cached { "in the store" } else { "pulled" }
}

fn failed(place: &Place) -> impl FnOnce(OciError) -> RunError {
    let place = place.to_string();
    move |error| RunError::ImagePull {
        place,
        error: Box::new(error),
    }
}

fn fetch(
    place: &Place,
    until: &Arc<UntilSignal>,
    request: &Request,
    policy: &HostPolicy,
) -> Result<Image, OciError> {
    let terms = terms(request, policy, until);
    let store = terms.store()?;
    let origin = terms.origin(place)?;
    // Caller and host may name any registry; the report contains the digest.
    let artifact = pull::artifact(&store, &*origin, &place.which(), Tags::Allowed, &**until)?;
    let limits = terms.layer_limits();
    layers::image(&store, &artifact, &limits, &**until, &*origin)
}

/// The image, if a run needs neither a pull nor unpacking for it. A layout is read, since it is on
/// this host.
fn look(place: &Place, request: &Request, policy: &HostPolicy) -> Result<Option<Image>, OciError> {
    let at = StorePlace::choose(&request.caller, policy)?;
    let layout = match place {
        Place::Layout { directory, .. } => Some(Layout::open(directory)?),
        Place::Registry(_) => None,
    };
    let of_layout = layout
        .as_ref()
        .map(|layout| layout.manifest(&place.which()))
        .transpose()?;
    if !at.directory.is_dir() {
        return Ok(None);
    }
    let store = Store::open(&at)?;
    let digest = match (of_layout, place) {
        (Some(manifest), _) => Some(manifest.digest),
        (None, Place::Registry(reference)) => match reference.which() {
            Which::Digest(digest) => Some(digest),
            tag => {
                let repository = format!("{}/{}", reference.registry, reference.repository);
                store.named(&format!("{repository}:{tag}"))?
            }
        },
        (None, Place::Layout { .. }) => None,
    };
    let Some(digest) = digest else {
        return Ok(None);
    };
    let which = Which::Digest(digest);
    let Ok(artifact) = pull::artifact(&store, &StoreAlone, &which, Tags::Refused, &NoObserver)
    else {
        return Ok(None);
    };
    let limits = layer_limits(policy);
    Ok(layers::image(&store, &artifact, &limits, &Ended, &StoreAlone).ok())
}

/// Cancels before the pull begins.
struct Ended;

impl Observer for Ended {
    fn progress(&self, _now: &Progress<'_>) {}

    fn is_cancelled(&self) -> bool {
        true
    }
}
