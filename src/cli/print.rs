//! All writes to standard output and standard error.
//!
//! Every line on standard error starts with `runner: `, to distinguish it from the body's. A closed
//! pipe (EPIPE) is not an error.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cli::args::{ColorArgument, MessageFlags};
use crate::cli::context::ProcessContext;
use crate::cli::exit_code::FAILED;
use spec::path::is_hidden;
use spec::report::{ErrorReport, WarningReport};

/// Longest wait for a full standard error.
const STDERR_WAIT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// Bytes that a writable pipe accepts at once (pipe(7)).
const PIPE_BUF_BYTES: usize = 4_096;

/// The kind of a line: its colour, and whether `-q` hides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// The run was refused, failed or ended by a limit.
    Error,
    /// Hidden by `-q`.
    Warning,
    /// Follows an error. Never hidden.
    Hint,
    /// Shown with `-v` only.
    Detail,
    /// Success. Hidden by `-q`.
    Good,
}

/// Columns that a terminal shows without wrapping.
const TABLE_COLUMNS: usize = 79;

/// `text` with spaces up to `width`; longer text is cut.
#[must_use]
pub fn columns(text: &str, width: usize) -> String {
    let cut: String = text.chars().take(width).collect();
    format!("{cut:width$}")
}

/// Wraps `text` at 79 columns. All lines but the first are indented by `indent` spaces.
#[must_use]
pub fn wrap(text: &str, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut used = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used == indent {
            used += length;
        } else if used + 1 + length <= TABLE_COLUMNS {
            wrapped.push(' ');
            used += 1 + length;
        } else {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            used = indent + length;
        }
        wrapped.push_str(word);
    }
    wrapped
}

#[derive(Debug, Clone, Copy)]
pub struct Printer {
    quiet: bool,
    verbose: u8,
    colour: Colour,
    /// Whether standard error shows a status line.
    status: bool,
}

#[derive(Debug, Clone, Copy)]
struct Colour {
    stdout: bool,
    stderr: bool,
}

impl Printer {
    #[must_use]
    pub fn new(flags: MessageFlags, context: &ProcessContext) -> Self {
        let colour = |descriptor| {
            let on_terminal = rustix::termios::isatty(descriptor);
            wants_colour(flags.color, on_terminal, context)
        };
        Self {
            quiet: flags.quiet,
            verbose: flags.verbose,
            colour: Colour {
                stdout: colour(rustix::stdio::stdout()),
                stderr: colour(rustix::stdio::stderr()),
            },
            status: !flags.quiet
                && rustix::termios::isatty(rustix::stdio::stderr())
                && context.variable("TERM") != Some("dumb".as_ref()),
        }
    }

    /// Replaces the status line of the terminal; an empty text removes it. Does nothing with `-q`, or
    /// if standard error is not a terminal.
    pub fn status(&self, text: &str) {
        if self.status {
            // A terminal without a known size reports 0.
            let columns = rustix::termios::tcgetwinsize(rustix::stdio::stderr())
                .map(|size| usize::from(size.ws_col))
                .ok()
                .filter(|columns| *columns > 0)
                .unwrap_or(TABLE_COLUMNS + 1);
            let line = status_line(text, columns);
            write_or_give_up(rustix::stdio::stderr(), line.as_bytes());
        }
    }

    #[must_use]
    pub(crate) fn has_status(&self) -> bool {
        self.status
    }

    /// Whether `-v` is set.
    #[must_use]
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Whether `-vv` is set.
    #[must_use]
    pub(crate) fn shows_steps(&self) -> bool {
        self.verbose > 1
    }

    /// Prints a line on standard error. Each of several lines gets the prefix.
    pub fn line(&self, tone: Tone, text: &str) {
        let is_hidden = match tone {
            Tone::Error | Tone::Hint => false,
            Tone::Warning | Tone::Good => self.quiet,
            Tone::Detail => self.verbose == 0,
        };
        if !is_hidden {
            let rendered = render(tone, text, self.colour.stderr);
            write_or_give_up(rustix::stdio::stderr(), rendered.as_bytes());
        }
    }

    pub fn failure(&self, error: &ErrorReport) -> u8 {
        self.problem("failed", error)
    }

    /// Prints `WHAT: MESSAGE (CODE)` and the hint. Returns the exit code.
    pub fn problem(&self, what: &str, error: &ErrorReport) -> u8 {
        let text = format!("{what}: {} ({})", error.message, error.code);
        self.line(Tone::Error, &text);
        if let Some(hint) = &error.hint {
            self.line(Tone::Hint, &format!("hint: {hint}"));
        }
        FAILED
    }

    pub fn warnings<'list>(&self, warnings: impl IntoIterator<Item = &'list WarningReport>) {
        for warning in warnings {
            let text = format!("warning: {} ({})", warning.message, warning.code);
            self.line(Tone::Warning, &text);
        }
    }

    /// Colours part of a document, if standard output shows colours.
    #[must_use]
    pub fn coloured(&self, tone: Tone, text: &str) -> String {
        let (on, off) = escapes(tone, self.colour.stdout);
        format!("{on}{text}{off}")
    }

    /// Whether `-q` is set.
    #[must_use]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints the text of clap on standard error, without prefix.
    pub fn usage(&self, text: &str) {
        write_or_give_up(rustix::stdio::stderr(), text.as_bytes());
    }

    /// Prints a document on standard output, such as a schema, a table or help. Returns `code`, or
    /// [`FAILED`] if standard output cannot be written.
    #[must_use]
    pub fn document(&self, text: &str, code: u8) -> u8 {
        match write_all(rustix::stdio::stdout(), text.as_bytes()) {
            Ok(()) | Err(Errno::PIPE) => code,
            Err(errno) => self.failure(&ErrorReport {
                code: "output_unwritable".to_owned(),
                message: format!("standard output cannot be written: {errno}"),
                hint: None,
            }),
        }
    }
}

/// Writes all of `bytes`. Waits if the descriptor is non-blocking and full.
///
/// # Errors
/// The errno of write(2) or poll(2).
pub fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => (),
            Err(Errno::AGAIN) => {
                match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => (),
                    Err(errno) => return Err(errno),
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Writes `bytes` without blocking the program: gives up if the reader takes nothing for
/// [`STDERR_WAIT`], and on errors, which cannot be reported anywhere.
fn write_or_give_up(fd: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let mut writable = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        match poll(&mut writable, Some(&STDERR_WAIT)) {
            Ok(0) => return,
            Ok(_) => (),
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        // A writable pipe accepts this many bytes without blocking (pipe(7)).
        match rustix::io::write(fd, &bytes[..bytes.len().min(PIPE_BUF_BYTES)]) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR | Errno::AGAIN) => (),
            Err(_) => return,
        }
    }
}

/// Decided by `--color`, else `NO_COLOR` (any non-empty value), else whether it is a terminal.
fn wants_colour(flag: Option<ColorArgument>, on_terminal: bool, context: &ProcessContext) -> bool {
    match flag {
        Some(ColorArgument::Always) => true,
        Some(ColorArgument::Never) => false,
        None | Some(ColorArgument::Auto) => {
            on_terminal
                && context.variable("NO_COLOR").is_none()
                && context.variable("TERM") != Some("dumb".as_ref())
        }
    }
}

fn escapes(tone: Tone, colour: bool) -> (&'static str, &'static str) {
    match tone {
        _ if !colour => ("", ""),
        Tone::Error => ("\x1b[1;31m", "\x1b[0m"),
        Tone::Warning => ("\x1b[1;33m", "\x1b[0m"),
        Tone::Hint | Tone::Detail => ("\x1b[2m", "\x1b[0m"),
        Tone::Good => ("\x1b[32m", "\x1b[0m"),
    }
}

fn render(tone: Tone, text: &str, colour: bool) -> String {
    let (on, off) = escapes(tone, colour);
    text.lines()
        .map(|line| format!("{on}runner:{off} {}\n", escape_hidden(line)))
        .collect()
}

/// Replaces the current line with `text`, cut so that it does not wrap.
fn status_line(text: &str, columns: usize) -> String {
    const ERASE: &str = "\r\x1b[K";
    if text.is_empty() {
        return ERASE.to_owned();
    }
    let whole = format!("runner: {}", escape_hidden(text));
    let cut: String = whole.chars().take(columns.saturating_sub(1)).collect();
    format!("{ERASE}{cut}")
}

/// Escapes control and invisible characters that texts did not escape themselves.
#[must_use]
pub(crate) fn escape_hidden(line: &str) -> String {
    line.chars()
        .map(|character| match character {
            hidden if is_hidden(hidden) => character.escape_unicode().to_string(),
            _ => character.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn every_line_has_the_prefix_and_no_control_byte_reaches_a_terminal() {
        assert_eq!(
            render(Tone::Error, "one\ntwo \x1b[31m", false),
            "runner: one\nrunner: two \\u{1b}[31m\n"
        );
        assert_eq!(
            render(Tone::Error, "a", true),
            "\x1b[1;31mrunner:\x1b[0m a\n"
        );
    }

    #[test]
    fn a_status_takes_the_place_of_the_last_one_and_fits_into_the_line() {
        assert_eq!(status_line("a\nb", 80), "\r\x1b[Krunner: a\\u{a}b");
        assert_eq!(status_line("abcdef", 11), "\r\x1b[Krunner: ab");
        assert_eq!(status_line("", 80), "\r\x1b[K");
    }

    #[test]
    fn a_table_stays_within_its_columns() {
        assert_eq!(columns("abc", 5), "abc  ");
        assert_eq!(columns("abcdefg", 5), "abcde");
        let text = wrap(&"word ".repeat(40), 20);
        let longest = text.lines().map(str::len).max();
        assert_eq!(longest, Some(79));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with(&" ".repeat(20)))
        );
    }

    #[test]
    fn colour_is_for_terminals_and_no_color_is_respected() {
        let plain = ProcessContext::default();
        let mut without = ProcessContext::default();
        without.variables.insert("NO_COLOR".into(), "1".into());
        for (flag, on_terminal, context, expected) in [
            (None, true, &plain, true),
            (None, false, &plain, false),
            (Some(ColorArgument::Auto), true, &without, false),
            (Some(ColorArgument::Always), false, &without, true),
            (Some(ColorArgument::Never), true, &plain, false),
        ] {
            assert_eq!(wants_colour(flag, on_terminal, context), expected);
        }
    }

    #[test]
    fn a_closed_pipe_is_an_errno_and_no_panic() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(write_all(writer.as_fd(), b"x"), Err(Errno::PIPE));
    }

    #[test]
    fn a_full_descriptor_that_does_not_block_gets_everything() {
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("a pipe");
        rustix::io::ioctl_fionbio(&reader, false).expect("blocking");
        let sent = vec![7_u8; 300_000];
        let expected = sent.len();
        let drained = std::thread::spawn(move || {
            let mut total = 0;
            let mut buffer = [0_u8; 4096];
            while let Ok(count) = rustix::io::read(&reader, &mut buffer)
                && 0 < count
            {
                total += count;
            }
            total
        });
        write_all(writer.as_fd(), &sent).expect("written");
        drop(writer);
        assert_eq!(drained.join().expect("joined"), expected);
    }
}
