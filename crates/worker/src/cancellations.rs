//! Runs of this worker that can be cancelled.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::messages::RunId;

/// By id, the signal to each run that goes on.
#[derive(Debug, Default)]
pub(crate) struct Cancellations(Mutex<BTreeMap<String, watch::Sender<bool>>>);

impl Cancellations {
    pub(crate) fn cancel(&self, id: &str) {
        if let Some(run) = self.runs().get(id) {
            run.send_replace(true);
        }
    }

    /// From now on the run can be cancelled, until the value is dropped. `None`: it goes on already.
    pub(crate) fn register(&self, id: &RunId) -> Option<Registered<'_>> {
        let mut runs = self.runs();
        let Entry::Vacant(place) = runs.entry(id.to_string()) else {
            return None;
        };
        let cancelled = place.insert(watch::channel(false).0).subscribe();
        Some(Registered {
            all: self,
            id: id.to_string(),
            cancelled,
        })
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Registered<'all> {
    all: &'all Cancellations,
    id: String,
    /// Whether it is to end.
    pub(crate) cancelled: watch::Receiver<bool>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.all.runs().remove(&self.id);
    }
}
