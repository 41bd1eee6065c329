//! The supervisor's side: accepts clients of the same user, and starts their commands one at a time.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::clock::Clock;
use super::files::PrivateDirectory;
use super::lifetime::Lifetime;
use super::logs::{Logs, OutputMasks};
use super::requester::{Client, Task};
use super::running::{CommandList, Ended};
use super::{Refusal, VERSION, answer, request};
use crate::cgroups::RunCgroup;
use crate::command_plan::BuiltIn;
use crate::launch::{CommandEvent, CommandPlan, Launched};
use spec::limits::milliseconds;
use spec::sandboxes::{
    Action, CommandDefaults, CommandRequest, DOCUMENT_BYTES_MAX, IdleTimes, SandboxState,
};
use sys::file::{read_regular, regular_size};
use sys::link::{self, Received};
use sys::probe::effective_uid;

/// Most clients whose request is awaited; further ones wait in the queue of the socket.
const ASKING_MAX: usize = 64;

/// Most clients that wait for [`Commands::accept`].
const BACKLOG: i32 = 128;

/// Numbers of signals (signal(7)); for others init would fail.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// What [`Commands`] need.
#[derive(Debug)]
pub struct CommandsPlan {
    /// The control socket, which does not listen yet.
    pub socket: OwnedFd,
    /// What each command gets besides its words.
    pub common: CommandPlan,
    /// Limits of each command.
    pub defaults: CommandDefaults,
    pub built_ins: BuiltIns,
    /// What clients may read.
    pub private: Vec<PrivateDirectory>,
    pub state: SandboxState,
    /// For the output that is kept.
    pub masks: OutputMasks,
    pub lifetime: Lifetime,
    pub idle_times: IdleTimes,
}

/// What commands run that execute no program.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIns {
    pub send_files: BuiltIn,
    pub receive_files: BuiltIn,
    pub watch_files: BuiltIn,
}

impl BuiltIns {
    pub(super) fn of(self, action: Action) -> Option<BuiltIn> {
        match action {
            Action::Execute => None,
            Action::SendFiles => Some(self.send_files),
            Action::ReceiveFiles => Some(self.receive_files),
            Action::WatchFiles => Some(self.watch_files),
        }
    }
}

/// The commands of a sandbox and the clients that asked for them.
#[derive(Debug)]
pub struct Commands {
    socket: OwnedFd,
    /// What each command gets besides its words.
    pub(super) common: CommandPlan,
    pub(super) defaults: CommandDefaults,
    pub(super) built_ins: BuiltIns,
    pub(super) private: Vec<PrivateDirectory>,
    /// Without its commands and times.
    pub(super) state: SandboxState,
    pub(super) list: CommandList,
    pub(super) logs: Logs,
    pub(super) lifetime: Lifetime,
    pub(super) idle_times: IdleTimes,
    pub(super) is_paused_by_idling: bool,
    /// When a command came or ended last, on the clock.
    pub(super) last_use: Duration,
    pub(super) clients: Vec<Client>,
    /// No descriptor is left for another client.
    is_full: bool,
    pub(super) is_ending: bool,
    /// When init was told to exit.
    pub(super) exit_requested: Option<Instant>,
    pub(super) clock: Clock,
}

impl Commands {
    /// Serves commands from now on.
    ///
    /// # Errors
    /// The errno of listen(2).
    pub fn new(plan: CommandsPlan) -> Result<Self, Errno> {
        rustix::net::listen(&plan.socket, BACKLOG)?;
        Ok(Self {
            socket: plan.socket,
            common: plan.common,
            defaults: plan.defaults,
            built_ins: plan.built_ins,
            private: plan.private,
            state: plan.state,
            list: CommandList::default(),
            logs: Logs::new(plan.masks),
            lifetime: plan.lifetime,
            idle_times: plan.idle_times,
            is_paused_by_idling: false,
            last_use: Duration::ZERO,
            clients: Vec::new(),
            is_full: false,
            is_ending: false,
            exit_requested: None,
            clock: Clock::new(Instant::now()),
        })
    }

    /// Readable when [`Commands::accept`] has work, while it takes clients.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        let is_asking = |client: &&Client| client.task == Task::Asking;
        let asking = self.clients.iter().filter(is_asking).count();
        let has_room = asking < ASKING_MAX && !self.is_full;
        (has_room && !self.is_ending).then(|| self.socket.as_fd())
    }

    /// The clients that may say something now, each with its number until the next turn.
    pub(crate) fn clients(&self) -> impl Iterator<Item = (BorrowedFd<'_>, usize)> {
        let is_init_busy = self.is_init_busy();
        let clients = (0..).zip(&self.clients);
        clients.filter_map(move |(number, client)| {
            let link = client.link.as_ref()?;
            // Init does one thing at a time.
            let waits = is_init_busy
                && matches!(
                    client.task,
                    Task::Asking | Task::Starting | Task::Connecting
                );
            (!waits).then(|| (link.as_fd(), number))
        })
    }

    pub(super) fn starting(&self) -> Option<usize> {
        self.clients
            .iter()
            .position(|client| client.task == Task::Starting)
    }

    /// Whether init starts a command or makes a connection.
    pub(super) fn is_init_busy(&self) -> bool {
        let mut tasks = self.clients.iter().map(|client| client.task);
        tasks.any(|task| matches!(task, Task::Starting | Task::Connecting))
    }

    /// Accepts a client. Closes the connection of another user.
    ///
    /// # Errors
    /// Those of accept4(2) that are not about this client.
    pub(crate) fn accept(&mut self) -> Result<(), Errno> {
        let link = match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(link) => link,
            Err(Errno::CONNABORTED | Errno::INTR | Errno::AGAIN) => return Ok(()),
            // It waits until another client has gone.
            Err(Errno::MFILE | Errno::NFILE) if !self.clients.is_empty() => {
                self.is_full = true;
                return Ok(());
            }
            Err(errno) => return Err(errno),
        };
        let peer = rustix::net::sockopt::socket_peercred(&link)?;
        if peer.uid.as_raw() == effective_uid() {
            self.clients.push(Client {
                link: Some(link),
                task: Task::Asking,
                log: None,
                record: None,
            });
        }
        Ok(())
    }

    /// How long the sandbox has been paused.
    pub(crate) fn paused_for(&self, now: Instant) -> Duration {
        self.clock.paused_for(now)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.clock.is_paused()
    }

    /// Reads a message of client `number`, which is readable.
    ///
    /// # Errors
    /// Those of init's link.
    pub(crate) fn serve(
        &mut self,
        number: usize,
        launched: &mut Launched,
        group: &mut RunCgroup,
    ) -> Result<(), Errno> {
        let is_init_busy = self.is_init_busy();
        let Some(client) = self.clients.get_mut(number) else {
            return Ok(());
        };
        let Some(link) = &client.link else {
            return Ok(());
        };
        // Init was asked something for another client in the same turn.
        if is_init_busy && client.task == Task::Asking {
            return Ok(());
        }
        let (message, mut received) = match link::receive(link.as_fd()) {
            Ok(Some(message)) => message,
            // A client that speaks something else is as one that is gone.
            Ok(None) | Err(_) => {
                if client.task == Task::Connected {
                    self.last_use = self.clock.elapsed(Instant::now());
                }
                client.leave();
                if matches!(client.task, Task::Reading { .. }) {
                    self.end_reading(number, group);
                }
                return Ok(());
            }
        };
        let [version, value, id] = message.values;
        if version != VERSION {
            client.refuse(Refusal::Version);
            return Ok(());
        }
        match (message.kind, client.task) {
            (request::SIGNAL, Task::Running { pid }) if SIGNALS.contains(&value) => {
                launched.signal_command(pid, value).map(|_is_sent| ())
            }
            (_, Task::Asking) if self.is_ending => {
                client.refuse(Refusal::Ending);
                Ok(())
            }
            (request::PAUSE, Task::Asking) => {
                let paused = self.pause(group);
                self.reply(number, paused);
                Ok(())
            }
            (request::RESUME, Task::Asking) => {
                let resumed = self.resume(group);
                self.reply(number, resumed);
                Ok(())
            }
            (request::EXEC | request::CONNECT, Task::Asking) => {
                let refused = match self.resume_if_idle(group) {
                    Ok(()) => self.is_paused().then_some(Refusal::Paused),
                    Err(refusal) => Some(refusal),
                };
                match (refused, message.kind) {
                    (Some(refusal), _) => {
                        self.clients[number].refuse(refusal);
                        Ok(())
                    }
                    (None, request::EXEC) => {
                        self.start(number, value != 0, &mut received, launched, group)
                    }
                    (None, _) => self.begin_connecting(number, value, id != 0, launched),
                }
            }
            (request::WAIT, Task::Asking) => {
                self.begin_waiting(number);
                Ok(())
            }
            (request::STATE, Task::Asking) => {
                self.describe(number, &mut received);
                Ok(())
            }
            (request::LOG, Task::Asking) => {
                self.begin_log(number, &mut received);
                Ok(())
            }
            (request::UPDATE, Task::Asking) => {
                let updated = self.update(&mut received);
                self.reply(number, updated);
                Ok(())
            }
            (request::FILES, Task::Asking) => {
                self.pass_files(number, value != 0, &mut received, group);
                Ok(())
            }
            (request::KILL, Task::Asking) if SIGNALS.contains(&value) => {
                let sent = self.kill(value, id, launched)?;
                self.reply(number, sent);
                Ok(())
            }
            (request::END, Task::Asking) => self.end(number, value != 0, launched, group),
            (_, Task::Reading { .. }) => {
                client.refuse(Refusal::Malformed);
                self.end_reading(number, group);
                Ok(())
            }
            _ => {
                client.refuse(Refusal::Malformed);
                Ok(())
            }
        }
    }

    fn reply(&mut self, number: usize, done: Result<(), Refusal>) {
        let client = &mut self.clients[number];
        match done {
            Ok(()) => client.finish(answer::DONE, [0; 3]),
            Err(refusal) => client.refuse(refusal),
        }
    }

    fn describe(&mut self, number: usize, received: &mut Received) {
        let (run_time_ms, ends_in_ms) = self.times_ms(Instant::now());
        let state = SandboxState {
            run_time_ms,
            ends_in_ms,
            idle_timeout_ms: self.idle_times.end.map(milliseconds),
            commands: self.list.records(),
            ended: self.list.ended().clone(),
            ..self.state.clone()
        };
        let file = received.first_mut().and_then(Option::take);
        let written = file.and_then(regular).map(|file| replace(file, &state));
        let is_written = matches!(written, Some(Ok(())));
        self.reply(number, is_written.then_some(()).ok_or(Refusal::Malformed));
    }

    fn begin_log(&mut self, number: usize, received: &mut Received) {
        let client = &mut self.clients[number];
        match read_request(received) {
            Some(wanted) => {
                client.task = Task::Following;
                client.log = Some(wanted);
            }
            None => client.refuse(Refusal::Malformed),
        }
    }

    /// Answers the clients that wait for output, if there is some.
    pub(crate) fn answer_logs(&mut self) {
        for number in 0..self.clients.len() {
            let Some((wanted, _)) = &self.clients[number].log else {
                continue;
            };
            let Some(answer) = self.logs.answer(wanted) else {
                continue;
            };
            let log = self.clients[number].log.take();
            let written = answer.and_then(|answer| {
                let written = log.map(|(_, file)| replace(file, &answer));
                matches!(written, Some(Ok(())))
                    .then_some(())
                    .ok_or(Refusal::Malformed)
            });
            self.reply(number, written);
        }
    }

    /// The output of commands that nobody waits for, each with its number until the next turn.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (BorrowedFd<'_>, usize)> {
        self.logs.sources()
    }

    /// Reads from the output with this number.
    ///
    /// # Errors
    /// The errno of read(2).
    pub(crate) fn read_output(&mut self, number: usize) -> Result<(), Errno> {
        self.logs.read(number)
    }

    /// Handles what init says about a command.
    ///
    /// # Errors
    /// Those of init's link.
    pub(crate) fn heard(
        &mut self,
        event: CommandEvent,
        launched: &mut Launched,
    ) -> Result<(), Errno> {
        match event {
            CommandEvent::Started(pid, terminal) => {
                self.started(pid, terminal.as_ref(), launched);
                Ok(())
            }
            CommandEvent::Failed(step, index, errno) => {
                self.failed([step as i32, index, errno.raw_os_error()], launched)
            }
            CommandEvent::Ended(pid, raw_status) => self.ended(pid, raw_status, launched),
        }
    }

    /// The first process of the command has ended.
    fn ended(&mut self, pid: i32, raw_status: i32, launched: &Launched) -> Result<(), Errno> {
        let of_pid = |client: &&mut Client| client.task == Task::Running { pid };
        let now = self.clock.elapsed(Instant::now());
        self.last_use = now;
        let ended = self.list.end(pid, raw_status, now);
        if let Some(Ended { record, .. }) = &ended {
            self.logs.end(record.id)?;
        }
        if let Some(client) = self.clients.iter_mut().find(of_pid) {
            let record = ended.as_ref().map(|ended| &ended.record);
            let files = client.record.take().zip(record);
            let has_record = files.is_some_and(|(file, record)| replace(file, record).is_ok());
            let has_timed_out = ended.is_some_and(|ended| ended.has_timed_out);
            let values = [raw_status, has_timed_out.into(), has_record.into()];
            client.finish(answer::ENDED, values);
        }
        self.end_if_idle(launched)
    }

    /// Forgets clients that nothing is left to do for. Their numbers change.
    pub(crate) fn tidy(&mut self) {
        let before = self.clients.len();
        self.clients.retain(|client| client.task != Task::Done);
        self.is_full &= self.clients.len() == before;
    }
}

/// The request in the file that came with it, and the file, for the answer.
pub(super) fn read_request<Wanted: DeserializeOwned>(
    received: &mut Received,
) -> Option<(Wanted, File)> {
    let file = received.first_mut()?.take().and_then(regular)?;
    let text = read_regular(file.try_clone().ok()?.into(), DOCUMENT_BYTES_MAX).ok()?;
    Some((serde_json::from_slice(&text).ok()?, file))
}

/// Writing to a pipe might wait for its reader.
pub(super) fn regular(file: OwnedFd) -> Option<File> {
    let is_regular = regular_size(file.as_fd(), DOCUMENT_BYTES_MAX).is_ok();
    is_regular.then(|| File::from(file))
}

/// Replaces the content of a file by a document.
pub(super) fn replace(mut file: File, document: &impl Serialize) -> std::io::Result<()> {
    let text = serde_json::to_vec(document)?;
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&text)
}

pub(super) fn read_document(file: OwnedFd) -> Option<CommandRequest> {
    let text = read_regular(file, DOCUMENT_BYTES_MAX).ok()?;
    let wanted: CommandRequest = serde_json::from_slice(&text).ok()?;
    let has_program = wanted.argv.first().is_some_and(|name| !name.is_empty());
    has_program.then_some(wanted)
}
