//! Starts commands.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::leaf::Leaf;
use super::requester::Task;
use super::server::{Commands, read_document, regular};
use super::{Refusal, answer};
use crate::cgroups::RunCgroup;
use crate::command_plan::{CommandWords, variables_of};
use crate::launch::Launched;
use crate::steps::ChildStep;
use spec::sandboxes::{Action, CommandRequest};
use sys::link::Received;

impl Commands {
    /// Asks init to start the command of a client. With `is_measured` in a cgroup of its own, also without
    /// limits.
    ///
    /// # Errors
    /// Those of init's link.
    pub(super) fn start(
        &mut self,
        number: usize,
        is_measured: bool,
        received: &mut Received,
        launched: &mut Launched,
        group: &mut RunCgroup,
    ) -> Result<(), Errno> {
        let [document, stdin, stdout, stderr, ..] = received;
        let document = document.take();
        let record = document.as_ref().map(OwnedFd::try_clone).transpose();
        let wanted = document.and_then(read_document);
        let (Some(mut wanted), Some(stdin), Some(stdout), Some(stderr)) =
            (wanted, &*stdin, &*stdout, &*stderr)
        else {
            self.clients[number].refuse(Refusal::Malformed);
            return Ok(());
        };
        let now = self.clock.elapsed(Instant::now());
        self.last_use = now;
        if wanted.action == Action::Execute {
            self.defaults.apply(&mut wanted);
        }
        let (leaf, joins) = match leaf_of(&wanted, is_measured, group, now) {
            Ok(leaf) => leaf.unzip(),
            Err(NoLeaf::Refused(refusal)) => {
                self.clients[number].refuse(refusal);
                return Ok(());
            }
            Err(NoLeaf::Failed(errno)) => {
                self.not_started(number, ChildStep::JoinCgroup, errno);
                return Ok(());
            }
        };
        let kept = match wanted.is_detached {
            true => self.logs.begin(self.list.next_id())?,
            false => None,
        };
        let [stdout, stderr] = match &kept {
            Some([stdout, stderr]) => [stdout, stderr],
            None => [stdout, stderr],
        };
        let variables = variables_of(&wanted);
        let words = CommandWords {
            built_in: self.built_ins.of(wanted.action),
            ..CommandWords::of_request(&self.common, &wanted, &variables)
        };
        let streams = [stdin, stdout, stderr].map(|stream| stream.as_fd());
        match launched.start(&self.common, &words, streams, &joins.unwrap_or_default()) {
            Ok(_is_sent) => {
                if leaf.is_some() || wanted.timeout_ms.is_some() {
                    let record = record.ok().flatten().and_then(regular);
                    self.clients[number].record = record;
                }
                self.clients[number].task = Task::Starting;
                self.list.begin(&wanted, leaf);
                Ok(())
            }
            // The words are too long, or one has a NUL.
            Err(errno @ (Errno::NOMEM | Errno::INVAL | Errno::TOOBIG)) => {
                self.logs.forget(self.list.next_id());
                self.not_started(number, ChildStep::Execute, errno);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    fn not_started(&mut self, number: usize, step: ChildStep, errno: Errno) {
        let values = [step as i32, 0, errno.raw_os_error()];
        self.clients[number].finish(answer::NOT_STARTED, values);
    }

    /// Init has started the command that [`Launched::start`] asked for.
    /// `terminal` is for the client.
    pub(super) fn started(
        &mut self,
        pid: i32,
        terminal: Option<&OwnedFd>,
        launched: &mut Launched,
    ) {
        launched.forget_plan();
        if let Some(number) = self.starting() {
            let terminal = terminal.map(|terminal| terminal.as_fd());
            let id = i32::try_from(self.list.next_id()).unwrap_or(0);
            self.clients[number].answer_with(answer::STARTED, [id, 0, 0], terminal.as_slice());
            self.clients[number].task = Task::Running { pid };
        }
        self.list.start(pid, self.clock.elapsed(Instant::now()));
    }

    /// Init could not start it: step, index, errno.
    pub(super) fn failed(
        &mut self,
        values: [i32; 3],
        launched: &mut Launched,
    ) -> Result<(), Errno> {
        launched.forget_plan();
        if let Some(number) = self.starting() {
            self.clients[number].finish(answer::NOT_STARTED, values);
        }
        self.logs.forget(self.list.next_id());
        self.list.fail(self.clock.elapsed(Instant::now()));
        self.end_if_idle(launched)
    }
}

/// Why a command gets no cgroup, without which it is not started.
enum NoLeaf {
    Refused(Refusal),
    Failed(Errno),
}

/// The cgroup of a command, if it asks for one, and the files to join it.
fn leaf_of(
    wanted: &CommandRequest,
    is_measured: bool,
    group: &mut RunCgroup,
    now: Duration,
) -> Result<Option<(Leaf, Vec<OwnedFd>)>, NoLeaf> {
    let has_limits = !wanted.limits.is_none();
    let is_measured = is_measured && wanted.action == Action::Execute;
    if !has_limits && !is_measured {
        return Ok(None);
    }
    if !group.can_limit(&wanted.limits) {
        return Err(NoLeaf::Refused(Refusal::NoCommandLimit));
    }
    let leaf = Leaf::create(group, &wanted.limits, now);
    match leaf.map_err(|error| NoLeaf::Failed(error.errno()))? {
        None if has_limits => Err(NoLeaf::Refused(Refusal::NoCommandLimit)),
        leaf => Ok(leaf),
    }
}
