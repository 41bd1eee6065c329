//! A client of the supervisor, and what is done for it.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::{Refusal, answer};
use spec::sandboxes::LogRequest;
use sys::link::{self, Message};

#[derive(Debug)]
pub(super) struct Client {
    /// `None`: it is gone, and its command runs on.
    pub(super) link: Option<OwnedFd>,
    pub(super) task: Task,
    /// What it waits for, and where the answer goes.
    pub(super) log: Option<(LogRequest, File)>,
    /// Where the record of its command goes.
    pub(super) record: Option<File>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Its request is awaited.
    Asking,
    /// Init starts its command.
    Starting,
    Running {
        pid: i32,
    },
    /// It waits for output of a command.
    Following,
    /// It reads the files of the sandbox.
    Reading {
        /// The sandbox was paused for it.
        resumes: bool,
    },
    /// Init makes a connection for it.
    Connecting,
    /// It has one.
    Connected,
    /// It waits for the end of the supervisor.
    Staying,
    Done,
}

impl Client {
    pub(super) fn answer(&mut self, kind: u32, values: [i32; 3]) {
        self.answer_with(kind, values, &[]);
    }

    pub(super) fn answer_with(
        &mut self,
        kind: u32,
        values: [i32; 3],
        descriptors: &[BorrowedFd<'_>],
    ) {
        let Some(link) = &self.link else { return };
        // A client that is gone needs no answer.
        if link::send(link.as_fd(), Message { kind, values }, descriptors).is_err() {
            self.link = None;
        }
    }

    /// Gives the last answer.
    pub(super) fn finish(&mut self, kind: u32, values: [i32; 3]) {
        self.answer(kind, values);
        self.task = Task::Done;
    }

    /// Refuses a request, and hears no other of this client. Its command runs on.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.answer(answer::REFUSED, [refusal as i32, 0, 0]);
        self.leave();
    }

    pub(super) fn leave(&mut self) {
        self.link = None;
        if matches!(
            self.task,
            Task::Asking | Task::Following | Task::Connected | Task::Staying
        ) {
            self.task = Task::Done;
        }
    }
}
