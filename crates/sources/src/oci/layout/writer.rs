//! Writes a layout.
//!
//! A new layout is written under a temporary name and renamed at the end, so an interrupted write
//! leaves nothing under its name. In an existing layout the blobs are added first, then the index
//! is replaced.

use std::fs::File;
use std::io::{self, BufReader, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::oci::error::OciError;
use crate::oci::hashing::HashingFile;
use crate::oci::layout::error::LayoutError;
use crate::oci::layout::files::{Directory, blob_name};
use crate::oci::layout::index::{LIST, LayoutEntry, MARK, MARK_TEXT, with_entry};
use crate::oci::layout::reader::Layout;
use crate::oci::observer::Observer;
use spec::digest::Digest;
use spec::oci::media::MANIFEST_BYTES_MAX;
use spec::path::escape;
use sys::file::{CallError, errno_of, open_beneath};
use sys::lock::try_claim_file;
use sys::process::random;

const BLOBS: &str = "blobs";
const OF_SHA256: &str = "blobs/sha256";
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const PIECE_BYTES: usize = 64 << 10;
/// Interval between attempts on a held lock.
const TRIED_EVERY: Duration = Duration::from_millis(50);

/// A layout that is being written.
#[derive(Debug)]
pub struct LayoutWriter {
    directory: Directory,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Kept,
    /// Renamed at the end from a random temporary name.
    New {
        above: OwnedFd,
        temporary: String,
        name: Vec<u8>,
        is_named: bool,
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
                None => Ok(Self::beside(path)?),
                Some(_) => Self::into_kept(path),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::beside(path)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                Err(LayoutError::Occupied {
                    directory: shown(path),
                    found: "a file is there, expected a directory or nothing",
                }
                .into())
            }
            Err(error) => Err(failed_at(path, "opendir")(errno_of(&error)).into()),
        }
    }

    fn into_kept(path: &Path) -> Result<Self, OciError> {
        let directory = Directory::open(path)?;
        if directory.file(MARK)?.is_none() {
            return Err(LayoutError::Occupied {
                directory: directory.shown,
                found: "the directory has files and is not an OCI layout",
            }
            .into());
        }
        // Reports an invalid layout before anything is written.
        Layout::open(path)?;
        Ok(Self {
            directory,
            place: Place::Kept,
        })
    }

    fn beside(path: &Path) -> Result<Self, LayoutError> {
        let name = path.file_name().map(|name| name.as_bytes().to_vec());
        let name = name.ok_or_else(|| LayoutError::Occupied {
            directory: shown(path),
            found: "the path has no name at its end",
        })?;
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
            _ => PathBuf::from("."),
        };
        let temporary = temporary_name().map_err(failed_at(path, "getrandom"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |call| failed_at(path, call);
        let above = rustix::fs::open(&above, flags, Mode::empty()).map_err(failed("open"))?;
        rustix::fs::mkdirat(&above, temporary.as_str(), DIRECTORY_MODE)
            .map_err(failed("mkdirat"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&above, temporary.as_str(), flags, Mode::empty())
            .map_err(failed("openat"))?;
        let mut writer = Self {
            directory: Directory {
                shown: shown(path),
                descriptor,
            },
            place: Place::New {
                above,
                temporary,
                name,
                is_named: false,
            },
        };
        writer.write_whole(MARK, MARK_TEXT.as_bytes())?;
        Ok(writer)
    }

    /// Adds `source` as a blob and returns digest and size in bytes.
    ///
    /// # Errors
    /// [`OciError::Layout`]: reading or writing failed.
    pub fn add_blob(&mut self, source: &mut dyn Read) -> Result<(Digest, u64), OciError> {
        self.make_directories()?;
        let temporary = self.temporary()?;
        let mut file = HashingFile::new(self.begin(&temporary)?);
        if let Err(error) = io::copy(
            &mut BufReader::with_capacity(PIECE_BYTES, source),
            &mut file,
        ) {
            let failed = self.directory.failed("write", &temporary, "written");
            return Err(self.without(&temporary, failed(errno_of(&error))).into());
        }
        let digest = file.digest();
        self.settle(&file.file, &temporary, &blob_name(&digest))?;
        Ok((digest, file.bytes()))
    }

    /// Adds a manifest to the index and renames a new layout to its name. The manifest was added as
    /// a blob. An entry with the same name loses it.
    ///
    /// # Errors
    /// [`OciError::Layout`]: not writable, or the name was taken meanwhile;
    /// [`OciError::Cancelled`].
    pub fn finish(mut self, entry: &LayoutEntry, observer: &dyn Observer) -> Result<(), OciError> {
        self.claim(observer)?;
        let before = self.directory.read(LIST, MANIFEST_BYTES_MAX)?;
        let text = with_entry(before.as_deref(), entry)
            .map_err(|problem| self.directory.wrong(LIST, &problem))?;
        self.write_whole(LIST, text.as_bytes())?;
        rustix::fs::fsync(&self.directory.descriptor)
            .map_err(self.directory.failed("fsync", ".", "written"))?;
        let Place::New {
            above,
            temporary,
            name,
            is_named,
        } = &mut self.place
        else {
            return Ok(());
        };
        let flags = RenameFlags::NOREPLACE;
        let renamed = rustix::fs::renameat_with(&*above, &**temporary, &*above, &**name, flags);
        let renamed = match renamed {
            // rename(2) replaces an empty directory and refuses anything else.
            Err(Errno::EXIST | Errno::INVAL) => {
                rustix::fs::renameat(&*above, &**temporary, &*above, &**name)
            }
            other => other,
        };
        renamed.map_err(self.directory.failed("rename", ".", "written"))?;
        *is_named = true;
        Ok(())
    }

    /// Serializes writers. Every process that can read the directory can keep its lock, so
    /// the wait must be cancellable.
    fn claim(&self, observer: &dyn Observer) -> Result<(), OciError> {
        let failed = self.directory.failed("flock", ".", "written");
        while !try_claim_file(self.directory.descriptor.as_fd()).map_err(&failed)? {
            let during = "waiting for another process that writes the layout";
            observer.pause("another process writes the layout", TRIED_EVERY, during)?;
        }
        Ok(())
    }

    fn make_directories(&self) -> Result<(), LayoutError> {
        for name in [BLOBS, OF_SHA256] {
            let (folder, last) = self.folder_of(name)?;
            match rustix::fs::mkdirat(&folder, last, DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => (),
                Err(errno) => return Err(self.directory.failed("mkdirat", name, "made")(errno)),
            }
        }
        Ok(())
    }

    fn write_whole(&mut self, name: &str, bytes: &[u8]) -> Result<(), LayoutError> {
        let temporary = self.temporary()?;
        let mut file = self.begin(&temporary)?;
        if let Err(error) = file.write_all(bytes) {
            let error = self.directory.failed("write", name, "written")(errno_of(&error));
            return Err(self.without(&temporary, error));
        }
        self.settle(&file, &temporary, name)
    }

    fn temporary(&self) -> Result<String, LayoutError> {
        temporary_name().map_err(self.directory.failed("getrandom", ".", "written"))
    }

    fn begin(&self, name: &str) -> Result<File, LayoutError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        open_beneath(
            self.directory.descriptor.as_fd(),
            name.as_bytes(),
            flags,
            FILE_MODE,
        )
        .map(File::from)
        .map_err(self.directory.failed("openat2", name, "written"))
    }

    fn settle(&self, file: &File, temporary: &str, name: &str) -> Result<(), LayoutError> {
        let failed = |call| self.directory.failed(call, name, "written");
        let settled = rustix::fs::fsync(file)
            .map_err(failed("fsync"))
            .and_then(|()| {
                let (folder, last) = self.folder_of(name)?;
                let from = &self.directory.descriptor;
                rustix::fs::renameat(from, temporary, &folder, last).map_err(failed("rename"))
            });
        settled.map_err(|error| self.without(temporary, error))
    }

    fn folder_of<'name>(&self, name: &'name str) -> Result<(OwnedFd, &'name str), LayoutError> {
        let (folder, last) = name.rsplit_once('/').unwrap_or((".", name));
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let descriptor = self.directory.descriptor.as_fd();
        let folder = open_beneath(descriptor, folder.as_bytes(), flags, Mode::empty())
            .map_err(self.directory.failed("openat2", name, "written"))?;
        Ok((folder, last))
    }

    /// Removes the temporary file and returns `error`. A failed removal leaves an unused name and
    /// is not reported.
    fn without(&self, temporary: &str, error: LayoutError) -> LayoutError {
        let _left = rustix::fs::unlinkat(&self.directory.descriptor, temporary, AtFlags::empty());
        error
    }
}

impl Drop for LayoutWriter {
    fn drop(&mut self) {
        if let Place::New {
            above,
            temporary,
            is_named: false,
            ..
        } = &self.place
        {
            let _left = remove(above, temporary.as_bytes());
        }
    }
}

fn remove(above: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(above, name, flags, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_bytes() {
            b"." | b".." => (),
            _ if entry.file_type() == rustix::fs::FileType::Directory => {
                remove(&directory, name.to_bytes())?;
            }
            _ => rustix::fs::unlinkat(&directory, name, AtFlags::empty())?,
        }
    }
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

fn failed_at(path: &Path, call: &'static str) -> impl Fn(Errno) -> LayoutError + use<> {
    let directory = shown(path);
    move |errno| LayoutError::Call {
        source: CallError::new(call, directory.clone(), errno),
        directory: directory.clone(),
        file: ".".to_owned(),
        act: "written",
    }
}

/// Random, so that it differs from the leftovers of killed writers.
fn temporary_name() -> Result<String, Errno> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(format!(".runner-{:016x}.tmp", u64::from_le_bytes(bytes)))
}
