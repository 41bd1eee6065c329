//! Reads a layout.

use std::collections::BTreeSet;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use crate::oci::error::OciError;
use crate::oci::layout::error::LayoutError;
use crate::oci::layout::files::{Directory, blob_name};
use crate::oci::layout::index::{
    INDEX_FILE, LAYOUT_FILE, LAYOUT_FILE_BYTES_MAX, LayoutEntry, check_layout_file, parse_index,
};
use crate::oci::origin::{BlobStream, FetchedManifest, Origin};
use spec::digest::Digest;
use spec::document::excerpt;
use spec::oci::media::{MANIFEST_BYTES_MAX, is_index};
use spec::oci::reference::Which;

const DEPTH_MAX: u32 = 4;
/// Most nested indexes. Each digest is read once, since indexes can refer to each other many times.
const INDEXES_MAX: usize = 256;
/// Most manifests in all nested indexes.
const ENTRIES_MAX: usize = 100_000;
const NAMES_SHOWN_MAX: usize = 10;

/// An OCI layout, read beneath its directory descriptor and without following links.
#[derive(Debug)]
pub struct Layout {
    directory: Directory,
    entries: Vec<LayoutEntry>,
}

impl Layout {
    /// Opens the layout at `directory` and reads its index.
    ///
    /// # Errors
    /// [`OciError::Layout`]: missing, or not a layout.
    pub fn open(directory: &Path) -> Result<Self, OciError> {
        let directory = Directory::open(directory)?;
        let layout_file = directory.read(LAYOUT_FILE, LAYOUT_FILE_BYTES_MAX)?;
        let layout_file = layout_file.ok_or_else(|| {
            directory.invalid(
                LAYOUT_FILE,
                "is missing: the directory is not an OCI layout",
            )
        })?;
        check_layout_file(&layout_file)
            .map_err(|problem| directory.invalid(LAYOUT_FILE, &problem))?;
        let index = directory
            .read(INDEX_FILE, MANIFEST_BYTES_MAX)?
            .ok_or_else(|| directory.invalid(INDEX_FILE, "is missing"))?;
        let entries =
            parse_index(&index).map_err(|problem| directory.invalid(INDEX_FILE, &problem))?;
        Ok(Self { directory, entries })
    }

    /// Lists the manifests in the order of the index.
    #[must_use]
    pub fn entries(&self) -> &[LayoutEntry] {
        &self.entries
    }

    fn read_document(&self, digest: &Digest) -> Result<FetchedManifest, LayoutError> {
        let name = blob_name(digest);
        let bytes = self
            .directory
            .read(&name, MANIFEST_BYTES_MAX)?
            .ok_or_else(|| self.directory.invalid(&name, "is missing"))?;
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(LayoutError::WrongDigest {
                directory: self.directory.display_path.clone(),
                file: name,
                found,
                expected: *digest,
            });
        }
        Ok(FetchedManifest {
            bytes,
            digest: found,
        })
    }

    /// Finds an entry of the layout or of its nested indexes. Without a name the layout must have
    /// one entry.
    fn find_entry(&self, which: &Which) -> Result<LayoutEntry, LayoutError> {
        match which {
            Which::Unnamed => match self.entries.as_slice() {
                [only] => Ok(only.clone()),
                several => {
                    Err(self.not_found(format!("{} manifests, expected one", several.len())))
                }
            },
            Which::Tag(name) => {
                let has_name = |entry: &&LayoutEntry| entry.name.as_ref() == Some(name);
                let with_name = |entries: &[LayoutEntry]| -> Vec<LayoutEntry> {
                    entries.iter().filter(has_name).cloned().collect()
                };
                let mut found = with_name(&self.entries);
                if found.is_empty() {
                    found = with_name(&self.nested_entries()?);
                }
                match found.as_slice() {
                    [only] => Ok(only.clone()),
                    [] => Err(self.not_found(format!("no manifest `{}`", excerpt(name)))),
                    several => Err(self.not_found(format!(
                        "{} manifests `{}`, expected one",
                        several.len(),
                        excerpt(name)
                    ))),
                }
            }
            Which::Digest(digest) => {
                let has_digest = |entry: &&LayoutEntry| entry.digest == *digest;
                match self.entries.iter().find(has_digest) {
                    Some(found) => Ok(found.clone()),
                    None => self
                        .nested_entries()?
                        .iter()
                        .find(has_digest)
                        .cloned()
                        .ok_or_else(|| self.not_found(format!("no manifest {digest}"))),
                }
            }
        }
    }

    fn nested_entries(&self) -> Result<Vec<LayoutEntry>, LayoutError> {
        let mut read = BTreeSet::new();
        let mut all = Vec::new();
        let mut level = self.entries.clone();
        for depth in 0..=DEPTH_MAX {
            let mut below = Vec::new();
            for index in level.iter().filter(|entry| is_index(&entry.media_type)) {
                if !read.insert(index.digest) {
                    continue;
                }
                let file = blob_name(&index.digest);
                let invalid = |problem: String| Err(self.directory.invalid(&file, &problem));
                if depth == DEPTH_MAX {
                    return invalid(format!("is an index more than {DEPTH_MAX} indexes deep"));
                }
                if read.len() > INDEXES_MAX {
                    return invalid(format!("is one of more than {INDEXES_MAX} indexes"));
                }
                below.extend(self.read_index(index)?);
                if all.len() + below.len() > ENTRIES_MAX {
                    return invalid(format!(
                        "is one of the indexes that list more than {ENTRIES_MAX} manifests"
                    ));
                }
            }
            all.extend(below.iter().cloned());
            level = below;
        }
        Ok(all)
    }

    fn read_index(&self, index: &LayoutEntry) -> Result<Vec<LayoutEntry>, LayoutError> {
        let document = self.read_document(&index.digest)?;
        parse_index(&document.bytes).map_err(|problem| {
            let file = blob_name(&index.digest);
            self.directory.invalid(&file, &problem)
        })
    }

    fn not_found(&self, found: String) -> LayoutError {
        let directory = self.directory.display_path.clone();
        if self.entries.is_empty() {
            return LayoutError::Empty { directory };
        }
        let names: Vec<String> = self
            .entries
            .iter()
            .filter_map(|entry| entry.name.as_deref())
            .take(NAMES_SHOWN_MAX)
            .map(excerpt)
            .collect();
        LayoutError::NotFound {
            directory,
            found,
            known: match names.as_slice() {
                [] => format!("{} without a name", self.entries.len()),
                names => names.join(", "),
            },
        }
    }
}

impl Origin for Layout {
    fn name(&self) -> String {
        format!("oci:{}", self.directory.display_path)
    }

    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        let entry = self.find_entry(which)?;
        Ok(self.read_document(&entry.digest)?)
    }

    fn blob(&self, digest: &Digest, from_byte: u64) -> Result<BlobStream<'_>, OciError> {
        let name = blob_name(digest);
        let mut file = self
            .directory
            .open_file(&name)?
            .ok_or_else(|| self.directory.invalid(&name, "is missing"))?;
        let failed = |error: std::io::Error| {
            self.directory.failed("lseek", &name, "read")(sys::file::errno_of(&error))
        };
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        // The caller needs more bytes. A retry would not get them.
        if from_byte > 0 && from_byte >= bytes {
            let problem = format!("ends after {bytes} bytes");
            return Err(self.directory.invalid(&name, &problem).into());
        }
        file.seek(SeekFrom::Start(from_byte)).map_err(failed)?;
        Ok(BlobStream {
            starts_at: from_byte,
            reader: Box::new(file),
        })
    }
}
