//! Converts the result of a preparation run to a layer, after its last process has ended. Its tree
//! and package archives are untrusted input.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::plan::preparation::{DEBS, Kind, LAYER, NODE_MODULES, PYTHON, Step};
use crate::run::error::RunError;
use crate::run::preparation::error::PreparationProblem;
use archive::deb::{Package, PackageLayer};
use archive::hiding::ExistsBelow as Below;
use archive::{LayerView, UnpackLimits};
use sources::oci::opening::layer_limits;
use spec::host_policy::HostPolicy;
use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape};
use store::disk_bytes;
use sys::file::open_beneath;

/// Maximum number of package archives of one run.
const DEBS_MAX: usize = 4_000;

/// The root that packages are installed on; resolves the paths of packages.
#[derive(Clone, Copy)]
pub(super) struct Root<'run> {
    pub(in crate::run) view: &'run LayerView,
    /// Whether something is there.
    pub(super) below: Below<'run>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    pub(in crate::run) bytes: u64,
    pub(in crate::run) disk_bytes: u64,
    /// Native packages with their versions.
    pub(in crate::run) packages: Vec<String>,
    pub(super) scripts_not_run: Vec<String>,
}

pub(super) struct Harvest<'run> {
    kind: Kind,
    into: BorrowedFd<'run>,
    root: Root<'run>,
    limits: UnpackLimits,
    is_cancelled: &'run dyn Fn() -> bool,
    note: RefCell<Option<Note>>,
}

impl<'run> Harvest<'run> {
    /// Writes to the empty directory `into`; stops reading archives once `is_cancelled`.
    pub(in crate::run) fn new(
        kind: Kind,
        into: BorrowedFd<'run>,
        root: Root<'run>,
        policy: &HostPolicy,
        is_cancelled: &'run dyn Fn() -> bool,
    ) -> Self {
        Self {
            kind,
            into,
            root,
            limits: layer_limits(policy),
            is_cancelled,
            note: RefCell::new(None),
        }
    }

    /// Reads the writable space of a run that succeeded.
    pub(in crate::run) fn read(&self, space: BorrowedFd<'_>) -> Result<(), RunError> {
        let note = match self.kind {
            Kind::Native => self.packages(space)?,
            Kind::Npm => self.tree(space, NODE_MODULES)?,
            Kind::Pip => self.tree(space, PYTHON)?,
        };
        *self.note.borrow_mut() = Some(note);
        Ok(())
    }

    /// The metadata.
    ///
    /// # Errors
    /// [`RunError::Host`] if nothing was converted.
    pub(in crate::run) fn finish(self, step: &Step) -> Result<Note, RunError> {
        let act = || format!("read the result of the preparation of {}", step.kind.word());
        self.note
            .into_inner()
            .ok_or_else(|| RunError::host(act())(Errno::NODATA))
    }

    fn tree(&self, space: BorrowedFd<'_>, expected: &'static str) -> Result<Note, RunError> {
        let kind = self.kind.word();
        let left = open_result(space, LAYER)?;
        let unpacked = archive::unpack_directory_as(left.as_fd(), self.into, &self.limits, None);
        let unpacked = unpacked.map_err(|source| PreparationProblem::Layer {
            kind,
            source: Box::new(source),
        })?;
        let inside = expected.trim_start_matches('/').as_bytes();
        let elsewhere = unpacked.tree.iter().map(|(path, _)| path).find(|path| {
            let path = path.as_bytes();
            let below = |path: &[u8], above: &[u8]| {
                path.strip_prefix(above)
                    .is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
            };
            !below(path, inside) && !below(inside, path)
        });
        if let Some(path) = elsewhere {
            return Err(PreparationProblem::Elsewhere {
                kind,
                found: format!("/{}", escape(path.as_bytes())),
                expected,
            }
            .into());
        }
        Ok(Note {
            bytes: unpacked.bytes,
            disk_bytes: disk_bytes(&unpacked.tree),
            ..Note::default()
        })
    }

    fn packages(&self, space: BorrowedFd<'_>) -> Result<Note, RunError> {
        let debs = open_result(space, DEBS)?;
        let mut layer = PackageLayer::new(
            self.into,
            self.root.view.clone(),
            self.root.below,
            self.limits,
        );
        let mut note = Note::default();
        // Packages are not trusted: this process still reads them.
        let permit = ParsePermit::for_trusted_text();
        for name in names(debs.as_fd())? {
            let refused = |source| PreparationProblem::Deb {
                file: escape(&name),
                source,
            };
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
            let file = open_beneath(debs.as_fd(), &name, flags, Mode::empty())
                .map_err(|errno| refused(archive::deb::DebError::Read(errno.into())))?;
            // Can be cancelled: an archive of limited size may inflate a thousandfold.
            let package = layer
                .add(&permit, File::from(file), self.is_cancelled)
                .map_err(refused)?;
            let shown = shown(&package);
            if !package.scripts.is_empty() {
                note.scripts_not_run.push(shown.clone());
            }
            note.packages.push(shown);
        }
        let written = layer.finish().map_err(|source| PreparationProblem::Layer {
            kind: self.kind.word(),
            source: Box::new(source),
        })?;
        note.bytes = written.bytes;
        note.disk_bytes = written.disk_bytes;
        Ok(note)
    }
}

fn shown(package: &Package) -> String {
    format!(
        "{} {}",
        escape(package.name.as_bytes()),
        escape(package.version.as_bytes())
    )
}

/// A directory of the scratch root, which the run may have replaced by anything.
fn open_result(space: BorrowedFd<'_>, path: &str) -> Result<std::os::fd::OwnedFd, RunError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let inside = path.trim_start_matches('/').as_bytes();
    open_beneath(space, inside, flags, Mode::empty())
        .map_err(RunError::host(format!("open {path} of the preparation")))
}

/// The archives of apt, sorted by name, which has package and version.
fn names(directory: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, RunError> {
    let failed = || RunError::host("list the packages of the preparation");
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let name = entry.file_name().to_bytes();
        if name.ends_with(b".deb") && RelPath::parse(name).is_ok() {
            names.push(name.to_vec());
        }
        if names.len() > DEBS_MAX {
            return Err(failed()(Errno::TOOBIG));
        }
    }
    names.sort();
    Ok(names)
}
