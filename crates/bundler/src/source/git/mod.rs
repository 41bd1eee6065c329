//! What git reports about a directory: remote, commit and changes.

mod address;
mod answer;
mod checkout;
mod program;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::BundleError;
use crate::source::BuildHost;
pub use crate::source::git::answer::CheckoutAnswer;
use crate::source::git::answer::Indexed;
use crate::source::git::checkout::{
    CONFIG_BYTES_MAX, Checkout, Search, read, read_without_links, search,
};
use crate::source::git::program::TemporaryGitDirectory;
pub(super) use crate::source::git::texts::GitTexts;
use spec::oci::source_config::Origin;
use spec::path::{RelPath, escape, escape_path};

const COMMIT_BYTES_MAX: usize = 1 << 20;
const LIST_BYTES_MAX: usize = 512 << 20;
const SPARSE: &str = "info/sparse-checkout";
const REMOTE: &str = "remote.origin.url";
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
pub(super) fn facts(
    directory: &Path,
    host: &BuildHost<'_>,
    texts: &mut GitTexts,
) -> Result<GitAnswer, BundleError> {
    let checkout = match search(directory, host.caller_uid, texts)? {
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
        directory: escape_path(directory),
    })?;
    let git_directory = TemporaryGitDirectory::create(program, host.git_directory)?;
    let settings = read_settings(&checkout, &git_directory, texts)?;
    populate(&checkout, &settings, &git_directory)?;
    let git = Git {
        checkout: &checkout,
        directory,
        git_directory: &git_directory,
    };
    let mut facts = GitFacts::default();
    // First: no text of a commit has been read yet, which could lie about a credential in it.
    if let Some(url) = settings.get(REMOTE)
        && let Some(address) = texts.address(url)?
    {
        facts.origin.url = Some(address.url);
        facts.origin.repo = address.repository;
    }
    git.add_commit(&mut facts, texts)?;
    git.add_files(&mut facts, texts)?;
    facts.changed = git.list_changed(texts)?;
    facts.sparse = sparse_patterns(&checkout, &settings, texts)?;
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
    texts: &mut GitTexts,
) -> Result<(), BundleError> {
    let prefix = facts.below.as_ref().map_or_else(Vec::new, directory_prefix);
    for (path, commit) in &facts.submodules {
        let within = directory.join(OsStr::from_bytes(path.as_bytes()));
        if std::fs::canonicalize(&within).ok().as_ref() != Some(&within) {
            continue;
        }
        let found = self::facts(&within, host, texts)?.facts;
        // Without a checkout of its own, the checkout above is found.
        let Some(mut inner) = found.filter(|inner| inner.below.is_none()) else {
            continue;
        };
        add_submodules(&mut inner, &within, host, texts)?;
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
    texts: &mut GitTexts,
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
        texts.add_settings(&listed.unwrap_or_default(), &mut settings)?;
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

    fn add_commit(&self, facts: &mut GitFacts, texts: &mut GitTexts) -> Result<(), BundleError> {
        let branch = ["symbolic-ref", "--quiet", "HEAD"];
        if let Some(printed) = self.run(&branch, COMMIT_BYTES_MAX)? {
            facts.origin.reference = texts.reference(&printed)?;
        }
        let commit = ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"];
        if let Some(printed) = self.run(&commit, COMMIT_BYTES_MAX)? {
            facts.origin.commit = texts.commit(&printed)?;
        }
        if let Some(commit) = &facts.origin.commit
            && let Some(contents) = self.run(&["cat-file", "commit", commit], COMMIT_BYTES_MAX)?
        {
            facts.committed_s = texts.commit_time_s(&contents)?;
        }
        Ok(())
    }

    fn add_files(&self, facts: &mut GitFacts, texts: &mut GitTexts) -> Result<(), BundleError> {
        let listed = self.run(&["ls-files", "--stage", "-z"], LIST_BYTES_MAX)?;
        texts.index(&listed.unwrap_or_default(), &mut |entry| match entry {
            Indexed::File(path) => {
                facts.tracked.insert(path);
            }
            Indexed::Submodule { path, commit } => {
                facts.submodules.insert(path, commit);
            }
        })
    }

    fn list_changed(&self, texts: &mut GitTexts) -> Result<Vec<Vec<u8>>, BundleError> {
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
        texts.changed(&listed)
    }
}

fn sparse_patterns(
    checkout: &Checkout,
    settings: &BTreeMap<String, String>,
    texts: &mut GitTexts,
) -> Result<Vec<String>, BundleError> {
    let is_on = |name: &str| {
        let value = settings.get(name).map(|value| value.to_ascii_lowercase());
        matches!(value.as_deref(), Some("true" | "yes" | "on" | "1"))
    };
    if !is_on("core.sparsecheckout") {
        return Ok(Vec::new());
    }
    // Published in the artifact: a link could expose another file.
    let text = read_without_links(&checkout.git_dir, SPARSE).unwrap_or_default();
    texts.sparse(&text)
}
