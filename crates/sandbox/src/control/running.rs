//! The commands of a sandbox that stays: which run, until when, and how the others ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::leaf::{Leaf, LeftLeaves};
use crate::cgroups::{CgroupError, RunCgroup};
use crate::supervise::judge::{Facts, Reason, judge};
use spec::limits::milliseconds;
use spec::outcome::Outcome;
use spec::report::Exit;
use spec::sandboxes::{CommandRecord, CommandRequest, EndedCommands, shown_words};
use spec::utc::text_of_milliseconds;

/// Times are those of [`super::clock::Clock`].
#[derive(Debug, Default)]
pub(super) struct CommandList {
    /// The command that init starts.
    starting: Option<Starting>,
    running: Vec<Running>,
    ended: EndedCommands,
    last_id: u64,
    left: LeftLeaves,
}

#[derive(Debug)]
struct Starting {
    record: CommandRecord,
    leaf: Option<Leaf>,
}

#[derive(Debug)]
struct Running {
    record: CommandRecord,
    started: Duration,
    stop: Stop,
    /// Why it is stopped.
    reason: Option<Reason>,
    leaf: Option<Leaf>,
}

/// What becomes of a command that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Never,
    At(Duration),
    /// It got the stop signal.
    KillAt(Duration),
    Killed,
}

/// What to do with a command whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Send the stop signal.
    Stop {
        pid: i32,
    },
    Kill {
        pid: i32,
    },
}

/// A command that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) record: CommandRecord,
    pub(super) has_timed_out: bool,
}

impl CommandList {
    /// The id of the command that is started next.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id + 1
    }

    pub(super) fn begin(&mut self, wanted: &CommandRequest, leaf: Option<Leaf>) {
        let record = CommandRecord {
            id: self.next_id(),
            pid: 0,
            argv: shown_words(&wanted.argv),
            is_detached: wanted.is_detached,
            timeout_ms: wanted.timeout_ms,
            started_at: String::new(),
            ended_at: None,
            outcome: None,
            exit: None,
            usage: None,
            refused_forks: None,
        };
        self.starting = Some(Starting { record, leaf });
    }

    /// The command was not executed. Its id is that of the next one.
    pub(super) fn fail(&mut self, now: Duration) {
        let leaf = self.starting.take().and_then(|starting| starting.leaf);
        if let Some(leaf) = leaf {
            self.left.add(leaf, now);
        }
    }

    /// The command runs. Returns its id.
    pub(super) fn start(&mut self, pid: i32, now: Duration) -> Option<u64> {
        let Starting { record, leaf } = self.starting.take()?;
        self.last_id = record.id;
        let timeout = record.timeout_ms.map(Duration::from_millis);
        let end = timeout.and_then(|timeout| now.checked_add(timeout));
        self.running.push(Running {
            record: CommandRecord {
                pid,
                started_at: time(),
                ..record
            },
            started: now,
            stop: end.map_or(Stop::Never, Stop::At),
            reason: None,
            leaf,
        });
        Some(self.last_id)
    }

    /// The first process of a command has ended.
    pub(super) fn end(&mut self, pid: i32, raw_status: i32, now: Duration) -> Option<Ended> {
        let is_it = |running: &Running| running.record.pid == pid;
        let running = self.running.remove(self.running.iter().position(is_it)?);
        let measured = running.leaf.as_ref().map(Leaf::count);
        let counted = measured.map(|measured| measured.counted);
        let outcome = judge(Facts {
            raw_status: Some(raw_status),
            reason: running.reason,
            oom_kills: counted.and_then(|counted| counted.oom_kills).unwrap_or(0),
            cpu_time_reached: measured.is_some_and(|measured| measured.cpu_time_reached),
        });
        let wall_time = milliseconds(now.saturating_sub(running.started));
        let record = CommandRecord {
            ended_at: Some(time()),
            outcome: Some(outcome),
            exit: Some(Exit::of_wait_status(raw_status)),
            usage: measured.map(|measured| measured.usage(wall_time)),
            refused_forks: counted.and_then(|counted| counted.refused_forks),
            ..running.record
        };
        if let Some(leaf) = running.leaf {
            self.left.add(leaf, now);
        }
        self.ended.add(record.clone());
        Some(Ended {
            has_timed_out: record.outcome == Some(Outcome::TimedOut),
            record,
        })
    }

    /// The sandbox has ended, and what ran with it. Its cgroup is `group`.
    pub(super) fn finish(&mut self, group: &mut RunCgroup) -> EndedCommands {
        let mut leaves = Vec::new();
        for running in self.running.drain(..) {
            leaves.extend(running.leaf);
            self.ended.add(CommandRecord {
                ended_at: Some(time()),
                outcome: Some(match running.reason {
                    Some(Reason::CpuTime) => Outcome::CpuExhausted,
                    Some(_) => Outcome::TimedOut,
                    None => Outcome::Cancelled,
                }),
                ..running.record
            });
        }
        self.left.finish(leaves, group);
        std::mem::take(&mut self.ended)
    }

    /// The first process of the command with this id, if it runs.
    pub(super) fn pid_of(&self, id: u64) -> Option<i32> {
        let records = self.running.iter().map(|running| &running.record);
        let mut records = records.filter(|record| record.id == id);
        records.next().map(|record| record.pid)
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        self.running.iter().map(|running| running.record.pid)
    }

    /// Whether no command runs or is started.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.starting.is_none()
    }

    pub(super) fn records(&self) -> Vec<CommandRecord> {
        let records = self.running.iter().map(|running| &running.record);
        records.cloned().collect()
    }

    pub(super) fn ended(&self) -> &EndedCommands {
        &self.ended
    }

    /// When [`CommandList::take_due`] or [`CommandList::check_left`] has something to do.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let times = self.running.iter().filter_map(Running::next_due);
        times.chain(self.left.next_due()).min()
    }

    /// The commands whose time is over. Each is named once to be stopped, and after `grace` once to be
    /// killed.
    pub(super) fn take_due(&mut self, now: Duration, grace: Duration) -> Vec<Due> {
        let running = self.running.iter_mut();
        let due = running.filter_map(|running| running.take_due(now, grace));
        due.collect()
    }

    /// Kills the processes of a command that has used up its CPU time, also those that have left its
    /// session.
    ///
    /// # Errors
    /// [`CgroupError::Kill`].
    pub(super) fn kill_exhausted(&self, pid: i32) -> Result<(), CgroupError> {
        let is_it = |running: &&Running| running.record.pid == pid;
        let running = self.running.iter().find(is_it);
        let exhausted = running.filter(|running| running.reason == Some(Reason::CpuTime));
        match exhausted.and_then(|running| running.leaf.as_ref()) {
            Some(leaf) => leaf.kill(),
            None => Ok(()),
        }
    }

    /// Looks after what ended commands have left.
    ///
    /// # Errors
    /// [`CgroupError::Kill`].
    pub(super) fn check_left(&mut self, now: Duration) -> Result<(), CgroupError> {
        self.left.check(now)
    }
}

impl Running {
    fn next_due(&self) -> Option<Duration> {
        let sample = self.leaf.as_ref().and_then(Leaf::next_sample);
        match self.stop {
            Stop::Never => sample,
            Stop::At(at) => sample.into_iter().chain([at]).min(),
            Stop::KillAt(at) => Some(at),
            Stop::Killed => None,
        }
    }

    fn take_due(&mut self, now: Duration, grace: Duration) -> Option<Due> {
        let pid = self.record.pid;
        if matches!(self.stop, Stop::Never | Stop::At(_))
            && let Some(leaf) = &mut self.leaf
            && leaf.is_exhausted(now)
        {
            self.stop = Stop::At(now);
            self.reason = Some(Reason::CpuTime);
        }
        match self.stop {
            Stop::At(at) if at <= now && !grace.is_zero() => {
                self.reason.get_or_insert(Reason::WallTime);
                self.stop = Stop::KillAt(now.saturating_add(grace));
                Some(Due::Stop { pid })
            }
            Stop::At(at) | Stop::KillAt(at) if at <= now => {
                self.reason.get_or_insert(Reason::WallTime);
                self.stop = Stop::Killed;
                Some(Due::Kill { pid })
            }
            _ => None,
        }
    }
}

/// The time of day.
fn time() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since_1970.map_or(0, |since| since.as_millis());
    text_of_milliseconds(u64::try_from(ms).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::Backend;
    use spec::sandboxes::CommandLimits;

    const SECOND: Duration = Duration::from_secs(1);

    fn request(timeout_ms: Option<u64>) -> CommandRequest {
        CommandRequest {
            action: spec::sandboxes::Action::Execute,
            argv: vec![b"x".to_vec()],
            environment: Vec::new(),
            working_directory: None,
            terminal: None,
            timeout_ms,
            is_detached: false,
            limits: CommandLimits::default(),
        }
    }

    /// Of a sandbox that has none.
    fn finish(list: &mut CommandList) -> EndedCommands {
        let backend = Backend::None {
            reason: String::new(),
        };
        list.finish(&mut backend.create("none").expect("nothing to create"))
    }

    fn started(list: &mut CommandList, pid: i32, timeout_ms: Option<u64>) -> Option<u64> {
        list.begin(&request(timeout_ms), None);
        list.start(pid, SECOND)
    }

    #[test]
    fn a_command_is_stopped_once_and_killed_once_after_the_grace_time() {
        let mut list = CommandList::default();
        assert_eq!(started(&mut list, 7, Some(1_000)), Some(1));
        assert_eq!(started(&mut list, 8, None), Some(2));
        assert_eq!(list.next_due(), Some(2 * SECOND));
        assert_eq!(list.take_due(SECOND, SECOND), []);
        assert_eq!(list.take_due(2 * SECOND, SECOND), [Due::Stop { pid: 7 }]);
        assert_eq!(list.take_due(2 * SECOND, SECOND), []);
        assert_eq!(list.next_due(), Some(3 * SECOND));
        assert_eq!(list.take_due(3 * SECOND, SECOND), [Due::Kill { pid: 7 }]);
        assert_eq!(
            (list.next_due(), list.take_due(9 * SECOND, SECOND)),
            (None, vec![])
        );
        // It exits by itself all the same: it was stopped before.
        let ended = list.end(7, 0, SECOND).expect("it ran");
        assert!(ended.has_timed_out);
        assert!(!list.end(8, 9, SECOND).expect("it ran").has_timed_out);
        assert_eq!(list.end(8, 9, SECOND), None);
        let outcomes: Vec<_> = finish(&mut list)
            .latest
            .iter()
            .map(|record| record.outcome)
            .collect();
        assert_eq!(outcomes, [Some(Outcome::TimedOut), Some(Outcome::Signaled)]);
    }

    #[test]
    fn without_grace_it_is_killed_at_once_and_an_endless_time_never_ends() {
        let mut list = CommandList::default();
        started(&mut list, 7, Some(0));
        started(&mut list, 8, Some(u64::MAX));
        assert_eq!(
            list.take_due(SECOND, Duration::ZERO),
            [Due::Kill { pid: 7 }]
        );
        assert_eq!(list.take_due(1_000_000 * SECOND, Duration::MAX), []);
        assert!(!list.is_idle());
        let ended = finish(&mut list);
        assert_eq!(ended.latest[1].outcome, Some(Outcome::Cancelled));
        assert_eq!(ended.latest[1].exit, None);
    }

    #[test]
    fn a_command_that_was_not_executed_has_no_record_and_no_id() {
        let mut list = CommandList::default();
        list.fail(SECOND);
        started(&mut list, 7, None);
        list.begin(&request(None), None);
        list.fail(SECOND);
        list.end(7, 0, SECOND);
        assert!(list.is_idle());
        assert_eq!(started(&mut list, 9, None), Some(2));
        assert_eq!(list.start(10, SECOND), None);
        assert_eq!(list.records().len(), 1);
    }
}
