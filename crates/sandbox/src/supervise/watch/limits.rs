//! The limits that the watch enforces itself.

use std::time::{Duration, Instant};

use super::{INIT_EXITS_WITHIN, MEMORY_PERIOD, UNKILLABLE_AFTER, Watch};
use crate::supervise::judge::Reason;
use crate::supervise::meter::time_to_next_sample;
use crate::supervise::watched::WatchLimits;
use spec::request::OnOutputLimit;

impl Watch<'_, '_, '_> {
    /// Time since the start, without pauses.
    pub(super) fn run_time(&self, now: Instant) -> Duration {
        let paused = self.commands.as_ref();
        let paused = paused.map_or(Duration::ZERO, |commands| commands.paused_for(now));
        now.duration_since(self.started).saturating_sub(paused)
    }

    /// `None`: there is no limit, or the time stands still.
    pub(super) fn end_of_wall_time(&self, now: Instant) -> Option<Instant> {
        match &self.commands {
            Some(commands) => commands.end_of_life(now),
            None => self.started.checked_add(self.limits.wall_time?),
        }
    }

    /// Ends the commands of a sandbox that stays whose time is over, and pauses it if it is idle.
    pub(super) fn check_commands(&mut self, now: Instant) {
        let Some(commands) = &mut self.commands else {
            return;
        };
        let WatchLimits {
            stop_signal, grace, ..
        } = self.limits;
        let checked = commands.check_times(now, stop_signal, grace, self.launched);
        let problem = checked.err();
        let problem = problem.map(|errno| format!("cannot end a command in time: {errno}"));
        self.observed.problems.extend(problem);
        if let Err(refusal) = commands.pause_if_idle(now, self.meter.group) {
            let problem = format!("cannot pause the idle sandbox: {refusal:?}");
            self.observed.problems.push(problem);
        }
    }

    fn is_idle_for_too_long(&self, now: Instant) -> bool {
        let mut commands = self.commands.iter();
        commands.any(|commands| commands.is_idle_for_too_long(now))
    }

    /// When [`Watch::check_commands`] has something to do.
    pub(super) fn deadline_of_commands(&self, now: Instant) -> Option<Instant> {
        self.commands.as_ref()?.deadline(now)
    }

    pub(super) fn check_limits(&mut self, now: Instant) {
        if let Some(since) = self.killed_at {
            if now.duration_since(since) >= UNKILLABLE_AFTER {
                self.observed.unkillable = true;
                self.observed.wall_time = self.run_time(now);
                self.init_gone = true;
                self.close_streams();
            }
            return;
        }
        if let Some(since) = self.exiting_since() {
            if now.duration_since(since) >= INIT_EXITS_WITHIN {
                self.kill(now);
            }
            return;
        }
        if let Some(since) = self.stopping_since {
            if now.duration_since(since) >= self.limits.grace {
                self.kill(now);
            }
            return;
        }
        let stop_signal = self.limits.stop_signal;
        if self.end_of_wall_time(now).is_some_and(|at| at <= now) {
            self.stop(Reason::WallTime, stop_signal, now);
        } else if self.is_idle_for_too_long(now) {
            self.stop(Reason::IdleTime, stop_signal, now);
        } else if self.limits.on_output_limit == OnOutputLimit::Kill
            && (self.streams.stdout.over_limit() || self.streams.stderr.over_limit())
        {
            self.stop(Reason::Output, stop_signal, now);
        } else if self.next_sample.is_some_and(|at| at <= now) {
            self.check_sampled_limits(now);
        }
    }

    fn check_sampled_limits(&mut self, now: Instant) {
        if let Some(limit) = self.limits.memory_bytes
            && let Some(bytes) = self.meter.memory_bytes()
        {
            let peak = &mut self.observed.memory_seen_bytes;
            *peak = (*peak).max(Some(bytes));
            if bytes > limit {
                // Without grace, in which the body would allocate more memory of the host.
                self.observed.reason = Some(Reason::Memory);
                self.kill(now);
                return;
            }
        }
        if let Some(limit) = self.limits.cpu_time
            && let Some(used_us) = self.meter.cpu_time_us()
            && Duration::from_micros(used_us) >= limit
        {
            self.stop(Reason::CpuTime, self.limits.stop_signal, now);
            return;
        }
        self.schedule_sample(now);
    }

    pub(super) fn schedule_sample(&mut self, now: Instant) {
        let cpu_time = self.limits.cpu_time.map(|limit| {
            let used = self.meter.cpu_time_us();
            let used = used.map_or(Duration::ZERO, Duration::from_micros);
            now + time_to_next_sample(limit, used, self.limits.processors)
        });
        let memory = self.limits.memory_bytes.map(|_| now + MEMORY_PERIOD);
        self.next_sample = cpu_time.into_iter().chain(memory).min();
    }
}
