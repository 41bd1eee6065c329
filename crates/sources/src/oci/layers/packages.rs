//! Layers of Debian packages. A process without rights unpacks them, as it does layers of images.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::oci::layers::left::{self, DIRECTORY_OWNER_BITS};
use archive::deb::Package;
use archive::hiding::ExistsBelow;
use archive::target::{Target, failed};
use archive::{LayerView, UnpackError};
use reader::{PackageProblem, PackagesTask, Problem};
use spec::path::{RelPath, escape};
use sys::file::{CallError, open_beneath};

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW);

/// A layer of packages.
#[derive(Debug)]
pub struct PackageLayer {
    pub packages: Vec<Package>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Approximate size on disk.
    pub disk_bytes: u64,
}

/// Unpacks packages into a layer over those that `exists_below` knows. As with dpkg, a directory that is there
/// too stays as it is.
///
/// # Errors
/// [`PackageProblem`]; the directory of `task` then contains some of the files.
pub fn unpack_packages(
    task: PackagesTask<'_>,
    exists_below: ExistsBelow<'_>,
) -> Result<PackageLayer, PackageProblem> {
    let PackagesTask {
        into, view, limits, ..
    } = task;
    let (packages, bytes) = reader::unpack_packages(task)?;
    let of_all = |problem| PackageProblem {
        index: None,
        problem,
    };
    let left = left::check(into, limits).map_err(of_all)?;
    restore_directories(into, view, exists_below).map_err(|source| of_all(Problem::of(&source)))?;
    Ok(PackageLayer {
        packages,
        bytes,
        disk_bytes: left.disk_bytes,
    })
}

/// Removes empty directories of the layer `root` that are below too, and gives the others the modes that they
/// have there. `root` was checked.
fn restore_directories(
    root: BorrowedFd<'_>,
    view: &LayerView,
    exists_below: ExistsBelow<'_>,
) -> Result<(), UnpackError> {
    let mut below = directories_below(root, None, exists_below)?;
    let mut next = 0;
    // What is beneath any other directory is not below either.
    while let Some(path) = below.get(next).cloned() {
        next += 1;
        below.extend(directories_below(root, Some(&path), exists_below)?);
    }
    let mut target = Target::new(root, None);
    // Those beneath a directory come after it.
    for path in below.iter().rev() {
        match target.remove_directory(path) {
            Err(UnpackError::Target { source, .. })
                if matches!(source.errno, Errno::NOTEMPTY | Errno::EXIST) =>
            {
                let directory = target.open(path, DIRECTORY, Mode::empty())?;
                let mode = Mode::from_raw_mode(view.directory_mode(path) | DIRECTORY_OWNER_BITS);
                rustix::fs::fchmod(directory, mode)
                    .map_err(|errno| failed("fchmod", path, errno))?;
            }
            removed => removed?,
        }
    }
    Ok(())
}

/// The directories in the directory `above` (`None`: the root) that are below too.
fn directories_below(
    root: BorrowedFd<'_>,
    above: Option<&RelPath>,
    exists_below: ExistsBelow<'_>,
) -> Result<Vec<RelPath>, UnpackError> {
    let name = above.map_or(&b"."[..], RelPath::as_bytes);
    let failed = |call| {
        let name = escape(name);
        move |errno| UnpackError::Target {
            source: CallError::new(call, name.clone(), errno),
            name,
        }
    };
    let directory =
        open_beneath(root, name, DIRECTORY, Mode::empty()).map_err(failed("openat2"))?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory).map_err(failed("getdents64"))? {
        let entry = entry.map_err(failed("getdents64"))?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let status = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed("fstatat"))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
            continue;
        }
        let path = match above {
            None => name.to_bytes().to_vec(),
            Some(above) => [above.as_bytes(), b"/", name.to_bytes()].concat(),
        };
        let path = RelPath::parse(&path).map_err(|_long| failed("fstatat")(Errno::NAMETOOLONG))?;
        let exists = exists_below(&path).map_err(|source| UnpackError::Source {
            name: escape(path.as_bytes()),
            source,
        })?;
        if exists {
            found.push(path);
        }
    }
    Ok(found)
}
