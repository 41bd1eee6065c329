//! Fetches the files of a commit, from the cache or the service.

use std::fs::File;
use std::os::fd::BorrowedFd;

use ureq::http::StatusCode;

use crate::github::FetchedTree;
use crate::github::cache::ArchiveNote;
use crate::github::client::{Client, unexpected};
use crate::github::error::GitHubError;
use crate::github::fault::Fault;
use crate::github::reference::is_commit;
use crate::progress::{Progress, short};
use archive::unpack::HostedArchive;
use archive::{UnpackError, unpack_hosted};
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use spec::units;
use store::{Building, CacheError};

pub(super) struct FetchRequest<'a> {
    pub(super) repository: &'a str,
    pub(super) sha: &'a str,
    pub(super) folder: Option<&'a RelPath>,
    pub(super) tree_key: Digest,
    pub(super) archive_key: Digest,
}

impl FetchRequest<'_> {
    pub(super) fn no_commit(&self) -> GitHubError {
        GitHubError::CommitNotFound {
            repository: escape(self.repository.as_bytes()),
            sha: escape(self.sha.as_bytes()),
        }
    }

    fn refused(&self, cause: String, source: Option<Box<UnpackError>>) -> Fault {
        GitHubError::ArchiveRefused {
            repository: self.repository.to_owned(),
            sha: self.sha.to_owned(),
            cause,
            source,
        }
        .into()
    }
}

impl Client {
    pub(super) fn unpack_kept(
        &self,
        request: &FetchRequest<'_>,
    ) -> Result<Option<FetchedTree>, GitHubError> {
        let cache = self.cache()?;
        let Some(file) = cache.archive(&request.archive_key)? else {
            return Ok(None);
        };
        let building = cache.begin()?;
        match self.unpack(request, file, building.tree()) {
            Ok((archive, hosted)) => self
                .publish(request, building, archive, &hosted, true)
                .map(Some),
            Err(Fault::Final(error)) => Err(*error),
            // Incomplete with the right digest: treat as damaged.
            Err(Fault::Unusable(_) | Fault::Passing { .. }) => {
                cache.discard(&request.archive_key)?;
                Ok(None)
            }
        }
    }

    pub(super) fn fetch_anew(
        &self,
        request: &FetchRequest<'_>,
    ) -> Result<FetchedTree, GitHubError> {
        let (repository, sha) = (request.repository, request.sha);
        let place = format!("{repository} at {}", short(sha));
        Progress::Asking { place: &place }.emit();
        let path = format!("/repos/{repository}/tarball/{sha}");
        let cache = self.cache()?;
        let (download, building, archive, hosted) = self.service.retry(&path, || {
            let response = self
                .service
                .get(&path, "application/vnd.github+json, */*")?;
            match response.status {
                StatusCode::OK => (),
                StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => {
                    return Err(request.no_commit().into());
                }
                other => return Err(unexpected(other)),
            }
            let mut download = cache.begin_download()?;
            let limit_bytes = self.settings.limits.compressed_bytes;
            let too_large = || {
                let cause = format!("it is larger than {}", units::bytes(limit_bytes));
                request.refused(cause, None)
            };
            self.service
                .archive(response, &place, limit_bytes, &too_large, &mut |bytes| {
                    download.write(bytes)
                })?;
            let building = cache.begin()?;
            let (archive, hosted) = self.unpack(request, download.reader()?, building.tree())?;
            Ok((download, building, archive, hosted))
        })?;
        cache.publish_archive(download, &request.archive_key, archive)?;
        self.publish(request, building, archive, &hosted, false)
    }

    /// Unpacks the requested folder into the empty directory `into`, and checks that the archive is of
    /// the requested commit.
    fn unpack(
        &self,
        request: &FetchRequest<'_>,
        archive: File,
        into: BorrowedFd<'_>,
    ) -> Result<(ArchiveNote, HostedArchive), Fault> {
        let bytes = archive.metadata().map_or(0, |status| status.len());
        let hosted = unpack_hosted(
            archive,
            into,
            &self.settings.limits,
            request.folder.cloned(),
        )
        .map_err(|error| unpack_fault(request, error))?;
        let comment = hosted.comment.as_deref().map(<[u8]>::trim_ascii);
        if let Some(comment) = comment.and_then(|comment| str::from_utf8(comment).ok())
            && is_commit(comment)
            && comment != request.sha
        {
            let cause = format!("it says that it is the one of {comment}");
            return Err(request.refused(cause, None));
        }
        let digest = hosted.unpacked.archive_digest;
        let digest = digest
            .ok_or_else(|| Fault::passing("the archive was not read to its end".to_owned()))?;
        Ok((ArchiveNote { bytes, digest }, hosted))
    }

    fn publish(
        &self,
        request: &FetchRequest<'_>,
        building: Building,
        archive: ArchiveNote,
        hosted: &HostedArchive,
        from_cache: bool,
    ) -> Result<FetchedTree, GitHubError> {
        if let (Some(found), Some(folder)) = (hosted.instead, request.folder) {
            return Err(GitHubError::FolderNotFound {
                repository: request.repository.to_owned(),
                sha: request.sha.to_owned(),
                path: folder.clone(),
                problem: match found {
                    "nothing" => "is not there".to_owned(),
                    other => format!("is {other}; expected a folder"),
                },
            });
        }
        let cache = self.cache()?;
        let tree = cache.publish_tree(building, &request.tree_key, archive, &hosted.unpacked)?;
        Ok(FetchedTree::of_entry(tree, archive, from_cache))
    }
}

/// A truncated or garbled archive may arrive whole on the next attempt.
fn unpack_fault(request: &FetchRequest<'_>, error: UnpackError) -> Fault {
    if !error.is_damage() && error.is_refusal() {
        return request.refused(error.to_string(), Some(Box::new(error)));
    }
    match error {
        UnpackError::Target { source, .. } | UnpackError::Source { source, .. } => {
            GitHubError::Cache(CacheError::Call(source)).into()
        }
        other => Fault::passing(other.to_string()),
    }
}
