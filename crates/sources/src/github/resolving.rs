//! Resolves a tag or a branch to its commit.
//!
//! If a name is both, the tag wins, as in gitrevisions(7), with a warning.

use ureq::http::StatusCode;

use crate::github::client::Client;
use crate::github::error::{AttemptError, GitHubError};
use crate::github::responses::{GitObject, ObjectKind, RefLookup, parse_object, parse_refs};
use crate::github::{RefShape, ResolvedRef};
use crate::progress::Progress;
use spec::did_you_mean::nearest;
use spec::path::escape;
use spec::percent::{PATH, percent_encoded};
use spec::report::WarningReport;

const JSON: &str = "application/vnd.github+json";
const TAGS_MAX: usize = 5;

impl Client {
    /// Resolves `reference`, which is not a commit.
    pub(super) fn resolve(
        &self,
        repository: &str,
        reference: &str,
        shape: RefShape,
    ) -> Result<ResolvedRef, GitHubError> {
        let key = self.cache_key("ref", repository, reference.as_bytes(), b"");
        if shape == RefShape::VersionTag
            && let Some(sha) = self.cache()?.recorded_commit(&key)
        {
            return Ok(ResolvedRef {
                sha,
                shape,
                cached: true,
                warnings: Vec::new(),
            });
        }
        let resolving = Progress::Resolving {
            repository,
            reference,
        };
        resolving.emit();
        let tag = self.find_ref(repository, "tags", reference)?;
        let head = self.find_ref(repository, "heads", reference)?;
        let mut warnings = Vec::new();
        let found = match (tag, head) {
            (RefLookup::Found(tag), RefLookup::Found(head)) => {
                warnings.push(ambiguous(repository, reference, &tag, &head));
                tag
            }
            (RefLookup::Found(found), RefLookup::NotFound(_))
            | (RefLookup::NotFound(_), RefLookup::Found(found)) => found,
            (RefLookup::NotFound(tags), RefLookup::NotFound(heads)) => {
                let others = [tags, heads].concat();
                return Err(self.ref_not_found(repository, reference, shape, others));
            }
        };
        let sha = self.peel(repository, reference, found)?;
        if shape == RefShape::VersionTag {
            self.cache()?.record_commit(&key, &sha)?;
        }
        Ok(ResolvedRef {
            sha,
            shape,
            cached: false,
            warnings,
        })
    }

    fn find_ref(
        &self,
        repository: &str,
        kind: &str,
        reference: &str,
    ) -> Result<RefLookup, GitHubError> {
        let wanted = format!("{kind}/{reference}");
        let path = format!(
            "/repos/{repository}/git/refs/{kind}/{}",
            percent_encoded(reference, PATH)
        );
        self.service.retry(&path, || {
            let response = self.service.get(&path, JSON)?;
            match response.status {
                StatusCode::OK => {
                    let document = self.service.json(response)?;
                    parse_refs(&document, &wanted).map_err(AttemptError::Unusable)
                }
                // 409: the repository is empty.
                StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(RefLookup::NotFound(Vec::new())),
                other => Err(AttemptError::unexpected_status(other)),
            }
        })
    }

    /// Follows annotated tags to the commit.
    fn peel(
        &self,
        repository: &str,
        reference: &str,
        mut found: GitObject,
    ) -> Result<String, GitHubError> {
        for _ in 0..=TAGS_MAX {
            let path = match found.kind {
                ObjectKind::Commit => return Ok(found.sha),
                ObjectKind::Tag => format!("/repos/{repository}/git/tags/{}", found.sha),
                ObjectKind::Other(found) => {
                    return Err(GitHubError::NotACommit {
                        repository: repository.to_owned(),
                        reference: escape(reference.as_bytes()),
                        found: format!("a {}", escape(found.as_bytes())),
                    });
                }
            };
            found = self.service.retry(&path, || {
                let response = self.service.get(&path, JSON)?;
                match response.status {
                    StatusCode::OK => {
                        let document = self.service.json(response)?;
                        parse_object(&document).map_err(AttemptError::Unusable)
                    }
                    other => Err(AttemptError::unexpected_status(other)),
                }
            })?;
        }
        Err(GitHubError::NotACommit {
            repository: repository.to_owned(),
            reference: escape(reference.as_bytes()),
            found: format!("a chain of more than {TAGS_MAX} tags"),
        })
    }

    fn ref_not_found(
        &self,
        repository: &str,
        reference: &str,
        shape: RefShape,
        mut others: Vec<String>,
    ) -> GitHubError {
        let path = format!("/repos/{repository}");
        let exists = self.service.retry(&path, || {
            let response = self.service.get(&path, JSON)?;
            match response.status {
                StatusCode::OK => Ok(true),
                StatusCode::NOT_FOUND => Ok(false),
                other => Err(AttemptError::unexpected_status(other)),
            }
        });
        match exists {
            Ok(true) => (),
            Ok(false) => return self.repository_not_found(repository),
            Err(error) => return error,
        }
        for kind in ["tags", "heads"] {
            // Ignore a failure: similar names only improve the message.
            let path = format!("/repos/{repository}/git/refs/{kind}");
            let listed = self.service.get(&path, JSON).and_then(|response| {
                let document = self.service.json(response)?;
                parse_refs(&document, "").map_err(AttemptError::Unusable)
            });
            if let Ok(RefLookup::NotFound(listed)) = listed {
                others.extend(listed);
            }
        }
        let longer = others.iter().find(|name| name.starts_with(reference));
        let near = match longer {
            Some(longer) => Some(longer.as_str()),
            None => nearest(reference, others.iter().map(String::as_str)),
        };
        GitHubError::RefNotFound {
            repository: repository.to_owned(),
            reference: escape(reference.as_bytes()),
            shape,
            near: near.map(|near| escape(near.as_bytes())),
        }
    }
}

fn ambiguous(
    repository: &str,
    reference: &str,
    tag: &GitObject,
    head: &GitObject,
) -> WarningReport {
    let reference = escape(reference.as_bytes());
    WarningReport::new(
        "reference_ambiguous",
        format!(
            "{repository}: `{reference}` is a tag ({}) and a branch ({}); the tag is used",
            tag.sha, head.sha
        ),
    )
}

/// Whether `text` is `owner/name` of valid characters, without `..`.
pub(super) fn is_repository(text: &str) -> bool {
    let is_name = |name: &str| {
        !matches!(name, "" | "." | "..")
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    text.split_once('/')
        .is_some_and(|(owner, name)| is_name(owner) && is_name(name))
}

/// Checks the rules of git-check-ref-format(1) for segments.
pub(super) fn is_reference(text: &str) -> bool {
    !text.contains("..")
        && text
            .split('/')
            .all(|segment| !segment.is_empty() && !segment.starts_with('.'))
        && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_change_the_path_of_a_url_are_refused() {
        for name in ["owner/name", "o-r_g/a.b", "a/..b"] {
            assert!(is_repository(name), "{name}");
        }
        for name in [
            "", "owner", "a/b/c", "../x", "a/..", "a/b?x", "a/b%2f", "a b/c", "/b", "a/",
        ] {
            assert!(!is_repository(name), "{name}");
        }
        for name in ["main", "feature/x", "v1.2", "ü#%?"] {
            assert!(is_reference(name), "{name}");
        }
        for name in ["", "a..b", "../x", "/x", "x/", "a//b", ".x", "a/.b", "a\nb"] {
            assert!(!is_reference(name), "{name}");
        }
    }
}
