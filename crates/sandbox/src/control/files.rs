//! Passes the private directories of a sandbox to a client that reads them while the sandbox stands still.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::requester::Task;
use super::server::{Commands, regular, replace};
use super::{Refusal, answer};
use crate::cgroups::RunCgroup;
use spec::sandboxes::{PrivateFiles, PrivatePlace};
use sys::link::{DESCRIPTORS_MAX, Received};

/// A directory that only the sandbox writes.
#[derive(Debug)]
pub struct PrivateDirectory {
    pub place: PrivatePlace,
    pub directory: OwnedFd,
}

impl Commands {
    /// Answers a client that wants to read the files. With `freezes`, the processes stand still until it leaves,
    /// if they can.
    pub(super) fn pass_files(
        &mut self,
        number: usize,
        freezes: bool,
        received: &mut Received,
        group: &mut RunCgroup,
    ) {
        let file = received.first_mut().and_then(Option::take);
        let Some(file) = file.and_then(regular) else {
            self.clients[number].refuse(Refusal::Malformed);
            return;
        };
        let was_paused = self.is_paused();
        let is_frozen = was_paused || freezes && self.pause(group).is_ok();
        let files = PrivateFiles {
            is_frozen,
            places: self
                .private
                .iter()
                .map(|private| private.place.clone())
                .collect(),
        };
        self.clients[number].task = Task::Reading {
            resumes: is_frozen && !was_paused,
        };
        let directories: Vec<BorrowedFd<'_>> = self
            .private
            .iter()
            .take(DESCRIPTORS_MAX)
            .map(|private| private.directory.as_fd())
            .collect();
        match replace(file, &files) {
            Ok(()) => self.clients[number].answer_with(answer::DONE, [0; 3], &directories),
            Err(_) => self.clients[number].refuse(Refusal::Malformed),
        }
        if self.clients[number].link.is_none() {
            self.end_reading(number, group);
        }
    }

    /// The client has read the files, or is gone.
    pub(super) fn end_reading(&mut self, number: usize, group: &mut RunCgroup) {
        if self.clients[number].task == (Task::Reading { resumes: true }) {
            // Otherwise the next command is refused, since the sandbox is paused.
            let _stays_paused = self.resume(group);
        }
        self.clients[number].task = Task::Done;
    }
}
