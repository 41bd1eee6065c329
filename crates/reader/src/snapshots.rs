//! Unpacks the snapshot of a source, and the archive of a repository.

use std::fs::File;
use std::os::fd::BorrowedFd;

use archive::{Entry, UnpackLimits, Unpacked};
use confinement::Role;
use serde::{Deserialize, Serialize};
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

use crate::filling::{Answer, Feed, fill};
use crate::message::{self, Problem, Told, is_plain, malformed, split_part, write_header};
use crate::unpacking::worker_limits;

/// The facts of a repository's archive, a header, precede the message about the tree.
const FACTS_BYTES_MAX: u64 = 1 << 10;

/// A repository's archive.
#[derive(Debug)]
pub struct Hosted {
    /// The files of the requested folder.
    pub unpacked: Unpacked,
    /// The comment of `git archive`, if it is plain text: the commit.
    pub comment: Option<String>,
    /// What the archive contains instead of the requested folder; `None` if it has the folder.
    pub instead: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    comment: Option<String>,
    instead: Option<String>,
}

/// Unpacks the snapshot of a source as [`archive::unpack_snapshot`] does, into the empty directory `into`.
///
/// The digest of the archive is that of the bytes of `feed`. Tree and content digest are the word of the
/// reader, checked for what a snapshot within `limits` can contain: compare them with `into`.
///
/// # Errors
/// [`Problem`]; `into` then contains some of the files.
pub fn unpack_snapshot(
    feed: Feed<'_>,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
) -> Result<Unpacked, Problem> {
    let run = |permit: &ParsePermit, source: File| {
        #[cfg(feature = "planted-bugs")]
        let source = confinement::planted::watch("snapshots", source);
        let told = archive::unpack_snapshot(permit, source, into, limits).map(Told::from);
        message::write(told.as_ref())
    };
    let answer = fill_tree(feed, into, limits, &run)?;
    let mut unpacked = read_snapshot_answer(&answer.bytes, limits)?;
    unpacked.archive_digest = Some(answer.archive_digest()?);
    Ok(unpacked)
}

/// Parses the message of a process that unpacked a snapshot.
///
/// # Errors
/// The reader's problem; a message that it cannot have written.
pub fn read_snapshot_answer(bytes: &[u8], limits: &UnpackLimits) -> Result<Unpacked, Problem> {
    let unpacked = message::read_archive_answer(bytes, limits)?;
    let is_link = |entry: &Entry| matches!(entry, Entry::Symlink { .. });
    if unpacked.tree.iter().any(|(_, entry)| is_link(entry)) {
        return Err(malformed());
    }
    Ok(unpacked)
}

/// Unpacks the archive of a repository as [`archive::unpack_hosted`] does, into the empty directory `into`.
///
/// What is true of the result is said at [`unpack_snapshot`]; comment and folder are the word of the reader.
///
/// # Errors
/// [`Problem`]; `into` then contains some of the files.
pub fn unpack_hosted(
    feed: Feed<'_>,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
    folder: Option<&RelPath>,
) -> Result<Hosted, Problem> {
    let run = |permit: &ParsePermit, source: File| {
        #[cfg(feature = "planted-bugs")]
        let source = confinement::planted::watch("repositories", source);
        let (facts, unpacked) =
            match archive::unpack_hosted(permit, source, into, limits, folder.cloned()) {
                Ok(hosted) => {
                    let comment = hosted.comment.and_then(|text| String::from_utf8(text).ok());
                    let facts = Facts {
                        comment: comment.filter(|text| text.len() <= 256 && is_plain(text)),
                        instead: hosted.instead.map(str::to_owned),
                    };
                    (facts, Ok(hosted.unpacked))
                }
                Err(error) => (Facts::default(), Err(error)),
            };
        write_hosted(&facts, &message::write(unpacked.map(Told::from).as_ref()))
    };
    let answer = fill_tree(feed, into, limits, &run)?;
    let mut hosted = read_hosted_answer(&answer.bytes, limits)?;
    hosted.unpacked.archive_digest = Some(answer.archive_digest()?);
    Ok(hosted)
}

fn write_hosted(facts: &Facts, message: &[u8]) -> Vec<u8> {
    let mut bytes = write_header(facts);
    bytes.extend_from_slice(message);
    bytes
}

/// Parses the message of a process that unpacked the archive of a repository.
///
/// # Errors
/// The reader's problem; a message that it cannot have written.
pub fn read_hosted_answer(bytes: &[u8], limits: &UnpackLimits) -> Result<Hosted, Problem> {
    let (facts, message) = split_part(bytes).ok_or_else(malformed)?;
    if facts.len() as u64 > FACTS_BYTES_MAX {
        return Err(malformed());
    }
    let facts: Facts = serde_json::from_slice(facts).map_err(|_error| malformed())?;
    let unpacked = message::read_archive_answer(message, limits)?;
    if ![&facts.comment, &facts.instead]
        .into_iter()
        .flatten()
        .all(|text| is_plain(text))
    {
        return Err(malformed());
    }
    Ok(Hosted {
        unpacked,
        comment: facts.comment,
        instead: facts.instead,
    })
}

fn fill_tree(
    feed: Feed<'_>,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
    run: &dyn Fn(&ParsePermit, File) -> Vec<u8>,
) -> Result<Answer, Problem> {
    let worker_limits = worker_limits(limits, None, 8 + FACTS_BYTES_MAX);
    let role = Role::Unpacker {
        directory: into,
        ids: None,
    };
    fill(feed, role, worker_limits, run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::Tree;
    use proptest::prelude::*;
    use spec::digest::Digest;

    fn message(tree: Tree) -> Vec<u8> {
        message::write(Ok(&Told {
            content_digest: Some(Digest::of(b"content")),
            tree,
            warnings: Vec::new(),
        }))
    }

    fn tool() -> Vec<u8> {
        message(Tree::with_program(
            RelPath::parse(b"bin/tool").expect("a path"),
        ))
    }

    fn told(comment: Option<&str>, instead: Option<&str>) -> Vec<u8> {
        let facts = Facts {
            comment: comment.map(str::to_owned),
            instead: instead.map(str::to_owned),
        };
        write_hosted(&facts, &tool())
    }

    #[test]
    fn the_facts_of_an_archive_are_read_back_and_bad_ones_are_malformed() {
        let limits = UnpackLimits::default();
        let found = read_hosted_answer(&told(Some("4f3a"), Some("a file")), &limits).expect("read");
        assert_eq!(found.comment.as_deref(), Some("4f3a"));
        assert_eq!(found.instead.as_deref(), Some("a file"));
        assert_eq!(found.unpacked.entries, 2);
        let long = "x".repeat(message::TEXT_BYTES_MAX + 1);
        for bad in [
            Vec::new(),
            vec![0xff; 4],
            tool(),
            told(Some("\u{1b}[31m"), None),
            told(None, Some("\n")),
            told(Some(&long), None),
        ] {
            let found = read_hosted_answer(&bad, &limits).expect_err("malformed");
            assert!(found.code.ends_with("_unreadable"), "{bad:?}");
        }
    }

    /// What a reader that was taken over answers, without having read anything.
    fn forged(answer: &[u8]) -> Result<Answer, Problem> {
        let feed = Feed {
            source: &mut std::io::repeat(0),
            is_cancelled: &|| false,
        };
        let directory = tempfile::tempdir().expect("a directory");
        let into = File::open(directory.path()).expect("opened");
        let limits = UnpackLimits::default();
        fill_tree(
            feed,
            std::os::fd::AsFd::as_fd(&into),
            &limits,
            &|_permit, _source| answer.to_vec(),
        )
    }

    #[test]
    fn a_reader_that_did_not_read_the_whole_archive_unpacked_nothing() {
        let answer = forged(&tool()).expect("an answer");
        let found = answer.archive_digest().expect_err("early");
        assert!(found.message.contains("before it had the whole"), "{found}");
    }

    #[test]
    fn a_snapshot_has_no_links() {
        let mut tree = Tree::default();
        let limits = UnpackLimits::default();
        let link = Entry::Symlink {
            target: b"b".to_vec(),
        };
        for (name, entry) in [("a", link), ("b", Entry::Directory)] {
            let path = RelPath::parse(name.as_bytes()).expect("a path");
            tree.insert(path, entry, limits.tree_limits())
                .expect("fits");
        }
        let found = read_snapshot_answer(&message(tree), &limits).expect_err("a link");
        assert!(found.message.contains("malformed"), "{found}");
    }

    #[test]
    fn a_reader_without_an_answer_is_a_refusal() {
        let found = forged(b"").err().expect("no answer");
        assert!(found.is_refusal() && found.message.contains("without an answer"));
    }

    proptest! {
        #[test]
        fn no_message_panics(cut in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = told(Some("4f3a"), None);
            let index = cut.index(bytes.len());
            bytes[index] = byte;
            let _read = read_hosted_answer(&bytes, &UnpackLimits::default());
            bytes.truncate(index);
            let _read = read_hosted_answer(&bytes, &UnpackLimits::default());
        }
    }
}
