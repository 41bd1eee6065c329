//! Output of bodies as text: bounded, without invalid UTF-8, and for eyes without what controls a terminal.

use std::collections::VecDeque;

use spec::path::is_hidden;

/// Most bytes that are kept of the start and of the end of a stream.
const HEAD_BYTES_MAX: usize = 16 << 10;
const TAIL_BYTES_MAX: usize = 16 << 10;

/// Which part of a stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Its start and its end.
    Ends,
    /// Its last lines, as many as fit.
    LastLines(usize),
    /// Its first bytes.
    Start(usize),
}

/// What is kept of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    part: Part,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// What is shown of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    /// Bytes that are not in `text`.
    pub(super) left_out: u64,
    /// Whether invalid bytes were replaced.
    pub(super) is_replaced: bool,
}

impl Stream {
    pub(super) const fn new(part: Part) -> Self {
        Self {
            part,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
        }
    }

    const fn bounds(&self) -> (usize, usize) {
        match self.part {
            Part::Ends => (HEAD_BYTES_MAX, TAIL_BYTES_MAX),
            Part::LastLines(_) => (0, HEAD_BYTES_MAX + TAIL_BYTES_MAX),
            Part::Start(bytes) => (bytes, 0),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head_max, tail_max) = self.bounds();
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(head_max - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(tail_max)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(tail_max);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// The bytes that are kept of [`Part::Start`].
    pub(super) fn into_start(self) -> Vec<u8> {
        self.head
    }

    pub(super) fn show(mut self) -> Shown {
        let mut head = std::mem::take(&mut self.head);
        let mut tail = Vec::from(std::mem::take(&mut self.tail));
        if (head.len() + tail.len()) as u64 == self.total {
            head.append(&mut tail);
        } else {
            // A character that the cut divides is left out.
            head.truncate(whole_characters(&head));
            let start = tail.iter().take_while(|byte| is_continuation(**byte));
            tail.drain(..start.count().min(3));
        }
        if let Part::LastLines(lines) = self.part {
            head.append(&mut tail);
            head.drain(..start_of_last_lines(&head, lines));
        }
        let left_out = self.total - (head.len() + tail.len()) as u64;
        let mut text = String::from_utf8_lossy(&head).into_owned();
        let mut is_replaced = std::str::from_utf8(&head).is_err();
        if left_out > 0 && self.part == Part::Ends {
            text += &format!("\n[… {left_out} bytes left out …]\n");
            text += &String::from_utf8_lossy(&tail);
            is_replaced |= std::str::from_utf8(&tail).is_err();
        }
        Shown {
            text,
            left_out,
            is_replaced,
        }
    }
}

impl Shown {
    /// What a reader has to know of the text of this stream.
    pub(super) fn notes(&self, stream: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if self.left_out > 0 {
            notes.push(format!("{} bytes of {stream} are left out", self.left_out));
        }
        if self.is_replaced {
            notes.push(format!(
                "{stream} is not UTF-8: U+FFFD stands for each invalid byte or sequence"
            ));
        }
        notes
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// The length of `bytes` without a character at the end of which only the first bytes are there.
pub(super) fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => {
            // An earlier byte is invalid: only the last character counts.
            let last = bytes.len().saturating_sub(3);
            let start = bytes[last..].iter().rposition(|byte| *byte >= 0xc0);
            let start = start.map_or(bytes.len(), |at| last + at);
            let end = std::str::from_utf8(&bytes[start..]);
            let is_cut = end.is_err_and(|error| error.error_len().is_none());
            if is_cut { start } else { bytes.len() }
        }
        Ok(_) => bytes.len(),
    }
}

/// Where the last `lines` lines begin; a newline at the end ends the last one.
fn start_of_last_lines(bytes: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return bytes.len();
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let newlines = body.iter().enumerate().rev();
    let mut newlines = newlines.filter(|(_, byte)| **byte == b'\n');
    newlines.nth(lines - 1).map_or(0, |(at, _)| at + 1)
}

/// The text without what controls a terminal or is invisible; lines and tabs stay. Also returns whether
/// that changed anything.
pub(super) fn escape_text(text: &str) -> (String, bool) {
    let mut escaped = String::with_capacity(text.len());
    let mut is_changed = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let ends_line = character == '\r' && characters.peek() == Some(&'\n');
        if matches!(character, '\n' | '\t') || ends_line || !is_hidden(character) {
            escaped.push(character);
        } else {
            escaped.extend(character.escape_unicode());
            is_changed = true;
        }
    }
    (escaped, is_changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(part: Part, pieces: &[&[u8]]) -> Shown {
        let mut stream = Stream::new(part);
        for piece in pieces {
            stream.push(piece);
        }
        stream.show()
    }

    #[test]
    fn a_short_stream_is_kept_as_it_is() {
        let all = shown(Part::Ends, &[b"a\n", "ü\u{1b}[2J".as_bytes()]);
        assert_eq!(all.text, "a\nü\u{1b}[2J");
        assert_eq!((all.left_out, all.is_replaced), (0, false));
        assert!(all.notes("standard output").is_empty());
    }

    #[test]
    fn a_long_stream_has_its_ends_and_says_what_is_left_out() {
        let middle = vec![b'x'; 1 << 20];
        let long = shown(Part::Ends, &[b"first\n", &middle, b"\nlast"]);
        assert!(long.text.starts_with("first\nxxx") && long.text.ends_with("xxx\nlast"));
        let left_out = (1 << 20) + 11 - (HEAD_BYTES_MAX + TAIL_BYTES_MAX) as u64;
        assert_eq!(long.left_out, left_out);
        let mark = format!("\n[… {left_out} bytes left out …]\n");
        assert_eq!(long.text.matches(&mark).count(), 1);
        assert!(!long.is_replaced);
    }

    /// A cut within a character is not the fault of the body.
    #[test]
    fn a_cut_divides_no_character() {
        for shift in 0..4 {
            let text = "x".repeat(shift) + &"€𝄞".repeat(20_000);
            let cut = shown(Part::Ends, &[text.as_bytes()]);
            assert!(!cut.is_replaced && cut.left_out > 0, "{shift}");
            assert!(!cut.text.contains('\u{fffd}'));
            let last = shown(Part::LastLines(5), &[text.as_bytes()]);
            assert!(!last.is_replaced && last.left_out > 0, "{shift}");
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_and_noted() {
        let bad = shown(Part::Ends, &[b"a\xff\xfeb"]);
        assert_eq!(bad.text, "a\u{fffd}\u{fffd}b");
        assert!(bad.notes("standard error")[0].contains("standard error is not UTF-8"));
        // A character that the body itself cuts is invalid, too.
        assert!(shown(Part::Ends, &[b"\xe2\x82"]).is_replaced);
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end() {
        for (lines, expected, left_out) in [
            (0, "", 6),
            (1, "c\n", 4),
            (2, "b\nc\n", 2),
            (3, "a\nb\nc\n", 0),
            (9, "a\nb\nc\n", 0),
        ] {
            let last = shown(Part::LastLines(lines), &[b"a\nb", b"\nc\n"]);
            assert_eq!((&*last.text, last.left_out), (expected, left_out));
        }
        assert_eq!(shown(Part::LastLines(1), &[b"a\nb"]).text, "b");
    }

    #[test]
    fn text_for_eyes_keeps_lines_and_has_no_controls() {
        let (text, is_changed) = escape_text("a\tb\r\nc\u{1b}[31m\u{9b}2J\rd\u{202e}\0");
        assert!(is_changed);
        assert_eq!(text, "a\tb\r\nc\\u{1b}[31m\\u{9b}2J\\u{d}d\\u{202e}\\u{0}");
        assert_eq!(escape_text("äé\n"), ("äé\n".to_owned(), false));
    }
}
