//! Resolves a tag or a branch to its commit.
//!
//! If a name is both, the tag wins, as in gitrevisions(7), with a warning.

use ureq::http::StatusCode;

use crate::github::client::{Client, unexpected};
use crate::github::error::GitHubError;
use crate::github::fault::Fault;
use crate::github::responses::{Named, ObjectKind, Pointed, named, pointed};
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
    ///
    /// # Errors
    /// [`GitHubError`].
    pub(super) fn resolve(
        &self,
        repository: &str,
        reference: &str,
        shape: RefShape,
    ) -> Result<ResolvedRef, GitHubError> {
        let key = self.key("ref", repository, reference.as_bytes(), b"");
        if shape == RefShape::VersionTag
            && let Some(sha) = self.cache()?.resolution(&key)
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
        let tag = self.named(repository, "tags", reference)?;
        let head = self.named(repository, "heads", reference)?;
        let mut warnings = Vec::new();
        let found = match (tag, head) {
            (Named::There(tag), Named::There(head)) => {
                warnings.push(ambiguous(repository, reference, &tag, &head));
                tag
            }
            (Named::There(found), Named::Others(_)) | (Named::Others(_), Named::There(found)) => {
                found
            }
            (Named::Others(tags), Named::Others(heads)) => {
                let others = [tags, heads].concat();
                return Err(self.nothing_of(repository, reference, shape, others));
            }
        };
        let sha = self.commit_of(repository, reference, found)?;
        if shape == RefShape::VersionTag {
            self.cache()?.remember(&key, &sha)?;
        }
        Ok(ResolvedRef {
            sha,
            shape,
            cached: false,
            warnings,
        })
    }

    fn named(&self, repository: &str, kind: &str, reference: &str) -> Result<Named, GitHubError> {
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
                    named(&document, &wanted).map_err(Fault::Unusable)
                }
                // 409: the repository is empty.
                StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(Named::Others(Vec::new())),
                other => Err(unexpected(other)),
            }
        })
    }

    fn commit_of(
        &self,
        repository: &str,
        reference: &str,
        mut found: Pointed,
    ) -> Result<String, GitHubError> {
        for _ in 0..=TAGS_MAX {
            let path = match found.kind {
                ObjectKind::Commit => return Ok(found.sha),
                ObjectKind::Tag => format!("/repos/{repository}/git/tags/{}", found.sha),
                ObjectKind::Other(found) => {
                    return Err(GitHubError::NotACommit {
                        repository: repository.to_owned(),
                        reference: escape(reference.as_bytes()),
                        found: escape(found.as_bytes()),
                    });
                }
            };
            found = self.service.retry(&path, || {
                let response = self.service.get(&path, JSON)?;
                match response.status {
                    StatusCode::OK => {
                        let document = self.service.json(response)?;
                        pointed(&document).map_err(Fault::Unusable)
                    }
                    other => Err(unexpected(other)),
                }
            })?;
        }
        Err(GitHubError::NotACommit {
            repository: repository.to_owned(),
            reference: escape(reference.as_bytes()),
            found: format!("more than {TAGS_MAX} tags in a row"),
        })
    }

    fn nothing_of(
        &self,
        repository: &str,
        reference: &str,
        shape: RefShape,
        mut others: Vec<String>,
    ) -> GitHubError {
        let path = format!("/repos/{repository}");
        let is_there = self.service.retry(&path, || {
            let response = self.service.get(&path, JSON)?;
            match response.status {
                StatusCode::OK => Ok(true),
                StatusCode::NOT_FOUND => Ok(false),
                other => Err(unexpected(other)),
            }
        });
        match is_there {
            Ok(true) => (),
            Ok(false) => return self.no_repository(repository),
            Err(error) => return error,
        }
        for kind in ["tags", "heads"] {
            // Similar names only improve the message, so a failure is ignored.
            let path = format!("/repos/{repository}/git/refs/{kind}");
            let listed = self.service.get(&path, JSON).and_then(|response| {
                let document = self.service.json(response)?;
                named(&document, "").map_err(Fault::Unusable)
            });
            if let Ok(Named::Others(listed)) = listed {
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

fn ambiguous(repository: &str, reference: &str, tag: &Pointed, head: &Pointed) -> WarningReport {
    let reference = escape(reference.as_bytes());
    WarningReport::new(
        "reference_ambiguous",
        format!(
            "{repository}: `{reference}` is a tag ({}) and a branch ({}); the tag is taken",
            tag.sha, head.sha
        ),
    )
}

/// `owner/name` of valid characters, without `..`.
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

/// The rules of git-check-ref-format(1) for segments.
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
    fn names_that_could_lead_elsewhere_in_a_url_are_none() {
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
