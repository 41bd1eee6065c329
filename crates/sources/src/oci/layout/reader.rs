//! Reads a layout.

use std::collections::BTreeSet;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use crate::oci::error::OciError;
use crate::oci::layout::error::LayoutError;
use crate::oci::layout::files::{Directory, blob_name};
use crate::oci::layout::index::{LIST, LayoutEntry, MARK, MARK_BYTES_MAX, listed, mark_problem};
use crate::oci::origin::{BlobStream, FetchedManifest, Origin};
use spec::digest::Digest;
use spec::document::excerpt;
use spec::oci::media::{MANIFEST_BYTES_MAX, is_index};
use spec::oci::reference::Which;

const DEPTH_MAX: u32 = 4;
/// Most nested indexes; each digest is read once, since indexes can refer to each other many times.
const INDEXES_MAX: usize = 256;
/// Most manifests in all nested indexes.
const LISTED_MAX: usize = 100_000;
const SHOWN_MAX: usize = 10;

/// An OCI layout, read beneath its directory descriptor and without following links.
#[derive(Debug)]
pub struct Layout {
    directory: Directory,
    listed: Vec<LayoutEntry>,
}

impl Layout {
    /// Opens the layout at `directory` and reads its index.
    ///
    /// # Errors
    /// [`OciError::Layout`]: missing, or not a layout.
    pub fn open(directory: &Path) -> Result<Self, OciError> {
        let directory = Directory::open(directory)?;
        let mark = directory.read(MARK, MARK_BYTES_MAX)?.ok_or_else(|| {
            directory.wrong(MARK, "is missing: the directory is not an OCI layout")
        })?;
        if let Some(problem) = mark_problem(&mark) {
            return Err(directory.wrong(MARK, &problem).into());
        }
        let list = directory
            .read(LIST, MANIFEST_BYTES_MAX)?
            .ok_or_else(|| directory.wrong(LIST, "is missing"))?;
        let listed = listed(&list).map_err(|problem| directory.wrong(LIST, &problem))?;
        Ok(Self { directory, listed })
    }

    /// Lists the manifests in the order of the index.
    #[must_use]
    pub fn entries(&self) -> &[LayoutEntry] {
        &self.listed
    }

    fn document(&self, digest: &Digest, media_type: &str) -> Result<FetchedManifest, LayoutError> {
        let name = blob_name(digest);
        let bytes = self
            .directory
            .read(&name, MANIFEST_BYTES_MAX)?
            .ok_or_else(|| self.directory.wrong(&name, "is missing"))?;
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(LayoutError::WrongDigest {
                directory: self.directory.shown.clone(),
                file: name,
                found,
                expected: *digest,
            });
        }
        Ok(FetchedManifest {
            bytes,
            media_type: media_type.to_owned(),
            digest: found,
        })
    }

    /// Finds the entry of that name, nested indexes included. Without a name the layout must have
    /// one entry.
    fn named(&self, which: &Which) -> Result<LayoutEntry, LayoutError> {
        match which {
            Which::Unnamed => match self.listed.as_slice() {
                [only] => Ok(only.clone()),
                several => Err(self.no(format!("{} manifests, expected one", several.len()))),
            },
            Which::Tag(name) => {
                let of_name = |listed: &[LayoutEntry]| -> Vec<LayoutEntry> {
                    let is_it = |one: &&LayoutEntry| one.name.as_deref() == Some(name.as_str());
                    listed.iter().filter(is_it).cloned().collect()
                };
                let mut found = of_name(&self.listed);
                if found.is_empty() {
                    found = of_name(&self.nested()?);
                }
                match found.as_slice() {
                    [one] => Ok(one.clone()),
                    [] => Err(self.no(format!("no manifest `{}`", excerpt(name)))),
                    more => Err(self.no(format!(
                        "{} manifests `{}`, expected one",
                        more.len(),
                        excerpt(name)
                    ))),
                }
            }
            Which::Digest(digest) => {
                let is_it = |one: &&LayoutEntry| one.digest == *digest;
                match self.listed.iter().find(is_it) {
                    Some(one) => Ok(one.clone()),
                    None => self
                        .nested()?
                        .iter()
                        .find(is_it)
                        .cloned()
                        .ok_or_else(|| self.no(format!("no manifest {digest}"))),
                }
            }
        }
    }

    fn nested(&self) -> Result<Vec<LayoutEntry>, LayoutError> {
        let mut read = BTreeSet::new();
        let mut all = Vec::new();
        let mut level = self.listed.clone();
        for depth in 0..=DEPTH_MAX {
            let mut below = Vec::new();
            for index in level.iter().filter(|one| is_index(&one.media_type)) {
                if !read.insert(index.digest) {
                    continue;
                }
                let file = blob_name(&index.digest);
                let problem = match (depth == DEPTH_MAX, INDEXES_MAX < read.len()) {
                    (true, _) => format!("is an index more than {DEPTH_MAX} indexes deep"),
                    (false, true) => format!("is one of more than {INDEXES_MAX} indexes"),
                    (false, false) => {
                        below.extend(self.listed_in(index)?);
                        if below.len() <= LISTED_MAX {
                            continue;
                        }
                        format!("is one of indexes that list more than {LISTED_MAX} manifests")
                    }
                };
                return Err(self.directory.wrong(&file, &problem));
            }
            all.extend(below.iter().cloned());
            level = below;
        }
        Ok(all)
    }

    fn listed_in(&self, index: &LayoutEntry) -> Result<Vec<LayoutEntry>, LayoutError> {
        let document = self.document(&index.digest, &index.media_type)?;
        listed(&document.bytes).map_err(|problem| {
            let file = blob_name(&index.digest);
            self.directory.wrong(&file, &problem)
        })
    }

    fn no(&self, found: String) -> LayoutError {
        let names: Vec<String> = self
            .listed
            .iter()
            .filter_map(|listed| listed.name.as_deref())
            .take(SHOWN_MAX)
            .map(excerpt)
            .collect();
        LayoutError::Which {
            directory: self.directory.shown.clone(),
            found,
            known: match names.as_slice() {
                [] => format!("it lists {} without a name", self.listed.len()),
                names => format!("it has {}", names.join(", ")),
            },
        }
    }
}

impl Origin for Layout {
    fn shown(&self) -> String {
        format!("oci:{}", self.directory.shown)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        let listed = self.named(which)?;
        Ok(self.document(&listed.digest, &listed.media_type)?)
    }

    fn blob(&self, digest: &Digest, from_byte: u64) -> Result<BlobStream<'_>, OciError> {
        let name = blob_name(digest);
        let (mut file, _) = self
            .directory
            .file(&name)?
            .ok_or_else(|| self.directory.wrong(&name, "is missing"))?;
        file.seek(SeekFrom::Start(from_byte)).map_err(|error| {
            self.directory.failed("lseek", &name, "read")(sys::file::errno_of(&error))
        })?;
        Ok(BlobStream {
            starts_at: from_byte,
            reader: Box::new(file),
        })
    }
}
