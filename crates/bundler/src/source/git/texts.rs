//! Parses what a repository contains and what git prints, in one process without rights.
//!
//! It starts with the first text. A text may take it over, also for the texts that follow: what it answers
//! is used as if the repository had said so.

use std::collections::BTreeMap;

use reader::{Dialogue, put_part};
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

use crate::error::BundleError;
use crate::source::git::address::{Address, address_of};
use crate::source::git::answer::{CheckoutAnswer, Indexed, SPARSE_MAX};
use crate::source::git::{COPIED_SETTINGS, FORMATS, REMOTE};

/// Bytes of a list in one question, unless one entry is longer.
const LIST_PART_BYTES: usize = 1 << 20;
/// Lengths of parts take more than what separates them in a text.
const ANSWER_PER_BYTE: usize = 8;
const ANSWER_BYTES: usize = 4 << 10;

const GIT_FILE: u8 = 0;
const LINE: u8 = 1;
const NAME: u8 = 2;
const WORKTREES: u8 = 3;
const SETTINGS: u8 = 4;
const ADDRESS: u8 = 5;
const COMMIT_TIME: u8 = 6;
const INDEX: u8 = 7;
const CHANGED: u8 = 8;
const SPARSE: u8 = 9;

#[derive(Debug, Default)]
pub(in crate::source) struct GitTexts(Option<Dialogue>);

impl GitTexts {
    /// The path in a `.git` file.
    pub(super) fn git_file(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, BundleError> {
        self.ask(GIT_FILE, text)?.one()
    }

    /// A line without white space at its end, if it is not empty.
    pub(super) fn line(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, BundleError> {
        self.ask(LINE, text)?.one()
    }

    /// The name of a reference, if it is UTF-8.
    pub(super) fn reference(&mut self, text: &[u8]) -> Result<Option<String>, BundleError> {
        self.ask(NAME, text)?.reference()
    }

    /// The name of a commit, which can be an argument of git.
    pub(super) fn commit(&mut self, text: &[u8]) -> Result<Option<String>, BundleError> {
        self.ask(NAME, text)?.commit()
    }

    /// The values of `worktree` in a configuration.
    pub(super) fn worktrees(&mut self, text: &[u8]) -> Result<Vec<Vec<u8>>, BundleError> {
        Ok(self.ask(WORKTREES, text)?.list())
    }

    /// Adds the settings that are used of those that `git config` lists.
    pub(super) fn add_settings(
        &mut self,
        listed: &[u8],
        settings: &mut BTreeMap<String, String>,
    ) -> Result<(), BundleError> {
        settings.extend(self.ask(SETTINGS, listed)?.settings()?);
        Ok(())
    }

    pub(super) fn address(&mut self, url: &str) -> Result<Option<Address>, BundleError> {
        self.ask(ADDRESS, url.as_bytes())?.address()
    }

    /// The time of a commit, of its contents.
    pub(super) fn commit_time_s(&mut self, commit: &[u8]) -> Result<Option<i64>, BundleError> {
        self.ask(COMMIT_TIME, commit)?.time_s()
    }

    /// Calls `add` for each entry that `git ls-files --stage` lists.
    pub(super) fn index(
        &mut self,
        listed: &[u8],
        add: &mut dyn FnMut(Indexed),
    ) -> Result<(), BundleError> {
        for part in parts_of_list(listed) {
            self.ask(INDEX, part)?
                .indexed()?
                .into_iter()
                .for_each(&mut *add);
        }
        Ok(())
    }

    /// The paths that `git status` lists.
    pub(super) fn changed(&mut self, listed: &[u8]) -> Result<Vec<Vec<u8>>, BundleError> {
        let mut paths = Vec::new();
        for part in parts_of_list(listed) {
            paths.extend(self.ask(CHANGED, part)?.list());
        }
        Ok(paths)
    }

    /// The patterns of a sparse checkout, as they are written.
    pub(super) fn sparse(&mut self, text: &[u8]) -> Result<Vec<String>, BundleError> {
        self.ask(SPARSE, text)?.patterns()
    }

    fn ask(&mut self, kind: u8, text: &[u8]) -> Result<CheckoutAnswer, BundleError> {
        let unread = |reason| BundleError::GitUnread { reason };
        let process = match &mut self.0 {
            Some(process) => process,
            none => {
                let started = Dialogue::start(&mut |permit, question| match question {
                    [kind, text @ ..] => answer(permit, *kind, text),
                    [] => Vec::new(),
                });
                none.insert(started.map_err(unread)?)
            }
        };
        let bytes_max = text.len().saturating_mul(ANSWER_PER_BYTE) + ANSWER_BYTES;
        let answer = process
            .ask(&[&[kind], text].concat(), bytes_max)
            .map_err(unread)?;
        CheckoutAnswer::read(&answer)
    }
}

/// A list whose entries end with a zero byte, in parts of whole entries.
fn parts_of_list(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_end = |byte: &u8| *byte == 0;
    std::iter::from_fn(move || {
        let start = &list[..list.len().min(LIST_PART_BYTES)];
        let last = start.iter().rposition(is_end);
        let end = last.or_else(|| list.iter().position(is_end));
        let (part, rest) = list.split_at(end.map_or(list.len(), |end| end + 1));
        list = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// In the process without rights. Nothing for a text that says nothing.
fn answer(permit: &ParsePermit, kind: u8, text: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut put = |part: &[u8]| put_part(part, &mut answer);
    match kind {
        GIT_FILE => {
            let path = text.trim_ascii_end().strip_prefix(b"gitdir: ");
            path.into_iter().for_each(put);
        }
        LINE => {
            let line = text.trim_ascii_end();
            (!line.is_empty()).then_some(line).into_iter().for_each(put);
        }
        NAME => {
            let name = std::str::from_utf8(text).ok().map(str::trim);
            let name = name.filter(|name| !name.is_empty());
            name.iter().for_each(|name| put(name.as_bytes()));
        }
        WORKTREES => text.split(is_line_end).filter_map(worktree).for_each(put),
        SETTINGS => {
            let wanted = text.split(is_zero).filter_map(wanted_setting);
            wanted.flatten().for_each(|part| put(part.as_bytes()));
        }
        ADDRESS => {
            let address = std::str::from_utf8(text).ok();
            if let Some(address) = address.and_then(|url| address_of(permit, url)) {
                put(address.url.as_bytes());
                address
                    .repository
                    .iter()
                    .for_each(|name| put(name.as_bytes()));
            }
        }
        COMMIT_TIME => {
            let time = committed_s(text).map(i64::to_le_bytes);
            time.iter().for_each(|time| put(time));
        }
        INDEX => text
            .split(is_zero)
            .filter_map(indexed)
            .flatten()
            .for_each(put),
        // `XY PATH`
        CHANGED => text
            .split(is_zero)
            .filter_map(|entry| entry.get(3..))
            .for_each(put),
        SPARSE => sparse_patterns(text).for_each(|line| put(line.as_bytes())),
        _ => (),
    }
    answer
}

fn is_line_end(byte: &u8) -> bool {
    *byte == b'\n'
}

fn is_zero(byte: &u8) -> bool {
    *byte == 0
}

fn worktree(line: &[u8]) -> Option<&[u8]> {
    let rest = line.trim_ascii().strip_prefix(b"worktree")?;
    let value = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let inner = value.strip_prefix(b"\"");
    let inner = inner.and_then(|inner| inner.strip_suffix(b"\""));
    Some(inner.unwrap_or(value))
}

/// The name and the value. A name without a value means true.
fn wanted_setting(entry: &[u8]) -> Option<[&str; 2]> {
    let entry = std::str::from_utf8(entry).ok()?;
    let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
    let mut formats = FORMATS.iter().map(|(name, _)| *name);
    let is_wanted =
        name == REMOTE || COPIED_SETTINGS.contains(&name) || formats.any(|known| known == name);
    is_wanted.then_some([name, value])
}

/// The commit of a submodule, empty for a file, and the path of `MODE OBJECT STAGE\tPATH`.
fn indexed(entry: &[u8]) -> Option<[&[u8]; 2]> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let (facts, path) = (&entry[..tab], &entry[tab + 1..]);
    if !facts.starts_with(b"160000 ") {
        return Some([b"", path]);
    }
    let commit = facts.split(|byte| *byte == b' ').nth(1)?;
    RelPath::parse(path).ok()?;
    (!commit.is_empty()).then_some([commit, path])
}

/// Parses the line `committer NAME <MAIL> SECONDS ZONE`.
fn committed_s(commit: &[u8]) -> Option<i64> {
    let line = commit
        .split(is_line_end)
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix(b"committer "))?;
    let after = line.iter().rposition(|byte| *byte == b'>')?;
    let text = std::str::from_utf8(&line[after + 1..]).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn sparse_patterns(text: &[u8]) -> impl Iterator<Item = String> {
    text.split(is_line_end)
        .map(|line| String::from_utf8_lossy(line).trim_end().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .take(SPARSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_commit_is_that_of_its_committer() {
        for (text, seconds) in [
            (
                "tree x\nauthor A <a@example.org> 1 +0000\ncommitter B <b> c> <b@example.org> 1700000000 +0200\n\nm",
                Some(1_700_000_000),
            ),
            ("tree x\ncommitter B <b> -5 +0000\n\nm", Some(-5)),
            ("tree x\n\ncommitter B <b> 5 +0000\n", None),
            ("tree x\ncommitter B <b> soon +0000\n", None),
            ("", None),
        ] {
            assert_eq!(committed_s(text.as_bytes()), seconds, "{text}");
        }
    }

    ///
    #[test]
    fn one_process_parses_all_texts() {
        let mut texts = GitTexts::default();
        let path = texts.git_file(b"gitdir: ../.git/worktrees/a \r\n");
        assert_eq!(path.expect("read"), Some(b"../.git/worktrees/a".to_vec()));
        assert_eq!(texts.git_file(b"gitdir:x").expect("read"), None);
        assert_eq!(texts.line(b" \n").expect("read"), None);
        let worktrees = texts.worktrees(b"[core]\n\tworktree = ../a\nworktree=\"b c\"\n#worktree");
        let expected = [&b"../a"[..], b"b c"].map(<[u8]>::to_vec);
        assert_eq!(worktrees.expect("read"), expected);
        let mut settings = BTreeMap::new();
        let listed =
            b"core.filemode\nfalse\0core.symlinks\0user.name\nx\0remote.origin.url\n\xff\0";
        texts.add_settings(listed, &mut settings).expect("read");
        let expected = [("core.filemode", "false"), ("core.symlinks", "true")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(settings, BTreeMap::from(expected));
        let url = "https://me:word@git.example.org/a/b";
        let address = texts.address(url).expect("read").expect("an address");
        assert_eq!(address.url, "https://git.example.org/a/b");
        assert_eq!(address.repository.as_deref(), Some("a/b"));
        assert_eq!(texts.address("/local").expect("read"), None);
        let changed = texts.changed(b" M a\0?? b\nc\0");
        assert_eq!(
            changed.expect("read"),
            [&b"a"[..], b"b\nc"].map(<[u8]>::to_vec)
        );
        let sparse = texts.sparse(b"/*\n# x\n\n!/b \n");
        assert_eq!(sparse.expect("read"), ["/*", "!/b"]);
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let name = texts.commit(format!("{commit}\n").as_bytes());
        assert_eq!(name.expect("read").as_deref(), Some(commit));
        assert!(texts.commit(b"--help\n").is_err());
        assert_eq!(texts.reference(b"refs/heads/\xff\n").expect("read"), None);
        assert!(texts.reference(b"refs/heads/\x1b[2J\n").is_err());
    }

    #[test]
    fn a_list_is_read_in_parts_of_whole_entries() {
        let entry = |number: usize| format!("100644 {:040} 0\tpath/{number}\0", 0);
        let mut list: Vec<u8> = (0..50_000).map(entry).collect::<String>().into_bytes();
        let commit = "1".repeat(40);
        list.extend(format!("160000 {commit} 0\tsub\0").into_bytes());
        let long = "x".repeat(LIST_PART_BYTES + 9);
        list.extend(format!("100644 {:040} 0\t{long}\0", 0).into_bytes());
        assert!(parts_of_list(&list).count() > 3);
        assert_eq!(parts_of_list(&list).collect::<Vec<_>>().concat(), list);
        let mut entries = Vec::new();
        let read = GitTexts::default().index(&list, &mut |entry| entries.push(entry));
        read.expect("read");
        let mut expected: Vec<Indexed> = (0..50_000)
            .map(|number| Indexed::File(format!("path/{number}").into_bytes()))
            .collect();
        expected.push(Indexed::Submodule {
            path: RelPath::parse(b"sub").expect("a path"),
            commit: commit.into_bytes(),
        });
        expected.push(Indexed::File(long.into_bytes()));
        assert_eq!(entries, expected);
    }
}
