//! What this server remembers of the sandboxes that its clients have created.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::processes::Process;
use crate::serve::access::Token;
use crate::serve::types::SandboxList;
use spec::sandboxes::SandboxName;

/// A sandbox.
#[derive(Debug)]
pub(super) struct Record {
    /// The name that clients have for it.
    pub(super) id: String,
    pub(super) name: SandboxName,
    pub(super) template: String,
    pub(super) metadata: BTreeMap<String, String>,
    /// Variables of all its commands.
    pub(super) variables: BTreeMap<String, String>,
    /// What its clients have to know.
    pub(super) token: Token,
    pub(super) started_unix_ms: u64,
    life: Mutex<Life>,
    /// Commands whose streams this server has, by their numbers in the sandbox.
    pub(super) processes: Mutex<BTreeMap<u64, Arc<Process>>>,
    remembered: Instant,
}

/// When it ends: its time stands still in a pause.
#[derive(Debug, Clone, Copy)]
struct Life {
    end_unix_ms: u64,
    paused_unix_ms: Option<u64>,
}

/// What a record begins with.
#[derive(Debug)]
pub(super) struct Created {
    pub(super) id: String,
    pub(super) name: SandboxName,
    pub(super) template: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) token: Token,
    /// From before the sandbox was created: it ends rather later than promised.
    pub(super) started_unix_ms: u64,
    pub(super) lifetime: Duration,
}

impl Record {
    pub(super) fn new(created: Created) -> Self {
        let lifetime_ms = u64::try_from(created.lifetime.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: created.id,
            name: created.name,
            template: created.template,
            metadata: created.metadata,
            variables: created.variables,
            token: created.token,
            started_unix_ms: created.started_unix_ms,
            life: Mutex::new(Life {
                end_unix_ms: created.started_unix_ms.saturating_add(lifetime_ms),
                paused_unix_ms: None,
            }),
            processes: Mutex::default(),
            remembered: Instant::now(),
        }
    }

    /// When it ends, if it is not paused from now on.
    pub(super) fn end_unix_ms(&self) -> u64 {
        let life = *lock(&self.life);
        let paused = life
            .paused_unix_ms
            .map(|since| now_unix_ms().saturating_sub(since));
        life.end_unix_ms.saturating_add(paused.unwrap_or(0))
    }

    pub(super) fn pause(&self) {
        lock(&self.life)
            .paused_unix_ms
            .get_or_insert_with(now_unix_ms);
    }

    pub(super) fn resume(&self) {
        let end_unix_ms = self.end_unix_ms();
        *lock(&self.life) = Life {
            end_unix_ms,
            paused_unix_ms: None,
        };
    }
}

/// All of them, by their ids.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<HashMap<String, Arc<Record>>>);

impl Records {
    pub(super) fn get(&self, id: &str) -> Option<Arc<Record>> {
        lock(&self.0).get(id).cloned()
    }

    pub(super) fn add(&self, record: Record) -> Arc<Record> {
        let record = Arc::new(record);
        lock(&self.0).insert(record.id.clone(), Arc::clone(&record));
        record
    }

    pub(super) fn remove(&self, id: &str) {
        lock(&self.0).remove(id);
    }

    /// Those that live; the others are forgotten. `asked` is from before the list was.
    pub(super) fn living(&self, list: &SandboxList, asked: Instant) -> Vec<(Arc<Record>, bool)> {
        let paused: HashMap<&str, bool> = list
            .sandboxes
            .iter()
            .map(|sandbox| (&*sandbox.name, sandbox.is_paused))
            .collect();
        let mut records = lock(&self.0);
        records.retain(|_id, record| {
            paused.contains_key(record.name.as_str()) || record.remembered >= asked
        });
        let found = records.values().filter_map(|record| {
            let is_paused = *paused.get(record.name.as_str())?;
            Some((Arc::clone(record), is_paused))
        });
        found.collect()
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
