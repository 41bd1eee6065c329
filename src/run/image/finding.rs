//! Finds images: a run pulls a missing one, a plan only searches the store.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::run::error::RunError;
use crate::run::fetching::artifacts::{FetchObserver, terms};
use crate::run::fetching::progress::ProgressStep;
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

#[derive(Debug, Clone, Copy)]
pub(in crate::run) enum Access<'run> {
    Fetch {
        /// Descriptor of the signals that cancel the run.
        signals: BorrowedFd<'run>,
    },
    /// Searches the store only; pulls and creates nothing.
    StoreOnly,
}

/// The image at `place`; `None` if it is missing and may not be pulled.
pub(super) fn find(
    place: &Place,
    access: Access<'_>,
    request: &Request,
    policy: &HostPolicy,
) -> Result<Option<Image>, RunError> {
    let Access::Fetch { signals } = access else {
        return search_store(place, request, policy).map_err(failed(place));
    };
    let step = ProgressStep::start(format!("image {place}"));
    let observer = Arc::new(FetchObserver::new(signals, step)?);
    let fetched = fetch(place, &observer, request, policy);
    match observer.cancelled_by() {
        Some(signal) => Err(RunError::Cancelled { signal }),
        None => {
            let image = fetched.map_err(failed(place))?;
            observer.step.succeed(fetch_result(image.cached));
            Ok(Some(image))
        }
    }
}

pub(in crate::run) const fn fetch_result(cached: bool) -> &'static str {
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
    observer: &Arc<FetchObserver>,
    request: &Request,
    policy: &HostPolicy,
) -> Result<Image, OciError> {
    let terms = terms(request, policy, observer);
    let store = terms.store()?;
    let origin = terms.origin(place)?;
    // Tags are allowed, since the report contains the digest.
    let artifact = pull::artifact(&store, &*origin, &place.which(), Tags::Allowed, &**observer)?;
    let limits = terms.layer_limits();
    layers::image(&store, &artifact, &limits, &**observer, &*origin)
}

/// The image, if it is unpacked in the store. A layout is read, since it is on this host.
fn search_store(
    place: &Place,
    request: &Request,
    policy: &HostPolicy,
) -> Result<Option<Image>, OciError> {
    let store_place = StorePlace::choose(&request.caller, policy)?;
    let layout = match place {
        Place::Layout { directory, .. } => Some(Layout::open(directory)?),
        Place::Registry(_) => None,
    };
    let manifest = layout
        .as_ref()
        .map(|layout| layout.manifest(&place.which()))
        .transpose()?;
    if !store_place.directory.is_dir() {
        return Ok(None);
    }
    let store = Store::open(&store_place)?;
    let digest = match (manifest, place) {
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
    Ok(layers::image(&store, &artifact, &limits, &CancelAlways, &StoreAlone).ok())
}

/// Cancels each pull before it begins.
struct CancelAlways;

impl Observer for CancelAlways {
    fn progress(&self, _now: &Progress<'_>) {}

    fn is_cancelled(&self) -> bool {
        true
    }
}
