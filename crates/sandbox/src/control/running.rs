//! The commands of a sandbox that stays: which run, until when, and how the others ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spec::outcome::Outcome;
use spec::report::Exit;
use spec::sandboxes::{CommandRecord, CommandRequest, EndedCommands, shown_words};
use spec::utc::text_of_milliseconds;

/// Times are those of [`super::clock::Clock`].
#[derive(Debug, Default)]
pub(super) struct CommandList {
    /// The command that init starts.
    starting: Option<CommandRecord>,
    running: Vec<Running>,
    ended: EndedCommands,
    last_id: u64,
}

#[derive(Debug)]
struct Running {
    record: CommandRecord,
    stop: Stop,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) id: u64,
    pub(super) has_timed_out: bool,
}

impl CommandList {
    /// The id of the command that is started next.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id + 1
    }

    pub(super) fn begin(&mut self, wanted: &CommandRequest) {
        self.starting = Some(CommandRecord {
            id: self.next_id(),
            pid: 0,
            argv: shown_words(&wanted.argv),
            is_detached: wanted.is_detached,
            timeout_ms: wanted.timeout_ms,
            started_at: String::new(),
            ended_at: None,
            outcome: None,
            exit: None,
        });
    }

    /// The command was not executed. Its id is that of the next one.
    pub(super) fn fail(&mut self) {
        self.starting = None;
    }

    /// The command runs. Returns its id.
    pub(super) fn start(&mut self, pid: i32, now: Duration) -> Option<u64> {
        let record = self.starting.take()?;
        self.last_id = record.id;
        let timeout = record.timeout_ms.map(Duration::from_millis);
        let end = timeout.and_then(|timeout| now.checked_add(timeout));
        self.running.push(Running {
            record: CommandRecord {
                pid,
                started_at: time(),
                ..record
            },
            stop: end.map_or(Stop::Never, Stop::At),
        });
        Some(self.last_id)
    }

    /// The first process of a command has ended.
    pub(super) fn end(&mut self, pid: i32, raw_status: i32) -> Option<Ended> {
        let is_it = |running: &Running| running.record.pid == pid;
        let running = self.running.remove(self.running.iter().position(is_it)?);
        let has_timed_out = matches!(running.stop, Stop::KillAt(_) | Stop::Killed);
        let exit = Exit::of_wait_status(raw_status);
        let outcome = match exit.signal {
            _ if has_timed_out => Outcome::TimedOut,
            Some(_) => Outcome::Signaled,
            None => Outcome::Exited,
        };
        let id = running.record.id;
        self.ended.add(CommandRecord {
            ended_at: Some(time()),
            outcome: Some(outcome),
            exit: Some(exit),
            ..running.record
        });
        Some(Ended { id, has_timed_out })
    }

    /// The sandbox has ended, and what ran with it.
    pub(super) fn finish(&mut self) -> EndedCommands {
        for running in self.running.drain(..) {
            let has_timed_out = matches!(running.stop, Stop::KillAt(_) | Stop::Killed);
            self.ended.add(CommandRecord {
                ended_at: Some(time()),
                outcome: Some(match has_timed_out {
                    true => Outcome::TimedOut,
                    false => Outcome::Cancelled,
                }),
                ..running.record
            });
        }
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

    /// When [`CommandList::take_due`] has something.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let times = self
            .running
            .iter()
            .filter_map(|running| match running.stop {
                Stop::At(at) | Stop::KillAt(at) => Some(at),
                Stop::Never | Stop::Killed => None,
            });
        times.min()
    }

    /// The commands whose time is over. Each is named once to be stopped, and after `grace` once to be
    /// killed.
    pub(super) fn take_due(&mut self, now: Duration, grace: Duration) -> Vec<Due> {
        let due = self.running.iter_mut().filter_map(|running| {
            let pid = running.record.pid;
            match running.stop {
                Stop::At(at) if at <= now && !grace.is_zero() => {
                    running.stop = Stop::KillAt(now.saturating_add(grace));
                    Some(Due::Stop { pid })
                }
                Stop::At(at) | Stop::KillAt(at) if at <= now => {
                    running.stop = Stop::Killed;
                    Some(Due::Kill { pid })
                }
                _ => None,
            }
        });
        due.collect()
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

    const SECOND: Duration = Duration::from_secs(1);

    fn started(list: &mut CommandList, pid: i32, timeout_ms: Option<u64>) -> Option<u64> {
        list.begin(&CommandRequest {
            action: spec::sandboxes::Action::Execute,
            argv: vec![b"x".to_vec()],
            environment: Vec::new(),
            working_directory: None,
            terminal: None,
            timeout_ms,
            is_detached: false,
        });
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
        let ended = list.end(7, 0).expect("it ran");
        assert!(ended.has_timed_out);
        assert!(!list.end(8, 9).expect("it ran").has_timed_out);
        assert_eq!(list.end(8, 9), None);
        let outcomes: Vec<_> = list
            .finish()
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
        let ended = list.finish();
        assert_eq!(ended.latest[1].outcome, Some(Outcome::Cancelled));
        assert_eq!(ended.latest[1].exit, None);
    }

    #[test]
    fn a_command_that_was_not_executed_has_no_record_and_no_id() {
        let mut list = CommandList::default();
        list.fail();
        started(&mut list, 7, None);
        list.begin(&CommandRequest {
            action: spec::sandboxes::Action::Execute,
            argv: vec![b"y".to_vec()],
            environment: Vec::new(),
            working_directory: None,
            terminal: None,
            timeout_ms: None,
            is_detached: true,
        });
        list.fail();
        list.end(7, 0);
        assert!(list.is_idle());
        assert_eq!(started(&mut list, 9, None), Some(2));
        assert_eq!(list.start(10, SECOND), None);
        assert_eq!(list.records().len(), 1);
    }
}
