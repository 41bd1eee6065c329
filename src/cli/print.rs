//! Messages on standard error and documents on standard output.
//!
//! Each line of a message starts with `runner: `, to distinguish it from the body's. Lines of the log
//! (`--log-format`) and the usage that clap prints do not.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cli::args::{ColorArgument, MessageFlags};
use crate::cli::context::ProcessContext;
use crate::cli::exit_code::FAILED;
use spec::document::SourceLine;
use spec::path::is_hidden;
use spec::report::{ErrorReport, WarningReport};

/// Longest wait for a full standard error.
const STDERR_WAIT_S: i64 = 5;
/// Whether the last write to standard error gave up: then the next one does not wait.
static IS_STDERR_STUCK: AtomicBool = AtomicBool::new(false);
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
    /// Shown with `-v` only, and hidden by `-q`.
    Detail,
    /// Success. Hidden by `-q`.
    Good,
}

/// The width of a terminal that reports none.
const TERMINAL_COLUMNS: usize = 80;

/// `text` with spaces up to `width`; longer text is cut.
#[must_use]
pub fn columns(text: &str, width: usize) -> String {
    let cut: String = text.chars().take(width).collect();
    format!("{cut:width$}")
}

/// Wraps `text` at 79 columns. All lines but the first are indented by `indent` spaces. Several spaces
/// in a row stay: the text may be a command line to copy.
#[must_use]
pub fn wrap(text: &str, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut used = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used == indent {
            used += length;
        } else if used + 1 + length < TERMINAL_COLUMNS {
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

/// The line with its number, and a caret below the place of the error.
#[must_use]
pub(crate) fn excerpt(line: &SourceLine) -> String {
    let snippet = Snippet::source(&line.text)
        .line_start(usize::try_from(line.number).unwrap_or(usize::MAX))
        .annotation(AnnotationKind::Primary.span(line.at..line.at));
    let excerpt = Group::with_level(Level::ERROR).element(snippet);
    Renderer::plain().render(&[excerpt])
}

#[derive(Debug, Clone, Copy)]
pub struct Printer {
    quiet: bool,
    verbose: u8,
    colour: Colour,
    /// Whether standard error shows a status line: a terminal, without `-q`.
    has_status_line: bool,
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
            has_status_line: !flags.quiet
                && rustix::termios::isatty(rustix::stdio::stderr())
                && context.variable("TERM") != Some("dumb".as_ref()),
        }
    }

    /// The same without a status line: standard output has JSON, which a person does not read.
    #[must_use]
    pub(crate) fn without_status_line(self) -> Self {
        Self {
            has_status_line: false,
            ..self
        }
    }

    /// Replaces the status line, if there is one; an empty text removes it.
    pub(crate) fn show_status(&self, text: &str) {
        if self.has_status_line {
            // 0: the terminal does not know its size.
            let columns = rustix::termios::tcgetwinsize(rustix::stdio::stderr())
                .map(|size| usize::from(size.ws_col))
                .ok()
                .filter(|columns| *columns > 0)
                .unwrap_or(TERMINAL_COLUMNS);
            let line = render_status(text, columns);
            write_stderr(line.as_bytes());
        }
    }

    #[must_use]
    pub(crate) fn has_status_line(&self) -> bool {
        self.has_status_line
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
        if self.is_shown(tone) {
            let rendered = render(tone, text, self.colour.stderr);
            write_stderr(rendered.as_bytes());
        }
    }

    fn is_shown(&self, tone: Tone) -> bool {
        match tone {
            Tone::Error | Tone::Hint => true,
            Tone::Warning | Tone::Good => !self.quiet,
            Tone::Detail => !self.quiet && self.is_verbose(),
        }
    }

    pub fn failure(&self, error: &ErrorReport) -> u8 {
        self.problem("failed", error)
    }

    /// Prints `WHAT: MESSAGE (CODE)` and the hint. Returns the exit code.
    pub fn problem(&self, what: &str, error: &ErrorReport) -> u8 {
        let text = format!("{what}: {} ({})", error.message, error.code);
        self.line(Tone::Error, &text);
        if let Some(line) = &error.source_line {
            self.line(Tone::Hint, &excerpt(line));
        }
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
        write_stderr(text.as_bytes());
    }

    /// Prints a document on standard output, such as a schema, a table or help. Returns `code`, or
    /// `FAILED` if standard output cannot be written; a reader that closed the pipe is no failure.
    #[must_use]
    pub fn document(&self, text: &str, code: u8) -> u8 {
        self.bytes(text.as_bytes(), code)
    }

    /// As [`Self::document`], for bytes.
    #[must_use]
    pub(crate) fn bytes(&self, bytes: &[u8], code: u8) -> u8 {
        match write_all(rustix::stdio::stdout(), bytes) {
            Ok(()) | Err(Errno::PIPE) => code,
            Err(errno) => self.failure(&ErrorReport::new(
                "output_unwritable",
                format!("standard output cannot be written: {errno}"),
            )),
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

/// Writes output of a body unchanged, as the body would have. Returns whether somebody reads it.
pub(crate) fn write_body_output(bytes: &[u8]) -> bool {
    write_all(rustix::stdio::stdout(), bytes).is_ok()
}

/// Writes what a body wrote to standard error. A failure cannot be reported anywhere.
pub(crate) fn write_body_errors(bytes: &[u8]) {
    match write_all(rustix::stdio::stderr(), bytes) {
        Ok(()) | Err(_) => (),
    }
}

fn write_stderr(bytes: &[u8]) {
    write_or_give_up(rustix::stdio::stderr(), bytes, &IS_STDERR_STUCK);
}

/// Writes `bytes`. Gives up on errors, which cannot be reported anywhere, and if the reader takes nothing
/// for [`STDERR_WAIT_S`]: a reader that has stopped delays the program once.
fn write_or_give_up(fd: BorrowedFd<'_>, mut bytes: &[u8], is_stuck: &AtomicBool) {
    while !bytes.is_empty() {
        let mut writable = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        let wait = Timespec {
            tv_sec: i64::from(!is_stuck.load(Ordering::Relaxed)) * STDERR_WAIT_S,
            tv_nsec: 0,
        };
        match poll(&mut writable, Some(&wait)) {
            Ok(0) => return is_stuck.store(true, Ordering::Relaxed),
            Ok(_) => is_stuck.store(false, Ordering::Relaxed),
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
fn render_status(text: &str, columns: usize) -> String {
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
        .map(|character| {
            if is_hidden(character) {
                character.escape_unicode().to_string()
            } else {
                character.to_string()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd as _;

    proptest! {
        /// Wide, narrow and combining characters: the line, and a caret below it.
        #[test]
        fn each_excerpt_is_three_lines(text in "[a-z\\PC]{1,90}", at in any::<prop::sample::Index>()) {
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = *at.get(&starts);
            let line = SourceLine { number: 12, text, at };
            let shown = excerpt(&line);
            let lines: Vec<&str> = shown.lines().collect();
            prop_assert_eq!(lines.len(), 3, "{}", shown);
            prop_assert!(lines[1].starts_with("12 | "), "{}", shown);
            prop_assert!(lines[2].trim_end().ends_with('^'), "{}", shown);
        }
    }

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
    fn quiet_hides_all_but_errors_and_their_hints() {
        let shown = |quiet, verbose| {
            let flags = MessageFlags {
                quiet,
                verbose,
                ..MessageFlags::default()
            };
            let printer = Printer::new(flags, &ProcessContext::default());
            [
                Tone::Error,
                Tone::Hint,
                Tone::Warning,
                Tone::Good,
                Tone::Detail,
            ]
            .map(|tone| printer.is_shown(tone))
        };
        assert_eq!(shown(false, 0), [true, true, true, true, false]);
        assert_eq!(shown(false, 1), [true; 5]);
        for verbose in [0, 2] {
            assert_eq!(shown(true, verbose), [true, true, false, false, false]);
        }
    }

    #[test]
    fn a_status_takes_the_place_of_the_last_one_and_fits_into_the_line() {
        assert_eq!(render_status("a\nb", 80), "\r\x1b[Krunner: a\\u{a}b");
        assert_eq!(render_status("abcdef", 11), "\r\x1b[Krunner: ab");
        assert_eq!(render_status("", 80), "\r\x1b[K");
    }

    #[test]
    fn a_table_stays_within_its_columns() {
        assert_eq!(columns("abc", 5), "abc  ");
        assert_eq!(columns("abcdefg", 5), "abcde");
        assert_eq!(
            wrap("sh -c 'echo  \"a   b\"'", 20),
            "sh -c 'echo  \"a   b\"'"
        );
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
    fn a_reader_that_has_stopped_is_not_waited_for_again_and_one_that_reads_again_gets_lines() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("does not block");
        while rustix::io::write(&writer, &[0; PIPE_BUF_BYTES]).is_ok() {}
        let is_stuck = AtomicBool::new(true);
        let started = std::time::Instant::now();
        write_or_give_up(writer.as_fd(), b"lost", &is_stuck);
        assert!(started.elapsed().as_secs() < 5);
        assert!(is_stuck.load(Ordering::Relaxed));
        let mut buffer = vec![0; 2 << 20];
        rustix::io::read(&reader, &mut buffer).expect("read");
        write_or_give_up(writer.as_fd(), b"line", &is_stuck);
        assert!(!is_stuck.load(Ordering::Relaxed));
        assert_eq!(rustix::io::read(&reader, &mut buffer), Ok(4));
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
