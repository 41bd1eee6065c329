//! The control socket of a sandbox that stays: what its supervisor is asked, and by whom.
//!
//! A socket of the runtime directory, which no body sees. It carries the messages of [`sys::link`];
//! longer data is in a memory file whose descriptor comes with the message. The streams of a command
//! are descriptors of the client, so its output does not pass through the supervisor, except that of a
//! command that nobody waits for, of which the end is kept.

mod attach;
mod client;
mod clock;
mod ending;
mod files;
mod leaf;
mod lifetime;
mod logs;
mod ports;
mod requester;
mod running;
mod server;
mod starting;

pub use attach::CallerStreams;
pub(crate) use client::bind;
pub use client::{Answer, Client, ControlError};
pub use files::PrivateDirectory;
pub use lifetime::Lifetime;
pub use logs::{Mask, OutputMasks};
pub(crate) use ports::CLIENT_ID;
pub use server::{BuiltIns, Commands, CommandsPlan};

/// The version of these messages, the first value of each request.
const VERSION: i32 = 1;

/// Requests of a client.
mod request {
    /// Start a command: version, and 1 to measure it; a [`spec::sandboxes::CommandRequest`], then the three
    /// streams.
    pub(super) const EXEC: u32 = 1;
    /// Send a signal to the process group of the command that was started here: version, number.
    pub(super) const SIGNAL: u32 = 2;
    /// Write a [`spec::sandboxes::SandboxState`] into the file that comes with it.
    pub(super) const STATE: u32 = 3;
    /// End the sandbox: version, and 1 to do so although commands run.
    pub(super) const END: u32 = 4;
    /// Stop all processes until [`RESUME`].
    pub(super) const PAUSE: u32 = 5;
    /// Let them go on.
    pub(super) const RESUME: u32 = 6;
    /// Replace the [`spec::sandboxes::LogRequest`] in the file that comes with it by the answer, once there
    /// is one.
    pub(super) const LOG: u32 = 7;
    /// Send a signal to a command: version, number, the command's id.
    pub(super) const KILL: u32 = 8;
    /// Write the [`spec::sandboxes::PrivateFiles`] into the file that comes with it, and answer with their
    /// descriptors: version, and 1 to stop all processes until the client leaves.
    pub(super) const FILES: u32 = 9;
    /// Replace the [`spec::sandboxes::UpdateRequest`] in the file that comes with it by a
    /// [`spec::sandboxes::UpdateAnswer`].
    pub(super) const UPDATE: u32 = 10;
    /// Connect to a TCP port of the sandbox's loopback: version, port, and 1 for IPv6. The sandbox is not idle
    /// until the client leaves.
    pub(super) const CONNECT: u32 = 11;
    /// Keep the connection of this client open until the sandbox ends.
    pub(super) const WAIT: u32 = 12;
}

/// Answers of the supervisor.
mod answer {
    /// The command was executed: its id.
    pub(super) const STARTED: u32 = 16;
    /// It was not: step, index, errno.
    pub(super) const NOT_STARTED: u32 = 17;
    /// The command's first process has ended: wait status, 1 if its time was over, and 1 if the file of the
    /// request has its [`spec::sandboxes::CommandRecord`] now.
    pub(super) const ENDED: u32 = 18;
    /// Done; for a connection with its socket, which is connected or connecting.
    pub(super) const DONE: u32 = 19;
    /// Not done: a [`super::Refusal`].
    pub(super) const REFUSED: u32 = 20;
    /// There is no connection: errno.
    pub(super) const NOT_CONNECTED: u32 = 21;
}

/// Why a supervisor does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Refusal {
    /// The client speaks another version of the protocol.
    Version = 1,
    /// The request cannot be read.
    Malformed = 2,
    /// Commands run.
    Busy = 3,
    /// The sandbox is ending.
    Ending = 4,
    /// It is paused.
    Paused = 5,
    /// It has no cgroup that can be frozen.
    NoFreezer = 6,
    /// No output of such a command is kept.
    NoLog = 7,
    /// No such command runs.
    NoCommand = 8,
    /// It has no cgroup that could enforce a limit of one command.
    NoCommandLimit = 9,
    /// Clients have as many connections as they may.
    Connections = 10,
}

impl Refusal {
    const ALL: [Self; 10] = [
        Self::Version,
        Self::Malformed,
        Self::Busy,
        Self::Ending,
        Self::Paused,
        Self::NoFreezer,
        Self::NoLog,
        Self::NoCommand,
        Self::NoCommandLimit,
        Self::Connections,
    ];

    fn of_number(number: i32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|refusal| *refusal as i32 == number)
    }
}
