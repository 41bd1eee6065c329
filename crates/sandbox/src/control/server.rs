//! The supervisor's side: accepts clients of the same user, and starts their commands one at a time.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::{Refusal, VERSION, answer, request};
use crate::cgroups::RunCgroup;
use crate::launch::{BuiltIn, CommandEvent, CommandPlan, Launched, program_candidates};
use crate::steps::ChildStep;
use spec::path::escape;
use spec::sandboxes::{Action, CommandRequest, DOCUMENT_BYTES_MAX, RunningCommand, SandboxState};
use sys::allocator::keep_from_children;
use sys::file::{read_regular, regular_size};
use sys::link::{self, Message, Received};
use sys::probe::effective_uid;

/// Most clients whose request is awaited; further ones wait in the queue of the socket.
const ASKING_MAX: usize = 64;

/// Numbers of signals (signal(7)); for others init would fail.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// The commands of a sandbox and the clients that asked for them.
#[derive(Debug)]
pub struct Commands {
    socket: OwnedFd,
    /// What each command gets besides its words.
    common: CommandPlan,
    built_ins: BuiltIns,
    state: SandboxState,
    clients: Vec<Client>,
    /// No descriptor is left for another client.
    is_full: bool,
    is_ending: bool,
    pause: Pause,
}

/// What commands run that execute no program.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIns {
    pub send_files: BuiltIn,
    pub receive_files: BuiltIn,
}

impl BuiltIns {
    fn of(self, action: Action) -> Option<BuiltIn> {
        match action {
            Action::Execute => None,
            Action::SendFiles => Some(self.send_files),
            Action::ReceiveFiles => Some(self.receive_files),
        }
    }
}

/// Time that does not count as the lifetime of the sandbox.
#[derive(Debug, Default)]
struct Pause {
    since: Option<Instant>,
    earlier: Duration,
}

impl Pause {
    fn total(&self, now: Instant) -> Duration {
        let current = self.since.map(|since| now.duration_since(since));
        self.earlier + current.unwrap_or_default()
    }

    fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.earlier = self.total(now);
        self.since = None;
    }
}

#[derive(Debug)]
struct Client {
    /// `None`: it is gone, and its command runs on.
    link: Option<OwnedFd>,
    task: Task,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Its request is awaited.
    Asking,
    /// Init starts its command.
    Starting,
    Running {
        pid: i32,
    },
    /// It waits for the end of the supervisor.
    Staying,
    Done,
}

impl Client {
    fn answer(&mut self, kind: u32, values: [i32; 3]) {
        self.answer_with(kind, values, &[]);
    }

    fn answer_with(&mut self, kind: u32, values: [i32; 3], descriptors: &[BorrowedFd<'_>]) {
        let Some(link) = &self.link else { return };
        // A client that is gone needs no answer.
        if link::send(link.as_fd(), Message { kind, values }, descriptors).is_err() {
            self.link = None;
        }
    }

    /// Gives the last answer.
    fn finish(&mut self, kind: u32, values: [i32; 3]) {
        self.answer(kind, values);
        self.task = Task::Done;
    }

    /// Refuses a request, and hears no other of this client. Its command runs on.
    fn refuse(&mut self, refusal: Refusal) {
        self.answer(answer::REFUSED, [refusal as i32, 0, 0]);
        self.leave();
    }

    fn leave(&mut self) {
        self.link = None;
        if self.task == Task::Asking {
            self.task = Task::Done;
        }
    }
}

impl Commands {
    /// `socket` listens; `common` is what each command gets besides its words.
    #[must_use]
    pub fn new(
        socket: OwnedFd,
        common: CommandPlan,
        built_ins: BuiltIns,
        state: SandboxState,
    ) -> Self {
        Self {
            socket,
            common,
            built_ins,
            state,
            clients: Vec::new(),
            is_full: false,
            is_ending: false,
            pause: Pause::default(),
        }
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
        let is_starting = self.starting().is_some();
        let clients = (0..).zip(&self.clients);
        clients.filter_map(move |(number, client)| {
            let link = client.link.as_ref()?;
            // One command is started at a time.
            let waits = is_starting && matches!(client.task, Task::Asking | Task::Starting);
            (!waits).then(|| (link.as_fd(), number))
        })
    }

    fn starting(&self) -> Option<usize> {
        self.clients
            .iter()
            .position(|client| client.task == Task::Starting)
    }

    fn pids(&self) -> impl Iterator<Item = i32> {
        self.clients.iter().filter_map(|client| match client.task {
            Task::Running { pid } => Some(pid),
            Task::Asking | Task::Starting | Task::Staying | Task::Done => None,
        })
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
            });
        }
        Ok(())
    }

    /// How long the sandbox has been paused.
    pub(crate) fn paused_for(&self, now: Instant) -> Duration {
        self.pause.total(now)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause.since.is_some()
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
        let (is_starting, is_paused) = (self.starting().is_some(), self.is_paused());
        let Some(client) = self.clients.get_mut(number) else {
            return Ok(());
        };
        let Some(link) = &client.link else {
            return Ok(());
        };
        // A command was started for another client in the same turn.
        if is_starting && client.task == Task::Asking {
            return Ok(());
        }
        let (message, mut received) = match link::receive(link.as_fd()) {
            Ok(Some(message)) => message,
            // A client that speaks something else is as one that is gone.
            Ok(None) | Err(_) => {
                client.leave();
                return Ok(());
            }
        };
        let [version, value, _] = message.values;
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
            (request::EXEC, Task::Asking) if is_paused => {
                client.refuse(Refusal::Paused);
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
            (request::EXEC, Task::Asking) => self.start(number, &mut received, launched),
            (request::STATE, Task::Asking) => {
                self.describe(number, &mut received);
                Ok(())
            }
            (request::END, Task::Asking) => self.end(number, value != 0, launched, group),
            _ => {
                client.refuse(Refusal::Malformed);
                Ok(())
            }
        }
    }

    fn start(
        &mut self,
        number: usize,
        received: &mut Received,
        launched: &mut Launched,
    ) -> Result<(), Errno> {
        let [document, stdin, stdout, stderr, ..] = received;
        let wanted = document.take().and_then(read_document);
        let (Some(wanted), Some(stdin), Some(stdout), Some(stderr)) =
            (wanted, &*stdin, &*stdout, &*stderr)
        else {
            self.clients[number].refuse(Refusal::Malformed);
            return Ok(());
        };
        let plan = keep_from_children(|| CommandPlan {
            built_in: self.built_ins.of(wanted.action),
            ..plan_of(&self.common, &wanted)
        });
        let streams = [stdin, stdout, stderr].map(|stream| stream.as_fd());
        match launched.start(&plan, streams) {
            Ok(_is_sent) => {
                self.clients[number].task = Task::Starting;
                self.state.commands.push(RunningCommand {
                    pid: 0,
                    argv: wanted.argv.iter().map(|word| escape(word)).collect(),
                });
                Ok(())
            }
            // The words are too long, or one has a NUL.
            Err(errno @ (Errno::NOMEM | Errno::INVAL | Errno::TOOBIG)) => {
                let values = [ChildStep::Execute as i32, 0, errno.raw_os_error()];
                self.clients[number].finish(answer::NOT_STARTED, values);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    fn reply(&mut self, number: usize, done: Result<(), Refusal>) {
        let client = &mut self.clients[number];
        match done {
            Ok(()) => client.finish(answer::DONE, [0; 3]),
            Err(refusal) => client.refuse(refusal),
        }
    }

    fn pause(&mut self, group: &mut RunCgroup) -> Result<(), Refusal> {
        if self.starting().is_some() {
            // Init would not answer.
            return Err(Refusal::Busy);
        }
        if self.is_paused() {
            return Ok(());
        }
        match group.pause() {
            Ok(true) => {
                self.pause.begin(Instant::now());
                self.state.is_paused = true;
                Ok(())
            }
            Ok(false) | Err(_) => Err(Refusal::NoFreezer),
        }
    }

    /// Lets the commands go on. Does nothing if the sandbox is not paused.
    fn resume(&mut self, group: &mut RunCgroup) -> Result<(), Refusal> {
        group.resume().map_err(|_error| Refusal::NoFreezer)?;
        self.pause.end(Instant::now());
        self.state.is_paused = false;
        Ok(())
    }

    fn describe(&mut self, number: usize, received: &mut Received) {
        let file = received.first_mut().and_then(Option::take);
        // Writing to a pipe might wait for its reader.
        let file = file.filter(|file| regular_size(file.as_fd(), DOCUMENT_BYTES_MAX).is_ok());
        let written = file.map(File::from).map(|mut file| {
            let text = serde_json::to_vec(&self.state)?;
            file.write_all(&text)
        });
        let is_written = matches!(written, Some(Ok(())));
        self.reply(number, is_written.then_some(()).ok_or(Refusal::Malformed));
    }

    fn end(
        &mut self,
        number: usize,
        although_busy: bool,
        launched: &Launched,
        group: &mut RunCgroup,
    ) -> Result<(), Errno> {
        let is_busy = self.starting().is_some() || self.pids().next().is_some();
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
        launched.end().map(|_is_sent| ())
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
        for pid in self.pids() {
            for number in [signal, libc::SIGCONT] {
                launched.signal_command(pid, number)?;
            }
        }
        self.end_if_idle(launched)
    }

    fn end_if_idle(&self, launched: &Launched) -> Result<(), Errno> {
        let is_idle = self.starting().is_none() && self.pids().next().is_none();
        if self.is_ending && is_idle {
            launched.end()?;
        }
        Ok(())
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

    /// Init has started the command that [`Launched::start`] asked for.
    /// `terminal` is for the client.
    fn started(&mut self, pid: i32, terminal: Option<&OwnedFd>, launched: &mut Launched) {
        launched.forget_plan();
        if let Some(number) = self.starting() {
            let terminal = terminal.map(|terminal| terminal.as_fd());
            self.clients[number].answer_with(answer::STARTED, [0; 3], terminal.as_slice());
            self.clients[number].task = Task::Running { pid };
        }
        if let Some(command) = self.state.commands.last_mut() {
            command.pid = pid;
        }
    }

    /// Init could not start it: step, index, errno.
    fn failed(&mut self, values: [i32; 3], launched: &mut Launched) -> Result<(), Errno> {
        launched.forget_plan();
        if let Some(number) = self.starting() {
            self.clients[number].finish(answer::NOT_STARTED, values);
        }
        self.state.commands.pop();
        self.end_if_idle(launched)
    }

    /// The first process of the command has ended.
    fn ended(&mut self, pid: i32, raw_status: i32, launched: &Launched) -> Result<(), Errno> {
        let of_pid = |client: &&mut Client| client.task == Task::Running { pid };
        if let Some(client) = self.clients.iter_mut().find(of_pid) {
            client.finish(answer::ENDED, [raw_status, 0, 0]);
        }
        self.state.commands.retain(|command| command.pid != pid);
        self.end_if_idle(launched)
    }

    /// Forgets clients that nothing is left to do for. Their numbers change.
    pub(crate) fn tidy(&mut self) {
        let before = self.clients.len();
        self.clients.retain(|client| client.task != Task::Done);
        self.is_full &= self.clients.len() == before;
    }
}

fn read_document(file: OwnedFd) -> Option<CommandRequest> {
    let text = read_regular(file, DOCUMENT_BYTES_MAX).ok()?;
    let wanted: CommandRequest = serde_json::from_slice(&text).ok()?;
    let has_program = wanted.argv.first().is_some_and(|name| !name.is_empty());
    has_program.then_some(wanted)
}

/// `common` with the words, variables and directory of `wanted`.
fn plan_of(common: &CommandPlan, wanted: &CommandRequest) -> CommandPlan {
    let mut environment = common.environment.clone();
    for (name, value) in &wanted.environment {
        let prefix = [name, &b"="[..]].concat();
        environment.retain(|variable| !variable.starts_with(&prefix));
        environment.push([&prefix, &value[..]].concat());
    }
    CommandPlan {
        programs: candidates(&wanted.argv[0], &environment),
        argv: wanted.argv.clone(),
        environment,
        working_directory: wanted
            .working_directory
            .clone()
            .unwrap_or_else(|| common.working_directory.clone()),
        // The client decides what its input is.
        null_stdin: false,
        terminal: wanted.terminal,
        ..common.clone()
    }
}

/// The paths to try in order.
fn candidates(name: &[u8], environment: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let path = environment
        .iter()
        .find_map(|variable| variable.strip_prefix(b"PATH="));
    let path = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    program_candidates(name, path.split(|byte| *byte == b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_and_one_that_goes_on_counts_until_now() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pause = Pause::default();
        assert_eq!(pause.total(at(5)), Duration::ZERO);
        pause.begin(at(10));
        // A second request changes nothing.
        pause.begin(at(12));
        assert_eq!(pause.total(at(13)), Duration::from_secs(3));
        pause.end(at(20));
        pause.end(at(25));
        assert_eq!(pause.total(at(30)), Duration::from_secs(10));
        pause.begin(at(30));
        assert_eq!(pause.total(at(31)), Duration::from_secs(11));
    }

    #[test]
    fn a_command_gets_the_sandbox_s_variables_unless_it_names_them_and_is_found_on_its_path() {
        let bytes = |texts: &[&str]| -> Vec<Vec<u8>> {
            texts.iter().map(|text| text.as_bytes().to_vec()).collect()
        };
        let common = CommandPlan {
            working_directory: b"/scratch".to_vec(),
            environment: bytes(&["A=1", "AB=2", "PATH=/bin:/usr/bin"]),
            ..CommandPlan::default()
        };
        let mut wanted = CommandRequest {
            action: Action::Execute,
            argv: bytes(&["ls", "-l"]),
            environment: Vec::new(),
            working_directory: None,
            terminal: None,
        };
        let plan = plan_of(&common, &wanted);
        assert_eq!(plan.programs, bytes(&["/bin/ls", "/usr/bin/ls"]));
        assert_eq!(plan.environment, common.environment);
        assert_eq!(plan.working_directory, b"/scratch");
        wanted.environment = vec![
            (b"A".to_vec(), b"3".to_vec()),
            (b"PATH".to_vec(), b":/x".to_vec()),
        ];
        wanted.working_directory = Some(b"/tmp".to_vec());
        let plan = plan_of(&common, &wanted);
        assert_eq!(plan.programs, bytes(&["./ls", "/x/ls"]));
        assert_eq!(plan.environment, bytes(&["AB=2", "A=3", "PATH=:/x"]));
        assert_eq!(plan.working_directory, b"/tmp");
        wanted.argv = bytes(&["bin/ls"]);
        assert_eq!(plan_of(&common, &wanted).programs, bytes(&["bin/ls"]));
    }
}
