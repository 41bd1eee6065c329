//! The files of the caller, as the rules of a policy ask for them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::plan::learning::{Credential, HostFiles};
use crate::run::error::RunError;
use bundler::credentials::CredentialRules;
use bundler::files::DirectoryFiles;
use rustix::fs::FileType;
use rustix::io::Errno;
use spec::path::RelPath;
use sys::trusted_links;

/// Entries of a directory and of those below it that are searched.
const ENTRIES_MAX: usize = 50_000;
/// Directories with the files of others: test keys of packages are no credentials of the caller.
const NOT_SEARCHED: [&str; 3] = ["node_modules", "site-packages", ".git"];

/// Credentials in a directory and below it, sorted.
pub(super) struct Search {
    pub(super) found: Vec<Vec<u8>>,
    /// All of it was searched.
    pub(super) is_whole: bool,
}

pub(super) struct CallersFiles {
    rules: CredentialRules,
    root: DirectoryFiles,
    searched: RefCell<BTreeMap<Vec<u8>, Credential>>,
}

impl CallersFiles {
    pub(super) fn open() -> Result<Self, RunError> {
        let failed = || RunError::host("read the list of files with credentials");
        Ok(Self {
            rules: CredentialRules::new().map_err(|_malformed| failed()(Errno::INVAL))?,
            root: DirectoryFiles::open_root(Path::new("/"))
                .map_err(|error| failed()(error.errno))?,
            searched: RefCell::default(),
        })
    }

    /// Searches `directory` until `max` credentials are found.
    pub(super) fn search(&self, directory: &[u8], max: usize) -> Search {
        let mut found = Vec::new();
        let is_whole = self.walk(directory, &mut |path| {
            found.push(path);
            found.len() < max
        });
        found.sort();
        Search { found, is_whole }
    }

    /// Calls `add` with each credential below `directory` until it returns `false`. Returns whether all was
    /// searched.
    fn walk(&self, directory: &[u8], add: &mut dyn FnMut(Vec<u8>) -> bool) -> bool {
        let mut pending = vec![directory.to_vec()];
        let mut count = 0;
        while let Some(directory) = pending.pop() {
            // The body has the caller's rights at most: it cannot read it either.
            let Ok(entries) = std::fs::read_dir(OsStr::from_bytes(&directory)) else {
                continue;
            };
            for entry in entries.flatten() {
                count += 1;
                if count > ENTRIES_MAX {
                    return false;
                }
                let path = entry.path().as_os_str().as_bytes().to_vec();
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if self.matches(&path, is_directory) {
                    if !add(path) {
                        return false;
                    }
                } else if is_directory
                    && !NOT_SEARCHED.iter().any(|name| entry.file_name() == *name)
                {
                    pending.push(path);
                }
            }
        }
        true
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let Ok(path) = RelPath::parse(path.strip_prefix(b"/").unwrap_or(path)) else {
            return false;
        };
        let found = self.rules.find_rule(&self.root, &path, is_directory);
        // A file whose name matches and that cannot be read may be one.
        !matches!(found, Ok(None))
    }
}

impl HostFiles for CallersFiles {
    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        // The body chose the path: nothing is mounted for it.
        let opened = trusted_links::open_without_automount(path).ok()?;
        let found = rustix::fs::fstat(&opened).ok()?;
        Some(FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    }

    fn is_credential(&self, path: &[u8]) -> bool {
        let is_directory = self.is_directory(path) == Some(true);
        let mut above = Path::new(OsStr::from_bytes(path)).ancestors().skip(1);
        self.matches(path, is_directory)
            || above.any(|path| self.matches(path.as_os_str().as_bytes(), true))
    }

    fn credential_in(&self, directory: &[u8]) -> Credential {
        if let Some(known) = self.searched.borrow().get(directory) {
            return known.clone();
        }
        let Search { found, is_whole } = self.search(directory, 1);
        let found = match found.into_iter().next() {
            Some(path) => Credential::At(path),
            None if is_whole => Credential::None,
            None => Credential::Unknown,
        };
        let mut searched = self.searched.borrow_mut();
        searched.insert(directory.to_vec(), found.clone());
        found
    }
}
