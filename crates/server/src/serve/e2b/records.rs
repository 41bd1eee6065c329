//! What this server has of the sandboxes that were created over this API: the streams of their commands.
//! Everything else is in the sandboxes, where another server finds it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::processes::Process;
use crate::serve::access::Access;
use crate::serve::lifetimes::{API, TEMPLATE};
use crate::serve::types::{Sandbox, SandboxList};
use spec::sandboxes::SandboxName;

/// The value of the label [`API`].
pub(super) const E2B: &str = "e2b";

/// A sandbox.
#[derive(Debug)]
pub(super) struct Record {
    /// The name that clients have for it.
    pub(super) id: String,
    pub(super) name: SandboxName,
    /// Commands whose streams this server has, by their numbers in the sandbox.
    pub(super) processes: Mutex<BTreeMap<u64, Arc<Process>>>,
    remembered: Instant,
}

impl Record {
    fn new(id: &str, name: SandboxName) -> Self {
        Self {
            id: id.to_owned(),
            name,
            processes: Mutex::default(),
            remembered: Instant::now(),
        }
    }
}

/// A sandbox as it is now.
#[derive(Debug)]
pub(super) struct LiveSandbox {
    pub(super) record: Arc<Record>,
    pub(super) sandbox: Sandbox,
}

impl LiveSandbox {
    pub(super) fn template(&self) -> &str {
        self.sandbox.labels.get(TEMPLATE).map_or("", String::as_str)
    }

    /// The labels of the client.
    pub(super) fn metadata(&self) -> BTreeMap<&String, &String> {
        let labels = self.sandbox.labels.iter();
        labels
            .filter(|(name, _)| !matches!(name.as_str(), API | TEMPLATE))
            .collect()
    }
}

/// All of them, by their ids.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<HashMap<String, Arc<Record>>>);

impl Records {
    pub(super) fn get(&self, id: &str) -> Option<Arc<Record>> {
        lock(&self.0).get(id).cloned()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    pub(super) fn remove(&self, id: &str) {
        lock(&self.0).remove(id);
    }

    /// A sandbox of the list; `None`: it was not created over this API.
    pub(super) fn live(&self, sandbox: Sandbox) -> Option<LiveSandbox> {
        if sandbox.labels.get(API).map(String::as_str) != Some(E2B) {
            return None;
        }
        let id = Access::E2b.shown(&sandbox.name)?.to_owned();
        let name = SandboxName::parse(&sandbox.name).ok()?;
        let mut records = lock(&self.0);
        let record = records
            .entry(id)
            .or_insert_with_key(|id| Arc::new(Record::new(id, name)));
        Some(LiveSandbox {
            record: Arc::clone(record),
            sandbox,
        })
    }

    /// Those of the list that answer; others than those of the list are forgotten. `asked` is from before the
    /// list was.
    pub(super) fn all_live(&self, list: SandboxList, asked: Instant) -> Vec<LiveSandbox> {
        let sandboxes = list.sandboxes.into_iter();
        let found: Vec<LiveSandbox> = sandboxes.filter_map(|one| self.live(one)).collect();
        let unresponsive = list.unresponsive.iter();
        let unresponsive = unresponsive.filter_map(|one| Access::E2b.shown(&one.name));
        let answering = found.iter().map(|live| &*live.record.id);
        let ids: std::collections::HashSet<&str> = answering.chain(unresponsive).collect();
        lock(&self.0).retain(|id, record| ids.contains(&**id) || record.remembered >= asked);
        found
    }
}

pub(super) fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    // Nothing that holds one can panic halfway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn now_unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
