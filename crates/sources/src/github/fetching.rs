//! Fetches the files of a commit, from the cache or the service.

use std::fs::File;
use std::os::fd::BorrowedFd;

use ureq::http::StatusCode;

use crate::github::FetchedTree;
use crate::github::cache::ArchiveNote;
use crate::github::client::Client;
use crate::github::error::{AttemptError, GitHubError};
use crate::github::reference::is_commit;
use crate::progress::{Progress, short};
use crate::verified;
use reader::{Cause, Feed, Hosted, Problem};
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use spec::units;
use store::Building;

pub(super) struct FetchRequest<'a> {
    pub(super) repository: &'a str,
    pub(super) sha: &'a str,
    pub(super) folder: Option<&'a RelPath>,
    pub(super) tree_key: Digest,
    pub(super) archive_key: Digest,
}

impl FetchRequest<'_> {
    pub(super) fn commit_not_found(&self) -> GitHubError {
        GitHubError::CommitNotFound {
            repository: escape(self.repository.as_bytes()),
            sha: escape(self.sha.as_bytes()),
        }
    }

    fn refused(&self, cause: String, source: Option<Box<Problem>>) -> AttemptError {
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
    pub(super) fn unpack_cached(
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
            Err(AttemptError::Final(error)) => Err(*error),
            // The archive has the right digest but is incomplete. Treat it as damaged.
            Err(AttemptError::Unusable(_) | AttemptError::Temporary { .. }) => {
                cache.discard(&request.archive_key)?;
                Ok(None)
            }
        }
    }

    pub(super) fn download(&self, request: &FetchRequest<'_>) -> Result<FetchedTree, GitHubError> {
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
                    return Err(request.commit_not_found().into());
                }
                other => return Err(AttemptError::unexpected_status(other)),
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

    /// Unpacks the requested folder into the empty directory `into`. Checks that the archive is of
    /// the requested commit.
    fn unpack(
        &self,
        request: &FetchRequest<'_>,
        mut archive: File,
        into: BorrowedFd<'_>,
    ) -> Result<(ArchiveNote, Hosted), AttemptError> {
        let bytes = archive.metadata().map_or(0, |status| status.len());
        let feed = Feed {
            source: &mut archive,
            is_cancelled: &|| false,
        };
        let limits = &self.settings.limits;
        let mut hosted = reader::unpack_hosted(feed, into, limits, request.folder)
            .map_err(|problem| classify(request, problem))?;
        let comment = hosted.comment.as_deref().map(str::trim_ascii);
        if let Some(comment) = comment
            && is_commit(comment)
            && comment != request.sha
        {
            let cause = format!("it is of the commit {comment}");
            return Err(request.refused(cause, None));
        }
        hosted.unpacked =
            verified::check(into, hosted.unpacked).map_err(|problem| classify(request, problem))?;
        let digest = hosted.unpacked.archive_digest;
        let digest = digest.ok_or_else(|| {
            AttemptError::temporary("the archive was not read to its end".to_owned())
        })?;
        Ok((ArchiveNote { bytes, digest }, hosted))
    }

    fn publish(
        &self,
        request: &FetchRequest<'_>,
        building: Building,
        archive: ArchiveNote,
        hosted: &Hosted,
        from_cache: bool,
    ) -> Result<FetchedTree, GitHubError> {
        if let (Some(found), Some(folder)) = (hosted.instead.as_deref(), request.folder) {
            return Err(GitHubError::FolderNotFound {
                repository: request.repository.to_owned(),
                sha: request.sha.to_owned(),
                path: folder.clone(),
                problem: match found {
                    "nothing" => "does not exist".to_owned(),
                    other => format!("is {other}; expected a folder"),
                },
            });
        }
        let cache = self.cache()?;
        let tree = cache.publish_tree(building, &request.tree_key, archive, &hosted.unpacked)?;
        Ok(FetchedTree::of_entry(tree, archive, from_cache))
    }
}

/// A truncated or damaged archive is a temporary error.
fn classify(request: &FetchRequest<'_>, problem: Problem) -> AttemptError {
    match problem.cause {
        Cause::Damaged => AttemptError::temporary(problem.to_string()),
        Cause::Bundle | Cause::TooManyBytes => {
            request.refused(problem.to_string(), Some(Box::new(problem)))
        }
        Cause::Full | Cause::Host => GitHubError::Unpack(Box::new(problem)).into(),
    }
}
