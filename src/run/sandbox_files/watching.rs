//! The client's side of a watched directory.

use std::io;

use sandbox::supervise::streams::Writer;
use serde::Serialize;
use spec::base64::Base64;
use spec::path::is_hidden;
use spec::request::Caller;
use spec::sandboxes::{Action, SandboxName};

use crate::run::sandbox_files::copying::{CopyError, Copying, listen};
use crate::run::sandbox_files::streams::Streams;
use crate::run::sandbox_files::{RECURSIVE, record};

const PIECE_BYTES: usize = 64 << 10;
/// A path has at most 4 KiB, and the name of an event 255 bytes.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// A line of what `runner sandbox watch` prints.
#[derive(Debug, Serialize)]
struct WatchEvent<'record> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'record str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<Base64<'record>>,
}

impl<'record> WatchEvent<'record> {
    /// `None`: not what the command in the sandbox writes.
    fn of_record(record: &'record [u8]) -> Option<Self> {
        let (letter, path) = record.split_first()?;
        let kind = match *letter {
            record::STARTED => "started",
            record::CREATE => "create",
            record::WRITE => "write",
            record::REMOVE => "remove",
            record::RENAME => "rename",
            record::CHMOD => "chmod",
            record::OVERFLOW => "overflow",
            _ => return None,
        };
        let has_path = !matches!(*letter, record::STARTED | record::OVERFLOW);
        if has_path == path.is_empty() {
            return None;
        }
        let text = std::str::from_utf8(path).ok();
        Some(Self {
            kind,
            path: text.filter(|_| has_path),
            path_base64: (has_path && text.is_none()).then_some(Base64(path)),
        })
    }

    fn line(&self) -> String {
        // Strings: this cannot fail.
        let json = serde_json::to_string(self).unwrap_or_default();
        let mut line = String::with_capacity(json.len() + 1);
        for character in json.chars() {
            match is_hidden(character) {
                // JSON has such a character in strings alone.
                true => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        line.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                false => line.push(character),
            }
        }
        line.push('\n');
        line
    }
}

/// Writes a line to standard output for each event of the directory `path` of a sandbox, until it is cancelled.
///
/// # Errors
/// [`CopyError`].
pub(crate) fn watch(
    caller: &Caller,
    name: &SandboxName,
    path: &[u8],
    is_recursive: bool,
) -> Result<(), CopyError> {
    let signals = listen()?;
    let recursive: &[u8] = match is_recursive {
        true => RECURSIVE.as_bytes(),
        false => b"flat",
    };
    let words: [&[u8]; 3] = [b"watch", path, recursive];
    let mut copying = Copying::start(caller, name, Action::WatchFiles, &words, &signals)?;
    let passed = pass_events(&mut copying.streams);
    let passed = passed.map_err(|source| CopyError::Stream {
        act: "pass the events on",
        source,
    });
    copying.finish(passed).map(|((), _messages)| ())
}

fn pass_events(streams: &mut Streams<'_>) -> io::Result<()> {
    let writer = Writer::new(rustix::stdio::stdout())?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut rest = Vec::new();
    loop {
        let count = io::Read::read(streams, &mut piece)?;
        if count == 0 {
            return Ok(());
        }
        rest.extend_from_slice(&piece[..count]);
        let Some(end) = rest.iter().rposition(|byte| *byte == 0) else {
            if rest.len() > RECORD_BYTES_MAX {
                return Err(malformed());
            }
            continue;
        };
        let mut lines = String::new();
        for record in rest[..end].split(|byte| *byte == 0) {
            let event = WatchEvent::of_record(record).ok_or_else(malformed)?;
            lines.push_str(&event.line());
        }
        rest.drain(..=end);
        streams.write_to(&writer, lines.as_bytes())?;
    }
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the sandbox did not send an event",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hide_nothing_and_have_any_name() {
        for (record, line) in [
            (&b"S"[..], "{\"type\":\"started\"}\n"),
            (b"o", "{\"type\":\"overflow\"}\n"),
            (b"ca/b c", "{\"type\":\"create\",\"path\":\"a/b c\"}\n"),
            (
                b"w\n\x1b\x7f\"",
                "{\"type\":\"write\",\"path\":\"\\n\\u001b\\u007f\\\"\"}\n",
            ),
            (
                "r\u{202e}é\u{e0001}".as_bytes(),
                "{\"type\":\"remove\",\"path\":\"\\u202eé\\udb40\\udc01\"}\n",
            ),
            (b"m\xff", "{\"type\":\"rename\",\"path_base64\":\"/w==\"}\n"),
        ] {
            let event = WatchEvent::of_record(record).expect("an event");
            assert_eq!(event.line(), line);
        }
        for record in [&b""[..], b"c", b"x/a", b"Sx", b"ox"] {
            assert!(WatchEvent::of_record(record).is_none(), "{record:?}");
        }
    }
}
