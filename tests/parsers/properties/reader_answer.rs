//! The answers of the processes that read archives without unpacking them, checkouts, and other text. The
//! first byte says what was asked for.

use archive::{Entry, UnpackLimits};
use bundler::source::CheckoutAnswer;
use reader::{read_survey_answer, read_text_answer};
use sandbox::image_user::{ImageUser, ImageUserError};
use spec::path::escape;
use spec::program_format::Format;

/// What is accepted is within the limits, and may be shown, be a path or be an argument of git.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

/// Whether it is an answer to what was asked for.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let Some((question, bytes)) = bytes.split_first() else {
        return false;
    };
    match question {
        b'a' => is_archive(bytes),
        b'h' => is_head(bytes),
        b'u' => is_user(bytes),
        b'w' => is_word(bytes),
        b'l' => is_list(bytes),
        _ => CheckoutAnswer::read(bytes).is_ok_and(|answer| is_of_checkout(*question, answer)),
    }
}

fn is_archive(bytes: &[u8]) -> bool {
    let limits = UnpackLimits {
        unpacked_bytes: 1000,
        entries: 5,
        ..UnpackLimits::default()
    };
    match read_survey_answer(bytes, &limits) {
        Ok((surveyed, _documents)) => {
            assert!(surveyed.bytes <= limits.unpacked_bytes);
            assert!(surveyed.entries <= limits.entries);
            assert_eq!(surveyed.entries, surveyed.tree.len() as u64);
            assert_eq!(surveyed.archive_digest, None);
            for (path, contents) in &surveyed.kept {
                let entry = surveyed.tree.get(path);
                let length = contents.len() as u64;
                assert!(matches!(entry, Some(Entry::File { bytes, .. }) if length <= *bytes));
            }
            super::check_warnings(&surveyed.warnings);
            true
        }
        Err(problem) => super::check_problem(&problem),
    }
}

/// The first line of a program.
fn is_head(bytes: &[u8]) -> bool {
    let Some(format) = read_text_answer::<Option<Format>>(bytes) else {
        return false;
    };
    let format = format.filter(Format::is_possible);
    if let Some(Format::Script(words)) = &format {
        let line = words.join(" ");
        assert!(line.len() < 256 && !line.contains(['\0', '\n']), "{line:?}");
    }
    format.is_some()
}

/// The user of an image.
fn is_user(bytes: &[u8]) -> bool {
    type Found = Result<ImageUser, ImageUserError>;
    let found = read_text_answer::<Found>(bytes).filter(ImageUser::is_possible);
    match &found {
        Some(Ok(user)) => {
            assert!(user.uid != u32::MAX && user.gid != u32::MAX, "{user:?}");
            assert!(user.home.starts_with(b"/") && !user.home.contains(&0));
        }
        Some(Err(error)) => super::assert_plain(&error.to_string()),
        None => (),
    }
    found.is_some()
}

/// A version, a path or the like, which is escaped where it is shown.
fn is_word(bytes: &[u8]) -> bool {
    let word = read_text_answer::<Option<String>>(bytes);
    word.iter().flatten().for_each(|word| assert_escaped(word));
    word.is_some()
}

fn is_list(bytes: &[u8]) -> bool {
    let words = read_text_answer::<Vec<String>>(bytes);
    words.iter().flatten().for_each(|word| assert_escaped(word));
    words.is_some()
}

fn assert_escaped(word: &str) {
    let shown = escape(word.as_bytes());
    assert!(!shown.contains(char::is_control), "{shown:?}");
}

fn is_of_checkout(question: u8, answer: CheckoutAnswer) -> bool {
    let parts = answer.clone().list().len();
    match question {
        b'o' => answer
            .one()
            .is_ok_and(|part| part.is_some() == (parts == 1)),
        b'r' => answer.reference().is_ok_and(|name| {
            super::assert_no_control(&name.unwrap_or_default());
            parts <= 1
        }),
        b'c' => answer.commit().is_ok_and(|name| {
            let digits = name.unwrap_or_default();
            let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            assert!(is_hexadecimal && [0, 40, 64].contains(&digits.len()));
            parts <= 1
        }),
        b't' => answer
            .time_s()
            .is_ok_and(|time| time.is_some() == (parts == 1)),
        b's' => answer.settings().is_ok_and(|pairs| {
            assert_eq!(2 * pairs.len(), parts);
            true
        }),
        b'i' => answer.indexed().is_ok_and(|entries| {
            assert_eq!(2 * entries.len(), parts);
            true
        }),
        b'p' => answer.patterns().is_ok_and(|patterns| {
            assert!(patterns.len() == parts && parts <= 1000);
            true
        }),
        b'@' => answer.address().is_ok_and(|address| {
            let Some(address) = address else {
                return parts == 0;
            };
            assert!(!address.url.contains(['?', '#', ' ']), "{address:?}");
            super::assert_plain(&address.url);
            let user = address.url.split_once('@').map(|(before, _)| before);
            assert!(user.is_none_or(|user| user.ends_with("git")), "{address:?}");
            let name = address.repository.as_deref().unwrap_or_default();
            assert!(address.url.contains(name), "{address:?}");
            true
        }),
        _ => false,
    }
}
