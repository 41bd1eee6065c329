//! Fetches the files of a commit, from the cache or the service.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, SeekFrom};
use ureq::http::StatusCode;

use crate::github::cache::{Building, Held, Key, Label, errno_of, failed};
use crate::github::client::{Client, unexpected};
use crate::github::contents::digest_of;
use crate::github::error::GitHubError;
use crate::github::fault::Fault;
use crate::github::snapshot::{self, Archive};
use crate::github::{FetchedTree, Progress};
use archive::UnpackError;
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use spec::units;

const DISK_BYTES_EACH: u64 = 4096;
const TREE: &str = "tree";
const ARCHIVE: &str = "archive.tar.gz";

impl Client<'_> {
    pub(super) fn kept(&self, key: &Key) -> Result<Option<FetchedTree>, GitHubError> {
        let cache = self.cache()?;
        let Some(held) = cache.find(key)? else {
            return Ok(None);
        };
        if let Some(tree) = self.whole(held) {
            return Ok(Some(tree));
        }
        cache.discard(key)?;
        Ok(None)
    }

    fn whole(&self, held: Held) -> Option<FetchedTree> {
        let directory = open_tree(&held.directory).ok()?;
        let stated = Digest::parse(held.label.content_digest.as_deref()?)?;
        let found = digest_of(directory.as_fd(), &self.settings.limits)?;
        if found != stated {
            return None;
        }
        Some(FetchedTree {
            directory,
            archive_bytes: held.label.archive_bytes,
            archive_digest: Digest::parse(&held.label.archive_digest)?,
            from_cache: true,
            hold: Some(held.directory),
        })
    }

    pub(super) fn unpack_kept(
        &self,
        wanted: &Wanted<'_>,
    ) -> Result<Option<FetchedTree>, GitHubError> {
        let cache = self.cache()?;
        let Some(held) = cache.find(&wanted.archive_key)? else {
            return Ok(None);
        };
        if let Some(file) = whole_archive(&held) {
            let building = cache.begin()?;
            match self.unpack(wanted, file, &building) {
                Ok(archive) => return self.publish(wanted, building, &archive, true).map(Some),
                Err(Fault::Final(error)) => return Err(*error),
                // Incomplete with the right digest: treat as damaged.
                Err(Fault::Unusable(_) | Fault::Passing { .. }) => (),
            }
        }
        drop(held);
        cache.discard(&wanted.archive_key)?;
        Ok(None)
    }

    pub(super) fn fetch_anew(&self, wanted: &Wanted<'_>) -> Result<FetchedTree, GitHubError> {
        let (repository, sha) = (wanted.repository, wanted.sha);
        self.service.tell(&Progress::Fetching { repository, sha });
        let path = format!("/repos/{repository}/tarball/{sha}");
        let cache = self.cache()?;
        let (kept, building, archive) = self.service.tried(&path, || {
            let answer = self
                .service
                .get(&path, "application/vnd.github+json, */*")?;
            match answer.status {
                StatusCode::OK => (),
                StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => {
                    return Err(wanted.no_commit().into());
                }
                other => return Err(unexpected(other)),
            }
            let kept = cache.begin()?;
            let mut file = create(&kept.directory, ARCHIVE)?;
            let limit_bytes = self.settings.limits.compressed_bytes;
            self.service.archive(
                answer,
                limit_bytes,
                &|| {
                    wanted.refused(
                        format!("it is larger than {}", units::bytes(limit_bytes)),
                        None,
                    )
                },
                &mut |bytes| {
                    file.write_all(bytes)
                        .map_err(|error| failed("write", ARCHIVE.as_ref(), errno_of(&error)))
                },
            )?;
            rustix::fs::seek(&file, SeekFrom::Start(0))
                .map_err(|errno| failed("lseek", ARCHIVE.as_ref(), errno))?;
            let building = cache.begin()?;
            let archive = self.unpack(wanted, file, &building)?;
            Ok((kept, building, archive))
        })?;
        let label = archive.label(None, 0);
        drop(cache.publish(kept, &wanted.archive_key, label)?);
        self.publish(wanted, building, &archive, false)
    }

    fn unpack(
        &self,
        wanted: &Wanted<'_>,
        archive: File,
        building: &Building,
    ) -> Result<Archive, Fault> {
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(&building.directory, TREE, mode)
            .map_err(|errno| failed("mkdir", TREE.as_ref(), errno))?;
        let tree = open_tree(&building.directory)?;
        let limits = &self.settings.limits;
        snapshot::unpack(archive, tree.as_fd(), limits, wanted.folder, wanted.sha).map_err(
            |problem| match problem {
                snapshot::Problem::Damaged(cause) => Fault::Passing {
                    cause,
                    wait: None,
                    limit: None,
                },
                snapshot::Problem::Refused(cause, source) => wanted.refused(cause, source).into(),
                snapshot::Problem::Host(error) => Fault::Final(error),
            },
        )
    }

    fn publish(
        &self,
        wanted: &Wanted<'_>,
        building: Building,
        archive: &Archive,
        from_cache: bool,
    ) -> Result<FetchedTree, GitHubError> {
        if let (Some(found), Some(folder)) = (archive.instead, wanted.folder) {
            return Err(GitHubError::FolderNotFound {
                repository: wanted.repository.to_owned(),
                sha: wanted.sha.to_owned(),
                path: folder.clone(),
                problem: match found {
                    "nothing" => "is not there".to_owned(),
                    other => format!("is {other}; expected a folder"),
                },
            });
        }
        let disk_bytes = archive
            .entries
            .saturating_mul(DISK_BYTES_EACH)
            .saturating_add(archive.file_bytes);
        let label = archive.label(Some(archive.content_digest), disk_bytes);
        let held = self.cache()?.publish(building, &wanted.tree_key, label)?;
        Ok(FetchedTree {
            directory: open_tree(&held.directory)?,
            archive_bytes: archive.bytes,
            archive_digest: archive.digest,
            from_cache,
            hold: Some(held.directory),
        })
    }
}

pub(super) struct Wanted<'a> {
    pub(super) repository: &'a str,
    pub(super) sha: &'a str,
    pub(super) folder: Option<&'a RelPath>,
    pub(super) tree_key: Key,
    pub(super) archive_key: Key,
}

impl Wanted<'_> {
    pub(super) fn no_commit(&self) -> GitHubError {
        GitHubError::CommitNotFound {
            repository: escape(self.repository.as_bytes()),
            sha: escape(self.sha.as_bytes()),
        }
    }

    fn refused(&self, cause: String, source: Option<Box<UnpackError>>) -> GitHubError {
        GitHubError::ArchiveRefused {
            repository: self.repository.to_owned(),
            sha: self.sha.to_owned(),
            cause,
            source,
        }
    }
}

impl Archive {
    fn label(&self, content_digest: Option<Digest>, disk_bytes: u64) -> Label {
        Label {
            key: String::new(),
            archive_bytes: self.bytes,
            archive_digest: self.digest.to_string(),
            content_digest: content_digest.map(|digest| digest.to_string()),
            disk_bytes: match content_digest {
                Some(_) => disk_bytes,
                None => self.bytes.saturating_add(DISK_BYTES_EACH),
            },
        }
    }
}

fn whole_archive(held: &Held) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = rustix::fs::openat(&held.directory, ARCHIVE, flags, Mode::empty())
        .map(File::from)
        .ok()?;
    let mut hasher = sha2::Sha256::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            count => sha2::Digest::update(&mut hasher, &buffer[..count]),
        }
    }
    let is_whole = Digest::from_hasher(hasher).to_string() == held.label.archive_digest;
    rustix::fs::seek(&file, SeekFrom::Start(0)).ok()?;
    is_whole.then_some(file)
}

fn open_tree(entry: &OwnedFd) -> Result<OwnedFd, GitHubError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(entry, TREE, flags, Mode::empty())
        .map_err(|errno| failed("openat", TREE.as_ref(), errno))
}

fn create(directory: &OwnedFd, name: &str) -> Result<File, GitHubError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))
        .map(File::from)
        .map_err(|errno| failed("openat", name.as_ref(), errno))
}
