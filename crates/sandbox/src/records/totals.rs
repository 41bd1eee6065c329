//! What the live runs of a user may use together.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::record::{RunRecord, share};
use super::{RecordsError, failed, is_locked, is_run_id};
use spec::limits::Limit;
use spec::request::Totals;
use sys::file::errno_of;
use sys::lock;

/// What a run may use: its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub memory_bytes: u64,
    /// Thousandths of a processor.
    pub cpu_millis: u64,
}

/// What has a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TotalKind {
    Memory,
    Cpus,
}

impl TotalKind {
    /// The limit whose sum it is.
    #[must_use]
    pub const fn limit(self) -> Limit {
        match self {
            Self::Memory => Limit::Memory,
            Self::Cpus => Limit::Cpus,
        }
    }
}

/// A total that the limits of the live runs and of a further one exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExceededTotal {
    pub kind: TotalKind,
    /// Of the live runs.
    pub used: u64,
    /// Of the further one.
    pub share: u64,
    pub most: u64,
}

/// The first total that `share` exceeds beside `used`.
fn exceeded(used: Share, share: Share, most: &Totals) -> Option<ExceededTotal> {
    let exceeds = |kind, used: u64, share: u64, most: Option<u64>| {
        let most = most.filter(|most| used.saturating_add(share) > *most)?;
        Some(ExceededTotal {
            kind,
            used,
            share,
            most,
        })
    };
    let memory = exceeds(
        TotalKind::Memory,
        used.memory_bytes,
        share.memory_bytes,
        most.memory_bytes,
    );
    memory.or_else(|| {
        exceeds(
            TotalKind::Cpus,
            used.cpu_millis,
            share.cpu_millis,
            most.cpu_millis,
        )
    })
}

impl RunRecord {
    /// Records what the run may use, if it and the live runs of this user may use no more than `most` together.
    ///
    /// # Errors
    /// [`RecordsError::TotalExceeded`]; [`RecordsError::Call`].
    pub fn claim_share(&mut self, share: Share, most: &Totals) -> Result<(), RecordsError> {
        if most.memory_bytes.is_none() && most.cpu_millis.is_none() {
            return self.record_share(share);
        }
        // From the sum to the record, so that no two runs get the rest.
        let _lock = self.lock_all()?;
        match exceeded(self.shares_of_others()?, share, most) {
            Some(exceeded) => Err(RecordsError::TotalExceeded(exceeded)),
            None => self.record_share(share),
        }
    }

    /// Locks the records of all runs until the descriptor is closed.
    fn lock_all(&self) -> Result<OwnedFd, RecordsError> {
        let fault = |call| move |errno| failed(&self.path, "lock the records", "runs", call, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A description of its own, so that closing it unlocks.
        let runs = rustix::fs::openat(&self.runs, c".", flags, Mode::empty());
        let runs = runs.map_err(fault("openat"))?;
        lock::claim_file(runs.as_fd()).map_err(fault("flock"))?;
        Ok(runs)
    }

    /// The sum for the other live runs.
    fn shares_of_others(&self) -> Result<Share, RecordsError> {
        let list = |errno| failed(&self.path, "list records", "runs", "getdents", errno);
        let mut sum = Share::default();
        for entry in rustix::fs::Dir::read_from(&self.runs).map_err(list)? {
            let entry = entry.map_err(list)?;
            let Ok(run_id) = entry.file_name().to_str() else {
                continue;
            };
            if !is_run_id(run_id.as_bytes()) || run_id == self.run_id {
                continue;
            }
            if let Some(share) = self.share_of(run_id)?
                && is_locked(&self.path, &self.runs, run_id)?
            {
                sum.memory_bytes = sum.memory_bytes.saturating_add(share.memory_bytes);
                sum.cpu_millis = sum.cpu_millis.saturating_add(share.cpu_millis);
            }
        }
        Ok(sum)
    }

    /// `None`: the run has ended, or has not claimed its share yet.
    fn share_of(&self, run_id: &str) -> Result<Option<Share>, RecordsError> {
        let fault = |call, errno| failed(&self.path, "read a record", run_id, call, errno);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.runs, run_id, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|errno| fault("openat", errno))?,
        };
        let mut text = Vec::new();
        let read = File::from(file).read_to_end(&mut text);
        read.map_err(|error| fault("read", errno_of(&error)))?;
        Ok(share(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RunRecords;

    #[test]
    fn live_runs_share_the_totals_and_dead_ones_give_theirs_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let records = RunRecords::open(&directory.path().join("runtime")).expect("opened");
        let share = |memory_bytes, cpu_millis| Share {
            memory_bytes,
            cpu_millis,
        };
        let most = Totals {
            memory_bytes: Some(100),
            cpu_millis: Some(2_000),
            ..Totals::default()
        };
        let mut first = records.begin("a").expect("begun");
        first.claim_share(share(60, 1_000), &most).expect("claimed");
        // Without totals nothing is refused, and all count.
        let mut second = records.begin("b").expect("begun");
        let claimed = second.claim_share(share(30, 500), &Totals::default());
        claimed.expect("claimed");
        let mut third = records.begin("c").expect("begun");
        let mut refused = |share| match third.claim_share(share, &most) {
            Err(RecordsError::TotalExceeded(exceeded)) => exceeded,
            other => panic!("{other:?}"),
        };
        let memory = ExceededTotal {
            kind: TotalKind::Memory,
            used: 90,
            share: 11,
            most: 100,
        };
        assert_eq!(refused(share(11, 100)), memory);
        let cpus = ExceededTotal {
            kind: TotalKind::Cpus,
            used: 1_500,
            share: 501,
            most: 2_000,
        };
        assert_eq!(refused(share(10, 501)), cpus);
        third.claim_share(share(10, 500), &most).expect("claimed");
        drop(third);
        // Its record is left, as by a killed supervisor.
        let mut fourth = records.begin("d").expect("begun");
        fourth.claim_share(share(10, 500), &most).expect("claimed");
        // What is recorded is no object that a cleanup removes.
        let collected = records.collect_leftovers(&mut |_| Ok(())).expect("listed");
        assert_eq!(collected.len(), 1);
        assert!(collected[0].removed.is_empty() && collected[0].failures.is_empty());
    }
}
