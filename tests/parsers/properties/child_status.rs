//! Messages from the child to the supervisor; a compromised child may send any.

use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use sandbox::error::SandboxError;
use sandbox::launch::{CommandEvent, InitMessage, receive};
use sandbox::prepare::expect_message;
use sandbox::steps::ChildStep;
use sys::link;

/// The message kinds, as the test knows them.
const FAILED: u32 = 4;
const ENDED: u32 = 5;
const CONNECTED: u32 = 7;
const LOST: u32 = 9;
const COMMAND_STARTED: u32 = 11;
const COMMAND_FAILED: u32 = 12;
const COMMAND_ENDED: u32 = 13;
/// More would not fit into the socket buffer at once.
const MESSAGES_MAX: usize = 8;

struct Said<'bytes> {
    bytes: &'bytes [u8],
    descriptors: usize,
}

impl Said<'_> {
    /// The four numbers of a message.
    fn numbers(&self) -> Option<(u32, [i32; 3])> {
        let words: Vec<[u8; 4]> = self
            .bytes
            .chunks(4)
            .map(|word| word.try_into().ok())
            .collect::<Option<_>>()?;
        let [kind, one, two, three] = words.as_slice() else {
            return None;
        };
        let values = [one, two, three].map(|word| i32::from_ne_bytes(*word));
        Some((u32::from_ne_bytes(*kind), values))
    }
}

/// The first byte selects the expected kind. Then follow messages: the number of bytes and descriptors, and
/// the bytes. Each message is parsed as what it is, and no received descriptor stays open.
pub(crate) fn check(bytes: &[u8]) {
    let Some((awaited, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut all = Vec::new();
    while let [length, descriptors, after @ ..] = rest {
        let length = usize::from(*length).min(after.len());
        let (bytes, later) = after.split_at(length);
        all.push(Said {
            bytes,
            descriptors: usize::from(*descriptors % 8),
        });
        rest = later;
    }
    all.truncate(MESSAGES_MAX);
    let (ours, theirs) = link::pair().expect("a pair");
    let (mut end, sent) = std::io::pipe().expect("a pipe");
    let sent = OwnedFd::from(sent);
    for said in &all {
        say(theirs.as_fd(), said, sent.as_fd());
    }
    drop((sent, theirs));
    let (first, later) = all.split_at(usize::from(awaited & 0x80 != 0).min(all.len()));
    if let [said] = first {
        check_awaited(ours.as_fd(), u32::from(awaited & 0x7f), said);
    }
    for said in later {
        check_heard(ours.as_fd(), said);
    }
    assert!(matches!(receive(ours.as_fd()), Ok(InitMessage::Gone)));
    drop(ours);
    // The end of the pipe: all received descriptors are closed.
    assert_eq!(end.read(&mut [0]).expect("read"), 0);
}

fn say(link: BorrowedFd<'_>, said: &Said<'_>, descriptor: BorrowedFd<'_>) {
    let descriptors = vec![descriptor; said.descriptors];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    }
    let bytes = [IoSlice::new(said.bytes)];
    rustix::net::sendmsg(link, &bytes, &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
}

/// The errno that a message states, if the kernel defines it.
fn is_stated(errno: Errno, number: i32) -> bool {
    match number {
        1..=4095 => errno.raw_os_error() == number,
        _ => errno == Errno::PROTO,
    }
}

fn check_heard(link: BorrowedFd<'_>, said: &Said<'_>) {
    let heard = receive(link);
    let right = match (&heard, said.numbers()) {
        // An empty message looks like the end of the stream.
        (Ok(InitMessage::Gone), None) => said.bytes.is_empty(),
        (Err(errno), None) => *errno == Errno::BADMSG,
        (Ok(InitMessage::Ended(status)), Some((ENDED, [raw, ..]))) => *status == raw,
        (Ok(InitMessage::Connected(id, Ok(_))), Some((CONNECTED, [number, ..]))) => {
            *id == number && 0 < said.descriptors
        }
        (Ok(InitMessage::Connected(id, Err(errno))), Some((CONNECTED, [number, stated, _]))) => {
            let is_right = match stated {
                0 => *errno == Errno::MFILE,
                stated => is_stated(*errno, stated),
            };
            *id == number && said.descriptors == 0 && is_right
        }
        (Ok(InitMessage::Command(event)), Some((kind, values))) => {
            is_said(event, kind, values, said.descriptors)
        }
        (Err(errno), Some((COMMAND_FAILED, [step, ..]))) => {
            *errno == Errno::PROTO && ChildStep::from_number(step).is_none()
        }
        (Ok(InitMessage::Gone), Some((kind, _))) => ![
            ENDED,
            CONNECTED,
            COMMAND_STARTED,
            COMMAND_FAILED,
            COMMAND_ENDED,
        ]
        .contains(&kind),
        _ => false,
    };
    assert!(right, "{heard:?} for {:?}", said.numbers());
}

fn is_said(event: &CommandEvent, kind: u32, values: [i32; 3], descriptors: usize) -> bool {
    let [first, second, third] = values;
    match event {
        CommandEvent::Started(pid, terminal) => {
            kind == COMMAND_STARTED && *pid == first && terminal.is_some() == (descriptors > 0)
        }
        CommandEvent::Failed(step, index, errno) => {
            kind == COMMAND_FAILED
                && *step as i32 == first
                && *index == second
                && is_stated(*errno, third)
        }
        CommandEvent::Ended(pid, status) => {
            kind == COMMAND_ENDED && (*pid, *status) == (first, second)
        }
    }
}

fn check_awaited(link: BorrowedFd<'_>, kind: u32, said: &Said<'_>) {
    let describe = |_: ChildStep, index: usize| format!("number {index}");
    let heard = expect_message(link, kind, "test", &describe);
    let right = match (&heard, said.numbers()) {
        (Ok((message, received)), Some((stated, values))) => {
            (message.kind, message.values) == (kind, values)
                && stated == kind
                && received.iter().flatten().count() == said.descriptors
        }
        (
            Err(SandboxError::Child {
                step, errno: found, ..
            }),
            Some((FAILED, [number, _, errno])),
        ) => {
            kind != FAILED
                && ChildStep::from_number(number).map(|(step, _)| step) == Some(*step)
                && is_stated(*found, errno)
        }
        (Err(SandboxError::Lost { act, errno: found }), Some((LOST, [number, _, errno]))) => {
            kind != LOST
                && ChildStep::from_number(number).map(|(_, act)| act) == Some(*act)
                && is_stated(*found, errno)
        }
        (Err(SandboxError::ChildGone { .. }), Some((stated, [number, ..]))) => {
            let names_a_step = [FAILED, LOST].contains(&stated);
            stated != kind && !(names_a_step && ChildStep::from_number(number).is_some())
        }
        (Err(SandboxError::ChildGone { .. }), None) => said.bytes.is_empty(),
        (Err(SandboxError::Supervisor { errno, .. }), None) => *errno == Errno::BADMSG,
        _ => false,
    };
    assert!(right, "{heard:?} for {:?}", said.numbers());
}
