//! Writes a layout.
//!
//! A new layout is written under a temporary name and renamed at the end, so an interrupted writer
//! leaves no partial layout. In an existing layout, and in `.`, the blobs are added first, then the
//! index is replaced.

use std::fs::File;
use std::io::{ErrorKind, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::oci::error::OciError;
use crate::oci::hashing::HashingFile;
use crate::oci::layout::error::LayoutError;
use crate::oci::layout::files::{Directory, blob_name, call_error};
use crate::oci::layout::index::{
    INDEX_FILE, LAYOUT_FILE, LAYOUT_FILE_TEXT, LayoutEntry, add_entry,
};
use crate::oci::layout::reader::Layout;
use crate::oci::observer::Observer;
use spec::digest::Digest;
use spec::oci::media::MANIFEST_BYTES_MAX;
use spec::path::escape_path;
use sys::file::{errno_of, open_beneath, open_directory, remove_tree};
use sys::lock::try_claim_file;
use sys::process::random_digits;

const BLOBS: &str = "blobs";
const BLOBS_SHA256: &str = "blobs/sha256";
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const PIECE_BYTES: usize = 64 << 10;
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// A layout that is being written.
#[derive(Debug)]
pub struct LayoutWriter {
    directory: Directory,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Existing,
    /// Renamed at the end from `temporary` to `name`, both in `parent`.
    New {
        parent: OwnedFd,
        temporary: String,
        name: Vec<u8>,
        is_renamed: bool,
    },
}

impl LayoutWriter {
    /// Creates a layout at `path`, or opens the existing one.
    ///
    /// # Errors
    /// [`OciError::Layout`]: something else exists there, or it is not writable.
    pub fn create(path: &Path) -> Result<Self, OciError> {
        match std::fs::read_dir(path) {
            Ok(mut entries) => match entries.next() {
                None => Ok(Self::create_new(path)?),
                Some(_) => Self::open_existing(path),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::create_new(path)?),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Err(LayoutError::Occupied {
                directory: escape_path(path),
                found: "it is a file",
            }
            .into()),
            Err(error) => Err(write_error(path, "opendir")(errno_of(&error)).into()),
        }
    }

    fn open_existing(path: &Path) -> Result<Self, OciError> {
        let directory = Directory::open(path)?;
        if directory.open_file(LAYOUT_FILE)?.is_none() {
            return Err(LayoutError::Occupied {
                directory: directory.display_path,
                found: "it is a directory with other files",
            }
            .into());
        }
        // Refuses an invalid layout before anything is written. One without an index is of an
        // interrupted writer.
        if directory.open_file(INDEX_FILE)?.is_some() {
            Layout::open(path)?;
        }
        Ok(Self {
            directory,
            target: Target::Existing,
        })
    }

    fn create_new(path: &Path) -> Result<Self, LayoutError> {
        // `.` or `..`: a rename would replace the working directory of the caller.
        let Some(name) = path.file_name() else {
            let writer = Self {
                directory: Directory::open(path)?,
                target: Target::Existing,
            };
            writer.write_file(LAYOUT_FILE, LAYOUT_FILE_TEXT.as_bytes())?;
            return Ok(writer);
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let failed = |call| write_error(path, call);
        let temporary = temporary_name().map_err(failed("getrandom"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty()).map_err(failed("open"))?;
        rustix::fs::mkdirat(&parent, temporary.as_str(), DIRECTORY_MODE)
            .map_err(failed("mkdirat"))?;
        let descriptor =
            open_directory(parent.as_fd(), temporary.as_str()).map_err(failed("openat"))?;
        let writer = Self {
            directory: Directory {
                display_path: escape_path(path),
                descriptor,
            },
            target: Target::New {
                parent,
                temporary,
                name: name.as_bytes().to_vec(),
                is_renamed: false,
            },
        };
        writer.write_file(LAYOUT_FILE, LAYOUT_FILE_TEXT.as_bytes())?;
        Ok(writer)
    }

    /// Adds `source` as a blob and returns digest and size in bytes.
    ///
    /// # Errors
    /// [`OciError::Layout`]: reading or writing failed.
    pub fn add_blob(&mut self, source: &mut dyn Read) -> Result<(Digest, u64), OciError> {
        self.make_directories()?;
        let (temporary, file) = self.create_temporary()?;
        let mut file = HashingFile::new(file);
        if let Err(error) = self.copy(source, &mut file, &temporary) {
            self.remove(&temporary);
            return Err(error.into());
        }
        let digest = file.digest();
        self.publish(&file.file, &temporary, &blob_name(&digest))?;
        Ok((digest, file.bytes()))
    }

    fn copy(
        &self,
        source: &mut dyn Read,
        file: &mut HashingFile,
        name: &str,
    ) -> Result<(), LayoutError> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = match source.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => {
                    let directory = self.directory.display_path.clone();
                    return Err(LayoutError::Source { directory, source });
                }
            };
            file.write_all(&piece[..count]).map_err(|error| {
                self.directory.failed("write", name, "written")(errno_of(&error))
            })?;
        }
    }

    /// Adds a manifest, which was added as a blob, to the index and renames a new layout to its
    /// name. The name of `entry` is removed from another entry.
    ///
    /// # Errors
    /// [`OciError::Layout`]: not writable, or the name was taken meanwhile;
    /// [`OciError::Cancelled`].
    pub fn finish(mut self, entry: &LayoutEntry, observer: &dyn Observer) -> Result<(), OciError> {
        self.lock(observer)?;
        let before = self.directory.read(INDEX_FILE, MANIFEST_BYTES_MAX)?;
        let text = add_entry(before.as_deref(), entry)
            .map_err(|problem| self.directory.invalid(INDEX_FILE, &problem))?;
        self.write_file(INDEX_FILE, text.as_bytes())?;
        let Target::New {
            parent,
            temporary,
            name,
            is_renamed,
        } = &mut self.target
        else {
            return Ok(());
        };
        // rename(2) of a directory replaces an empty directory and nothing else.
        rustix::fs::renameat(&*parent, &**temporary, &*parent, &**name)
            .map_err(self.directory.failed("rename", ".", "written"))?;
        *is_renamed = true;
        // Not every parent that is writable is readable: then a crash may lose the name.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(parent) = rustix::fs::openat(&*parent, ".", flags, Mode::empty()) {
            rustix::fs::fsync(parent).map_err(self.directory.failed("fsync", ".", "written"))?;
        }
        Ok(())
    }

    /// Waits until no other process writes the index. Each process that can read the directory can
    /// hold its lock, so the wait must be cancellable.
    fn lock(&self, observer: &dyn Observer) -> Result<(), OciError> {
        let failed = self.directory.failed("flock", ".", "written");
        while !try_claim_file(self.directory.descriptor.as_fd()).map_err(&failed)? {
            let during = "waiting for another process that writes the layout";
            observer.pause("another process writes the layout", LOCK_INTERVAL, during)?;
        }
        Ok(())
    }

    fn make_directories(&self) -> Result<(), LayoutError> {
        for name in [BLOBS, BLOBS_SHA256] {
            let (parent, last) = self.open_parent(name)?;
            match rustix::fs::mkdirat(&parent, last, DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => (),
                Err(errno) => return Err(self.directory.failed("mkdirat", name, "created")(errno)),
            }
        }
        Ok(())
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<(), LayoutError> {
        let (temporary, mut file) = self.create_temporary()?;
        if let Err(error) = file.write_all(bytes) {
            self.remove(&temporary);
            return Err(self.directory.failed("write", name, "written")(errno_of(
                &error,
            )));
        }
        self.publish(&file, &temporary, name)
    }

    fn create_temporary(&self) -> Result<(String, File), LayoutError> {
        let name = temporary_name().map_err(self.directory.failed("getrandom", ".", "written"))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let directory = self.directory.descriptor.as_fd();
        let file = open_beneath(directory, name.as_bytes(), flags, FILE_MODE)
            .map_err(self.directory.failed("openat2", &name, "written"))?;
        Ok((name, File::from(file)))
    }

    /// Syncs the temporary file, renames it to `name` and syncs its directory. Removes it on failure.
    fn publish(&self, file: &File, temporary: &str, name: &str) -> Result<(), LayoutError> {
        let failed = |call| self.directory.failed(call, name, "written");
        let published = rustix::fs::fsync(file)
            .map_err(failed("fsync"))
            .and_then(|()| {
                let (parent, last) = self.open_parent(name)?;
                let from = &self.directory.descriptor;
                rustix::fs::renameat(from, temporary, &parent, last).map_err(failed("rename"))?;
                rustix::fs::fsync(parent).map_err(failed("fsync"))
            });
        if published.is_err() {
            self.remove(temporary);
        }
        published
    }

    /// Returns the parent directory and the last component of `name`.
    fn open_parent<'name>(&self, name: &'name str) -> Result<(OwnedFd, &'name str), LayoutError> {
        let (parent, last) = name.rsplit_once('/').unwrap_or((".", name));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = self.directory.descriptor.as_fd();
        let parent = open_beneath(directory, parent.as_bytes(), flags, Mode::empty())
            .map_err(self.directory.failed("openat2", name, "written"))?;
        Ok((parent, last))
    }

    /// A failure leaves an unused file and is not reported.
    fn remove(&self, temporary: &str) {
        let _result = rustix::fs::unlinkat(&self.directory.descriptor, temporary, AtFlags::empty());
    }
}

impl Drop for LayoutWriter {
    fn drop(&mut self) {
        if let Target::New {
            parent,
            temporary,
            is_renamed: false,
            ..
        } = &self.target
        {
            let _result = remove_tree(parent.as_fd(), temporary.as_bytes());
        }
    }
}

fn write_error(path: &Path, call: &'static str) -> impl Fn(Errno) -> LayoutError + use<> {
    let directory = escape_path(path);
    move |errno| call_error(&directory, call, ".", "written", errno)
}

/// A killed writer leaves its file, so the name is random.
fn temporary_name() -> Result<String, Errno> {
    Ok(format!(".runner-{}.tmp", random_digits()?))
}
