//! Asks a process without rights which names the patterns of ignore files and of sources match.
//!
//! It is started with the first pattern, and is told which they are. Then it decides about all names of a
//! directory at once, before their types are known: as if each were a file and as if it were a directory.

use reader::{Dialogue, put_part, split_parts};
use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape};

use crate::error::BundleError;
use crate::ignored::{IgnoreRules, PatternError};
use crate::pattern::PathPattern;

/// Bytes of the names in one question.
const NAMES_BYTES_MAX: usize = 32 << 10;
const REASON_BYTES_MAX: usize = 8 << 10;
/// Kinds of ignore files in a source.
const KINDS_MAX: usize = 2;

/// What the ignore files say about one name: the first kind with a matching pattern, and whether it
/// ignores or, with `!`, includes the name.
pub(crate) type Decision = Option<(usize, bool)>;

/// What is said about one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    as_file: Decision,
    as_directory: Decision,
    /// Whether the pattern of the source selects it.
    pub(crate) is_selected: bool,
}

/// Of a source without patterns.
const UNTOUCHED: Verdict = Verdict {
    as_file: None,
    as_directory: None,
    is_selected: true,
};

impl Verdict {
    pub(crate) fn decision(self, is_directory: bool) -> Decision {
        if is_directory {
            self.as_directory
        } else {
            self.as_file
        }
    }

    fn to_byte(self) -> u8 {
        let number = |decision: Decision| match decision {
            None => 0,
            Some((kind, is_ignored)) => {
                1 + 2 * u8::try_from(kind).unwrap_or_default() + u8::from(is_ignored)
            }
        };
        number(self.as_file) | number(self.as_directory) << 3 | u8::from(self.is_selected) << 6
    }

    /// `None` for a byte that is no verdict.
    fn of_byte(byte: u8) -> Option<Self> {
        let decision = |number: u8| match usize::from(number & 7).checked_sub(1) {
            None => Some(None),
            Some(code) if code < 2 * KINDS_MAX => Some(Some((code / 2, code % 2 == 1))),
            Some(_) => None,
        };
        Some(Self {
            as_file: decision(byte)?,
            as_directory: decision(byte >> 3)?,
            is_selected: byte & 0x40 != 0,
        })
        .filter(|_| byte & 0x80 == 0)
    }
}

/// The patterns of one source after another.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    process: Option<Dialogue>,
    /// Whether the current source has a pattern.
    has_patterns: bool,
}

const BEGIN: u8 = 0;
const IGNORE: u8 = 1;
const SELECT: u8 = 2;
const SELECT_BELOW: u8 = 3;
const NAMES: u8 = 4;

impl Matching {
    /// Forgets the patterns of the source before.
    pub(crate) fn begin(&mut self) -> Result<(), BundleError> {
        if std::mem::take(&mut self.has_patterns) {
            self.ask(BEGIN, &[], 0)
                .map_err(|reason| unmatched(None, reason))?;
        }
        Ok(())
    }

    /// Adds the ignore file of `directory`, and returns how many patterns it has.
    pub(crate) fn add_ignore_file(
        &mut self,
        kind: usize,
        directory: Option<&RelPath>,
        text: &[u8],
    ) -> Result<usize, PatternError> {
        let kind = [u8::try_from(kind).unwrap_or_default()];
        let parts = [&kind, bytes_of(directory), text];
        self.tell(IGNORE, &parts)
    }

    /// Selects what the pattern matches or, if `is_below`, what is below of it.
    pub(crate) fn select(&mut self, pattern: &[u8], is_below: bool) -> Result<(), BundleError> {
        let kind = if is_below { SELECT_BELOW } else { SELECT };
        let told = self.tell(kind, &[pattern]);
        told.map(drop).map_err(|(_, reason)| BundleError::Pattern {
            pattern: escape(pattern),
            reason,
        })
    }

    /// Decides about names in the directory `from`, which is `relative` in the walked one.
    pub(crate) fn verdicts(
        &mut self,
        from: Option<&RelPath>,
        relative: Option<&RelPath>,
        names: &[Vec<u8>],
    ) -> Result<Vec<Verdict>, BundleError> {
        if !self.has_patterns {
            return Ok(vec![UNTOUCHED; names.len()]);
        }
        let mut verdicts = Vec::with_capacity(names.len());
        let mut rest = names;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |name: &&Vec<u8>| {
                bytes += name.len() + 1;
                bytes <= NAMES_BYTES_MAX
            };
            let count = rest.iter().take_while(fits).count();
            let (asked, others) = rest.split_at(count.max(1));
            let parts = [bytes_of(from), bytes_of(relative), &asked.join(&0)];
            let answer = self.ask(NAMES, &parts, asked.len());
            let answer = answer.map_err(|reason| unmatched(from, reason))?;
            let read = read_verdicts(&answer, asked.len());
            verdicts.extend(read.ok_or_else(|| unmatched(from, MALFORMED.to_owned()))?);
            rest = others;
        }
        Ok(verdicts)
    }

    /// Decides about one path.
    pub(crate) fn verdict(&mut self, path: &RelPath) -> Result<Verdict, BundleError> {
        let parent = path.parent();
        let name = path.file_name().to_vec();
        let verdicts = self.verdicts(parent.as_ref(), None, &[name])?;
        Ok(verdicts.first().copied().unwrap_or(UNTOUCHED))
    }

    /// Tells a pattern, and returns the answer: a count, or what is wrong with it.
    fn tell(&mut self, kind: u8, parts: &[&[u8]]) -> Result<usize, PatternError> {
        self.has_patterns = true;
        let answer = self.ask(kind, parts, NUMBER_BYTES + 1 + REASON_BYTES_MAX);
        let answer = answer.map_err(|reason| (None, reason))?;
        read_pattern_answer(&answer).unwrap_or_else(|| Err((None, MALFORMED.to_owned())))
    }

    fn ask(&mut self, kind: u8, parts: &[&[u8]], bytes_max: usize) -> Result<Vec<u8>, String> {
        let process = match &mut self.process {
            Some(process) => process,
            none => {
                let mut patterns = SourcePatterns::default();
                let started = Dialogue::start(&mut |permit, question| {
                    patterns.answer(permit, question).unwrap_or_default()
                });
                none.insert(started?)
            }
        };
        let mut question = vec![kind];
        for part in parts {
            put_part(part, &mut question);
        }
        process.ask(&question, bytes_max)
    }
}

const MALFORMED: &str = "the answer of its reader is malformed";
const NUMBER_BYTES: usize = 8;

fn unmatched(directory: Option<&RelPath>, reason: String) -> BundleError {
    BundleError::Unmatched {
        directory: directory.map_or_else(|| ".".to_owned(), RelPath::to_string),
        reason,
    }
}

fn bytes_of(path: Option<&RelPath>) -> &[u8] {
    path.map_or(&[][..], RelPath::as_bytes)
}

/// Parses the answer about patterns: how many there are, or what is wrong with one. `None`: malformed.
pub fn read_pattern_answer(answer: &[u8]) -> Option<Result<usize, PatternError>> {
    let (number, reason) = answer.split_first_chunk::<NUMBER_BYTES>()?;
    let number = usize::try_from(u64::from_le_bytes(*number)).ok()?;
    if reason.is_empty() {
        return Some(Ok(number));
    }
    let reason = std::str::from_utf8(reason).ok()?;
    let line = (number != 0).then_some(number);
    // For the terminal: a forged text may contain control characters.
    Some(Err((line, escape(reason.as_bytes()))))
}

/// Parses the answer about so many names. `None`: malformed.
pub fn read_verdicts(answer: &[u8], names: usize) -> Option<Vec<Verdict>> {
    let verdicts = answer.iter().map(|byte| Verdict::of_byte(*byte));
    verdicts
        .collect::<Option<Vec<_>>>()
        .filter(|read| read.len() == names)
}

/// In the process without rights: the patterns of one source.
#[derive(Default)]
struct SourcePatterns {
    ignored: [IgnoreRules; KINDS_MAX],
    selection: Option<Selection>,
}

struct Selection {
    pattern: PathPattern,
    is_below: bool,
}

impl SourcePatterns {
    /// `None` for what the asking side does not send.
    fn answer(&mut self, permit: &ParsePermit, question: &[u8]) -> Option<Vec<u8>> {
        let (kind, parts) = question.split_first()?;
        match (*kind, &split_parts(parts)?[..]) {
            (BEGIN, []) => {
                *self = Self::default();
                Some(Vec::new())
            }
            (IGNORE, [[kind], directory, text]) => {
                let rules = self.ignored.get_mut(usize::from(*kind))?;
                let text = std::str::from_utf8(text).map_err(|error| {
                    let valid = &text[..error.valid_up_to()];
                    let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
                    (Some(line), "it is not UTF-8".to_owned())
                });
                let added = text.and_then(|text| rules.add(permit, directory, text));
                Some(told(added))
            }
            (SELECT | SELECT_BELOW, [pattern]) => {
                let is_below = *kind == SELECT_BELOW;
                Some(told(PathPattern::parse(permit, pattern).map(|pattern| {
                    self.selection = Some(Selection { pattern, is_below });
                    1
                })))
            }
            (NAMES, [from, relative, names]) => {
                let verdict = |name: &[u8]| {
                    let verdict = self.verdict(&joined(from, name), &joined(relative, name));
                    verdict.to_byte()
                };
                Some(names.split(|byte| *byte == 0).map(verdict).collect())
            }
            _ => None,
        }
    }

    fn verdict(&self, path: &[u8], relative: &[u8]) -> Verdict {
        let decision = |is_directory| {
            let kinds = self.ignored.iter().enumerate();
            kinds
                .filter_map(|(kind, rules)| Some((kind, rules.ignores(path, is_directory)?)))
                .next()
        };
        Verdict {
            as_file: decision(false),
            as_directory: decision(true),
            is_selected: self
                .selection
                .as_ref()
                .is_none_or(|selection| selection.selects(relative)),
        }
    }
}

impl Selection {
    fn selects(&self, relative: &[u8]) -> bool {
        if !self.is_below {
            return self.pattern.matches(relative);
        }
        let slashes = (0..relative.len()).filter(|at| relative[*at] == b'/');
        let mut above = slashes.map(|slash| &relative[..slash]);
        above.any(|directory| self.pattern.matches(directory))
    }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, b"/", name].concat()
}

fn told(told: Result<usize, PatternError>) -> Vec<u8> {
    let (number, reason) = match told {
        Ok(count) => (count, String::new()),
        Err((line, reason)) => (line.unwrap_or_default(), reason),
    };
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    [
        &(number as u64).to_le_bytes()[..],
        &reason.as_bytes()[..end],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn names(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_verdict_is_one_byte_and_other_bytes_are_refused() {
        let read = (0..=u8::MAX).filter_map(|byte| Some((byte, Verdict::of_byte(byte)?)));
        let read: Vec<_> = read.collect();
        assert_eq!(read.len(), 50);
        for (byte, verdict) in read {
            assert_eq!(verdict.to_byte(), byte, "{verdict:?}");
        }
    }

    #[test]
    fn what_is_told_of_a_pattern_is_read_again() {
        for (sent, expected) in [
            (Ok(7), Ok(7)),
            (Err((None, "x".to_owned())), Err((None, "x".to_owned()))),
            (
                Err((Some(2), "a\u{1b}".to_owned())),
                Err((Some(2), escape(b"a\x1b"))),
            ),
        ] {
            assert_eq!(read_pattern_answer(&told(sent)), Some(expected));
        }
        assert_eq!(read_pattern_answer(b"short"), None);
        assert_eq!(read_pattern_answer(b"12345678\xff"), None);
    }

    ///
    #[test]
    fn a_process_decides_and_forgets_the_source_before() {
        let mut matching = Matching::default();
        let listed = names(&["a.o", "b"]);
        let verdicts = matching.verdicts(None, None, &listed).expect("decided");
        assert_eq!(verdicts, [UNTOUCHED; 2]);
        assert!(matching.process.is_none(), "started without a pattern");
        let added = matching.add_ignore_file(0, None, b"*.o\nb/\n");
        assert_eq!(added, Ok(2));
        let lib = path("lib");
        assert_eq!(matching.add_ignore_file(1, Some(&lib), b"!a.o"), Ok(1));
        matching.select(b"*.o", false).expect("a pattern");
        let verdicts = matching.verdicts(None, None, &listed).expect("decided");
        let expected = [
            (Some((0, true)), Some((0, true)), true),
            (None, Some((0, true)), false),
        ];
        let told = |verdict: &Verdict| {
            let decisions = (verdict.decision(false), verdict.decision(true));
            (decisions.0, decisions.1, verdict.is_selected)
        };
        assert_eq!(verdicts.iter().map(told).collect::<Vec<_>>(), expected);
        let verdict = matching.verdict(&path("lib/a.o")).expect("decided");
        assert_eq!(verdict.decision(false), Some((0, true)));
        let refused = matching.add_ignore_file(0, None, b"a\n[z-a]");
        assert_eq!(refused.expect_err("refused").0, Some(2));
        let refused = matching.add_ignore_file(0, None, b"a\n\xff");
        let expected = (Some(2), "it is not UTF-8".to_owned());
        assert_eq!(refused, Err(expected));
        matching.begin().expect("begun");
        matching.select(b"lib*", true).expect("a pattern");
        let many: Vec<Vec<u8>> = (0..20_000).map(|n| format!("{n}.o").into_bytes()).collect();
        let verdicts = matching.verdicts(None, Some(&lib), &many).expect("decided");
        assert_eq!(verdicts, vec![UNTOUCHED; many.len()]);
    }
}
