//! Reads what the process answers that parses checkouts, as if the repository had written it.

use reader::split_parts;
use spec::path::RelPath;

use crate::error::BundleError;
use crate::source::git::address::Address;

/// Patterns of a sparse checkout.
pub(super) const SPARSE_MAX: usize = 1_000;
/// Hexadecimal digits of SHA-1 and SHA-256.
const OBJECT_NAME_DIGITS: [usize; 2] = [40, 64];

/// An answer. Each function reads it as the answer to one kind of question; it fails for what no parser
/// answers.
#[derive(Debug, Clone)]
pub struct CheckoutAnswer(Vec<Vec<u8>>);

/// An entry of the index.
#[derive(Debug, PartialEq, Eq)]
pub enum Indexed {
    File(Vec<u8>),
    Submodule { path: RelPath, commit: Vec<u8> },
}

#[expect(clippy::missing_errors_doc, reason = "see the type")]
impl CheckoutAnswer {
    /// An answer of any kind.
    pub fn read(bytes: &[u8]) -> Result<Self, BundleError> {
        let parts = split_parts(bytes).ok_or_else(malformed)?;
        Ok(Self(parts.into_iter().map(<[u8]>::to_vec).collect()))
    }

    /// All parts.
    #[must_use]
    pub fn list(self) -> Vec<Vec<u8>> {
        self.0
    }

    /// The only part, if there is one.
    pub fn one(mut self) -> Result<Option<Vec<u8>>, BundleError> {
        match self.0.len() {
            0 | 1 => Ok(self.0.pop()),
            _ => Err(malformed()),
        }
    }

    /// The name of a reference.
    pub fn reference(self) -> Result<Option<String>, BundleError> {
        let is_name = |name: &String| !name.contains(char::is_control);
        let name = self.one()?.map(String::from_utf8);
        name.map(|name| name.ok().filter(is_name).ok_or_else(malformed))
            .transpose()
    }

    /// The name of a commit, which can be an argument of git.
    pub fn commit(self) -> Result<Option<String>, BundleError> {
        let is_name = |name: &String| {
            OBJECT_NAME_DIGITS.contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let name = self.reference()?;
        name.map(|name| Some(name).filter(is_name).ok_or_else(malformed))
            .transpose()
    }

    /// Names and values.
    pub fn settings(self) -> Result<Vec<(String, String)>, BundleError> {
        let text = |part: &Vec<u8>| String::from_utf8(part.clone()).map_err(|_| malformed());
        let pairs = self.0.chunks(2).map(|pair| match pair {
            [name, value] => Ok((text(name)?, text(value)?)),
            _ => Err(malformed()),
        });
        pairs.collect()
    }

    /// The address of a repository.
    pub fn address(self) -> Result<Option<Address>, BundleError> {
        let text = |part: &Vec<u8>| String::from_utf8(part.clone()).ok();
        let address = match &self.0[..] {
            [] => return Ok(None),
            [url] => text(url).map(|url| (url, None)),
            [url, repository] => text(url).zip(text(repository).map(Some)),
            _ => None,
        };
        let address = address.map(|(url, repository)| Address { url, repository });
        address
            .filter(Address::is_plain)
            .map(Some)
            .ok_or_else(malformed)
    }

    /// The time of a commit.
    pub fn time_s(self) -> Result<Option<i64>, BundleError> {
        let time = self.one()?;
        time.map(|time| {
            let bytes = time.try_into().map_err(|_| malformed())?;
            Ok(i64::from_le_bytes(bytes))
        })
        .transpose()
    }

    /// Entries of the index.
    pub fn indexed(self) -> Result<Vec<Indexed>, BundleError> {
        let pairs = self.0.chunks(2).map(|pair| match pair {
            [commit, path] if commit.is_empty() => Ok(Indexed::File(path.clone())),
            [commit, path] => Ok(Indexed::Submodule {
                path: RelPath::parse(path).map_err(|_| malformed())?,
                commit: commit.clone(),
            }),
            _ => Err(malformed()),
        });
        pairs.collect()
    }

    /// Patterns of a sparse checkout.
    pub fn patterns(self) -> Result<Vec<String>, BundleError> {
        let lines = self.0.into_iter().map(String::from_utf8);
        let lines: Vec<String> = lines.collect::<Result<_, _>>().map_err(|_| malformed())?;
        let is_possible = lines.len() <= SPARSE_MAX;
        is_possible.then_some(lines).ok_or_else(malformed)
    }
}

fn malformed() -> BundleError {
    BundleError::GitUnread {
        reason: "the answer of its reader is malformed".to_owned(),
    }
}
