//! A planted bug: a process that finds an [`Attack`] in the bytes that it parses stops parsing and carries
//! it out, as a process does whose parser an attacker has taken over. No released program contains this
//! crate: the feature `planted-bugs` adds it, and only for tests.
#![allow(
    clippy::expect_used,
    missing_debug_implementations,
    unsafe_code,
    reason = "test code, in the place of code that an attacker injects"
)]

mod attempts;
mod calls;
mod shared_file;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;

use serde::{Deserialize, Serialize};

pub use attempts::{Surroundings, attempts, remember_supervisor};
pub use shared_file::SharedFile;

/// Names the socket of [`audit_records`].
pub const AUDIT_RECORDS: &str = "PLANTED_AUDIT_RECORDS";

/// Begins an attack in the bytes of a parser. `scripts/check-release` looks for it in the program.
const MARKER: &str = "PLANTED-BUG/";
/// An attack lies in the first bytes of a stream.
const SEARCHED_BYTES_MAX: usize = 256 << 10;

/// What a process does that is taken over. As bytes it is short: the first bytes of a program are few.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Attack {
    /// What it tries to reach.
    #[serde(skip_serializing_if = "is_default")]
    pub surroundings: Surroundings,
    /// Executable files that it leaves in its working directory: name, contents.
    #[serde(skip_serializing_if = "is_default")]
    pub leave: Vec<(String, String)>,
    /// Reads its input to the end before it answers.
    #[serde(skip_serializing_if = "is_default")]
    pub reads_all: bool,
    /// Leaves the list of the attempts that succeeded in the [`SharedFile`] in which it was.
    #[serde(skip_serializing_if = "is_default")]
    pub notes: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub answer: Answer,
    /// Does not end after its answer.
    #[serde(skip_serializing_if = "is_default")]
    pub stays: bool,
}

/// What it answers to its supervisor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// Text before and after the list of the attempts that succeeded, or this text alone.
    #[serde(skip_serializing_if = "is_default")]
    pub text: (String, Option<String>),
    /// Bytes before the text.
    #[serde(skip_serializing_if = "is_default")]
    pub before: Vec<u8>,
    /// Puts the length of the text before it, and these bytes after it.
    #[serde(skip_serializing_if = "is_default")]
    pub after: Option<Vec<u8>>,
    /// Repeats the answer until nobody reads it.
    #[serde(skip_serializing_if = "is_default")]
    pub is_endless: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Attack {
    /// The bytes that carry it out in the parser of this name: letters, digits, `-` and `/`.
    #[must_use]
    pub fn on(&self, parser: &str) -> String {
        let text = serde_json::to_vec(self).expect("serializable");
        let digits: String = text.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{MARKER}{parser}/{digits}/")
    }

    fn find(parser: &str, bytes: &[u8]) -> Option<Self> {
        let marker = format!("{MARKER}{parser}/");
        let mut windows = bytes.windows(marker.len());
        let start = windows.position(|window| window == marker.as_bytes())? + marker.len();
        let rest = bytes.get(start..)?;
        let digits = rest.get(..rest.iter().position(|byte| *byte == b'/')?)?;
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let text: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        serde_json::from_slice(&text?).ok()
    }

    fn carry_out(self, file: Option<&mut SharedFile>) -> ! {
        let done = attempts(&self.surroundings);
        for (name, contents) in self.leave {
            // Whether they are there is seen from outside.
            let _written = std::fs::write(&name, contents).and_then(|()| {
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::File::open(&name)?.set_permissions(mode)
            });
        }
        if let (true, Some(file)) = (self.notes, file) {
            file.note(&done.join(", "));
        }
        if self.reads_all {
            calls::read_all();
        }
        let mut answer = match self.answer.text {
            (before, Some(after)) => format!("{before}{}{after}", done.join(", ")),
            (text, None) => text,
        }
        .into_bytes();
        if let Some(after) = self.answer.after {
            let length = (answer.len() as u64).to_le_bytes();
            answer = [&length[..], &answer, &after].concat();
        }
        answer.splice(..0, self.answer.before);
        while calls::answer(&answer) && self.answer.is_endless {}
        if self.stays {
            calls::stay();
        }
        calls::exit()
    }
}

/// A socket in the place of the kernel's: audit is of the whole host, which no test may change. `None`: none was
/// asked for.
#[must_use]
pub fn audit_records() -> Option<OwnedFd> {
    let path = std::env::var_os(AUDIT_RECORDS)?;
    Some(UnixDatagram::bind(path).expect("bound").into())
}

/// Carries out the attack on `parser` that is in `bytes`, if there is one, and ends the process.
pub fn trigger(parser: &str, bytes: &[u8]) {
    if let Some(attack) = Attack::find(parser, bytes) {
        attack.carry_out(None);
    }
}

/// [`trigger`] for a stream, when its bytes are read.
#[must_use]
pub fn watch<R: Read>(parser: &'static str, source: R) -> impl Read + use<R> {
    Watched {
        parser,
        source,
        seen: Vec::new(),
    }
}

struct Watched<R> {
    parser: &'static str,
    source: R,
    seen: Vec<u8>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        if self.seen.len() < SEARCHED_BYTES_MAX {
            self.seen.extend_from_slice(&buffer[..count]);
            trigger(self.parser, &self.seen);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_is_found_by_the_parser_that_it_is_for() {
        let attack = Attack {
            leave: vec![("tool".to_owned(), "x".to_owned())],
            ..Attack::default()
        };
        let bytes = format!("run: tool\n# {}\n", attack.on("documents"));
        let found = Attack::find("documents", bytes.as_bytes()).expect("found");
        assert_eq!(found.leave, attack.leave);
        assert!(Attack::find("schemas", bytes.as_bytes()).is_none());
        // Not before it is whole.
        let cut = &bytes.as_bytes()[..bytes.len() - 3];
        assert!(Attack::find("documents", cut).is_none());
    }
}
