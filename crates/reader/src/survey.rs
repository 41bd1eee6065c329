//! Reads a bundle without unpacking it.

use std::collections::BTreeMap;
use std::fs::File;

use archive::{Entry, Hashed, Surveyed, Tree, UnpackLimits, kept_bytes_max};
use confinement::Role;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;
use sys::worker::{Answer, Sent, Work, WorkerLimits, run_in_child};

use crate::WaitLimit;
use crate::documents::Documents;
use crate::message::{self, Problem, Told, malformed, put_part, split_part};
use crate::unpacking::{UnpackFailure, worker_limits};

/// How an archive is read without unpacking it.
#[expect(missing_debug_implementations, reason = "a closure")]
pub struct SurveyTask<'run> {
    pub limits: &'run UnpackLimits,
    /// Files of which all contents are kept, up to the limit of a document.
    pub named: &'run [&'run str],
    /// Parses the documents that are needed, in the process without rights.
    pub documents: &'run dyn Fn(&ParsePermit, &Surveyed) -> Documents,
}

/// Reads `archive` as [`archive::survey()`] does, in a process without rights. Its digest is that of the bytes
/// read here; all else is the word of the reader, which is checked for what an archive within the limits
/// can contain.
///
/// # Errors
/// [`UnpackFailure`].
pub fn survey(
    archive: Sent<'_>,
    task: &SurveyTask<'_>,
    wait_limit: WaitLimit<'_>,
) -> Result<(Surveyed, Documents), UnpackFailure> {
    let limits = task.limits;
    let run = |permit: &ParsePermit, source: File, answer: &Answer<'_>| {
        #[cfg(feature = "planted-bugs")]
        let source = confinement::planted::watch("surveys", source);
        let surveyed = match archive::survey(permit, source, limits, task.named) {
            Ok(surveyed) => surveyed,
            Err(error) => return message::write(Err(&error)),
        };
        let documents = (task.documents)(permit, &surveyed).write();
        let mut kept = Vec::new();
        put_part(&write_kept(&surveyed.kept), &mut kept);
        let told = Told {
            content_digest: surveyed.content_digest,
            tree: surveyed.tree,
            warnings: surveyed.warnings,
        };
        answer.send(&message::write(Ok(&told)));
        answer.send(&kept);
        documents
    };
    let work = Work {
        confine: &|keep| Role::Reader.enter(keep),
        run: &run,
    };
    let mut source = Hashed::new(archive.source);
    let sent = Sent {
        source: &mut source,
        descriptor: archive.descriptor,
    };
    let worker_limits = WorkerLimits {
        file_bytes: 0,
        ..worker_limits(limits, wait_limit.time, kept_bytes_max(task.named))
    };
    let answer = run_in_child(worker_limits, wait_limit.signals, sent, &work)?;
    let (surveyed, documents) = read_survey_answer(&answer, limits)?;
    let surveyed = Surveyed {
        archive_digest: Some(source.digest()),
        ..surveyed
    };
    Ok((surveyed, documents))
}

/// Parses the message of a process that read an archive. The archive's digest is missing: the caller hashed
/// what it sent.
///
/// # Errors
/// The reader's problem; a message that it cannot have written.
pub fn read_survey_answer(
    answer: &[u8],
    limits: &UnpackLimits,
) -> Result<(Surveyed, Documents), Problem> {
    let (told, rest) = message::read(answer, limits)?;
    let (kept, documents) = split_part(rest).ok_or_else(malformed)?;
    let kept = read_kept(kept, &told.tree).ok_or_else(malformed)?;
    let surveyed = Surveyed {
        content_digest: told.content_digest,
        archive_digest: None,
        bytes: told.tree.file_bytes(),
        entries: told.tree.len() as u64,
        tree: told.tree,
        warnings: told.warnings,
        kept,
    };
    Ok((surveyed, Documents::read(documents)))
}

fn write_kept(kept: &BTreeMap<RelPath, Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, contents) in kept {
        put_part(path.as_bytes(), &mut bytes);
        put_part(contents, &mut bytes);
    }
    bytes
}

/// `None` if no survey of `tree` keeps these contents.
fn read_kept(mut bytes: &[u8], tree: &Tree) -> Option<BTreeMap<RelPath, Vec<u8>>> {
    let mut kept = BTreeMap::new();
    while !bytes.is_empty() {
        let (path, rest) = split_part(bytes)?;
        let (contents, rest) = split_part(rest)?;
        let path = RelPath::parse(path).ok()?;
        match tree.get(&path) {
            Some(Entry::File { bytes, .. }) if contents.len() as u64 <= *bytes => (),
            _ => return None,
        }
        kept.insert(path, contents.to_vec());
        bytes = rest;
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_the_tree_cannot_have_are_refused() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let mut tree = Tree::default();
        let limits = UnpackLimits::default().tree_limits();
        for (name, entry) in [
            (
                "a/b.md",
                Entry::File {
                    executable: false,
                    bytes: 4,
                },
            ),
            (
                "c",
                Entry::Symlink {
                    target: b"a".to_vec(),
                },
            ),
        ] {
            tree.insert(path(name), entry, limits).expect("fits");
        }
        let read = |name: &str, contents: &[u8]| {
            let kept = BTreeMap::from([(path(name), contents.to_vec())]);
            let written = write_kept(&kept);
            (read_kept(&written, &tree) == Some(kept), written)
        };
        let (is_read, written) = read("a/b.md", b"text");
        assert!(is_read);
        for cut in 1..written.len() {
            assert_eq!(read_kept(&written[..cut], &tree), None, "{cut}");
        }
        for (name, contents) in [
            ("a/b.md", &b"longer"[..]),
            ("a", b""),
            ("c", b""),
            ("d", b""),
        ] {
            assert!(!read(name, contents).0, "{name}");
        }
    }
}
