//! What git reports about a directory: remote, commit and changes.

mod address;
mod checkout;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::BundleError;
use crate::files::shown;
use crate::source::BuildHost;
use crate::source::git::address::address_of;
use crate::source::git::checkout::{
    CONFIG_BYTES_MAX, Checkout, Search, read, read_without_links, search,
};
use crate::source::git::program::TemporaryGitDirectory;
use spec::oci::source_config::Origin;
use spec::path::{RelPath, escape};

const COMMIT_BYTES_MAX: usize = 1 << 20;
const LIST_BYTES_MAX: usize = 512 << 20;
const SPARSE: &str = "info/sparse-checkout";
const SPARSE_MAX: usize = 1_000;
/// Settings that affect only the comparison of files. Each value must be alphanumeric.
const COPIED_SETTINGS: [&str; 8] = [
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.symlinks",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.precomposeunicode",
];
/// Settings required to read objects and references, with the supported values.
const FORMATS: [(&str, &[&str]); 2] = [
    ("extensions.objectformat", &["sha1", "sha256"]),
    ("extensions.refstorage", &["files", "reftable"]),
];

#[derive(Debug, Default)]
pub(super) struct GitFacts {
    pub(super) origin: Origin,
    /// Path of the directory in the checkout; `None` for its root.
    pub(super) below: Option<RelPath>,
    pub(super) committed_s: Option<i64>,
    pub(super) sparse: Vec<String>,
    /// With the commit that the index has for each; relative to the directory.
    pub(super) submodules: BTreeMap<RelPath, Vec<u8>>,
    /// Files of the index, relative to the directory.
    pub(super) tracked: BTreeSet<Vec<u8>>,
    /// Files that differ from the commit, relative to the checkout.
    pub(super) changed: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct GitAnswer {
    /// `None`: not in a checkout.
    pub(super) facts: Option<GitFacts>,
    /// Why a checkout is not trusted.
    pub(super) distrust: Option<String>,
}

/// Reads the facts of the checkout of `directory`. Nothing of the repository is executed or changed.
pub(super) fn facts(directory: &Path, host: &BuildHost<'_>) -> Result<GitAnswer, BundleError> {
    let checkout = match search(directory, host.caller_uid) {
        Search::Nothing => return Ok(GitAnswer::default()),
        Search::NotTrusted(why) => {
            return Ok(GitAnswer {
                distrust: Some(why),
                facts: None,
            });
        }
        Search::Found(checkout) => checkout,
    };
    let program = program::find(host.path).ok_or_else(|| BundleError::GitMissing {
        directory: shown(directory),
    })?;
    let git_directory = TemporaryGitDirectory::create(program, host.temporary_directory)?;
    let settings = read_settings(&checkout, &git_directory)?;
    populate(&checkout, &settings, &git_directory)?;
    let git = Git {
        checkout: &checkout,
        directory,
        git_directory: &git_directory,
    };
    let mut facts = git.read_commit()?;
    let address = settings
        .get("remote.origin.url")
        .and_then(|url| address_of(url));
    if let Some(address) = address {
        facts.origin.url = Some(address.url);
        facts.origin.repo = address.repository;
    }
    git.add_files(&mut facts)?;
    facts.changed = git.list_changed()?;
    facts.sparse = sparse_patterns(&checkout, &settings);
    facts.below = checkout.below.clone();
    Ok(GitAnswer {
        facts: Some(facts),
        distrust: None,
    })
}

/// Adds the files of all submodules, and those that differ from the commit of the outermost checkout.
///
/// `git status` would run git with the settings of each submodule, which may execute programs.
pub(super) fn add_submodules(
    facts: &mut GitFacts,
    directory: &Path,
    host: &BuildHost<'_>,
) -> Result<(), BundleError> {
    let prefix = facts.below.as_ref().map_or_else(Vec::new, directory_prefix);
    for (path, commit) in &facts.submodules {
        let within = directory.join(OsStr::from_bytes(path.as_bytes()));
        if std::fs::canonicalize(&within).ok().as_ref() != Some(&within) {
            continue;
        }
        let found = self::facts(&within, host)?.facts;
        // Without a checkout of its own, the checkout above is found.
        let Some(mut inner) = found.filter(|inner| inner.below.is_none()) else {
            continue;
        };
        add_submodules(&mut inner, &within, host)?;
        let with_path = |names: Vec<u8>| [directory_prefix(path), names].concat();
        facts
            .tracked
            .extend(inner.tracked.into_iter().map(with_path));
        let of_checkout = |name: Vec<u8>| [prefix.clone(), with_path(name)].concat();
        if inner.origin.commit.as_ref().map(String::as_bytes) != Some(commit) {
            let name = [prefix.as_slice(), path.as_bytes()].concat();
            facts.changed.push(name);
        }
        facts
            .changed
            .extend(inner.changed.into_iter().map(of_checkout));
    }
    Ok(())
}

fn directory_prefix(path: &RelPath) -> Vec<u8> {
    [path.as_bytes(), b"/"].concat()
}

fn read_settings(
    checkout: &Checkout,
    git_directory: &TemporaryGitDirectory,
) -> Result<BTreeMap<String, String>, BundleError> {
    let mut settings = BTreeMap::new();
    // Required by git in a repository.
    for name in ["objects", "refs"] {
        git_directory.link(name, &checkout.common_dir.join(name))?;
    }
    git_directory.write("HEAD", "ref: refs/heads/unknown\n")?;
    for file in [
        checkout.common_dir.join("config"),
        checkout.git_dir.join("config.worktree"),
    ] {
        let Some(text) = read(&file, CONFIG_BYTES_MAX) else {
            continue;
        };
        // Copied: git would block on a FIFO and follow a link to another user's file.
        git_directory.write("copied-config", text)?;
        let copy = git_directory.path("copied-config");
        let copy = copy.to_string_lossy();
        let arguments = ["config", "--file", &copy, "--no-includes", "--list", "-z"];
        let root = Path::new("/");
        let listed = git_directory.run(root, root, &arguments, 2 * CONFIG_BYTES_MAX)?;
        for entry in listed.unwrap_or_default().split(|byte| *byte == 0) {
            let Ok(entry) = std::str::from_utf8(entry) else {
                continue;
            };
            // A name without a value means true.
            let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            settings.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(settings)
}

/// Populates the temporary git directory, with allowed settings only.
fn populate(
    checkout: &Checkout,
    settings: &BTreeMap<String, String>,
    git_directory: &TemporaryGitDirectory,
) -> Result<(), BundleError> {
    let mut text = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n".to_owned();
    let mut set = |name: &str, value: &str| {
        if let Some((section, key)) = name.split_once('.') {
            text.push_str(&format!("[{section}]\n\t{key} = {value}\n"));
        }
    };
    for name in COPIED_SETTINGS {
        let value = settings.get(name).map(String::as_str);
        let is_alphanumeric = |value: &&str| value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if let Some(value) = value.filter(is_alphanumeric) {
            set(name, value);
        }
    }
    for (name, supported) in FORMATS {
        if let Some(value) = settings.get(name) {
            let known = supported
                .iter()
                .find(|known| value.eq_ignore_ascii_case(known));
            set(name, known.ok_or_else(|| unknown_format(name, value))?);
        }
    }
    git_directory.write("config", text)?;
    let head = read(&checkout.git_dir.join("HEAD"), COMMIT_BYTES_MAX).unwrap_or_default();
    git_directory.write("HEAD", head)?;
    let link_if_exists = |name: &str, directory: &Path| {
        let path = directory.join(name);
        if path.exists() {
            git_directory.link(name, &path)
        } else {
            Ok(())
        }
    };
    for name in ["packed-refs", "reftable", "shallow"] {
        link_if_exists(name, &checkout.common_dir)?;
    }
    link_if_exists("index", &checkout.git_dir)?;
    git_directory.make_directory("info")?;
    link_if_exists("info/attributes", &checkout.common_dir)?;
    link_if_exists(SPARSE, &checkout.git_dir)?;
    for name in shared_indexes(&checkout.git_dir) {
        link_if_exists(&name, &checkout.git_dir)?;
    }
    Ok(())
}

fn shared_indexes(git_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(git_dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter(|name| name.starts_with("sharedindex."));
    names.take(100).collect()
}

fn unknown_format(name: &str, value: &str) -> BundleError {
    BundleError::GitFailed {
        command: "config".to_owned(),
        message: format!(
            "found {name} = {}, which this program does not know",
            escape(value.as_bytes())
        ),
    }
}

/// Runs git in one checkout.
struct Git<'call> {
    checkout: &'call Checkout,
    directory: &'call Path,
    git_directory: &'call TemporaryGitDirectory,
}

impl Git<'_> {
    fn run(&self, arguments: &[&str], bytes_max: usize) -> Result<Option<Vec<u8>>, BundleError> {
        let top = &self.checkout.top;
        self.git_directory
            .run(top, self.directory, arguments, bytes_max)
    }

    fn read_commit(&self) -> Result<GitFacts, BundleError> {
        let mut facts = GitFacts::default();
        let word = |answer: Option<Vec<u8>>| {
            let text = String::from_utf8(answer?).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let branch = ["symbolic-ref", "--quiet", "HEAD"];
        facts.origin.reference = word(self.run(&branch, COMMIT_BYTES_MAX)?);
        let commit = ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"];
        facts.origin.commit = word(self.run(&commit, COMMIT_BYTES_MAX)?);
        if let Some(commit) = &facts.origin.commit {
            let shown = self.run(&["cat-file", "commit", commit], COMMIT_BYTES_MAX)?;
            facts.committed_s = shown.as_deref().and_then(committed_s);
        }
        Ok(facts)
    }

    fn add_files(&self, facts: &mut GitFacts) -> Result<(), BundleError> {
        let listed = self.run(&["ls-files", "--stage", "-z"], LIST_BYTES_MAX)?;
        for entry in listed.unwrap_or_default().split(|byte| *byte == 0) {
            // `MODE OBJECT STAGE\tPATH`
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else {
                continue;
            };
            let path = &entry[tab + 1..];
            if entry.starts_with(b"160000 ") {
                let commit = entry.split(|byte| *byte == b' ').nth(1);
                let path = RelPath::parse(path).ok();
                facts
                    .submodules
                    .extend(path.zip(commit.map(<[u8]>::to_vec)));
            } else {
                facts.tracked.insert(path.to_vec());
            }
        }
        Ok(())
    }

    fn list_changed(&self) -> Result<Vec<Vec<u8>>, BundleError> {
        let arguments = [
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=no",
            "--ignore-submodules=all",
            "--no-renames",
            "--",
            ".",
        ];
        let listed = self.run(&arguments, LIST_BYTES_MAX)?.unwrap_or_default();
        let entries = listed.split(|byte| *byte == 0);
        // `XY PATH`
        Ok(entries
            .filter_map(|entry| entry.get(3..).map(<[u8]>::to_vec))
            .collect())
    }
}

/// Parses the line `committer NAME <MAIL> SECONDS ZONE`.
fn committed_s(commit: &[u8]) -> Option<i64> {
    let line = commit
        .split(|byte| *byte == b'\n')
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix(b"committer "))?;
    let after = line.iter().rposition(|byte| *byte == b'>')?;
    let text = std::str::from_utf8(&line[after + 1..]).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn sparse_patterns(checkout: &Checkout, settings: &BTreeMap<String, String>) -> Vec<String> {
    let is_on = |name: &str| {
        let value = settings.get(name).map(|value| value.to_ascii_lowercase());
        matches!(value.as_deref(), Some("true" | "yes" | "on" | "1"))
    };
    if !is_on("core.sparsecheckout") {
        return Vec::new();
    }
    // Published in the artifact: a link could expose another file.
    let text = read_without_links(&checkout.git_dir, SPARSE).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .take(SPARSE_MAX)
        .map(str::to_owned)
        .collect()
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
}
