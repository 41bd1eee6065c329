//! The ends of commands and of the sandbox, and its pauses.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::requester::Task;
use super::running::Due;
use super::server::Commands;
use super::{Refusal, answer};
use crate::cgroups::RunCgroup;
use crate::launch::Launched;
use spec::sandboxes::EndedCommands;

impl Commands {
    pub(super) fn pause(&mut self, group: &mut RunCgroup) -> Result<(), Refusal> {
        if self.is_init_busy() {
            // Init would not answer.
            return Err(Refusal::Busy);
        }
        self.is_paused_by_idling = false;
        if self.is_paused() {
            return Ok(());
        }
        match group.pause() {
            Ok(true) => {
                self.clock.pause(Instant::now());
                self.state.is_paused = true;
                Ok(())
            }
            Ok(false) | Err(_) => Err(Refusal::NoFreezer),
        }
    }

    /// Lets the commands go on. Does nothing if the sandbox is not paused.
    pub(super) fn resume(&mut self, group: &mut RunCgroup) -> Result<(), Refusal> {
        group.resume().map_err(|_error| Refusal::NoFreezer)?;
        let now = Instant::now();
        if self.is_paused() {
            // It is not idle again at once.
            self.clock.resume(now);
            self.last_use = self.clock.elapsed(now);
        }
        self.state.is_paused = false;
        Ok(())
    }

    /// Sends a signal to the process group of the command with this id, or SIGKILL to its session.
    pub(super) fn kill(
        &self,
        signal: i32,
        id: i32,
        launched: &Launched,
    ) -> Result<Result<(), Refusal>, Errno> {
        if self.is_paused() {
            return Ok(Err(Refusal::Paused));
        }
        let pid = u64::try_from(id).ok().and_then(|id| self.list.pid_of(id));
        let Some(pid) = pid else {
            return Ok(Err(Refusal::NoCommand));
        };
        match signal {
            libc::SIGKILL => launched.end_command(pid, signal)?,
            signal => launched.signal_command(pid, signal)?,
        };
        Ok(Ok(()))
    }

    pub(super) fn end(
        &mut self,
        number: usize,
        although_busy: bool,
        launched: &Launched,
        group: &mut RunCgroup,
    ) -> Result<(), Errno> {
        let is_busy = !self.list.is_idle();
        if is_busy && !although_busy {
            self.clients[number].refuse(Refusal::Busy);
            return Ok(());
        }
        if let Err(refusal) = self.resume(group) {
            self.clients[number].refuse(refusal);
            return Ok(());
        }
        self.is_ending = true;
        self.clients[number].answer(answer::DONE, [0; 3]);
        self.clients[number].task = Task::Staying;
        self.request_exit(launched)
    }

    fn request_exit(&mut self, launched: &Launched) -> Result<(), Errno> {
        self.exit_requested.get_or_insert_with(Instant::now);
        launched.end().map(|_is_sent| ())
    }

    /// When init was told to exit.
    pub(crate) fn exit_requested(&self) -> Option<Instant> {
        self.exit_requested
    }

    /// Asks all commands to end. The sandbox ends after the last one.
    ///
    /// # Errors
    /// Those of init's link.
    pub(crate) fn stop(
        &mut self,
        signal: i32,
        launched: &Launched,
        group: &mut RunCgroup,
    ) -> Result<(), Errno> {
        self.is_ending = true;
        // If they cannot go on, they are killed after the grace time.
        let _stays_paused = self.resume(group);
        for pid in self.list.pids() {
            for number in [signal, libc::SIGCONT] {
                launched.signal_command(pid, number)?;
            }
        }
        self.end_if_idle(launched)
    }

    /// The sandbox is killed, or init is gone: nothing that is asked for now could be kept.
    pub(crate) fn refuse_requests(&mut self) {
        self.is_ending = true;
    }

    pub(super) fn end_if_idle(&mut self, launched: &Launched) -> Result<(), Errno> {
        if self.is_ending && self.list.is_idle() {
            self.request_exit(launched)?;
        }
        Ok(())
    }

    /// When a command's time is over, or the sandbox has been idle for too long.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let ends = [self.idle_times.end, self.idle_times.pause];
        let ends = ends.into_iter().flatten();
        let ends = ends.filter_map(|time| self.end_of_idling(time));
        self.clock
            .instant_of(self.list.next_due().into_iter().chain(ends).min()?, now)
    }

    /// Whether no command ran or came for the time after which the sandbox ends.
    pub(crate) fn is_idle_for_too_long(&self, now: Instant) -> bool {
        self.is_idle_for(self.idle_times.end, now)
    }

    fn is_idle_for(&self, time: Option<Duration>, now: Instant) -> bool {
        let end = time.and_then(|time| self.end_of_idling(time));
        !self.is_paused() && end.is_some_and(|end| end <= self.clock.elapsed(now))
    }

    /// When the sandbox will have been idle for `time`; `None`: it is not.
    fn end_of_idling(&self, time: Duration) -> Option<Duration> {
        let is_idle = self.list.is_idle() && !self.has_connections() && !self.is_ending;
        is_idle.then(|| self.last_use.saturating_add(time))
    }

    /// Pauses a sandbox that was idle for as long as it may be. The next command resumes it.
    ///
    /// # Errors
    /// It cannot be paused, which is not tried again.
    pub(crate) fn pause_if_idle(
        &mut self,
        now: Instant,
        group: &mut RunCgroup,
    ) -> Result<(), Refusal> {
        if !self.is_idle_for(self.idle_times.pause, now) {
            return Ok(());
        }
        let paused = self.pause(group);
        self.is_paused_by_idling = paused.is_ok();
        if paused.is_err() {
            self.idle_times.pause = None;
        }
        paused
    }

    /// Resumes a sandbox that nobody has paused.
    pub(super) fn resume_if_idle(&mut self, group: &mut RunCgroup) -> Result<(), Refusal> {
        match self.is_paused_by_idling {
            true => self.resume(group),
            false => Ok(()),
        }
    }

    /// Ends the commands whose time is over: `stop_signal`, and after `grace` SIGKILL.
    ///
    /// # Errors
    /// Those of init's link; the errno with which the cgroup of a command could not be killed.
    pub(crate) fn check_times(
        &mut self,
        now: Instant,
        stop_signal: i32,
        grace: Duration,
        launched: &Launched,
    ) -> Result<(), Errno> {
        if self.is_paused() {
            return Ok(());
        }
        for due in self.list.take_due(self.clock.elapsed(now), grace) {
            match due {
                Due::Stop { pid } => {
                    launched.end_command(pid, stop_signal)?;
                    launched.signal_command(pid, libc::SIGCONT)?;
                }
                Due::Kill { pid } => {
                    launched.end_command(pid, libc::SIGKILL)?;
                    self.list
                        .kill_exhausted(pid)
                        .map_err(|error| error.errno())?;
                }
            }
        }
        let checked = self.list.check_left(self.clock.elapsed(now));
        checked.map_err(|error| error.errno())
    }

    /// What became of the commands. Call it when the sandbox has ended, whose cgroup is `group`.
    pub fn finish(&mut self, group: &mut RunCgroup) -> EndedCommands {
        self.list.finish(group)
    }
}
